"""The description of one metric: its name, its type, its labels, and a sentence on what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Audience", "Family", "Kind"]

Kind = Literal["counter", "gauge", "histogram"]
Audience = Literal["reader", "operator"]


@dataclass(frozen=True)
class Family:
    """One metric.

    labels    names of its labels
    known     values of its only label that are there from the start, at 0, so that the first increase is seen
    bounds    upper bounds of a histogram's buckets, in seconds
    audience  "operator": its value depends on how busy the node is, hence on the number of check-ins; it is for whoever
              may see that number
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    audience: Audience = "reader"
