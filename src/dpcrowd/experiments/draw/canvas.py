"""Draws a figure: one SVG and one PNG file of all its panels, and each panel alone as SVG for a page.

A page that is read on a phone cannot show two panels side by side, so it gets them one by one (`Drawn.blocks`) and
arranges them itself. Margins and legends are measured: whatever the numbers are, nothing is cut off. Only matplotlib's
own classes are used: no pyplot, no global state, no display. Equal input gives equal files: no dates, and identifiers
that depend on the content alone.

Schemes of the one-region figures and those of the many-region ones have the same looks (FAST and RescueDP, DPCrowd
and DPCrowd+): one legend for both would name two schemes by one line. Rows that cannot share a legend get one each.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.experiments.draw.axes import describe, draw_panel, look
from dpcrowd.experiments.draw.svg import inline_svg, small_svg
from dpcrowd.experiments.figures.figure import Curve, Figure, Panel
from dpcrowd.experiments.figures.rosters import STYLES
from dpcrowd.sim.export import refuse_failed_write

__all__ = ["Block", "Drawn", "blocks", "columns_that_fit", "draw", "legend_entries", "note_entries", "renderer_of"]

_WIDTH, _HEIGHT = 3.7, 2.65  # of a panel, in inches
_LEFT, _RIGHT, _TOP, _BELOW = 0.62, 0.12, 0.38, 0.45  # its margins, the left one at least
_EDGE = 0.04  # between the longest label and the edge
_LEGEND_LINE, _NOTE_LINE, _LEGEND_AIR = 0.17, 0.125, 0.12
_LEGEND: dict[str, Any] = {"fontsize": 8, "frameon": False, "borderaxespad": 0.0, "handlelength": 3.2}
_NOTES: dict[str, Any] = {
    "fontsize": 6.5,
    "title_fontsize": 6.5,
    "borderaxespad": 0.0,
    "borderpad": 0.2,
    "labelspacing": 0.2,
    "columnspacing": 0.8,
    "handlelength": 2.6,
    "handletextpad": 0.4,
}
_DPI = 160  # of the PNG
_AIR = 0.97  # of the width: a viewer's font may be a little wider than the one that is measured
_SETTINGS = {
    "font.family": "sans-serif",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "svg.fonttype": "none",  # text stays text: smaller, can be searched, read aloud and scaled
    "path.simplify_threshold": 0.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
}

Row = Sequence[Panel]


@dataclass(frozen=True)
class Block:
    """Rows of panels and the legend that they share, each a piece of SVG that can stand in an HTML page."""

    rows: tuple[tuple[str, ...], ...]
    legend: str


@dataclass(frozen=True)
class Drawn:
    """Files of a figure, and what a page shows of it."""

    figure: Figure
    svg: Path
    png: Path
    blocks: tuple[Block, ...]


def draw(figure: Figure, panels: list[Panel], folder: Path) -> Drawn:
    """Write `folder`/figureN-name.svg and .png."""
    if not panels:
        raise BadInput(f"figure {figure.number} has no panels to draw: none of its data sets is there.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "drawing") from None
    svg, png = (folder / f"{figure.file}.{ending}" for ending in ("svg", "png"))
    with _settings(figure.file):
        together, left = blocks(_rows(panels)), _left(panels)
        whole = _whole(together, left)
        text = "\n".join(describe(panel) for panel in panels)
        with refuse_failed_write(svg):
            svg.write_text(small_svg(_svg(whole), f"Figure {figure.number}: {figure.title}", text), encoding="utf-8")
        with refuse_failed_write(png):
            whole.savefig(
                png, dpi=_DPI, metadata={"Software": None, "Title": f"Figure {figure.number}: {figure.title}"}
            )
    return Drawn(figure, svg, png, tuple(_block(rows, left, f"{figure.file}-{n}") for n, rows in enumerate(together)))


def _block(rows: Sequence[Row], left: float, salt: str) -> Block:
    return Block(
        tuple(
            tuple(_alone(panel, left, _height(row), f"{salt}-{number}-{column}") for column, panel in enumerate(row))
            for number, row in enumerate(rows)
        ),
        _legend_alone([panel for row in rows for panel in row], f"{salt}-legend"),
    )


def _rows(panels: Sequence[Panel]) -> list[Row]:
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


def _left(panels: Sequence[Panel]) -> float:
    """The left margin that the longest numbers of any panel need, in inches; the same for all, so that they line up."""
    from matplotlib.figure import Figure as Canvas

    needed = [_LEFT]
    for panel in panels:
        canvas = Canvas(figsize=(_WIDTH, _height([panel])))
        axes = _place(canvas, panel, _LEFT, (0.0, 0.0), _height([panel]))
        labels = axes.yaxis.get_tightbbox(renderer_of(canvas))
        needed.append(_LEFT + _EDGE - labels.x0 / canvas.dpi)
    return max(needed)


def _whole(together: Sequence[Sequence[Row]], left: float) -> Any:
    """All panels, and below each block of them the legend that they share."""
    from matplotlib.figure import Figure as Canvas

    width = _WIDTH * max(len(row) for rows in together for row in rows)
    handles = [legend_entries([panel for row in rows for panel in row]) for rows in together]
    columns = [columns_that_fit(some, width, **_LEGEND) for some in handles]
    legends = [_LEGEND_AIR + _LEGEND_LINE * -(-len(h) // c) for h, c in zip(handles, columns, strict=True)]
    high = sum(_height(row) for rows in together for row in rows) + sum(legends)
    canvas = Canvas(figsize=(width, high))
    top = high
    for rows, some, many, below in zip(together, handles, columns, legends, strict=True):
        for row in rows:
            top -= _height(row)
            for column, panel in enumerate(row):
                _place(canvas, panel, left, (column * _WIDTH, top), _height(row))
        middle = (0.5, (top - below / 2) / high)
        canvas.legend(handles=some, loc="center", bbox_to_anchor=middle, ncols=many, **_LEGEND)
        top -= below
    return canvas


def _height(row: Row) -> float:
    """Of a row of panels: those with notes have a legend of their own below them."""
    return _HEIGHT + max(_notes_height(panel) for panel in row)


def _notes_height(panel: Panel) -> float:
    title, handles = note_entries(panel)
    if not handles:
        return 0.0
    lines = -(-len(handles) // columns_that_fit(handles, _WIDTH, title=title, **_NOTES))
    return 0.14 + _NOTE_LINE * lines


def _alone(panel: Panel, left: float, height: float, salt: str) -> str:
    """One panel; its neighbours have the same margins, so that they line up."""
    from matplotlib.figure import Figure as Canvas

    with _settings(salt):
        canvas = Canvas(figsize=(_WIDTH, height))
        _place(canvas, panel, left, (0.0, 0.0), height)
        return inline_svg(_svg(canvas), describe(panel))


def _legend_alone(panels: Sequence[Panel], salt: str) -> str:
    from matplotlib.figure import Figure as Canvas

    with _settings(salt):
        handles = legend_entries(panels)
        columns = columns_that_fit(handles, _WIDTH, **_LEGEND)
        canvas = Canvas(figsize=(_WIDTH, 0.1 + _LEGEND_LINE * -(-len(handles) // columns)))
        canvas.legend(handles=handles, loc="center", ncols=columns, **_LEGEND)
        names = ", ".join(handle.get_label() for handle in handles)
        return inline_svg(_svg(canvas), f"Legend: {names}.")


def _place(canvas: Any, panel: Panel, left: float, corner: tuple[float, float], height: float) -> Any:
    """Axes with given margins in a cell of the canvas; all measures in inches."""
    under = height - _HEIGHT + _BELOW
    wide, high = canvas.get_size_inches()
    axes = canvas.add_axes(
        (
            (corner[0] + left) / wide,
            (corner[1] + under) / high,
            (_WIDTH - left - _RIGHT) / wide,
            (height - under - _TOP) / high,
        )
    )
    draw_panel(axes, panel)
    title, handles = note_entries(panel)
    if handles:
        axes.legend(
            handles=handles,
            title=title,
            ncols=columns_that_fit(handles, _WIDTH, title=title, **_NOTES),
            loc="lower center",
            bbox_to_anchor=((corner[0] + _WIDTH / 2) / wide, (corner[1] + 0.05) / high),
            bbox_transform=canvas.transFigure,
            **_NOTES,
        )
    return axes


def _svg(canvas: Any) -> str:
    file = io.StringIO()
    canvas.savefig(file, format="svg")
    return file.getvalue()


# ------------------------------------------------------------------------------------------------------------- legends


def blocks(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows that stand together above one legend; a new block begins where two schemes would look alike."""
    together: list[list[Row]] = []
    seen: dict[tuple[str, str, str], str] = {}
    for row in rows:
        mine = {_sight(curve): curve.label for panel in row for curve in panel.curves}
        if not together or any(seen.get(sight, label) != label for sight, label in mine.items()):
            together.append([])
            seen = {}
        together[-1].append(row)
        seen |= mine
    return together


def _sight(curve: Curve) -> tuple[str, str, str]:
    style = STYLES[curve.label]
    return style.colour, style.marker, style.line


def legend_entries(panels: Iterable[Panel]) -> list[Any]:
    """One for each scheme of all panels, in the order of first appearance, and one for the band.

    Notes are left out: what a moving user pays differs between panels, which have legends of their own for it.
    """
    from matplotlib.patches import Patch

    curves: dict[str, Curve] = {}
    for panel in panels:
        for curve in panel.curves:
            curves.setdefault(curve.label, curve)
    entries = [_entry(curve, STYLES[label].name) for label, curve in curves.items()]
    return [*entries, Patch(color="#777777", alpha=0.25, linewidth=0, label="band: 95% interval")]


def note_entries(panel: Panel) -> tuple[str, list[Any]]:
    """(title, entries) of a panel's own legend of its noted curves; what all notes begin with becomes the title."""
    noted = [curve for curve in panel.curves if curve.note]
    words = [curve.note.split() for curve in noted]
    shared = 0
    if len(noted) > 1:
        while all(len(some) > shared + 1 and some[shared] == words[0][shared] for some in words):
            shared += 1
    names = (f"{STYLES[curve.label].name}: {' '.join(some[shared:])}" for curve, some in zip(noted, words, strict=True))
    return " ".join(words[0][:shared]) if noted else "", [_entry(*pair) for pair in zip(noted, names, strict=True)]


def columns_that_fit(handles: Sequence[Any], width: float, **options: Any) -> int:
    """The most columns of a legend that is no wider than `width` inches, in as few lines as that many allow."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(width, 1.0))
    renderer = renderer_of(canvas)
    for columns in range(len(handles), 1, -1):
        legend = canvas.legend(handles=handles, ncols=columns, **options)
        wide = legend.get_window_extent(renderer).width / canvas.dpi
        legend.remove()
        if wide <= _AIR * width:
            lines = -(-len(handles) // columns)
            return -(-len(handles) // lines)
    return 1


def renderer_of(canvas: Any) -> Any:
    """What measures the texts of a canvas."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    pixels: Any = FigureCanvasAgg(canvas)
    return pixels.get_renderer()


def _entry(curve: Curve, name: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=name, **look(curve))
