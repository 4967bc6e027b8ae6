"""BA (Kellaris et al.): budget absorption, epsilon_t = (epsilon/2w)(1 + skipped), then `skipped` slots nullified."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Ints
from dpcrowd.privacy.allocation import absorption, dissimilarity
from dpcrowd.schemes.base import Plan
from dpcrowd.schemes.republish import RepublishScheme, RepublishState

__all__ = ["BA"]


class BA(RepublishScheme):
    """Budget absorption: a publication takes the shares of the slots that were skipped before it."""

    name = "ba"
    summary = ("alone", "noisy test each slot; shares of the skipped slots", "last value", "window")

    def _price(self, state: RepublishState, slot: int) -> Ints:
        guarantee = state.setting.need_guarantee()
        return absorption(guarantee.total, guarantee.length, state.skipped)

    def _after(self, state: RepublishState, plan: Plan, publish: NDArray[np.bool_]) -> None:
        guarantee = state.setting.need_guarantee()
        used = plan.amount // dissimilarity(guarantee.total, guarantee.length) - 1  # shares beyond the slot's own
        state.nullified_until = np.where(publish, plan.slot + 1 + used, state.nullified_until)
        state.skipped = np.where(publish, 0, state.skipped + plan.due)
