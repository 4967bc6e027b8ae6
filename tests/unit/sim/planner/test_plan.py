"""`dpcrowd.plan`: what it recommends is what a simulation does, and its files say the same as its result."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.kernels.engine import best_engine
from dpcrowd.schemes import prediction
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.planner.plan import NetworkPlan, plan
from dpcrowd.sim.planner.plot import plot_plan
from dpcrowd.sim.planner.predict import facts_of
from dpcrowd.sim.planner.toml import toml_text, write_plan

SMALL: dict[str, Any] = {"process_var": [400, 25], "servers": 8, "density": 0.5, "window": 30}


@pytest.fixture(scope="module")
def small() -> NetworkPlan:
    return plan({"north": 5000, "old town": 800}, slot="15m", dynamic=False, shares="partition", **SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"users": "roaming"}, {"graph": "ring"}, {"hops_per_slot": 3}], ids=str)
def test_a_simulation_takes_what_a_plan_recommends(more: dict[str, Any]) -> None:
    """Two functions that decide the same thing would soon decide differently."""
    linear = dpcrowd.load_data("linear", slots=40)
    common = {"servers": 8, "density": 0.4, "horizon": 40, **more}
    if "graph" in more:
        del common["density"]
    entrant = configure("relay", linear, **common).entrants[0]
    planned = plan(data=linear, advice=False, epsilons=[1.0], **common)
    assert isinstance(entrant.scheme, dpcrowd.Relay)
    assert planned.samples == entrant.samples
    assert planned.reach == (entrant.scheme.max_hops or "all")


def test_a_plan_uses_compiled_loops_where_there_are_any(small: NetworkPlan) -> None:
    """Where users stay, a plan would take five times as long as it has to, and nobody would notice."""
    assert facts_of(small.request, "all").engine == best_engine()


@pytest.mark.parametrize("reach", [1, 2, "all"])
@pytest.mark.slow
def test_traffic_is_that_of_a_simulation(reach: Any) -> None:
    """Operators order lines by these numbers."""
    linear = dpcrowd.load_data("linear", slots=60)
    common = {"servers": 12, "density": 0.3, "horizon": 60}
    planned = plan(data=linear, samples=12, reach=reach, advice=False, epsilons=[1.0], **common)
    assert planned.samples == 12
    scheme = dpcrowd.Relay(samples=12, reach=reach)
    record = dpcrowd.simulate({"relay": scheme}, linear, runs=4, jobs=1, **common)["relay"]
    assert planned.traffic.packets_per_slot == pytest.approx(record.packets_per_slot.mean(), rel=0.1)
    assert planned.traffic.bytes_per_slot == pytest.approx(record.bytes_per_slot.mean(), rel=0.1)
    assert planned.traffic.heartbeats_per_slot == pytest.approx(record.heartbeats_per_slot.mean(), rel=0.1)


def test_the_summary_is_json_and_complete(small: NetworkPlan) -> None:
    """Programs read it."""
    summary = json.loads(json.dumps(small.summary()))
    assert summary["notes"] == summary["remarks"] == list(small.remarks), "both names, for old and for new readers"
    assert [region["region"] for region in summary["regions"]] == ["north", "old town"]
    assert summary["traffic"]["packets_per_day"] == pytest.approx(96 * small.traffic.packets_per_slot)
    assert summary["traffic"]["heartbeats_per_day"] == pytest.approx(96 * small.traffic.heartbeats_per_slot)
    assert [row["epsilon"] for row in summary["by_epsilon"]] == [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    assert summary["by_reach"][-1]["reach"] == "all"
    errors = [row["error"] for row in summary["by_epsilon"]]
    assert errors == sorted(errors, reverse=True)
    region = small.regions[0]
    assert region.low < region.level < region.high
    assert small.error == pytest.approx(sum(region.error for region in small.regions) / 2)


QUICK: dict[str, Any] = {"servers": 6, "graph": "ring", "window": 20, "advice": False, "epsilons": [1.0]}


@pytest.mark.slow
def test_people_are_observed_as_live_servers_count_them() -> None:
    """A plan in the paper's observation model goes into a live network, whose intervals would be too narrow."""
    assert plan([5000, 800], process_var=100, shares="uniform", **QUICK).observation == "binomial"
    assert plan([5000, 800], process_var=100, observation="paper", **QUICK).observation == "paper"
    linear = dpcrowd.load_data("linear", slots=40)
    assert plan(data=linear, **QUICK).observation == "paper"
    assert plan(data=linear, shares="partition", **QUICK).observation == "binomial"


def test_a_plan_prints_what_it_recommends(capsys: pytest.CaptureFixture[str]) -> None:
    """The text of a data class has several pages, in which nobody finds the number of samples."""
    network = {"servers": 6, "graph": "ring", "window": 20}
    planned = plan([5000, 800], process_var=100, epsilons=[1.0], **network)
    first, errors, *rest = str(planned).splitlines()
    assert first == (
        f"6 servers, ε = 1 in any window of 20 slots: take {planned.samples} samples, and let records travel to every "
        "server."
    )
    assert errors.startswith("all regions: a total error of ")
    assert [line for line in rest if "summary() everything" in line] == rest
    words = ["--level", "5000,800", "--process-var", "100", "--servers", "6", "--graph", "ring", "--window", "20"]
    assert main(["plan", *words, "--epsilons", "1"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert first in shown, "the words of the command line"
    assert errors.removesuffix(".") in shown
    for goal, outcome in (("4%", "reached with the given values."), ("0.0001%", "not reached, see remarks. With the")):
        asked = plan([5000, 800], process_var=100, goal=f"{goal} in every region", epsilons=[1.0], **network)
        assert str(asked).startswith(f"{asked.goal}: {outcome}")


@pytest.mark.slow
def test_users_are_divided_in_equal_parts_unless_shares_are_given() -> None:
    """Drawn shares that sum to m/2 put every user at several servers, and no epsilon of a network would hold."""
    planned = plan([5000, 800], process_var=100, users="roaming", **QUICK)
    assert planned.shares == (1 / 6,) * 6
    assert planned.promise.startswith("Pure 20-event differential privacy")
    assert not any("several servers at once" in remark for remark in planned.remarks)
    assert "Shares are equal parts" in toml_text(planned)
    assert sum(plan(data=dpcrowd.load_data("linear", slots=40), **QUICK).shares) > 1.5
    assert plan([5000], process_var=9, **{**QUICK, "servers": None, "graph": "random"}).shares == (0.02,) * 50


@pytest.mark.slow
def test_records_travel_all_hops_in_a_slot_of_seconds() -> None:
    """Live links are faster than a slot: with one hop per slot, a plan of a live network is too pessimistic."""
    common = {**QUICK, "process_var": 100}
    known = plan([5000], slot="15m", **common)
    unknown = plan([5000], **common)
    assert (known.request.hops_per_slot, unknown.request.hops_per_slot) == ("all", 1)
    assert known.error < unknown.error
    assert plan([5000], slot=0.5, **common).request.hops_per_slot == 1
    assert plan([5000], slot="15m", hops_per_slot=2, **common).request.hops_per_slot == 2


@pytest.mark.parametrize("shares", ["uniform", "partition", [0.5] * 6], ids=str)
def test_the_promise_is_that_of_a_simulation(shares: Any) -> None:
    """A plan that promises more than a simulation of the same network would be believed."""
    common = {"servers": 6, "graph": "ring", "window": 20, "shares": shares, "users": "roaming"}
    planned = plan([5000, 800], process_var=100, advice=False, epsilons=[1.0], **common)
    settings = {**common, "samples": 2, "reach": 1, "slots": 30, "runs": 1, "jobs": 1}
    simulated = dpcrowd.simulate("relay", "linear", **settings)
    assert planned.promise == planned.summary()["guarantee"]["promise"] == simulated.guarantees["relay"]
    assert "audience of a record" in planned.promise
    overlap = [note for note in simulated.notes if "several servers at once" in note]
    assert [remark for remark in planned.remarks if "several servers at once" in remark] == overlap
    assert bool(overlap) == (shares != "partition")
    assert ("Shares are placeholders" in toml_text(planned)) == isinstance(shares, str)


@pytest.mark.slow
def test_a_goal_is_solved_for_and_planned() -> None:
    """The plan is the one of the solution, not of the epsilon that was given."""
    result = plan([5000, 800], goal="4% in every region", solve_for="epsilon", graph="ring", **_without_density())
    assert result.solution is not None
    assert result.goal_reached
    assert float(result.guarantee.epsilon) == result.solution.value
    assert result.summary()["solved"] == {"epsilon": result.solution.value}
    hopeless = plan([5000, 0.5], goal="0.0001% in every region", solve_for="epsilon", advice=False, **SMALL)
    assert hopeless.solution is None
    assert not hopeless.goal_reached
    assert any("no ε up to 1000 reaches the goal" in remark for remark in hopeless.remarks)


def _without_density() -> dict[str, Any]:
    return {name: value for name, value in SMALL.items() if name != "density"}


def test_the_toml_file_is_a_piece_of_a_network(small: NetworkPlan, tmp_path: Path) -> None:
    """`dpcrowd init --plan` will read it; names with any character have to survive."""
    document = tomllib.loads(write_plan(small, tmp_path / "plan.toml").read_text(encoding="utf-8"))
    assert document["network"] == {"slot": "15m", "population": 6200, "regions": ["north", "old town"]}
    assert document["guarantee"]["length"] == 30
    assert document["guarantee"]["epsilon"] == "1"
    assert document["scheme"]["samples"] == small.samples
    assert document["scheme"]["reach"] == small.reach
    assert document["scheme"]["process_var"] == [400.0, 25.0]
    assert len(document["server"]) == 8
    assert sum(server["share"] for server in document["server"]) <= 1.0
    assert small.links is not None
    assert len(document["link"]) == len(small.links)
    odd = plan({'a"b\\\x7f\n': 500}, process_var=4, servers=4, density=0.7, window=10, advice=False, epsilons=[1.0])
    text = toml_text(odd)
    assert tomllib.loads(text)["network"]["regions"] == ['a"b\\\x7f\n']
    assert "The plan has no links, since the planned network draws them anew" in text
    assert "give --slot (such as 15m) to `dpcrowd plan`" in text


def test_the_population_of_a_file_is_that_of_the_busiest_part_of_a_season(tmp_path: Path) -> None:
    """The mean over the week would be too small on Saturdays, when records would look as if they were absurd."""
    week = np.tile([[40, 10]] * 5 + [[90, 30]] * 2, (12, 1))
    counts = week + np.random.default_rng(0).integers(-2, 3, week.shape)
    model = dpcrowd.fit(counts, season=7, source="published", out=tmp_path / "model.toml")
    planned = plan(model=model, servers=4, graph="ring", window=14, advice=False, epsilons=[1.0])
    assert sum(planned.request.levels.level) < 80
    assert tomllib.loads(toml_text(planned, tmp_path))["network"]["population"] == 140, "120.5 + 3 x 3.5 = 131"


def test_a_plan_in_weeks_says_that_live_servers_have_shorter_slots(tmp_path: Path) -> None:
    """`init` refuses its file, and whoever plans should not learn it there."""
    days = np.arange("2024-01-06", "2026-01-03", 7, dtype="datetime64[D]").astype(str)
    counts = np.random.default_rng(0).poisson(50, len(days))
    lines = [f"{day},{count}" for day, count in zip(days, counts, strict=True)]
    (tmp_path / "weeks.csv").write_text("\n".join(["week,north", *lines]) + "\n", encoding="utf-8")
    model = dpcrowd.fit(tmp_path / "weeks.csv", source="published", season="none")
    planned = plan(model=model, servers=4, graph="ring", window=14, advice=False, epsilons=[1.0])
    assert any("live servers have slots of 1s to 1d" in remark for remark in planned.remarks)
    assert planned.request.slot == 7 * 86_400, "a plan without --slot has the slots of its model"


def test_servers_have_the_names_of_the_file_of_shares(tmp_path: Path) -> None:
    """Whoever states a share of each clinic must not get a network of server-1, server-2 and server-3."""
    file = tmp_path / "shares.csv"
    few: dict[str, Any] = {"process_var": 4, "graph": "ring", "window": 10, "advice": False, "epsilons": [1.0]}
    file.write_text("server,share\nclinic-b,0.5\nclinic-a,0.3\nclinic-c,0.2\n", encoding="utf-8")
    named = toml_text(plan([500], shares=str(file), **few))
    assert [(one["name"], one["share"]) for one in tomllib.loads(named)["server"]] == [
        ("clinic-b", 0.5),
        ("clinic-a", 0.3),
        ("clinic-c", 0.2),
    ]
    assert "placeholders" not in named
    with pytest.raises(BadInput, match=r"'.*shares\.csv' has shares of 3 servers, but 5 servers were given"):
        plan([500], shares=str(file), servers=5, **few)
    file.write_text("server,share\n1,0.4\n0,0.6\n", encoding="utf-8")
    numbered = plan([500], shares=str(file), **few)
    assert (numbered.shares, numbered.server_names) == ((0.6, 0.4), None)
    assert plan([500], shares=[0.6, 0.4], **few).servers == 2, "as many as there are shares"


@pytest.mark.slow
def test_a_plot_is_drawn(small: NetworkPlan, tmp_path: Path) -> None:
    """`--plot` must not fail after the work is done."""
    plot_plan(small, tmp_path / "plan.svg")
    assert "reach" in (tmp_path / "plan.svg").read_text(encoding="utf-8")
    with pytest.raises(BadInput, match="allowed endings"):
        plot_plan(small, tmp_path / "plan.txt")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"solve_for": "epsilon"}, "solving for epsilon needs a goal"),
        ({"goal": "1% on average", "solve_for": "size"}, "unknown variable to solve for 'size'"),
        ({"goal": "1% on average", "solve_for": "epsilon", "samples": 3}, "leave samples out"),
        ({"goal": "good"}, "the goal 'good' is not understood"),
        ({"epsilom": 1}, "unknown setting of a plan 'epsilom'. Did you mean 'epsilon'"),
        ({"samples": 31}, "31 samples in 30 slots; allowed: at most one per slot"),
        ({"samples": 31, "reach": 2}, "31 samples in 30 slots"),
        ({"reach": 0}, "reach must be a whole number >= 1"),
        ({"window": 0}, "window must be a whole number of slots >= 1"),
        ({"horizon": 10}, "give a window or a horizon, not both"),
        ({"shares": [0.5]}, "one for each of 8 servers"),
        ({"users": "some"}, "unknown kind of users 'some'"),
        ({"observation": "papper"}, "unknown observation 'papper'. Did you mean 'paper'"),
        ({"shares": "equl"}, "unknown kind of shares 'equl'. Did you mean 'equal'.*CSV file"),
        ({"graph": "star"}, "unknown graph 'star'"),
        ({"slot": "soon"}, "soon"),
    ],
    ids=str,
)
def test_wrong_input_is_refused(settings: dict[str, Any], words: str) -> None:
    """One line that says what is allowed, as everywhere."""
    with pytest.raises(BadInput, match=words):
        plan([5000, 800], **{**SMALL, **settings})


def test_nothing_is_searched_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of reaches asks what the recommendation has asked already; searching again took a third of a plan."""
    searched: list[int] = []
    real = prediction.best_choice

    def counted(facts: prediction.PublicFacts) -> tuple[int, float]:
        searched.append(int((facts.delays >= 0).sum()))
        return real(facts)

    monkeypatch.setattr(prediction, "best_choice", counted)
    result = plan([700, 90], process_var=9, servers=7, graph="ring", window=20, epsilon=0.31, epsilons=[0.31], slot=60)
    assert len(result.by_reach) > 1
    assert len(searched) == len(set(searched)) == len(result.by_reach)


@pytest.mark.slow
@pytest.mark.parametrize("level", [2, 60])
@pytest.mark.parametrize("knows_model", [True, False])
def test_the_total_error_is_that_of_a_simulation(level: int, knows_model: bool) -> None:
    """Of sparse counts a plan promised an ARE of 60% where simulations had 42%, and no total error to compare."""
    counts = np.random.default_rng(4).negative_binomial(3, 3 / (3 + level), (160, 4))
    data = counts_from_array(counts)
    network: dict[str, Any] = {"servers": 4, "density": 1.0, "dynamic": False, "window": 20}
    model = dpcrowd.fit(data, source="drawn for this test") if knows_model else None
    known = {"data": data} if model is None else {"model": model}
    planned = plan(**known, advice=False, epsilons=[1.0], **network)
    network |= {"samples": planned.samples, "reach": planned.reach, "model": model}
    network |= {"shares": [0.25] * 4, "observation": "binomial", "turnover": 1.0, "runs": 6, "jobs": 1}
    network["learn"] = knows_model  # a plan knows Q, and counts on no learning
    (row,) = dpcrowd.simulate("relay", data, **network).summary()
    assert planned.total_error == pytest.approx(row["total_error"]["mean"], rel=0.12)
    assert planned.error == pytest.approx(row["are"]["mean"], rel=0.15)
    assert planned.summary()["total_error"] == planned.total_error
    assert sum(region.mae for region in planned.regions) == pytest.approx(
        planned.total_error * sum(region.level for region in planned.regions), rel=0.1
    )


def test_the_error_of_an_empty_crowd_is_unknown(tmp_path: Path) -> None:
    """The total error of a model of nobody was 495,000,000%, in the headline, in tables and in a note."""
    model = dpcrowd.fit(np.zeros((120, 2), dtype=np.int64), source="a public count of nobody")
    planned = plan(model=model, servers=3, density=1.0, epsilons=[1.0])
    assert (planned.total_error, planned.model_error) == (None, None)
    assert [row.total_error for row in planned.by_epsilon] == [None]
    assert "nobody is expected, so the total error (sum of the errors / sum of the people) is unknown" in str(planned)
    assert "000,000%" not in " ".join((str(planned), *planned.remarks))
    assert json.loads(json.dumps(planned.summary()))["total_error"] is None
