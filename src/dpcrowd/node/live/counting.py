"""What was counted in a slot that is over, or why it was not. Raw counts go from here to the machine and nowhere else.

A slot ends by the clock (`end`): from then on nothing more is taken for it, and it is clear how much of it the node has
missed. When the machine comes to it (`count`), it is counted, and the account is loaded from which it is paid.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.live.account_loader import AccountLoader
from dpcrowd.node.live.intake import Intake
from dpcrowd.node.live.presence import Presence
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.instructions import CountSlot, Unsampled
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Storage

__all__ = ["Counting"]

log = logging.getLogger("dpcrowd.node")

InThread = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, eq=False)
class _Ended:
    """A slot that waits to be counted; no counts: more users than memory holds."""

    obstacle: Unsampled | None
    regions: tuple[str, ...]
    counts: NDArray[np.int64] | None


class Counting:
    """Of one node; used from one event loop.

    needs_feed    sample only slots for which a request came
    silent_since  the first slot of those up to the last seal in which no feed has spoken; None: one has
    """

    def __init__(
        self,
        storage: Storage,
        intake: Intake,
        presence: Presence,
        accounts: AccountLoader,
        clock: SlotClock,
        needs_feed: bool,
    ) -> None:
        self._storage, self._intake, self._presence, self._accounts = storage, intake, presence, accounts
        self._clock, self._needs_feed = clock, needs_feed
        self._ended: dict[int, _Ended] = {}
        self.silent_since: int | None = None

    def end(self, slot: int, regions: tuple[str, ...]) -> None:
        """Its grace is over: seal it, and see whether the node was there to count it. Regions as they will be asked."""
        self._ended[slot] = _Ended(self._obstacle(slot), regions, self._intake.seal(slot, regions))

    def begin_again(self) -> None:
        """What has ended by a clock that was ahead is void."""
        self._ended.clear()

    async def count(self, asked: CountSlot, at_ns: int, in_thread: InThread) -> on.SlotSealed:
        """The answer to an instruction; the disk is asked in a thread."""
        slot, regions = asked.slot, asked.regions
        ended = self._ended.pop(slot, _Ended("downtime", (), None))
        self._ended = {later: one for later, one in self._ended.items() if later > slot}
        account = await in_thread(self._accounts.load, slot)
        if ended.obstacle is not None or ended.regions != regions:  # or its revision could not take over
            return on.SlotSealed(at_ns, slot, None, account, ended.obstacle)
        if account is None:  # nothing can be paid
            return on.SlotSealed(at_ns, slot, None, None, "storage")
        counts = ended.counts
        if counts is None:
            counts = await self._intake.count_journal(slot, regions)
            # What was being written at the seal may have hit the limit, or could not be written.
            why = self._unkept(slot)
            if why is not None:
                return on.SlotSealed(at_ns, slot, None, account, why)
        return on.SlotSealed(at_ns, slot, counts, account, "budget" if self._accounts.short else None)

    def _obstacle(self, slot: int) -> Unsampled | None:
        """Why the node was not there to count a slot; if it was not, the log says so, too."""
        missed, most = self._presence.missed(slot), self._presence.most_ns
        if missed > most and (failure := self._storage.failure) is not None:
            return _not_sampled(slot, "storage", f"check-ins could not be kept: {failure}")
        if missed > most:
            text = f"{missed / 1e9:.1f} s of it were missed" if missed < self._clock.length_ns else "it was missed"
            return _not_sampled(slot, "downtime", f"{text}; up to {most / 1e9:g} s may be (ingest.max_downtime).")
        if self._needs_feed and not self._intake.fed(slot):
            self.silent_since = slot if self.silent_since is None else self.silent_since
            return _not_sampled(slot, "feed", "no feed has spoken in it (ingest.needs_feed).")
        self.silent_since = None  # known at the seal only: when somebody speaks inside a slot is not told
        return self._limit_hit(slot)

    def _limit_hit(self, slot: int) -> Unsampled | None:
        if not self._storage.journal.limit_hit(self._clock.opens(slot)):
            return None
        return _not_sampled(slot, "limit", "its check-ins did not fit on the disk (ingest.journal_limit).")

    def _unkept(self, slot: int) -> Unsampled | None:
        """Of a slot that is counted from the disk: why its check-ins are not all there."""
        if slot in self._intake.unkept:
            return _not_sampled(slot, "storage", "some of its check-ins could not be written.")
        return self._limit_hit(slot)


def _not_sampled(slot: int, kind: Unsampled, why: str) -> Unsampled:
    log.info("slot %d is not sampled: %s", slot, why, extra={"event": "not-sampled", "slot": slot})
    return kind
