"""Schemes without a filter: a server's estimate of the population is its last release divided by its share.

Base of Uniform, Sample, BD, BA and PeGaSus. They send nothing; `dpcrowd.schemes.flooding` makes the D- versions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.repeated import Repeated
from dpcrowd.network.hearing import Hearing
from dpcrowd.privacy import Ledger, open_ledger
from dpcrowd.schemes.base import Plan, Reading, Release, Scheme, Setting
from dpcrowd.schemes.messages import EstimateMessages

__all__ = ["DirectScheme", "DirectState", "direct_start"]


@dataclass
class DirectState:
    """last (N, d) the last released counts, made at the share last_share (N, 1); variance (N, d) of the estimate.

    repeated  what samples have shown of a crowd that moves while a value is repeated; None: nothing is learned of it
    """

    setting: Setting
    ledger: Ledger
    last: Floats
    last_share: Floats
    variance: Floats
    repeated: Repeated | None = field(default=None, kw_only=True, metadata={"later": True})


def direct_start(setting: Setting) -> dict[str, Any]:
    """Return the fields of a `DirectState` before the first slot."""
    shape = (setting.servers, setting.regions)
    guarantee = setting.need_guarantee()
    return {
        "setting": setting,
        "ledger": open_ledger(guarantee, *shape, setting.accounting),
        "last": np.full(shape, np.nan),
        "last_share": np.ones((setting.servers, 1)),
        "variance": np.full(shape, np.nan),
    }


class DirectScheme(Scheme):
    """Base of schemes that release in some slots, and repeat the last value in between."""

    kinds = frozenset({"window"})

    def message(self, state: DirectState, plan: Plan, reading: Reading) -> EstimateMessages:
        """Return silent messages: these servers work alone."""
        silent = np.zeros(state.setting.servers, dtype=np.bool_)
        return EstimateMessages(silent, state.last, state.variance)

    def fuse(self, state: Any, plan: Plan, reading: Reading, messages: EstimateMessages, hearing: Hearing) -> None:
        """Do nothing: no message arrives."""

    def release(self, state: DirectState, plan: Plan, reading: Reading) -> Release:
        silent = np.zeros(state.setting.servers, dtype=np.bool_)
        estimate = state.last / state.last_share  # an old count belongs to the share of its own slot
        return Release(plan.slot, estimate, state.variance, reading.charge > 0, reading.charge, silent)
