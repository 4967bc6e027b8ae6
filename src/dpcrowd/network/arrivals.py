"""When a record reaches whom: rounds from one server to every other one, over links that stay or change.

As in `spread`, a server passes a record on in the round after it has learned it, and never again. Over links that stay
this is the distance in hops.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpcrowd.arrays import Ints
from dpcrowd.network.graph import Graph

__all__ = ["arrival_rounds"]


NEVER = -1


def arrival_rounds(graph_at: Callable[[int], Graph], sources: Ints, rounds: int | None, most: int | None) -> Ints:
    """(sources, servers): the round in which each server has learned the record of a source; 0: its own, -1: never.

    graph_at  the links of a slot, counted from the one in which the records are made
    rounds    per slot; None: all of them in the first slot
    most      give up after this many rounds; None: when nobody learns anything any more
    """
    links = graph_at(0)
    arrived = np.full((links.servers, len(sources)), NEVER, dtype=np.int64)
    arrived[sources, np.arange(len(sources))] = 0
    fresh = arrived == 0
    done = 0
    while fresh.any() and (most is None or done < most):
        if rounds is not None and done and done % rounds == 0:
            links = graph_at(done // rounds)
        done += 1
        fresh = (links.hearing @ fresh.astype(np.float32) > 0) & (arrived == NEVER)
        arrived[fresh] = done
    return np.ascontiguousarray(arrived.T)
