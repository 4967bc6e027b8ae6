"""The figures with their captions, and the files beside the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpcrowd.experiments.draw import Drawn
from dpcrowd.experiments.draw.canvas import Block
from dpcrowd.experiments.figures.figure import Figure
from dpcrowd.experiments.figures.tables import by_slot_file, table_file
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.report.parameters import shares_label

__all__ = ["ShownFigure", "shown_figures"]


@dataclass(frozen=True)
class ShownFigure:
    """A figure on the page; `place` is its counterpart in the paper, `files` are its drawings and tables."""

    number: int
    title: str
    blocks: tuple[Block, ...]
    about: str
    place: str
    files: tuple[str, ...]


def shown_figures(drawings: list[Drawn], folder: Path, plan: RunPlan) -> list[ShownFigure]:
    """Return the figures in the order of the drawings; files are those that are in the folder."""
    return [_shown_figure(drawing, folder, plan) for drawing in drawings]


def _shown_figure(drawing: Drawn, folder: Path, plan: RunPlan) -> ShownFigure:
    figure = drawing.figure
    names = (drawing.svg.name, drawing.png.name, table_file(figure), by_slot_file(figure))
    where = figure.place if figure.place == "not in the paper" else f"In the paper: {figure.place}"
    return ShownFigure(
        figure.number,
        figure.title,
        drawing.blocks,
        f"{figure.about} {_shares(figure, plan)}".rstrip(),
        f"{where[0].upper()}{where[1:]}",
        tuple(name for name in names if (folder / name).is_file()),
    )


def _shares(figure: Figure, plan: RunPlan) -> str:
    """Return what the shares sum to, for figures with the paper's shares; other captions say it themselves."""
    if any(point.shares != "uniform" for point in figure.points(plan)):
        return ""
    text = shares_label(plan.servers)
    return f"{text[0].upper()}{text[1:]}."
