"""Which records have the complete crowd as one sum: where that shows more than records of single regions."""

from __future__ import annotations

import numpy as np

from dpcrowd.filters import Course, ProcessModel
from dpcrowd.schemes.relay_totals import has_total, part_of_totals, remaining_variance

REGIONS, SERVERS = 30, 20
SHARES = np.full(SERVERS, 1.0 / SERVERS)
LEVELS = np.linspace(2.0, 40.0, REGIONS)
NONE = np.zeros(REGIONS)
RATE = 1.0 / 40.0


def model(correlation: float | None = 0.1, deviation: float = 0.2) -> ProcessModel:
    course = Course(LEVELS[None], np.square(deviation * LEVELS)[None] * (1.0 - 0.5**2))
    return ProcessModel.around(course, np.full(REGIONS, 0.5), None, correlation)


def test_the_weaker_single_records_are_the_more_records_have_the_sum() -> None:
    """Sums of precise records would throw away what they tell of each region; draws per region hide the crowd."""
    parts = [part_of_totals(model(), SHARES, 2.0 / epsilon**2, RATE, NONE) for epsilon in (30.0, 1.0, 0.05)]
    assert parts[0] == 0.0
    assert parts[-1] == 1.0
    assert parts == sorted(parts)


def test_independent_regions_keep_records_of_their_own() -> None:
    """If all records had the sum, regions that move apart while the crowd stays would never be seen."""
    noise = 2.0 / 0.05**2
    assert part_of_totals(model(0.0), SHARES, noise, RATE, NONE) == 0.5
    assert part_of_totals(model(0.5), SHARES, noise, RATE, NONE) == 1.0


def test_where_single_records_tell_much_none_has_the_sum() -> None:
    """Whoever hears exact counts of each region has no use for their sum."""
    assert part_of_totals(model(0.9), SHARES, 1e-6, 1.0, NONE) == 0.0


def test_a_region_that_has_left_its_past_brings_single_records_back() -> None:
    """All records would have the sum for ever, and nobody would learn which regions have filled."""
    noise = 2.0 / 0.05**2
    assert part_of_totals(model(), SHARES, noise, RATE, NONE) == 1.0
    assert part_of_totals(model(), SHARES, noise, RATE, np.square(200.0 * LEVELS)) == 0.0


def test_without_a_model_or_its_correlation_no_record_has_the_sum() -> None:
    """Nothing says how a sum divides, or how much it tells."""
    noise = 2.0 / 0.05**2
    assert part_of_totals(ProcessModel.of(1.0, np.ones(REGIONS)), SHARES, noise, RATE, NONE) == 0.0
    assert part_of_totals(model(None), SHARES, noise, RATE, NONE) == 0.0


def test_records_leave_less_than_the_model_and_sums_tell_of_regions_that_go_together() -> None:
    """The prediction would choose by noise if it were not monotone."""
    noise = 2.0
    before = np.square(0.2 * LEVELS)
    left = {part: remaining_variance(model(0.5), SHARES, noise, RATE, NONE, part) for part in (0.0, 0.5, 1.0)}
    assert all((one <= before * (1.0 + 1e-12)).all() for one in left.values())
    independent = remaining_variance(model(0.0), SHARES, noise, RATE, NONE, 1.0)
    assert (left[1.0] < independent).all()
    more = remaining_variance(model(0.5), SHARES, noise, 10.0 * RATE, NONE, 0.0)
    assert (more < left[0.0]).all()


def test_every_second_record_of_every_server() -> None:
    """If some servers always had the sum, their single regions would never be read."""
    for number in range(4):
        turns = [has_total(0.5, slot, 3, 2, 40, number) for slot in range(2, 200, 20)]
        assert turns == [turns[0], not turns[0]] * 5
    assert {has_total(0.5, 2, 3, 2, 40, number) for number in range(2)} == {True, False}
    assert all(has_total(1.0, slot, 0, 1, 40, 0) for slot in range(80))
    assert not any(has_total(0.0, slot, 0, 1, 40, 0) for slot in range(80))
