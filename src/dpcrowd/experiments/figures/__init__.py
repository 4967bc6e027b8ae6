"""The figures of the paper and those that we add: their simulations, their panels and their tables."""

from __future__ import annotations

from dpcrowd.experiments.figures.catalog import ADDED, FIGURES, LEDGER_NAMES, LEDGERS, RELAY_TABLE, find_figures
from dpcrowd.experiments.figures.figure import Curve, Figure, Panel, Sweep, Values

__all__ = [
    "ADDED",
    "FIGURES",
    "LEDGERS",
    "LEDGER_NAMES",
    "RELAY_TABLE",
    "Curve",
    "Figure",
    "Panel",
    "Sweep",
    "Values",
    "find_figures",
]
