"""Recording what happens to the state machine while a node runs; `lines` defines the content.

Only its owner can read the file; a file that others can read is refused. A new run is appended to the earlier ones: to
find the reason of a crash one needs the run that crashed. At the limit, or if the disk is full, the recording ends and
the node continues.
"""

from __future__ import annotations

import logging
import os
import stat
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dpcrowd.__about__ import __version__
from dpcrowd.errors import BadInput
from dpcrowd.node.machine import Machine
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.recording import lines
from dpcrowd.node.recording.lines import AccountChange, change_of
from dpcrowd.node.wire import Sign
from dpcrowd.privacy import Noise
from dpcrowd.privacy.account import Account

__all__ = ["NodeRecorder"]

log = logging.getLogger("dpcrowd.node")

_RECENT_STEPS = 64  # steps whose instructions may still fail
_LAST_LINE = 256  # bytes reserved for the last line


class NodeRecorder:
    """The recorder of one run of a node.

    text_of  returns the text of network.toml of the revision with this number; None: the file no longer exists
    """

    def __init__(self, path: Path, limit: int, text_of: Callable[[int], str | None]) -> None:
        self._path, self._limit, self._text_of = path, limit, text_of
        self._number = 0
        self._noisy: list[bytes] = []
        self._signed: list[bytes] = []
        self._pending: lines.Step | None = None  # with a draw that may not be paid for yet
        self._steps: deque[tuple[int, Sequence[do.Instruction]]] = deque(maxlen=_RECENT_STEPS)
        self._account: Account | None = None
        self._file: int | None = _open(path)
        self._size = os.fstat(self._file).st_size
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            self._write(b"\n")  # an earlier run was killed while it wrote

    # ------------------------------------------------------------------------------------------------ external inputs

    def noise(self, noise: Noise) -> Noise:
        """Return the same noise, whose draws are recorded."""
        return _RecordedNoise(noise, self._noisy.append)

    def sign(self, sign: Sign) -> Sign:
        """Return the same signing function, whose signatures are recorded."""

        def recorded_sign(*parts: bytes) -> bytes:
            signature = sign(*parts)
            self._signed.append(signature)
            return signature

        return recorded_sign

    # --------------------------------------------------------------------------------------------------------- events

    def start(self, machine: Machine, at_ns: int) -> None:
        """Record the start of a run with this machine, which has handled nothing yet."""
        view, trust = machine.view, machine.trust
        text = self._text_of(view.revision)
        views = () if machine.records is None else machine.records.revisions.earlier
        earlier = [self._text_of(one.revision) for one in views]
        texts = [one for one in earlier if one is not None]
        if text is None or len(texts) < len(earlier):
            self._end(f"the file of revision {view.revision}, or of one before it, does not exist any more")
            return
        self._put(
            lines.Start(
                format=lines.FORMAT,
                version=__version__,
                at_ns=at_ns,
                server=view.names[view.me],
                network=text,
                expires=view.expires,
                state=machine.server.save(),
                counter=trust.counter,
                remembered=dict(machine.remembered),
                vouched=trust.vouched,
                complete_until=trust.complete_until,
                following=machine.following,
                account=self._change(machine.server.account),
                records=() if machine.records is None else machine.records.held.contents(),
                earlier=tuple(texts),
            )
        )

    def begin_step(self) -> None:
        """Prepare for a stimulus that the machine is about to handle."""
        self._noisy.clear()
        self._signed.clear()

    def end_step(self, stimulus: on.Stimulus, instructions: Sequence[do.Instruction], refused: str = "") -> None:
        """Record a stimulus that the machine has handled, and the resulting instructions."""
        if self._file is None:
            return
        self._number += 1
        self._steps.append((self._number, instructions))
        self._settle(paid=isinstance(stimulus, on.SampleStored))
        fields = self._fields(stimulus)
        if fields is None:
            return
        step = lines.Step(
            number=self._number,
            on=type(stimulus).__name__,
            fields=msgspec.Raw(msgspec.json.encode(fields)),
            noisy=tuple(self._noisy),
            signed=tuple(self._signed),
            did=lines.kinds_of(instructions),
            digest=lines.digest_of(instructions),
            refused=refused,
        )
        if any(isinstance(one, do.StoreSample) for one in instructions):
            self._pending = step
        else:
            self._put(step)

    def _settle(self, *, paid: bool) -> None:
        """Record the pending step once its sample is stored; if it could not be stored, without what was drawn."""
        step, self._pending = self._pending, None
        if step is not None and paid:
            self._put(step)
        elif step is not None:
            self._put(msgspec.structs.replace(step, noisy=(), signed=(), digest=b"", unpaid=True))

    def close(self) -> None:
        """End the recording of this run; a pending step, whose draw may not be paid for, is not recorded."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # --------------------------------------------------------------------------------------------------------- writing

    def _fields(self, stimulus: on.Stimulus) -> object:
        match stimulus:
            case on.SlotSealed(at_ns, slot, counts, account, why):
                return lines.Sealed(at_ns, slot, counts is not None, self._change(account), why)
            case on.LossBooked(at_ns, counter, text, account):
                return lines.Booked(at_ns, counter, text, self._change(account))
            case on.ClockLookedUp(at_ns, last, known, text, account):
                return lines.LookedUp(at_ns, last, known, text, self._change(account))
            case on.StorageFailed(at_ns, failed, text):
                number, place = self._place_of(failed)
                return lines.Failed(at_ns, text, number, place)
            case on.KeyRenewed(at_ns, _, expires):
                return lines.NewKey(at_ns, expires)
            case on.RevisionTaken(at_ns, slot, revision, account):
                view = revision.view
                network = self._text_of(view.revision)
                if network is None:
                    self._end(f"the file of revision {view.revision} does not exist any more")
                    return None
                return lines.NewRevision(at_ns, slot, network, view.expires, self._change(account))
        return stimulus

    def _change(self, account: Account | None) -> AccountChange | None:
        """Return the change from the account that was recorded last."""
        if account is None:
            return None
        before, self._account = self._account, account
        return change_of(before, account)

    def _place_of(self, failed: do.Instruction) -> tuple[int, int]:
        """Return the last step that gave this instruction, and its place among the instructions of the step."""
        for number, instructions in reversed(self._steps):
            for place, instruction in enumerate(instructions):
                if instruction is failed:
                    return number, place
        raise AssertionError("no recent step gave this instruction")

    def _put(self, line: lines.Line) -> None:
        encoded = msgspec.json.encode(line) + b"\n"
        if self._size + len(encoded) > self._limit - _LAST_LINE:
            self._end("debug.record_limit is reached")
        else:
            self._write(encoded)

    def _write(self, encoded: bytes) -> None:
        if self._file is None:
            return
        try:
            while encoded:
                size = os.write(self._file, encoded)
                self._size += size
                encoded = encoded[size:]
        except OSError as error:
            self._stop(error.strerror or str(error))

    def _end(self, why: str) -> None:
        self._write(msgspec.json.encode(lines.End(why=why)) + b"\n")
        self._stop(why)

    def _stop(self, why: str) -> None:
        if self._file is not None:
            text = "the recording %s ends: %s. The node continues."
            log.warning(text, self._path, why, extra={"event": "recording"})
        self.close()


class _RecordedNoise:
    """Noise that passes every draw to a function."""

    def __init__(self, noise: Noise, record: Callable[[bytes], None]) -> None:
        self.private = noise.private
        self._noise, self._record = noise, record

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        values = self._noise.noisy(slot, counts, charge, sensitivity, where, read)
        self._record(np.ascontiguousarray(values, dtype="<f8").tobytes())
        return values


def _open(path: Path) -> int:
    """Open a file at its end, readable only by its owner; create it if it does not exist."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    try:
        file = os.open(path, flags, 0o600)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(f"debug.record: {path} cannot be opened: {reason}; give the path of a file.") from None
    status = os.fstat(file)
    readable = os.name == "posix" and (stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid != os.geteuid())
    if not stat.S_ISREG(status.st_mode) or readable:
        os.close(file)
        raise BadInput(
            f"debug.record: others can read {path}, or it is not a file of this user; delete it, or run "
            f"'chmod 600 {path}'."
        )
    return file
