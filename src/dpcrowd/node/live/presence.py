"""How much of each open slot the node has missed; a slot of which it has missed too much is not sampled.

Counts of a slot in which the node was away for long would tell of too few people. Whether a slot counts as complete
follows from downtime alone, never from what was checked in: a slot's file exists from the moment the slot opens, the
node's last sign of life is on disk, and how much may be missed is a setting (`ingest.max_downtime`).

    start       what lies between the last sign of life and now was missed
    open        a slot that is opened late was missed until then
    stood_still the process, or the machine, was frozen
    distrust    the clock was set: nobody knows what was missed
"""

from __future__ import annotations

from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage.journal import MISSED_ALL, Journal

__all__ = ["Presence"]

_STAMP_SHORTEST, _STAMP_LONGEST = 500_000_000, 5_000_000_000


class Presence:
    """Records when one node was there; every method that changes something writes to the disk.

    most_ns  what may be missed of a slot
    """

    def __init__(self, journal: Journal, clock: SlotClock, most_ns: int) -> None:
        self._journal, self._clock = journal, clock
        self.most_ns = most_ns
        self.stamp_every_ns = min(max(most_ns // 4, _STAMP_SHORTEST), _STAMP_LONGEST)

    def start(self, now_ns: int, first: int) -> None:
        """Begin to run; `first` is the first slot that is not sealed yet."""
        alive = self._journal.last_stamp()
        for slot in range(max(first, 0), self._clock.slot_of(now_ns) + 1):
            opens_ns = self._clock.opens(slot)
            missed_ns = now_ns - max(alive or 0, opens_ns)
            if missed_ns < 0:  # the clock went back: nobody knows how long the node was away
                missed_ns = MISSED_ALL
            self._journal.attend(opens_ns, missed_ns)
        self._journal.stamp(now_ns)

    def open(self, slot: int, now_ns: int) -> None:
        """Open a slot, which opens now or should have opened before; once per slot."""
        opens_ns = self._clock.opens(slot)
        self._journal.attend(opens_ns, now_ns - opens_ns)

    def stamp(self, now_ns: int) -> None:
        """Leave a sign of life; to be called every `stamp_every_ns`, and at the end."""
        self._journal.stamp(now_ns)

    def stood_still(self, now_ns: int, still_ns: int) -> None:
        """Note that nothing ran for this long."""
        for opens_ns in self._journal.pending():
            self._journal.add_missed(opens_ns, min(still_ns, now_ns - opens_ns))

    def distrust(self, now_ns: int) -> None:
        """Count the slots that are open now as missed: nothing is known of them."""
        current = self._clock.opens(max(self._clock.slot_of(now_ns), 0))
        for opens_ns in {*self._journal.pending(), current}:
            if opens_ns <= now_ns:
                self._journal.attend(opens_ns, MISSED_ALL)

    def missed(self, slot: int) -> int:
        """Return how many nanoseconds of a slot were missed; far too many if nothing is known of it."""
        return self._journal.missed(self._clock.opens(slot))

    def complete(self, slot: int) -> bool:
        """Whether little enough was missed of a slot for it to be sampled."""
        return self.missed(slot) <= self.most_ns
