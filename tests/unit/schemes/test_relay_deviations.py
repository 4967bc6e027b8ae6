"""Relay's filter where users stay: what it hands on to filters that learn."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.relay_deviations import equivalent_sums
from relay_support import Network


def test_one_measurement_leads_from_the_prior_to_the_posterior() -> None:
    """Filters that learn are given this measurement in place of records whose errors have something in common."""
    mean, var = np.array([[100.0, 7.0]]), np.array([[50.0, np.inf]])
    after, after_var = np.array([[110.0, 9.0]]), np.array([[20.0, 4.0]])
    y, info = equivalent_sums((mean, var), (after, after_var))
    precision = np.where(np.isfinite(var), 1.0 / var, 0.0)
    assert 1.0 / (precision + info) == pytest.approx(after_var)
    assert (precision * mean + y) / (precision + info) == pytest.approx(after)


def test_a_server_that_sees_everybody_knows_finite_numbers() -> None:
    """With a share of 1 and hardly any noise a record is exact: its information was infinite, and estimates NaN."""
    network = Network(
        np.array([1.0]),
        ProcessModel.of(1.0, [100.0, 50.0]),
        Guarantee.window(4, epsilon=400.0),
        samples=4,
        phases=np.zeros(1, dtype=np.int64),
        observation="binomial",
        turnover=0.5,
        learn=True,
    )
    server = network.server(0)
    for slot in range(6):
        server.observe(slot, [300 + slot, 80])
        release = server.hear()
        assert np.isfinite(release.estimate).all()
        assert release.estimate == pytest.approx([300 + slot, 80], abs=30.0)
