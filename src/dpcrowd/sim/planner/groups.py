"""What a plan predicts of groups: the total error with and without them, and which of both it recommends.

Servers choose groups while they run, from what they have released (`schemes.relay_groups`). The prediction asks the
same rules what they would choose at the expected levels, and what the error of each member is. With a process model
the members differ in a known way, and independent regions gain nothing by being joined; regions that rise and fall
together do. The correlation of the model says whether they do; where its file does not have it, none are joined.

Where single records say little, some records have the sum of all regions (`schemes.relay_totals`), which shows soonest
whether the crowd has moved as a whole. The errors here are those of a crowd that has not, so the sums may look worth
nothing: they are recommended unless they cost more than 1%.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.errors import counted
from dpcrowd.schemes.prediction import PublicFacts, record_noise
from dpcrowd.schemes.relay import Groups
from dpcrowd.schemes.relay_groups import grouped_var, new_groups, reductions, slot_information
from dpcrowd.schemes.relay_totals import part_of_totals, remaining_variance
from dpcrowd.sim.planner.predict import MEAN_ABSOLUTE, Prediction
from dpcrowd.sim.planner.skewed import errors_around_model

__all__ = ["GroupsPlan", "plan_groups"]

_UNKNOWN = (
    "'{}' has groups = \"auto\", but its model does not say whether regions rise and fall together, so no regions are "
    "joined. Fit the model again with this version, on public counts, to have groups where they help; releases do not "
    "show it, and raw counts of people whom the promise covers would be an unpaid release."
)
_TAKE = 'The file of --toml has groups = "auto"; in a simulation: --groups auto.'
_WORTH_IT = 0.98
"""Groups are recommended if they leave at most this part of the total error."""
_WORTH_WATCHING = 1.01
"""Likewise, where records have the sum of all regions."""
_TOTALS = {0.5: "every second record", 1.0: "every record"}


@dataclass(frozen=True)
class GroupsPlan:
    """What groups would change.

    recommended    "auto" or "off"
    draws          of noise per record with groups; there is one per region without
    total_error    sum of the regions' expected absolute errors over the sum of their levels, without groups; None:
                   nobody is expected
    grouped_error  the same with groups
    in_use         whether the network file that is planned with has groups already
    totals         which part of all records has the sum of all regions: 0, 0.5 or 1
    """

    recommended: Groups
    draws: int
    total_error: float | None
    grouped_error: float | None
    in_use: bool = False
    totals: float = 0.0

    def remark(
        self, regions: int, course: bool, file: str | None = None, correlation: float | None = None
    ) -> str | None:
        """Return a sentence for the plan's reader; None if no region would be joined.

        file         the network file that has groups already; None: they would be new
        correlation  of two regions, if a process model says it
        """
        if self.draws == regions and not self.totals:
            return _UNKNOWN.format(file) if file is not None and course and correlation is None else None
        if self.grouped_error is None or self.total_error is None:
            return None
        with_groups, without = (f"{float(f'{100 * e:.3g}'):,g}%" for e in (self.grouped_error, self.total_error))
        change = f"{with_groups} of all people instead of {without}"
        number = counted(self.draws, "draw")
        if file is not None:
            same = with_groups == without
            return self._remark_in_use(regions, course, file, number, change, same, correlation)
        joined = f"of {regions} regions, servers would join the small ones into groups with {number} of noise"
        if self.totals:
            joined = f"{_TOTALS[self.totals]} would have the sum of all {regions} regions with one draw of noise"
            joined += ", which shows soonest whether the crowd has moved as a whole"
        same = with_groups == without
        effect = f", with a total error of {without} either way" if same else f": a total error of {change}"
        if self.recommended == "auto":
            return f"{joined}{effect}. {_TAKE}"
        if course:
            return f"{joined}{effect}, {_condition(correlation)}. Compare both with `dpcrowd simulate --model`."
        return f'{joined}: a total error of {change}. That is not worth it: leave groups "off".'

    def _remark_in_use(
        self, regions: int, course: bool, file: str, number: str, change: str, same: bool, correlation: float | None
    ) -> str:
        """Return the sentence for a network whose file has groups already."""
        in_use = (
            f"'{file}' has groups = \"auto\": of {regions} regions, servers join the small ones into groups with "
            f"{number} of noise"
        )
        if self.totals:
            in_use = f"'{file}' has groups = \"auto\": {_TOTALS[self.totals]} has the sum of all {regions} regions"
        effect = "the same total error with and without" if same else f"a total error of {change} without groups"
        if self.recommended == "auto":
            return f"{in_use}: {effect}. The errors above are those without groups."
        if course:
            return f"{in_use}: {effect}, {_condition(correlation)}. Compare both with `dpcrowd simulate --model`."
        return f'{in_use}: {effect}. That is not worth it: groups = "off" is as good or better.'


def _condition(correlation: float | None) -> str:
    return f"if two regions have a correlation of {correlation or 0.0:.2g}, as the model says"


def plan_groups(facts: PublicFacts, prediction: Prediction) -> GroupsPlan:
    """Return the prediction with and without groups, for the reach and the number of samples of a prediction."""
    level, errors = np.array(prediction.levels.level), np.array(prediction.absolute_errors)
    noise = facts.alpha * record_noise(facts, prediction.samples)
    information = slot_information(facts.shares, noise, prediction.samples, facts.guarantee.length)
    model = facts.model
    groups = new_groups(model, information, level, np.square(prediction.deviation))
    grouped: Floats = errors.copy()
    for lead in np.unique(groups):
        members = np.flatnonzero(groups == lead).tolist()
        if len(members) < 2:
            continue
        if model.course is None:
            variance = grouped_var(model, information, float(level[members].sum()), members)
            grouped[members] = MEAN_ABSOLUTE * np.sqrt(variance)
        else:
            a = np.broadcast_to(model.diagonal_transition, level.shape)[members]
            spread = model.noise_var[members] / (1.0 - a * a)
            alone, joined = reductions(a, spread, information, model.region_correlation or 0.0)
            with_groups, without = spread - joined, spread - alone
            change = np.divide(with_groups, without, out=np.ones_like(spread), where=without > 0.0)
            variances = np.square(prediction.deviation)[members] * change
            grouped[members] = errors_around_model(prediction.levels, variances, members)[0]
    totals = 0.0
    if model.course is not None:
        rate = prediction.samples / facts.guarantee.length
        public = (model, facts.shares, noise, rate, np.square(prediction.deviation))
        totals = part_of_totals(*public)
        if totals:
            with_sums, without = (remaining_variance(*public, part) for part in (totals, 0.0))
            change = np.divide(with_sums, without, out=np.ones_like(without), where=without > 0.0)
            variances = np.square(prediction.deviation) * change
            grouped = errors_around_model(prediction.levels, variances, range(model.regions))[0]
    limit, people = _WORTH_WATCHING if totals else _WORTH_IT, prediction.people
    before, after = sum(prediction.absolute_errors), float(grouped.sum())
    recommended: Groups = "auto" if after <= limit * before else "off"
    ungrouped_error, grouped_error = (None if people is None else error / people for error in (before, after))
    return GroupsPlan(recommended, len(np.unique(groups)), ungrouped_error, grouped_error, totals=totals)
