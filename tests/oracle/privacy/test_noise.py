"""Closed forms of the discrete Laplace against sums over its probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.privacy import discrete_laplace_var, noise_scale, noise_var
from dpcrowd.privacy.units import NANO

SCALES = [0.05, 0.2, 0.7, 1.0, 3.3, 50.0, 400.0]


@pytest.mark.parametrize("scale", SCALES)
def test_variance_is_that_of_the_distribution(scale: float) -> None:
    """R̂ rests on it: the continuous 2b^2 is off by 8% at b = 1 and by everything at b = 0.2."""
    x = np.arange(-int(60 * scale) - 60, int(60 * scale) + 61, dtype=np.float64)
    weight = np.exp(-np.abs(x) / scale)
    variance = (x * x * weight).sum() / weight.sum()
    assert float(discrete_laplace_var(scale)) == pytest.approx(variance, rel=1e-10)


def test_variance_tends_to_the_continuous_one() -> None:
    """For wide noise 2b^2 - 1/6: no cancellation at scales up to 1e9 (the smallest charge)."""
    for scale in (1e3, 1e6, 1e9):
        assert float(discrete_laplace_var(scale)) == pytest.approx(2 * scale**2 - 1 / 6, rel=1e-9)


def test_ends_of_the_range() -> None:
    """Nothing paid: infinite variance. A scale near 0: no variance. Neither may warn or give NaN."""
    assert noise_var(0) == np.inf
    assert discrete_laplace_var(1e-6) == 0
    assert noise_var(np.array([[0, NANO]])).tolist() == [[np.inf, pytest.approx(0.5 / np.sinh(0.5) ** 2)]]


def test_scale_is_in_epsilon_not_in_nano() -> None:
    """A scale passed where an epsilon was expected gave a peer noise of 0.00125 instead of 800."""
    assert noise_scale(NANO // 800) == 800
    assert noise_scale(NANO, 3) == 3
    assert noise_scale(np.array([[NANO], [NANO // 2]]), np.array([1, 5])).tolist() == [[1, 5], [2, 10]]
    assert noise_var(NANO // 2, 3) == discrete_laplace_var(6.0)
