"""What a plan predicts of groups: the total error with and without them, and which of both it recommends.

Servers choose groups while they run, from what they have released (`schemes.relay_groups`). The prediction asks the
same rules what they would choose at the expected levels, and what the error of each member is. With a process model
the members differ in a known way, and independent regions gain nothing by being joined; regions that rise and fall
together do, which the prediction cannot know.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.schemes.prediction import PublicFacts, record_noise
from dpcrowd.schemes.relay import Groups
from dpcrowd.schemes.relay_groups import grouped_var, new_groups, settled_var, slot_information
from dpcrowd.sim.planner.predict import MEAN_ABSOLUTE, Prediction

__all__ = ["GroupsPlan", "plan_groups"]

_WORTH_IT = 0.98
"""Groups are recommended if they leave at most this part of the total error."""


@dataclass(frozen=True)
class GroupsPlan:
    """What groups would change.

    recommended    "auto" or "off"
    draws          of noise per record with groups; there is one per region without
    total_error    sum of the regions' expected absolute errors over the sum of their levels, without groups
    grouped_error  the same with groups
    in_use         whether the network file that is planned with has groups already
    """

    recommended: Groups
    draws: int
    total_error: float
    grouped_error: float
    in_use: bool = False

    def remark(self, regions: int, course: bool, file: str | None = None) -> str | None:
        """Return a sentence for the plan's reader; None if no region would be joined.

        file  the network file that has groups already; None: they would be new
        """
        if self.draws == regions:
            return None
        with_groups, without = (f"{float(f'{100 * e:.3g}'):,g}%" for e in (self.grouped_error, self.total_error))
        change = f"{with_groups} of all people instead of {without}"
        number = "1 draw" if self.draws == 1 else f"{self.draws} draws"
        if file is not None:
            return self._remark_in_use(regions, course, file, number, change, with_groups == without)
        joined = f"of {regions} regions, servers would join the small ones into groups with {number} of noise"
        if self.recommended == "auto":
            return f'{joined}: a total error of {change}. Give groups = "auto" (--groups auto).'
        if course:
            same = with_groups == without
            effect = f", with a total error of {without} either way" if same else f": a total error of {change}"
            return (
                f"{joined}{effect}, if regions are independent. Where they rise and fall together, "
                'groups = "auto" is better; compare both with `dpcrowd simulate --model`.'
            )
        return f'{joined}: a total error of {change}. That is not worth it: leave groups "off".'

    def _remark_in_use(self, regions: int, course: bool, file: str, number: str, change: str, same: bool) -> str:
        """Return the sentence for a network whose file has groups already."""
        in_use = (
            f"'{file}' has groups = \"auto\": of {regions} regions, servers join the small ones into groups with "
            f"{number} of noise"
        )
        effect = "the same total error with and without" if same else f"a total error of {change} without groups"
        if self.recommended == "auto":
            return f"{in_use}: {effect}. The errors above are those without groups."
        if course:
            return (
                f"{in_use}: {effect}, if regions are independent. Where they rise and fall together, groups are "
                "better; compare both with `dpcrowd simulate --model`."
            )
        return f'{in_use}: {effect}. That is not worth it: groups = "off" is as good or better.'


def plan_groups(facts: PublicFacts, prediction: Prediction) -> GroupsPlan:
    """Return the prediction with and without groups, for the reach and the number of samples of a prediction."""
    level, errors = np.array(prediction.levels.level), np.array(prediction.absolute_errors)
    noise = facts.alpha * record_noise(facts, prediction.samples)
    information = slot_information(facts.shares, noise, prediction.samples, facts.guarantee.length)
    model, people = facts.model, max(float(level.sum()), 1.0)
    groups = new_groups(model, information, level, np.square(prediction.deviation))
    grouped: Floats = errors.copy()
    for lead in np.unique(groups):
        members = np.flatnonzero(groups == lead).tolist()
        if len(members) < 2:
            continue
        if model.course is None:
            variance = np.full(len(members), grouped_var(model, information, float(level[members].sum()), members))
        else:
            a = np.broadcast_to(model.diagonal_transition, level.shape)[members]
            q = model.noise_var[members]
            others = (q / (1.0 - a * a)).sum() - q / (1.0 - a * a)
            reduced = information / (1.0 + information * others)
            variance = np.array([settled_var(*one) for one in zip(a, q, reduced.tolist(), strict=True)])
        grouped[members] = MEAN_ABSOLUTE * np.sqrt(variance)
    before, after = float(errors.sum()) / people, float(grouped.sum()) / people
    recommended: Groups = "auto" if after <= _WORTH_IT * before else "off"
    return GroupsPlan(recommended, len(np.unique(groups)), before, after)
