"""Sample: the complete epsilon once per window, the last value in between.

Each new sample shows how far the crowd has moved away from the last one, and so how wide the intervals have to be until
the next (`filters.drift`). In the first window there is nothing to learn from.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.filters.drift import Innovations, carry_drift, keep_drift, learn_drift, start_drift
from dpcrowd.privacy import Noise
from dpcrowd.schemes.base import Plan, Reading, Setting
from dpcrowd.schemes.direct import DirectState
from dpcrowd.schemes.uniform import Uniform, drift_of_slot

__all__ = ["Sample"]


class Sample(Uniform):
    """The complete budget is spent at slots 0, w, 2w, ..."""

    name = "sample"
    summary = ("alone", "once per window, all of ε", "last value", "window")
    independent_errors = False  # an old value misses the same drift everywhere

    def _price(self, setting: Setting, slot: int) -> int:
        return setting.need_guarantee().total

    def _due(self, setting: Setting, slot: int) -> bool:
        return slot % setting.need_guarantee().length == 0

    def start(self, setting: Setting) -> DirectState:
        state = super().start(setting)
        if _learns_drift(setting):
            state.drift = start_drift(state.variance)
        return state

    def perturb(self, state: DirectState, plan: Plan, counts: Ints, noise: Noise) -> Reading:
        before, before_var = state.last / state.last_share, state.variance
        reading = super().perturb(state, plan, counts, noise)
        if state.drift is not None:
            _follow_drift(state, plan, reading, before, before_var)
        return reading


def _learns_drift(setting: Setting) -> bool:
    """Whether intervals learn how far the crowd moves; the paper's own experiments have its intervals."""
    return setting.observation == "binomial"


def _follow_drift(state: DirectState, plan: Plan, reading: Reading, before: Floats, before_var: Floats) -> None:
    """Learn from a new sample how far the crowd has moved; `before`: the estimate of the slot before."""
    assert state.drift is not None
    shape, model = before.shape, state.setting.model
    known = np.isfinite(before_var)
    sampled = bool(plan.due.any())
    added = state.variance - before_var
    if sampled:
        added = drift_of_slot(model, plan.slot, state.setting.need_guarantee().length)
    added = np.where(known, np.maximum(np.broadcast_to(added, shape), 0.0), 0.0)
    drift = carry_drift(state.drift, added, np.ones(()), 1.0)
    seen = None
    if sampled:
        variance = np.where(known, before_var + added, 0.0) + state.variance
        nothing = np.zeros(shape)
        seen = Innovations(known, reading.noisy / plan.shares - before, variance, nothing, nothing, nothing)
        drift = learn_drift(drift, seen)
    state.drift = keep_drift(drift, state.variance, np.zeros(shape) if sampled else np.ones(shape), seen)
