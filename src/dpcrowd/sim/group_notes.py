"""What relay did where small regions may share draws of noise (`docs/small-regions.md`): in a note, and as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.recorder import RunRecords

__all__ = ["draw_means", "group_notes"]


def draw_means(record: RunRecords) -> dict[str, Any]:
    """Return how many draws of noise a record had on average, and which part of the records had the sum of all regions.

    Nothing for a scheme that was not asked for groups; None if it made no records.
    """
    if record.draws is None:
        return {}
    records, draws, sums = record.draws.sum(axis=0).tolist()
    if not records:
        return {"draws_per_record": None, "sums_of_all": None}
    return {"draws_per_record": draws / records, "sums_of_all": sums / records}


def group_notes(config: SimulationConfig, records: Sequence[RunRecords]) -> list[str]:
    """Return a remark for each relay that was asked for groups: what they saved, or why no regions were joined."""
    schemes = {entrant.label: entrant.scheme for entrant in config.entrants}
    asked = [
        record
        for record in records
        if isinstance(scheme := schemes.get(record.label), Relay) and scheme.groups == "auto"
    ]
    model = config.data.model
    if asked and model.course is not None and model.region_correlation is None and model.regions > 1:
        return [
            f"{', '.join(record.label for record in asked)}: no regions are joined, since the model has no "
            "region_correlation. Fit it on public counts, or on releases with --made-with."
        ]
    return [f"{record.label}: {_text(config, record)}" for record in asked]


def _text(config: SimulationConfig, record: RunRecords) -> str:
    model, means = config.data.model, draw_means(record)
    if model.regions == 1:
        return "there is one region, so groups have no effect."
    if means.get("draws_per_record") is None:
        return "no records were made, so groups have no effect."
    if means["draws_per_record"] < model.regions:
        return (
            f"with groups, a record had {means['draws_per_record']:.3g} draws of noise on average for {model.regions} "
            f"regions; {means['sums_of_all']:.0%} of the records had one draw on the sum of all regions."
        )
    reason = "none was small enough beside the noise for a group to have the smaller predicted error"
    if model.course is not None:
        reason = "no sum was predicted to tell enough more than records of single regions"
        if model.region_correlation == 0.0:
            reason = f"the model says that regions do not rise and fall together (region_correlation 0), and {reason}"
    return f"no regions were joined: {reason}. The result is that of groups off."
