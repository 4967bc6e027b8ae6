"""What would help where a region cannot be told from 0, or a goal is missed: only what the recursion confirms.

Five remedies are tried, each alone: a larger epsilon, longer slots, more servers, records that travel all hops within
a slot, and regions merged into one. An epsilon that protects nobody is no remedy, and none of them is one for a region
with hardly any people, which has to become a part of another one. Where a number of samples was given and the best
number is enough, that is the remedy: the others are confirmed with the best number, too, and would be named although
they are not needed.
"""

from __future__ import annotations

from dataclasses import replace

from dpcrowd.errors import counted
from dpcrowd.schemes.relay import Hops
from dpcrowd.sim.planner.goal import Goal
from dpcrowd.sim.planner.predict import Prediction, config_of, predict
from dpcrowd.sim.planner.request import PlanRequest
from dpcrowd.sim.planner.solve import Condition, Solution, Variable, can_solve_servers, solve

__all__ = ["advice_on_goal", "advice_on_hidden", "merged_regions"]

_MOST_EPSILON = 10.0  # a promise with more says next to nothing: probabilities may differ by a factor of e^10
_NEARLY_EMPTY = 1.0  # people per slot
_LEAST_PART = 0.1  # of the region to be shown: what a region must have to be worth merging with it

_VERBS: dict[Variable, str] = {"epsilon": "raise ε to", "slot": "lengthen the slot to", "servers": "use"}


def advice_on_hidden(request: PlanRequest, prediction: Prediction) -> str | None:
    """Return a sentence on the regions that cannot be told from 0, and what would show them; None if there are none."""
    hidden = prediction.hidden
    if not hidden:
        return None
    largest = max(hidden, key=lambda k: prediction.levels.level[k])
    level = prediction.levels.level[largest]
    others = len(hidden) - 1
    more = f" (and {others} more with fewer people or wider intervals)" if others else ""
    problem = (
        f"with ε = {request.epsilon:g} region '{prediction.levels.regions[largest]}' of {_people(level)} people "
        f"cannot be told from 0{more}: its 95% interval is ± {prediction.half_width[largest]:,.0f}"
    )

    if level < _NEARLY_EMPTY:
        return f"{problem}{_advice_on_empty(prediction)}"

    def visible(other: Prediction) -> bool:
        return largest not in other.hidden

    remedies = _remedies(request, visible, prediction)
    merged = merged_regions(request, prediction, largest) if not visible(predict(request, prediction.reach)) else None
    if merged is not None:
        remedies.insert(0, merged)
    return f"{problem}. {_joined(remedies, 'shows it', request)}{_advice_on_empty(prediction)}"


def advice_on_goal(request: PlanRequest, prediction: Prediction, goal: Goal) -> str | None:
    """Return a sentence on a goal that is missed, and what would reach it; None if it is reached."""
    if goal.reached(prediction):
        return None
    value = goal.value(prediction)
    return (
        f"the goal of {goal} is missed with ε = {request.epsilon:g}: {float(f'{100 * value:.3g}'):,g}% are expected. "
        f"{_joined(_remedies(request, goal.reached, prediction), 'reaches it', request)}"
    )


def _remedies(request: PlanRequest, condition: Condition, prediction: Prediction) -> list[str]:
    """Return the changes that fulfil a condition, each alone, in words."""
    reach = prediction.reach
    best = predict(request, reach)
    if condition(best):
        number = counted(best.samples, "sample")
        return [f"take {number} instead of {prediction.samples} (--samples)"]
    texts = []
    for variable, verb in _VERBS.items():
        solution = _solved(request, condition, variable, reach)
        if solution is not None:
            value = str(solution).removeprefix("ε = ").removeprefix("slots of ")
            texts.append(f"{verb} {value}")
    if request.hops_per_slot != "all" and condition(predict(replace(request, hops_per_slot="all"), reach)):
        texts.append(f"let records travel all hops within a slot instead of {request.hops_per_slot} (--hops-per-slot)")
    return texts


def _solved(request: PlanRequest, condition: Condition, variable: Variable, reach: Hops) -> Solution | None:
    """Return a solution that asks for more than there is; None where the variable cannot be changed."""
    if variable == "slot" and request.slot is None:
        return None
    if variable == "servers" and not can_solve_servers(request):
        return None
    solution = solve(request, condition, variable, reach)
    if solution is not None and variable == "servers" and solution.value <= config_of(request).servers:
        return None  # fewer servers would help, because each of them adds noise; but these organisations are there
    if solution is not None and variable == "epsilon" and solution.value > _MOST_EPSILON:
        return None
    return solution


def merged_regions(request: PlanRequest, prediction: Prediction, region: int) -> str | None:
    """Return which regions to merge with one, so that their sum can be told from 0; None: no few regions would do.

    Regions that cannot be told from 0 either come first, the larger ones before the smaller: nothing is lost with
    them. Nearly empty regions add nothing, and half of all regions as one would be a map of something else.
    """
    levels, hidden = prediction.levels, set(prediction.hidden)
    least = max(_LEAST_PART * levels.level[region], _NEARLY_EMPTY)
    partners = [k for k in range(len(levels)) if k != region and levels.level[k] >= least]
    order = sorted(partners, key=lambda k: (k not in hidden, -levels.level[k] if k in hidden else levels.level[k]))
    number, most = 1, max(1, len(levels) // 2 - 1)
    while number <= min(len(order), most) and number + 1 < len(levels):
        group = [region, *order[:number]]
        changed = request.merge_regions(group)
        if (
            _may_be_visible(prediction, group)
            and len(changed.levels) - 1 not in predict(changed, prediction.reach).hidden
        ):
            names = ", ".join(levels.regions[k] for k in group[:4])
            return f"merge {len(group)} regions ({names}{', …' if len(group) > 4 else ''})"
        number = max(number + 1, number * 3 // 2)
    return None


def _advice_on_empty(prediction: Prediction) -> str:
    """Return a sentence on regions with hardly any people, which no merging among themselves fills."""
    levels = prediction.levels
    empty = [name for name, level in zip(levels.regions, levels.level, strict=True) if level < _NEARLY_EMPTY]
    if not empty:
        return ""
    names = f"{', '.join(empty[:4])}{', …' if len(empty) > 4 else ''}"
    if len(empty) == 1:
        return f". Region {names} has less than one person per slot: make it a part of a larger region, or leave it out"
    return (
        f". {len(empty)} regions ({names}) have less than one person per slot: merging such regions leaves an empty "
        "one; make them parts of larger regions, or leave them out"
    )


def _may_be_visible(prediction: Prediction, group: list[int]) -> bool:
    """Whether a sum of regions can exceed its interval; it is at least as wide as the narrowest of its parts."""
    return sum(prediction.levels.level[k] for k in group) > 0.5 * min(prediction.half_width[k] for k in group)


def _people(level: float) -> str:
    """Return a level as a whole number, or with one digit where it would be 0 or 1."""
    return f"{level:,.0f}" if level >= 1.5 else f"{level:.1g}"


def _joined(remedies: list[str], effect: str, request: PlanRequest) -> str:
    if not remedies:
        hops = "" if request.hops_per_slot == "all" else f", more hops per slot than {request.hops_per_slot}"
        epsilon = f"an ε up to {_MOST_EPSILON:g}, " if request.epsilon < _MOST_EPSILON else ""
        return f"Nothing that was tried {effect}: {epsilon}longer slots, more servers{hops} or merged regions"
    text = remedies[0] if len(remedies) == 1 else ", ".join(remedies[:-1]) + f", or {remedies[-1]}"
    text = text[0].upper() + text[1:]
    return f"{text}: each of these alone {effect}" if len(remedies) > 1 else f"{text}: this {effect}"
