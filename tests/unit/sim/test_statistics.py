"""Means with 95% intervals, and paired comparisons, against scipy.stats."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dpcrowd.errors import BadInput
from dpcrowd.sim.statistics import compare_paired, half_width, mean_with_interval, means_with_halves


@pytest.mark.parametrize("size", [2, 3, 10, 200])
def test_the_interval_is_students(size: int) -> None:
    """The normal quantile in place of Student's t makes intervals of few runs far too narrow."""
    values = np.random.default_rng(size).normal(5.0, 2.0, size)
    found = mean_with_interval(values)
    wanted = stats.t.interval(0.95, size - 1, loc=values.mean(), scale=stats.sem(values))
    assert found.mean == pytest.approx(values.mean())
    assert found.ci95 == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("tests", [1, 7])
def test_half_widths_can_share_their_mistakes(tests: int) -> None:
    """Claims with many intervals take a stricter level for each of them (Bonferroni)."""
    values = np.random.default_rng(4).normal(5.0, 2.0, 9)
    low, high = stats.t.interval(1.0 - 0.05 / tests, 8, loc=values.mean(), scale=stats.sem(values))
    assert half_width(values, 0.05 / tests) == pytest.approx((high - low) / 2, rel=1e-9)


def test_undefined_values_are_left_out() -> None:
    """One run without a value must not make the mean of all others undefined."""
    full = mean_with_interval(np.array([1.0, 2.0, 4.0]))
    assert mean_with_interval(np.array([1.0, np.nan, 2.0, 4.0])) == full


def test_a_run_that_diverged_leaves_no_mean() -> None:
    """Were it left out, a scheme that sometimes diverges would look better than one that never does."""
    assert mean_with_interval(np.array([1.0, 2.0, np.inf])).mean is None
    with pytest.raises(BadInput, match="some runs diverged"):
        compare_paired("a", "b", "are", np.array([1.0, np.inf]), np.array([1.0, 2.0]))


def test_nothing_has_no_mean_and_one_run_no_interval() -> None:
    """NaN would end in the JSON as a word that is not JSON, and an interval of width 0 would claim certainty."""
    nothing = mean_with_interval(np.array([np.nan, np.nan]))
    assert nothing.mean is None
    assert nothing.ci95 is None
    one = mean_with_interval(np.array([np.nan, 3.0]))
    assert one.mean == 3.0
    assert one.ci95 is None


def test_columns_give_what_single_columns_give() -> None:
    """The band of a plot is the same interval as the one in the table."""
    values = np.random.default_rng(4).normal(size=(6, 5))
    values[:, 1] = np.nan
    values[1:, 2] = np.nan
    values[2, 3] = np.nan
    means, halves = means_with_halves(values)
    for column in range(values.shape[1]):
        single = mean_with_interval(values[:, column])
        assert (single.mean is None) == np.isnan(means[column])
        assert (single.ci95 is None) == np.isnan(halves[column])
        if single.ci95 is not None:
            low, high = means[column] - halves[column], means[column] + halves[column]
            assert (low, high) == pytest.approx(single.ci95, rel=1e-12)


def test_a_comparison_is_the_paired_t_interval() -> None:
    """Unpaired, the run-to-run spread that both schemes share would hide every difference."""
    rng = np.random.default_rng(7)
    shared = rng.normal(10.0, 5.0, 30)
    a, b = shared + rng.normal(0.0, 0.1, 30), shared + rng.normal(0.2, 0.1, 30)
    found = compare_paired("a", "b", "are", a, b)
    wanted = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found.ci95 == pytest.approx((wanted.low, wanted.high), rel=1e-9)
    assert found.difference == pytest.approx(np.mean(a - b))
    assert found.ratio == pytest.approx(a.mean() / b.mean())
    assert found.wins == np.mean(a < b)
    assert found.runs == 30
    assert found.decided
    tie = compare_paired("a", "a", "are", a, a)
    assert not tie.decided
    assert tie.wins == 0, "a tie is no win"
    assert compare_paired("b", "a", "are", b, a).decided, "in either direction"


def test_only_runs_where_both_are_defined_count() -> None:
    """A run that one scheme has no value for cannot be compared."""
    found = compare_paired("a", "b", "ace", np.array([1.0, np.nan, 3.0]), np.array([2.0, 5.0, np.nan]))
    assert (found.runs, found.ratio, found.difference, found.ci95, found.wins) == (1, 0.5, -1.0, None, 1.0)
    assert not found.decided, "one run decides nothing"


def test_a_comparison_with_zero_has_no_ratio() -> None:
    """Two schemes that agree exactly (consensus error 0) must not end in a division by zero."""
    found = compare_paired("a", "b", "ace", np.array([1.0, 2.0]), np.zeros(2))
    assert np.isnan(found.ratio)
    assert found.difference == 1.5


def test_the_paired_ratio_is_not_ruled_by_one_run() -> None:
    """A ratio of means says what the run with the largest errors says; the geometric mean counts every run alike."""
    a, b = np.array([1.0, 2.0, 3000.0]), np.array([2.0, 4.0, 1000.0])
    found = compare_paired("a", "b", "are", a, b)
    assert found.ratio == pytest.approx(3003 / 1006)
    logs = np.log([0.5, 0.5, 3.0])
    wanted = stats.ttest_1samp(logs, 0.0).confidence_interval(0.95)
    assert found.paired_ratio == pytest.approx(np.exp(logs.mean()))
    assert found.paired_ci95 == pytest.approx((np.exp(wanted.low), np.exp(wanted.high)), rel=1e-9)
    back = compare_paired("b", "a", "are", b, a)
    assert back.paired_ratio == pytest.approx(1 / found.paired_ratio), "either way round it says the same"


def test_a_value_of_zero_has_no_paired_ratio() -> None:
    """Consensus errors of 0 have no logarithm; the comparison goes on without it."""
    found = compare_paired("a", "b", "ace", np.array([0.0, 2.0]), np.array([1.0, 1.0]))
    assert np.isnan(found.paired_ratio)
    assert found.paired_ci95 is None
    assert "run by run" not in str(found)
    assert compare_paired("a", "b", "are", np.array([1.0]), np.array([2.0])).paired_ci95 is None, "one run"


def test_nothing_in_common_is_refused() -> None:
    """A comparison of nothing must not look like a tie."""
    with pytest.raises(BadInput, match=r"'a' and 'b' have no runs in common with a defined latency_ms"):
        compare_paired("a", "b", "latency_ms", np.array([np.nan, 1.0]), np.array([1.0, np.nan]))
    with pytest.raises(BadInput, match="no runs in common"):
        compare_paired("a", "b", "are", np.ones(2), np.ones(3))


def test_a_comparison_reads_as_a_sentence() -> None:
    """The sentence is what a user prints; it has to name who is compared with whom, and in which direction."""
    text = str(compare_paired("dpcrowd", "fast", "are", np.array([1.0, 1.1, 0.9]), np.array([2.0, 2.2, 1.8])))
    assert text.startswith("are of dpcrowd is 0.5 times that of fast (difference -1, 95% interval ")
    assert "; run by run 0.5 times, 95% interval 0.5 to 0.5; " in text
    assert text.endswith("smaller in 100% of 3 runs)")
    assert "interval" not in str(compare_paired("a", "b", "are", np.array([1.0]), np.array([2.0])))
