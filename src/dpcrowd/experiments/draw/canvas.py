"""Draws a figure: one SVG and one PNG file of all its panels, and each panel alone as SVG for a page.

A page that is read on a phone cannot show two panels side by side, so it gets them one by one (`Drawn.rows`) and
arranges them itself. Only matplotlib's own classes are used: no pyplot, no global state, no display. Equal input gives
equal files: no dates, and identifiers that depend on the content alone.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.experiments.draw.axes import draw_panel, legend_entries, note_entries
from dpcrowd.experiments.draw.describe import describe
from dpcrowd.experiments.draw.svg import inline_svg, small_svg
from dpcrowd.experiments.figures.figure import Figure, Panel
from dpcrowd.sim.export import refuse_failed_write

__all__ = ["Drawn", "draw"]

_WIDTH, _HEIGHT = 3.7, 2.65  # of a panel, in inches
_LEFT, _RIGHT, _TOP, _BELOW = 0.62, 0.12, 0.38, 0.45  # its margins
_LEGEND_LINE, _NOTE_LINE, _NOTE_COLUMNS = 0.17, 0.125, 2
_DPI = 160  # of the PNG
_SETTINGS = {
    "font.family": "sans-serif",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "svg.fonttype": "none",  # text stays text: smaller, can be searched, read aloud and scaled
    "path.simplify_threshold": 0.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True)
class Drawn:
    """Files of a figure, and what a page shows of it.

    rows    the panels, row by row, each a piece of SVG that can stand in an HTML page
    legend  the shared legend, likewise
    """

    figure: Figure
    svg: Path
    png: Path
    rows: tuple[tuple[str, ...], ...]
    legend: str


def draw(figure: Figure, panels: list[Panel], folder: Path) -> Drawn:
    """Write `folder`/figureN-name.svg and .png."""
    if not panels:
        raise BadInput(f"figure {figure.number} has no panels to draw: none of its data sets is there.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "drawing") from None
    rows = _rows(panels)
    svg, png = (folder / f"{figure.file}.{ending}" for ending in ("svg", "png"))
    with _settings(figure.file):
        whole = _whole(rows)
        text = "\n".join(describe(panel) for panel in panels)
        with refuse_failed_write(svg):
            svg.write_text(small_svg(_svg(whole), f"Figure {figure.number}: {figure.title}", text), encoding="utf-8")
        with refuse_failed_write(png):
            whole.savefig(
                png, dpi=_DPI, metadata={"Software": None, "Title": f"Figure {figure.number}: {figure.title}"}
            )
    shown = tuple(
        tuple(_alone(panel, _height(row), f"{figure.file}-{number}-{column}") for column, panel in enumerate(row))
        for number, row in enumerate(rows)
    )
    return Drawn(figure, svg, png, shown, _legend_alone(panels, f"{figure.file}-legend"))


def _rows(panels: Sequence[Panel]) -> list[list[Panel]]:
    return [[panel for panel in panels if panel.row == row] for row in sorted({panel.row for panel in panels})]


@contextmanager
def _settings(salt: str) -> Iterator[None]:
    """Matplotlib's settings while something is drawn and saved, and back again; a user's own style must not matter.

    Identifiers depend on the content and the salt: pieces of one page need salts of their own.
    """
    from matplotlib import rc_context, rcParamsDefault

    # The backend is left as it is: a default one would ask for a display.
    settings: dict[Any, Any] = {
        name: value for name, value in rcParamsDefault.items() if not name.startswith("backend")
    }
    settings |= {**_SETTINGS, "svg.hashsalt": salt}
    with rc_context(settings):
        yield


def _whole(rows: list[list[Panel]]) -> Any:
    """All panels, and the shared legend below them."""
    from matplotlib.figure import Figure as Canvas

    columns = max(len(row) for row in rows)
    handles = legend_entries([panel for row in rows for panel in row])
    lines = -(-len(handles) // (3 * columns))
    per_line = -(-len(handles) // lines)
    heights = [_height(row) for row in rows]
    below = 0.12 + _LEGEND_LINE * lines
    canvas = Canvas(figsize=(_WIDTH * columns, sum(heights) + below))
    top = sum(heights) + below
    for row, height in zip(rows, heights, strict=True):
        for column, panel in enumerate(row):
            _place(canvas, panel, (column * _WIDTH, top - height), height)
        top -= height
    canvas.legend(handles=handles, loc="lower center", ncols=per_line, fontsize=8, frameon=False, borderaxespad=0.2)
    return canvas


def _height(row: Sequence[Panel]) -> float:
    """Of a row of panels: those with notes have a legend of their own below them."""
    notes = max(len(note_entries(panel)[1]) for panel in row)
    return _HEIGHT + (0.14 + _NOTE_LINE * -(-notes // _NOTE_COLUMNS) if notes else 0.0)


def _alone(panel: Panel, height: float, salt: str) -> str:
    """One panel; its neighbours have the same margins, so that they line up."""
    from matplotlib.figure import Figure as Canvas

    with _settings(salt):
        canvas = Canvas(figsize=(_WIDTH, height))
        _place(canvas, panel, (0.0, 0.0), height)
        return inline_svg(_svg(canvas), describe(panel))


def _legend_alone(panels: Sequence[Panel], salt: str) -> str:
    from matplotlib.figure import Figure as Canvas

    with _settings(salt):
        handles = legend_entries(panels)
        lines = -(-len(handles) // 2)
        canvas = Canvas(figsize=(_WIDTH, 0.1 + _LEGEND_LINE * lines))
        canvas.legend(handles=handles, loc="center", ncols=2, fontsize=8, frameon=False, borderaxespad=0.0)
        names = ", ".join(handle.get_label() for handle in handles)
        return inline_svg(_svg(canvas), f"Legend: {names}.")


def _place(canvas: Any, panel: Panel, corner: tuple[float, float], height: float) -> None:
    """Axes with fixed margins in a cell of the canvas; all measures in inches."""
    under = height - _HEIGHT + _BELOW
    wide, high = canvas.get_size_inches()
    axes = canvas.add_axes(
        (
            (corner[0] + _LEFT) / wide,
            (corner[1] + under) / high,
            (_WIDTH - _LEFT - _RIGHT) / wide,
            (height - under - _TOP) / high,
        )
    )
    draw_panel(axes, panel)
    title, handles = note_entries(panel)
    if handles:
        axes.legend(
            handles=handles,
            title=title,
            title_fontsize=6.5,
            fontsize=6.5,
            ncols=_NOTE_COLUMNS,
            loc="lower center",
            bbox_to_anchor=((corner[0] + _WIDTH / 2) / wide, (corner[1] + 0.05) / high),
            bbox_transform=canvas.transFigure,
            borderaxespad=0.0,
            borderpad=0.2,
            labelspacing=0.2,
            columnspacing=0.8,
            handlelength=1.8,
            handletextpad=0.4,
        )


def _svg(canvas: Any) -> str:
    file = io.StringIO()
    canvas.savefig(file, format="svg")
    return file.getvalue()
