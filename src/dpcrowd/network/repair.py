"""Links for isolated servers: they are joined to each other in random pairs, and an odd one out to any server.

K isolated servers cost ceil(K / 2) new links, the fewest that can serve them, so that a sparse graph stays as sparse
as it was asked to be. None of the new links can exist already, because one of its ends had no link at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Ints

__all__ = ["join_isolated", "repair_draws"]


def repair_draws(rng: np.random.Generator, isolated: int) -> NDArray[np.float64]:
    """Draw the random numbers that `join_isolated` needs for `isolated` isolated servers, shape (2, isolated)."""
    return rng.random((2, isolated)) if isolated else np.zeros((2, 0))


def join_isolated(
    servers: int, graph: NDArray[Any], isolated: NDArray[Any], draws: NDArray[np.float64]
) -> tuple[Ints, Ints, Ints]:
    """Return new links (graph, server, server) for the isolated servers of many graphs of equal size at once.

    graph     (K,) which graph each isolated server is in
    isolated  (K,) its number within that graph, 0 .. servers - 1
    draws     (2, K) uniform numbers: the random order within a graph, and the odd one's pick

    The new links come sorted by graph, and those of one graph depend on its own servers and draws only.
    """
    if not isolated.size:
        none = np.zeros(0, dtype=np.int64)
        return none, none, none
    order = np.lexsort((draws[0], graph))
    where, who = graph[order].astype(np.int64), isolated[order].astype(np.int64)
    place = np.arange(who.size)
    first = np.flatnonzero(np.append(True, where[1:] != where[:-1]))
    sizes = np.diff(np.append(first, who.size))
    rank = place - np.repeat(first, sizes)
    heads = np.flatnonzero(rank % 2 == 0)
    paired = rank[heads] + 1 < np.repeat(sizes, sizes)[heads]
    pick = (draws[1][order][heads] * (servers - 1)).astype(np.int64)
    anybody = pick + (pick >= who[heads])  # uniform over the other servers: skip the server itself
    partner = np.where(paired, who[np.minimum(heads + 1, who.size - 1)], anybody)
    return where[heads], who[heads], partner
