"""Schedules that public configuration fixes in advance: every I slots, staggered, or in lockstep.

`fixed(I)` and `lockstep(I)` are the same slots for every server; `staggered(I)` gives server i the slots with
(t - phase_i) mod I = 0, with public phases spread over the graph, so that at every slot somebody nearby has
fresh data. Since the slots are known in advance, so is the number of samples, and each gets an equal part of the
budget.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import BadInput

__all__ = ["check_interval", "due", "samples_in_horizon", "samples_in_window", "spread_phases"]

Ints = NDArray[np.int64]


def check_interval(interval: int) -> int:
    """A whole number of slots >= 1."""
    if isinstance(interval, bool) or interval != int(interval) or interval < 1:
        raise BadInput(f"sampling interval must be a whole number of slots >= 1; given {interval}.")
    return int(interval)


def due(slot: int, interval: int, phases: Ints) -> NDArray[np.bool_]:
    """Which servers sample in `slot`, shape of `phases`."""
    return np.asarray((slot - phases) % interval == 0)


def samples_in_horizon(horizon: int, interval: int, phases: Ints) -> Ints:
    """How many samples each server takes in slots 0 .. horizon - 1."""
    return np.maximum(0, -(-(horizon - phases) // interval))


def samples_in_window(window: int, interval: int) -> int:
    """The most samples that any window of consecutive slots can hold: ceil(w/I)."""
    return -(-window // interval)


def spread_phases(indptr: NDArray[np.integer], indices: NDArray[np.integer], interval: int) -> Ints:
    """Phases 0 .. I - 1 for staggered sampling: greedy, each server takes the phase rarest around it.

    Servers are visited in ascending id; ties go to the phase rarest in the whole network so far, then to the
    smallest. The result depends on the public graph alone, so every server computes the same.
    """
    servers = len(indptr) - 1
    phases = np.full(servers, -1, dtype=np.int64)
    overall = np.zeros(interval, dtype=np.int64)
    for server in range(servers):
        heard = phases[indices[indptr[server] : indptr[server + 1]]]
        nearby = np.bincount(heard[heard >= 0], minlength=interval)
        phase = int(np.lexsort((overall, nearby))[0])
        phases[server] = phase
        overall[phase] += 1
    return phases
