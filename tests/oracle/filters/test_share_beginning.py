"""When the joint filter of learned shares begins anew in a region: where the records of a slot contradict it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.arrays import Floats, Ints
from dpcrowd.filters.share_beginning import is_contradicted, start_filter
from dpcrowd.filters.share_learning import expected_records, fuse_slot, learn_slot, move_filter, prepare_slot
from dpcrowd.filters.share_state import CrowdStep, ShareFilter, SlotRecords
from dpcrowd.filters.share_widths import learned_crowd
from schemes_support import bits

SERVERS, REGIONS, WIDTH, NOISE = 6, 2, 0.1, 4.0
PUBLIC = np.full((SERVERS, REGIONS), 1.0 / SERVERS)
RIGHT = np.array([[0.4, 0.3], [0.02, 0.1], [0.03, 0.1], [0.3, 0.1], [0.05, 0.3], [0.2, 0.1]])
LEVEL = np.array([1e5, 3e4])
MOVES = np.square(np.array([3e4, 1e3]))


def records_of(crowd: Floats, origins: Ints, rng: np.random.Generator) -> SlotRecords:
    noisy = RIGHT[origins] * crowd + rng.normal(0.0, np.sqrt(NOISE), (len(origins), REGIONS))
    return SlotRecords(origins, noisy, np.full(len(origins), NOISE))


def step_after(known: ShareFilter) -> CrowdStep:
    """A random walk of which the filter alone knows where it is; in the first slot nothing is known of it."""
    crowd, var = learned_crowd(known, PUBLIC, WIDTH) if known.begun else (np.zeros(REGIONS), np.full(REGIONS, np.inf))
    ones = np.ones(REGIONS)
    return CrowdStep(
        transition=ones, added=MOVES, jump=0.0 * ones, before=crowd, expected=crowd, expected_var=var + MOVES,
        growth=ones, stays=1.0, model_var=MOVES,
    )  # fmt: skip


def after_a_night(rng: np.random.Generator) -> ShareFilter:
    """The filter after three rounds in which nobody was in region 0; half of the servers are heard in each slot."""
    known = start_filter(PUBLIC, WIDTH)
    for slot in range(6):
        records = records_of(np.array([0.0, LEVEL[1]]), np.arange(slot % 2, SERVERS, 2), rng)
        known = learn_slot(known, PUBLIC, PUBLIC, WIDTH, step_after(known), records)
    return known


def test_a_crowd_that_comes_is_no_multiple_of_what_its_records_claim() -> None:
    """What was learned of an empty region fits public shares to the last person, and the records of a crowd do not."""
    rng = np.random.default_rng(4)
    known = after_a_night(rng)
    for slot in range(6):
        records = records_of(LEVEL, np.arange(slot % 2, SERVERS, 2), rng)
        known = learn_slot(known, PUBLIC, PUBLIC, WIDTH, step_after(known), records)
        crowd, var = learned_crowd(known, PUBLIC, WIDTH)
        assert (np.abs(crowd - LEVEL) < 4.0 * np.sqrt(var)).all()
        assert (crowd < 2.5 * LEVEL).all()
    assert np.allclose(crowd, LEVEL, rtol=0.1)


def test_only_the_region_that_is_contradicted_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was learned elsewhere is right, and forgetting it would cost a round of records."""
    rng = np.random.default_rng(4)
    known = after_a_night(rng)
    step, records = step_after(known), records_of(LEVEL, np.arange(0, SERVERS, 2), rng)
    moved = move_filter(known, PUBLIC, PUBLIC, step, records)
    slot = prepare_slot(moved, known, PUBLIC, PUBLIC, WIDTH, step, records)
    contradicted = is_contradicted(slot.known, expected_records(slot, PUBLIC, records))
    assert contradicted.tolist() == [True, False]
    anew = fuse_slot(moved, known, PUBLIC, PUBLIC, WIDTH, step, records)
    nobody = np.zeros(REGIONS, dtype=np.bool_)
    monkeypatch.setattr("dpcrowd.filters.share_learning.is_contradicted", lambda *_: nobody)
    on = fuse_slot(moved, known, PUBLIC, PUBLIC, WIDTH, step, records)
    assert bits(anew.mean[1]) == bits(on.mean[1])
    assert bits(anew.cov[1]) == bits(on.cov[1])
    assert anew.scale[0] >= 2.0 * records.noisy[:, 0].sum() / PUBLIC[records.origins, 0].sum()
    assert anew.crowd_var[0] > 1e4 * on.crowd_var[0]


def test_a_region_is_as_large_as_it_has_ever_been() -> None:
    """Servers that see little of a crowd may be heard first when it comes again: others see more of it."""
    rng = np.random.default_rng(5)
    known = after_a_night(rng)
    known = replace(known, scale=np.array([9e5, known.scale[1]]))
    records = records_of(LEVEL, np.array([0, 1, 2]), rng)
    assert learn_slot(known, PUBLIC, PUBLIC, WIDTH, step_after(known), records).scale[0] == 9e5


def test_one_record_contradicts_nobody() -> None:
    """It would be all that is known of the region."""
    rng = np.random.default_rng(6)
    known = after_a_night(rng)
    step, records = step_after(known), records_of(100.0 * LEVEL, np.array([0]), rng)
    moved = move_filter(known, PUBLIC, PUBLIC, step, records)
    slot = prepare_slot(moved, known, PUBLIC, PUBLIC, WIDTH, step, records)
    assert not is_contradicted(slot.known, expected_records(slot, PUBLIC, records)).any()


def test_nobody_is_known_well_enough_while_the_crowd_moves_by_more_than_there_is_of_it() -> None:
    """Parts of a crowd that were learned from those who are there at night are no parts of the one of the next day."""
    rng = np.random.default_rng(7)
    known = start_filter(PUBLIC, WIDTH)
    for _ in range(12):
        records = records_of(np.array([2e3, LEVEL[1]]), np.arange(SERVERS), rng)
        known = learn_slot(known, PUBLIC, PUBLIC, WIDTH, step_after(known), records)
    assert known.settled.tolist() == [False, True]
