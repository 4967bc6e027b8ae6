"""Profiles: which slots decide about them."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.models.estimate import fit_series
from dpcrowd.models.profiles import ProfileSeries, estimate_profile


def test_unusual_slots_do_not_move_a_robust_profile() -> None:
    """A town with a dozen holidays in half a year would be expected to be emptier on every usual day."""
    rng = np.random.default_rng(11)
    slots = np.arange(210)
    usual = np.where(slots % 7 < 5, 400.0, 200.0)[:, None] * np.array([1.0, 0.5])
    holidays = rng.random(210) < 0.08
    counts = rng.poisson(usual * np.where(holidays, 0.2, 1.0)[:, None]).astype(float)
    series = ProfileSeries(counts, np.zeros(counts.shape), slots % 7)
    plain, robust = (estimate_profile(series, 7, None, smooth=False, robust=one) for one in (False, True))
    expected = usual[:7]
    assert np.abs(robust.rows / expected - 1.0).mean() < 0.03
    assert np.abs(robust.rows / expected - 1.0).mean() < 0.6 * np.abs(plain.rows / expected - 1.0).mean()
    assert fit_series(counts, season=7).estimate.profile.rows == pytest.approx(robust.rows)


def test_a_robust_profile_of_small_counts_is_their_mean() -> None:
    """The median of a region with one person on most days would be a count that is too small, or 0."""
    counts = np.random.default_rng(12).poisson(np.array([0.2, 1.0, 6.0]), (4000, 3)).astype(float)
    series = ProfileSeries(counts, np.zeros(counts.shape), np.zeros(4000, dtype=np.int64))
    robust = estimate_profile(series, 1, None, smooth=False, robust=True)
    assert robust.level == pytest.approx(counts.mean(axis=0), rel=0.03)
