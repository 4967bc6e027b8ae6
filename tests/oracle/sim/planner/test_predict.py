"""A plan against textbooks: the steady state of a scalar Kalman filter, and of one that misjudges its process."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.prediction import PublicFacts, predicted_deviation
from dpcrowd.sim.planner.moving import change_covariances, with_moving
from dpcrowd.sim.planner.predict import predict
from dpcrowd.sim.planner.request import PlanRequest, read_levels

Q, WINDOW, EPSILON, SHARE = 900.0, 12, 2.0, 0.4


def laplace_var(scale: float) -> float:
    """Return the variance of discrete Laplace noise P(k) ~ exp(-|k|/scale)."""
    p = math.exp(-1.0 / scale)
    return 2.0 * p / (1.0 - p) ** 2


def steady_deviation(measurement_var: float, interval: int) -> float:
    """Return the mean standard deviation if every `interval`-th slot is measured: P = (P + iQ) R/(P + iQ + R)."""
    q = interval * Q
    after = (-q + math.sqrt(q * q + 4.0 * q * measurement_var)) / 2.0
    return float(np.mean([math.sqrt(after + age * Q) for age in range(interval)]))


@pytest.mark.parametrize("interval", [1, 3, 12])
def test_one_server_and_one_region_have_the_riccati_equations_steady_state(interval: int) -> None:
    """Everything that a plan says follows from this number."""
    samples = WINDOW // interval
    facts = PublicFacts(
        guarantee=Guarantee.window(WINDOW, EPSILON),
        model=ProcessModel.of(1.0, [Q]),
        shares=np.array([SHARE]),
        delays=np.array([[0]]),
        phases=lambda _samples: np.array([0]),
        level=np.array([5000.0]),
    )
    measurement = (SHARE**2 * Q + laplace_var(samples / EPSILON)) / SHARE**2
    predicted = predicted_deviation(facts, [samples])[0, 0]
    assert predicted == pytest.approx(steady_deviation(measurement, interval), rel=1e-3)


def test_a_plan_of_two_servers_is_one_filter_with_half_the_measurement_variance() -> None:
    """Shares, graph, guarantee and levels have to reach the recursion."""
    levels = read_levels(5000, Q)
    request = PlanRequest(
        levels=levels, epsilon=EPSILON, window=WINDOW, servers=2, graph="complete", shares=(SHARE, SHARE)
    )
    prediction = predict(request, "all", WINDOW)
    measurement = (SHARE**2 * Q + laplace_var(WINDOW / EPSILON)) / SHARE**2 / 2
    deviation = steady_deviation(measurement, 1)
    assert prediction.deviation[0] == pytest.approx(deviation, rel=1e-3)
    assert prediction.errors[0] == pytest.approx(math.sqrt(2 / math.pi) * deviation / 5000, rel=1e-3)
    assert prediction.half_width[0] == pytest.approx(1.96 * deviation, rel=1e-3)


@pytest.mark.slow
def test_people_who_move_add_what_a_long_simulation_shows() -> None:
    """The diagonal form lags behind a region into which people flow; a plan without that would be too good."""
    transition = np.array([[0.95, 0.15], [0.05, 0.85]])
    model = ProcessModel.of(transition, [100.0, 1.0])
    covariances = change_covariances(model)
    assert covariances is not None
    process_var = model.diagonal_var
    gain = 0.3
    deviation = np.sqrt(process_var * (1 - gain) / gain)  # P of a filter whose gain q/(P + q) this is
    rng = np.random.default_rng(5)
    state, error, total, slots = np.zeros(2), np.zeros(2), np.zeros(2), 100_000
    for step in rng.standard_normal((slots, 2)) * np.sqrt(model.noise_var):
        following = transition @ state + step
        error = (1 - gain) * (error + following - state)
        state = following
        total += np.square(error)
    noise = np.square(deviation) - (1 - gain) ** 2 * process_var / (1 - (1 - gain) ** 2)
    expected = np.sqrt(total / slots + noise)
    np.testing.assert_allclose(with_moving(deviation, process_var, covariances), expected, rtol=0.03)
    assert (expected / deviation).max() > 1.15, "the example has to matter"


def test_regions_between_which_nobody_moves_need_no_correction() -> None:
    """A = 1 means independent changes."""
    assert change_covariances(ProcessModel.of(1.0, [4.0, 9.0])) is None
