"""What results of a simulation do not show where nobody is: in most counts, or in some regions all the time."""

from __future__ import annotations

from collections.abc import Sequence

from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.statistics import mean_with_interval

__all__ = ["empty_notes"]

_MANY = 0.1
"""Part of the regions from which on those that are always empty are said to be in the coverage."""


def empty_notes(config: SimulationConfig, records: Sequence[RunRecords]) -> list[str]:
    """Return remarks on counts that are mostly 0, and on regions that are always empty."""
    return [*_mostly_empty(config, records), *_empty_regions(config, records)]


def _empty_regions(config: SimulationConfig, records: Sequence[RunRecords]) -> list[str]:
    """Return a remark if much of the coverage is that of regions without anybody.

    Schemes are compared on all regions, and earlier results have them, so they stay in it; but an interval around
    nobody that contains 0 says nothing about the others.
    """
    parts = [
        mean_with_interval(record.empty_regions).mean or 0.0 for record in records if record.empty_regions is not None
    ]
    part = max(parts, default=0.0)
    if not _MANY <= part < 1.0:
        return []
    means = {record.label: mean_with_interval(record.coverage95).mean for record in records}
    others = {label: (mean - part) / (1.0 - part) for label, mean in means.items() if mean is not None and mean >= part}
    if not others:
        return []
    listed = ", ".join(f"{label} {coverage:.3f}" for label, coverage in others.items())
    number = round(part * len(config.data.regions))
    return [
        f"{number} of {len(config.data.regions)} regions are empty in all slots that are scored, and count in the "
        f"coverage. If all of their intervals contain the truth, the coverage of the other regions is: {listed}."
    ]


def _mostly_empty(config: SimulationConfig, records: Sequence[RunRecords]) -> list[str]:
    """Return a remark if a guess of 0 would be closer than estimates are, since most counts are 0.

    That guess has a total error of 1. Where few counts are 0, such an error is noise, which the table shows by itself.
    """
    empty = [mean_with_interval(record.empty).mean or 0.0 for record in records if record.empty is not None]
    errors = {record.label: mean_with_interval(record.total_error).mean for record in records}
    worse = [label for label, error in errors.items() if error is not None and error > 1.0]
    if not worse or max(empty, default=0.0) <= 0.5:
        return []
    view = "the median view has" if config.median else "--median (in Python: median=True) shows"
    return [
        f"a guess of 0 everywhere, whose total error is 1, would be closer than {', '.join(worse)}: estimates are "
        f"expected counts, and most counts here ({max(empty):.0%}) are 0. For each count {view} the number that is "
        "closest most often."
    ]
