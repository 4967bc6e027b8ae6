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
    if isinstance(interval, bool) or not 1 <= interval < float("inf") or interval != int(interval):
        raise BadInput(f"sampling interval must be a whole number of slots >= 1; given {interval}.")
    return int(interval)


def due(slot: int, interval: int, phases: Ints) -> NDArray[np.bool_]:
    """Which servers sample in `slot`, shape of `phases`."""
    return np.asarray((slot - phases) % interval == 0)


def samples_in_horizon(horizon: int, interval: int, phases: Ints) -> Ints:
    """How many samples each server takes in slots 0 .. horizon - 1."""
    return -(-(horizon - phases % interval) // interval)


def samples_in_window(window: int, interval: int) -> int:
    """The most samples that any window of consecutive slots can hold: ceil(w/I)."""
    return -(-window // interval)


def spread_phases(indptr: NDArray[np.integer], indices: NDArray[np.integer], interval: int) -> Ints:
    """Phases 0 .. I - 1 for staggered sampling, so that those whom a server hears speak in different slots.

    Greedy, in ascending id: a server takes the phase that fewest of its listeners (its neighbours and itself) hear from
    somebody already; ties go to the phase heard least often, then to the one rarest in the whole network so far,
    then to the smallest. To look at the neighbours' own phases only is worse than chance on a grid: two neighbours of
    one listener need not be neighbours. The result depends on the public graph alone: every server computes the same.
    """
    servers = len(indptr) - 1
    phases = np.empty(servers, dtype=np.int64)
    heard = np.zeros((servers, interval), dtype=np.int32)  # by whom, in which phase, how many
    overall = np.zeros(interval, dtype=np.int64)
    for server in range(servers):
        listeners = np.append(indices[indptr[server] : indptr[server + 1]], server)
        around = heard[listeners]
        phase = int(np.lexsort((overall, around.sum(axis=0), np.count_nonzero(around, axis=0)))[0])
        phases[server] = phase
        heard[listeners, phase] += 1
        overall[phase] += 1
    return phases
