"""The schemes that a figure compares, and how each is named and drawn everywhere.

Schemes of the paper stand beside baselines (Uniform, Sample), the central filter, and relay, which is ours.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dpcrowd.experiments.points.point import Point, SchemeEntry

__all__ = [
    "ABOUT_CENTRAL",
    "ABOUT_RELAY",
    "AT_ONCE",
    "RELAY",
    "RELAY_THREE_HOPS",
    "STYLES",
    "Style",
    "adaptive",
    "fixed",
    "name_of",
    "regions",
    "single",
    "with_at_once",
]

RELAY = SchemeEntry("relay", "relay")
RELAY_THREE_HOPS = SchemeEntry("relay-k3", "relay", hops_per_slot=3)
AT_ONCE = SchemeEntry("relay-at-once", "relay", hops_per_slot="all")

# For a finite stream Uniform and Sample take the complete stream as their window: the promise of FAST and DPCrowd.
_LIMITS = (
    SchemeEntry("uniform", "uniform", stream_window=True),
    SchemeEntry("sample", "sample", stream_window=True),
    SchemeEntry("central", "central"),
)
_FLOODED = (
    SchemeEntry("duniform", "duniform", stream_window=True),
    SchemeEntry("dsample", "dsample", stream_window=True),
)
_PAPER_REGIONS = ("rescuedp", "drescuedp", "dpcrowd-w", "dpcrowd-plus", "dpegasus", "dbd", "dba")
_ADDED_REGIONS = ("uniform", "sample", "duniform", "dsample", "central")

ABOUT_CENTRAL = (
    "The central filter is one filter that receives the samples of all servers: what DPCrowd's and DPCrowd+'s own "
    "samples are worth if everybody hears all of them, where the model is right. It is not a limit for other schemes: "
    "with a wrong model or in diagonal form it can be worse, and a scheme that samples other slots can be better."
)
ABOUT_RELAY = (
    "Relay and “everything at once” are ours, not the paper's: servers pass on noisy records, one hop per slot; "
    "“everything at once” is relay whose records reach every server that a path leads to in their own slot."
)


def single(*schemes: str, flooded: bool = False) -> tuple[SchemeEntry, ...]:
    """Return schemes of the paper for one region and a finite stream, and those that we add to them."""
    added = (RELAY, *_LIMITS, *(_FLOODED if flooded else ()))
    return (*(SchemeEntry(name, name) for name in schemes), *added)


def regions() -> tuple[SchemeEntry, ...]:
    """Return the schemes for many regions and an endless stream: the paper's seven, and those that we add to them."""
    return (*(SchemeEntry(name, name) for name in (*_PAPER_REGIONS, *_ADDED_REGIONS)), RELAY)


def fixed(interval: int) -> tuple[SchemeEntry, ...]:
    """Return DPCrowd, the central filter and FAST, all sampling every `interval` slots."""
    return (
        SchemeEntry("dpcrowd-fixed", "dpcrowd", interval=interval),
        SchemeEntry("central-fixed", "central", interval=interval),
        SchemeEntry("fast-fixed", "fast", interval=interval),
    )


def adaptive() -> tuple[SchemeEntry, ...]:
    """Return DPCrowd with adaptive sampling, and the schemes that take no interval."""
    return (SchemeEntry("dpcrowd-adaptive", "dpcrowd"), RELAY, *_LIMITS)


def with_at_once(points: Iterable[tuple[float, Point]]) -> tuple[tuple[float, Point], ...]:
    """Return the points of a sweep, followed by one with "everything at once" for each of them that has relay.

    It is a point of its own, so that the stored results of the others stay valid. Relay always pays from one ledger per
    server; the paper's ledger per region would give the same results, so both share one point.
    """
    points = tuple(points)
    return (
        *points,
        *((x, replace(point, entries=(AT_ONCE,), accounting="sound")) for x, point in points if RELAY in point.entries),
    )


@dataclass(frozen=True)
class Style:
    """Name and look of a scheme.

    DPCrowd and relay are solid and wide, flooding is dashed, limits and baselines are thin.
    """

    name: str
    colour: str
    marker: str
    line: str = "-"
    width: float = 1.6


class _Styles(dict[str, Style]):
    """Styles by label; the style of another package's scheme follows from its name."""

    def __missing__(self, label: str) -> Style:
        return Style(label, _FREE_COLOURS[zlib.crc32(label.encode()) % len(_FREE_COLOURS)], "h", "-.", 1.6)


_FREE_COLOURS = ("#6a3d9a", "#b15928", "#1b7837", "#c51b7d", "#01665e")

STYLES = _Styles(
    {
        "fast": Style("FAST", "#d55e00", "s"),
        "dfast": Style("DFAST", "#e69f00", "D", "--"),
        "dpcrowd": Style("DPCrowd", "#0072b2", "o", width=2.2),
        "dpcrowd-fixed": Style("DPCrowd-fixed", "#56b4e9", "v"),
        "dpcrowd-adaptive": Style("DPCrowd-adaptive", "#0072b2", "o", width=2.2),
        "fast-fixed": Style("FAST-fixed", "#d55e00", "s", "--", 1.0),
        "central-fixed": Style("central-fixed", "#555555", "x", ":", 1.0),
        "dpcrowd-w": Style("DPCrowd_w", "#56b4e9", "v"),
        "dpcrowd-plus": Style("DPCrowd+", "#0072b2", "o", width=2.2),
        "dpcrowd-plus-matrix": Style("DPCrowd+, matrix form", "#003a5c", "*", "none"),
        "rescuedp": Style("RescueDP", "#d55e00", "s"),
        "drescuedp": Style("DRescueDP", "#e69f00", "D", "--"),
        "dpegasus": Style("DPeGaSus", "#cc79a7", "^", "--"),
        "dbd": Style("DBD", "#009e73", "<", "--"),
        "dba": Style("DBA", "#7a9a01", ">", "--"),
        "uniform": Style("Uniform", "#999999", "1", "-", 1.0),
        "sample": Style("Sample", "#8c6d46", "2", "-", 1.0),
        "duniform": Style("DUniform", "#999999", "3", "--", 1.0),
        "dsample": Style("DSample", "#8c6d46", "4", "--", 1.0),
        "central": Style("central filter", "#222222", "x", ":", 1.2),
        "measured": Style("DPCrowd-fixed, measured", "#0072b2", "o", width=2.2),
        "predicted": Style("predicted, with the neighbours' information", "#222222", "x", "--"),
        "predicted-printed": Style("predicted, as printed", "#d55e00", "s", ":"),
        "relay": Style("Relay (ours)", "#aa0000", "P", width=2.2),
        "relay-k3": Style("Relay, three hops per slot (ours)", "#e31a1c", "d", "--"),
        "relay-at-once": Style("everything at once (ours)", "#7b2d8b", "p", "-.", 1.4),
    }
)


def name_of(label: str) -> str:
    """Return the name of a scheme in the report."""
    return STYLES[label].name if label in STYLES else label
