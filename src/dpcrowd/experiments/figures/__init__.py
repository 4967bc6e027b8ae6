"""The figures of the paper, one a module, and those that we add."""

from __future__ import annotations

from dpcrowd.errors import unknown_name
from dpcrowd.experiments.figures import (
    communication,
    density,
    epsilon,
    epsilon_regions,
    error_analysis,
    interval,
    partition,
    plugins,
    time,
    window,
)
from dpcrowd.experiments.figures.figure import Curve, Figure, Panel

__all__ = ["ADDED", "FIGURES", "Curve", "Figure", "Panel", "find_figures"]

_MODULES = (time, density, interval, epsilon, communication, window, epsilon_regions, partition, error_analysis)

FIGURES: tuple[Figure, ...] = tuple(module.FIGURE for module in _MODULES)

ADDED: Figure = plugins.FIGURE
"""Drawn only where schemes, data or a network of other packages are added."""


def find_figures(wanted: tuple[str, ...], *, added: bool = False) -> tuple[Figure, ...]:
    """Figures by number or name, in the order of their numbers; all of them if none is named."""
    figures = (*FIGURES, ADDED) if added else FIGURES
    known = {key: figure for figure in figures for key in (str(figure.number), figure.name)}
    for name in wanted:
        if name not in known:
            raise unknown_name("figure", name, known)
    chosen = {known[name].number for name in wanted}
    return tuple(figure for figure in figures if not wanted or figure.number in chosen)
