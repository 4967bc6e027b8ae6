"""The figures with their captions, and the files that lie beside the page."""

from __future__ import annotations

from pathlib import Path

from dpcrowd.experiments.draw import Drawn
from dpcrowd.experiments.figures.figure import Figure
from dpcrowd.experiments.figures.tables import by_slot_file, table_file
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.report.html import Html, join, tag
from dpcrowd.experiments.report.parameters import shares_label

__all__ = ["contents", "gallery"]


def contents(drawn: list[Drawn]) -> Html:
    """Links to the figures."""
    links = (tag("a", f"{d.figure.number}. {d.figure.title}", href=f"#figure{d.figure.number}") for d in drawn)
    return tag("ul", *(tag("li", link) for link in links), class_="contents")


def gallery(drawn: list[Drawn], folder: Path, plan: Plan) -> Html:
    """Panels stand side by side where there is room, and one below the other on a phone."""
    return join(_figure(one, folder, plan) for one in drawn)


def _shares(figure: Figure, plan: Plan) -> str:
    """What shares sum to, below every figure that has the paper's; the others tell it themselves."""
    if any(point.shares != "uniform" for point in figure.points(plan)):
        return ""
    text = shares_label(plan.servers)
    return f"{text[0].upper()}{text[1:]}."


def _figure(drawn: Drawn, folder: Path, plan: Plan) -> Html:
    figure = drawn.figure
    # The pieces of SVG were made by `draw`, which escapes what it writes.
    parts: list[Html] = []
    for block in drawn.blocks:
        parts += (tag("div", *(Html(panel) for panel in row), class_="panels") for row in block.rows)
        parts.append(tag("div", Html(block.legend), class_="legend"))
    beside = (drawn.svg.name, drawn.png.name, table_file(figure), by_slot_file(figure))
    files = join((tag("a", name, href=name) for name in beside if (folder / name).is_file()), between=", ")
    where = figure.place if figure.place == "not in the paper" else f"In the paper: {figure.place}"
    return tag(
        "section",
        tag("h3", f"Figure {figure.number}. {figure.title}"),
        tag(
            "figure",
            tag("div", *parts, class_="card"),
            tag(
                "figcaption",
                tag("p", f"{figure.about} {_shares(figure, plan)}".rstrip()),
                tag("p", f"{where[0].upper()}{where[1:]}. Files: ", files, class_="place"),
            ),
        ),
        id=f"figure{figure.number}",
        class_="one-figure",
    )
