"""The least epsilon, slot length or number of servers with which a condition holds, as the recursion confirms it.

epsilon  the error falls as epsilon grows: bisection, rounded up to two digits
slot     from a list of usual lengths; the shortest
servers  every number of a coarse list in turn, since more servers do not always help: where the users are divided
         among more of them, each adds its own noise. The fewest, refined by bisection
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.network.topologies import TOPOLOGIES
from dpcrowd.schemes.relay import Hops
from dpcrowd.sim.planner.predict import Prediction, fulfils, predict
from dpcrowd.sim.planner.request import PlanRequest

__all__ = ["SOLVABLE", "Condition", "Solution", "Variable", "can_solve_servers", "duration_text", "solve"]

Variable = Literal["epsilon", "slot", "servers"]
Condition = Callable[[Prediction], bool]

SOLVABLE: tuple[Variable, ...] = ("epsilon", "slot", "servers")
EPSILONS = (1e-4, 1e3)
SERVERS = (2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500)
SLOTS = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0),
    *(3_600.0, 7_200.0, 10_800.0, 14_400.0, 21_600.0, 28_800.0, 43_200.0, 86_400.0),
)
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "m"), (1.0, "s"))


@dataclass(frozen=True)
class Solution:
    """A request that fulfils a condition, and what is predicted for it."""

    variable: Variable
    request: PlanRequest
    prediction: Prediction

    @property
    def value(self) -> float:
        """The epsilon, the slot length in seconds, or the number of servers."""
        value = getattr(self.request, self.variable)
        return float(value)

    def __str__(self) -> str:
        if self.variable == "epsilon":
            return f"ε = {self.value:g}"
        if self.variable == "slot":
            return f"slots of {duration_text(self.value)}"
        return f"{self.value:.0f} servers"


def solve(request: PlanRequest, condition: Condition, variable: Variable, reach: Hops | None = None) -> Solution | None:
    """Return the least value with which the condition holds; None: there is none within the range that is tried.

    reach  of all predictions; None: the recommended one of each
    """
    if variable not in SOLVABLE:
        raise unknown_name("variable to solve for", str(variable), SOLVABLE)
    solver = {"epsilon": _solve_epsilon, "slot": _solve_slot, "servers": _solve_servers}[variable]
    return solver(request, condition, reach)


def _solve_epsilon(request: PlanRequest, condition: Condition, reach: Hops | None) -> Solution | None:
    lowest, highest = EPSILONS

    def holds(epsilon: float) -> bool:
        return fulfils(replace(request, epsilon=epsilon), reach, condition)

    low = high = min(max(request.epsilon, lowest), highest)
    if holds(high):
        while low > lowest and holds(low):
            high, low = low, max(low / 4.0, lowest)
        if low == lowest and holds(low):
            high = low
    else:
        while not holds(high):
            if high >= highest:
                return None
            low, high = high, min(high * 4.0, highest)
    while high / low > 1.03:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    for epsilon in (_rounded_up(high), high):  # with another number of samples the rounded one might miss by a hair
        changed = replace(request, epsilon=epsilon)
        prediction = predict(changed, reach)
        if condition(prediction):
            return Solution("epsilon", changed, prediction)
    return None


def _rounded_up(value: float) -> float:
    """Return a value rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.2g}")


def _solve_slot(request: PlanRequest, condition: Condition, reach: Hops | None) -> Solution | None:
    if request.slot is None:
        raise BadInput("the length of a slot is not known; give it (--slot 15m) to solve for another one.")
    covered = request.slot * request.length
    lengths = sorted({*(length for length in SLOTS if length <= covered), request.slot})
    place = lengths.index(request.slot)

    def solution(number: int) -> Solution | None:
        changed = request.in_slots_of(lengths[number])
        prediction = predict(changed, reach)
        return Solution("slot", changed, prediction) if condition(prediction) else None

    best = solution(place)
    if best is None:
        return next((longer for longer in map(solution, range(place + 1, len(lengths))) if longer is not None), None)
    for number in range(place - 1, -1, -1):
        shorter = solution(number)
        if shorter is None:
            return best
        best = shorter
    return best


def can_solve_servers(request: PlanRequest) -> bool:
    """Whether the number of servers is free: shares and links are drawn for any number of them."""
    return isinstance(request.shares, str) and request.graph in TOPOLOGIES and request.graph != "file"


def _solve_servers(request: PlanRequest, condition: Condition, reach: Hops | None) -> Solution | None:
    if not can_solve_servers(request):
        raise BadInput(
            f"shares or links were given for {request.servers or 'the'} servers one by one; to solve for servers, give "
            "shares 'equal', 'partition' or 'uniform' and a named graph."
        )

    def solution(servers: int) -> Solution | None:
        changed = replace(request, servers=servers)
        try:
            if not fulfils(changed, reach, condition):
                return None
            prediction = predict(changed, reach)
        except BadInput:  # a topology that this number does not allow
            return None
        return Solution("servers", changed, prediction) if condition(prediction) else None

    few = SERVERS[0] - 1
    for many in SERVERS:
        best = solution(many)
        if best is not None:
            break
        few = many
    else:
        return None
    while many - few > max(1, many // 20):
        middle = (few + many) // 2
        better = solution(middle)
        if better is None:
            few = middle
        else:
            many, best = middle, better
    return best


def duration_text(seconds: float) -> str:
    """Return a duration as the configuration has it: "15m", "1h", "90s"."""
    for unit, letter in _UNITS:
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:.0f}{letter}"
    return f"{seconds * 1000:.0f}ms"
