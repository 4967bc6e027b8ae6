"""Prometheus' text format. A number of check-ins, accepted or refused, is a raw count and no metric: see the design."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Metric", "render"]


@dataclass(frozen=True)
class Metric:
    """One family: samples are (labels, value)."""

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    samples: Sequence[tuple[Mapping[str, str], float]]


def render(metrics: Iterable[Metric]) -> str:
    """The text that is scraped; a family without samples is left out."""
    lines = []
    for metric in metrics:
        if not metric.samples:
            continue
        told = metric.text.replace("\\", r"\\").replace("\n", r"\n")
        lines += [f"# HELP {metric.name} {told}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in metric.samples:
            inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(f"{metric.name}{{{inside}}} {_number(value)}" if inside else f"{metric.name} {_number(value)}")
    return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
