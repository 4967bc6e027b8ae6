"""What all benchmarks share: alternating contestants, the best of several rounds, and one way to print a table.

Machines are noisy and shared, so contestants take turns within one process and each keeps its best round: what
disturbs one disturbs the others too, and the best round is the least disturbed. Ratios of such times carry over to
other machines far better than the times themselves. Everything runs on one core.

A target that is missed is printed as such; with `--check` on the command line it also makes the script fail.
"""

from __future__ import annotations

# ruff: noqa: E402
import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is loaded: linear algebra on one core

import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from rich.console import Console
from rich.table import Table

__all__ = ["Target", "alternate", "per_second", "print_table", "print_targets", "seconds_of", "si"]

ROUNDS = 5
_WIDTH = 118

_console = Console(width=_WIDTH, highlight=False)


@dataclass(frozen=True)
class Target:
    """One thing that has to be reached; `value` and `bound` are in the unit that `unit` names."""

    what: str
    value: float
    bound: float
    unit: str = ""
    at_least: bool = True

    @property
    def reached(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def seconds_of(work: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def alternate(contestants: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, float]:
    """The best of `rounds` times of each contestant, which take turns. A contestant returns its own seconds."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            times[name].append(contestant())
    return {name: min(values) for name, values in times.items()}


def si(value: float) -> str:
    """A figure with three digits and a prefix: 12.3 M, 456 k."""
    for size, prefix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{prefix}"
    return f"{value:.3g}"


def per_second(count: float, seconds: float) -> str:
    """A rate as text."""
    return f"{si(count / seconds)}/s"


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
    """A table; the first column is text, the others are figures."""
    table = Table()
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number > 0)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    _console.print(f"\n[bold]{title}[/bold]")
    _console.print(table)
    if note:
        _console.print(note)


def print_targets(targets: Sequence[Target]) -> None:
    """What had to be reached and what was; then the machine. Exits with 1 if `--check` was given and one was missed."""
    rows = [
        (
            target.what,
            f"{si(target.value)}{target.unit}",
            f"{'>=' if target.at_least else '<='} {si(target.bound)}{target.unit}",
            "reached" if target.reached else "MISSED",
        )
        for target in targets
    ]
    print_table("Targets", ("what", "measured", "target", ""), rows)
    _console.print(_machine())
    if "--check" in sys.argv[1:] and not all(target.reached for target in targets):
        sys.exit(1)


def _machine() -> str:
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}){load}; Python {platform.python_version()}, "
        f"NumPy {version('numpy')}, dpcrowd {version('dpcrowd')}"
    )
