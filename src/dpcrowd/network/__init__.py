"""Networks: graphs, how they are drawn, who hears whom, sums over neighbours, and the costs of communication.

A batch of runs is one network: the disjoint union of the runs' graphs. Every array of the engine has a leading axis
of runs * servers entries, run by run, so that one sparse product serves the complete batch. The layer is pure: no I/O,
no clock, and no random number that does not come from a generator passed in.
"""

from dpcrowd.network.adjacency import parse_adjacency
from dpcrowd.network.gather import neighbour_sums
from dpcrowd.network.graph import Graph, union
from dpcrowd.network.random_graph import RandomGraph
from dpcrowd.network.topologies import TOPOLOGIES, build

__all__ = ["TOPOLOGIES", "Graph", "RandomGraph", "build", "neighbour_sums", "parse_adjacency", "union"]
