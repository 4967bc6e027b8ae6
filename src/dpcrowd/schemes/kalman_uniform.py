"""KalmanUniform: epsilon/w (epsilon/T) in every slot, as in `Uniform`, and a Kalman filter on these noisy counts.

    z(t) = x(t) + Lap(c w/epsilon)                     every slot, every region
    prior = A posterior(t-1),  P = A^2 M(t-1) + Q      (Eq. stdKF)
    posterior = prior + M H/R (z - H prior),  1/M = 1/P + H^2/R,  R = Var(noise) + observation variance

It shows what a filter alone gains, without any choice of slots: a scheme that samples adaptively has to beat it. Each
slot is charged epsilon/w, rounded down, whatever the counts are, so any w consecutive slots cost at most epsilon. All
servers pay in the same slots: a user who roams pays no more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.privacy import noise_var
from dpcrowd.privacy.allocation import uniform
from dpcrowd.schemes.base import Plan, Setting
from dpcrowd.schemes.filter_state import FilterState, filter_start
from dpcrowd.schemes.filtering import FilterScheme

__all__ = ["KalmanUniform"]


@dataclass
class KalmanUniformState(FilterState):
    """Adds the price of a slot, in nano-epsilon, and the variance of its noise, (1, 1) each."""

    amount: Ints
    amount_var: Floats


class KalmanUniform(FilterScheme):
    """A server that filters what `Uniform` would release, and sends nothing."""

    name = "kalman-uniform"
    kinds = frozenset({"finite", "window"})
    summary = ("alone", "every slot, ε/w (ε/T)", "Kalman", "both")

    def start(self, setting: Setting) -> KalmanUniformState:
        self.check(setting)
        guarantee = setting.need_guarantee()
        amount = np.array([[uniform(guarantee.total, guarantee.length)]])
        return KalmanUniformState(
            **filter_start(setting), amount=amount, amount_var=noise_var(amount, guarantee.sensitivity)
        )

    def plan(self, state: KalmanUniformState, slot: int, shares: Floats) -> Plan:
        assert state.ledger is not None
        prior, prior_var = self.predict(state, slot)
        due = state.ledger.remaining(slot) >= state.amount  # until the horizon has ended
        return Plan(slot, shares, due, state.amount, state.amount_var, prior, prior_var, state.known)
