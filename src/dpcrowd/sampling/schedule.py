"""Schedules that public configuration fixes in advance: every I slots, staggered, or in lockstep.

`fixed(I)` and `lockstep(I)` are the same slots for every server; `staggered(I)` gives server i the slots with
(t - phase_i) mod I = 0, with public phases spread over the graph, so that at every slot somebody nearby has
fresh data. Since the slots are known in advance, so is the number of samples, and each gets an equal part of the
budget.
"""

from __future__ import annotations

from functools import lru_cache
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Ints
from dpcrowd.errors import BadInput

__all__ = [
    "all_meet",
    "check_interval",
    "due",
    "samples_due",
    "samples_in_horizon",
    "samples_in_window",
    "spread_phases",
]


_MOST_PHASES = 256  # no graph tells more of them apart, and each costs memory for every server
_MOST_SLOTS = 1 << 14  # in which servers have to meet
_MOST_REMEMBERED = 1 << 14  # ends of links of a graph whose phases are remembered


def check_interval(interval: int) -> int:
    """Return the interval, or refuse anything but a whole number of slots >= 1."""
    is_number = issubclass(type(interval), Real) and type(interval) is not bool
    if not is_number or not 1 <= interval < float("inf") or interval != int(interval):
        raise BadInput(f"sampling interval must be a whole number of slots >= 1; given {interval}.")
    return int(interval)


def due(slot: int, interval: int, phases: Ints) -> NDArray[np.bool_]:
    """Return which servers sample in `slot`, in the shape of `phases`."""
    return np.asarray((slot - phases) % interval == 0)


def samples_due(slot: int | Ints, samples: int | Ints, length: int, offsets: Ints) -> NDArray[np.bool_]:
    """Whether the count floor((n t - offset) / w) steps in a slot: exactly n times in any w slots.

    samples  n, one number, or an array of several that `offsets` goes with
    offsets  from 0 to w - 1, by server
    """
    count = slot * samples - offsets
    return np.asarray(count - count // length * length < samples)  # a remainder; NumPy's own takes three times as long


def all_meet(samples: int, length: int, offsets: Ints) -> bool:
    """Return whether every server samples in one slot with some other, that one with another, and so on to all of them.

    Where n divides w it never does, unless all of them sample in every slot: w/n groups of servers take turns. In long
    windows only the beginning counts.
    """
    slots = np.arange(min(length, _MOST_SLOTS))[:, None]
    due_in = samples_due(slots, samples, length, np.asarray(offsets))
    met = np.zeros(due_in.shape[1], dtype=np.bool_)
    met[:1] = True
    while True:
        wider = due_in[(due_in & met).any(axis=1)].any(axis=0) | met
        if (wider == met).all():
            return bool(met.all())
        met = wider


def samples_in_horizon(horizon: int, interval: int, phases: Ints) -> Ints:
    """Return how many samples each server takes in slots 0 .. horizon - 1."""
    return -(-(horizon - phases % interval) // interval)


def samples_in_window(window: int, interval: int) -> int:
    """Return the most samples that any window of consecutive slots can hold: ceil(w/I)."""
    return -(-window // interval)


def spread_phases(indptr: NDArray[np.integer], indices: NDArray[np.integer], interval: int) -> Ints:
    """Return phases 0 .. I - 1 for staggered sampling, so that every server often hears fresh data.

    The choice is greedy, in ascending id: a server takes the phase in which fewest of its listeners (its neighbours and
    itself) hear a sample already; ties go to the phase heard least often, then to the one rarest in the network so far.
    (To look at the neighbours' own phases only is worse than chance on a grid: two neighbours of one listener need not
    be neighbours.) Of phases that are still tied, the smallest suits short intervals, and the one farthest around
    the circle of I slots from all that is heard suits long ones: both are tried, and the result with less silence on
    average is taken. It depends on the public graph alone: every server computes the same.
    """
    width = min(interval, _MOST_PHASES)
    links = [np.ascontiguousarray(part, dtype=np.int64).tobytes() for part in (indptr, indices)]
    spread = _spread if len(indices) <= _MOST_REMEMBERED else _spread.__wrapped__
    return spread(*links, width) * interval // width


@lru_cache(maxsize=256)
def _spread(indptr: bytes, indices: bytes, width: int) -> Ints:
    """Return the better of both choices; a planner asks for the same small graphs hundreds of times."""
    links = np.frombuffer(indptr, dtype=np.int64), np.frombuffer(indices, dtype=np.int64)
    near, far = (_greedy_phases(*links, width, farthest=farthest) for farthest in (False, True))
    return far if _silence(*links, width, far) < _silence(*links, width, near) else near


def _greedy_phases(indptr: NDArray[np.integer], indices: NDArray[np.integer], width: int, *, farthest: bool) -> Ints:
    servers = len(indptr) - 1
    listeners = np.insert(indices, indptr[1:], np.arange(servers))  # a server's neighbours, and itself after them
    ends = (indptr + np.arange(servers + 1)).tolist()
    circle = np.arange(width)
    phases = np.empty(servers, dtype=np.int64)
    voices = np.zeros((servers, width), dtype=np.int32)  # how many samples each server hears in each phase
    overall = np.zeros(width, dtype=np.int64)
    for server in range(servers):
        reached = listeners[ends[server] : ends[server + 1]]
        around = voices[reached]
        hearers = np.add.reduce(around > 0, axis=0, dtype=np.int64)
        last = circle
        if farthest:
            apart = np.abs(circle[:, None] - hearers.nonzero()[0])
            last = -np.minimum.reduce(np.minimum(apart, width - apart), axis=1, initial=width)
        phase = int(np.lexsort((last, overall, np.add.reduce(around, axis=0), hearers))[0])
        phases[server] = phase
        voices[reached, phase] += 1
        overall[phase] += 1
    return phases


def _silence(indptr: NDArray[np.integer], indices: NDArray[np.integer], width: int, phases: Ints) -> int:
    """Return the longest time between two samples that a server hears, in slots, summed over the servers."""
    servers = np.arange(len(indptr) - 1)
    listener = np.concatenate([np.repeat(servers, np.diff(indptr)), servers])  # a server hears itself, too
    voices = np.concatenate([phases[indices], phases])
    order = np.lexsort((voices, listener))
    listener, voices = listener[order], voices[order]
    first = np.searchsorted(listener, servers)
    following = np.append(voices[1:], 0)
    following[np.append(first[1:], len(voices)) - 1] = voices[first] + width  # around the circle
    return int(np.maximum.reduceat(following - voices, first).sum()) if len(servers) else 0
