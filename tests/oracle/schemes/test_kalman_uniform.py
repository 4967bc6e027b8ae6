"""KalmanUniform against filterpy's textbook Kalman filter on what Uniform releases from the same draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from filterpy.kalman import KalmanFilter

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.registry import make_scheme
from schemes_support import drawn, filter_alone, laplace_var, make_world, play


@pytest.fixture(autouse=True)
def _variances_of_the_filter_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What drift adds is beside the filter (`unit/schemes/test_drift.py`)."""
    filter_alone(monkeypatch)


NANO = 10**9
SLOTS = 90


@pytest.mark.parametrize("observation", ["paper", "binomial"])
@pytest.mark.parametrize(
    "guarantee", [Guarantee.window(7, 4.0), Guarantee.finite(SLOTS, 30.0)], ids=["window", "finite"]
)
def test_it_is_a_textbook_filter_on_uniforms_counts(guarantee: Guarantee, observation: Any) -> None:
    """A wrong price, a wrong R, or a draw of its own: the baseline would not be what a filter on uniform gains."""
    world = make_world(33, servers=3, regions=2, slots=SLOTS)
    transition, process_var = 0.98, [60.0, 9.0]
    setting = Setting(3, ProcessModel.of(transition, process_var), guarantee, observation=observation)
    releases = play(make_scheme("kalman-uniform"), setting, world)
    price = guarantee.total // guarantee.length
    for server in range(3):
        share = float(world.shares[server, 0])
        for k in range(2):
            book = KalmanFilter(dim_x=1, dim_z=1)
            book.F, book.Q, book.H = np.array([[transition]]), np.array([[process_var[k]]]), np.array([[share]])
            for slot, release in enumerate(releases):
                noisy = float(world.counts[slot, server, k]) + drawn(world, slot, price)[server][k]
                if slot:
                    book.predict()
                expected = float(book.x[0, 0]) if slot else noisy / share
                spread = share**2 * process_var[k]
                if observation == "binomial":
                    spread = share * (1 - share) * max(expected, 1.0)
                obs_var = laplace_var(price / NANO) + max(spread, 1 / 12)
                if slot:
                    book.update(noisy, R=obs_var)
                else:  # a server starts without information: its first sample is all that it knows
                    book.x, book.P = np.array([[noisy / share]]), np.array([[obs_var / share**2]])
                assert release.estimate[server, k] == pytest.approx(book.x[0, 0], rel=1e-9)
                assert release.variance[server, k] == pytest.approx(book.P[0, 0], rel=1e-9)
                assert int(release.charge[server, 0]) == price


def test_it_reads_what_uniform_reads() -> None:
    """Both are compared on the same draws; with a process that changes wildly the filter says what uniform says."""
    world = make_world(34, servers=4, regions=3, slots=40)
    setting = Setting(4, ProcessModel.of(1.0, [1e15] * 3), Guarantee.window(10, 2.0), observation="binomial")
    filtered, plain = (play(make_scheme(name), setting, world) for name in ("kalman-uniform", "uniform"))
    for one, other in zip(filtered, plain, strict=True):
        np.testing.assert_allclose(one.estimate, other.estimate, rtol=1e-6, atol=1e-3)
        np.testing.assert_array_equal(one.charge, other.charge)


def test_it_stops_paying_when_the_horizon_has_ended() -> None:
    """A server that goes on after its horizon keeps predicting, and neither fails nor overspends."""
    world = make_world(35, servers=2, regions=1, slots=20)
    setting = Setting(2, ProcessModel.of(1.0, [5.0]), Guarantee.finite(12, 1.0))
    releases = play(make_scheme("kalman-uniform"), setting, world)
    assert [bool(release.charge.any()) for release in releases] == [True] * 12 + [False] * 8
    assert sum(release.charge[0, 0] for release in releases) <= NANO
    assert releases[-1].variance[0, 0] == pytest.approx(releases[11].variance[0, 0] + 8 * 5.0)
