"""The text format of Prometheus. Numbers of check-ins are raw counts and therefore not metrics: see docs/metrics.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

__all__ = ["Buckets", "Metric", "render"]


@dataclass(frozen=True)
class Buckets:
    """The content of a histogram: the number of values between the bounds, and of those above the last."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


@dataclass(frozen=True)
class Metric:
    """One metric: samples are (labels, value); the values of a histogram are `Buckets`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    samples: Sequence[tuple[Mapping[str, str], float | Buckets]]


def render(metrics: Iterable[Metric]) -> str:
    """Return the text that is scraped; a metric without samples is left out."""
    lines = []
    for metric in metrics:
        if not metric.samples:
            continue
        text = metric.text.replace("\\", r"\\").replace("\n", r"\n")
        lines += [f"# HELP {metric.name} {text}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in metric.samples:
            if isinstance(value, Buckets):
                lines += _histogram(metric.name, labels, value)
            else:
                lines.append(_line(metric.name, labels, value))
    return "\n".join([*lines, ""])


def _histogram(name: str, labels: Mapping[str, str], content: Buckets) -> Iterator[str]:
    """Return the lines of a histogram, whose buckets are cumulative in the text."""
    for bound, count in zip((*content.bounds, math.inf), accumulate(content.counts), strict=True):
        yield _line(f"{name}_bucket", {**labels, "le": _number(bound)}, count)
    yield _line(f"{name}_sum", labels, content.total)
    yield _line(f"{name}_count", labels, sum(content.counts))


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
