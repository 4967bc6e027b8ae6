"""The figures with their captions, and the files that lie beside the page."""

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
    """A figure as the page shows it; `place` is where the paper has it, `files` what can be had of it."""

    number: int
    title: str
    blocks: tuple[Block, ...]
    about: str
    place: str
    files: tuple[str, ...]


def shown_figures(drawn: list[Drawn], folder: Path, plan: RunPlan) -> list[ShownFigure]:
    """In the order in which they were drawn; files are those that are in the folder."""
    return [_shown(one, folder, plan) for one in drawn]


def _shown(drawn: Drawn, folder: Path, plan: RunPlan) -> ShownFigure:
    figure = drawn.figure
    beside = (drawn.svg.name, drawn.png.name, table_file(figure), by_slot_file(figure))
    where = figure.place if figure.place == "not in the paper" else f"In the paper: {figure.place}"
    return ShownFigure(
        figure.number,
        figure.title,
        drawn.blocks,
        f"{figure.about} {_shares(figure, plan)}".rstrip(),
        f"{where[0].upper()}{where[1:]}",
        tuple(name for name in beside if (folder / name).is_file()),
    )


def _shares(figure: Figure, plan: RunPlan) -> str:
    """What shares sum to, below every figure that has the paper's; the others tell it themselves."""
    if any(point.shares != "uniform" for point in figure.points(plan)):
        return ""
    text = shares_label(plan.servers)
    return f"{text[0].upper()}{text[1:]}."
