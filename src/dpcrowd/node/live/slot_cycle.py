"""The cycle of slots: when they open and end, by a clock that is not trusted, and what was counted in them.

A slot ends by the clock (`Timekeeper.end_slots`): from then on nothing more is accepted for it, and it is clear how
much of it the node has missed. When the machine comes to it (`Counting.count`), it is counted, and the account is
loaded from which it is paid. Raw counts go from here to the machine and nowhere else. Whatever happens to the clock,
the machine is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.config import NetworkConfig
from dpcrowd.node.live.account_loader import AccountLoader
from dpcrowd.node.live.intake import Intake
from dpcrowd.node.live.presence import Presence
from dpcrowd.node.live.timing import ClockWatch, WallClock
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.instructions import CountSlot, Unsampled
from dpcrowd.node.metrics.slot_meter import SlotMeter
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Storage, StorageError

__all__ = ["Counting", "Timekeeper"]

log = logging.getLogger("dpcrowd.node")

InThread = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, eq=False)
class _SealedSlot:
    """A slot that waits to be counted; no counts: more users than memory holds."""

    obstacle: Unsampled | None
    regions: tuple[str, ...]
    counts: NDArray[np.int64] | None


class Counting:
    """Counts the slots of one node that are over; used from one event loop.

    needs_feed    sample only slots for which a request came
    in_thread     runs what waits for the disk
    silent_since  the first slot of those up to the last seal in which no feed sent a request; None: one did
    """

    def __init__(
        self,
        storage: Storage,
        intake: Intake,
        presence: Presence,
        accounts: AccountLoader,
        clock: SlotClock,
        needs_feed: bool,
        in_thread: InThread,
    ) -> None:
        self._storage, self._intake, self._presence, self._accounts = storage, intake, presence, accounts
        self._clock, self._needs_feed, self._in_thread = clock, needs_feed, in_thread
        self._sealed_slots: dict[int, _SealedSlot] = {}
        self.silent_since: int | None = None

    def end(self, slot: int, regions: tuple[str, ...]) -> None:
        """Seal a slot whose grace is over, and see whether the node was there to count it."""
        self._sealed_slots[slot] = _SealedSlot(self._obstacle(slot), regions, self._intake.seal(slot, regions))

    def begin_again(self) -> None:
        """Drop slots that have ended by a clock that was ahead."""
        self._sealed_slots.clear()

    async def count(self, instruction: CountSlot, at_ns: int) -> on.SlotSealed:
        """Return the answer to an instruction: the counts, the account, or why there are none."""
        slot, regions = instruction.slot, instruction.regions
        sealed_slot = self._sealed_slots.pop(slot, _SealedSlot("downtime", (), None))
        self._sealed_slots = {later: one for later, one in self._sealed_slots.items() if later > slot}
        account = await self._in_thread(self._accounts.load, slot)
        if sealed_slot.obstacle is not None or sealed_slot.regions != regions:  # or its revision could not take over
            return on.SlotSealed(at_ns, slot, None, account, sealed_slot.obstacle)
        if account is None:  # nothing can be paid
            return on.SlotSealed(at_ns, slot, None, None, "storage")
        counts = sealed_slot.counts
        if counts is None:
            counts = await self._intake.count_journal(slot, regions)
            # What was being written at the seal may have hit the limit, or could not be written.
            why = self._unkept(slot)
            if why is not None:
                return on.SlotSealed(at_ns, slot, None, account, why)
        return on.SlotSealed(at_ns, slot, counts, account, "budget" if self._accounts.is_over else None)

    def note_sampled(self) -> None:
        """Note that a sample is paid for."""
        self._accounts.note_sampled()

    def note_unsampled(self, why: Unsampled) -> None:
        """Note why a slot that was counted has no sample."""
        if why == "budget":
            self._accounts.note_unpaid()

    def _obstacle(self, slot: int) -> Unsampled | None:
        """Return, and log, why a slot cannot be sampled; None: it can be."""
        missed_ns, most_ns = self._presence.missed(slot), self._presence.most_ns
        if missed_ns > most_ns and (failure := self._storage.failure) is not None:
            return _not_sampled(slot, "storage", f"check-ins could not be kept: {failure}")
        if missed_ns > most_ns:
            text = (
                f"{missed_ns / 1e9:.1f} s of it were missed" if missed_ns < self._clock.length_ns else "it was missed"
            )
            return _not_sampled(slot, "downtime", f"{text}; up to {most_ns / 1e9:g} s may be (ingest.max_downtime).")
        if self._needs_feed and not self._intake.fed(slot):
            self.silent_since = slot if self.silent_since is None else self.silent_since
            return _not_sampled(slot, "feed", "no feed has sent a request in it (ingest.needs_feed).")
        self.silent_since = None  # known at the seal only: the time of a request within a slot stays private
        return self._limit_hit(slot)

    def _limit_hit(self, slot: int) -> Unsampled | None:
        if not self._storage.journal.limit_hit(self._clock.opens(slot)):
            return None
        return _not_sampled(slot, "limit", "its check-ins did not fit on the disk (ingest.journal_limit).")

    def _unkept(self, slot: int) -> Unsampled | None:
        """Return why the check-ins of a slot that is counted from the disk are not all there; None: they are."""
        if slot in self._intake.unkept:
            return _not_sampled(slot, "storage", "some of its check-ins could not be written.")
        return self._limit_hit(slot)


class Timekeeper:
    """Opens and ends the slots of one node, and watches its clock.

    revision_of          the revision that is valid in a slot
    give                 queues a stimulus of the machine
    expect_late_message  called when the clock was set or nothing ran for a while: what is due now may be late
    """

    def __init__(
        self,
        wall: WallClock,
        slots: SlotClock,
        storage: Storage,
        intake: Intake,
        presence: Presence,
        counting: Counting,
        meter: SlotMeter,
        revision_of: Callable[[int], NetworkConfig],
        give: Callable[[on.Stimulus], None],
        expect_late_message: Callable[[], None],
    ) -> None:
        self._wall, self._clock, self._storage, self._intake = wall, slots, storage, intake
        self._presence, self._counting, self._meter = presence, counting, meter
        self._revision_of, self._give, self._expect_late_message = revision_of, give, expect_late_message
        self._watch = ClockWatch(wall, slots.length_ns)
        self._sealing = self._opened = -1  # until it runs
        self._still_until = 0  # when nothing ran last, as far as it was noticed
        self._sleeps: set[asyncio.Task[None]] = set()  # of those who wait for a time by the clock

    # -------------------------------------------------------------------------------------------------------- slots

    async def end_slots(self, first: int) -> None:
        """End one slot after another, when its grace is over; `first` is the first that has not ended yet."""
        self._sealing = first
        while True:
            while self._wall.now() < (due := self.ends(self._sealing)):
                await self.sleep_until(due)
            self.look()
            now, slot = self._wall.now(), self._sealing
            latest = self._clock.slot_of(now) - 1
            while latest > slot and self.ends(latest) > now:
                latest -= 1
            slot = max(slot, latest)  # after a jump or a long sleep: the last one that is over
            self._counting.end(slot, tuple(self._revision_of(slot).regions))
            self._give(on.SlotEnded(self._wall.now(), slot))
            self._sealing = slot + 1

    def ends(self, slot: int) -> int:
        """Return when the grace of a slot is over."""
        return self._clock.closes(slot) + self._revision_of(slot).grace_ns

    async def open_slots(self, last: int) -> None:
        """Open every slot when its time comes, and leave a sign of life on the disk; `last` was opened, or is over.

        What is open by now and was not yet when the folder was opened is opened here.
        """
        self._opened, due = last, 0
        failed = False
        while True:
            now = self._wall.now()
            current = self._clock.slot_of(now)
            try:
                if current > self._opened:
                    # A loop that is busy with requests is late, and misses nobody: they wait to be read. What counts is
                    # a standstill, or a disk that did not take the slot's file.
                    self.look()
                    since = now if failed else max(self._clock.opens(current), self._still_until)
                    await asyncio.to_thread(self._presence.open, current, since)
                    self._opened, failed = current, False
                if now >= due or now < due - 2 * self._presence.stamp_every_ns:  # the clock may have been set back
                    await asyncio.to_thread(self._leave_sign_of_life, now)
                    due = now + self._presence.stamp_every_ns
            except StorageError:  # the node tells so when it cannot pay; tried again with the next sign of life
                due, failed = now + self._presence.stamp_every_ns, True
                await self.sleep_until(due)
                continue
            await self.sleep_until(min(due, max(self._clock.opens(self._opened + 1), now)))

    def _leave_sign_of_life(self, now_ns: int) -> None:
        """Write that the node runs, unless its files are not those that it has opened."""
        self._storage.check_files()
        self._presence.stamp(now_ns)

    def begin_again(self, last: int) -> None:
        """Open and end slots after `last` again: the clock was ahead and has come back."""
        now = self._wall.now()
        self._intake.begin_again(last)
        self._counting.begin_again()
        self._sealing, self._opened = last + 1, self._clock.slot_of(now)
        self._wake()

    def void_check_ins(self) -> None:
        """Forget check-ins of slots to come, which the clock that was ahead has opened; slots open now were missed."""
        journal, now = self._storage.journal, self._wall.now()
        self._presence.distrust(now)
        for opens_ns in journal.pending():
            if opens_ns > now:
                journal.forget(opens_ns)

    def leave(self) -> None:
        """Forget, at the end, check-ins of slots that are over by now; those of open slots wait for a restart."""
        now = self._wall.now()
        with suppress(StorageError):
            self._presence.stamp(now)
            self._storage.journal.forget_before(self._clock.opens(self._intake.first_open(now)))

    # -------------------------------------------------------------------------------------------------------- the clock

    def look(self) -> None:
        """Report a clock that was set, or a process that stood still; nothing is drawn from half a slot."""
        change, now = self._watch.look(), self._wall.now()
        self._meter.looked_at_clock(change.moved_ns, change.still_ns)
        if change.moved_ns or change.still_ns:
            self._expect_late_message()
        if change.moved_ns:
            way = "ahead" if change.moved_ns > 0 else "back"
            text = "the clock was set %s by %.1f s; no slot is drawn twice, and no budget comes back sooner."
            log.error(text, way, abs(change.moved_ns) / 1e9, extra={"event": "clock"})
            self._wake()
        if change.still_ns:
            log.warning("the node stood still for %.1f s.", change.still_ns / 1e9, extra={"event": "stood-still"})
        with suppress(StorageError):
            if change.moved_ns > 0:
                self._presence.distrust(now)
            elif change.still_ns:
                self._still_until = now
                self._presence.stood_still(now, change.still_ns)
        if change.moved_ns:
            self._give(on.ClockSet(now, change.moved_ns))
        if change.still_ns:
            self._give(on.StoodStill(now))
        if change.doubtful:
            self._give(on.TimeLost(now))

    async def sleep_until(self, at_ns: int) -> None:
        """Sleep until a time, or until that time may mean something else: the clock was set, or slots begin again."""
        sleep = asyncio.create_task(self._wall.sleep_until(at_ns))
        self._sleeps.add(sleep)
        try:
            await asyncio.wait([sleep])
        finally:
            self._sleeps.discard(sleep)
            sleep.cancel()

    def _wake(self) -> None:
        for sleep in self._sleeps:
            sleep.cancel()


def _not_sampled(slot: int, kind: Unsampled, why: str) -> Unsampled:
    log.info("slot %d is not sampled: %s", slot, why, extra={"event": "not-sampled", "slot": slot})
    return kind
