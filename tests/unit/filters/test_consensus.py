"""The consensus step: its default, its bound, and what happens beyond it, shown with the filter itself."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel, check_gain, default_gain, fuse, observation_info, predict
from dpcrowd.network.hearing import one_hop_hearing
from dpcrowd.network.topologies import build
from dpcrowd.schemes.messages import InfoMessages


def largest_estimate(topology: str, servers: int, beta: float, slots: int) -> float:
    """The largest |estimate| after `slots` slots in which everybody samples a truth of 0 with unit noise."""
    rng = np.random.default_rng(0)
    hearing = one_hop_hearing(build(topology, servers, rng), beta)
    model = ProcessModel.of(1.0, [1e5])
    ones = np.ones((servers, 1))
    mean, var = 0 * ones, np.inf * ones
    for _ in range(slots):
        prior, prior_var = predict(mean, var, model)
        info = observation_info(rng.normal(size=(servers, 1)), ones, ones, ones > 0)
        messages = InfoMessages(np.ones(servers, dtype=bool), *info, prior, np.isfinite(prior_var))
        mean, var = fuse(prior, prior_var, *messages.split(hearing.sums(messages.table())), hearing.gain)
    return float(abs(mean).max())


def test_on_a_ring_a_third_diverges_and_the_default_does_not() -> None:
    """The reason for the bound: with beta = 1/3 neighbours overshoot each other, further in every slot."""
    assert largest_estimate("ring", 6, 1 / 3, 400) > 1e15
    assert largest_estimate("ring", 6, default_gain(2), 400) < 5
    assert largest_estimate("ring", 6, check_gain(0.25, 2), 400) < 100


@pytest.mark.parametrize("topology", ["complete", "grid"])
def test_default_is_stable_on_denser_graphs(topology: str) -> None:
    """The default shrinks with the largest degree, or a denser graph would diverge."""
    servers = 16
    degree = build(topology, servers, np.random.default_rng(0)).max_degree
    assert largest_estimate(topology, servers, default_gain(degree), 300) < 5


@pytest.mark.parametrize("degree", [1, 2, 3, 7, 10, 49, 999, 10**6])
def test_bound_is_one_half_over_the_largest_degree(degree: int) -> None:
    """Exactly the bound passes, the next step above is refused with numbers that can be used."""
    assert check_gain(0.5 / degree, degree) == 0.5 / degree
    with pytest.raises(BadInput) as refused:
        check_gain(0.501 / degree, degree)
    said = str(refused.value)
    assert f"up to {degree} neighbours" in said
    assert "\n" not in said
    shown = re.search(rf"at most 1/\(2\*{degree}\) = (\S+);", said)
    assert shown is not None
    typed = float(shown[1])  # what a reader would type in must be accepted, and be the bound to six digits
    assert check_gain(typed, degree) == pytest.approx(0.5 / degree, rel=1e-5)


def test_ring_gain_of_the_example_is_refused() -> None:
    """beta = 1/3 on a ring is the example of the documentation."""
    with pytest.raises(
        BadInput, match=r"beta = 0\.333333 can diverge.*= 0\.25; leave it out for the default 0\.166667"
    ):
        check_gain(1 / 3, 2)


@pytest.mark.parametrize("beta", [-0.1, np.nan, np.inf, -np.inf])
def test_what_is_no_step_is_refused(beta: float) -> None:
    """A negative step drives servers apart; NaN compares false with every bound."""
    with pytest.raises(BadInput, match="finite number >= 0"):
        check_gain(beta, 2)


def test_default_keeps_the_bound_for_every_degree() -> None:
    """Default 1/(2 (1 + degree)), zero degree included: a server alone needs no bound."""
    for degree in range(200):
        assert check_gain(default_gain(degree), degree) == 0.5 / (1 + degree)
    assert check_gain(5.0, 0) == 5.0
    assert check_gain(0.0, 50) == 0.0


def test_a_growing_process_needs_a_smaller_step() -> None:
    """With A = 1.05 on a ring, beta = 1/4 reaches 1e8 in 400 slots: what the consensus overshoots grows each slot."""
    growth = ProcessModel.of(1.05, [1.0]).growth
    assert growth == 1.05
    assert ProcessModel.of(0.5, [1.0]).growth == 1.0
    with pytest.raises(BadInput, match=r"1/\(2\*2\*1\.05\)"):
        check_gain(0.25, 2, growth)
    assert check_gain(0.238, 2, growth) == 0.238
    assert default_gain(2, growth) == pytest.approx(1 / (6 * 1.05))


@pytest.mark.parametrize("beta", ["x", None, float("nan"), -0.1])
def test_a_step_that_is_no_number_is_refused_in_one_line(beta: object) -> None:
    """Python would answer with a TypeError about comparing texts with floats."""
    with pytest.raises(BadInput, match="beta must be a finite number"):
        check_gain(beta, 2)  # type: ignore[arg-type]
