"""The number of samples that relay takes when nobody says: planned from public facts, once, the same for all runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.errors import BadInput
from dpcrowd.schemes import prediction
from dpcrowd.sim import planning
from dpcrowd.sim.configure import configure
from dpcrowd.sim.planning import public_facts, schedules_meet
from dpcrowd.sim.simulate import simulate
from sim_support import TINY, assert_same_records, write_checkins

COUNTS = np.random.default_rng(3).integers(200, 400, (60, 2))
SMALL: dict[str, Any] = {"servers": 8, "density": 0.4, "burn_in": 5}


def samples(*schemes: Any, data: Any = COUNTS, **more: Any) -> int | None:
    chosen = schemes or (dpcrowd.Relay(),)
    return configure(chosen, data, **{**SMALL, "process_var": [50.0, 80.0], "window": 30, **more}).entrants[0].samples


def test_counts_do_not_enter_the_plan() -> None:
    """A number of samples that depended on the protected counts would be an unpaid release."""
    assert samples() == samples(data=COUNTS[::-1] * 7)


def test_the_plan_does_not_depend_on_runs_batches_or_others() -> None:
    """Runs share a plan: else a run's result would depend on which runs are simulated beside it."""
    settings = {**TINY, "window": 10}
    alone = simulate("relay", jobs=1, **settings)["relay"]
    assert_same_records(alone, simulate("relay,dsample", jobs=1, **settings)["relay"])
    first = simulate("relay", jobs=1, **{**settings, "runs": 1})["relay"]
    np.testing.assert_array_equal(first.are_by_slot[0], alone.are_by_slot[0])


def test_the_plan_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep asks for the same plan many times; everything that it depends on makes a new one."""
    asked: list[int] = []
    real = planning.best_samples
    monkeypatch.setattr(planning, "best_samples", lambda facts: (asked.append(1), real(facts))[1])
    planning._answer.cache_clear()
    different = [
        {},
        {"epsilon": 0.5},
        {"window": 20},
        {"users": "roaming"},
        {"process_var": [50.0, 81.0]},
        {"servers": 9},
        {"density": 0.6},
        {"dynamic": False},
        {"seed": 1},
        {"shares": "partition"},
        {"observation": "paper"},
        {"form": "matrix"},
        {"tuning": {"alpha": 2.0}},
    ]
    for number, more in enumerate(different, start=1):
        assert samples(**more) == samples(**more)
        assert len(asked) == number, more
    for number, options in enumerate(({"reach": 1}, {"hops_per_slot": 2}, {"lag": 3}), start=len(different) + 1):
        samples(dpcrowd.Relay(**options))
        assert len(asked) == number, options


def test_what_is_said_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """With samples or an interval nothing is planned."""
    monkeypatch.setattr(planning, "best_samples", lambda facts: pytest.fail("a plan was made"))
    planning._answer.cache_clear()
    assert samples(dpcrowd.Relay(samples=7)) == 7
    assert samples(dpcrowd.Relay(interval=5)) == 6
    assert samples("relay", samples=4) == 4
    with pytest.raises(BadInput, match="an interval of 7 slots does not divide 30; give the number of samples instead"):
        samples(dpcrowd.Relay(interval=7))
    with pytest.raises(BadInput, match="31 samples in 30 slots; allowed: at most one per slot, so up to 30"):
        samples(dpcrowd.Relay(samples=31))


@pytest.mark.slow
def test_users_who_roam_share_one_phase() -> None:
    """The network-wide promise holds only if all servers sample in the same slots."""
    config = configure("relay", COUNTS, **SMALL, window=30, users="roaming")
    facts = public_facts(config, dpcrowd.Relay(), config.entrants[0].guarantee)  # type: ignore[arg-type]
    assert not facts.phases(5).any()
    record = simulate("relay", COUNTS, **SMALL, window=30, users="roaming", runs=2, samples=3)["relay"]
    assert all(paid.epsilons()["roaming"] <= 1.0 for paid in record.paid)
    pinned = simulate("relay", COUNTS, **SMALL, window=30, runs=2, samples=3)["relay"]
    assert all(paid.epsilons()["server"] == pytest.approx(1.0, rel=1e-6) for paid in pinned.paid)


@pytest.mark.slow
def test_a_note_says_how_many_samples_were_chosen() -> None:
    """Otherwise nobody knows what was simulated."""
    result = simulate("relay", COUNTS, **SMALL, window=30, runs=2)
    number = samples(process_var=None)
    beginning = f"relay takes {number} samples in 30 slots, and its records travel "
    assert number > 1
    (note,) = (note for note in result.notes if note.startswith(beginning))
    assert (
        ": the fewest whose predicted mean relative error is within 2% of the least, given graph, shares, Q and" in note
    )
    chosen = simulate("relay", COUNTS, **SMALL, window=30, runs=2, samples=3)
    assert not any("samples in" in note for note in chosen.notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"shares": "per-slot"},
        {"shares": [0.5] * 8},
        {"shares": "partition", "users": "roaming"},
        {"form": "matrix", "observation": "binomial"},
        {"horizon": 60, "window": None},
        {"reach": 2, "hops_per_slot": "all"},
        {"graph": "ring"},
    ],
    ids=str,
)
def test_every_setting_can_be_planned_and_run(more: dict[str, Any]) -> None:
    """A setting without a plan would stop in the middle of a sweep."""
    record = simulate("relay", COUNTS, **{**SMALL, "window": 30, "runs": 2, **more})["relay"]
    assert np.isfinite(record.are).all()
    assert all(paid.epsilons()["server"] <= 1.0 for paid in record.paid)


def test_check_ins_are_planned_with_shares_that_sum_to_one(tmp_path: Path) -> None:
    """Each user is at one server: with the drawn shares a server would be taken to see several times as many."""
    config = configure("relay", write_checkins(tmp_path / "visits.csv"), servers=4, window=10, burn_in=2)
    facts = public_facts(config, dpcrowd.Relay(), config.entrants[0].guarantee)  # type: ignore[arg-type]
    assert facts.shares.sum() == pytest.approx(1.0)
    assert facts.level is None


def test_the_definition_of_synthetic_data_says_their_level() -> None:
    """Multi-Linear begins with regions of 100 to 20,000 people, who then mix."""
    data = dpcrowd.load_data("multi-linear")
    level = data.expected_level  # type: ignore[attr-defined]
    assert level.sum() == pytest.approx(32_400)
    mean = np.mean([data.truth(np.random.default_rng(run)).mean(axis=0) for run in range(20)], axis=0)
    np.testing.assert_allclose(level, mean, rtol=0.25)


def test_large_networks_are_planned_from_some_of_their_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays between all pairs of many servers would take all memory; a few receivers are much the same."""
    small = {**SMALL, "servers": 60, "density": 0.1, "dynamic": False, "window": 30, "process_var": [50.0, 80.0]}
    config = configure(dpcrowd.Relay(samples=1), COUNTS, **small)
    guarantee = config.entrants[0].guarantee
    assert guarantee is not None
    complete = public_facts(config, dpcrowd.Relay(), guarantee)
    monkeypatch.setattr(planning, "MOST_EXACT", 10)
    partial = public_facts(config, dpcrowd.Relay(), guarantee)
    np.testing.assert_array_equal(partial.delays, complete.delays)  # links that stay: the way back takes as long
    phases = partial.phases(5)
    assert phases.min() >= 0
    assert phases.max() < 30
    spread = replace(partial, phases=complete.phases)
    by_number, by_graph = (prediction.predicted_error(facts, [5])[0] for facts in (partial, spread))
    assert by_number == pytest.approx(by_graph, rel=0.05)


def test_the_reach_is_planned_where_nobody_says() -> None:
    """The fewest hops that cost next to nothing; an object, or an option, has its own."""

    def hops(scheme: Any = "relay", **more: Any) -> int | None:
        config = configure(scheme, COUNTS, servers=30, window=30, process_var=[50.0, 80.0], burn_in=5, **more)
        assert isinstance(config.entrants[0].scheme, dpcrowd.Relay)
        return config.entrants[0].scheme.max_hops

    planned = hops(density=0.2)
    assert planned is not None
    assert planned > 1
    assert hops(dpcrowd.Relay(), density=0.2) is None
    assert hops(density=0.2, reach="all") is None
    assert hops(density=0.2, reach=1) == 1
    assert hops(graph="complete") is None, "every server hears every other one: nothing to save"
    config = configure("relay", COUNTS, servers=30, density=0.2, window=30, process_var=[50.0, 80.0], burn_in=5)
    facts = {
        reach: public_facts(config, planning.with_reach(dpcrowd.Relay(), reach), config.entrants[0].guarantee)  # type: ignore[arg-type]
        for reach in ("all", planned, planned - 1)
    }
    errors = {reach: prediction.best_choice(one)[1] for reach, one in facts.items()}
    assert errors[planned] <= 1.02 * errors["all"] < errors[planned - 1]


@pytest.mark.slow
def test_a_note_says_how_far_records_travel() -> None:
    """A reach that was chosen silently would be taken for the one that the documentation names."""
    result = simulate("relay", COUNTS, **SMALL, window=30, runs=2)
    (note,) = (note for note in result.notes if "travel" in note)
    assert note.startswith("relay takes ")
    assert ", and its records travel " in note, "one remark for what was chosen together"
    alone = simulate("relay", COUNTS, **SMALL, window=30, runs=2, samples=3)
    assert any(note.startswith("records of relay travel ") for note in alone.notes)
    chosen = simulate("relay", COUNTS, **SMALL, window=30, runs=2, reach="all")
    assert not any("travel" in note for note in chosen.notes)


def test_servers_that_learn_shares_meet() -> None:
    """Where n divides w, groups of servers take turns, and a season looks like wrong shares; who insists is told so."""
    more = {
        "shares": "partition",
        "graph": "complete",
        "process_var": [2e4, 3e4],
        "window": 30,
        "observation": "binomial",
    }
    base = configure("relay", COUNTS * 20, **{**SMALL, **more, "density": None})
    learning = configure("relay", COUNTS * 20, **{**SMALL, **more, "density": None, "share_width": 0.1})
    chosen, former = learning.entrants[0].samples, base.entrants[0].samples
    assert former is not None
    assert chosen is not None
    assert (30 % former, learning.meetings, base.meetings) == (0, True, False)
    assert schedules_meet(learning, learning.entrants[0].guarantee, chosen)
    assert chosen != former
    settings = {**more, "servers": 8, "runs": 1, "jobs": 1, "share_width": 0.1}
    notes = {number: simulate("relay", COUNTS * 20, samples=number, **settings).notes for number in (chosen, former)}
    told = {number: any("never sample together" in note for note in texts) for number, texts in notes.items()}
    assert told == {chosen: False, former: True}


@pytest.mark.parametrize("samples", [7, 8, None])
def test_the_number_of_samples_that_is_named_lets_servers_meet(samples: int | None) -> None:
    """Seven does not divide 40, and is not enough all the same: whoever reads the note must get a number that helps."""
    counts = np.random.default_rng(1).poisson(50, (60, 3))
    settings: dict[str, Any] = {"servers": 6, "window": 40, "shares": "partition", "share_width": 0.1, "runs": 1}
    settings |= {"observation": "binomial"}
    notes = simulate("relay", counts, **settings, samples=samples, jobs=1).notes
    (note,) = [note for note in notes if "never sample together" in note]
    named = re.search(r"The nearest number with which all servers meet is (\d+)\.$", note)
    assert named is not None
    config = configure("relay", counts, **settings, samples=samples)
    guarantee, chosen = config.entrants[0].guarantee, config.entrants[0].samples
    assert guarantee is not None
    assert chosen is not None
    distance = abs(int(named[1]) - chosen)
    between = range(max(chosen - distance + 1, 1), chosen + distance)
    assert schedules_meet(config, guarantee, int(named[1]))
    assert not any(schedules_meet(config, guarantee, number) for number in between)
    assert not any("with which servers that learn shares meet" in other for other in notes), "that would be untrue"
    assert (samples is None) == any("no number near it lets all servers" in other for other in notes)
