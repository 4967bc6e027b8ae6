"""Which server should have sampled and has not: what the public schedule tells about records that do not arrive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.node.machine.revision import RecordTerms
from dpcrowd.node.machine.schedules import Schedules
from dpcrowd.sampling.schedule import samples_due

LAG = 4


def terms_of(samples: int, length: int, *, moves: bool = True, offset: int = 0, ends: int | None = None) -> RecordTerms:
    """Two servers; the second has this offset."""
    return RecordTerms(samples, length, LAG, None, (0, offset), moves, -1e9, 1e9, ends)


def is_due(slot: int, terms: RecordTerms) -> bool:
    return bool(samples_due(slot, terms.samples, terms.length, np.array(terms.offsets[1])))


def play(terms: RecordTerms, up: list[bool]) -> list[tuple[int | None, int | None]]:
    """Let the second server be up or down, slot by slot; what is overdue, and what really is, after each."""
    schedules, shift, missed = Schedules(terms, 0), 0, None
    heard, seen = False, []
    for slot, is_up in enumerate(up):
        if is_due(slot - shift, terms):
            if is_up:
                schedules.hear(1, slot)
                missed, heard = None, True
            else:
                missed = slot if missed is None else missed
                shift += terms.moves
        seen.append((schedules.overdue(1, 0, slot), missed if heard else None))
    return seen


@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 11), st.lists(st.booleans(), max_size=60), st.booleans())
def test_what_is_overdue_is_the_first_sample_that_was_missed(
    interval: int, samples: int, offset: int, up: list[bool], moves: bool
) -> None:
    """With the schedule before it moved, a server that is back would be called missing again and again."""
    length = interval * samples
    terms = terms_of(samples, length, moves=moves, offset=offset % length)
    start = [True] * (2 * interval)  # its schedule is known
    seen = play(terms, start + up)[len(start) :]
    assert [shown for shown, _ in seen] == [real for _, real in seen]


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 11), st.lists(st.booleans(), max_size=40))
def test_a_server_that_is_there_is_never_missing(samples: int, length: int, offset: int, before: list[bool]) -> None:
    """An alarm about a server that samples as it should is the end of alarms; however its schedule has moved."""
    samples = min(samples, length)
    terms = terms_of(samples, length, offset=offset % length)
    up = before + [True] * (4 * length)
    for slot, (shown, _) in enumerate(play(terms, up)):
        if slot >= len(before) + length:
            assert shown is None or shown > slot - 2, "it may be early by a slot where intervals differ"


def test_a_server_that_never_spoke_is_missing_after_an_interval() -> None:
    """It may be down since before this node began; how far its schedule had moved by then is not known."""
    schedules = Schedules(terms_of(2, 10, offset=3), 0)
    assert [schedules.overdue(1, 100, now) for now in (100, 103, 104, 120)] == [None, None, 104, 104]
    lockstep = Schedules(terms_of(2, 10, moves=False), 0)
    first = next(slot for slot in range(101, 110) if is_due(slot, lockstep.terms))
    assert [lockstep.overdue(1, 101, now) for now in (first - 1, first, first + 30)] == [None, first, first]


@pytest.mark.parametrize("moves", [True, False])
def test_nothing_is_due_after_the_horizon(moves: bool) -> None:
    """The budget is spent then: all servers would be missing for ever."""
    schedules = Schedules(terms_of(4, 20, moves=moves, ends=20), 0)
    assert schedules.overdue(1, 0, 19) is not None
    for slot in range(20):
        if is_due(slot, schedules.terms):
            schedules.hear(1, slot)
    assert schedules.overdue(1, 0, 500) is None
    assert Schedules(terms_of(4, 20, moves=moves, ends=20), 0).overdue(1, 30, 500) is None
