"""Past: the process model alone. Nothing is read, nothing is paid for and nothing is sent.

Every slot is estimated by what the model expects of it, with the variance that the past had around that. It is the
baseline that a release has to beat: what anybody who has the public model could have guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import BadInput
from dpcrowd.network.hearing import Hearing
from dpcrowd.privacy import Noise
from dpcrowd.schemes.base import Plan, Reading, Release, Scheme, Setting
from dpcrowd.schemes.messages import EstimateMessages

__all__ = ["Past"]


@dataclass
class PastState:
    """There is nothing to remember."""

    setting: Setting


class Past(Scheme):
    """What the model says, whatever happens."""

    name = "past"
    kinds = frozenset()
    summary = ("alone", "never", "the model alone", "none")
    may_skip = True
    needs_model = True

    def start(self, setting: Setting) -> PastState:
        if setting.model.course is None:
            raise BadInput(
                f"scheme '{self.name}' releases what a process model expects, and none was given; fit one on public "
                "data with 'dpcrowd fit', and give it with --model (in Python: model=...)."
            )
        return PastState(setting)

    def plan(self, state: PastState, slot: int, shares: NDArray[np.float64]) -> Plan:
        never = np.zeros((state.setting.servers, 1), dtype=np.bool_)
        return Plan(slot, shares, never, np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1)))

    def perturb(self, state: PastState, plan: Plan, counts: NDArray[np.int64], noise: Noise) -> Reading:
        """Return nothing: the counts are not looked at."""
        return Reading(np.zeros(counts.shape), plan.noise_var, np.zeros((len(counts), 1), dtype=np.int64))

    def message(self, state: PastState, plan: Plan, reading: Reading) -> EstimateMessages:
        """Return silent messages."""
        nothing = np.zeros((state.setting.servers, state.setting.regions))
        return EstimateMessages(np.zeros(state.setting.servers, dtype=np.bool_), nothing, nothing)

    def fuse(
        self, state: PastState, plan: Plan, reading: Reading, messages: EstimateMessages, hearing: Hearing
    ) -> None:
        """Do nothing: no message arrives."""

    def release(self, state: PastState, plan: Plan, reading: Reading) -> Release:
        servers = state.setting.servers
        mean, var = (np.tile(part, (servers, 1)) for part in state.setting.model.start(plan.slot))
        silent = np.zeros(servers, dtype=np.bool_)
        return Release(plan.slot, mean, var, plan.due, reading.charge, silent)
