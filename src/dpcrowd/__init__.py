"""dpcrowd: what a complete crowd does, known in real time by servers that do not trust each other.

    import dpcrowd
    result = dpcrowd.simulate(schemes=["dpcrowd", "dfast"], data="linear", servers=50, epsilon=1.0, runs=50, seed=0)

Everything is loaded where it is used: importing this package costs next to nothing.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpcrowd.__about__ import __version__

if TYPE_CHECKING:
    from dpcrowd.client.aio import AsyncClient
    from dpcrowd.client.client import Client
    from dpcrowd.errors import BadInput, BrokenPlugin, BudgetExhausted, DpcrowdError
    from dpcrowd.experiments.reproduce import reproduce
    from dpcrowd.experiments.tune.tune import tune
    from dpcrowd.filters import ProcessModel
    from dpcrowd.models.file import read_model
    from dpcrowd.models.model import Model
    from dpcrowd.network.graph import Graph
    from dpcrowd.network.hearing import Hearing
    from dpcrowd.network.topologies import build as build_graph
    from dpcrowd.plugins import make_scheme
    from dpcrowd.privacy import (
        Guarantee,
        Ledger,
        Noise,
        ObserverLedger,
        SecureNoise,
        SeededNoise,
        noise_var,
        open_ledger,
    )
    from dpcrowd.schemes.ba import BA
    from dpcrowd.schemes.base import Plan, Reading, Release, Scheme, Setting
    from dpcrowd.schemes.bd import BD
    from dpcrowd.schemes.central import Central
    from dpcrowd.schemes.direct import DirectScheme, DirectState, direct_start
    from dpcrowd.schemes.dpcrowd import DPCrowd
    from dpcrowd.schemes.dpcrowd_plus import DPCrowdPlus
    from dpcrowd.schemes.dpcrowd_w import DPCrowdW
    from dpcrowd.schemes.fast import FAST
    from dpcrowd.schemes.filter_state import FilterState, filter_start
    from dpcrowd.schemes.filtering import FilterScheme
    from dpcrowd.schemes.flooding import (
        DBA,
        DBD,
        DFAST,
        DKalmanUniform,
        DPeGaSus,
        DRescueDP,
        DSample,
        DUniform,
        Flooding,
    )
    from dpcrowd.schemes.kalman_uniform import KalmanUniform
    from dpcrowd.schemes.messages import EstimateMessages, InfoMessages, Messages
    from dpcrowd.schemes.nonprivate import NonPrivate
    from dpcrowd.schemes.past import Past
    from dpcrowd.schemes.pegasus import PeGaSus
    from dpcrowd.schemes.perturb import perturb_counts
    from dpcrowd.schemes.registry import SCHEMES
    from dpcrowd.schemes.relay import Relay
    from dpcrowd.schemes.rescuedp import RescueDP
    from dpcrowd.schemes.sample import Sample
    from dpcrowd.schemes.server import Server
    from dpcrowd.schemes.tuning import Tuning
    from dpcrowd.schemes.uniform import Uniform
    from dpcrowd.sim.data import DataSet, FixedData
    from dpcrowd.sim.data import load as load_data
    from dpcrowd.sim.data.counts import counts_from_array
    from dpcrowd.sim.fit import fit
    from dpcrowd.sim.fit_releases import fit_releases
    from dpcrowd.sim.planner.plan import NetworkPlan, plan
    from dpcrowd.sim.result import SimulationResult
    from dpcrowd.sim.simulate import simulate

_PLACES: dict[str, tuple[str, str]] = {
    name: (module, attribute)
    for module, names in {
        "client.aio": "AsyncClient",
        "client.client": "Client",
        "errors": "BadInput BrokenPlugin BudgetExhausted DpcrowdError",
        "experiments.tune.tune": "tune",
        "experiments.reproduce": "reproduce",
        "filters": "ProcessModel",
        "models.file": "read_model",
        "models.model": "Model",
        "network.graph": "Graph",
        "network.hearing": "Hearing",
        "network.topologies": "build_graph=build",
        "plugins": "make_scheme",
        "privacy": "Guarantee Ledger Noise ObserverLedger SecureNoise SeededNoise noise_var open_ledger",
        "schemes.ba": "BA",
        "schemes.base": "Plan Reading Release Scheme Setting",
        "schemes.bd": "BD",
        "schemes.central": "Central",
        "schemes.direct": "DirectScheme DirectState direct_start",
        "schemes.dpcrowd": "DPCrowd",
        "schemes.dpcrowd_plus": "DPCrowdPlus",
        "schemes.dpcrowd_w": "DPCrowdW",
        "schemes.fast": "FAST",
        "schemes.filter_state": "FilterState filter_start",
        "schemes.filtering": "FilterScheme",
        "schemes.flooding": "DBA DBD DFAST DKalmanUniform DPeGaSus DRescueDP DSample DUniform Flooding",
        "schemes.kalman_uniform": "KalmanUniform",
        "schemes.messages": "EstimateMessages InfoMessages Messages",
        "schemes.nonprivate": "NonPrivate",
        "schemes.past": "Past",
        "schemes.pegasus": "PeGaSus",
        "schemes.perturb": "perturb_counts",
        "schemes.registry": "SCHEMES",
        "schemes.relay": "Relay",
        "schemes.rescuedp": "RescueDP",
        "schemes.sample": "Sample",
        "schemes.server": "Server",
        "schemes.tuning": "Tuning",
        "schemes.uniform": "Uniform",
        "sim.data": "DataSet FixedData load_data=load",
        "sim.data.counts": "counts_from_array",
        "sim.fit": "fit",
        "sim.fit_releases": "fit_releases",
        "sim.planner.plan": "NetworkPlan plan",
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
    "BrokenPlugin",
    "BudgetExhausted",
    "Central",
    "Client",
    "DKalmanUniform",
    "DPCrowd",
    "DPCrowdPlus",
    "DPCrowdW",
    "DPeGaSus",
    "DRescueDP",
    "DSample",
    "DUniform",
    "DataSet",
    "DirectScheme",
    "DirectState",
    "DpcrowdError",
    "EstimateMessages",
    "FilterScheme",
    "FilterState",
    "FixedData",
    "Flooding",
    "Graph",
    "Guarantee",
    "Hearing",
    "InfoMessages",
    "KalmanUniform",
    "Ledger",
    "Messages",
    "Model",
    "NetworkPlan",
    "Noise",
    "NonPrivate",
    "ObserverLedger",
    "Past",
    "PeGaSus",
    "Plan",
    "ProcessModel",
    "Reading",
    "Relay",
    "Release",
    "RescueDP",
    "Sample",
    "Scheme",
    "SecureNoise",
    "SeededNoise",
    "Server",
    "Setting",
    "SimulationResult",
    "Tuning",
    "Uniform",
    "__version__",
    "build_graph",
    "counts_from_array",
    "direct_start",
    "filter_start",
    "fit",
    "fit_releases",
    "load_data",
    "make_scheme",
    "noise_var",
    "open_ledger",
    "perturb_counts",
    "plan",
    "read_model",
    "reproduce",
    "simulate",
    "tune",
]


_RENAMED = {"ServerRelease": "Release"}
"""Old names of what is still there, until version 0.3."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        old, name = name, _RENAMED[name]
        text = f"dpcrowd.{old} is called dpcrowd.{name} now; the old name goes with version 0.3."
        warnings.warn(text, DeprecationWarning, stacklevel=2)
    if name not in _PLACES:
        raise AttributeError(f"module 'dpcrowd' has no attribute '{name}'")
    module, attribute = _PLACES[name]
    value = getattr(import_module(f"dpcrowd.{module}"), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
