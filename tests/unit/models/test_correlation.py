"""How far regions go together: seen where they do, and not taken from chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.models.correlation import common_transition, mean_correlation


def deviations(slots: int, regions: int, a: float, common: float, seed: int) -> Any:
    """Deviations (slots, regions) of variance 1, each pair with the correlation `common`."""
    rng = np.random.default_rng(seed)
    noise = np.sqrt(common) * rng.normal(size=(slots, 1)) + np.sqrt(1.0 - common) * rng.normal(size=(slots, regions))
    values = np.empty_like(noise)
    values[0] = noise[0]
    for slot in range(1, slots):
        values[slot] = a * values[slot - 1] + np.sqrt(1.0 - a * a) * noise[slot]
    return values


def test_chance_is_not_taken_for_a_correlation() -> None:
    """Deviations that last make the sums of short series large or small by chance: regions would be joined for it."""
    for a in (0.0, 0.6, 0.95):
        found = [mean_correlation([deviations(80, 20, a, 0.0, seed)], 80) for seed in range(200)]
        assert np.mean(np.array(found) > 0.0) < 0.06
        assert max(found) < 0.25


def test_regions_that_rise_and_fall_together_are_seen() -> None:
    """Whoever could gain by groups would otherwise not get them."""
    found = [mean_correlation([deviations(80, 20, 0.6, 0.3, seed)], 80) for seed in range(50)]
    assert 0.12 < np.median(found) < 0.3
    sizes = np.geomspace(1.0, 50.0, 20)
    found = [mean_correlation([sizes * deviations(300, 20, 0.6, 0.3, seed)], 300) for seed in range(20)]
    assert 0.18 < np.median(found) < 0.33, "whatever the sizes of the regions are"


def test_series_that_say_nothing_have_none() -> None:
    """An empty or constant series, or a single region, must not divide by zero."""
    assert mean_correlation([np.zeros((20, 3))], 20) == 0.0
    assert mean_correlation([deviations(20, 1, 0.5, 0.0, 1)], 20) == 0.0
    assert mean_correlation([np.zeros((1, 3))], 1) == 0.0
    assert mean_correlation([np.array([[1.0, -1.0], [-1.0, 1.0]])], 2) == 0.0
    assert mean_correlation([np.repeat(deviations(300, 1, 0.0, 0.0, 2), 3, axis=1)], 300) > 0.7


def test_what_regions_have_in_common_lasts_longer_than_what_each_has_of_its_own() -> None:
    """With one number for both, an epidemic in all regions would be expected to fade as fast as chance does."""
    for own, common in ((0.0, 0.9), (0.8, 0.2), (0.5, 0.5)):
        found = [
            common_transition([deviations(300, 20, own, 0.0, seed) + 0.7 * deviations(300, 1, common, 0.0, 900 + seed)])
            for seed in range(40)
        ]
        assert np.mean(found) == pytest.approx(common, abs=0.06)


def test_counts_that_are_shifted_into_the_next_slot_do_not_last_longer() -> None:
    """What is late in one hour is counted in the next: by that lag alone it would seem to last longer."""
    common = 0.7 * deviations(2000, 1, 0.5, 0.0, 5)[:, 0]
    shifted = np.roll(common, 1)
    shifted[0] = 0.0
    regions = [common if region % 2 else shifted for region in range(4)]
    found = common_transition([deviations(2000, 4, 0.0, 0.0, 6) + np.array(regions).T])
    assert 0.5 <= found < 0.8, "the next slot alone would say 0.88"


def test_what_lasts_is_between_nothing_and_almost_everything() -> None:
    """A filter needs a part below 1, or it would never forget; and what turns around in every slot does not last."""
    assert common_transition([np.outer(np.arange(500.0), np.ones(3))]) == 0.99
    assert common_transition([np.outer((-1.0) ** np.arange(50), np.ones(3))]) == 0.0
    assert common_transition([np.zeros((20, 3))]) == 0.0
    assert common_transition([np.array([[1.0, -1.0], [-1.0, 1.0]])]) == 0.0
