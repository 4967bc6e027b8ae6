"""Draw a figure: one SVG and one PNG file of all its panels, and each panel alone as SVG for a page.

A page on a phone cannot show two panels side by side, so it gets them one by one (`Drawn.blocks`) and arranges them
itself. Margins and legends are measured, so that nothing is cut off, whatever the numbers are. Only the classes of
matplotlib are used: no pyplot, no global state, no display. Equal input gives equal files: they contain no dates, and
identifiers depend only on the content.

Schemes of the one-region figures and those of the many-region ones look the same (FAST and RescueDP, DPCrowd and
DPCrowd+): in a common legend one line would have two names. Rows that cannot share a legend get one each.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.experiments.draw.axes import describe, draw_panel, look
from dpcrowd.experiments.draw.svg import inline_svg, small_svg
from dpcrowd.experiments.figures.figure import Curve, Figure, Panel
from dpcrowd.experiments.figures.rosters import STYLES
from dpcrowd.sim.export import refuse_failed_write

__all__ = ["Block", "Drawn", "blocks", "columns_that_fit", "draw", "legend_entries", "note_entries", "renderer_of"]

_WIDTH, _HEIGHT = 3.7, 2.65  # size of a panel, in inches
_LEFT, _RIGHT, _TOP, _BELOW = 0.62, 0.12, 0.38, 0.45  # margins of a panel; the left one is a minimum
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
_DPI = 160  # resolution of the PNG file
_FILL = 0.97  # share of the width that a legend may take: a viewer's font may be wider than the measured one
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
    """Rows of panels and the legend that they share, each an SVG element for an HTML page."""

    rows: tuple[tuple[str, ...], ...]
    legend: str


@dataclass(frozen=True)
class Drawn:
    """A drawn figure: its files, and its parts for a page."""

    figure: Figure
    svg: Path
    png: Path
    blocks: tuple[Block, ...]


def draw(figure: Figure, panels: list[Panel], folder: Path) -> Drawn:
    """Write `folder`/figureN-name.svg and .png, and return the drawing."""
    if not panels:
        raise BadInput(f"figure {figure.number} has no panels to draw: none of its data sets is on this machine.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "drawing") from None
    svg, png = (folder / f"{figure.file}.{ending}" for ending in ("svg", "png"))
    with _settings(figure.file):
        legend_blocks, left_margin = blocks(_rows(panels)), _left_margin(panels)
        canvas = _draw_all(legend_blocks, left_margin)
        text = "\n".join(describe(panel) for panel in panels)
        with refuse_failed_write(svg):
            svg.write_text(small_svg(_svg(canvas), f"Figure {figure.number}: {figure.title}", text), encoding="utf-8")
        with refuse_failed_write(png):
            canvas.savefig(
                png, dpi=_DPI, metadata={"Software": None, "Title": f"Figure {figure.number}: {figure.title}"}
            )
    return Drawn(
        figure, svg, png, tuple(_block(rows, left_margin, f"{figure.file}-{n}") for n, rows in enumerate(legend_blocks))
    )


def _block(rows: Sequence[Row], left_margin: float, salt: str) -> Block:
    return Block(
        tuple(
            tuple(
                _draw_one(panel, left_margin, _height(row), f"{salt}-{number}-{column}")
                for column, panel in enumerate(row)
            )
            for number, row in enumerate(rows)
        ),
        _draw_legend([panel for row in rows for panel in row], f"{salt}-legend"),
    )


def _rows(panels: Sequence[Panel]) -> list[Row]:
    return [[panel for panel in panels if panel.row == row] for row in sorted({panel.row for panel in panels})]


@contextmanager
def _settings(salt: str) -> Iterator[None]:
    """Set matplotlib's settings while something is drawn and saved, whatever a user's own style is; then restore them.

    Identifiers depend on the content and the salt: each part of a page needs a salt of its own.
    """
    from matplotlib import rc_context, rcParamsDefault

    # The backend stays as it is: the default one would need a display.
    settings: dict[Any, Any] = {
        name: value for name, value in rcParamsDefault.items() if not name.startswith("backend")
    }
    settings |= {**_SETTINGS, "svg.hashsalt": salt}
    with rc_context(settings):
        yield


def _left_margin(panels: Sequence[Panel]) -> float:
    """Return the left margin that the longest numbers of any panel need, in inches: one for all, so that they align."""
    from matplotlib.figure import Figure as Canvas

    needed = [_LEFT]
    for panel in panels:
        canvas = Canvas(figsize=(_WIDTH, _height([panel])))
        axes = _add_axes(canvas, panel, _LEFT, (0.0, 0.0), _height([panel]))
        labels = axes.yaxis.get_tightbbox(renderer_of(canvas))
        needed.append(_LEFT + _EDGE - labels.x0 / canvas.dpi)
    return max(needed)


def _draw_all(legend_blocks: Sequence[Sequence[Row]], left_margin: float) -> Any:
    """Return a canvas with all panels, and below each block of them the legend that they share."""
    from matplotlib.figure import Figure as Canvas

    width = _WIDTH * max(len(row) for rows in legend_blocks for row in rows)
    handles = [legend_entries([panel for row in rows for panel in row]) for rows in legend_blocks]
    columns = [columns_that_fit(entries, width, **_LEGEND) for entries in handles]
    legends = [_LEGEND_AIR + _LEGEND_LINE * -(-len(h) // c) for h, c in zip(handles, columns, strict=True)]
    height = sum(_height(row) for rows in legend_blocks for row in rows) + sum(legends)
    canvas = Canvas(figsize=(width, height))
    top = height
    for rows, entries, column_count, below in zip(legend_blocks, handles, columns, legends, strict=True):
        for row in rows:
            top -= _height(row)
            for column, panel in enumerate(row):
                _add_axes(canvas, panel, left_margin, (column * _WIDTH, top), _height(row))
        middle = (0.5, (top - below / 2) / height)
        canvas.legend(handles=entries, loc="center", bbox_to_anchor=middle, ncols=column_count, **_LEGEND)
        top -= below
    return canvas


def _height(row: Row) -> float:
    """Return the height of a row of panels; panels with notes have a legend of their own below them."""
    return _HEIGHT + max(_notes_height(panel) for panel in row)


def _notes_height(panel: Panel) -> float:
    title, handles = note_entries(panel)
    if not handles:
        return 0.0
    lines = -(-len(handles) // columns_that_fit(handles, _WIDTH, title=title, **_NOTES))
    return 0.14 + _NOTE_LINE * lines


def _draw_one(panel: Panel, left_margin: float, height: float, salt: str) -> str:
    """Return one panel as SVG; all panels have the same margins, so that they align."""
    from matplotlib.figure import Figure as Canvas

    with _settings(salt):
        canvas = Canvas(figsize=(_WIDTH, height))
        _add_axes(canvas, panel, left_margin, (0.0, 0.0), height)
        return inline_svg(_svg(canvas), describe(panel))


def _draw_legend(panels: Sequence[Panel], salt: str) -> str:
    from matplotlib.figure import Figure as Canvas

    with _settings(salt):
        handles = legend_entries(panels)
        columns = columns_that_fit(handles, _WIDTH, **_LEGEND)
        canvas = Canvas(figsize=(_WIDTH, 0.1 + _LEGEND_LINE * -(-len(handles) // columns)))
        canvas.legend(handles=handles, loc="center", ncols=columns, **_LEGEND)
        names = ", ".join(handle.get_label() for handle in handles)
        return inline_svg(_svg(canvas), f"Legend: {names}.")


def _add_axes(canvas: Any, panel: Panel, left_margin: float, corner: tuple[float, float], height: float) -> Any:
    """Add the axes of a panel, and its own legend, in a cell of the canvas; all measures are in inches."""
    under = height - _HEIGHT + _BELOW
    wide, high = canvas.get_size_inches()
    axes = canvas.add_axes(
        (
            (corner[0] + left_margin) / wide,
            (corner[1] + under) / high,
            (_WIDTH - left_margin - _RIGHT) / wide,
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
    """Return the rows that share a legend, block by block; a new block begins where two schemes would look alike."""
    result: list[list[Row]] = []
    labels_by_look: dict[tuple[str, str, str], str] = {}
    for row in rows:
        labels = {_look_of(curve): curve.label for panel in row for curve in panel.curves}
        if not result or any(labels_by_look.get(key, label) != label for key, label in labels.items()):
            result.append([])
            labels_by_look = {}
        result[-1].append(row)
        labels_by_look |= labels
    return result


def _look_of(curve: Curve) -> tuple[str, str, str]:
    style = STYLES[curve.label]
    return style.colour, style.marker, style.line


def legend_entries(panels: Iterable[Panel]) -> list[Any]:
    """Return one entry per scheme of all panels, in the order of first appearance, and one for the band.

    Notes are omitted: what a moving user pays differs between panels, which have legends of their own for it.
    """
    from matplotlib.patches import Patch

    curves: dict[str, Curve] = {}
    for panel in panels:
        for curve in panel.curves:
            curves.setdefault(curve.label, curve)
    entries = [_entry(curve, STYLES[label].name) for label, curve in curves.items()]
    return [*entries, Patch(color="#777777", alpha=0.25, linewidth=0, label="band: 95% interval")]


def note_entries(panel: Panel) -> tuple[str, list[Any]]:
    """Return the title and the entries of a panel's legend of curves with notes; the common beginning is the title."""
    noted = [curve for curve in panel.curves if curve.note]
    words = [curve.note.split() for curve in noted]
    shared = 0
    if len(noted) > 1:
        while all(len(note) > shared + 1 and note[shared] == words[0][shared] for note in words):
            shared += 1
    names = (f"{STYLES[curve.label].name}: {' '.join(note[shared:])}" for curve, note in zip(noted, words, strict=True))
    return " ".join(words[0][:shared]) if noted else "", [_entry(*pair) for pair in zip(noted, names, strict=True)]


def columns_that_fit(handles: Sequence[Any], width: float, **options: Any) -> int:
    """Return the number of columns with which a legend is at most `width` inches wide and has the fewest lines."""
    return _columns(tuple(handle.get_label() for handle in handles), width, tuple(sorted(options.items())))


@lru_cache(256)  # a panel is measured several times, and its legend each time
def _columns(labels: tuple[str, ...], width: float, options: tuple[tuple[str, Any], ...]) -> int:
    """Return what `columns_that_fit` returns: the width of a legend depends on its texts, not on its lines."""
    from matplotlib.figure import Figure as Canvas
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=label) for label in labels]
    with _settings("legend"):
        canvas = Canvas(figsize=(width, 1.0))
        renderer = renderer_of(canvas)
        for columns in range(len(handles), 1, -1):
            legend = canvas.legend(handles=handles, ncols=columns, **dict(options))
            wide = legend.get_window_extent(renderer).width / canvas.dpi
            legend.remove()
            if wide <= _FILL * width:
                lines = -(-len(handles) // columns)
                return -(-len(handles) // lines)
    return 1


def renderer_of(canvas: Any) -> Any:
    """Return the renderer that measures the texts of a canvas."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    pixels: Any = FigureCanvasAgg(canvas)
    return pixels.get_renderer()


def _entry(curve: Curve, name: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=name, **look(curve))
