"""Clocks that were set: a window of privacy is a span of time that has really passed.

The ledger is keyed by UTC. If the clock of a running node is set ahead by J, what was paid a moment ago seems to be J
old, and a window would give it back too early; a clock that is set ahead again and again would refill it at will. So
every such jump is kept, and a window's start is sought in the time that has passed:

    start = end - span;  for each jump, the latest first:  if it ended after start, start -= J

Jumps back need nothing: no slot is opened twice, and what was paid seems younger than it is. But a jump back may undo
one ahead, in part or wholly; then only the rest of it counts.

**Where a clock that was wrong comes back.** A payment is dated by the clock of its moment. What matters to a window is
how long ago it was really made: its date says so, up to the sum D of all steps that the clock has made since then. If
D > 0 the payment is younger than it seems, and the window has to reach back by D; if D < 0 it is older, and to count it
as it seems is on the safe side. Steps ahead are kept; here they are added up, so that a clock that was an hour ahead
for a moment does not block the payments of an hour:

    ahead, then back   the step back is taken off the latest steps ahead that this life has seen. For payments before
                       them that is the sum D; payments between them have D < 0, and count by their dates.
    back, then ahead   only what goes beyond the step back is kept, if no slot was sealed between the two and no other
                       network pays into the ledger: then there is no payment between them, which would have D > 0.

Only steps that this life has seen itself are taken off: while a node is down, nobody knows what its clock does. But the
clock itself may tell (`came_back`). Right after a jump it read at + J. If it reads `now` at any later moment, it has
since been set by now - (at + J) - (time that has passed) in all, and no time passes backwards: for payments before the
jump D <= now - at. So a node that died while its clock was an hour ahead, and starts when it is right again, finds next
to nothing left of the hour. Where several networks share a ledger each of them sees the same steps. A step ahead is
kept once, and what a network takes off it is the most that any of them has, never the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["ClockSteps", "Jump", "came_back", "elapsed_start", "set_ahead", "set_back", "younger"]

_SAME_MOMENT = 5_000_000_000
_SAME_STEP = 500_000_000


@dataclass(frozen=True)
class Jump:
    """A step ahead that the ledger keeps.

    number       its place in the order of jumps, from 1 on
    network      which of the networks on the ledger saw it first
    payments     how many payments had been made before it
    at_ns        the time at which the clock was set
    returned_ns  how much of it has been undone by steps back
    """

    number: int
    network: str
    payments: int
    at_ns: int
    moved_ns: int
    returned_ns: int = 0

    @property
    def left_ns(self) -> int:
        """What still counts of it."""
        return self.moved_ns - self.returned_ns


@dataclass(frozen=True)
class ClockSteps:
    """What one life of a node has seen its clock do.

    ahead      steps ahead that have not come back completely: number of the jump, nanoseconds ahead, and back since
    behind_ns  steps back, with no slot sealed since
    """

    ahead: tuple[tuple[int, int, int], ...] = ()
    behind_ns: int = 0

    def slot_sealed(self) -> ClockSteps:
        """From now on there may be a payment by the present clock."""
        return replace(self, behind_ns=0)


Jumps = tuple[Jump, ...]


def elapsed_start(jumps: Sequence[Jump], start_ns: int) -> int:
    """Where a window has to begin by the clocks of its day, if by the present clock it begins at `start_ns`."""
    for jump in reversed(jumps):
        if jump.left_ns and jump.at_ns + jump.left_ns > start_ns:
            start_ns -= jump.left_ns
    return start_ns


def younger(jumps: Sequence[Jump], payment: int) -> int:
    """By how much a payment, given by its number, is younger than its date says."""
    return sum(jump.left_ns for jump in jumps if payment <= jump.payments)


def set_ahead(
    jumps: Jumps, steps: ClockSteps, network: str, payments: int, at_ns: int, moved_ns: int, *, alone: bool
) -> tuple[Jumps, ClockSteps]:
    """The clock of a network's node said `at_ns` and was set ahead: the jumps to keep, and what the node has seen.

    payments  how many were made before it
    alone     whether no other network pays into the ledger
    """
    undone = min(moved_ns, steps.behind_ns) if alone else 0
    steps = replace(steps, behind_ns=steps.behind_ns - undone)
    at_ns, moved_ns = at_ns + undone, moved_ns - undone
    if not moved_ns:
        return jumps, steps
    for known in reversed(jumps):  # another network on this ledger may have seen the same one
        alike = abs(known.at_ns - at_ns) < _SAME_MOMENT and abs(known.moved_ns - moved_ns) < _SAME_STEP
        if known.network != network and alike:
            return jumps, replace(steps, ahead=(*steps.ahead, (known.number, moved_ns, 0)))
    new = Jump(jumps[-1].number + 1 if jumps else 1, network, payments, at_ns, moved_ns)
    return (*jumps, new), replace(steps, ahead=(*steps.ahead, (new.number, moved_ns, 0)))


def set_back(jumps: Jumps, steps: ClockSteps, moved_ns: int) -> tuple[Jumps, ClockSteps]:
    """The clock was set back by `moved_ns`, above 0: what is left of the jumps, and what the node has seen."""
    by_number, ahead = {jump.number: jump for jump in jumps}, list(steps.ahead)
    while moved_ns and ahead:
        number, forward_ns, back_ns = ahead.pop()
        taken = min(moved_ns, forward_ns - back_ns)
        moved_ns, back_ns = moved_ns - taken, back_ns + taken
        jump = by_number[number]
        returned = min(back_ns, jump.moved_ns)
        by_number[number] = replace(jump, returned_ns=max(returned, jump.returned_ns))
        if back_ns < forward_ns:
            ahead.append((number, forward_ns, back_ns))
    return tuple(by_number.values()), ClockSteps(tuple(ahead), steps.behind_ns + moved_ns)


def came_back(jumps: Jumps, now_ns: int) -> Jumps:
    """What is left of the jumps if the clock reads `now_ns` after all of them, whoever has seen it come back."""
    known: list[Jump] = []
    later_ns = 0
    for jump in reversed(jumps):
        left_ns = min(jump.left_ns, max(now_ns - jump.at_ns - later_ns, 0))
        later_ns += left_ns
        known.append(replace(jump, returned_ns=jump.moved_ns - left_ns))
    return tuple(reversed(known))
