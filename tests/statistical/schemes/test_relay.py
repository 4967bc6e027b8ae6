"""Relay's variances say how wrong it is, smoothing pays, and a tenth of broken servers does little harm.

Fixed seeds. The bounds are those that relay promises; the figures that were measured stand beside them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.engine import run_batch
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.result import SimulationResult
from dpcrowd.sim.simulate import simulate
from dpcrowd.sim.smoothed import Smoothed
from relay_faults import FAULTS, Broken

CASES: dict[str, dict[str, Any]] = {
    "linear": {"data": "linear", "servers": 20, "density": 0.2, "slots": 500},
    "multi-linear": {
        **{"data": "multi-linear", "form": "matrix", "servers": 12, "density": 0.3, "slots": 240, "window": 50},
    },
}
SAMPLES = {"linear": 100, "multi-linear": 10}
REACHES: dict[str, dict[str, Any]] = {"K=3": {"hops_per_slot": 3}, "K=1": {}, "reach 1": {"reach": 1}}


@cache
def honest(case: str) -> SimulationResult:
    schemes = {label: Relay(samples=SAMPLES[case], **options) for label, options in REACHES.items()}
    return simulate(schemes, runs=12, epsilon=1.0, jobs=1, smoothed=True, **CASES[case])


def nees(record: RunRecords | Smoothed) -> float:
    """Mean squared error over what the variances say it is: 1 if they are right."""
    return float(record.mse.mean() / record.claimed_mse.mean())


@pytest.mark.parametrize("label", REACHES)
@pytest.mark.parametrize("case", CASES)
def test_variances_are_those_of_the_errors(case: str, label: str) -> None:
    """A record counted twice makes intervals too narrow, one forgotten too wide: NEES is 1 only if none is."""
    record = honest(case)[label]
    assert 0.95 < nees(record) < 1.05
    assert 0.93 < record.coverage95.mean() < 0.97


def test_intervals_know_a_crowd_that_has_become_larger() -> None:
    """The binomial variance of a record is that of the crowd of its slot.

    With that of the crowd L slots earlier, 95% intervals covered 0.64 to 0.88 in the L slots after a crowd had tripled.
    """
    rng = np.random.default_rng(1)
    crowd = 2e6 * np.exp(rng.normal(0.0, 0.03, (160, 5)))
    crowd[110:] *= 3.0
    data = counts_from_array(np.round(crowd).astype(np.int64)[:128], process_var=7e9)
    result = simulate(
        "relay", data, servers=20, shares="uniform", hops_per_slot="all", window=40, epsilon=1.0, runs=6, jobs=1,
        turnover=1.0, burn_in=112,
    )  # fmt: skip
    assert 0.93 < result["relay"].coverage95.mean() < 0.98


@pytest.mark.parametrize("label", REACHES)
@pytest.mark.parametrize("case", CASES)
def test_smoothing_lowers_the_error_and_keeps_coverage(case: str, label: str) -> None:
    """What came later says something of the past: a smoother that ignored it, or believed it too much, would show."""
    result = honest(case)
    record, smoothed = result[label], result.smoothed[label]
    assert (smoothed.are < record.are).mean() > 0.9
    assert smoothed.are.mean() < 0.95 * record.are.mean()
    assert smoothed.mse.mean() < 0.9 * record.mse.mean()
    assert 0.95 < nees(smoothed) < 1.05
    assert 0.93 < smoothed.coverage95.mean() < 0.97


def test_smoothing_gives_servers_that_heard_late_what_others_heard_at_once() -> None:
    """With reach all, records arrive a few slots late: looking back, everybody has had everything."""
    smoothed = honest("linear").smoothed
    assert smoothed["K=1"].are.mean() == pytest.approx(smoothed["K=3"].are.mean(), rel=0.01)


# --------------------------------------------------------------------------------------------------------- guard

SETTINGS: dict[str, tuple[int, dict[str, Any]]] = {
    "linear": (40, {"data": "linear", "runs": 10, "servers": 30, "density": 0.15, "slots": 200}),
    "multi-linear": (
        10,
        {"data": "multi-linear", "runs": 4, "servers": 30, "density": 0.15, "slots": 150, "window": 50},
    ),
    "flu": (100, {"data": "flu", "runs": 4, "servers": 30, "density": 0.15, "slots": 200}),
    "multi-flu": (5, {"data": "multi-flu", "runs": 2, "servers": 20, "density": 0.2, "slots": 150, "window": 50}),
}
WITH_DATA = [pytest.param(name, marks=pytest.mark.data) if "flu" in name else name for name in SETTINGS]


def run_faults(schemes: dict[str, Any], **setting: Any) -> dict[str, RunRecords]:
    """All runs in one batch. `simulate` would put schemes that are not dpcrowd's own through `check_scheme` first."""
    config = configure(schemes, epsilon=1.0, **setting)
    return {record.label: record for record in run_batch(config, range(config.runs))}


@cache
def broken(name: str) -> tuple[dict[str, RunRecords], dict[str, Broken]]:
    samples, setting = SETTINGS[name]
    faults = {
        f"{fault} from {since}": Broken(fault, since, samples=samples, hops_per_slot=3)
        for fault in FAULTS
        for since in (0, 100)
    }
    schemes = {
        "guarded": Relay(samples=samples, hops_per_slot=3),
        "unguarded": Relay(samples=samples, hops_per_slot=3, guard=False),
        **faults,
    }
    return run_faults(schemes, **setting), faults


@pytest.mark.parametrize("name", WITH_DATA)
def test_broken_servers_do_little_harm(name: str) -> None:
    """A tenth of the servers sends values 100 times too large, flipped or stuck: without a guard nothing is left."""
    result, faults = broken(name)
    honest_error = result["guarded"].are.mean()
    for label in faults:
        assert result[label].are.mean() < 1.5 * honest_error, label


@pytest.mark.parametrize("name", WITH_DATA)
def test_the_guard_costs_next_to_nothing(name: str) -> None:
    """A guard that mistook a move of the crowd, or a tail of the noise, for a fault would cost accuracy every day."""
    result, _ = broken(name)
    assert result["guarded"].are.mean() < 1.03 * result["unguarded"].are.mean()


def test_broken_servers_are_named() -> None:
    """Whoever runs the network has to know whom to ask: broken servers are suspected nearly everywhere, others not."""
    _, faults = broken("linear")
    for label, scheme in faults.items():
        state = scheme.state
        assert state is not None
        runs, servers = scheme.broken.shape
        suspected = scheme.suspects(state).reshape(runs, servers, servers)
        by_origin = suspected.mean(axis=1)
        # Who is stuck at a value that is nearly right is hard to tell from who is honest.
        assert by_origin[scheme.broken].mean() > (0.7 if "stuck" in label else 0.99), label
        assert by_origin[~scheme.broken].mean() < 0.01, label


def test_without_a_guard_nobody_is_suspected() -> None:
    """A scheme that keeps no scores must say so, not fail."""
    scheme = Broken("large", 0, samples=20, guard=False)
    run_faults({"relay": scheme}, data="linear", runs=1, servers=10, density=0.4, slots=30, burn_in=5)
    assert scheme.state is not None
    assert not scheme.suspects(scheme.state).any()
    assert np.shape(scheme.suspects(scheme.state)) == (10, 10)
