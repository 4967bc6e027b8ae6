"""dpcrowd: what a whole crowd does, known in real time by servers that do not trust each other.

    import dpcrowd
    result = dpcrowd.simulate(schemes=["dpcrowd", "dfast"], data="linear", servers=50, epsilon=1.0, runs=50, seed=0)

Everything is loaded where it is used: importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpcrowd.client.aio import AsyncClient
    from dpcrowd.client.client import Client
    from dpcrowd.errors import BadInput, BudgetExhausted, DpcrowdError
    from dpcrowd.experiments.reproduce import reproduce
    from dpcrowd.experiments.tune.tune import tune
    from dpcrowd.filters import ProcessModel
    from dpcrowd.network.graph import Graph
    from dpcrowd.network.topologies import build as build_graph
    from dpcrowd.privacy import Guarantee, ObserverLedger, SecureNoise, SeededNoise, open_ledger
    from dpcrowd.schemes.ba import BA
    from dpcrowd.schemes.base import Scheme, Setting
    from dpcrowd.schemes.bd import BD
    from dpcrowd.schemes.central import Central
    from dpcrowd.schemes.dpcrowd import DPCrowd
    from dpcrowd.schemes.dpcrowd_plus import DPCrowdPlus
    from dpcrowd.schemes.dpcrowd_w import DPCrowdW
    from dpcrowd.schemes.fast import FAST
    from dpcrowd.schemes.flooding import DBA, DBD, DFAST, DPeGaSus, DRescueDP, DSample, DUniform, Flooding
    from dpcrowd.schemes.nonprivate import NonPrivate
    from dpcrowd.schemes.pegasus import PeGaSus
    from dpcrowd.schemes.registry import SCHEMES, make_scheme
    from dpcrowd.schemes.relay import Relay
    from dpcrowd.schemes.rescuedp import RescueDP
    from dpcrowd.schemes.sample import Sample
    from dpcrowd.schemes.server import Server, ServerRelease
    from dpcrowd.schemes.tuning import Tuning
    from dpcrowd.schemes.uniform import Uniform
    from dpcrowd.sim.data import load as load_data
    from dpcrowd.sim.result import SimulationResult
    from dpcrowd.sim.simulate import simulate

__version__ = "0.1.0"

_PLACES: dict[str, tuple[str, str]] = {
    name: (module, attribute)
    for module, names in {
        "client.aio": "AsyncClient",
        "client.client": "Client",
        "errors": "BadInput BudgetExhausted DpcrowdError",
        "experiments.tune.tune": "tune",
        "experiments.reproduce": "reproduce",
        "filters": "ProcessModel",
        "network.graph": "Graph",
        "network.topologies": "build_graph=build",
        "privacy": "Guarantee ObserverLedger SecureNoise SeededNoise open_ledger",
        "schemes.ba": "BA",
        "schemes.base": "Scheme Setting",
        "schemes.bd": "BD",
        "schemes.central": "Central",
        "schemes.dpcrowd": "DPCrowd",
        "schemes.dpcrowd_plus": "DPCrowdPlus",
        "schemes.dpcrowd_w": "DPCrowdW",
        "schemes.fast": "FAST",
        "schemes.flooding": "DBA DBD DFAST DPeGaSus DRescueDP DSample DUniform Flooding",
        "schemes.nonprivate": "NonPrivate",
        "schemes.pegasus": "PeGaSus",
        "schemes.registry": "SCHEMES make_scheme",
        "schemes.relay": "Relay",
        "schemes.rescuedp": "RescueDP",
        "schemes.sample": "Sample",
        "schemes.server": "Server ServerRelease",
        "schemes.tuning": "Tuning",
        "schemes.uniform": "Uniform",
        "sim.data": "load_data=load",
        "sim.result": "SimulationResult",
        "sim.simulate": "simulate",
    }.items()
    for name, _, attribute in (entry.partition("=") for entry in names.split())
}

__all__ = [
    "BA",
    "BD",
    "DBA",
    "DBD",
    "DFAST",
    "FAST",
    "SCHEMES",
    "AsyncClient",
    "BadInput",
    "BudgetExhausted",
    "Central",
    "Client",
    "DPCrowd",
    "DPCrowdPlus",
    "DPCrowdW",
    "DPeGaSus",
    "DRescueDP",
    "DSample",
    "DUniform",
    "DpcrowdError",
    "Flooding",
    "Graph",
    "Guarantee",
    "NonPrivate",
    "ObserverLedger",
    "PeGaSus",
    "ProcessModel",
    "Relay",
    "RescueDP",
    "Sample",
    "Scheme",
    "SecureNoise",
    "SeededNoise",
    "Server",
    "ServerRelease",
    "Setting",
    "SimulationResult",
    "Tuning",
    "Uniform",
    "__version__",
    "build_graph",
    "load_data",
    "make_scheme",
    "open_ledger",
    "reproduce",
    "simulate",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'dpcrowd' has no attribute '{name}'")
    module, attribute = _PLACES[name]
    value = getattr(import_module(f"dpcrowd.{module}"), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
