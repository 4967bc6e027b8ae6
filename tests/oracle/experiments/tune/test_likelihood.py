"""The likelihood of noisy samples against the dense joint Gaussian of a short stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dpcrowd.experiments.tune.likelihood import Samples, log_likelihood, most_likely_var

SLOTS, STREAMS, SERVERS, REGIONS = 7, 2, 3, 2


def _samples(seed: int = 0) -> Samples:
    """Random samples of random servers in random slots; one slot has none at all, the first only in one stream."""
    rng = np.random.default_rng(seed)
    shape = (SLOTS, STREAMS, SERVERS, REGIONS)
    where = rng.random(shape) < 0.6
    where[3] = False
    where[0, 1] = False
    shares = np.broadcast_to(rng.uniform(0.05, 1.0, (STREAMS, SERVERS, 1)), (*shape[:3], 1))
    noisy = shares * (500.0 + 40.0 * rng.standard_normal(shape))
    return Samples(np.where(where, noisy, 0.0), rng.uniform(5.0, 50.0, shape), where, np.array(shares))


def _dense(samples: Samples, stream: int, region: int, q: float, a: float) -> float:
    """log of the integral, over a flat x of the first slot with a sample, of the joint density of all samples.

    z = h x(0) + e with Cov(e) = C: the integral of N(z; h x, C) over x is N(z; h xhat, C) sqrt(2 pi/(h' C^-1 h)), with
    xhat the generalised least squares estimate. No filter is used: C is written down from sums of the process noise.
    """
    places = [(t, i) for t in range(SLOTS) for i in range(SERVERS) if samples.where[t, stream, i, region]]
    z = np.array([samples.noisy[t, stream, i, region] for t, i in places])
    shares = np.array([samples.shares[t, stream, i, 0] for t, i in places])
    h = shares * np.array([a**t for t, _ in places])
    cov = np.empty((len(places), len(places)))
    for row, (t, i) in enumerate(places):
        for column, (s, j) in enumerate(places):
            shared = sum(q * a ** (t - u) * a ** (s - u) for u in range(1, min(t, s) + 1))
            cov[row, column] = shares[row] * shares[column] * shared
            if (t, i) == (s, j):
                spread = max(shares[row] ** 2 * q, 1.0 / 12.0)
                cov[row, column] += samples.noise_var[t, stream, i, region] + spread
    information = float(h @ np.linalg.solve(cov, h))
    estimate = float(h @ np.linalg.solve(cov, z)) / information
    density: Any = multivariate_normal.logpdf(z, mean=h * estimate, cov=cov)
    first_slot = places[0][0]  # a flat x(0) is flat in that slot, too, but A has stretched it
    return float(density) + 0.5 * float(np.log(2.0 * np.pi / information)) + first_slot * float(np.log(a))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("q", "a"), [(1.0, 1.0), (300.0, 1.0), (1e5, 1.0), (300.0, 0.9)])
def test_the_likelihood_is_that_of_the_dense_joint_gaussian(q: float, a: float, seed: int) -> None:
    """One wrong term, and the maximum is at another Q without any sign of it."""
    samples = _samples(seed)
    found = log_likelihood(samples, q, "paper", a)
    assert found.shape == (REGIONS,)
    for region in range(REGIONS):
        dense = sum(_dense(samples, stream, region, q, a) for stream in range(STREAMS))
        assert found[region] == pytest.approx(dense, rel=1e-10)


def test_the_binomial_observation_is_the_filters_own() -> None:
    """Slot by slot, R comes from the prior; with one server whose R is known by hand the density is two Gaussians."""
    share, noise, q = 0.5, 4.0, 30.0
    z = np.array([100.0, 110.0])
    samples = Samples(
        z.reshape(2, 1, 1, 1),
        np.full((2, 1, 1, 1), noise),
        np.ones((2, 1, 1, 1), dtype=bool),
        np.full((2, 1, 1, 1), share),
    )
    first_var = noise + share * (1 - share) * (z[0] / share)  # nothing is expected yet: the sample itself
    known, known_var = z[0] / share, first_var / share**2
    second_var = noise + share * (1 - share) * known
    spread = share**2 * (known_var + q) + second_var
    by_hand = -np.log(share) + multivariate_normal.logpdf(z[1], share * known, spread)
    assert log_likelihood(samples, q, "binomial")[0] == pytest.approx(float(by_hand), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 9))
def test_the_maximum_is_where_a_fine_grid_has_it(seed: int) -> None:
    """A search that stops in a wrong valley, or at a bound, would give a Q that is off by decades."""
    samples = _samples(seed)
    transition = (1.0, 0.9)
    found = most_likely_var(samples, transition=transition)
    for region in range(REGIONS):
        alone = samples.region(region)
        grid = np.geomspace(1.0 / 12.0, 1e7, 500)
        best = grid[np.argmax([log_likelihood(alone, q, transition=transition[region])[0] for q in grid])]
        assert found[region] == pytest.approx(best, rel=0.04)


def test_a_region_without_two_samples_has_no_likelihood() -> None:
    """One slot says nothing about changes: a number made up for it would look like an estimate."""
    samples = _samples()
    samples.where[1:, :, :, 1] = False
    found = most_likely_var(samples)
    assert np.isfinite(found[0])
    assert np.isnan(found[1])
