"""A panel in words, for those who hear a page instead of seeing it: each curve's first, last and extreme values."""

from __future__ import annotations

import numpy as np

from dpcrowd.experiments.figures.figure import NEGLIGIBLE, Curve, Panel
from dpcrowd.experiments.figures.rosters import STYLES

__all__ = ["describe"]


def describe(panel: Panel) -> str:
    """The text alternative of a panel."""
    told = "; ".join(_told(curve) for curve in panel.curves)
    return f"{panel.title}. {panel.y_label} against {panel.x_label}. {told}."


def _told(curve: Curve) -> str:
    name = STYLES[curve.label].name + (f" ({curve.note})" if curve.note else "")
    there = np.flatnonzero(np.isfinite(curve.mean))
    if there.size == 0:
        return f"{name}: undefined"
    x, y = curve.x[there], curve.mean[there]
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
