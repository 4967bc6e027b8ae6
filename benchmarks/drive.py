"""A scheme driven slot by slot without the simulator: for networks and streams of which no run has to be recorded."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcrowd.filters import ProcessModel
from dpcrowd.kernels.engine import best_engine
from dpcrowd.network.hearing import Hearing
from dpcrowd.privacy import Guarantee, SeededNoise
from dpcrowd.schemes.base import Scheme, Setting, run_slot

__all__ = ["Drive"]


@dataclass(frozen=True)
class Drive:
    """Everything that is drawn before the clock starts: shares (N, 1), counts (slots, N, d) and who hears whom."""

    scheme: Scheme
    guarantee: Guarantee
    model: ProcessModel
    shares: NDArray[np.float64]
    counts: NDArray[np.int64]
    hearing: Hearing

    def seconds(self) -> float:
        """Of all slots together."""
        return float(self.slot_seconds().sum())

    def slot_seconds(self) -> NDArray[np.float64]:
        """Seconds of each slot, its noise included, from a fresh start."""
        slots, servers, regions = self.counts.shape
        setting = Setting(
            servers,
            self.model,
            self.guarantee,
            engine=best_engine(),
        )
        state = self.scheme.start(setting)
        noise = SeededNoise([np.random.SeedSequence(1)], servers, regions, engine=best_engine())
        seconds = np.empty(slots)
        for slot in range(slots):
            began = time.perf_counter()
            noise.prepare(slot)
            run_slot(self.scheme, state, slot, self.shares, self.counts[slot], noise, self.hearing)
            seconds[slot] = time.perf_counter() - began
        return seconds
