"""Uniform: epsilon/w in every slot. With `Sample`, the baseline that every adaptive scheme has to beat."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats
from dpcrowd.filters import ProcessModel, observation_var
from dpcrowd.privacy import Noise, noise_var
from dpcrowd.privacy.allocation import uniform
from dpcrowd.schemes.base import Plan, Reading, Setting
from dpcrowd.schemes.direct import DirectScheme, DirectState, direct_start
from dpcrowd.schemes.perturb import perturb_counts

__all__ = ["Uniform", "expected_miss"]


class Uniform(DirectScheme):
    """Every slot gets the same share of the window's budget."""

    name = "uniform"
    summary = ("alone", "every slot, ε/w", "last value", "window")
    independent_errors = True

    def start(self, setting: Setting) -> DirectState:
        self.check(setting)
        return DirectState(**direct_start(setting))

    def _price(self, setting: Setting) -> int:
        guarantee = setting.need_guarantee()
        return uniform(guarantee.total, guarantee.length)

    def _due(self, setting: Setting, slot: int) -> bool:
        return True

    def plan(self, state: DirectState, slot: int, shares: NDArray[np.float64]) -> Plan:
        setting = state.setting
        due = np.full((setting.servers, 1), self._due(setting, slot))
        amount = np.array([[self._price(setting)]])
        return Plan(slot, shares, due, amount, noise_var(amount, setting.need_guarantee().sensitivity))

    def perturb(self, state: DirectState, plan: Plan, counts: NDArray[np.int64], noise: Noise) -> Reading:
        setting = state.setting
        reading = perturb_counts(state.ledger, plan, counts, noise, setting.need_guarantee().sensitivity)
        if plan.due.any():
            share = plan.shares
            spread = observation_var(setting.observation, share, setting.model.one_step_var, reading.noisy / share)
            state.last, state.last_share = reading.noisy, share
            state.variance = np.broadcast_to((reading.noise_var + spread) / (share * share), counts.shape)
        else:
            age = plan.slot % setting.need_guarantee().length
            state.variance = np.maximum(state.variance + _added_by_slot(setting.model, plan.slot, age), 0.0)
        return reading


def _added_by_slot(model: ProcessModel, slot: int, age: int) -> Floats:
    """Return what a slot adds to the variance (d,) of a value that is `age` slots old."""
    if model.course is None:
        return model.diagonal_var
    return expected_miss(model, slot, age) - expected_miss(model, slot - 1, age - 1)


def expected_miss(model: ProcessModel, slot: int, age: int) -> Floats:
    """Return the mean square (d,) of how far the truth of a slot is from that of `age` slots before.

    Without an expected course the truth is a random walk, which drifts by Q per slot. A course says where it goes: the
    last value misses that, and what changes beside it.
    """
    if model.course is None:
        return np.asarray(age * model.diagonal_var)
    course = model.course
    expected = course.mean(slot) - course.mean(slot - age)
    now, before = (course.settled_var(one, model.transition) for one in (slot, slot - age))
    return np.asarray(np.square(expected) + now + (1.0 - 2.0 * model.carried(slot, age)) * before)
