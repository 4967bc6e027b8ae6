"""Running a recording through a fresh state machine: the same stimuli must give the same instructions, bit for bit.

A recording contains no counts. The replay uses zeros instead, and the recorded noisy values instead of draws: what a
server does depends on counts in no other way. The recorded signatures replace the key. Neighbours' messages are checked
as before, against the keys of network.toml.

A draw that was not paid for is not recorded either. Its step is run with other values, and nothing is compared; the
machine discards that draw, as it did then, and what follows is the same again.
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
from dpcrowd.node.recording.lines import AccountChange, apply_change
from dpcrowd.node.slots import rfc3339
from dpcrowd.privacy.account import Account

__all__ = ["Difference", "Replayed", "replay"]

_LONGEST = 1 << 28  # bytes of a line
_RECENT_STEPS = 64  # as in the recorder
_SIGNATURE = 64


@dataclass(frozen=True)
class Difference:
    """A step whose instructions differ from the recorded ones.

    life  number of the run, counted from 1; the field has this name in the JSON output
    step  number of the stimulus in its run, counted from 1
    """

    life: int
    step: int
    on: str
    at: str
    recorded: tuple[str, ...]
    replayed: tuple[str, ...]

    def __str__(self) -> str:
        before, after = (", ".join(kinds) or "nothing" for kinds in (self.recorded, self.replayed))
        what = f"recorded {before}; now {after}" if before != after else f"{before}, with different content"
        return f"run {self.life}, stimulus {self.step} ({self.on}, {self.at}): {what}."


@dataclass(frozen=True)
class Replayed:
    """The result of a replay.

    lives         number of runs that were replayed; the field has this name in the JSON output
    steps         number of stimuli
    difference    the first difference, at which the replay stopped; None if there is none
    ended         why the last run was not recorded to its end; empty if it was
    versions      the versions of dpcrowd that wrote the recording
    """

    lives: int
    steps: int
    difference: Difference | None
    ended: str
    versions: tuple[str, ...]


def replay(path: Path) -> Replayed:
    """Replay all runs of a recording up to the first difference; `BadInput` says what is wrong with the file."""
    runs = steps = 0
    run: _ReplayedRun | None = None
    ended, versions = "", []
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        if isinstance(line, lines.Start):
            run, ended = _ReplayedRun(line, where), ""
            runs += 1
            versions.append(line.version)
        elif run is None:
            raise BadInput(
                f"{where}: a recording begins with the start of a run; this is not a recording of dpcrowd, or its "
                "beginning is missing."
            )
        elif isinstance(line, lines.End):
            ended = line.why
        else:
            replayed = run.replay_step(line, where)
            steps += 1
            if replayed is not None:
                difference = Difference(runs, line.number, line.on, _time_of(line), line.did, replayed)
                return Replayed(runs, steps, difference, ended, tuple(dict.fromkeys(versions)))
    if not runs:
        raise BadInput(f"{path} is not a recording of dpcrowd: it is empty.")
    return Replayed(runs, steps, None, ended, tuple(dict.fromkeys(versions)))


def _lines(path: Path) -> Iterator[tuple[int, lines.Line]]:
    """Yield the complete lines; an incomplete one at the end of a run was being written when the node was killed."""
    damage: str | None = None
    is_recording = False
    try:
        with path.open("rb") as file:
            number = 0
            while text := file.readline(_LONGEST):
                number += 1
                try:
                    line = _decoder.decode(text)
                except (msgspec.MsgspecError, RecursionError) as error:
                    if damage is not None:
                        raise BadInput(damage) from None
                    damage = f"{path}, line {number}: damaged ({error})"
                    if is_recording:
                        damage += "; only the last line of a run may be incomplete, and this one is in the middle."
                    else:
                        damage += ": this is not a recording of dpcrowd, or its beginning is missing."
                    _check_format(text, f"{path}, line {number}")
                    continue
                if damage is not None and not isinstance(line, lines.Start):
                    raise BadInput(damage)
                damage, is_recording = None, True
                yield number, line
            if damage is not None and not is_recording:
                raise BadInput(damage)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from None


def _check_format(text: bytes, where: str) -> None:
    """Refuse a start that is not damaged, but was written by another version of dpcrowd."""
    try:
        head = msgspec.json.decode(text, type=_Head)
    except (msgspec.MsgspecError, RecursionError):
        return
    if head.kind == "start" and head.format != lines.FORMAT:
        raise BadInput(
            f"{where}: dpcrowd {head.version} wrote this in format {head.format}; this is {__version__}, which "
            f"reads format {lines.FORMAT}. Replay it with the version that wrote it."
        )


class _Head(msgspec.Struct):
    kind: str
    format: int
    version: str


def _time_of(step: lines.Step) -> str:
    return rfc3339(int(msgspec.json.decode(step.fields)["at_ns"]))


class _ReplayedRun:
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
            stored=start.records,
            earlier=[self._revision(text, start.expires, where).view for text in start.earlier],
        )

    def _revision(self, text: str, expires: int, where: str) -> Revision:
        network = parse_network(text, f"{where}: network.toml")
        view = view_of(network, self._server, self._sign, expires)
        noise = _RecordedDraws(self._noisy)
        return revision_of(network, view, noise, allow_simulated_noise=True)

    def _account(self, change: AccountChange | None) -> Account | None:
        if change is not None:
            self._last_account = apply_change(self._last_account, change)
        return None if change is None else self._last_account

    def _sign(self, *parts: bytes) -> bytes:
        return self._signed.pop(0) if self._signed else bytes(_SIGNATURE)

    def replay_step(self, step: lines.Step, where: str) -> tuple[str, ...] | None:
        """Replay one step; return the kinds of its instructions if they differ from the recorded ones, else None."""
        self._noisy[:], self._signed[:] = step.noisy, step.signed
        try:
            stimulus = self._stimulus(step, where)
        except (msgspec.MsgspecError, KeyError, IndexError) as error:
            raise BadInput(f"{where}: the stimulus '{step.on}' is damaged ({error}).") from None
        try:
            instructions = self._machine.handle(stimulus)
        except BadInput as refusal:
            return None if str(refusal) == step.refused else (f"refused: {refusal}",)
        self._steps[step.number] = instructions
        self._steps.pop(step.number - _RECENT_STEPS, None)
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
                instructions, place = self._steps[failed.step], failed.place
                rest = tuple(instructions[place + 1 :])
                return on.StorageFailed(failed.at_ns, instructions[place], failed.text, rest)
            case "KeyRenewed":
                key = msgspec.json.decode(step.fields, type=lines.NewKey)
                return on.KeyRenewed(key.at_ns, self._sign, key.expires)
            case "RevisionTaken":
                new = msgspec.json.decode(step.fields, type=lines.NewRevision)
                revision = self._revision(new.network, new.expires, where)
                return on.RevisionTaken(new.at_ns, new.slot, revision, self._account(new.account))
            case "LossBooked":
                booked = msgspec.json.decode(step.fields, type=lines.Booked)
                return on.LossBooked(booked.at_ns, booked.counter, booked.text, self._account(booked.account))
            case "ClockLookedUp":
                state = msgspec.json.decode(step.fields, type=lines.LookedUp)
                return on.ClockLookedUp(state.at_ns, state.last, state.known, state.text, self._account(state.account))
        kind: Callable[..., on.Stimulus] = lines.KINDS[step.on]
        return cast(on.Stimulus, msgspec.json.decode(step.fields, type=kind))


class _RecordedDraws:
    """Noise that returns recorded draws, whatever the counts are."""

    private = False

    def __init__(self, noisy: list[bytes]) -> None:
        self._noisy = noisy

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        values = self._noisy.pop(0) if self._noisy else bytes(8 * np.size(where))
        if len(values) != 8 * np.size(where):
            raise BadInput(f"{len(values) // 8} noisy values were recorded where {np.size(where)} are drawn now.")
        return np.frombuffer(values, dtype="<f8").astype(np.float64).reshape(np.shape(where))


_decoder = msgspec.json.Decoder(lines.Line)
