"""Clocks that were set ahead: a window of privacy is a span of time that has really passed.

The ledger is keyed by UTC. If the clock of a running node is set ahead by J, what was paid a moment ago seems to be J
old, and a window would give it back too early; a clock that is set ahead again and again would refill it at will. So
every such jump is kept, and a window's start is sought in the time that has passed:

    start = end - span;  for each jump, the latest first:  if it ended after start, start -= J

Jumps back need nothing: no slot is opened twice, and what was paid seems younger than it is. But a jump back may undo
one ahead, in part or wholly; then only the rest of it counts. Who may say so: `live.steps`.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Jump", "elapsed_start", "younger"]

Jump = tuple[int, int, int]
"""payments made before it, the time at which the clock was set, nanoseconds"""


def elapsed_start(jumps: Sequence[Jump], start_ns: int) -> int:
    """Where a window has to begin by the clocks of its day, if by the present clock it begins at `start_ns`."""
    for _, at_ns, moved_ns in jumps:
        if at_ns + moved_ns > start_ns:
            start_ns -= moved_ns
    return start_ns


def younger(jumps: Sequence[Jump], payment: int) -> int:
    """By how much a payment, given by its number, is younger than its date says."""
    return sum(moved_ns for before, _, moved_ns in jumps if payment <= before)
