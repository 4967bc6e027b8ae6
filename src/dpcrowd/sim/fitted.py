"""A fitted model in a simulation: give it to the filters, and say whether it has seen the slots that are scored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpcrowd.errors import counted
from dpcrowd.models.model import Model
from dpcrowd.models.season import duration_text
from dpcrowd.sim.data.counts import array_names
from dpcrowd.sim.data.series import ROUNDING_VAR, series_digest
from dpcrowd.sim.data.span import is_drawn_anew, notes_beside_variance
from dpcrowd.sim.data.tables import file_names
from dpcrowd.sim.data.times import slot_times

if TYPE_CHECKING:
    from dpcrowd.sim.data import DataSet

__all__ = ["apply_model", "by_position", "in_sample_note", "model_note", "overlap", "timing_notes", "unknown_slot_note"]

_SAME = 1e-9  # relative difference of mean squares that were summed in another order
_ENOUGH_REGIONS = 3  # that change: with fewer, mean squares of small counts may agree by chance


def apply_model(model: Model, data: DataSet) -> DataSet:
    """Return the same data, whose filters know the model; the data themselves do not change."""
    process = model.process_model(data.regions, slot_times(data.slot_labels), data.first)
    # The paper's observation noise is H^2 Q with the Q of the data, which the filters know in a simulation.
    process = replace(process, change_var=data.change_var)
    return replace(data, model=process, notes=notes_beside_variance(data))


def by_position(model: Model, regions: tuple[str, ...]) -> tuple[Model, tuple[str, ...]]:
    """Return a model of regions without names for data whose regions have none either, with a note if names differ.

    Arrays and files without a header count columns in different ways: 'region 0' and 'region-1' are the same column.
    """
    defaults = array_names(len(regions)), file_names(len(regions))
    if model.names == regions or model.names not in defaults or regions not in defaults:
        return model, ()
    renamed = tuple(replace(one, name=name) for one, name in zip(model.regions, regions, strict=True))
    note = (
        f"{model.file} calls its regions '{model.names[0]}' and so on, and these data '{regions[0]}' and so on: "
        "columns without names, which are taken in their order."
    )
    return replace(model, regions=renamed), (note,)


def overlap(model: Model, data: DataSet, burn_in: int) -> int | None:
    """Return how many of the scored slots of the data the model was fitted on; None: that cannot be known.

    Times decide; without them, equal counts, whatever the file is called; else the name of the file and the numbers of
    the slots. Where neither the counts nor the name are the same, the data may still be a part of the series.
    """
    if is_drawn_anew(data):
        return 0
    times = slot_times(data.slot_labels)
    if times is not None and model.begins is not None and model.slot is not None:
        end = model.begins + model.slots * model.slot
        first = max(burn_in, -((times.start - model.begins) // times.length))
        last = min(data.slots, (end - times.start) // times.length)
        return max(0, last - first)
    place = _place_of_span(model, data)
    if place is None:
        place = model.first - data.first
        complete = place >= 0 and place + model.slots <= data.slots and set(model.names) == set(data.regions)
        if complete or Path(model.data).name != Path(data.name).name:
            return None
    return max(0, min(data.slots, place + model.slots) - max(burn_in, place))


def _place_of_span(model: Model, data: DataSet) -> int | None:
    """Return the slot of the data at which the counts begin that the model was fitted on; None: they are not in it.

    The mean squares of the changes, which the model has per region, tell candidates. The digest of the counts confirms
    one. Where the data lack regions, several that agree to the last digit have to suffice.
    """
    counts = data.truth(np.random.default_rng(0))  # nothing is drawn: the file says it
    steps = model.slots - 1
    if steps < 1 or model.slots > len(counts):
        return None
    columns = [model.names.index(name) for name in data.regions]
    expected = np.array(model.change_var)[columns]
    sums = np.cumsum(np.square(np.diff(counts, axis=0, prepend=counts[:1]).astype(np.float64)), axis=0)
    means = np.maximum((sums[steps:] - sums[:-steps]) / steps, ROUNDING_VAR)
    places = np.flatnonzero(np.isclose(means, expected, rtol=_SAME).all(axis=1))
    # In a series that repeats itself several fit; then it is the one that the numbers of the slots name.
    candidates = sorted(places.tolist(), key=lambda place: place != model.first - data.first)
    if len(columns) < len(model.regions):
        enough = int((expected > ROUNDING_VAR).sum()) >= _ENOUGH_REGIONS
        return candidates[0] if enough and candidates else None
    ordered = counts[:, np.argsort(columns)].astype(np.float64)
    return next(
        (place for place in candidates if series_digest(ordered[place : place + model.slots]) == model.digest), None
    )


def model_note(model: Model) -> str:
    """Return the remark that comes with every result of a model."""
    season = "a constant level" if model.season == "none" else f"season {model.season}"
    slot = "" if model.slot is None else f" of {duration_text(model.slot)}"
    return (
        f"all filters know {model.file} ({season}, fitted on {model.slots} slots{slot} of '{model.data_name}'). A "
        "model is public: it costs no epsilon only if it was fitted on published data, on people whom the promise does "
        f"not cover, or on earlier releases. Its source, as asserted by whoever fitted it: {model.quoted_sources}."
    )


def timing_notes(model: Model, data: DataSet) -> list[str]:
    """Return remarks on what cannot be checked where the model, or the data, have no times."""
    times = slot_times(data.slot_labels)
    remarks = []
    if isinstance(model.season, int) and (model.season_lacks_times or times is None):
        later = "there" if data.first == 0 else f"{counted(data.first, 'slot')} later"
        reason = "these data have no times, so they" if times is None else "the model has no times, so these data"
        remarks.append(
            f"{model.file}: its season of {model.season} slots is counted from slot 0 of '{model.data_name}', on which "
            f"it was fitted; {reason} are taken to begin {later}. If they begin elsewhere in the "
            "season, everything that is expected is shifted; label the slots of both with times."
        )
    if model.slot is None and times is not None:
        remarks.append(unknown_slot_note(model, duration_text(times.length)))
    return remarks


def unknown_slot_note(model: Model, length: str) -> str:
    """Return the remark that a model does not say how long its slots are, where they are taken to be this long."""
    return (
        f"{model.file} has no slot length, since '{model.data_name}' has no times; it is taken to be for slots of "
        f"{length}. 'dpcrowd fit --slot-length' stores one, which is then checked."
    )


def in_sample_note(model: Model, slots: int | None) -> str | None:
    """Return the remark on a model that has seen slots which are scored, or may have (None); None if it has not."""
    if slots is None:
        return (
            f"it is unknown whether {model.file} was fitted on slots that are scored here: neither times nor counts "
            f"tell whether these data are a part of '{model.data_name}'. If they are, errors and coverage look better "
            "than they would on slots that it has not seen."
        )
    if slots == 0:
        return None
    return (
        f"in-sample: {model.file} was fitted on {slots} of the slots that are scored here, so errors and coverage "
        "look better than they would on slots that it has not seen."
    )
