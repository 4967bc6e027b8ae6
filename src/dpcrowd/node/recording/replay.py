"""Running a recording through a fresh state machine: the same stimuli have to give the same instructions, bit for bit.

Counts are not in a recording. Zeros take their place, and the recorded noisy values that of the draws: what a server
does depends on counts in no other way. The recorded signatures take the place of the key. Neighbours' messages are
checked as they were, against the keys of network.toml.

A draw that was not paid for is not in the recording either. Its step is run with other values, and nothing is compared;
the machine throws that draw away, as it did then, and what comes after is the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from dpcrowd.__about__ import __version__
from dpcrowd.errors import BadInput
from dpcrowd.node.build import revision_of, view_of
from dpcrowd.node.config import parse_network
from dpcrowd.node.machine import Machine, Revision
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.recording import lines
from dpcrowd.node.recording.accounts import AccountChange, changed
from dpcrowd.node.slots import rfc3339
from dpcrowd.privacy.account import Account

__all__ = ["Difference", "Replayed", "replay"]

_LONGEST = 1 << 28  # bytes of a line
_KEPT = 64
_SIGNATURE = 64


@dataclass(frozen=True)
class Difference:
    """What came out otherwise than it was recorded; life and step are counted from 1."""

    life: int
    step: int
    on: str
    at: str
    recorded: tuple[str, ...]
    replayed: tuple[str, ...]

    def __str__(self) -> str:
        before, after = (", ".join(kinds) or "nothing" for kinds in (self.recorded, self.replayed))
        what = f"recorded {before}; now {after}" if before != after else f"{before}, with other contents"
        return f"life {self.life}, stimulus {self.step} ({self.on}, {self.at}): {what}."


@dataclass(frozen=True)
class Replayed:
    """lives, steps: how many were run; ended: why the last life was not written to its end; versions: that wrote it."""

    lives: int
    steps: int
    difference: Difference | None
    ended: str
    versions: tuple[str, ...]


def replay(path: Path) -> Replayed:
    """Run all lives of a recording, up to the first difference; `BadInput` says what is wrong with the file."""
    lives = steps = 0
    life: _Life | None = None
    ended, versions = "", []
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        if isinstance(line, lines.Start):
            life, ended = _Life(line, where), ""
            lives += 1
            versions.append(line.version)
        elif life is None:
            raise BadInput(
                f"{where}: a recording begins with the start of a life; this is not one, or its head is lost."
            )
        elif isinstance(line, lines.End):
            ended = line.why
        else:
            replayed = life.run(line, where)
            steps += 1
            if replayed is not None:
                at = _at(line)
                found = Difference(lives, line.number, line.on, at, line.did, replayed)
                return Replayed(lives, steps, found, ended, tuple(dict.fromkeys(versions)))
    if not lives:
        raise BadInput(f"{path}: holds no recording of a node.")
    return Replayed(lives, steps, None, ended, tuple(dict.fromkeys(versions)))


def _lines(path: Path) -> Iterator[tuple[int, lines.Line]]:
    """The lines that are whole. One that is not, at the end of a life, was being written when the life was killed."""
    broken: str | None = None
    try:
        with path.open("rb") as file:
            number = 0
            while text := file.readline(_LONGEST):
                number += 1
                try:
                    line = _decoder.decode(text)
                except (msgspec.MsgspecError, RecursionError) as error:
                    if broken is not None:
                        raise BadInput(broken) from None
                    broken = (
                        f"{path}, line {number}: damaged ({error}). A line that is cut off is normal at the end of a "
                        "life; this one is in the middle of it."
                    )
                    _check_format(text, f"{path}, line {number}")
                    continue
                if broken is not None and not isinstance(line, lines.Start):
                    raise BadInput(broken)
                broken = None
                yield number, line
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}.") from None


def _check_format(text: bytes, where: str) -> None:
    """Refuse a start that is not damaged, but of another version of dpcrowd."""
    try:
        head = msgspec.json.decode(text, type=_Head)
    except (msgspec.MsgspecError, RecursionError):
        return
    if head.kind == "start" and head.format != lines.FORMAT:
        raise BadInput(
            f"{where}: written in format {head.format} by dpcrowd {head.version}; this is {__version__}, which "
            f"reads format {lines.FORMAT}. Replay it with the version that wrote it."
        )


class _Head(msgspec.Struct):
    kind: str
    format: int
    version: str


def _at(step: lines.Step) -> str:
    return rfc3339(int(msgspec.json.decode(step.fields)["at_ns"]))


class _Life:
    """A machine that begins as the recorded one did."""

    def __init__(self, start: lines.Start, where: str) -> None:
        if start.format != lines.FORMAT:
            _check_format(msgspec.json.encode(start), where)
        self._server = start.server
        self._noisy: list[bytes] = []
        self._signed: list[bytes] = []
        self._steps: dict[int, list[do.Instruction]] = {}
        self._last_account: Account | None = None
        revision = self._revision(start.network, start.expires, where)
        server = revision.make_server(self._account(start.account))
        server.restore(start.state)
        self._machine = Machine(
            revision,
            server,
            counter=start.counter,
            heard=start.remembered,
            vouched=start.vouched,
            complete_until=start.complete_until,
            following=start.following,
        )

    def _revision(self, text: str, expires: int, where: str) -> Revision:
        network = parse_network(text, f"{where}: network.toml")
        view = view_of(network, self._server, self._sign, expires)
        noise = _Drawn(self._noisy)
        return revision_of(network, view, noise, allow_simulated_noise=True)

    def _account(self, change: AccountChange | None) -> Account | None:
        if change is not None:
            self._last_account = changed(self._last_account, change)
        return None if change is None else self._last_account

    def _sign(self, *parts: bytes) -> bytes:
        return self._signed.pop(0) if self._signed else bytes(_SIGNATURE)

    def run(self, step: lines.Step, where: str) -> tuple[str, ...] | None:
        """What came out, if it is otherwise than it was; None: it is the same."""
        self._noisy[:], self._signed[:] = step.noisy, step.signed
        try:
            stimulus = self._stimulus(step, where)
        except (msgspec.MsgspecError, KeyError, IndexError) as error:
            raise BadInput(f"{where}: the stimulus '{step.on}' is damaged ({error}).") from None
        try:
            instructions = self._machine.handle(stimulus)
        except BadInput as refused:
            return None if str(refused) == step.refused else (f"refused: {refused}",)
        self._steps[step.number] = instructions
        self._steps.pop(step.number - _KEPT, None)
        same = step.unpaid or (lines.digest_of(instructions) == step.digest and not self._noisy and not self._signed)
        return None if same and not step.refused else lines.kinds_of(instructions)

    def _stimulus(self, step: lines.Step, where: str) -> on.Stimulus:
        match step.on:
            case "SlotSealed":
                sealed = msgspec.json.decode(step.fields, type=lines.Sealed)
                zeros = np.zeros(len(self._machine.view.regions), dtype=np.int64)
                counts, why = zeros if sealed.counted else None, cast(do.Unsampled | None, sealed.why)
                return on.SlotSealed(sealed.at_ns, sealed.slot, counts, self._account(sealed.account), why)
            case "StorageFailed":
                failed = msgspec.json.decode(step.fields, type=lines.Failed)
                given = self._steps[failed.step]
                return on.StorageFailed(
                    failed.at_ns, given[failed.place], failed.text, tuple(given[failed.place + 1 :])
                )
            case "KeyRenewed":
                key = msgspec.json.decode(step.fields, type=lines.NewKey)
                return on.KeyRenewed(key.at_ns, self._sign, key.expires)
            case "RevisionTaken":
                taken = msgspec.json.decode(step.fields, type=lines.NewRevision)
                revision = self._revision(taken.network, taken.expires, where)
                return on.RevisionTaken(taken.at_ns, taken.slot, revision, self._account(taken.account))
            case "LossBooked":
                booked = msgspec.json.decode(step.fields, type=lines.Booked)
                return on.LossBooked(booked.at_ns, booked.counter, booked.text, self._account(booked.account))
            case "ClockLookedUp":
                found = msgspec.json.decode(step.fields, type=lines.LookedUp)
                return on.ClockLookedUp(found.at_ns, found.last, found.known, found.text, self._account(found.account))
        kind: Callable[..., on.Stimulus] = lines.KINDS[step.on]
        return cast(on.Stimulus, msgspec.json.decode(step.fields, type=kind))


class _Drawn:
    """Noise that was drawn before, whatever the counts are."""

    private = False

    def __init__(self, noisy: list[bytes]) -> None:
        self._noisy = noisy

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        drawn = self._noisy.pop(0) if self._noisy else bytes(8 * np.size(where))
        if len(drawn) != 8 * np.size(where):
            raise BadInput(f"{len(drawn)} bytes of noisy values were recorded where {np.size(where)} are drawn now.")
        return np.frombuffer(drawn, dtype="<f8").astype(np.float64).reshape(np.shape(where))


_decoder = msgspec.json.Decoder(lines.Line)
