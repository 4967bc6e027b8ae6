"""One pair of axes: curves, bands for the 95% interval, scales, and a text alternative.

Where flooding reaches every server all servers agree, and ACE is mere rounding, about 1e-13. A logarithmic axis that
reached that far would show nothing else: such a curve is drawn at the lower edge, and a note below the title names it
"≈ 0".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpcrowd.experiments.figures.figure import NEGLIGIBLE, Curve, Panel
from dpcrowd.experiments.figures.rosters import STYLES

__all__ = ["describe", "draw_panel", "limits", "look"]

_LONG = 100  # curves with more points have no markers
_BAND_STEP = 4  # their bands show every fourth point, which is invisible on paper and makes the file much smaller
# Printed in grey, curves without markers differ only in their dashes.
_LONG_LINES: dict[str, Any] = {
    "uniform": "-.",
    "sample": (0, (6, 1, 1, 1, 1, 1)),
    "relay-at-once": (0, (8, 1.5)),
}


def draw_panel(axes: Any, panel: Panel) -> None:
    """Draw a panel without its legends."""
    low, high = limits(panel)
    note = _note_on_zeros(panel) if panel.log_y and high > 0.0 else ""
    axes.set_title(panel.title, fontweight="bold", loc="left", y=1.0, pad=12.0 if note else 4.0)
    axes.set_xlabel(panel.x_label, labelpad=1.5)
    axes.set_ylabel(panel.y_label, labelpad=2.0)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
    logarithmic = panel.log_y and high > 0.0
    if logarithmic:
        axes.set_yscale("log")
        _plain_numbers(axes.yaxis, high / low)
    if panel.log_x:
        axes.set_xscale("log")
        _set_ticks_at_values(axes.xaxis, panel)
    axes.set_ylim(low, high if high > low else low + 1.0)
    floor = low if logarithmic else -np.inf
    for number, curve in enumerate(panel.curves):
        _draw_curve(axes, curve, floor, 2.0 + 0.01 * number)
    # The note stands below the title: inside the axes it would cover curves.
    axes.text(0.0, 1.015, note, fontsize=6.5, color="#333333", transform=axes.transAxes, ha="left", va="bottom")


def limits(panel: Panel) -> tuple[float, float]:
    """Return the limits of the y axis; (0, 0) on a logarithmic axis without any value above rounding."""
    means = np.concatenate([curve.mean for curve in panel.curves] or [np.zeros(0)])
    # The bar of a single point may leave the panel: it often has few runs, and would squeeze everything else.
    halves = (curve.half if len(curve.x) > 1 else np.zeros(1) for curve in panel.curves)
    tops = means + np.concatenate([*halves, np.zeros(0)])
    visible = np.isfinite(means)
    if panel.log_y:
        visible &= means >= NEGLIGIBLE
        if not visible.any():
            return 0.0, 0.0
        # A curve on the lower edge must not touch one that is really that small.
        margin = 2.0 if (means[np.isfinite(means)] < NEGLIGIBLE).any() else 1.25
        return float(means[visible].min()) / margin, float(tops[visible].max()) * 1.25
    if not visible.any():
        return 0.0, 1.0
    return min(0.0, float(means[visible].min())), float(tops[visible].max()) * 1.06


def _note_on_zeros(panel: Panel) -> str:
    """Return a note that names the curves on the lower edge, which are 0 up to rounding, throughout or at some x."""
    throughout: list[str] = []
    partly: list[str] = []
    for curve in panel.curves:
        small = np.abs(curve.mean[np.isfinite(curve.mean)]) < NEGLIGIBLE
        if small.any():
            (throughout if small.all() else partly).append(STYLES[curve.label].name)
    lists = (("≈ 0", throughout), ("≈ 0 in places", partly))
    return "; ".join(f"{where}: {', '.join(names)}" for where, names in lists if names)


def look(curve: Curve) -> dict[str, Any]:
    """Return how the line of a curve is drawn, in panels and legends."""
    style = STYLES[curve.label]
    long = len(curve.x) > _LONG
    return {
        "color": style.colour,
        "linestyle": _LONG_LINES.get(curve.label, style.line) if long else style.line,
        "linewidth": style.width * (0.6 if long else 0.8),
        "marker": None if long else style.marker,
        "markersize": 7.0 if style.line == "none" else 4.0,
        "markeredgewidth": 0.9,
    }


def _draw_curve(axes: Any, curve: Curve, floor: float, order: float) -> None:
    looks = look(curve)
    # A curve on the lower edge is not clipped: half of its markers and of its line would be lost.
    at_floor = bool((curve.mean[np.isfinite(curve.mean)] <= floor).any())
    axes.plot(curve.x, np.maximum(curve.mean, floor), zorder=order, clip_on=not at_floor, **looks)
    has_band = np.isfinite(curve.mean) & (curve.half > 0) & (curve.mean >= max(floor, NEGLIGIBLE))
    low, high = np.maximum(curve.mean - curve.half, floor), curve.mean + curve.half
    if has_band.sum() == 1:
        axes.vlines(curve.x[has_band], low[has_band], high[has_band], color=looks["color"], linewidth=0.9, zorder=order)
    elif has_band.any():
        long = len(curve.x) > _LONG
        every = slice(None, None, _BAND_STEP if long else 1)
        axes.fill_between(
            curve.x[every],
            low[every],
            high[every],
            where=has_band[every],
            color=looks["color"],
            alpha=0.1 if long else 0.16,
            linewidth=0,
            zorder=order - 1.0,
        )


def _plain_numbers(axis: Any, ratio: float) -> None:
    """Label an axis with 0.02, 5, 20k or 3M, which read faster than powers of ten and are shorter than all zeros."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    finer = {6: (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0), 300: (1.0, 2.0, 5.0), 3000: (1.0, 3.0)}
    steps = next((steps for below, steps in finer.items() if ratio < below), (1.0,))
    axis.set_major_locator(LogLocator(subs=steps, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.set_minor_locator(NullLocator())


def _short(value: float) -> str:
    """Return a number with the letter for thousands, millions or billions from 10,000 on."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(unit, 10_000):
            return f"{value / unit:,g}{letter}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _set_ticks_at_values(axis: Any, panel: Panel) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(sorted({float(x) for curve in panel.curves for x in curve.x})))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def describe(panel: Panel) -> str:
    """Return the text alternative of a panel."""
    curves = "; ".join(_describe_curve(curve) for curve in panel.curves)
    return f"{panel.title}. {panel.y_label} against {panel.x_label}. {curves}."


def _describe_curve(curve: Curve) -> str:
    name = STYLES[curve.label].name + (f" ({curve.note})" if curve.note else "")
    defined = np.flatnonzero(np.isfinite(curve.mean))
    if defined.size == 0:
        return f"{name}: undefined"
    x, y = curve.x[defined], curve.mean[defined]
    if (np.abs(y) < NEGLIGIBLE).all():
        return f"{name}: about 0 throughout"
    if len(y) == 1:
        return f"{name}: {_number(y[0])} at {x[0]:g}"
    text = f"{name}: {_number(y[0])} at {x[0]:g}, {_number(y[-1])} at {x[-1]:g}"
    extremes = [("lowest", int(np.argmin(y))), ("highest", int(np.argmax(y)))]
    inner = [f"{word} {_number(y[i])} at {x[i]:g}" for word, i in extremes if 0 < i < len(y) - 1]
    return ", ".join([text, *inner])


def _number(value: float) -> str:
    return "about 0" if abs(value) < NEGLIGIBLE else f"{value:.3g}"
