"""The expected error on a series: against simulations, and against the cases that a formula gives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.prediction import PublicFacts
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.planner.predict import predict
from dpcrowd.sim.planner.replay import (
    ErrorState,
    Series,
    _advance,
    _arriving_records,
    _complete_states,
    _Crowd,
    _cut_at_zero,
    errors_on_run,
)
from dpcrowd.sim.planner.request import PlanRequest, read_levels

WAVE = 400.0 + 350.0 * np.sin(np.arange(160) / 9.0)
RISE = 50.0 + 40.0 * np.clip(np.arange(160.0) - 60.0, 0.0, 40.0)
STEP = np.where(np.arange(160) < 80, 50.0, 3000.0)


def facts_of_one(epsilon: float, process_var: float = 25.0, **more: Any) -> PublicFacts:
    """Return the facts of one server that sees everybody and samples in every slot."""
    settings: dict[str, Any] = {
        "guarantee": Guarantee.window(1, epsilon),
        "model": ProcessModel.of(1.0, [process_var]),
        "shares": np.ones(1),
        "delays": np.zeros((1, 1), dtype=np.int64),
        "phases": lambda _samples: np.zeros(1, dtype=np.int64),
        "observation": "binomial",
    }
    return PublicFacts(**{**settings, **more})


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"samples": 20},
        {"samples": 6, "reach": 2},
        {"samples": 40, "shares": "partition"},
        {"samples": 10, "hops_per_slot": 3},
    ],
    ids=str,
)
def test_the_error_is_that_of_a_simulation(settings: dict[str, Any]) -> None:
    """Series with calm and lively times, late records, a few samples and counts near 0: what one Q cannot describe."""
    counts = np.rint(np.stack([WAVE, RISE], axis=1)).astype(np.int64)
    data = counts_from_array(counts)
    network = {"servers": 12, "density": 0.3, "horizon": 160, "observation": "paper"}
    network["shares"] = settings.get("shares", "uniform")
    relay = {name: value for name, value in settings.items() if name != "shares"}
    request = PlanRequest(levels=read_levels(data=data), hops_per_slot=relay.get("hops_per_slot", 1), **network)
    prediction = predict(request, relay.get("reach", "all"), relay["samples"])
    record = dpcrowd.simulate({"relay": dpcrowd.Relay(**relay)}, data, runs=24, jobs=1, **network)["relay"]
    assert prediction.on_series is not None
    assert prediction.error == pytest.approx(record.are.mean(), rel=0.1)
    assert np.sqrt(prediction.on_series.mean_square.mean()) == pytest.approx(np.sqrt(record.mse.mean()), rel=0.1)


def test_a_calm_series_has_a_smaller_error_than_its_variance_says() -> None:
    """One jump makes Q large, and sd/level too large for all the slots in which nothing happens."""
    data = counts_from_array(np.rint(STEP[:, None]).astype(np.int64))
    request = PlanRequest(levels=read_levels(data=data), servers=6, density=0.6, horizon=160)
    level = read_levels(1525.0, request.levels.process_var[0])
    on_series, steady = (
        predict(request, "all", 40),
        predict(PlanRequest(levels=level, servers=6, horizon=160), "all", 40),
    )
    assert on_series.absolute_errors[0] < 0.8 * steady.absolute_errors[0]


def test_without_changes_and_with_a_huge_process_variance_an_estimate_is_its_last_record() -> None:
    """The mean absolute value of Laplace noise of scale b is b, not 0.8 standard deviations, which is 1.13 b."""
    levels = np.full((60, 1), 500.0)
    relative, absolute, square = errors_on_run(facts_of_one(0.1, process_var=1e12), 1, levels)[:, 0]
    assert square == pytest.approx(2.0 / 0.1**2, rel=0.01)
    assert absolute == pytest.approx(1.0 / 0.1, rel=0.02)
    assert relative == pytest.approx(absolute / 500.0)


def test_a_ramp_is_followed_with_a_lag() -> None:
    """A filter that expects no change is late by a step times (1 - g)/g; noise plays no part at a huge epsilon."""
    levels = 1000.0 + 100.0 * np.arange(200.0)[:, None]
    facts = facts_of_one(1e6, process_var=100.0, shares=np.full(1, 0.5))
    spread = 0.5 * 0.5 * facts.expected[0] / 0.25  # the binomial variance of a count, divided by H^2
    prior = (100.0 + math.sqrt(100.0**2 + 4 * 100.0 * spread)) / 2
    gain = prior / (prior + spread)
    late = 100.0 * (1 - gain) / gain
    absolute = errors_on_run(facts, 1, levels)[1, 0]
    assert absolute == pytest.approx(late, rel=0.05)


def test_counts_are_cut_at_zero_as_the_simulator_cuts_them() -> None:
    """Where few people are, counts of the paper's model are too high on average, and so is every estimate."""
    draws = np.maximum(0.0, np.random.default_rng(0).normal(3.0, 10.0, 400_000))
    offset, variance = _cut_at_zero(np.array(3.0), np.array(10.0))
    assert offset == pytest.approx(draws.mean() - 3.0, rel=0.01)
    assert variance == pytest.approx(draws.var(), rel=0.01)


def test_servers_that_know_nothing_do_not_count() -> None:
    """A region without an estimate has no error, and must not make the mean smaller."""
    facts = facts_of_one(0.1, process_var=1e12, guarantee=Guarantee.window(40, 0.1))
    relative = errors_on_run(facts, 1, np.full((80, 1), 500.0))[0, 0]
    late = errors_on_run(
        PublicFacts(**{**vars_of(facts), "phases": lambda _samples: np.array([39])}), 1, np.full((80, 1), 500.0)
    )[0, 0]
    assert late == pytest.approx(relative, rel=0.5)


def vars_of(facts: PublicFacts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in PublicFacts.__dataclass_fields__}


def test_merged_regions_and_longer_slots_have_sums() -> None:
    """What would help is confirmed on the same series, not on a random walk that looks like it."""
    series = Series(np.arange(24.0).reshape(1, 8, 3))
    assert series.merged([1], [0, 2]).levels[0, 0].tolist() == [1.0, 2.0]
    longer = series.in_longer_slots(4.0)
    assert longer is not None
    assert longer.levels[0, :, 0].tolist() == [0.0 + 3.0 + 6.0 + 9.0, 12.0 + 15.0 + 18.0 + 21.0]
    assert series.in_longer_slots(1.5) is None
    assert series.in_longer_slots(8.0) is None, "one slot shows no change"
    assert series.in_longer_slots(0.5) is None


def test_all_slots_at_once_are_the_slots_one_after_another() -> None:
    """The quick way through a series must not differ from the equations of one slot, not in a single bit."""
    facts = facts_of_one(0.1, guarantee=Guarantee.window(7, 0.1), shares=np.full(1, 0.5))
    levels = np.rint(WAVE[:40, None])
    (records,), crowd = _arriving_records(facts, 3, len(levels)), _Crowd.of(facts, levels)
    complete = _complete_states(facts, records, crowd)
    state = ErrorState(*(np.zeros((1, 1)) for _ in range(4)))
    for slot in range(len(levels)):
        now = [type(arrays)(*(array[slot] for array in vars(arrays).values())) for arrays in (records, crowd)]
        state = _advance(facts, state, *now)
        for array, values in zip(vars(complete).values(), vars(state).values(), strict=True):
            assert array[slot].tobytes() == values.tobytes(), slot
