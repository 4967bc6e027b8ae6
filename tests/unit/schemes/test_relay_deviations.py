"""Relay's filter where users stay: what it hands on to filters that learn."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.schemes.relay_deviations import equivalent_sums


def test_one_measurement_leads_from_the_prior_to_the_posterior() -> None:
    """Filters that learn are given this measurement in place of records whose errors have something in common."""
    mean, var = np.array([[100.0, 7.0]]), np.array([[50.0, np.inf]])
    after, after_var = np.array([[110.0, 9.0]]), np.array([[20.0, 4.0]])
    y, info = equivalent_sums((mean, var), (after, after_var))
    precision = np.where(np.isfinite(var), 1.0 / var, 0.0)
    assert 1.0 / (precision + info) == pytest.approx(after_var)
    assert (precision * mean + y) / (precision + info) == pytest.approx(after)


def test_no_information_is_infinite() -> None:
    """One server with a share of 1 and hardly any noise knows the count exactly; its estimates were NaN."""
    y, info = equivalent_sums((np.array([[0.0]]), np.array([[np.inf]])), (np.array([[300.0]]), np.array([[0.0]])))
    assert np.isfinite(info).all()
    assert y / info == pytest.approx(np.array([[300.0]]))
