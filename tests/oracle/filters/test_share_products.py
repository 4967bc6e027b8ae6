"""Products of shares and crowd, by all widths: against normal distributions that are written out here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.arrays import Floats
from dpcrowd.filters import share_widths
from dpcrowd.filters.share_beginning import start_filter
from dpcrowd.filters.share_learning import expected_records
from dpcrowd.filters.share_state import PreparedSlot, ProductMoments, ShareCovariance, ShareFilter, SlotRecords
from dpcrowd.filters.share_widths import product_moments, weigh_widths

SERVERS, WIDTH, CROWD = 5, 0.1, 300.0
ERRORS = slice(1, SERVERS + 1)
WIDTHS = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 15.0)


def some_filter(seed: int, scale: float) -> tuple[ShareFilter, Floats, list[tuple[Floats, Floats]]]:
    """A settled filter of one region after measurements, public shares, and the same for each width.

    scale  how wrong shares seem to be
    """
    rng = np.random.default_rng(seed)
    public = rng.dirichlet(np.full(SERVERS, 4.0))
    rows = rng.normal(0.0, 1.0, (4, SERVERS + 1)) * np.array([2e-3, *np.ones(SERVERS)])
    mean = np.array([CROWD, *np.zeros(SERVERS)])
    values = rows @ mean + scale * rng.normal(0.0, 0.05, 4)
    spread = public * np.square(public).sum()
    posteriors = []
    for factor in WIDTHS:
        prior = np.zeros((SERVERS + 1, SERVERS + 1))
        var = (factor * WIDTH) ** 2 * spread
        prior[0, 0], prior[1:, 1:] = 2500.0, np.diag(var) - np.outer(var, var) / var.sum()
        gain = prior @ rows.T @ np.linalg.inv(rows @ prior @ rows.T + np.eye(4) * 1e-4)
        posteriors.append((mean + gain @ (values - rows @ mean), prior - gain @ rows @ prior))
    known = start_filter(public[:, None], WIDTH)
    state, cov = known.mean.copy(), known.spread.cov.copy()
    state[0, : SERVERS + 1], cov[0, : SERVERS + 1, : SERVERS + 1] = posteriors[-1]
    cov = 0.5 * (cov + cov.swapaxes(1, 2))
    everybody, yes = np.full(SERVERS, 2), np.ones(1, dtype=np.bool_)
    return (
        replace(known, mean=state, spread=ShareCovariance(cov), begun=True, heard=everybody, settled=yes),
        public,
        posteriors,
    )


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_moments_are_those_of_a_mixture(scale: float) -> None:
    """Those of one width alone would make records count too little where shares are right, or too much if not."""
    known, public, posteriors = some_filter(1, scale)
    weight = weigh_widths(known, public[None], WIDTH).weight
    found = product_moments(known, public[:, None], WIDTH)
    assert found is not None
    assert found.widest == pytest.approx(weight[5:].sum(), rel=1e-9)
    rng = np.random.default_rng(2)
    numbers = rng.multinomial(400_000, weight[:5] / weight[:5].sum())
    draws = np.concatenate(
        [rng.multivariate_normal(*posteriors[one], count, method="eigh") for one, count in enumerate(numbers)]
    )
    cov = np.cov(draws.T)
    assert found.share_var[0] == pytest.approx(np.diag(cov)[1:], rel=0.03)
    assert found.common[0] == pytest.approx(cov[0, 1:], abs=0.02 * np.sqrt(cov[0, 0] * np.diag(cov)[1:].max()))


def test_only_large_widths_are_those_of_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no probability left for the others, there would be a division by 0."""
    known, public, _ = some_filter(1, 1.0)
    monkeypatch.setattr(share_widths, "_WIDTHS", ((1.0, 1e-30), *((factor, 1e-30) for factor in (2, 3, 4, 5)), (15, 1)))
    assert product_moments(known, public[:, None], WIDTH) is None
    silent = replace(known, heard=np.array([2, 2, 2, 2, 0]))
    monkeypatch.undo()
    assert product_moments(silent, public[:, None], WIDTH) is None


@pytest.mark.parametrize("widest", [0.0, 0.3, 1.0])
def test_a_record_is_compared_with_the_products_of_a_mixture(widest: float) -> None:
    """Mean and variance of share times crowd, for a filter and for the moments beside it, by drawing both."""
    known, public, posteriors = some_filter(3, 1.0)
    mean, cov = posteriors[-1]
    deviation = np.array([40.0, *0.2 * public])
    together = 0.4 * np.eye(SERVERS + 1) + 0.6  # shares and crowd are uncertain together
    other_mean, other_cov = posteriors[2][0], np.outer(deviation, deviation) * together
    origins = np.array([1, 3])
    records = SlotRecords(origins, np.zeros((2, 1)), np.full(2, 40.0))
    point, crowd = public + other_mean[1:], other_mean[:1]
    moments = ProductMoments(widest, np.diag(other_cov)[None, 1:], other_cov[None, 0, 1:])
    slot = PreparedSlot(known, point[None], crowd, other_cov[:1, 0], moments)
    expected = expected_records(slot, public[:, None], records)
    rng = np.random.default_rng(4)
    draws, others = (
        rng.multivariate_normal(*one, 400_000, method="eigh") for one in ((mean, cov), (other_mean, other_cov))
    )
    for number, origin in enumerate(origins):
        product = (public[origin] + draws[:, 1 + origin]) * draws[:, 0]
        # what the linear part leaves out, of a normal distribution around the point
        rest = (draws[:, 1 + origin] + public[origin] - point[origin]) * (draws[:, 0] - crowd)
        beside = (others[:, 1 + origin] - other_mean[1 + origin]) * (others[:, 0] - crowd)
        line = point[origin] * mean[0] + crowd[0] * (public[origin] + mean[1 + origin] - point[origin])
        value = widest * product.mean() + (1.0 - widest) * (line + beside.mean())
        noise = widest * rest.var() + (1.0 - widest) * beside.var()
        assert -expected.innovation[0, number] == pytest.approx(value, abs=5.0 * product.std() / np.sqrt(400_000))
        usual = expected.cov[0, number, number] + 40.0 + noise
        doubted = max(expected.innovation[0, number] ** 2 / (36.0 * usual), 1.0)
        assert expected.noise[0, number] == pytest.approx(40.0 + noise + usual * (doubted - 1.0), rel=0.03)
