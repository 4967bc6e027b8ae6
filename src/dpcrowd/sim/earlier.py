"""The process model that filters had when they made releases, and what a fit on these releases keeps of it.

A network with a model starts from what it says, and so does a fit on what the network has released: levels, a and
variances are where regions start from that were measured weakly, and its season is tried first, around its own shape
(`models.profiles`). All of that is public, as the releases are.

The correlation of two regions is kept as it was. Measurements would show it by the products of two regions' deviations,
since their noise is independent; but a server whose share of the crowd is not what the network takes it for is wrong in
all regions alike, and that is a correlation of measurements, too, with no people behind it. Where deviations are mostly
small is kept as well, since noise hides it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput
from dpcrowd.filters.tails import NORMAL
from dpcrowd.models.estimate import Fitted
from dpcrowd.models.file import read_model
from dpcrowd.models.model import MOST_EARLIER_SOURCES, Model, row_variances
from dpcrowd.models.season import SeasonKind, SlotTimes, duration_text, seasons_seen
from dpcrowd.models.weak import EarlierModel
from dpcrowd.sim.network_file import read_network_process

__all__ = ["as_start", "earlier_model", "is_network", "keep_facts", "keep_sources", "reads_groups", "season_notes"]


def earlier_model(made_with: Model | str | os.PathLike[str] | None) -> Model | None:
    """Return the process model that filters had, if they had one."""
    if made_with is None or isinstance(made_with, Model):
        return made_with
    if not is_network(Path(made_with)):
        return read_model(made_with)
    network = read_network_process(made_with)
    return None if network.model is None else network.read_model()


def reads_groups(made_with: Model | str | os.PathLike[str] | None) -> bool | None:
    """Whether servers read regions in groups, as the file of their network says; None: unknown, without that file."""
    if made_with is None or isinstance(made_with, Model) or not is_network(Path(made_with)):
        return None
    return bool(read_network_process(made_with).crowd.get("groups", "off") != "off")


def is_network(path: Path) -> bool:
    """Whether a TOML file is that of a network, and not that of a model; the reader of models refuses all else."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return any(name in document for name in ("scheme", "network", "server"))


def as_start(
    model: Model, regions: tuple[str, ...], times: SlotTimes | None, first: int, *, shape_only: bool
) -> EarlierModel:
    """Return what a fit of these regions starts from; a model that lacks any of them did not make the releases.

    times       when the slots to be fitted begin; `first` is the number of the first one
    shape_only  whether levels, a and variances are to be found without it
    """
    missing = [name for name in regions if name not in model.names]
    if missing:
        names = ", ".join(f"'{name}'" for name in missing[:3])
        more = "" if len(missing) <= 3 else f" and {len(missing) - 3} more"
        raise BadInput(
            f"{model.file} lacks {names}{more} of {len(regions)} regions of the releases, so they were not made with "
            "it; give --made-with the model or network.toml of the network that made them, or leave it out."
        )
    shape = None if _obstacle(model, times) else _shape(model, regions, times, first)
    if shape_only:
        unknown = np.full(len(regions), np.nan)
        return EarlierModel(model.season, unknown, unknown, unknown, shape)
    numbers = {one.name: (one.level, one.transition, one.variance) for one in model.regions}
    level, a, variance = np.array([numbers[name] for name in regions]).T
    rows = row_variances(level[None], level, a, variance, model.variance)
    return EarlierModel(model.season, level, a, rows[0] / (1.0 - np.square(a)), shape)


def keep_facts(
    fitted: Fitted, model: Model, regions: Sequence[str], times: SlotTimes | None
) -> tuple[Fitted, list[str]]:
    """Return a fit on releases with what measurements cannot tell and an earlier model says, and remarks on it.

    What is unusual in a slot of another length is not known.
    """
    notes = []
    if model.region_correlation is not None and len(regions) > 1:
        fitted = replace(fitted, region_correlation=model.region_correlation, in_common=model.in_common)
        notes.append(
            f"the correlation of two regions ({model.region_correlation:.4g}) was taken from {model.file}, because "
            "measurements look the same if regions rise together and if shares are slightly wrong."
        )
    tails = {one.name: one.tails for one in model.regions}
    alike = model.slot is None or times is None or model.slot == times.length
    if alike and any(tails.get(name) is not None for name in regions):
        usual, unusual = np.array([tails.get(name) or NORMAL for name in regions]).T
        fitted = replace(fitted, tails=(usual, unusual))
        notes.append(
            f"where deviations are mostly small (usual and unusual) is what {model.file} says: noise hides it in "
            "measurements."
        )
    return fitted, notes


def keep_sources(source: str, model: Model) -> tuple[str, ...]:
    """Return the sources of an earlier model that a fit which keeps parts of it has to name beside its own."""
    sources = tuple(dict.fromkeys(one for one in model.sources if one != source))
    if len(sources) > MOST_EARLIER_SOURCES:
        raise BadInput(
            f"the model would keep parts of models with {len(sources)} different sources ({model.file} and those "
            f"before it), and a promise names {MOST_EARLIER_SOURCES} at most; give this fit the same source as one of "
            "them, if it is true of these releases, too, or leave made_with out, if they "
            "have measurements: nothing is kept then."
        )
    return sources


def season_notes(model: Model, chosen: SeasonKind, times: SlotTimes | None, slots: int) -> list[str]:
    """Return what became of the season of an earlier model where a fit on `slots` slots was free to choose another."""
    if model.season == "none":
        return []
    season, obstacle = _text(model.season), _obstacle(model, times)
    if obstacle and chosen != model.season:
        return [f"the {season} of {model.file} was dropped: {obstacle}."]
    if chosen != model.season:
        other = "a constant level predicts" if chosen == "none" else f"{_text(chosen)} predicts"
        return [f"the {season} of {model.file} was dropped: {other} the measurements clearly better."]
    seen = seasons_seen(chosen, None if times is None else times.length, slots)
    if obstacle or seen is None or seen >= 2.0:
        return []
    return [
        f"the {season} fits {seen:.2g} times into the releases, too few to find its shape: that of {model.file} was "
        "kept as far as measurements do not contradict it, and levels are new."
    ]


def _obstacle(model: Model, times: SlotTimes | None) -> str:
    """Return why the profile of a model says nothing of the slots of a table; empty if it does."""
    if isinstance(model.season, str) and model.season != "none" and times is None:
        return "the releases have no times, without which nobody knows where in it a slot is; add a column 'start'"
    if times is not None and model.slot is not None and times.length != model.slot:
        lengths = duration_text(model.slot), duration_text(times.length)
        return f"its slots are {lengths[0]} long, and those of the releases {lengths[1]}"
    return ""


def _shape(model: Model, regions: tuple[str, ...], times: SlotTimes | None, first: int) -> Floats:
    """Return the profile of a model relative to its mean, (rows, d), by the rows of slots that are numbered from
    `first` on; a season of n slots may begin at another number in the series of the model.
    """
    course = model.process_model(regions, times, first).course
    assert course is not None
    mean = course.profile.mean(axis=0)
    shape = np.where(mean > 0.0, course.profile / np.where(mean > 0.0, mean, 1.0), 1.0)
    if isinstance(model.season, int):
        shape = np.roll(shape, first - course.offset, axis=0)
    return np.asarray(shape)


def _text(season: SeasonKind) -> str:
    return f"season of {season} slots" if isinstance(season, int) else f"season '{season}'"
