"""BD (Kellaris et al.): budget distribution, epsilon_t = (epsilon/2 - published in the last w - 1 slots)/2."""

from __future__ import annotations

from dpcrowd.arrays import Ints
from dpcrowd.privacy.allocation import distribution
from dpcrowd.schemes.republish import RepublishScheme, RepublishState

__all__ = ["BD"]


class BD(RepublishScheme):
    """Budget distribution: each publication takes half of what is left."""

    name = "bd"
    summary = ("alone", "noisy test each slot; half of the rest of ε/2", "last value", "window")

    def _price(self, state: RepublishState, slot: int) -> Ints:
        guarantee = state.setting.need_guarantee()
        return distribution(guarantee.total, guarantee.total // 2 - state.published.remaining(slot))
