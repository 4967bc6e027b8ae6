"""Which schemes a figure compares, and how each is named and drawn everywhere."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from dpcrowd.experiments.points.point import SchemeEntry
from dpcrowd.schemes.registry import SCHEMES

__all__ = ["CENTRAL", "STYLES", "Style", "adaptive", "fixed", "name_of", "regions", "single"]

# For a finite stream Uniform and Sample take the whole stream as their window: the same promise as FAST and DPCrowd.
_LIMITS = (
    SchemeEntry("uniform", "uniform", whole=True),
    SchemeEntry("sample", "sample", whole=True),
    SchemeEntry("central", "central"),
)
_FLOODED = (SchemeEntry("duniform", "duniform", whole=True), SchemeEntry("dsample", "dsample", whole=True))
_PAPER_REGIONS = ("rescuedp", "drescuedp", "dpcrowd-w", "dpcrowd-plus", "dpegasus", "dbd", "dba")
_ADDED_REGIONS = ("uniform", "sample", "duniform", "dsample", "central")
RELAY = "relay"

CENTRAL = (
    "The central filter is one filter that hears the samples of all servers: the limit for DPCrowd's and DPCrowd+'s "
    "own samples where the model is right. With a wrong model or in diagonal form it can be worse, and a scheme that "
    "samples other slots can be better."
)


def single(*schemes: str, flooded: bool = False) -> tuple[SchemeEntry, ...]:
    """Schemes of the paper on one region and a finite stream, and what we add to them."""
    added = (*_relay(), *_LIMITS, *(_FLOODED if flooded else ()))
    return (*(SchemeEntry(name, name) for name in schemes), *added)


def regions() -> tuple[SchemeEntry, ...]:
    """Schemes for many regions and an endless stream: the paper's seven, and what we add to them."""
    return (*(SchemeEntry(name, name) for name in (*_PAPER_REGIONS, *_ADDED_REGIONS)), *_relay())


def fixed(interval: int) -> tuple[SchemeEntry, ...]:
    """DPCrowd and the central filter that sample every `interval` slots."""
    return (
        SchemeEntry("dpcrowd-fixed", "dpcrowd", interval=interval),
        SchemeEntry("central-fixed", "central", interval=interval),
        SchemeEntry("fast-fixed", "fast", interval=interval),
    )


def adaptive() -> tuple[SchemeEntry, ...]:
    """DPCrowd that samples adaptively, with the limits."""
    return (SchemeEntry("dpcrowd-adaptive", "dpcrowd"), *_relay(), *_LIMITS)


def _relay() -> tuple[SchemeEntry, ...]:
    """Drawn as soon as the scheme exists."""
    return (SchemeEntry(RELAY, RELAY),) if RELAY in SCHEMES else ()


@dataclass(frozen=True)
class Style:
    """Name and look of a scheme; ours are solid and strong, flooding is dashed, limits and baselines are thin."""

    name: str
    colour: str
    marker: str
    line: str = "-"
    width: float = 1.6


class _Styles(dict[str, Style]):
    """Styles by label; a scheme of another package gets one that follows from its name."""

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
        "relay": Style("Relay", "#aa0000", "P", width=2.2),
    }
)


def name_of(label: str) -> str:
    """How a scheme is called in the report."""
    return STYLES[label].name if label in STYLES else label
