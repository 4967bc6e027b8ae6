"""NonPrivate (Algorithm 1): every server sends its exact counts to its neighbours in every slot. It is not private."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcrowd.privacy import Noise
from dpcrowd.schemes.base import Plan, Reading, Setting
from dpcrowd.schemes.filter_state import FilterState, filter_start
from dpcrowd.schemes.filtering import FilterScheme

__all__ = ["NonPrivate"]


class NonPrivate(FilterScheme):
    """The filter without noise, to compare the private schemes with; for the simulator only."""

    name = "non-private"
    kinds = frozenset()
    summary = ("one hop", "every slot, no noise", "KCIF", "none")
    reach = "one-hop"
    keeps_raw_counts = True  # between observing and hearing, what it is about to send

    def start(self, setting: Setting) -> FilterState:
        return FilterState(**filter_start(setting, consensus=self.reach == "one-hop"))

    def plan(self, state: FilterState, slot: int, shares: NDArray[np.float64]) -> Plan:
        prior, prior_var = self.predict(state, slot)
        every = np.ones((state.setting.servers, 1), dtype=np.bool_)
        return Plan(slot, shares, every, np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1)), prior, prior_var)

    def perturb(self, state: FilterState, plan: Plan, counts: NDArray[np.int64], noise: Noise) -> Reading:
        return Reading(counts.astype(np.float64), plan.noise_var, np.zeros((len(counts), 1), dtype=np.int64))
