"""Who hears whom in a slot, as one sparse matrix: alone, one hop, flooding, or one central filter.

A message is a row of numbers; what a server hears is a sum of rows. One hop sums over J_i = N_i and i itself;
flooding over the server's connected component; a central filter over all servers of a run. The last two give many
servers the same sum, so it is computed once per audience and given to each of its members.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats
from dpcrowd.kernels.engine import Engine
from dpcrowd.network.gather import neighbour_sums

if TYPE_CHECKING:
    from dpcrowd.network.graph import Graph
    from dpcrowd.network.mixing import Mixing

__all__ = ["Hearing", "Reach", "central_hearing", "flooded_hearing", "inbox_hearing", "one_hop_hearing"]

Reach = Literal["alone", "one-hop", "flooding", "central", "relay"]


@dataclass(frozen=True, eq=False)
class Hearing:
    """Sums over what each server hears.

    matrix    sparse (audiences, messages) of ones, columns ascending; None: every server hears itself alone
    audience  (N,) which row of `matrix` is a server's; None: row i is server i's
    gain      beta of the consensus term, a number or (N, 1)
    engine    how sums are computed; see `dpcrowd.kernels.engine`
    one_hop   for a central filter: what the servers themselves hear, beside it
    graph     for records that travel: the links of this slot
    same_links  whether these are the links of the slot before
    mutual    whether row i of `matrix` also says who hears server i: links work both ways
    inbox     whether one server hears all messages; then there is no matrix
    mixing    returns what the links do to errors, if somebody asks; None: nobody knows
    """

    matrix: Any = None
    audience: NDArray[np.integer] | None = None
    gain: Floats | float = 0.0
    engine: Engine = "numpy"
    one_hop: Hearing | None = None
    mutual: bool = False
    graph: Graph | None = None
    same_links: bool = False
    inbox: bool = False
    mixing: Callable[[], Mixing] | None = None

    def sums(self, table: Floats) -> Floats:
        """Return for each server the sum of the rows of `table` that it hears, in ascending order of the senders."""
        if self.inbox:
            return _sum_in_order(table)
        if self.matrix is None:
            return table
        sums = neighbour_sums(self.matrix, table, self.engine)
        return sums if self.audience is None else sums[self.audience]


def one_hop_hearing(
    graph: Graph, gain: Floats | float, engine: Engine = "numpy", mixing: Callable[[], Mixing] | None = None
) -> Hearing:
    """Return the hearing of a slot in which each server hears its neighbours and itself."""
    return Hearing(graph.hearing, None, gain, engine, mutual=True, mixing=mixing)


def flooded_hearing(labels: NDArray[np.integer]) -> Hearing:
    """Return the hearing of flooding: each server hears its connected component; `labels` numbers these from 0."""
    return Hearing(_membership(labels), labels, 0.0)


def central_hearing(runs: int, servers: int, one_hop: Hearing | None = None) -> Hearing:
    """Return the hearing of one central filter per run; `one_hop` is what the servers hear of each other."""
    labels, membership = _centres(runs, servers)
    return Hearing(membership, labels, 0.0, "numpy", one_hop)


def inbox_hearing(gain: float, mixing: Mixing | None = None) -> Hearing:
    """Return the hearing of one live server, which adds up its inbox: its own message and those of others."""
    return Hearing(gain=gain, inbox=True, mixing=None if mixing is None else lambda: mixing)


def _sum_in_order(table: Floats) -> Floats:
    """Return the sum of all rows as a table of one row, with the bits of `neighbour_sums`: from 0.0, row after row.

    A sparse row of ones would do the same, but a live server would import SciPy for it, in its first slot.
    """
    sums = np.zeros((1, *table.shape[1:]))
    for row in table:
        sums[0] += row
    return sums


@lru_cache(8)  # links change from slot to slot, but not who reports to which centre
def _centres(runs: int, servers: int) -> tuple[NDArray[np.integer], Any]:
    labels = np.repeat(np.arange(runs), servers)
    return labels, _membership(labels)


def _membership(labels: NDArray[np.integer]) -> Any:
    from scipy.sparse import csr_matrix

    servers = len(labels)
    order = np.argsort(labels, kind="stable").astype(np.int32)
    sizes = np.bincount(labels)
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return csr_matrix((np.ones(servers), order, indptr), shape=(len(sizes), servers))
