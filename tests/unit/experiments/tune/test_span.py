"""Spans of data sets: what is cut, and that the past does not know the future."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data import CheckIns, FixedData, load
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.data.series import FROM_WHOLE_SERIES
from dpcrowd.sim.data.span import cut, is_drawn_anew, read_span
from sim_support import write_checkins

COUNTS = np.array([[10, 5], [20, 5], [10, 9], [500, 9], [10, 0], [300, 0]])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0:395", (0, 395)),
        ("10:20", (10, 20)),
        (":100", (0, 100)),
        ("100:", (100, 791)),
        ("0:0.5", (0, 396)),
        ("0.5:1.0", (396, 791)),
        ("0.5:", (396, 791)),
        ("0.5:1", (396, 791)),
        ("0.:.25", (0, 198)),
        ("0:1", (0, 1)),
        (" 3 : 4 ", (3, 4)),
        ((5, 9), (5, 9)),
        ((0.0, 0.5), (0, 396)),
    ],
)
def test_a_span_is_in_slots_or_in_fractions(given: object, expected: tuple[int, int]) -> None:
    """A point makes a fraction: 0:1 is one slot and 0:1.0 all of them, or a typo would tune on everything."""
    assert read_span(given, 791) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("0:792", "span '0:792' ends at slot 792, but the data have 791 slots; allowed: 0:791"),
        ("0:1.5", "span '0:1.5' goes beyond the data: 1.5 is a fraction, since it has a point. Allowed: fractions"),
        ("0.2:100", "span '0.2:100' mixes a fraction and slots (100); give both in slots (0:395) or both as fractions"),
        ((7, 0.5), "span '7:0.5' mixes a fraction and slots (7)"),
        ("5:5", "span '5:5' contains none of the 791 slots"),
        ("9:5", "span '9:5' contains none"),
        ("half", "span 'half' is not allowed; give FIRST:LAST in slots"),
        ("-1:5", "span '-1:5' is not allowed"),
        ("1", "span '1' is not allowed"),
        ("1:2:3", "span '1:2:3' is not allowed"),
        ((0, float("nan")), "span '0:nan' is not allowed"),
    ],
)
def test_a_wrong_span_is_refused_with_what_is_allowed(given: object, text: str) -> None:
    """Tuning on other slots than were meant goes unnoticed."""
    with pytest.raises(BadInput, match=r"span") as error:
        read_span(given, 791)  # type: ignore[arg-type]
    assert text in str(error.value)


def test_a_span_of_counts_has_its_own_variance() -> None:
    """Q of the whole series would tell the past what comes."""
    whole = counts_from_array(COUNTS)
    part = cut(whole, 0, 3)
    assert isinstance(part, FixedData)
    np.testing.assert_array_equal(part.counts, COUNTS[:3])
    np.testing.assert_allclose(part.change_var, [100.0, 8.0])
    np.testing.assert_allclose(part.model.process_var, [100.0, 8.0])
    assert (part.slots, part.first) == (3, 0)
    assert FROM_WHOLE_SERIES in whole.notes
    assert part.notes == ("the process variance Q is taken from slots 0 to 2 of the series.",)
    assert cut(whole, 0, 6) is whole


def test_spans_of_spans_remember_where_they_are() -> None:
    """Whether parameters were tuned on the slots of a result is decided by their numbers in the whole series."""
    part = cut(cut(counts_from_array(COUNTS), 1, 6), 2, 5)
    np.testing.assert_array_equal(part.truth(np.random.default_rng(0)), COUNTS[3:6])
    assert part.first == 3


def test_a_variance_given_by_hand_stays() -> None:
    """Whoever gives Q means it; the data's own variance is the span's all the same."""
    part = cut(counts_from_array(COUNTS, process_var=7.0), 0, 3)
    np.testing.assert_allclose(part.model.process_var, [7.0, 7.0])
    np.testing.assert_allclose(part.change_var, [100.0, 8.0])


def test_a_span_of_checkins_has_those_users_and_labels(tmp_path: Path) -> None:
    """Entries carry slot numbers of their own, which have to start at 0 again."""
    whole = load(write_checkins(tmp_path / "checkins.csv"))
    part = cut(whole, 10, 25)
    assert isinstance(part, CheckIns)
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(part.truth(rng), whole.truth(rng)[10:25])
    assert part.slot_labels == (whole.slot_labels or ())[10:25]
    assert (part.first, part.slots) == (10, 15)
    assert configure("dpcrowd", part, servers=3, burn_in=5).data is part


def test_synthetic_data_have_no_past() -> None:
    """A span of a stream that is drawn anew in each run would be another process that starts elsewhere."""
    data = load("linear", slots=30)
    assert is_drawn_anew(data)
    assert not is_drawn_anew(counts_from_array(COUNTS))
    with pytest.raises(BadInput, match="'linear' is drawn anew in each run and has no past"):
        cut(data, 0, 10)


@pytest.mark.parametrize("bounds", [(-1, 3), (2, 2), (0, 7)])
def test_slots_that_are_not_there_are_refused(bounds: tuple[int, int]) -> None:
    """Slices would silently give fewer."""
    with pytest.raises(BadInput, match=r"asked of 'array'; allowed: a span within 0:6"):
        cut(counts_from_array(COUNTS), *bounds)
    with pytest.raises(BadInput, match="one slot"):
        cut(counts_from_array(COUNTS), 2, 3)
