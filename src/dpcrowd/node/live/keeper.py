"""Carrying instructions out, in their order, one stimulus at a time: what must be durable first is durable first."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dpcrowd.errors import DpcrowdError
from dpcrowd.node.api.broadcast import Broadcast
from dpcrowd.node.api.rows import SlotEstimates
from dpcrowd.node.machine import Machine
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.storage import Refusal, Storage, StorageFailed, StoredRelease
from dpcrowd.node.transport.base import Transport
from dpcrowd.privacy.units import NANO
from dpcrowd.schemes.server import ServerRelease

__all__ = ["Keeper"]

log = logging.getLogger("dpcrowd.node")

STRANGER, FLOOD = "stranger", "flood"
_MANY = 100
_GRAVE = ("ledger-rolled-back", "storage-failed")

Call = Callable[[], Awaitable[None]]
T = TypeVar("T")


class Keeper:
    """The machine's hands. `give` queues a stimulus; `run` works the queue off, for ever.

    schedule  called with (slot, time) where the machine wants to be told of a deadline
    """

    def __init__(
        self,
        machine: Machine,
        storage: Storage,
        transport: Transport,
        broadcast: Broadcast,
        regions: tuple[str, ...],
        schedule: Callable[[int, int], None],
    ) -> None:
        self.machine, self._storage, self._transport = machine, storage, transport
        self._broadcast, self._schedule = broadcast, schedule
        self.regions = regions
        self.linked: frozenset[str] = frozenset()  # whom the transport was opened for
        self._queue: asyncio.Queue[on.Stimulus | Call] = asyncio.Queue()
        self._heard: dict[str, tuple[int, int, bytes]] = {}
        self._refusals: Counter[Refusal] = Counter()
        self._logged: tuple[int, set[tuple[str, str]]] = -1, set()  # of a slot: refusals that the log has
        self.refused: Counter[tuple[str, str]] = Counter()  # (sender, reason)
        self.last: SlotEstimates | None = None
        self.sent = 0
        self._broken = False  # what was to be stored last could not be
        self.idle = asyncio.Event()
        # A thread of its own: those who read estimates must not delay a slot.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dpcrowd-keeper")

    def give(self, stimulus: on.Stimulus | Call) -> None:
        """A stimulus, or something to be done between two stimuli."""
        self.idle.clear()
        self._queue.put_nowait(stimulus)

    async def run(self) -> None:
        while True:
            if self._queue.empty():
                self.idle.set()
            given = await self._queue.get()
            await (given() if callable(given) else self.handle(given))

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
                # None of the instructions after it: what is not paid for must not leave.
                await self.handle(on.StorageFailed(stimulus.at_ns, instruction, str(failure)))
                self._broken = isinstance(failure, StorageFailed)
                if not self._broken:  # the disk is well: the ledger said no, to this slot
                    await self.handle(on.StorageMended(stimulus.at_ns))
                return
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
        log.debug(_in_short(instruction))
        match instruction:
            case do.StoreSample(slot, nano, _, noisy, state):
                opens = clock.opens(slot)
                counter = await self.in_thread(
                    self._storage.commit_sample, slot, opens, clock.length_ns, nano, noisy, state
                )
                if counter != self.machine.trust.counter:  # a commit that had failed was on the disk after all
                    self.machine.trust.counter = counter
                    self.machine.trust.paid_in.clear()
            case do.StoreRelease(release, state, heard):
                await self._store_release(release, state, len(heard))
            case do.Publish(release):
                self.last = self._told(release)
                self._broadcast.publish(self.last)
            case do.Send(_, payload, to):
                # A link may have ended between the seal of a slot and now: after a restart, or a late timer.
                reached = [name for name in to if name in self.linked]
                if reached:
                    await self._transport.send(payload, reached)
                self.sent += len(reached)
            case do.ForgetCheckIns(slot):
                await self.in_thread(self._storage.journal.forget_before, clock.closes(slot))
            case do.ScheduleDeadline(slot, at_ns):
                self._schedule(slot, at_ns)
            case do.RememberCounter(neighbour, slot, counter, proof):
                self._heard[neighbour] = slot, counter, proof
            case do.RefuseMessage():
                self._refuse(instruction)
            case do.Report(event, text):
                log.log(logging.ERROR if event in _GRAVE else logging.WARNING, text, extra={"event": event})

    def _refuse(self, said: do.RefuseMessage) -> None:
        """Counted exactly; in the log once a slot, since a flood must not fill the disk."""
        slot, kind = said.slot, (said.sender, said.reason)
        self.refused[kind] += 1
        self._refusals[Refusal(self.machine.view.clock.opens(slot), "message", said.reason)] += 1
        if self._logged[0] != slot:
            self._logged = slot, set()
        if kind not in self._logged[1]:
            self._logged[1].add(kind)
            extra = {"sender": said.sender, "reason": said.reason, "text": said.text, "slot": slot}
            log.warning("message refused", extra=extra)

    def stranger(self, slot: int, name: str) -> None:
        """Somebody has called who is no neighbour; counted once per slot, told once."""
        if (name, STRANGER) not in self.refused:
            log.warning("a stranger has called and was turned away", extra={"sender": name, "reason": STRANGER})
        self.refused[name, STRANGER] += 1
        self._refusals[Refusal(self.machine.view.clock.opens(slot), "message", STRANGER)] += 1

    async def _store_release(self, release: ServerRelease, state: bytes, heard: int) -> None:
        clock = self.machine.view.clock
        stored = StoredRelease(
            slot=release.slot,
            opens_ns=clock.opens(release.slot),
            length_ns=clock.length_ns,
            regions=self.regions,
            estimate=release.estimate,
            variance=release.variance,
            sampled=bool(release.sampled.any()),
            nano=round(release.epsilon * NANO),
            heard=heard,
        )
        said, refused = dict(self._heard), self._refusals.copy()
        counted = [replace(one, count=count) for one, count in refused.items()]
        call: Callable[[], None] = lambda: self._storage.commit_release(  # noqa: E731
            [stored], state, heard=said, refused=counted
        )
        await self.in_thread(call)
        self._heard = {name: what for name, what in self._heard.items() if said.get(name) != what}
        self._refusals -= refused

    def _told(self, release: ServerRelease) -> SlotEstimates:
        opens = self.machine.view.clock.opens(release.slot)
        sampled = bool(release.sampled.any())
        return SlotEstimates(release.slot, opens, self.regions, release.estimate, release.low, release.high, sampled)


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
