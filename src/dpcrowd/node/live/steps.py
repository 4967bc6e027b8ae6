"""Steps of the clock: what counts of them in the ledger, where a clock that was wrong comes back.

A payment is dated by the clock of its moment. What matters to a window is how long ago it was really made: its date
says so, up to the sum D of all steps that the clock has made since then. If D > 0 the payment is younger than it seems,
and the window has to reach back by D; if D < 0 it is older, and to count it as it seems is on the safe side. The ledger
keeps steps ahead (see `storage.ahead`); here they are added up, so that a clock that was an hour ahead for a moment
does not block the payments of an hour:

    ahead, then back   the step back is taken off the latest steps ahead that this life has seen. For payments before
                       them that is the sum D; payments between them have D < 0, and count by their dates.
    back, then ahead   only what goes beyond the step back is kept, if no slot was sealed between the two and no other
                       network pays into the ledger: then there is no payment between them, which would have D > 0.

Only steps that this life has seen itself are taken off: while a node is down, nobody knows what its clock does. Where
several networks share a ledger each of them sees the same steps. A step ahead is kept once, and what a network takes
off it is the most that any of them has, never the sum.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from dpcrowd.node.storage import Storage

__all__ = ["ClockSteps"]


@dataclass
class _Ahead:
    """A step ahead that the ledger keeps as `row`, and how much of it has come back."""

    row: int
    moved_ns: int
    returned_ns: int = 0


class ClockSteps:
    """Of one life of a node."""

    def __init__(self, storage: Storage, network: str) -> None:
        self._storage, self._network = storage, network
        self._waiting: deque[tuple[int, int]] = deque()
        self._ahead: list[_Ahead] = []
        self._behind_ns = 0  # steps back, with no slot sealed since

    def add(self, at_ns: int, moved_ns: int) -> None:
        """The clock said `at_ns` and was set by `moved_ns`, ahead or (below 0) back: nothing is paid before `book`."""
        self._waiting.append((at_ns, moved_ns))

    def slot_sealed(self) -> None:
        """From now on there may be a payment by the present clock; after `book`."""
        self._behind_ns = 0

    def book(self) -> None:
        """Tell the ledger; what a failing disk has left is told by the next call."""
        while self._waiting:
            at_ns, moved_ns = self._waiting[0]
            if moved_ns > 0:
                self._step_ahead(at_ns, moved_ns)
            else:
                self._step_back(at_ns, -moved_ns)
            self._waiting.popleft()

    def _step_ahead(self, at_ns: int, moved_ns: int) -> None:
        alone = all(promise.network == self._network for promise in self._storage.ledger.promises.all())
        undone = min(moved_ns, self._behind_ns) if alone else 0
        if moved_ns > undone:
            row = self._storage.set_ahead(at_ns + undone, moved_ns - undone)
            self._ahead.append(_Ahead(row, moved_ns - undone))
        self._behind_ns -= undone

    def _step_back(self, at_ns: int, moved_ns: int) -> None:
        while moved_ns > 0 and self._ahead:
            last = self._ahead[-1]
            taken = min(moved_ns, last.moved_ns - last.returned_ns)
            self._storage.set_back(last.row, at_ns, last.returned_ns + taken)
            last.returned_ns += taken
            moved_ns -= taken
            self._waiting[0] = at_ns, -moved_ns
            if last.returned_ns == last.moved_ns:
                self._ahead.pop()
        self._behind_ns += moved_ns
