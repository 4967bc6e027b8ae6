"""MovingMedian: every slot gets the same share of the window's budget, and the median of the last few is released.

Each slot t is read once, at ε/w, so any w consecutive slots cost ε: w-event privacy by composition. The median is
computed from noisy counts alone and costs nothing more. A spike of the noise, which Uniform would publish, is dropped;
in return the release lags behind by half of the slots that it looks at.

The variance that is released, for a 95% interval, is an upper bound. A median varies no more than one of its values:
noise of variance V/share², and users who happen to be at other servers, (1/share - 1) x estimate. Each slot that it
looks at adds the process variance Q, by which the crowd moves per slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dpcrowd


@dataclass
class MovingMedianState(dpcrowd.DirectState):
    """Adds the latest estimates of each server and region, (N, d, length); NaN where there are none yet."""

    latest: NDArray[np.float64]


class MovingMedian(dpcrowd.DirectScheme):
    """`length` says of how many slots the median is taken."""

    name = "moving-median"
    kinds = frozenset({"window"})
    summary = ("alone", "every slot, ε/w", "median of the last few", "window")

    def __init__(self, length: int = 5) -> None:
        if length < 1:
            raise dpcrowd.BadInput(f"length must be at least 1; given {length}.")
        self.length = length

    def start(self, setting: dpcrowd.Setting) -> MovingMedianState:
        self.check(setting)  # refuses a guarantee that is not in `kinds`
        shape = (setting.servers, setting.regions, self.length)
        return MovingMedianState(**dpcrowd.direct_start(setting), latest=np.full(shape, np.nan))

    def plan(self, state: MovingMedianState, slot: int, shares: NDArray[np.float64]) -> dpcrowd.Plan:
        guarantee = state.setting.need_guarantee()
        due = np.ones((state.setting.servers, 1), dtype=np.bool_)
        amount = np.array([[guarantee.total // guarantee.length]])  # rounded down, in whole nano-epsilon
        return dpcrowd.Plan(slot, shares, due, amount, dpcrowd.noise_var(amount, guarantee.sensitivity))

    def perturb(
        self, state: MovingMedianState, plan: dpcrowd.Plan, counts: NDArray[np.int64], noise: dpcrowd.Noise
    ) -> dpcrowd.Reading:
        sensitivity = state.setting.need_guarantee().sensitivity
        reading = dpcrowd.perturb_counts(state.ledger, plan, counts, noise, sensitivity)  # pays, then draws
        estimate = reading.noisy / plan.shares
        state.latest = np.concatenate([state.latest[:, :, 1:], estimate[:, :, None]], axis=2)
        seen = ~np.isnan(state.latest[0, 0])
        state.last = np.median(state.latest[:, :, seen], axis=2)  # already divided by the share: `last_share` stays 1
        elsewhere = (1.0 / plan.shares - 1.0) * np.maximum(state.last, 1.0)
        moved = self.length * state.setting.model.diagonal_var
        state.variance = reading.noise_var / plan.shares**2 + elsewhere + moved
        return reading
