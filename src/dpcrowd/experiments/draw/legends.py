"""Legends: which curves share one, and how many columns of it fit the paper.

Schemes of the one-region figures and those of the many-region ones have the same looks (FAST and RescueDP, DPCrowd
and DPCrowd+): one legend for both would name two schemes by one line. Rows that cannot share a legend get one each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dpcrowd.experiments.draw.axes import look
from dpcrowd.experiments.figures.figure import Curve, Panel
from dpcrowd.experiments.figures.rosters import STYLES

__all__ = ["blocks", "columns_that_fit", "legend_entries", "note_entries", "renderer_of"]

_AIR = 0.97  # of the width: a viewer's font may be a little wider than the one that is measured

Row = Sequence[Panel]


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
