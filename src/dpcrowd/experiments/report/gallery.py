"""The figures with their captions, and the files that lie beside the page."""

from __future__ import annotations

from pathlib import Path

from dpcrowd.experiments.draw import Drawn
from dpcrowd.experiments.report.html import Html, join, tag
from dpcrowd.experiments.tables import by_slot_file, table_file

__all__ = ["contents", "gallery"]


def contents(drawn: list[Drawn]) -> Html:
    """Links to the figures."""
    links = (tag("a", f"{d.figure.number}. {d.figure.title}", href=f"#figure{d.figure.number}") for d in drawn)
    return tag("ul", *(tag("li", link) for link in links), class_="contents")


def gallery(drawn: list[Drawn], folder: Path) -> Html:
    """Panels stand side by side where there is room, and one below the other on a phone."""
    return join(_figure(one, folder) for one in drawn)


def _figure(drawn: Drawn, folder: Path) -> Html:
    figure = drawn.figure
    # The pieces of SVG were made by `draw`, which escapes what it writes.
    rows = (tag("div", *(Html(panel) for panel in row), class_="panels") for row in drawn.rows)
    beside = (drawn.svg.name, drawn.png.name, table_file(figure), by_slot_file(figure))
    files = join((tag("a", name, href=name) for name in beside if (folder / name).is_file()), between=", ")
    where = figure.place if figure.place == "not in the paper" else f"In the paper: {figure.place}"
    return tag(
        "section",
        tag("h3", f"Figure {figure.number}. {figure.title}"),
        tag(
            "figure",
            tag("div", *rows, tag("div", Html(drawn.legend), class_="legend"), class_="card"),
            tag(
                "figcaption",
                tag("p", figure.about),
                tag("p", f"{where[0].upper()}{where[1:]}. Files: ", files, class_="place"),
            ),
        ),
        id=f"figure{figure.number}",
        class_="one-figure",
    )
