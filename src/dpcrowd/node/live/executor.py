"""Carrying instructions out, in their order, one stimulus at a time: what must be durable first is durable first.

Nothing but stimuli is queued. What an instruction has to be answered with is handed back to the machine at once, before
the next instruction is carried out (`_carry_out`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from dpcrowd.errors import BadInput, DpcrowdError
from dpcrowd.node.api.broadcast import Broadcast
from dpcrowd.node.live.log_limits import SampleLog, StorageLog
from dpcrowd.node.live.neighbour_estimates import NeighbourEstimates
from dpcrowd.node.live.record_history import KeptRecords
from dpcrowd.node.live.slot_cycle import Counting
from dpcrowd.node.live.timing import WallClock
from dpcrowd.node.machine import Machine
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.metrics.slot_meter import SlotMeter
from dpcrowd.node.recording.recorder import NodeRecorder
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.storage import RecordRow, Refusal, Storage, StorageError
from dpcrowd.node.transport.base import Transport, TransportFailed
from dpcrowd.node.wire import MessageReason
from dpcrowd.privacy.units import NANO

__all__ = ["Executor"]

log = logging.getLogger("dpcrowd.node")

STRANGER: MessageReason = "stranger"
FLOOD: MessageReason = "flood"
_MANY = 100
_PUNCTUAL = 5_000_000  # nanoseconds: what a timer may be late by
_TURNS = 10  # of the loop, in which readers get what was published; forgetting many check-ins would hold them up
_SHORT = 0.05  # seconds

T = TypeVar("T")


class Outside(Protocol):
    """What a node does that is not the executor's own work; whatever comes back is a stimulus."""

    @property
    def counting(self) -> Counting:
        """What was counted in slots that are over."""

    async def link(self, instruction: do.Link, at_ns: int) -> None:
        """Tells the machine by itself (`Executor.handle`), before links are closed and after they are opened."""
        ...

    async def decide(
        self, instruction: do.TakeOver | do.BookLoss | do.LookBack | do.StoreReturn, at_ns: int
    ) -> on.Stimulus: ...

    async def begin_again(self, last: int) -> None: ...

    async def book_clock_step(self, step: do.BookClockStep) -> None: ...

    def schedule(self, slot: int, at_ns: int) -> None:
        """Tell the machine when a deadline has come."""
        ...


@dataclass(frozen=True)
class _Queued:
    """A stimulus, and who waits for what the machine makes of it."""

    stimulus: on.Stimulus
    answer: asyncio.Future[str] | None = None


class Executor:
    """Carries out what the machine instructs. `give` queues a stimulus; `run` handles the queue, for ever.

    outside      does whatever is neither stored nor sent
    clock        by which messages leave
    meter        counts what was done
    storage_log  of the node, see `StorageLog`
    recorder     writes down what happens to the machine, if somebody wants that
    """

    def __init__(
        self,
        machine: Machine,
        storage: Storage,
        transport: Transport,
        broadcast: Broadcast,
        outside: Outside,
        clock: WallClock | None = None,
        meter: SlotMeter | None = None,
        storage_log: StorageLog | None = None,
        recorder: NodeRecorder | None = None,
    ) -> None:
        self.machine, self._storage, self._transport = machine, storage, transport
        self._broadcast, self._outside, self._clock = broadcast, outside, clock or WallClock()
        self._meter = meter or SlotMeter()
        self.storage_log, self.sample_log = storage_log or StorageLog(), SampleLog()
        self._recorder = recorder
        self.neighbour_estimates = NeighbourEstimates()
        self.kept_records = KeptRecords()
        self._queue: asyncio.Queue[_Queued | BaseException] = asyncio.Queue()  # or what has ended a timer
        self._queued = self._handled = 0
        self._over = False
        self._answer: str | None = None  # of the machine, to whoever has asked
        self._distrust = ""  # why the ledger is not trusted, as the log has it
        self._refusals: Counter[Refusal] = Counter()
        self._logged: tuple[int, set[tuple[str, str]]] = -1, set()  # of a slot: refusals that the log has
        self.refused: Counter[tuple[str, str]] = Counter()  # (sender, reason)
        self.refused_last: dict[tuple[str, str], int] = {}  # when the last one came
        self.last: SlotRelease | None = None
        self.sent = 0
        self.sent_by_kind: Counter[do.SendKind] = Counter()
        self.sent_bytes = 0
        self.late = 0  # of those
        self.may_be_late = True  # the next one: after a start, a standstill or a clock that was set
        self._timers: set[asyncio.Task[None]] = set()  # messages whose time has not come
        self.idle = asyncio.Event()
        # A thread of its own: those who read estimates must not delay a slot.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dpcrowd-executor")

    def expect_late_message(self) -> None:
        """Expect the next message to be late: the clock was set, or nothing ran for a while."""
        self.may_be_late = True

    def give(self, stimulus: on.Stimulus, answer: asyncio.Future[str] | None = None) -> None:
        """Queue a stimulus; `answer` gets what the machine replies."""
        self.idle.clear()
        self._queued += 1
        self._queue.put_nowait(_Queued(stimulus, answer))

    async def ask(self, stimulus: on.Stimulus) -> str:
        """Queue a decision of the operator; return the machine's reply, or raise what has kept it from replying."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if self._over:
            answer.cancel()
        self.give(stimulus, answer)
        return await answer

    def message_arrived(self, sender: str, payload: bytes) -> None:
        """Queue a message that the transport has received from a neighbour whose name it has authenticated."""
        now = self._clock.now()
        self._meter.arrived(sender, payload, now, self.machine.view)
        self.neighbour_estimates.arrived(sender, payload)
        self.give(on.MessageArrived(now, sender, payload))

    async def run(self) -> None:
        try:
            while True:
                if self._queue.empty():
                    self.idle.set()
                item = await self._queue.get()
                if isinstance(item, BaseException):
                    raise item
                if item.answer is None:
                    await self.handle(item.stimulus)
                else:
                    await self._answer_to(item.stimulus, item.answer)
                self._handled += 1
        finally:
            for timer in self._timers:
                timer.cancel()
            self._over = True
            while not self._queue.empty():  # nobody answers any more
                item = self._queue.get_nowait()
                if isinstance(item, _Queued) and item.answer is not None:
                    item.answer.cancel()

    async def _answer_to(self, stimulus: on.Stimulus, answer: asyncio.Future[str]) -> None:
        self._answer = None
        try:
            await self.handle(stimulus)
        except DpcrowdError as error:  # whoever has asked is told, and the node goes on
            if not answer.done():
                answer.set_exception(error)
        except BaseException:
            answer.cancel()
            raise
        else:
            if not answer.done():
                answer.set_result(self._answer or "")

    async def check_alive(self) -> None:
        """Return when everything that was queued by now has been handled."""
        due = self._queued
        while self._handled < due:
            await asyncio.sleep(_SHORT)

    def _begin_again(self) -> None:
        """Drop messages that wait for a time of the clock that was ahead: slots begin again."""
        for timer in self._timers:
            timer.cancel()
        self.last = None

    async def forget_sealed(self) -> None:
        """Forget, at the end, check-ins of a slot in exchange: they must not outlive the process."""
        with suppress(StorageError):  # the next start forgets them
            await self._carry_out(do.ForgetCheckIns(self.machine.server.slot), 0)

    def close(self) -> None:
        """Release the thread and the recording, after `run` has been cancelled."""
        self._thread.shutdown(wait=False)
        if self._recorder is not None:
            self._recorder.close()

    async def in_thread(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Run something that waits for the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(call, *arguments, **named))

    async def handle(self, stimulus: on.Stimulus) -> None:
        """Carry out what the machine makes of a stimulus; a decision that cannot be stored raises why."""
        machine, recorder, last = self.machine, self._recorder, self.machine.server.slot
        handle = machine.handle if recorder is None else partial(_handle_recorded, machine, recorder)
        # After a long absence many slots are caught up, a quarter of a millisecond each: the API must not wait.
        far_behind = isinstance(stimulus, on.SlotSealed) and last >= 0 and stimulus.slot - last > _MANY
        instructions = await self.in_thread(handle, stimulus) if far_behind else handle(stimulus)
        if isinstance(stimulus, on.MessageArrived) and machine.records is not None:
            self._meter.records_arrived(machine.records.arrivals.new_slots, stimulus.at_ns, machine.view)
        for place, instruction in enumerate(instructions):
            try:
                result = await self._carry_out(instruction, stimulus.at_ns)
            except TransportFailed:
                raise
            except DpcrowdError as failure:
                # None of the instructions after it: what is not paid for must not leave.
                rest = tuple(instructions[place + 1 :])
                await self._fail(on.StorageFailed(stimulus.at_ns, instruction, str(failure), rest), failure)
                return
            self._meter.carried_out(instruction, self.machine.view)
            if result is not None:
                await self.handle(result)
            if not self.machine.can_store and isinstance(instruction, do.StoreRelease):
                await self.handle(on.StorageRecovered(stimulus.at_ns))

    async def _fail(self, stimulus: on.StorageFailed, failure: DpcrowdError) -> None:
        match stimulus.failed:
            case do.TakeOver():
                await self.handle(stimulus)
            case do.BookLoss() | do.LookBack() | do.StoreReturn():
                await self.handle(stimulus)
                raise failure
            case _:
                self._meter.failed(failure)
                await self.handle(stimulus)
                if not isinstance(failure, StorageError):  # the disk works: the ledger has refused this slot
                    await self.handle(on.StorageRecovered(stimulus.at_ns))

    async def _carry_out(self, instruction: do.Instruction, at_ns: int) -> on.Stimulus | None:  # noqa: PLR0912
        """Carry one instruction out; return the stimulus that answers it, if any."""
        clock = self.machine.view.clock
        log.debug(_summary(instruction), extra={"event": "instruction"})
        match instruction:
            case do.CountSlot(slot):
                self._meter.sealing(slot, self.machine.server.slot)
                return await self._outside.counting.count(instruction, at_ns)
            case do.StoreSample(slot, nano, _, noisy, state, record):
                call, opens = self._storage.commit_sample, clock.opens(slot)
                row = () if record is None else (_row(record),)
                counter = await self.in_thread(call, slot, opens, clock.length_ns, nano, noisy, state, *row)
                self._outside.counting.note_sampled()
                if self.machine.unused_since is None:
                    self.sample_log.used()
                return on.SampleStored(at_ns, counter)
            case do.StoreRelease(release, _, senders):
                await self._store_release(instruction)
                self.neighbour_estimates.released(release.slot, tuple(senders), len(release.regions))
                if self.machine.server.keeps_records:
                    self.kept_records.add(self.machine.server.record_estimates(), self.machine.view.names)
            case do.StoreCounters(counters):
                await self.in_thread(self._storage.memory.remember, counters)
            case do.Publish(release):
                self.last = release
                self._broadcast.publish(release)
            case do.Send(at_ns=None):
                await self._send(instruction)
            case do.Send():
                self._start_timer(self._send_in_time(instruction))
            case do.ForgetCheckIns(slot):
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
                await self.in_thread(self._storage.journal.forget_before, clock.closes(slot))
            case do.ScheduleDeadline(slot, due_ns):
                self._outside.schedule(slot, due_ns)
            case do.ScheduleForward(due_ns):
                self._start_timer(self._tell_forward_due(due_ns))
            case do.RefuseMessage():
                self._refuse(instruction)
            case do.Report() | do.NotSampled():
                self._report(instruction)
                if isinstance(instruction, do.NotSampled):
                    self._outside.counting.note_unsampled(instruction.why)
            case do.Answer(text):
                self._answer = text
            case _:
                return await self._carry_out_outside(instruction, at_ns)
        return None

    async def _carry_out_outside(self, instruction: do.Instruction, at_ns: int) -> on.Stimulus | None:
        """Have an instruction carried out by the node's other parts."""
        match instruction:
            case do.Link():
                await self._outside.link(instruction, at_ns)
            case do.TakeOver() | do.BookLoss() | do.LookBack() | do.StoreReturn():
                return await self._outside.decide(instruction, at_ns)
            case do.BeginAgain(last):
                self._begin_again()
                await self._outside.begin_again(last)
            case do.BookClockStep():
                await self._outside.book_clock_step(instruction)
        return None

    def _report(self, instruction: do.Report | do.NotSampled) -> None:
        match instruction:
            case do.Report("storage-failed", text):
                self.storage_log.failed("executor", text)
            case do.Report("storage-mended", text):
                self.storage_log.works("executor", text)
            case do.Report("own-absurd", text):
                self.sample_log.unused(text)
            case do.Report("join-first" as event, text):
                log.info(text, extra={"event": event})
            case do.Report(event, text, grave):
                log.log(logging.ERROR if grave else logging.WARNING, text, extra={"event": event})
            case do.NotSampled(slot, why, text) if text:
                # A ledger that may be an old copy is a warning when the reason is new.
                loud = why == "ledger" and text != self._distrust
                self._distrust = text if why == "ledger" else self._distrust
                level = logging.WARNING if loud else logging.INFO
                log.log(level, "slot %d is not sampled: %s", slot, text, extra={"event": "not-sampled", "slot": slot})

    async def _send(self, message: do.Send) -> int:
        """Send a message; return how many neighbours it was sent to.

        A link may have ended between the seal of a slot and now: after a restart, or a late timer. A neighbour that has
        a link and cannot be reached gets nothing, whatever the transport is given, and is not counted.
        """
        linked = [name for name in message.to if name in self.machine.linked]
        if linked:
            await self._transport.send(message.payload, linked)
        reached = [name for name in linked if name in self.machine.present]
        self.sent += len(reached)
        self.sent_by_kind[message.kind] += len(reached)
        self.sent_bytes += len(message.payload) * len(reached)
        return len(reached)

    async def _send_in_time(self, message: do.Send) -> None:
        """Send a message at its moment, past the queue: by how much it was late would show what is being done there."""
        assert message.at_ns is not None
        late = self._clock.now() > message.at_ns
        await self._clock.sleep_until(message.at_ns)
        late |= self._clock.now() > message.at_ns + _PUNCTUAL
        reached = await self._send(message)
        if late and reached:
            self.late += reached
        if late and reached and not self.may_be_late:
            text = "the message of slot %d left late; if that happens often, send_offset is too short for this machine."
            log.warning(text, message.slot, extra={"event": "sent-late"})
        self.may_be_late = False
        self.give(on.MessageSent(self._clock.now(), message.slot))

    async def _tell_forward_due(self, at_ns: int) -> None:
        await self._clock.sleep_until(at_ns)
        self.give(on.ForwardDue(self._clock.now()))

    def _start_timer(self, work: Coroutine[Any, Any, None]) -> None:
        timer = asyncio.create_task(work)
        self._timers.add(timer)
        timer.add_done_callback(self._timer_ended)

    def _timer_ended(self, timer: asyncio.Task[None]) -> None:
        self._timers.discard(timer)
        if not timer.cancelled() and (error := timer.exception()) is not None:
            self.idle.clear()
            self._queued += 1
            self._queue.put_nowait(error)  # it ends the node, as if it had happened there

    def _refuse(self, instruction: do.RefuseMessage) -> None:
        """Count a refused message exactly, and log it once per slot, since a flood must not fill the disk."""
        slot, kind = instruction.slot, (instruction.sender, instruction.reason)
        self.refused[kind] += 1
        self.refused_last[kind] = self._clock.now()
        self._refusals[Refusal(self.machine.view.clock.opens(slot), "message", instruction.reason)] += 1
        if self._logged[0] != slot:
            self._logged = slot, set()
        if kind not in self._logged[1]:
            self._logged[1].add(kind)
            log.warning(
                "message refused",
                extra={
                    "event": "message-refused",
                    "sender": instruction.sender,
                    "reason": instruction.reason,
                    "text": instruction.text,
                    "slot": slot,
                },
            )

    def stranger(self, slot: int, name: str) -> None:
        """Count a server that has called and is not a neighbour, once per slot, and log it once."""
        if (name, STRANGER) not in self.refused:
            text = "a stranger has called and was turned away"
            log.warning(text, extra={"event": "stranger", "sender": name, "reason": STRANGER})
        self.refused[name, STRANGER] += 1
        self._refusals[Refusal(self.machine.view.clock.opens(slot), "message", STRANGER)] += 1

    async def _store_release(self, instruction: do.StoreRelease) -> None:
        refused = self._refusals.copy()
        counted = [replace(one, count=count) for one, count in refused.items()]
        await self.in_thread(_commit_release, self._storage, instruction, counted)
        self._refusals -= refused


def _commit_release(storage: Storage, instruction: do.StoreRelease, refused: list[Refusal]) -> None:
    """Store a release; past slots are smoothed here, off the event loop."""
    storage.commit_release(
        [instruction.release],
        instruction.state,
        heard=instruction.counters,
        refused=refused,
        complete_until=instruction.complete_until,
        records=[_row(record) for record in instruction.records],
        final_until=instruction.final_until,
        smoothed=None if instruction.smoothed is None else instruction.smoothed.slots(),
    )


def _row(record: do.StoredRecord) -> RecordRow:
    return RecordRow(record.slot, record.origin, record.kind, record.content)


def _handle_recorded(machine: Machine, recorder: NodeRecorder, stimulus: on.Stimulus) -> list[do.Instruction]:
    recorder.begin_step()
    try:
        instructions = machine.handle(stimulus)
    except BadInput as refused:
        recorder.end_step(stimulus, [], str(refused))
        raise
    recorder.end_step(stimulus, instructions)
    return instructions


def _summary(instruction: do.Instruction) -> str:
    """Return what is done, of which slot, for the log at level debug, without payloads and noisy numbers."""
    match instruction:
        case do.StoreSample(slot, nano, counter):
            return f"slot {slot}: sample {counter} is stored, ε={nano / NANO:g}"
        case do.Send(slot, payload, to):
            return f"slot {slot}: {len(payload)} bytes to {', '.join(to)}"
        case do.StoreRelease(release, _, heard):
            return f"slot {release.slot}: release is stored, heard {', '.join(heard) or 'nobody'}"
        case do.ForgetCheckIns(slot) | do.ScheduleDeadline(slot) | do.RefuseMessage(slot):
            return f"slot {slot}: {type(instruction).__name__}"
    return type(instruction).__name__
