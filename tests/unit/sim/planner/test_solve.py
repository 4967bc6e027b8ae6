"""Solving for epsilon, slot length and servers: the least value, confirmed by the recursion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.sim.planner import predict as predict_module
from dpcrowd.sim.planner import solve as solve_module
from dpcrowd.sim.planner.goal import parse_goal
from dpcrowd.sim.planner.predict import Prediction, fulfils, predict
from dpcrowd.sim.planner.remedies import advice_on_goal, advice_on_hidden
from dpcrowd.sim.planner.request import PlanRequest, read_levels
from dpcrowd.sim.planner.solve import duration_text, solve

LEVELS = read_levels({"north": 3000, "west": 60, "east": 50}, [400, 9, 9])


def request(**more: Any) -> PlanRequest:
    return PlanRequest(**{"levels": LEVELS, "servers": 6, "graph": "ring", "window": 24, "slot": 900.0, **more})


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.001, 3.0])
def test_the_least_epsilon_is_found_from_below_and_from_above(epsilon: float) -> None:
    """A larger epsilon than necessary is privacy given away; a smaller one misses the goal."""
    goal = parse_goal("3% in every region above 1000", LEVELS)
    solution = solve(request(epsilon=epsilon), goal.reached, "epsilon", "all")
    assert solution is not None
    assert goal.reached(solution.prediction)
    assert predict(solution.request, "all") == solution.prediction
    assert not goal.reached(predict(replace(solution.request, epsilon=solution.value * 0.9), "all"))
    assert str(solution) == f"ε = {solution.value:g}"


def test_the_shortest_slot_is_found() -> None:
    """Slots are lengthened only as far as the goal needs, and shortened if it is reached already."""
    goal = parse_goal("20% in every region", LEVELS)
    solution = solve(request(epsilon=0.05), goal.reached, "slot", "all")
    assert solution is not None
    assert solution.value > 900
    assert goal.reached(solution.prediction)
    again = solve(solution.request.in_slots_of(4 * solution.value), goal.reached, "slot", "all")
    assert again is not None
    assert again.value <= 4 * solution.value
    assert str(solution) == f"slots of {duration_text(solution.value)}"


@pytest.mark.slow
def test_a_shorter_slot_does_not_change_which_regions_count() -> None:
    """In a slot of a second no region has 1000 people; the goal is still about those that were meant."""
    goal = parse_goal("40% in every region above 1000", LEVELS)
    solution = solve(request(epsilon=5.0), goal.reached, "slot", "all")
    assert solution is not None
    assert solution.value < 900
    assert max(solution.request.levels.level) < 1000


def test_the_fewest_servers_are_found() -> None:
    """With shares that do not depend on each other, more servers are more information."""
    goal = parse_goal("23% in every region", LEVELS)
    solution = solve(request(epsilon=0.05), goal.reached, "servers", "all")
    assert solution is not None
    assert goal.reached(solution.prediction)
    assert not goal.reached(predict(replace(solution.request, servers=max(2, int(solution.value) // 2)), "all"))


def test_more_hops_per_slot_are_a_remedy_if_they_help() -> None:
    """Whoever left them at 1 would otherwise buy accuracy with privacy."""
    ring = request(servers=12, shares=(1 / 12,) * 12)
    one, every = (predict(replace(ring, hops_per_slot=hops), "all") for hops in (1, "all"))
    between = f"{50 * (one.error + every.error):.4f}% on average"
    goal = parse_goal(between, LEVELS)
    advice = advice_on_goal(ring, one, goal)
    assert advice is not None
    assert "let records travel all hops within a slot instead of 1 (--hops-per-slot)" in advice
    hopeless = parse_goal("0.0001% on average", LEVELS)
    text = advice_on_goal(replace(ring, slot=None), one, hopeless)
    assert text is not None
    assert "let records travel" not in text


def test_what_cannot_be_solved_is_none_or_refused() -> None:
    """A value that was not confirmed must not be printed."""

    def never(_: Prediction) -> bool:
        return False

    assert solve(request(), never, "epsilon", "all") is None
    assert solve(request(), never, "slot", "all") is None
    with pytest.raises(BadInput, match="the length of a slot is not known; give it"):
        solve(request(slot=None), never, "slot")
    with pytest.raises(BadInput, match="to solve for servers, give shares 'equal', 'partition' or 'uniform'"):
        solve(request(shares=(0.5,) * 6), never, "servers")
    with pytest.raises(BadInput, match="unknown variable to solve for 'size'"):
        solve(request(), never, "size")  # type: ignore[arg-type]


@pytest.fixture
def few_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remedies of up to 50 servers: predictions for hundreds of them take most of the time."""
    monkeypatch.setattr(solve_module, "SERVERS", tuple(number for number in solve_module.SERVERS if number <= 50))


@pytest.mark.usefixtures("few_servers")
@pytest.mark.slow
def test_advice_names_what_shows_a_hidden_region() -> None:
    """ "It cannot be done" helps nobody; every remedy that is named was tried."""
    poor = request(epsilon=0.01)
    prediction = predict(poor, "all")
    assert prediction.hidden == (1, 2)
    text = advice_on_hidden(poor, prediction)
    assert text is not None
    assert "with ε = 0.01 region 'west' of 60 people cannot be told from 0 (and 1 more" in text
    epsilon = float(text.split("raise ε to ")[1].split(",")[0].rstrip(":."))
    assert 1 not in predict(replace(poor, epsilon=epsilon), "all").hidden
    assert "lengthen the slot to" in text
    rich = request(epsilon=20.0)
    assert advice_on_hidden(rich, predict(rich, "all")) is None


@pytest.mark.usefixtures("few_servers")
@pytest.mark.slow
def test_more_servers_are_advised_only_where_they_help() -> None:
    """Divided among more servers, the same people are counted with more noise."""
    poor = request(epsilon=0.02, shares="partition")
    text = advice_on_hidden(poor, predict(poor, "all"))
    assert text is not None
    assert "servers" not in text


@pytest.mark.usefixtures("few_servers")
@pytest.mark.slow
def test_advice_on_a_goal_that_is_missed() -> None:
    """The distance to the goal, and what would close it."""
    goal = parse_goal("3% in every region above 1000", LEVELS)
    poor = request(epsilon=0.001, slot=None)
    text = advice_on_goal(poor, predict(poor, "all"), goal)
    assert text is not None
    assert text.startswith("the goal of 3% in every region above 1000 is missed with ε = 0.001:")
    assert "aise ε to" in text
    assert "slot" not in text, "its length is not known"
    rich = request(epsilon=10.0)
    assert advice_on_goal(rich, predict(rich, "all"), goal) is None


@pytest.mark.parametrize(("seconds", "text"), [(900, "15m"), (3600, "1h"), (90, "90s"), (86400, "1d"), (0.5, "500ms")])
def test_durations_are_written_as_in_the_configuration(seconds: float, text: str) -> None:
    """`init --plan` reads them."""
    assert duration_text(seconds) == text


def test_the_best_number_of_samples_is_the_remedy_where_it_is_enough() -> None:
    """With a bad number of samples, a plan advised to raise ε to less than it was."""
    poor = request(epsilon=0.05)
    many = predict(poor, "all", 24)
    assert many.hidden
    text = advice_on_hidden(poor, many)
    assert text is not None
    best = predict(poor, "all").samples
    number = "1 sample" if best == 1 else f"{best} samples"
    assert text.endswith(f"Take {number} instead of 24 (--samples): this shows it")


@pytest.mark.parametrize(("far", "draws"), [(1.6, 1), (1.01, 7)])
def test_draws_are_averaged_only_where_one_does_not_decide(
    far: float, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Advice took most of the time of a plan: six draws for every epsilon and number of servers that was tried."""
    drawn = PlanRequest(
        levels=read_levels([100.0], 40.0), window=12, servers=6, density=0.5, shares="partition", observation="binomial"
    )
    threshold = predict(drawn, "all").deviation[0]
    calls = []
    original = predict_module.predicted_deviation
    monkeypatch.setattr(predict_module, "predicted_deviation", lambda *args: calls.append(args) or original(*args))
    predict_module._predict.cache_clear()
    assert fulfils(drawn, "all", lambda one: one.deviation[0] < far * threshold)
    assert len(calls) == draws
