"""How the report was made: versions, seed, machine, run time, and the command that repeats it."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath

from dpcrowd.__about__ import __version__
from dpcrowd.experiments.figures import ADDED, FIGURES, RELAY_TABLE
from dpcrowd.experiments.points.plan import QUICK_RUNS, RUNS, RunPlan

__all__ = ["Facts", "command", "how_it_was_made"]

_LIBRARIES = ("numpy", "scipy", "numba", "networkx", "joblib", "pyarrow", "matplotlib")


def _versions() -> dict[str, str]:
    return {"dpcrowd": __version__, "Python": platform.python_version()} | {
        name: _installed(name) for name in _LIBRARIES
    }


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _cores() -> int:
    """Return the number of cores that this process may use, or of the machine where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Facts:
    """How the results were obtained.

    seconds         time from the start to the writing of the page
    runs            number of runs of all points together
    runs_from_disk  how many of them were on disk already
    """

    seconds: float
    runs: int
    runs_from_disk: int = 0
    versions: Mapping[str, str] = field(default_factory=_versions)
    cores: int = field(default_factory=_cores)
    system: str = field(default_factory=lambda: f"{platform.system()}, {platform.machine()}")


def command(plan: RunPlan, numbers: set[int], *, relay: bool) -> str:
    """Return what to type for the same results; the folder of the report is the reader's choice.

    numbers  the figures of the report
    relay    whether the report has the table of relay
    """
    words = ["dpcrowd", "reproduce"]
    figures = (*FIGURES, ADDED) if plan.added else FIGURES
    if not relay or numbers != {figure.number for figure in figures}:
        words += [*(str(number) for number in sorted(numbers)), *([RELAY_TABLE] if relay else [])]
    if plan.quick:
        words.append("--quick")
    if plan.runs != (QUICK_RUNS if plan.quick else RUNS):
        words += ["--runs", str(plan.runs)]
    words += ["--seed", str(plan.seed)]
    for option, values in (("--scheme", plan.added.schemes), ("--data", plan.added.data)):
        words += [option, ",".join(values)] if values else []
    words += ["--graph", plan.added.graph] if plan.added.graph != "random" else []
    paths = [] if plan.data_dir is None else ["--data-dir", _path(plan.data_dir)]
    for file in plan.tuning:
        paths += ["--tuning", _path(file)]
    for file in plan.model_files:
        paths += ["--model", _path(file)]
    return " ".join([shlex.join(words), *paths])


def _path(text: str) -> str:
    """Quote a path for a shell; "~" replaces the home folder of whoever made the report, which is private."""
    path = PurePath(text)
    if path.is_absolute() and path.is_relative_to(Path.home()):
        return f"~/{shlex.quote(path.relative_to(Path.home()).as_posix())}"
    return shlex.quote(text)


def how_it_was_made(plan: RunPlan, facts: Facts) -> dict[str, str]:
    """Return the facts that the page lists below the command, by name."""
    new_runs = facts.runs - facts.runs_from_disk
    runs = f"{plan.runs} per point, {facts.runs} in total"
    if facts.runs_from_disk:
        runs += (
            f"; {facts.runs_from_disk} were on disk already, and {new_runs} were done now, which the run time covers"
        )
    return {
        "Seed": str(plan.seed),
        "Runs": runs,
        "Run time": _duration(facts.seconds),
        "Machine": f"{facts.cores} core{'s' if facts.cores != 1 else ''}, {facts.system}",
        "Versions": ", ".join(f"{name} {number}" for name, number in facts.versions.items()),
    }


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
