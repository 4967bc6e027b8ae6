"""Flooding and averaging: every server runs a scheme alone, floods its estimate, and averages all that it hears.

The paper's straightforward extension of single-server schemes (Section "Basic Idea"): DFAST, DRescueDP, DBD, DBA,
DPeGaSus, and our versions of the baselines. A server floods in every slot ("continuous" in the paper's table of
schemes). The average never feeds back into the scheme below: each server's own estimate is the one it has alone.

The variance of the average of n independent errors is the sum of their variances over n^2. The errors of filters are
not independent: all miss the same change of the truth. How much of them is shared follows from the variances of a
filter (`filters.shared_errors`); in the matrix form, and in the paper's own experiments, the variance released is the
square of the mean standard deviation, which no correlation can exceed. Values that are repeated (`Sample`) have both
parts: their samples are independent, and what was added to the variance since then is the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import BadInput
from dpcrowd.filters.shared_errors import average_var, follow_shared, start_shared
from dpcrowd.network.hearing import Hearing
from dpcrowd.privacy import Noise
from dpcrowd.schemes.ba import BA
from dpcrowd.schemes.base import Plan, Reading, Release, Scheme, Setting
from dpcrowd.schemes.bd import BD
from dpcrowd.schemes.fast import FAST
from dpcrowd.schemes.filter_state import FilterState, filter_variance
from dpcrowd.schemes.kalman_uniform import KalmanUniform
from dpcrowd.schemes.messages import EstimateMessages
from dpcrowd.schemes.pegasus import PeGaSus
from dpcrowd.schemes.rescuedp import RescueDP
from dpcrowd.schemes.sample import Sample
from dpcrowd.schemes.uniform import Uniform

__all__ = [
    "DBA",
    "DBD",
    "DFAST",
    "DKalmanUniform",
    "DPeGaSus",
    "DRescueDP",
    "DSample",
    "DUniform",
    "Flooding",
]


@dataclass
class FloodingState:
    """The state of the scheme below, and the average.

    fresh_var  the mean variance of the samples of which values are repeated; None: other schemes, and the paper's own
               experiments, which have its intervals
    shared     what the error of the filter below shares with those of others, (N, d); None likewise
    """

    inner: Any
    average: NDArray[np.float64]
    average_var: NDArray[np.float64]
    fresh_var: NDArray[np.float64] | None = field(default=None, kw_only=True, metadata={"later": True})
    shared: NDArray[np.float64] | None = field(default=None, kw_only=True, metadata={"later": True})


class Flooding(Scheme):
    """The wrapper; subclasses name what they wrap, and `Flooding(scheme)` wraps any scheme that works alone."""

    wraps: ClassVar[type[Scheme] | None] = None
    name = "flooding"
    kinds = frozenset({"finite", "window"})
    summary = ("flooding", "as the scheme below", "average of all", "as the scheme below")
    reach = "flooding"
    message_vectors = 2  # estimate and variance

    def __init__(self, inner: Scheme | None = None, **options: Any) -> None:
        if inner is None:
            if self.wraps is None:
                raise BadInput("flooding needs a scheme to wrap.")
            inner = self.wraps(**options)
        if inner.reach != "alone":
            raise BadInput(f"flooding wraps schemes that work alone; '{inner.name}' hears {inner.reach}.")
        self.inner = inner
        self.keeps_raw_counts = inner.keeps_raw_counts

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.wraps is not None:
            _, sampling, fusion, guarantee = cls.wraps.summary
            cls.kinds = cls.wraps.kinds
            cls.summary = ("flooding", sampling, f"{fusion}, average of all", guarantee)

    def start(self, setting: Setting) -> FloodingState:
        self.check(setting)
        unknown = np.full((setting.servers, setting.regions), np.nan)
        inner = self.inner.start(setting)
        state = FloodingState(inner, unknown, unknown)
        if setting.observation == "binomial" and self.inner.independent_samples:
            state.fresh_var = np.zeros_like(unknown)
        elif setting.observation == "binomial" and isinstance(inner, FilterState) and setting.form == "diagonal":
            state.shared = start_shared(inner.posterior_var)
        return state

    def plan(self, state: FloodingState, slot: int, shares: NDArray[np.float64]) -> Plan:
        return self.inner.plan(state.inner, slot, shares)

    def perturb(self, state: FloodingState, plan: Plan, counts: NDArray[np.int64], noise: Noise) -> Reading:
        reading = self.inner.perturb(state.inner, plan, counts, noise)
        before = state.inner.posterior_var if state.shared is not None else None
        self.inner.fuse(state.inner, plan, reading, self.inner.message(state.inner, plan, reading), Hearing())
        if state.shared is not None and before is not None and plan.prior_var is not None:
            carried = state.inner.setting.model.carried(plan.slot)
            after = state.inner.posterior_var
            state.shared = follow_shared(state.shared, before, plan.prior_var, after, carried)
        return reading

    def message(self, state: FloodingState, plan: Plan, reading: Reading) -> EstimateMessages:
        local = self.inner.release(state.inner, plan, reading)
        return EstimateMessages(_has_estimate(local), local.estimate, local.variance)

    def fuse(
        self, state: FloodingState, plan: Plan, reading: Reading, messages: EstimateMessages, hearing: Hearing
    ) -> None:
        sums = hearing.sums(messages.table())
        regions = (sums.shape[1] - 1) // 3
        senders = sums[:, -1:]
        with np.errstate(invalid="ignore", divide="ignore"):
            state.average = sums[:, :regions] / senders
            if self.inner.independent_errors:
                state.average_var = sums[:, regions : 2 * regions] / (senders * senders)
            elif state.fresh_var is not None:
                mean_var = sums[:, regions : 2 * regions] / senders
                if plan.due.any():
                    state.fresh_var = mean_var
                sampled = np.minimum(state.fresh_var, mean_var)
                state.average_var = sampled / senders + (mean_var - sampled)
            else:
                deviation, mean_var = sums[:, 2 * regions : -1] / senders, sums[:, regions : 2 * regions] / senders
                part = np.ones(1) if state.shared is None else self._shared_part(state)
                state.average_var = average_var(part, deviation, mean_var, senders)

    @staticmethod
    def _shared_part(state: FloodingState) -> NDArray[np.float64]:
        """Return which part of the variance of each server's own estimate is that of errors that all share, (N, d)."""
        inner, shared = state.inner, state.shared
        own = inner.posterior_var - shared
        if inner.staying is not None:  # each server has its own users
            own = own + inner.staying.extra
        variance = filter_variance(inner)
        return np.asarray(
            1.0 - np.divide(own, variance, out=np.zeros_like(own), where=np.isfinite(variance) & (variance > 0.0))
        )

    def release(self, state: FloodingState, plan: Plan, reading: Reading) -> Release:
        local = self.inner.release(state.inner, plan, reading)
        return Release(plan.slot, state.average, state.average_var, local.sampled, reading.charge, _has_estimate(local))


def _has_estimate(release: Release) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(release.estimate).all(axis=1))


class DFAST(Flooding):
    """FAST, flooded and averaged."""

    name = "dfast"
    wraps = FAST


class DRescueDP(Flooding):
    """RescueDP, flooded and averaged."""

    name = "drescuedp"
    wraps = RescueDP


class DBD(Flooding):
    """BD, flooded and averaged."""

    name = "dbd"
    wraps = BD


class DBA(Flooding):
    """BA, flooded and averaged."""

    name = "dba"
    wraps = BA


class DPeGaSus(Flooding):
    """PeGaSus, flooded and averaged."""

    name = "dpegasus"
    wraps = PeGaSus


class DUniform(Flooding):
    """Uniform, flooded and averaged."""

    name = "duniform"
    wraps = Uniform


class DSample(Flooding):
    """Sample, flooded and averaged."""

    name = "dsample"
    wraps = Sample


class DKalmanUniform(Flooding):
    """KalmanUniform, flooded and averaged."""

    name = "dkalman-uniform"
    wraps = KalmanUniform
