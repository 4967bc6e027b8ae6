"""What results of a simulation do not show where nobody is, or nearly: in most counts, in some regions all the time, or
beside noise that is larger than the crowd.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.statistics import mean_with_interval

__all__ = ["empty_notes", "empty_warnings", "is_empty"]

_MANY = 0.1
"""Part of the regions from which on those that are always empty are said to be in the coverage."""


def empty_notes(config: SimulationConfig, records: Sequence[RunRecords]) -> list[str]:
    """Return remarks on data without anybody, estimates that are worse than a guess of 0, and empty regions."""
    return [*_nobody(records), *_worse_than_nobody(config, records), *_empty_regions(config, records)]


def empty_warnings(config: SimulationConfig, records: Sequence[RunRecords]) -> list[str]:
    """Return the remarks on data without anybody, and on estimates with intervals that are worse than a guess of 0.

    Whoever gives intervals says how much is known; a baseline without them promises nothing.
    """
    worse = _worse_than_nobody(config, records) if any(_has_intervals(one) for one in _worse(records)) else []
    return [*_nobody(records), *worse]


def is_empty(record: RunRecords) -> bool:
    """Whether nobody is anywhere in all slots that are scored."""
    return record.empty is not None and bool((record.empty == 1.0).all())


def _nobody(records: Sequence[RunRecords]) -> list[str]:
    """Return a remark if nobody is anywhere in all slots that are scored: there are no others to judge by."""
    if not all(is_empty(record) for record in records):
        return []
    text = "nobody is in any region in the slots that are scored, so total errors, which are parts of the crowd, are "
    text += "undefined"
    covering = [record.label for record in records if _has_intervals(record)]
    if covering:
        text += f", and the coverage of {', '.join(covering)} is that of intervals around nobody, which says nothing "
        text += "about a crowd"
    return [f"{text}."]


def _worse(records: Sequence[RunRecords]) -> list[RunRecords]:
    """Return the records of schemes that a guess of 0, whose total error is 1, would be closer than."""
    errors = [mean_with_interval(record.total_error).mean for record in records]
    return [record for record, error in zip(records, errors, strict=True) if error is not None and error > 1.0]


def _has_intervals(record: RunRecords) -> bool:
    return mean_with_interval(record.coverage95).mean is not None


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


def _worse_than_nobody(config: SimulationConfig, records: Sequence[RunRecords]) -> list[str]:
    """Return a remark if a guess of 0, whose total error is 1, would be closer than estimates are.

    Where most counts are 0 that happens to a model that is right, for estimates are means; elsewhere it does not.
    """
    empty = [mean_with_interval(record.empty).mean or 0.0 for record in records if record.empty is not None]
    worse = [record.label for record in _worse(records)]
    if not worse:
        return []
    closer = f"a guess of 0 everywhere, whose total error is 1, would be closer than {', '.join(worse)}"
    if max(empty, default=0.0) <= 0.5:
        return [
            f"{closer}: these errors are larger than the crowd itself, because of noise (a larger epsilon, longer "
            "slots or fewer and larger regions help, and so does a process model), or because the model is of "
            "another crowd."
        ]
    view = "the median view has" if config.median else "--median (in Python: median=True) shows"
    return [
        f"{closer}: estimates are expected counts, and most counts here ({max(empty):.0%}) are 0. For each count "
        f"{view} the number that is closest most often."
    ]
