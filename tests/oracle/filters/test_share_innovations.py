"""Innovations of records where shares are learned, against dense Gaussians of crowd, shares and deviations by width."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dpcrowd.arrays import Floats, Ints
from dpcrowd.filters import share_widths
from dpcrowd.filters.share_beginning import start_filter
from dpcrowd.filters.share_innovations import share_innovations
from dpcrowd.filters.share_learning import expected_records
from dpcrowd.filters.share_state import PreparedSlot, ShareCovariance, ShareFilter, SlotRecords

SERVERS, REGIONS, WIDTH = 5, 2, 0.1
SIZE = 2 * SERVERS + 1
ERRORS, DEVIATIONS = slice(1, SERVERS + 1), slice(SERVERS + 1, SIZE)
WIDTHS = ((0.3, 0.2), (1.0, 0.5), (15.0, 0.3))
CROWD, NOISE = np.array([3000.0, 800.0]), 30.0
Gaussian = tuple[Floats, Floats]


def centred(var: Floats) -> Floats:
    return np.diag(var) - np.outer(var, var) / var.sum()


def rows_of(public: Floats, origins: Ints) -> Floats:
    """Return z = H r + b + delta as rows (k, n) of one region."""
    rows = np.zeros((len(origins), SIZE))
    rows[:, 0] = public[origins]
    rows[np.arange(len(origins)), 1 + origins] = rows[np.arange(len(origins)), 1 + SERVERS + origins] = 1.0
    return rows


def posterior(public: Floats, crowd: float, error_var: float, origins: Ints, values: Floats) -> tuple[Gaussian, float]:
    """Return mean and covariance of one region after records, and the log density of these."""
    mean, cov = np.zeros(SIZE), np.zeros((SIZE, SIZE))
    mean[0], cov[0, 0] = crowd, (0.3 * crowd) ** 2
    cov[ERRORS, ERRORS] = centred(error_var * public * np.square(public).sum())
    cov[DEVIATIONS, DEVIATIONS] = centred(crowd * public)
    rows = rows_of(public, origins)
    seen = rows @ cov @ rows.T + NOISE * np.eye(len(origins))
    gain = cov @ rows.T @ np.linalg.inv(seen)
    density = float(multivariate_normal.logpdf(values, rows @ mean, seen))
    return (mean + gain @ (values - rows @ mean), cov - gain @ rows @ cov), density


def some_case(wrong: float) -> tuple[ShareFilter, Floats, list[list[Gaussian]], Floats]:
    """Return a filter after records of three servers, public shares, what each width says, and their probabilities.

    wrong  how far right shares are from public ones
    """
    rng = np.random.default_rng(6)
    public = rng.dirichlet(np.full(SERVERS, 6.0), REGIONS).T
    right = public * np.exp(rng.normal(0.0, wrong, public.shape))
    origins = np.array([0, 1, 3])
    values = (right / right.sum(axis=0))[origins] * CROWD * 1.1 + rng.normal(0.0, 10.0, (3, REGIONS))
    widest = [
        posterior(public[:, k], CROWD[k], (15.0 * WIDTH * CROWD[k]) ** 2, origins, values[:, k])[0]
        for k in range(REGIONS)
    ]
    # Narrower widths are parts of the crowd as it is known after these records.
    known_crowd = [np.sqrt(mean[0] ** 2 + cov[0, 0]) for mean, cov in widest]
    by_width, evidence = [], []
    for factor, weight in WIDTHS:
        people = [(factor * WIDTH) * (CROWD[k] if factor == 15.0 else known_crowd[k]) for k in range(REGIONS)]
        each = [posterior(public[:, k], CROWD[k], people[k] ** 2, origins, values[:, k]) for k in range(REGIONS)]
        by_width.append([gaussian for gaussian, _ in each])
        evidence.append(np.log(weight) + sum(density for _, density in each))
    chance = np.exp(np.array(evidence) - max(evidence))
    known = replace(
        start_filter(public, WIDTH),
        mean=np.stack([mean for mean, _ in widest]),
        spread=ShareCovariance(np.stack([0.5 * (cov + cov.T) for _, cov in widest])),
        scale=CROWD.copy(),
        begun=True,
        heard=np.full(SERVERS, 2),
    )
    return known, public, by_width, chance / chance.sum()


@pytest.mark.parametrize("wrong", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("far", [0.0, 3000.0], ids=["near", "far off"])
def test_moments_of_a_mixture_of_dense_gaussians(monkeypatch: pytest.MonkeyPatch, wrong: float, far: float) -> None:
    """The widest width alone would call right public shares uncertain, and errors of share and crowd that are taken for
    independent would call every record uncertain; a record that is far off must not make its own variance larger."""
    monkeypatch.setattr(share_widths, "_WIDTHS", WIDTHS)
    known, public, by_width, chance = some_case(wrong)
    origins = np.array([1, 2, 3])
    noisy = public[origins] * CROWD + far
    slot = PreparedSlot(known, public.T, CROWD, known.crowd_var)
    expected = expected_records(slot, public, SlotRecords(origins, noisy, np.full(3, NOISE)))
    innovation, variance = share_innovations(known, expected, public, WIDTH)
    for k in range(REGIONS):
        rows = rows_of(public[:, k], origins)
        off = np.stack([noisy[:, k] - rows @ mean for mean, _ in (one[k] for one in by_width)])
        own = np.stack([np.diag(rows @ cov @ rows.T) for _, cov in (one[k] for one in by_width)]) + NOISE
        mean = chance @ off
        np.testing.assert_allclose(innovation[k], mean, rtol=1e-6, atol=1e-6 * CROWD[k])
        np.testing.assert_allclose(variance[k], chance @ (own + np.square(off - mean)), rtol=1e-6)
        related = own[-1] - NOISE  # of the widest width: much less than of errors that are independent
        apart = public[origins, k] ** 2 * known.cov[k, 0, 0] + np.diag(known.cov[k])[1 + origins]
        assert (related[[0, 2]] < 0.5 * apart[[0, 2]]).all()
