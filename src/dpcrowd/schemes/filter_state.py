"""The state of a scheme that filters: what it begins with, and the variance of what it estimates.

Where filters learn and slots are chosen by what is estimated, there are two of them: one that learns, of which
estimates and intervals are made, and its **pilot**, which does not learn and decides when to sample, at what price and
in which groups. So the schedule is the one without learning, to the bit; what has been learned changes estimates alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.drift import Drift, drift_var, start_drift
from dpcrowd.filters.learning import Bank, Beliefs, beliefs_of, start_bank
from dpcrowd.filters.mixed import Mixed, start_mixed
from dpcrowd.filters.splitting import DividedSums
from dpcrowd.filters.staying import StayingUsers, start_staying
from dpcrowd.privacy import Ledger, open_ledger
from dpcrowd.schemes.base import Setting

__all__ = ["FilterState", "filter_start", "filter_variance", "has_pilot"]

_FAR = 2.0
"""How far off an estimate may be, by the level of its region, before samples leave no doubt."""


@dataclass
class FilterState:
    """posterior (N, d); posterior_var (N, d), infinite where unknown, or covariances (N, d, d) with `known` (N,).

    slot  () the slot that the posterior is of, if the model has an expected course
    pilot   the filter that does not learn and decides when to sample; None: the one above decides, or a schedule does
    skipped  how many slots a server on its own has left out since then; who has a course knows it from the slots
    bank  the filters whose mean the posterior is, if the setting says that they learn
    staying  what users who stay have added to the errors; None: everybody chooses a server anew in every slot
    divided  what dividing the sums of groups has added to the errors; None: there are no groups
    drift    what samples have shown of a crowd that moves on; None: its changes are taken for independent ones
    mixed    what the consensus has averaged away; None: there is none, or its intervals are the paper's
    joint    whether regions learn from one another: not where they are read in groups, whose sizes messages do not say
    fused    sums of information vectors and matrices that a bank has just fused
    pull     by how much the consensus has just moved the posterior; None: nobody asks for it
    heard    how many priors it has just compared with the own one, which may be one of them; None likewise
    """

    setting: Setting
    ledger: Ledger | None
    posterior: Floats
    posterior_var: Floats
    known: Bools
    slot: Ints | None = field(default=None, kw_only=True)
    bank: Bank | None = field(default=None, kw_only=True)
    staying: StayingUsers | None = field(default=None, kw_only=True, metadata={"later": True})
    divided: DividedSums | None = field(default=None, kw_only=True, metadata={"later": True})
    drift: Drift | None = field(default=None, kw_only=True, metadata={"later": True})
    mixed: Mixed | None = field(default=None, kw_only=True, metadata={"later": True})
    pilot: FilterState | None = field(default=None, kw_only=True, metadata={"later": True})
    skipped: int = field(default=0, kw_only=True, metadata={"saved": False})
    joint: bool = field(default=True, kw_only=True, metadata={"saved": False})
    fused: tuple[Floats, Floats] | None = field(default=None, kw_only=True, metadata={"saved": False})
    pull: Floats | None = field(default=None, kw_only=True, metadata={"saved": False})
    heard: Floats | None = field(default=None, kw_only=True, metadata={"saved": False})

    @property
    def beliefs(self) -> Beliefs:
        """What the filters of the bank believe."""
        return beliefs_of(self.setting.model, joint=self.joint)

    @property
    def steering(self) -> FilterState:
        """The filter that decides when to sample."""
        return self if self.pilot is None else self.pilot

    def end(self, slot: int) -> None:
        """Remember which slot the posterior is of."""
        if self.slot is not None:
            self.slot = np.array(slot)

    def begin_pilot(self) -> None:
        """Let the pilot begin with the estimates of the filter that learns."""
        if self.pilot is not None:
            self.pilot.posterior, self.pilot.posterior_var = self.posterior.copy(), self.posterior_var.copy()
            self.pilot.known, self.pilot.slot = self.known.copy(), None if self.slot is None else self.slot.copy()


def filter_start(setting: Setting, *, consensus: bool = False, adaptive: bool = False) -> dict[str, Any]:
    """Return the fields of a `FilterState` before the first slot: no information, or what the course says.

    consensus  whether servers add the priors of their neighbours
    adaptive   whether slots are chosen by what is estimated
    """
    servers, regions = setting.servers, setting.regions
    matrix = setting.form == "matrix"
    course = setting.model.course is not None
    mean, var = setting.model.start(-1)
    posterior_var = np.tile(var, (servers, 1))
    if matrix:
        posterior_var = np.tile(np.diag(var) if course else np.eye(regions), (servers, 1, 1))
    ledger = None if setting.guarantee is None else open_ledger(setting.guarantee, servers, regions, setting.accounting)
    return {
        "setting": setting,
        "ledger": ledger,
        "posterior": np.tile(mean, (servers, 1)),
        "posterior_var": posterior_var,
        "known": np.full(servers, course),
        "slot": np.array(-1) if course else None,
        "bank": start_bank(setting.model, servers, -1) if _learns(setting) else None,
        "staying": _start_staying(setting),
        "drift": start_drift(posterior_var) if _own_intervals(setting) else None,
        "mixed": start_mixed(posterior_var) if consensus and _own_intervals(setting) else None,
        "pilot": _start_pilot(setting) if has_pilot(setting, adaptive) else None,
    }


def has_pilot(setting: Setting, adaptive: bool) -> bool:
    """Whether a filter that does not learn decides when to sample.

    adaptive  whether slots are chosen by what is estimated
    """
    return adaptive and _learns(setting)


def _learns(setting: Setting) -> bool:
    return setting.learn and setting.form == "diagonal"


def _start_pilot(setting: Setting) -> FilterState:
    """Return a filter that neither learns nor pays, and whose intervals nobody asks for."""
    plain = replace(setting, learn=False, guarantee=None)
    parts = filter_start(plain)
    return FilterState(**parts | {"staying": None, "drift": None})


def _own_intervals(setting: Setting) -> bool:
    """Whether errors are followed that the filter does not know of; the paper's own experiments have its intervals."""
    return setting.observation == "binomial" and setting.form == "diagonal"


def _start_staying(setting: Setting) -> StayingUsers | None:
    """Return the memory of persistent deviations before the first slot, where there are people who stay."""
    if setting.turnover == 1.0 or not _own_intervals(setting):
        return None
    return start_staying(setting.servers, setting.regions)


def filter_variance(state: FilterState) -> Floats:
    """Return the variances of estimates in diagonal form, with the errors that the filter does not know of, (N, d)."""
    variance, averaged = state.posterior_var, None
    if state.mixed is not None:
        variance, averaged = state.mixed.var, state.mixed.averaged(state.posterior_var)
    if state.staying is not None:
        variance = variance + state.staying.extra
    if state.divided is not None:
        variance = variance + np.square(state.divided.deviation)
    if state.drift is not None:
        course = state.setting.model.course
        possible = np.inf if course is None else _FAR * course.largest_level
        variance = variance + drift_var(state.drift, averaged, possible)
    return variance
