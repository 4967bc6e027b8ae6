"""One point of a sweep: a few schemes under one setting, simulated in many runs, for one x value of a figure.

Points with equal content are equal, so that two figures that need the same point share its results. The key of a
point also covers the data, the models and the code that computes: stored results are never taken for those of another
version.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpcrowd.filters import ProcessModel
from dpcrowd.models.model import Model
from dpcrowd.network.topologies import TOPOLOGIES
from dpcrowd.plugins import find_plugin, make_scheme, package_of, plugin_digest, scheme_class
from dpcrowd.privacy import Accounting
from dpcrowd.schemes.base import Form, Scheme
from dpcrowd.sim.adopted import NO_MODEL
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data import DataSet
from dpcrowd.sim.fitted import apply_model
from dpcrowd.sim.tuned import Tuned

__all__ = ["NOTHING_KNOWN", "Knowledge", "Point", "SchemeEntry", "code_digest", "scheme_of"]

_COMPUTING = ("privacy", "filters", "sampling", "grouping", "network", "schemes", "models", "sim")
_NOT_COMPUTING = ("sim/backends/", "sim/export.py", "sim/plot.py")


@dataclass(frozen=True)
class SchemeEntry:
    """A scheme of a point.

    label          its name in figures and tables
    scheme         its name, or `package:Class`
    interval       sample every `interval` slots instead of adaptively
    stream_window  give a window scheme the complete stream as its window, so that it promises what a finite one does
    hops_per_slot  of relay: how many hops a record travels in one slot, or "all"; None: the scheme's default, one
    """

    label: str
    scheme: str
    interval: int | None = None
    stream_window: bool = False
    hops_per_slot: int | Literal["all"] | None = None


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What schemes know of a data set beside its own parameters.

    tuned  parameters that were tuned, each for one scheme: no other scheme gets them
    model  a process model that all filters know
    """

    tuned: tuple[Tuned, ...] = ()
    model: Model | None = None

    def of(self, scheme: str) -> Tuned | None:
        """Return what was tuned for a scheme."""
        return next((one for one in self.tuned if one.scheme == scheme), None)

    def facts(self, schemes: set[str], data: DataSet) -> dict[str, Any]:
        """Return all of it that results of these schemes depend on; nothing where nothing is known."""
        facts: dict[str, Any] = {}
        tuned = {
            one.scheme: [*_model_facts(one.model), dict(one.tuning)] for one in self.tuned if one.scheme in schemes
        }
        if tuned:
            facts["tuned"] = tuned
        if self.model is not None:
            process = apply_model(self.model, data).model
            course = process.course
            assert course is not None
            facts["process model"] = [*_model_facts(process), course.profile.tolist(), course.variance.tolist()]
            if course.scale is not None:
                facts["process model"].append(course.scale.tolist())
        return facts


NOTHING_KNOWN = Knowledge()


@dataclass(frozen=True)
class Point:
    """The simulation behind one x value; see `dpcrowd.sim.configure.configure` for the settings.

    by_slot    keep the errors of each slot, for figures over time
    most_runs  do at most this many runs, for a point that is slow
    dynamic    whether links are drawn anew in each slot; None: the default of the graph
    """

    data: str
    entries: tuple[SchemeEntry, ...]
    epsilon: float = 1.0
    density: float = 0.1
    window: int | None = None
    accounting: Accounting = "sound"
    form: Form = "diagonal"
    shares: Literal["uniform", "partition"] = "uniform"
    by_slot: bool = False
    most_runs: int | None = None
    graph: str = "random"
    dynamic: bool | None = None

    def config(
        self, data: DataSet, *, runs: int, seed: int, servers: int, knowledge: Knowledge = NOTHING_KNOWN
    ) -> SimulationConfig:
        """Return the simulation of this point."""
        configs = [
            configure(
                {entry.label: scheme_of(entry)},
                data,
                servers=servers,
                density=self.density,
                epsilon=self.epsilon,
                window=data.slots if entry.stream_window else self.window,
                runs=runs if self.most_runs is None else min(runs, self.most_runs),
                seed=seed,
                accounting=self.accounting,
                form=self.form,
                shares=self.shares,
                graph=self.graph,
                dynamic=self.dynamic,
                turnover=1.0,
                tuning=knowledge.of(entry.scheme),
                model=knowledge.model or NO_MODEL,  # the graph alone is taken from a network.toml
                learn=knowledge.model is not None,  # the paper's filters have the Q that they are given
            )
            for entry in self.entries
        ]
        return replace(configs[0], entrants=tuple(entrant for config in configs for entrant in config.entrants))

    def key(self, data: DataSet, *, seed: int, servers: int, knowledge: Knowledge = NOTHING_KNOWN) -> str:
        """Return a name for the results of this point: equal only if nothing that they depend on differs."""
        known = knowledge.facts({entry.scheme for entry in self.entries}, data)
        own = {**self._settings(), **self._plugin_facts(), **known}
        facts = {**own, "seed": seed, "servers": servers, "data": _data_facts(data), "code": code_digest()}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]

    def _settings(self) -> dict[str, Any]:
        """Return the settings that results depend on.

        A setting that was introduced later is left out where it has its default: points that do without it keep the
        key that they had before, and their stored results.
        """
        settings = asdict(self)
        for name in ("most_runs", "graph"):
            del settings[name]
        for part, name in ((settings, "dynamic"), *((entry, "hops_per_slot") for entry in settings["entries"])):
            if part[name] is None:
                del part[name]
        for entry in settings["entries"]:
            entry["whole"] = entry.pop("stream_window")  # its name in the keys of stored results
        return settings

    def _plugin_facts(self) -> dict[str, Any]:
        """Return the graph and the code of other packages that computes; nothing for a point without any."""
        facts: dict[str, Any] = {} if self.graph == "random" else {"graph": self.graph}
        if self.graph not in TOPOLOGIES and (topology := find_plugin("topology", self.graph)) is not None:
            facts["topology code"] = plugin_digest(topology.load())
        classes = {entry.scheme: scheme_class(entry.scheme) for entry in self.entries}
        codes = {name: plugin_digest(kind) for name, kind in classes.items() if package_of(kind) is not None}
        return facts | ({"scheme code": codes} if codes else {})


def scheme_of(entry: SchemeEntry) -> Scheme:
    """Return the scheme of an entry, with its options."""
    return make_scheme(entry.scheme, interval=entry.interval, hops_per_slot=entry.hops_per_slot)


def _data_facts(data: DataSet) -> dict[str, Any]:
    """Return everything about a data set that a simulation depends on."""
    model = data.model
    sample = np.ascontiguousarray(data.truth(np.random.Generator(np.random.PCG64(0))))
    return {
        "name": data.name,
        "regions": data.regions,
        "slots": data.slots,
        "truth": hashlib.sha256(sample.tobytes()).hexdigest(),
        "model": _model_facts(model),
        "change_var": data.change_var.tolist(),
        "tuning": asdict(data.tuning),
    }


def _model_facts(model: ProcessModel) -> list[Any]:
    return [np.asarray(part).tolist() for part in (model.transition, model.process_var)]


@cache
def code_digest() -> str:
    """Return a digest of all code that computes, libraries included.

    Figures, claims and commands are not part of it: they may change without a new run.
    """
    package = Path(__file__).parents[2]
    digest = hashlib.sha256(f"numpy {np.__version__} scipy {version('scipy')}".encode())
    paths = [path for layer in _COMPUTING for path in (package / layer).rglob("*.py")]
    paths.append(package / "experiments" / "points" / "point.py")
    for path in sorted(paths):
        name = path.relative_to(package).as_posix()
        if not name.startswith(_NOT_COMPUTING):
            digest.update(name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
