"""A goal in words: "5% in every region", "5% in every region above 1000", "2.5% on average above 300".

The percentage is the expected relative error of a region (`predict`): the mean of |estimate - truth|/max(truth, 1). The
number is a level: regions below it do not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from dpcrowd.errors import BadInput
from dpcrowd.sim.planner.predict import Prediction
from dpcrowd.sim.planner.request import Levels

__all__ = ["ALLOWED", "Goal", "parse_goal"]

ALLOWED = '"P% in every region [above N]" or "P% on average [above N]", such as "5% in every region above 1000"'

_FORM = re.compile(
    r"(?P<percent>\d+(?:\.\d+)?)\s*%\s+(?P<scope>in\s+every\s+region|on\s+average)(?:\s+above\s+(?P<above>[\d,_]*\d(?:\.\d+)?))?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Goal:
    """An expected error that is to be reached.

    error    as a fraction
    every    in every region, or in the mean of the regions
    above    regions with a lower level do not count
    numbers  the regions that count, chosen once: in slots of another length they have other levels
    """

    error: float
    every: bool = True
    above: float = 0.0
    numbers: tuple[int, ...] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        scope = "in every region" if self.every else "on average"
        return f"{100 * self.error:g}% {scope}" + (f" above {self.above:g}" if self.above > 0 else "")

    def regions(self, levels: Levels) -> tuple[int, ...]:
        """Return the regions that count."""
        if self.numbers is not None:
            return self.numbers
        return tuple(k for k, level in enumerate(levels.level) if level >= self.above)

    def value(self, prediction: Prediction) -> float:
        """Return the error that is compared with the goal: of the worst region that counts, or their mean."""
        errors = [prediction.errors[k] for k in self.regions(prediction.levels)]
        return max(errors) if self.every else sum(errors) / len(errors)

    def reached(self, prediction: Prediction) -> bool:
        """Whether a prediction reaches the goal."""
        return self.value(prediction) <= self.error


def parse_goal(text: str, levels: Levels) -> Goal:
    """Return the goal that a text states; some region has to count."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise BadInput(f"the goal '{text}' is not understood; allowed: {ALLOWED}.")
    error = float(match["percent"]) / 100.0
    if not error > 0.0:
        raise BadInput(f"the goal '{text}' asks for an error of 0, which needs an infinite epsilon; give more than 0%.")
    above = float(re.sub("[,_]", "", match["above"])) if match["above"] else 0.0
    goal = Goal(error, match["scope"].lower().startswith("in"), above)
    if not goal.regions(levels):
        raise BadInput(
            f"no region counts in the goal '{text}': the largest has an expected level of {max(levels.level):,.0f}; "
            "give a lower number."
        )
    return replace(goal, numbers=goal.regions(levels))
