"""Times at the edges: RFC 3339 or milliseconds outside, whole nanoseconds UTC inside; and the slots that they fall in.

RFC 3339 is read to microseconds. No clock here: the time at which a batch arrived is passed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.collect import NotTaken
from dpcrowd.node.ingest.batch import ARRIVAL, Batch, RefusedRow
from dpcrowd.node.slots import SECOND, SlotClock, rfc3339

__all__ = ["LAST_NS", "Zoned", "nanoseconds", "parse_time", "rfc3339", "slots_of"]

LAST_NS = 2**63 - 1
MILLISECOND = 1_000_000
SECONDS = range(978_307_200, 4_102_444_800)
"""From 2001 to 2100 in seconds. As milliseconds, these are days of January and February 1970, which nobody means."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Zoned = Annotated[datetime, msgspec.Meta(tz=True)]


def parse_time(text: str) -> int | None:
    """Nanoseconds of an RFC 3339 time with an offset; None if it is not one, or not from 1970 to 2262."""
    try:
        at_ns = _of_moment(msgspec.convert(text, Zoned))
    except msgspec.ValidationError:
        return None
    return at_ns if 0 <= at_ns <= LAST_NS else None


def nanoseconds(times: Sequence[datetime | int | None]) -> tuple[NDArray[np.int64] | None, list[int]]:
    """Of decoded times (a number: milliseconds), None if no row has one; and the rows whose time cannot be meant.

    Those are times that are out of range, and numbers of seconds.
    """
    if times.count(None) == len(times):
        return None, []
    exact = [
        ARRIVAL if time is None else time * MILLISECOND if isinstance(time, int) else _of_moment(time) for time in times
    ]
    # No time that was given can become ARRIVAL: milliseconds and microseconds are multiples of 1,000 ns.
    wrong: list[int] = []
    if max(exact) > LAST_NS or min(exact) < ARRIVAL:
        wrong = [row for row, at_ns in enumerate(exact) if not ARRIVAL <= at_ns <= LAST_NS]
        for row in wrong:
            exact[row] = ARRIVAL
    found = np.array(exact, dtype=np.int64)
    in_1970 = (found >= SECONDS.start * MILLISECOND) & (found < SECONDS.stop * MILLISECOND)
    if in_1970.any():
        seconds = [row for row in np.flatnonzero(in_1970).tolist() if isinstance(times[row], int)]
        found[seconds] = ARRIVAL
        wrong = sorted([*wrong, *seconds])
    return found, wrong


def slots_of(
    batch: Batch,
    arrived_ns: int,
    clock: SlotClock,
    *,
    grace_ns: int,
    future_ns: int,
    present_ns: int | None = None,
    sealed: int = -1,
) -> tuple[dict[int, NDArray[np.intp]], list[RefusedRow]]:
    """The rows of each slot, and those that are from the future or of a slot that is sealed, by their number here.

    A batch without rows is one of the slot in which it arrived.

    grace_ns    of the slot before the one that is open
    present_ns  the time of rows that have none, if it is not their arrival; such rows are never late
    sealed      the last slot that was sealed, whatever the clock says
    """
    if arrived_ns < clock.epoch_ns:
        raise NotTaken("unavailable", f"the network's first slot opens at {rfc3339(clock.epoch_ns)}.")
    present_ns = arrived_ns if present_ns is None else present_ns
    if batch.times_ns is None or not len(batch):
        return {clock.slot_of(present_ns): np.arange(len(batch))}, []
    own = batch.times_ns != ARRIVAL
    future = batch.times_ns > arrived_ns + future_ns
    slots = (np.where(own, batch.times_ns, present_ns) - clock.epoch_ns) // clock.length_ns
    # A slot is sealed once its end and the grace have passed: the slot open one grace ago is the first that is not.
    first = max(clock.slot_of(arrived_ns - grace_ns), sealed + 1, 0)
    late = own & (slots < first)
    refused = [(row, "future" if future[row] else "late") for row in np.flatnonzero(future | late).tolist()]
    taken = ~(future | late)
    return {int(slot): np.flatnonzero(taken & (slots == slot)) for slot in np.unique(slots[taken])}, refused


def _of_moment(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds * 1_000
