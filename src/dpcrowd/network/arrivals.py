"""When records arrive: the rounds that they take from one server to every other one, over links that stay or change.

As in `spread`, a server passes a record on in the round after it has learned it, and never again. Over links that stay,
the number of rounds is the distance in hops.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpcrowd.arrays import Ints
from dpcrowd.network.graph import Graph

__all__ = ["arrival_rounds"]


NEVER = -1


def arrival_rounds(graph_at: Callable[[int], Graph], sources: Ints, rounds: int | None, most: int | None) -> Ints:
    """Return the round in which each server learns the record of a source, (sources, servers); 0: its own, -1: never.

    graph_at  gives the links of a slot, counted from the one in which the records are made
    rounds    rounds per slot; None: all rounds are in the first slot
    most      stop after this many rounds; None: when no server learns anything any more
    """
    links = graph_at(0)
    arrived = np.full((links.servers, len(sources)), NEVER, dtype=np.int64)
    arrived[sources, np.arange(len(sources))] = 0
    fresh = arrived == 0
    played = 0
    while fresh.any() and (most is None or played < most):
        if rounds is not None and played and played % rounds == 0:
            links = graph_at(played // rounds)
        played += 1
        fresh = (links.hearing @ fresh.astype(np.float32) > 0) & (arrived == NEVER)
        arrived[fresh] = played
    return np.ascontiguousarray(arrived.T)
