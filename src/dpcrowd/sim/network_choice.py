"""The network of a simulation, from what a user asks for: a name, a plug-in or a file of links."""

from __future__ import annotations

import os
from pathlib import Path

from dpcrowd.errors import BadInput, check_switches, unknown_name, whole_number
from dpcrowd.network.adjacency import parse_adjacency
from dpcrowd.network.density import lowest_density
from dpcrowd.network.topologies import TOPOLOGIES
from dpcrowd.plugins import find_plugin, installed
from dpcrowd.sim.network_file import is_network_file, read_network_file
from dpcrowd.sim.topology import NetworkSpec

__all__ = ["is_graph_file", "network_spec"]

_SERVERS = 50
_MOST_SERVERS = 10_000_000
_DENSITY = 0.1


def is_graph_file(graph: str | os.PathLike[str]) -> bool:
    """Whether the links, and with them the number of servers, come from a file."""
    name = os.fspath(graph)
    return name not in TOPOLOGIES and Path(name).exists()


def network_spec(
    graph: str | os.PathLike[str], servers: int | None, density: float | None, dynamic: bool | None
) -> NetworkSpec:
    """Return the network of a named graph or of a file; None: the defaults of `configure`."""
    check_switches(dynamic=dynamic)
    name = os.fspath(graph)
    own = name in TOPOLOGIES
    plugin = None if own or Path(name).exists() else find_plugin("topology", name)
    if not own and plugin is None and name and (Path(name).suffix or Path(name).exists()):
        return _network_from_file(Path(name), servers, dynamic)
    names = [topology for topology in TOPOLOGIES if topology != "file"]
    if name not in names and plugin is None:
        error = unknown_name("graph", name, [*names, *installed("topology")])
        raise BadInput(f"{error} The path of a file of links is allowed too.")
    servers = _SERVERS if servers is None else servers
    whole_number("servers", servers, 2, _MOST_SERVERS)
    if density is None:
        lowest = lowest_density(servers) if name == "random" else min(1.0, 2.0 / (servers - 1))
        density = max(_DENSITY, lowest)
    return NetworkSpec(name, servers, density, name == "random" if dynamic is None else dynamic)


def _network_from_file(path: Path, servers: int | None, dynamic: bool | None) -> NetworkSpec:
    if dynamic:
        raise BadInput(f"the network of '{path}' is fixed and cannot be dynamic; leave dynamic out.")
    try:
        text = read_network_file(path).text if is_network_file(path) else path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"graph file '{path}' is not UTF-8 text; give links 'a,b[,latency_ms]', one per line.") from None
    except OSError as error:
        raise BadInput(f"cannot read graph file '{path}': {error.strerror or error}.") from None
    try:
        return NetworkSpec("file", parse_adjacency(text, servers).servers, text=text)
    except BadInput as error:
        raise BadInput(f"graph file '{path}': {error}") from None
