"""Sample: the complete epsilon once per window, the last value in between.

Each new sample shows how far the crowd has moved away from the last one, and so how wide the intervals have to be until
the next (`filters.repeated`). In the first window nothing is known of that, and they are wide enough for a crowd that
moves in one direction.
"""

from __future__ import annotations

from dpcrowd.arrays import Ints
from dpcrowd.filters.repeated import learn_from_sample, missed_var, pass_slot, start_repeated
from dpcrowd.privacy import Noise
from dpcrowd.schemes.base import Plan, Reading, Setting
from dpcrowd.schemes.direct import DirectState
from dpcrowd.schemes.uniform import Uniform, expected_miss

__all__ = ["Sample"]


class Sample(Uniform):
    """The complete budget is spent at slots 0, w, 2w, ..."""

    name = "sample"
    summary = ("alone", "once per window, all of ε", "last value", "window")
    independent_errors = False  # an old value misses the same drift everywhere
    independent_samples = True

    def _price(self, setting: Setting) -> int:
        return setting.need_guarantee().total

    def _due(self, setting: Setting, slot: int) -> bool:
        return slot % setting.need_guarantee().length == 0

    def start(self, setting: Setting) -> DirectState:
        state = super().start(setting)
        if _learns_drift(setting):
            state.repeated = start_repeated(setting.servers, setting.regions)
        return state

    def perturb(self, state: DirectState, plan: Plan, counts: Ints, noise: Noise) -> Reading:
        before = state.last / state.last_share
        reading = super().perturb(state, plan, counts, noise)
        if state.repeated is not None:
            setting, sampled = state.setting, bool(plan.due.any())
            length = setting.need_guarantee().length
            age = length if sampled else plan.slot % length
            state.repeated = pass_slot(state.repeated, expected_miss(setting.model, plan.slot, age))
            if sampled:
                state.repeated = learn_from_sample(state.repeated, reading.noisy / plan.shares - before, state.variance)
            missed = missed_var(state.repeated, returns=setting.model.course is None)
            state.variance = state.repeated.fresh_var + missed
        return reading


def _learns_drift(setting: Setting) -> bool:
    """Whether intervals learn how far the crowd moves; the paper's own experiments have its intervals."""
    return setting.observation == "binomial"
