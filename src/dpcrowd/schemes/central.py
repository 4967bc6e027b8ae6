"""Central: one filter that hears every sample of every server, to see what exchanging them one hop at a time costs.

The servers sample, pay and adapt exactly as in DPCrowd (a horizon) or DPCrowd+ (a window), hearing their neighbours;
beside them one filter per run sums y and Y over *all* servers, and its estimate is what is released. So the difference
between the two is what one-hop communication costs, on the same samples. It bounds nothing else: a scheme that samples
other slots, or whose model is better, can have a smaller error. It is not a system to deploy, since one place would
have to be trusted; its samples are private all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput
from dpcrowd.network.hearing import Hearing
from dpcrowd.privacy import Noise
from dpcrowd.schemes.base import Form, Plan, Reading, Release, Scheme, Setting
from dpcrowd.schemes.dpcrowd import DPCrowd
from dpcrowd.schemes.dpcrowd_plus import DPCrowdPlus
from dpcrowd.schemes.dpcrowd_w import DPCrowdW
from dpcrowd.schemes.filter_state import FilterState, filter_start
from dpcrowd.schemes.filtering import FilterScheme
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.sampled import Sampling

__all__ = ["Central"]


@dataclass
class CentralState:
    """The scheme that the servers run, its state, and the central filter's."""

    scheme: FilterScheme
    inner: Any
    centre: FilterState


class Central(Scheme):
    """Options are those of DPCrowd and DPCrowd+; with a window and an interval it samples on that schedule."""

    name = "central"
    kinds = frozenset({"finite", "window"})
    summary = ("central", "as DPCrowd (finite) or DPCrowd+ (window)", "Kalman over all servers' samples", "both")
    reach = "central"
    message_vectors = 2  # info_vec and info_mat, to the centre

    def value_bytes(self, regions: int, form: Form) -> int:
        return 16 * regions if form == "diagonal" else 8 * regions * (1 + regions)

    def __init__(self, sampling: Sampling = "adaptive", interval: int | None = None, grouping: str = "dynamic") -> None:
        DPCrowd(sampling, interval), DPCrowdPlus(grouping)  # refuse now what the servers could not run later
        if interval is not None and grouping != "dynamic":
            raise BadInput("a fixed schedule reads every region alone; leave grouping out, or the interval.")
        self.sampling, self.interval, self.grouping = sampling, interval, grouping

    def start(self, setting: Setting) -> CentralState:
        self.check(setting)
        scheme: FilterScheme
        if setting.need_guarantee().kind == "finite":
            scheme = DPCrowd(self.sampling, self.interval)
        elif self.interval is not None:
            scheme = DPCrowdW(self.sampling, self.interval)
        else:
            scheme = DPCrowdPlus(self.grouping)
        inner: Any = scheme.start(setting)
        centre = FilterState(**filter_start(setting))
        centre.joint = inner.joint
        centre.divided = None if inner.divided is None else replace(inner.divided)
        return CentralState(scheme, inner, centre)

    def plan(self, state: CentralState, slot: int, shares: NDArray[np.float64]) -> Plan:
        return state.scheme.plan(state.inner, slot, shares)

    def perturb(self, state: CentralState, plan: Plan, counts: NDArray[np.int64], noise: Noise) -> Reading:
        return state.scheme.perturb(state.inner, plan, counts, noise)

    def message(self, state: CentralState, plan: Plan, reading: Reading) -> InfoMessages:
        messages: InfoMessages = state.scheme.message(state.inner, plan, reading)
        return messages

    def fuse(self, state: CentralState, plan: Plan, reading: Reading, messages: InfoMessages, hearing: Hearing) -> None:
        prior, prior_var = state.scheme.predict(state.centre, plan.slot)
        state.scheme.fuse(state.inner, plan, reading, messages, hearing.one_hop or Hearing())
        state.scheme.absorb(
            state.centre, prior, prior_var, _at_the_centre(state, plan, reading, messages, (prior, prior_var)), hearing,
            plan.slot,
        )  # fmt: skip
        state.scheme.follow_errors(state.centre, plan, reading, prior_var, prior)
        state.centre.end(plan.slot)

    def release(self, state: CentralState, plan: Plan, reading: Reading) -> Release:
        return state.scheme.release(state.centre, plan, reading)


def _at_the_centre(
    state: CentralState, plan: Plan, reading: Reading, messages: InfoMessages, prior: tuple[Floats, Floats]
) -> InfoMessages:
    """Return the messages as the centre reads them, which knows who read which sums.

    What a sum says of one region is what the others leave of it. A server subtracts what it expects of them itself; the
    centre may expect something else, and with the servers' numbers it would never notice that all of its regions
    together are more than the sum.
    """
    if plan.pivot is None or state.inner.setting.model.course is None:
        return messages
    runs = len(prior[0])
    expected, expected_var = (np.repeat(part, len(plan.shares) // runs, axis=0) for part in prior)
    read = state.scheme.message(state.inner, replace(plan, prior=expected, prior_var=expected_var), reading)
    return replace(messages, info_vec=read.info_vec, info_mat=read.info_mat)
