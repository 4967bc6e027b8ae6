"""Carrying instructions out, in their order, one stimulus at a time: what must be durable first is durable first."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dpcrowd.errors import DpcrowdError
from dpcrowd.node.api.broadcast import Broadcast
from dpcrowd.node.live.storage_log import StorageLog
from dpcrowd.node.live.timing import WallClock
from dpcrowd.node.machine import Machine
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.metrics.slot_meter import SlotMeter
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.storage import Refusal, Storage, StorageFailed
from dpcrowd.node.transport.base import Transport
from dpcrowd.privacy.units import NANO

__all__ = ["Keeper"]

log = logging.getLogger("dpcrowd.node")

STRANGER, FLOOD = "stranger", "flood"
_MANY = 100
_PUNCTUAL = 5_000_000  # nanoseconds: what a timer may be late by
_TURNS = 10  # of the loop, in which readers get what was published; forgetting many check-ins would hold them up
_GRAVE = ("ledger-rolled-back",)

Call = Callable[[], Awaitable[None]]
T = TypeVar("T")


class Keeper:
    """The machine's hands. `give` queues a stimulus; `run` works the queue off, for ever.

    schedule     called with (slot, time) where the machine wants to be told of a deadline
    clock        by which messages leave
    meter        counts what was done
    storage_log  of the node, see `StorageLog`
    """

    def __init__(
        self,
        machine: Machine,
        storage: Storage,
        transport: Transport,
        broadcast: Broadcast,
        schedule: Callable[[int, int], None],
        clock: WallClock | None = None,
        meter: SlotMeter | None = None,
        storage_log: StorageLog | None = None,
    ) -> None:
        self.machine, self._storage, self._transport = machine, storage, transport
        self._broadcast, self._schedule, self._clock = broadcast, schedule, clock or WallClock()
        self._meter = meter or SlotMeter()
        self.storage_log = storage_log or StorageLog()
        self.linked: frozenset[str] = frozenset()  # whom the transport was opened for
        self._queue: asyncio.Queue[on.Stimulus | Call] = asyncio.Queue()
        self._refusals: Counter[Refusal] = Counter()
        self._logged: tuple[int, set[tuple[str, str]]] = -1, set()  # of a slot: refusals that the log has
        self.refused: Counter[tuple[str, str]] = Counter()  # (sender, reason)
        self.last: SlotRelease | None = None
        self.sent = 0
        self.late = 0  # of those
        self._timers: set[asyncio.Task[None]] = set()  # messages whose time has not come
        self._broken = False
        self.idle = asyncio.Event()
        # A thread of its own: those who read estimates must not delay a slot.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dpcrowd-keeper")

    def give(self, stimulus: on.Stimulus | Call) -> None:
        """A stimulus, or something to be done between two stimuli."""
        self.idle.clear()
        self._queue.put_nowait(stimulus)

    async def run(self) -> None:
        try:
            while True:
                if self._queue.empty():
                    self.idle.set()
                given = await self._queue.get()
                await (given() if callable(given) else self.handle(given))
        finally:
            for timer in self._timers:
                timer.cancel()

    def begin_again(self) -> None:
        """Slots begin again: messages that wait for a time of the clock that was ahead do not leave any more."""
        for timer in self._timers:
            timer.cancel()
        self.last = None

    async def forget_sealed(self) -> None:
        """At the end: check-ins of a slot whose exchange is still open must not outlive the process."""
        with suppress(StorageFailed):  # the next start forgets them
            await self._carry_out(do.ForgetCheckIns(self.machine.server.slot))

    @property
    def broken(self) -> bool:
        """Whether what was to be stored last could not be."""
        return self._broken

    def close(self) -> None:
        """After `run` has been cancelled."""
        self._thread.shutdown(wait=False)

    async def in_thread(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        """Something that waits for the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(call, *given, **named))

    async def handle(self, stimulus: on.Stimulus) -> None:
        for instruction in await self._instructions(stimulus):
            try:
                await self._carry_out(instruction)
            except DpcrowdError as failure:
                self._meter.failed(failure)
                # None of the instructions after it: what is not paid for must not leave.
                await self.handle(on.StorageFailed(stimulus.at_ns, instruction, str(failure)))
                self._broken = isinstance(failure, StorageFailed)
                if not self._broken:  # the disk is well: the ledger said no, to this slot
                    await self.handle(on.StorageMended(stimulus.at_ns))
                return
            self._meter.carried_out(instruction, self.machine.view)
            if self._broken and isinstance(instruction, do.StoreRelease):
                self._broken = False
                await self.handle(on.StorageMended(stimulus.at_ns))

    async def _instructions(self, stimulus: on.Stimulus) -> list[do.Instruction]:
        """After a long absence many slots are caught up, a quarter of a millisecond each: the API must not wait."""
        missed = stimulus.slot - self.machine.server.slot if isinstance(stimulus, on.SlotSealed) else 0
        if missed > _MANY and self.machine.server.slot >= 0:
            return await self.in_thread(self.machine.handle, stimulus)
        return self.machine.handle(stimulus)

    async def _carry_out(self, instruction: do.Instruction) -> None:
        clock = self.machine.view.clock
        log.debug(_in_short(instruction), extra={"event": "instruction"})
        match instruction:
            case do.StoreSample(slot, nano, _, noisy, state):
                opens = clock.opens(slot)
                counter = await self.in_thread(
                    self._storage.commit_sample, slot, opens, clock.length_ns, nano, noisy, state
                )
                if counter != self.machine.trust.counter:  # a commit that had failed was on the disk after all
                    self.machine.trust.counter = counter
                    self.machine.trust.paid_in.clear()
            case do.StoreRelease():
                await self._store_release(instruction)
            case do.StoreCounters(counters):
                await self.in_thread(self._storage.memory.remember, counters)
            case do.Publish(release):
                self.last = release
                self._broadcast.publish(release)
            case do.Send(at_ns=None):
                await self._send(instruction)
            case do.Send():
                timer = asyncio.create_task(self._send_in_time(instruction))
                self._timers.add(timer)
                timer.add_done_callback(self._timer_ended)
            case do.ForgetCheckIns(slot):
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
                await self.in_thread(self._storage.journal.forget_before, clock.closes(slot))
            case do.ScheduleDeadline(slot, at_ns):
                self._schedule(slot, at_ns)
            case do.RefuseMessage():
                self._refuse(instruction)
            case do.Report(event, text):
                self._report(event, text)

    def _report(self, event: str, text: str) -> None:
        if event == "storage-failed":
            self.storage_log.failed("keeper", text)
        elif event == "storage-mended":
            self.storage_log.works("keeper", text)
        else:
            log.log(logging.ERROR if event in _GRAVE else logging.WARNING, text, extra={"event": event})

    async def _send(self, message: do.Send) -> int:
        """How many neighbours it was sent to."""
        # A link may have ended between the seal of a slot and now: after a restart, or a late timer.
        reached = [name for name in message.to if name in self.linked]
        if reached:
            await self._transport.send(message.payload, reached)
        self.sent += len(reached)
        return len(reached)

    async def _send_in_time(self, message: do.Send) -> None:
        """At its moment, past the queue: whatever is being done there must not show. By how much it is late would."""
        assert message.at_ns is not None
        late = self._clock.now() > message.at_ns
        await self._clock.sleep_until(message.at_ns)
        late |= self._clock.now() > message.at_ns + _PUNCTUAL
        reached = await self._send(message)
        if late and reached:
            self.late += reached
            text = "the message of slot %d left late; if that happens often, send_offset is too short for this machine."
            log.warning(text, message.slot, extra={"event": "sent-late"})
        self.give(on.MessageSent(self._clock.now(), message.slot))

    def _timer_ended(self, timer: asyncio.Task[None]) -> None:
        self._timers.discard(timer)
        if not timer.cancelled() and (error := timer.exception()) is not None:

            async def broke() -> None:
                raise error

            self.give(broke)

    def _refuse(self, said: do.RefuseMessage) -> None:
        """Counted exactly; in the log once a slot, since a flood must not fill the disk."""
        slot, kind = said.slot, (said.sender, said.reason)
        self.refused[kind] += 1
        self._refusals[Refusal(self.machine.view.clock.opens(slot), "message", said.reason)] += 1
        if self._logged[0] != slot:
            self._logged = slot, set()
        if kind not in self._logged[1]:
            self._logged[1].add(kind)
            log.warning(
                "message refused",
                extra={
                    "event": "message-refused",
                    "sender": said.sender,
                    "reason": said.reason,
                    "text": said.text,
                    "slot": slot,
                },
            )

    def stranger(self, slot: int, name: str) -> None:
        """Somebody has called who is no neighbour; counted once per slot, told once."""
        if (name, STRANGER) not in self.refused:
            text = "a stranger has called and was turned away"
            log.warning(text, extra={"event": "stranger", "sender": name, "reason": STRANGER})
        self.refused[name, STRANGER] += 1
        self._refusals[Refusal(self.machine.view.clock.opens(slot), "message", STRANGER)] += 1

    async def _store_release(self, instruction: do.StoreRelease) -> None:
        refused = self._refusals.copy()
        await self.in_thread(
            self._storage.commit_release,
            [instruction.release],
            instruction.state,
            heard=instruction.counters,
            refused=[replace(one, count=count) for one, count in refused.items()],
            complete_until=instruction.complete_until,
        )
        self._refusals -= refused


def _in_short(instruction: do.Instruction) -> str:
    """For the log at level debug: what is done, of which slot; noised numbers and payloads are too long for it."""
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
