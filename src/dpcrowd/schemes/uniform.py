"""Uniform: epsilon/w in every slot. With `Sample`, the baseline that every adaptive scheme has to beat."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcrowd.filters import observation_var
from dpcrowd.privacy import Noise, noise_var
from dpcrowd.privacy.allocation import uniform
from dpcrowd.schemes.base import Plan, Reading, Setting
from dpcrowd.schemes.direct import DirectScheme, DirectState, direct_start
from dpcrowd.schemes.perturb import perturb_counts

__all__ = ["Uniform"]


class Uniform(DirectScheme):
    """Every slot gets the same share of the window's budget."""

    name = "uniform"
    summary = ("alone", "every slot, ε/w", "last value", "window")
    independent_errors = True

    def start(self, setting: Setting) -> DirectState:
        self.check(setting)
        return DirectState(**direct_start(setting))

    def _price(self, setting: Setting, slot: int) -> int:
        guarantee = setting.need_guarantee()
        return uniform(guarantee.total, guarantee.length)

    def _due(self, setting: Setting, slot: int) -> bool:
        return True

    def plan(self, state: DirectState, slot: int, shares: NDArray[np.float64]) -> Plan:
        setting = state.setting
        due = np.full((setting.servers, 1), self._due(setting, slot))
        amount = np.array([[self._price(setting, slot)]])
        return Plan(slot, shares, due, amount, noise_var(amount, setting.need_guarantee().sensitivity))

    def perturb(self, state: DirectState, plan: Plan, counts: NDArray[np.int64], noise: Noise) -> Reading:
        setting = state.setting
        reading = perturb_counts(state.ledger, plan, counts, noise, setting.need_guarantee().sensitivity)
        if plan.due.any():
            share = plan.shares
            spread = observation_var(setting.observation, share, setting.model.one_step_var, reading.noisy / share)
            state.last, state.last_share = reading.noisy, share
            state.variance = np.broadcast_to((reading.noise_var + spread) / (share * share), counts.shape)
        else:  # an old value drifts away from the truth by Q per slot
            model = setting.model
            state.variance = state.variance + (model.diagonal_var if model.course is None else model.one_step_var)
        return reading
