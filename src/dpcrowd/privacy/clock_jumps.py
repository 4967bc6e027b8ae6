"""Clocks that were set: a window of privacy is a span of time that has really passed.

The ledger is keyed by UTC. If the clock of a running node is set ahead by J, a payment made a moment ago seems to be J
old, and a window would give it back too early; setting the clock ahead again and again would refill the budget at will.
So every such jump is recorded, and the start of a window is computed in time that has really passed:

    start = end - span;  for each jump, the latest first:  if it ended after start, start -= J

Jumps back need no correction: no slot is opened twice, and payments seem younger than they are. But a jump back may
undo a jump ahead, in part or completely; then only the remainder counts.

**When a wrong clock is corrected.** A payment is dated by the clock of its moment. What matters to a window is how long
ago it was really made: its date says so, up to the sum D of all steps that the clock has made since then. If D > 0 the
payment is younger than it seems, and the window has to reach back by D; if D < 0 it is older, and counting it by its
date is safe. Steps are added up as follows, so that a clock that was an hour ahead for a moment does not block the
payments of an hour:

    ahead, then back   the step back is subtracted from the latest steps ahead that this life of the node has seen. For
                       payments before them that is the sum D; payments between them have D < 0, and count by their
                       dates.
    back, then ahead   only the part beyond the step back is recorded, if no slot was sealed between the two and no
                       other network pays into the ledger: then there is no payment between them, which would have
                       D > 0.

Only steps that this life has seen are subtracted: while a node is down, nobody knows what its clock does. But a reading
of the clock is evidence (`reduce_to_reading`). Right after a jump the clock read at + J. If it reads `now` at any later
moment, it has since been set by now - (at + J) - (time that has passed) in all, and no time passes backwards: for
payments before the jump D <= now - at. So a node that died while its clock was an hour ahead, and starts when it is
right again, keeps next to nothing of that hour. Where several networks share a ledger, each of them sees the same
steps. A step ahead is recorded once, and what is subtracted from it is the largest amount that any network has seen,
never the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["ClockSteps", "Jump", "date_correction", "elapsed_start", "reduce_to_reading", "step_ahead", "step_back"]

_SAME_MOMENT = 5_000_000_000
_SAME_STEP = 500_000_000


@dataclass(frozen=True)
class Jump:
    """A step ahead that is recorded in the ledger.

    number       its place in the order of jumps, from 1 on
    network      the network on the ledger that saw it first
    payments     how many payments had been made before it
    at_ns        what the clock read when it was set
    moved_ns     by how much it was set ahead
    returned_ns  how much of that has been undone by steps back
    """

    number: int
    network: str
    payments: int
    at_ns: int
    moved_ns: int
    returned_ns: int = 0

    @property
    def remaining_ns(self) -> int:
        """How much of the step still counts."""
        return self.moved_ns - self.returned_ns


@dataclass(frozen=True)
class ClockSteps:
    """The steps of the clock that one life of a node has seen.

    ahead      steps ahead that are not undone completely: number of the jump, nanoseconds ahead, nanoseconds back since
    behind_ns  sum of the steps back since which no slot was sealed
    """

    ahead: tuple[tuple[int, int, int], ...] = ()
    behind_ns: int = 0

    def slot_sealed(self) -> ClockSteps:
        """Return the steps after a slot was sealed: from now on there may be a payment by the present clock."""
        return replace(self, behind_ns=0)


Jumps = tuple[Jump, ...]


def elapsed_start(jumps: Sequence[Jump], start_ns: int) -> int:
    """Return where a window begins by the clocks that dated its payments, if by the present clock it is `start_ns`."""
    for jump in reversed(jumps):
        if jump.remaining_ns and jump.at_ns + jump.remaining_ns > start_ns:
            start_ns -= jump.remaining_ns
    return start_ns


def date_correction(jumps: Sequence[Jump], payment: int) -> int:
    """Return by how many nanoseconds the payment of this number is younger than its date says."""
    return sum(jump.remaining_ns for jump in jumps if payment <= jump.payments)


def step_ahead(
    jumps: Jumps, steps: ClockSteps, network: str, payments: int, at_ns: int, moved_ns: int, *, alone: bool
) -> tuple[Jumps, ClockSteps]:
    """Record that the clock of a network's node read `at_ns` and was set ahead; return jumps and steps after that.

    payments  how many payments were made before it
    alone     whether no other network pays into the ledger
    """
    undone = min(moved_ns, steps.behind_ns) if alone else 0
    steps = replace(steps, behind_ns=steps.behind_ns - undone)
    at_ns, moved_ns = at_ns + undone, moved_ns - undone
    if not moved_ns:
        return jumps, steps
    for jump in reversed(jumps):  # another network on this ledger may have seen the same step
        is_same = abs(jump.at_ns - at_ns) < _SAME_MOMENT and abs(jump.moved_ns - moved_ns) < _SAME_STEP
        if jump.network != network and is_same:
            return jumps, replace(steps, ahead=(*steps.ahead, (jump.number, moved_ns, 0)))
    new = Jump(jumps[-1].number + 1 if jumps else 1, network, payments, at_ns, moved_ns)
    return (*jumps, new), replace(steps, ahead=(*steps.ahead, (new.number, moved_ns, 0)))


def step_back(jumps: Jumps, steps: ClockSteps, moved_ns: int) -> tuple[Jumps, ClockSteps]:
    """Record that the clock was set back by `moved_ns`, at least 0; return jumps and steps after that."""
    by_number, ahead = {jump.number: jump for jump in jumps}, list(steps.ahead)
    while moved_ns and ahead:
        number, forward_ns, back_ns = ahead.pop()
        undone = min(moved_ns, forward_ns - back_ns)
        moved_ns, back_ns = moved_ns - undone, back_ns + undone
        jump = by_number[number]
        returned = min(back_ns, jump.moved_ns)
        by_number[number] = replace(jump, returned_ns=max(returned, jump.returned_ns))
        if back_ns < forward_ns:
            ahead.append((number, forward_ns, back_ns))
    return tuple(by_number.values()), ClockSteps(tuple(ahead), steps.behind_ns + moved_ns)


def reduce_to_reading(jumps: Jumps, now_ns: int) -> Jumps:
    """Return what remains of the jumps if the clock reads `now_ns` after all of them, whoever set it back."""
    reduced: list[Jump] = []
    later_ns = 0
    for jump in reversed(jumps):
        remaining_ns = min(jump.remaining_ns, max(now_ns - jump.at_ns - later_ns, 0))
        later_ns += remaining_ns
        reduced.append(replace(jump, returned_ns=jump.moved_ns - remaining_ns))
    return tuple(reversed(reduced))
