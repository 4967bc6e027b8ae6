"""RescueDP's sampling, allocation and grouping, for schemes with a window guarantee and many regions.

A region is due when its PID interval has passed; it asks for p = min(phi ln(I + 1), p_max) of what the window has left,
at most epsilon_max. Regions that are due are grouped by their past releases, and each group gets one draw.

Sound accounting: the server has one remaining budget; if any region is due, all are sampled at the largest epsilon
that a due region asks for. Per-region accounting (the paper's): each region has a budget of its own, and a group is
read at the smallest epsilon of its members; a user who moves between regions pays more than epsilon.

No region asks for less than epsilon/w, what spreading the budget evenly would give; while the window has less than that
left, it waits. Without this rule the budget decays to nothing and the noise explodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import unknown_name
from dpcrowd.filters.splitting import DividedSums
from dpcrowd.grouping import group_regions
from dpcrowd.privacy import noise_var
from dpcrowd.privacy.allocation import rescue, uniform
from dpcrowd.privacy.units import NANO
from dpcrowd.sampling import pid
from dpcrowd.schemes.base import Plan, Reading, Setting, any_region, every_region
from dpcrowd.schemes.filter_state import FilterState, filter_start
from dpcrowd.schemes.filtering import FilterScheme

__all__ = ["RescueScheme", "RescueState"]


@dataclass
class RescueState(FilterState):
    """Adds the PID controllers and the releases that feed them and the grouping; both see them times today's share.

    last_release  (N, d) at the region's last sample; NaN before the first
    history       (N, kappa, d) at the server's last samples, newest last; filled (N,) how many there are
    """

    controllers: pid.PidState
    last_release: Floats
    history: Floats
    filled: Ints


class RescueScheme(FilterScheme):
    """Base of RescueDP and DPCrowdPlus.

    grouping  "dynamic" or "none"
    split     how a group's noisy sum goes back to its regions in the diagonal form: "even", or "proportional" to their
              last releases
    """

    kinds = frozenset({"window"})

    def __init__(self, grouping: str = "dynamic", split: str = "even") -> None:
        if grouping not in ("dynamic", "none"):
            raise unknown_name("grouping", grouping, ("dynamic", "none"))
        if split not in ("even", "proportional"):
            raise unknown_name("split", split, ("even", "proportional"))
        self.grouping = grouping
        self.split = split

    @property
    def adaptive(self) -> bool:
        return True

    def start(self, setting: Setting) -> RescueState:
        self.check(setting)
        shape = (setting.servers, setting.regions)
        divides = self.grouping != "none" and setting.observation == "binomial" and setting.form == "diagonal"
        return RescueState(
            **filter_start(setting, consensus=self.reach == "one-hop", adaptive=self.adaptive),
            divided=DividedSums.none(*shape) if divides and setting.model.course is None else None,
            joint=self.grouping == "none",
            controllers=pid.start(*shape, setting.tuning.integral_window),
            last_release=np.full(shape, np.nan),
            history=np.zeros((setting.servers, setting.tuning.history, setting.regions)),
            filled=np.zeros(setting.servers, dtype=np.int64),
        )

    def plan(self, state: RescueState, slot: int, shares: Floats) -> Plan:
        assert state.ledger is not None
        setting, tuning, guarantee = state.setting, state.setting.tuning, state.setting.need_guarantee()
        prior, prior_var = self.predict(state, slot)
        ask = state.controllers.next_slot <= slot
        least = uniform(guarantee.total, guarantee.length)
        largest = max(least, int(guarantee.total * tuning.epsilon_max))
        if guarantee.users == "roaming":  # servers choose their own slots: cap what any slot may cost
            largest = least
        remaining = state.ledger.remaining(slot)
        amount = rescue(remaining, state.controllers.interval, tuning.phi, tuning.p_max, largest)
        amount = np.where(remaining >= least, np.maximum(amount, least), 0)
        if setting.accounting == "sound":
            amount = np.where(ask, amount, 0).max(axis=1, keepdims=True)
            due = amount >= least
            amount = np.where(due, amount, least)
            pivot = self._group(state, due, shares)
        else:
            due = ask & (amount >= least)
            amount = np.where(due, amount, least)
            pivot = self._group(state, due, shares)
            if pivot is not None:
                amount = _smallest_in_group(amount, due, pivot)
        price = noise_var(amount, guarantee.sensitivity)
        parts = None if pivot is None or self.split == "even" else _parts(state.history[:, -1], shares, pivot)
        return Plan(slot, shares, due, amount, price, prior, prior_var, state.known, pivot, parts, ask)

    def _group(self, state: RescueState, due: Bools, shares: Floats) -> Ints | None:
        tuning, setting = state.setting.tuning, state.setting
        if self.grouping == "none" or setting.regions == 1 or not due.any():
            return None
        allowed = np.ascontiguousarray(np.broadcast_to(due, (setting.servers, setting.regions)))
        own = shares[:, None, :] * state.history
        return group_regions(own, state.filled, allowed, tuning.tau1, tuning.tau2, tuning.tau3, setting.engine)

    def adapt(self, state: RescueState, plan: Plan, reading: Reading) -> None:
        if not plan.due.any():
            return
        assert state.ledger is not None
        tuning = state.setting.tuning
        release = state.steering.posterior
        rows = np.flatnonzero(every_region(plan.due, release.shape[1]))
        released, before = release.reshape(-1)[rows], state.last_release.reshape(-1)[rows]
        intervals = state.controllers.interval.reshape(-1)
        compared = np.isfinite(before)
        if not compared.all():
            pid.schedule(state.controllers, plan.slot, rows[~compared], intervals[rows[~compared]])
        state.last_release.reshape(-1)[rows] = released
        self._remember(state, any_region(plan.due), release)
        rows, error = rows[compared], np.abs(released - before)[compared]
        error = error * np.broadcast_to(plan.shares, release.shape).reshape(-1)[rows]
        remaining = np.broadcast_to(state.ledger.remaining(plan.slot) / NANO, release.shape).reshape(-1)[rows]
        engine = state.setting.engine
        pid.rescue_step(state.controllers, plan.slot, rows, error, tuning.gains, tuning.rescue_theta, remaining, engine)

    @staticmethod
    def _remember(state: RescueState, sampled: Bools, release: Floats) -> None:
        servers = np.flatnonzero(sampled)
        state.history[servers, :-1] = state.history[servers, 1:]
        state.history[servers, -1] = release[servers]
        state.filled[servers] += 1


def _parts(release: Floats, shares: Floats, pivot: Ints) -> Floats:
    """Return each region's part of its group, in proportion to releases, each taken as at least 1.

    Where the shares differ by region, so do the server's parts of these people.
    """
    servers, regions = pivot.shape
    weight = np.maximum(release, 1.0)
    if shares.shape[1] > 1:
        weight = weight * shares
    rows = np.arange(servers)[:, None]
    place = np.where(pivot >= 0, pivot, np.arange(regions))
    total = np.bincount((rows * regions + place).ravel(), weights=weight.ravel(), minlength=servers * regions)
    return np.asarray(weight / total.reshape(servers, regions)[rows, place])


def _smallest_in_group(amount: Ints, due: Bools, pivot: Ints) -> Ints:
    """Return the amounts, with each due region's replaced by the smallest of its group."""
    servers, regions = due.shape
    rows = np.arange(servers)[:, None]
    place = np.where(due, pivot, np.arange(regions))
    least = np.full((servers, regions), np.iinfo(np.int64).max)
    np.minimum.at(least, (np.broadcast_to(rows, place.shape), place), np.broadcast_to(amount, place.shape))
    return np.where(due, least[rows, place], amount)
