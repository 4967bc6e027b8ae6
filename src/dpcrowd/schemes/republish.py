"""The common part of BD and BA (Kellaris et al., budget distribution and budget absorption), w-event privacy.

A test asks whether the counts have moved: dis = mean over regions |x - last release|, made noisy at epsilon/(2w). It
looks at raw counts, so it is paid in every slot in which it runs, whether something is published or not. If dis exceeds
c/epsilon_t (c the sensitivity), the error that publishing would make, the counts are published with epsilon_t from the
other half of the budget:

    BD  epsilon_t = (epsilon/2 - published in the last w - 1 slots)/2
    BA  epsilon_t = (epsilon/2w)(1 + skipped), after which `skipped` slots are nullified (not tested, not published)

The first slot is published untested. Sums of |x - last| are whole numbers, so the test's noise is discrete too.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats, Ints
from dpcrowd.privacy import Noise, WindowLedger, noise_scale, noise_var
from dpcrowd.privacy.allocation import dissimilarity
from dpcrowd.schemes.base import Plan, Reading, Setting
from dpcrowd.schemes.direct import DirectScheme, DirectState, direct_start

__all__ = ["RepublishScheme", "RepublishState"]


_TEST_READ = 1  # the noise stream of the test; publications use stream 0
_LARGEST = 2.0**53  # no honest release is beyond this


@dataclass
class RepublishState(DirectState):
    """published: what publications have cost in the window; skipped, nullified_until (N, 1): BA's memory."""

    published: WindowLedger
    skipped: Ints
    nullified_until: Ints


class RepublishScheme(DirectScheme):
    """Base of BD and BA: test, publish or keep the last release."""

    def start(self, setting: Setting) -> RepublishState:
        self.check(setting)
        guarantee = setting.need_guarantee()
        none = np.zeros((setting.servers, 1), dtype=np.int64)
        return RepublishState(
            **direct_start(setting),
            published=WindowLedger(guarantee.total // 2, guarantee.length, setting.servers, setting.regions, "sound"),
            skipped=none,
            nullified_until=none.copy(),
        )

    @abstractmethod
    def _price(self, state: RepublishState, slot: int) -> Ints:
        """Return epsilon_t of a publication in this slot, (N, 1)."""

    def plan(self, state: RepublishState, slot: int, shares: Floats) -> Plan:
        guarantee = state.setting.need_guarantee()
        price = self._price(state, slot)
        if guarantee.users == "roaming":  # servers publish in slots of their own: cap what any slot may cost
            price = np.minimum(price, dissimilarity(guarantee.total, guarantee.length))
        due = (state.nullified_until <= slot) & (price > 0)
        amount = np.where(due, price, 1)
        return Plan(slot, shares, due, amount, noise_var(amount, guarantee.sensitivity))

    def perturb(self, state: RepublishState, plan: Plan, counts: Ints, noise: Noise) -> Reading:
        guarantee = state.setting.need_guarantee()
        tested = plan.due & np.isfinite(state.last[:, :1])
        publish = plan.due & ~tested
        test_charge = np.where(tested, dissimilarity(guarantee.total, guarantee.length), 0)
        if tested.any():
            state.ledger.spend(plan.slot, test_charge)
            # Where shares change, the last release is brought to today's share, as a whole number like the counts.
            last_counts = np.rint(state.last * (plan.shares / state.last_share)).clip(-_LARGEST, _LARGEST)
            last_counts = np.where(tested, last_counts, 0.0).astype(np.int64)
            # In integers: one person changes the sum by 1, which a float64 above 2^53 could make 2.
            moved = np.abs(counts - last_counts).sum(axis=1, keepdims=True)
            price = np.maximum(test_charge, 1)
            noisy = noise.noisy(plan.slot, moved, price, guarantee.sensitivity, tested, read=_TEST_READ)
            publish |= tested & (noisy / counts.shape[1] > noise_scale(plan.amount, guarantee.sensitivity))
        charge = np.where(publish, plan.amount, 0)
        state.ledger.spend(plan.slot, charge)
        state.published.spend(plan.slot, charge)
        fresh = noise.noisy(
            plan.slot, counts, plan.amount, guarantee.sensitivity, np.broadcast_to(publish, counts.shape)
        )
        state.last = np.where(publish, fresh, state.last)
        state.last_share = np.where(publish, plan.shares, state.last_share)
        self._after(state, plan, publish)
        return Reading(np.where(publish, fresh, 0.0), plan.noise_var, charge + test_charge)

    def _after(self, state: RepublishState, plan: Plan, publish: NDArray[np.bool_]) -> None:
        """Update the state after a publication, or a slot without one."""
