"""Values of metrics: counters and histograms that grow while a node runs, and gauges that are set at a scrape."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence

from dpcrowd.node.api.prometheus import Buckets, Metric, render
from dpcrowd.node.metrics.families import FAMILIES, Audience, Family

__all__ = ["Registry", "render_all"]

Labels = tuple[str, ...]


class _Histogram:
    """Values, rounded up to a bound before they are counted and added: the sum reveals no more than the buckets."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        index = bisect.bisect_left(self.bounds, seconds)
        largest = self.bounds[-1]
        self.counts[index] += 1
        self.total += self.bounds[index] if index < len(self.bounds) else math.ceil(seconds / largest) * largest


class Registry:
    """Values of some metrics, by the values of their labels; used from one event loop.

    start  metrics that exist from the beginning, at 0, as far as the values of their labels are known
    """

    def __init__(self, start: Iterable[Family] = ()) -> None:
        self._numbers: dict[Family, dict[Labels, float]] = {}
        self._histograms: dict[Family, dict[Labels, _Histogram]] = {}
        for family in start:
            for values in [(value,) for value in family.known] if family.labels else [()]:
                if family.kind == "histogram":
                    self._histogram(family, values)
                else:
                    self._numbers.setdefault(family, {})[values] = 0.0

    def add(self, family: Family, amount: float = 1.0, **labels: str) -> None:
        """Increase a counter."""
        numbers, values = self._numbers.setdefault(family, {}), _values(family, labels)
        numbers[values] = numbers.get(values, 0.0) + amount

    def set(self, family: Family, value: float, **labels: str) -> None:
        """Set a gauge, or a counter that is counted elsewhere."""
        self._numbers.setdefault(family, {})[_values(family, labels)] = float(value)

    def set_counts(self, family: Family, counts: Mapping[str, int], **others: str) -> None:
        """Set a counter that is counted elsewhere by its last label; known values of that label are there, at 0.

        others  the other labels
        """
        label = family.labels[-1]
        for value, count in {**dict.fromkeys(family.known, 0), **counts}.items():
            self.set(family, count, **others, **{label: value})

    def observe(self, family: Family, seconds: float, **labels: str) -> None:
        """Add a value to a histogram."""
        self._histogram(family, _values(family, labels)).observe(seconds)

    def metric(self, family: Family) -> list[tuple[dict[str, str], float | Buckets]]:
        """Return the samples of one metric, for `Metric`."""
        samples: list[tuple[dict[str, str], float | Buckets]] = []
        for values, number in self._numbers.get(family, {}).items():
            samples.append((dict(zip(family.labels, values, strict=True)), number))
        for values, histogram in self._histograms.get(family, {}).items():
            content = Buckets(histogram.bounds, tuple(histogram.counts), histogram.total)
            samples.append((dict(zip(family.labels, values, strict=True)), content))
        return samples

    def _histogram(self, family: Family, values: Labels) -> _Histogram:
        histograms = self._histograms.setdefault(family, {})
        if values not in histograms:
            histograms[values] = _Histogram(family.bounds)
        return histograms[values]


def render_all(registries: Iterable[Registry], audience: Audience) -> str:
    """Return the text of Prometheus with all metrics that the audience may see, in the order of `FAMILIES`."""
    parts = tuple(registries)
    return render(
        Metric(
            family.name, family.kind, family.help, [sample for registry in parts for sample in registry.metric(family)]
        )
        for family in FAMILIES
        if audience == "operator" or family.audience == "reader"
    )


def _values(family: Family, labels: dict[str, str]) -> Labels:
    if labels.keys() != set(family.labels):
        raise TypeError(f"{family.name} has the labels {family.labels}, not {tuple(labels)}.")
    return tuple(labels[name] for name in family.labels)
