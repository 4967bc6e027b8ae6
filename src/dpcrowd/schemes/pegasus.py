"""PeGaSus (Chen et al.): perturb every slot, group slots that look alike, smooth by the group's median.

A slot has epsilon/w: the perturber 0.8 of it, the grouper 0.2, both paid in every slot. The grouper keeps a group of
slots open while Sum|c - mean| of its raw counts, the new one included, plus Lap(8/eps_g) stays below
theta + Lap(4/eps_g) with theta = 5/eps_g; the threshold's noise is drawn once a group. The count that closes a group
has been read by that group's test, so it stands alone: were it to open the next group, two tests would read it and
the grouper would cost it twice. The released value is the median of the noisy counts of the open group so far. Regions
are independent.

The open group keeps raw counts across slots, so this scheme is for the simulator only. n Sum|c - mean| is a whole
number for a group of n slots, so all noise is discrete. The loops over groups are `dpcrowd.kernels.pegasus`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.kernels.engine import compiled
from dpcrowd.kernels.pegasus import scaled_deviation, smooth
from dpcrowd.privacy import Noise, noise_scale, noise_var
from dpcrowd.privacy.allocation import uniform
from dpcrowd.schemes.base import Plan, Reading, Setting
from dpcrowd.schemes.direct import DirectScheme, DirectState, direct_start

__all__ = ["PeGaSus"]


_THRESHOLD_READ, _DEVIATION_READ = 1, 2
_LONGEST_GROUP = 256  # a public limit on memory: a group this long is closed whatever its counts are


@dataclass
class PegasusState(DirectState):
    """The open group of each (server, region).

    raw, ordered  (N, d, longest): its raw counts, and its noisy counts by share in ascending order
    size          (N, d) how many slots it has
    threshold     (N, d) its noisy threshold
    """

    raw: Ints
    ordered: Floats
    size: Ints
    threshold: Floats


class PeGaSus(DirectScheme):
    """Perturber, grouper and smoother."""

    name = "pegasus"
    summary = ("alone", "every slot ε/w: perturber 0.8, grouper 0.2", "median of the group", "window")
    keeps_raw_counts = True

    def start(self, setting: Setting) -> PegasusState:
        self.check(setting)
        shape = (setting.servers, setting.regions)
        return PegasusState(
            **direct_start(setting),  # last: medians of counts by share, so last_share stays 1
            raw=np.zeros((*shape, _LONGEST_GROUP), dtype=np.int64),
            ordered=np.zeros((*shape, _LONGEST_GROUP)),
            size=np.zeros(shape, dtype=np.int64),
            threshold=np.zeros(shape),
        )

    def plan(self, state: PegasusState, slot: int, shares: Floats) -> Plan:
        guarantee = state.setting.need_guarantee()
        every = np.ones((state.setting.servers, 1), dtype=np.bool_)
        amount = np.array([[uniform(guarantee.total, 5 * guarantee.length) * 5]])
        return Plan(slot, shares, every, amount, noise_var(amount, guarantee.sensitivity))

    def perturb(self, state: PegasusState, plan: Plan, counts: Ints, noise: Noise) -> Reading:
        unit = state.setting.need_guarantee().sensitivity
        every = np.ones(counts.shape, dtype=np.bool_)
        grouper = plan.amount // 5
        perturber = plan.amount - grouper
        whole = np.ones((len(counts), 1), dtype=np.int64)
        state.ledger.spend(plan.slot, whole * grouper)
        state.ledger.spend(plan.slot, whole * perturber)
        noisy = noise.noisy(plan.slot, counts, perturber, unit, every)
        zeros = np.zeros_like(counts)
        threshold = 5.0 * noise_scale(grouper, unit) + noise.noisy(
            plan.slot, zeros, grouper, 4 * unit, every, read=_THRESHOLD_READ
        )
        scaled = np.empty_like(counts)
        engine = state.setting.engine
        (compiled(scaled_deviation, engine) or scaled_deviation)(state.raw, state.size, counts, scaled)
        members = state.size + 1
        noisy_deviation = (
            noise.noisy(plan.slot, scaled, grouper, 8 * unit * members, every, read=_DEVIATION_READ) / members
        )
        untested = (state.size == 0) | (state.size >= state.raw.shape[-1])
        closes = ~untested & (noisy_deviation >= state.threshold)
        fresh = untested | closes
        state.threshold = np.where(fresh, threshold, state.threshold)
        released = np.empty(counts.shape)
        (compiled(smooth, engine) or smooth)(
            state.raw, state.ordered, state.size, fresh, counts, noisy / plan.shares, released
        )
        state.size[closes] = 0
        state.last = released
        return Reading(noisy, plan.noise_var, whole * plan.amount)
