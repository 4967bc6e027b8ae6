"""All noises against the closed form of the discrete Laplace, and against each other; OpenDP's is the oracle of ours.

P(X = x) = tanh(1/(2b)) exp(-|x|/b). SecureNoise and OpenDPNoise cannot be seeded, so every threshold is set where a
false alarm has a probability of about 1e-8 or less; each test that accepts is paired with one that shows what it would
reject.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpcrowd.privacy import Noise, OpenDPNoise, SecureNoise, SeededNoise, discrete_laplace_var
from dpcrowd.privacy.units import NANO

Floats = NDArray[np.float64]
EPSILONS = {0.2: 5.0, 1.0: 1.0, 6.25: 0.16, 50.0: 0.02}  # scale: epsilon
DRAWS = {"secure": 40_000, "opendp": 30_000, "seeded": 400_000}
SAMPLERS: dict[str, type[SecureNoise] | type[OpenDPNoise]] = {"secure": SecureNoise, "opendp": OpenDPNoise}
ALARM = 1e-8
SIGMAS = 6.0
each = pytest.mark.parametrize("scale", list(EPSILONS))
kinds = pytest.mark.parametrize("kind", list(DRAWS))
samplers = pytest.mark.parametrize("kind", list(SAMPLERS))


@cache
def drawn(kind: str, scale: float) -> Floats:
    """Noise on a count of 1000, less the count, drawn with sensitivity 1."""
    size = DRAWS[kind]
    charge = np.array([[round(EPSILONS[scale] * NANO)]])
    counts, where = np.full((size // 100, 100), 1000), np.ones((size // 100, 100), dtype=np.bool_)
    seeded = SeededNoise([np.random.SeedSequence(5)], size // 100, 100)
    noise: Noise = SAMPLERS[kind]() if kind in SAMPLERS else seeded
    return noise.noisy(0, counts, charge, 1, where).ravel() - 1000


def pmf(x: Floats, scale: float) -> Floats:
    return np.asarray(np.tanh(0.5 / scale) * np.exp(-np.abs(x) / scale))


def fit(sample: Floats, scale: float) -> float:
    """p-value of a chi-square test over all values that are expected at least 25 times; the tails are two cells."""
    reach = 0
    while len(sample) * pmf(np.array(reach + 1.0), scale) >= 25:
        reach += 1
    values = np.arange(-reach, reach + 1.0)
    expected = pmf(values, scale)
    rest = (1 - expected.sum()) / 2
    observed = [(sample < -reach).sum(), *(np.sum(sample == v) for v in values), (sample > reach).sum()]
    cells = np.array([rest, *expected, rest]) * len(sample)
    if rest * len(sample) < 25:  # too few beyond: put the tails into their neighbours
        observed = [observed[0] + observed[1], *observed[2:-2], observed[-2] + observed[-1]]
        cells = np.array([cells[0] + cells[1], *cells[2:-2], cells[-2] + cells[-1]])
    return float(stats.chisquare(observed, cells * (len(sample) / cells.sum())).pvalue)


def same(one: Floats, other: Floats) -> float:
    """p-value of a two-sample chi-square test over cells of about equal weight."""
    edges = np.unique(np.quantile(np.concatenate([one, other]), np.linspace(0, 1, 41)))
    bins = np.concatenate([[-np.inf], edges[1:-1] - 0.5, edges[1:-1] + 0.5, [np.inf]])
    bins = np.unique(bins)
    table = np.stack([np.histogram(sample, bins)[0] for sample in (one, other)])
    table = table[:, table.sum(axis=0) >= 50]
    return float(stats.chi2_contingency(table).pvalue)


@each
@kinds
def test_goodness_of_fit(kind: str, scale: float) -> None:
    """Every probability is the discrete Laplace's own."""
    assert fit(drawn(kind, scale), scale) > ALARM


def test_the_fit_rejects_what_is_near() -> None:
    """A rounded float Laplace, or a scale that is 8% too small, is found with the smaller sample."""
    rng = np.random.default_rng(1)
    rounded = np.round(rng.laplace(0, 1, min(DRAWS.values())))
    assert fit(rounded, 1.0) < ALARM
    sample = SeededNoise([np.random.SeedSequence(1)], 300, 100)
    where = np.ones((300, 100), dtype=np.bool_)
    narrow = sample.noisy(0, np.zeros((300, 100), dtype=np.int64), np.array([[round(0.16 * NANO / 0.92)]]), 1, where)
    assert fit(narrow.ravel(), 6.25) < ALARM


@each
@kinds
def test_mean_and_variance(kind: str, scale: float) -> None:
    """No bias, and the variance that the filters take from `discrete_laplace_var`."""
    sample = drawn(kind, scale)
    x = np.arange(-100 * scale - 100, 100 * scale + 101)
    variance, fourth = ((np.abs(x) ** power * pmf(x, scale)).sum() for power in (2, 4))
    assert abs(sample.mean()) < SIGMAS * np.sqrt(variance / len(sample))
    closed = float(discrete_laplace_var(scale))
    assert abs((sample**2).mean() - closed) < SIGMAS * np.sqrt((fourth - variance**2) / len(sample))


@each
@kinds
def test_tails(kind: str, scale: float) -> None:
    """P(|X| > k) = 2 q^(k+1)/(1+q), q = exp(-1/b): a cut-off tail would show outputs that only one count can make."""
    sample, q = np.abs(drawn(kind, scale)), np.exp(-1 / scale)
    for chance in (0.3, 0.03, 0.003, 0.0006):
        k = max(0, int(np.floor(np.log(chance * (1 + q) / 2) / np.log(q))) - 1)
        tail = 2 * q ** (k + 1) / (1 + q)
        spread = np.sqrt(tail * (1 - tail) / len(sample))
        assert abs((sample > k).mean() - tail) < SIGMAS * spread + 10 / len(sample)


@each
@kinds
def test_signs_are_even(kind: str, scale: float) -> None:
    """A sampler that is asymmetric about 0 leaks in one direction."""
    sample = drawn(kind, scale)
    above, below = int((sample > 0).sum()), int((sample < 0).sum())
    assert stats.binomtest(above, above + below).pvalue > ALARM
    assert abs((sample == 0).mean() - np.tanh(0.5 / scale)) < SIGMAS * np.sqrt(0.25 / len(sample))


@each
@samplers
def test_secure_and_seeded_are_one_distribution(kind: str, scale: float) -> None:
    """Simulations show what a live server gets; the same test tells scales 15% apart."""
    assert same(drawn(kind, scale), drawn("seeded", scale)) > ALARM
    if scale > 1:
        assert same(drawn(kind, scale), np.round(drawn("seeded", scale) * 1.15)) < ALARM


@each
def test_our_sampler_and_opendps_are_one_distribution(scale: float) -> None:
    """An implementation by other people, in another language, for the same distribution."""
    assert same(drawn("secure", scale), drawn("opendp", scale)) > ALARM
    if scale > 1:
        assert same(drawn("secure", scale), np.round(drawn("opendp", scale) * 1.15)) < ALARM


@pytest.mark.parametrize(("charge", "sensitivity"), [(1, 1), (999_999_937, 10**12), (7, 2**40)])
@samplers
def test_wide_noise_has_the_right_quantiles(kind: str, charge: int, sensitivity: int) -> None:
    """Scales from 1e9 to 1.6e20, whose numerators fill one or two words: a bias between the words would show.

    |X|/b is exponential in the limit of wide noise; beyond 1e17 the ends of 64 bits cut it off, and signs are left.
    """
    scale = sensitivity * NANO / charge
    where = np.ones((200, 100), dtype=np.bool_)
    noise = SAMPLERS[kind]().noisy(0, where * 0, np.array([[charge]]), sensitivity, where).ravel()
    if scale < 1e17:
        assert stats.kstest(np.abs(noise) / scale, "expon").pvalue > ALARM
        assert stats.kstest(1.15 * np.abs(noise) / scale, "expon").pvalue < ALARM
    assert stats.binomtest(int((noise > 0).sum()), noise.size).pvalue > ALARM


def test_seeded_draws_are_independent() -> None:
    """Between runs, slots, reads, servers and regions: any correlation would make intervals too narrow."""
    servers, regions = 40, 50
    noise = SeededNoise([np.random.SeedSequence(2, spawn_key=(run,)) for run in range(2)], servers, regions)
    zeros, where = np.zeros((2 * servers, regions), dtype=np.int64), np.ones((2 * servers, regions), dtype=np.bool_)
    charge = np.array([[NANO // 10]])
    values = np.stack(
        [[noise.noisy(slot, zeros, charge, 1, where, read=read) for slot in range(20)] for read in range(2)]
    ).reshape(2, 20, 2, servers, regions)
    for axis in range(values.ndim):
        for shift in (1, -1):
            other = np.roll(values, shift, axis=axis)
            r = np.corrcoef(values.ravel(), other.ravel())[0, 1]
            assert abs(r) < SIGMAS / np.sqrt(values.size / 2), axis
            sizes = np.corrcoef(np.abs(values).ravel(), np.abs(other).ravel())[0, 1]
            assert abs(sizes) < SIGMAS / np.sqrt(values.size / 2), axis


@samplers
def test_secure_draws_are_independent(kind: str) -> None:
    """Neighbouring values of one call, and far ones, share nothing: neither their values nor their sizes."""
    sample = drawn(kind, 6.25)
    half = len(sample) // 2
    for one, other in ((sample[:-1], sample[1:]), (sample[:half], sample[half:])):
        assert abs(np.corrcoef(one, other)[0, 1]) < SIGMAS / np.sqrt(len(one))
        assert abs(np.corrcoef(np.abs(one), np.abs(other))[0, 1]) < SIGMAS / np.sqrt(len(one))


@samplers
def test_secure_sensitivity_widens_the_noise(kind: str) -> None:
    """A charge of ε with sensitivity 5 has the scale 5/ε, column by column."""
    where = np.ones((4000, 2), dtype=np.bool_)
    charge, sensitivity = np.array([[NANO, NANO * 2]]), np.array([[5, 2]])
    noise = SAMPLERS[kind]().noisy(0, np.zeros((4000, 2), dtype=np.int64), charge, sensitivity, where)
    assert fit(noise[:, 0], 5.0) > ALARM
    assert fit(noise[:, 1], 1.0) > ALARM
