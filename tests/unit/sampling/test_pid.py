"""Single steps of the PID controllers, with numbers that can be checked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpcrowd.sampling import pid

ONE = np.array([0])


def test_controllers_sample_in_the_first_slot() -> None:
    """Interval 1, due at once, nothing measured."""
    state = pid.start(2, 3, 5)
    assert state.interval.tolist() == [[1.0] * 3] * 2
    assert state.next_slot.tolist() == [[0] * 3] * 2
    assert state.errors.shape == (2, 3, 5)
    assert not state.measured.any()


def test_relative_error_is_of_the_posterior() -> None:
    """|posterior - prior|/max(posterior, delta): small and negative posteriors are held at the floor."""
    error = pid.relative_error(np.array([80.0, 0.2, 3.0]), np.array([100.0, 0.1, -2.0]), 1.0)
    np.testing.assert_allclose(error, [0.2, 0.1, 5.0])


@pytest.mark.parametrize(("interval", "wait"), [(1.0, 1), (1.49, 1), (1.5, 2), (2.5, 3), (3.5, 4), (4.4999, 4)])
def test_next_sample_is_after_the_interval_rounded_half_up(interval: float, wait: int) -> None:
    """Rounding half to even would turn 2.5 into 2."""
    state = pid.start(1, 1, 1)
    pid.schedule(state, 10, ONE, np.array([interval]))
    assert state.next_slot[0, 0] == 10 + wait
    assert state.interval[0, 0] == interval  # kept as a real number


def test_integral_is_the_mean_of_the_errors_there_are() -> None:
    """Before T_i errors there are fewer to average; after that the oldest drops out."""
    state = pid.start(1, 1, 3)
    seen = [
        float(pid.observe(state, slot, ONE, np.array([error]), (0.0, 1.0, 0.0))[0])
        for slot, error in enumerate([6.0, 2.0, 1.0, 9.0, 5.0])
    ]
    assert seen == pytest.approx([6.0, 4.0, 3.0, 4.0, 5.0])


@pytest.mark.parametrize("window", [1, 2, 5])
def test_derivative_is_the_change_over_the_slots_between(window: int) -> None:
    """The error before is needed even if the integral forgets it at once (T_i = 1)."""
    state = pid.start(1, 1, window)
    seen = [
        float(pid.observe(state, slot, ONE, np.array([error]), (0.0, 0.0, 1.0))[0])
        for slot, error in [(0, 4.0), (2, 10.0), (7, 5.0), (8, 5.5)]
    ]
    assert seen == pytest.approx([0.0, 3.0, -1.0, 0.5])


def test_fast_widens_below_xi_and_narrows_above() -> None:
    """At Delta = xi nothing changes; at 0 the step is theta (1 - 1/e); it never goes below 1."""
    wider = pid.fast_interval(np.full(4, 5.0), np.array([0.1, 0.0, 0.2, 9.0]), 2.0, 0.1)
    np.testing.assert_allclose(wider, [5.0, 5.0 + 2 * (1 - math.exp(-1)), 5.0 + 2 * (1 - math.e), 1.0])


def test_huge_errors_do_not_overflow() -> None:
    """exp() of a large error is infinite, with a warning: the exponent is clipped, and the interval is 1."""
    assert pid.fast_interval(np.array([1e6]), np.array([1e12]), 2.5, 1e-3).tolist() == [1.0]
    assert pid.rescue_interval(np.array([1e6]), np.array([1e300]), 1.0, np.array([1.0])).tolist() == [1.0]


def test_rescue_compares_with_the_noise_that_the_budget_left_allows() -> None:
    """lambda_r = 1/epsilon_remaining: at Delta = lambda_r nothing changes; without budget the interval widens."""
    wider = pid.rescue_interval(np.full(4, 5.0), np.array([4.0, 2.0, 6.0, 6.0]), 2.0, np.array([0.25, 0.25, 0.25, 0.0]))
    np.testing.assert_allclose(wider, [5.0, 6.5, 2.5, 7.0])
