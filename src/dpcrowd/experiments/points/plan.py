"""The scope of a reproduction: data sets, x values, runs. The paper does not give its x values: these are ours.

A quick plan takes every second or third value and few runs. Its points are points of the full plan, so that a full run
can continue from them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from dpcrowd.errors import BadInput, whole_number
from dpcrowd.experiments.points.point import Knowledge
from dpcrowd.models.file import read_model
from dpcrowd.models.model import Model
from dpcrowd.sim.config import MOST_RUNS
from dpcrowd.sim.data import PAPER_SETS, DataSet, load
from dpcrowd.sim.data.counts import PUBLISHED
from dpcrowd.sim.data.places import find_published
from dpcrowd.sim.fitted import apply_model
from dpcrowd.sim.tuned import Tuned, read_tuned

__all__ = ["QUICK_RUNS", "RUNS", "Additions", "RunPlan", "make_plan"]

RUNS = 50
QUICK_RUNS = 3
SINGLE = ("linear", "flu")
MULTI = ("multi-linear", "multi-flu")


@dataclass(frozen=True)
class Additions:
    """Schemes, data sets and a graph that figure 10 adds to the paper's: names of plug-ins, or `package:object`."""

    schemes: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    graph: str = "random"

    def __bool__(self) -> bool:
        return self != Additions()


_NOTHING = Additions()


@dataclass(frozen=True, eq=False)
class RunPlan:
    """Everything that figures and claims need to know besides the results.

    data          loaded sets by name, in the paper's order
    missing       sets that are not on this machine, and how to get them
    tuned         parameter files in use, by data set; each is for one scheme
    models        process models in use, by data set; all filters know them
    data_dir      the folder that was searched first, as the user wrote it, for the command in the report
    tuning        the parameter files, as the user wrote them, for the same purpose
    model_files   the files of the models, likewise
    added         the additions of figure 10, if any
    default_*     the value of a setting while another one is swept
    matrix_runs   how many runs a point of the matrix form gets, which is slow
    table_links   the kinds of links in the table of relay: drawn anew in each slot, or static
    """

    data: Mapping[str, DataSet]
    missing: Mapping[str, str] = field(default_factory=dict)
    tuned: Mapping[str, tuple[Tuned, ...]] = field(default_factory=dict)
    models: Mapping[str, Model] = field(default_factory=dict)
    data_dir: str | None = None
    tuning: tuple[str, ...] = ()
    model_files: tuple[str, ...] = ()
    added: Additions = _NOTHING
    runs: int = RUNS
    seed: int = 0
    servers: int = 50
    quick: bool = False
    densities: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    density_epsilons: tuple[float, ...] = (0.1, 1.0)
    intervals: tuple[int, ...] = (1, 2, 3, 5, 8, 12, 20, 30, 50)
    epsilons: tuple[float, ...] = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    windows: tuple[int, ...] = (20, 40, 60, 80, 100, 120)
    default_density: float = 0.1
    default_epsilon: float = 1.0
    default_window: int = 100
    matrix_runs: int = 20
    table_links: tuple[Literal["dynamic", "static"], ...] = ("dynamic", "static")

    def knowledge(self, data: str) -> Knowledge:
        """Return what schemes know of a data set beside its own parameters."""
        return Knowledge(tuple(self.tuned.get(data, ())), self.models.get(data))

    @property
    def single(self) -> tuple[str, ...]:
        """The available sets with one region."""
        return tuple(name for name in SINGLE if name in self.data)

    @property
    def multi(self) -> tuple[str, ...]:
        """The available sets with many regions."""
        return tuple(name for name in MULTI if name in self.data)


def make_plan(
    *,
    runs: int | None = None,
    quick: bool = False,
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    tuning: Iterable[str | os.PathLike[str]] = (),
    models: Iterable[str | os.PathLike[str]] = (),
    added: Additions = _NOTHING,
) -> RunPlan:
    """Return the full or the quick plan for the data sets that are on this machine."""
    runs = (QUICK_RUNS if quick else RUNS) if runs is None else runs
    whole_number("runs", runs, 2, MOST_RUNS, ", since intervals need two")
    whole_number("seed", seed, 0)
    files = tuple(os.fspath(path) for path in tuning)
    tuned = _read_tuning_files(files)
    model_files = tuple(os.fspath(path) for path in models)
    fitted = _read_models(model_files)
    data, missing = {}, {}
    for name in PAPER_SETS:
        try:
            if name in PUBLISHED:
                find_published(name, PUBLISHED[name][0], data_dir)
        except BadInput as error:
            missing[name] = str(error)
            continue
        data[name] = load(name, data_dir=data_dir)
        for file in tuned.get(name, ()):
            file.check_fits(data[name])
        if name in fitted:
            apply_model(fitted[name], data[name])  # refuses a model of other regions
    for name in added.data:
        if name not in missing:
            data.setdefault(name, load(name, data_dir=data_dir))
    folder = None if data_dir is None else os.fspath(data_dir)
    plan = RunPlan(
        data,
        missing,
        tuned,
        fitted,
        data_dir=folder,
        tuning=files,
        model_files=model_files,
        added=added,
        runs=runs,
        seed=seed,
    )
    return _make_quick(plan) if quick else plan


def _read_models(paths: Iterable[str]) -> dict[str, Model]:
    models: dict[str, Model] = {}
    for path in paths:
        model = read_model(path)
        if model.data not in PUBLISHED:
            raise BadInput(
                f"'{path}' was fitted on '{model.data_name}', which no figure uses; allowed: models of "
                f"{', '.join(PUBLISHED)}."
            )
        if model.data in models:
            raise BadInput(f"'{path}' is the second model of '{model.data_name}'; give one per data set.")
        models[model.data] = model
    return models


def _read_tuning_files(paths: Iterable[str | os.PathLike[str]]) -> dict[str, tuple[Tuned, ...]]:
    tuned: dict[str, tuple[Tuned, ...]] = {}
    for path in paths:
        file = read_tuned(path)
        if file.data not in PAPER_SETS:
            raise BadInput(
                f"'{path}' is for '{file.data}', which no figure uses; allowed: tuning files for "
                f"{', '.join(PAPER_SETS)}."
            )
        if any(other.scheme == file.scheme for other in tuned.get(file.data, ())):
            raise BadInput(
                f"'{path}' is the second tuning file for {file.scheme} on '{file.data}'; give one per data set and "
                "scheme."
            )
        tuned[file.data] = (*tuned.get(file.data, ()), file)
    return tuned


def _make_quick(plan: RunPlan) -> RunPlan:
    return replace(
        plan,
        quick=True,
        densities=(0.05, 0.2, 0.8),
        intervals=(1, 3, 8, 20, 50),
        epsilons=(0.1, 0.4, 1.0),
        windows=(20, 100),
        matrix_runs=2,
        table_links=("dynamic",),
    )
