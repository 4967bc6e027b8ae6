"""Records of other servers that a node keeps for the page."""

from __future__ import annotations

import numpy as np

from dpcrowd.node.live import record_history
from dpcrowd.node.live.record_history import KeptRecords
from dpcrowd.schemes.record_estimates import RecordEstimates

NAMES = ("a", "b", "c")


def estimates(
    *records: tuple[int, int, float], regions: int = 2, share: tuple[float, ...] = (0.5,), learned: bool = False
) -> RecordEstimates:
    """Records of (origin, slot, value): each region has the value and a variance of 4."""
    origin, slot, values = (np.array(column) for column in zip(*records, strict=True))
    value = np.repeat(values.astype(float)[:, None], regions, axis=1)
    variance = np.full_like(value, 4.0)
    shares = np.tile(share, (len(records), 1))
    return RecordEstimates(origin, slot, value, variance, value.sum(axis=1), variance.sum(axis=1), shares, learned)


def test_a_late_record_takes_its_place_and_comes_once() -> None:
    """The line of a server would run back in time, or through one slot twice."""
    kept = KeptRecords()
    kept.add(estimates((1, 5, 50.0), (2, 5, 70.0)), NAMES)
    kept.add(estimates((1, 3, 30.0)), NAMES)
    kept.add(estimates((1, 5, 55.0)), NAMES)
    history = kept.history(0, 1, 2, NAMES)
    assert (history["b"].slots, history["b"].value) == ([3, 5], [30.0, 55.0])
    assert history["b"].half_width == [3.9, 3.9]
    assert kept.history(4, None, 2, NAMES)["b"].value == [110.0], "the total, since slot 4"
    assert history.keys() == {"b", "c"}, "nothing of a server without records"
    assert kept.history(0, None, 3, NAMES) == {}, "of another revision, with other regions"


def test_regions_without_a_value_are_null_and_memory_is_bounded() -> None:
    """A node runs for months, with a thousand regions perhaps; NaN is not JSON."""
    kept = KeptRecords()
    unknown = estimates((1, 0, float("nan")))
    kept.add(unknown, NAMES)
    assert kept.history(0, 0, 2, NAMES)["b"].value == [None]
    regions = 100_000
    for slot in range(2 * record_history._FEWEST_RECORDS):
        kept.add(estimates((2, slot, 1.0), regions=regions), NAMES)
    slots = kept.history(0, 0, regions, NAMES)["c"].slots
    assert slots == list(range(record_history._FEWEST_RECORDS, 2 * record_history._FEWEST_RECORDS))


def test_each_record_says_by_which_share_it_was_divided() -> None:
    """With a revision servers begin to learn shares: a reader who divides by the public share would be misled."""
    kept = KeptRecords()
    kept.add(estimates((1, 0, 10.0)), NAMES)
    kept.add(estimates((1, 1, 10.0), share=(0.25, 0.75), learned=True), NAMES)
    region, total = (kept.history(0, number, 2, NAMES)["b"] for number in (1, None))
    assert (region.share, region.learned) == ([0.5, 0.75], [False, True])
    assert (total.share, total.learned) == ([0.5, None], [False, True]), "the shares of the regions differ"
