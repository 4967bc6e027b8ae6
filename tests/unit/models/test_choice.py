"""Which candidate is taken, and why: seasons with the variance that suits them, and then the simplest of a season."""

from __future__ import annotations

import numpy as np

from dpcrowd.models.choice import Candidate, best_candidate, best_of_seasons, reason_of, simplest_kind
from dpcrowd.models.estimate import fit_series
from dpcrowd.models.model import VarianceKind
from dpcrowd.models.season import DAY, SlotTimes


def taken(scores: dict[Candidate, float], numbers: list[int]) -> Candidate:
    """Return the candidate that is taken where kinds of variance make no difference."""
    by_season: dict[Candidate, dict[VarianceKind, float]] = {
        one: {"fixed": scores[one]} for one in best_of_seasons(scores)
    }
    return best_candidate(scores, by_season, False, numbers)


def test_a_season_of_the_calendar_gives_way_only_to_a_clearly_better_number() -> None:
    """A number of slots fits the counts of one span by chance more easily than a week does."""
    none, week, other = Candidate("none"), Candidate("week"), Candidate(9)
    assert taken({none: 12.0, week: 10.0, other: 9.2}, [9]) == week
    assert taken({none: 12.0, week: 10.0, other: 8.9}, [9]) == other
    assert taken({none: 10.0, week: 10.0, other: 9.8}, [9]) == other
    assert taken({none: 10.0, week: 10.0, other: 9.95}, [9]) == none
    by_season: dict[Candidate, dict[VarianceKind, float]] = {week: {"fixed": 10.0}, other: {"fixed": 9.2}}
    reason = reason_of(week, {week: 10.0, other: 9.2}, by_season, "fixed", {"fixed": 10.0}, False)
    assert "season 9 9.2, where season week gives way only to a number of slots that is 10% better" in reason


def test_a_smooth_season_has_to_be_clearly_better_than_a_level() -> None:
    """A crowd that comes and goes slowly is like a wave, and a profile of chance has larger errors."""
    none, wave = Candidate("none"), Candidate(40)
    for score, expected in ((9.5, none), (8.9, wave)):
        by_season: dict[Candidate, dict[VarianceKind, float]] = {none: {"fixed": 10.0}, wave: {"fixed": score}}
        assert best_candidate({none: 10.0, wave: score}, by_season, False, [40], smooth=40) == expected
        assert best_candidate({none: 10.0, wave: score}, by_season, False, [40]) == wave, "if it is not smooth"


def test_a_season_is_compared_with_the_variance_that_suits_it() -> None:
    """With a fixed variance, a week loses to a constant level that no other variance makes better."""
    none, week, recent = Candidate("none"), Candidate("week"), Candidate("week", 30.0)
    scores = {none: 32.0, week: 33.5, recent: 33.0}
    assert best_of_seasons(scores) == [none, recent]
    by_season: dict[Candidate, dict[VarianceKind, float]] = {
        none: {"fixed": 32.0, "proportional": 31.9},
        recent: {"fixed": 33.0, "proportional": 32.4, "relative": 28.0},
    }
    assert best_candidate(scores, by_season, False, []) == recent
    assert simplest_kind(by_season[recent], False) == "relative"
    assert best_candidate(scores, by_season, True, []) == none, "noise hides kinds of variance"
    week_alone = {none: 32.0, week: 33.2, recent: 33.0}
    assert best_candidate(week_alone, by_season, False, []) == week, "the simplest of its season within 1%"


def test_a_week_is_found_where_days_deviate_in_proportion() -> None:
    """A shop that is closed on one day a week, and once for longer, was given a constant level."""
    slots = np.arange(100)
    week = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.7])[slots % 7]
    times = SlotTimes(4 * DAY, DAY)
    for seed in (1, 2, 4):
        rng = np.random.default_rng(seed)
        expected = np.outer(week, [60.0, 8.0, 3.0]) * np.exp(rng.normal(0.0, 0.7, (100, 1)))
        expected[49:61] = 0.0
        counts = rng.poisson(expected).astype(np.float64)
        fitted = fit_series(counts, times=times)
        assert (fitted.season, fitted.estimate.kind) == ("week", "relative")
        assert fitted.scores.past < 0.98 * fit_series(counts, times=times, season="none").scores.past
        seasons, same, kinds = fitted.reason.split("; then ")
        assert "on held-out blocks, the best of each season with the variance that suits it: season week" in seasons
        assert same.startswith("all with fixed variance: season week")
        assert kinds.startswith("of season week")
        assert "by kind of variance: relative " in kinds
