"""`dpcrowd.fit`: fit a process model on public counts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.__about__ import __version__
from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput, counted, unknown_name
from dpcrowd.filters.tails import HEAVY
from dpcrowd.models.estimate import Fitted
from dpcrowd.models.file import write_model
from dpcrowd.models.model import LONGEST_SOURCE, Model, RegionModel
from dpcrowd.models.printable import check_printable, escaped
from dpcrowd.models.season import SEASONS, SeasonKind, SlotTimes, check_seen_twice, duration_text
from dpcrowd.models.steps import fit_after_step
from dpcrowd.sim.data.checkins import slot_length_us
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.draw import NAMES, is_count_file, load
from dpcrowd.sim.data.frames import is_frame
from dpcrowd.sim.data.series import OneSlot, one_step_var, series_digest
from dpcrowd.sim.data.span import Span, cut, fraction_hint, is_drawn_anew, notes_beside_variance, read_span, span_text
from dpcrowd.sim.data.times import slot_times, unknown_times_note
from dpcrowd.sim.export import check_toml_path, checked_path
from dpcrowd.sim.fit_notes import count_notes, step_note, with_remarks

__all__ = ["checked_season", "checked_source", "fit", "make_model"]

_BY_TIME = tuple(name for name in SEASONS if name != "none")


def fit(
    data: Any,
    *,
    source: str | None = None,
    season: str | int = "auto",
    span: Span | None = None,
    out: str | os.PathLike[str] | None = None,
    slot_length: str | float | None = None,
    **loading: Any,
) -> Model:
    """Fit a process model on counts, and write it to a file, if asked for.

    data     a file of counts or check-ins, the name of a data set, a loaded data set, a DataFrame of pandas or polars
             with the columns of a file, or an array of counts with a row per slot; `loading` as of `load_data`, and of
             an array as of `counts_from_array`
    source   has to be given: why fitting on these data costs no privacy budget: they are published, of people whom the
             promise does not cover, or earlier releases. The file carries it, and live nodes print it as the operator's
             assertion
    season   none, day (hour of the day), week (day of the week), hour-of-week, year (week of the year), a number of
             slots, or auto: what predicts best on blocks that are held out, of the seasons of the calendar (if there
             are times) and of numbers of slots that the autocorrelation suggests
    span     fit on these slots only: "0:395", or fractions, "0:0.5"
    out      the file, whose name ends in .toml
    slot_length  of check-ins or flights, as of `load_data`; of counts without times, the length that the file states

    >>> import dpcrowd
    >>> counts = dpcrowd.counts_from_array(np.random.default_rng(0).poisson(20, (200, 1)), regions=["hall"])
    >>> model = dpcrowd.fit(counts, source="drawn for this example")
    >>> model.season, 18 < model.regions[0].level < 22
    ('none', True)
    """
    source = checked_source(source, _NO_SOURCE)
    if out is not None:
        check_toml_path(checked_path("out", out), "a model")
    _check_options(slot_length, loading)
    if isinstance(data, np.ndarray | list):
        try:
            data, loading = _from_array(data, loading), {}
        except OneSlot:
            raise BadInput("the array has 1 slot (a row); a model needs at least 3.") from None
    if not isinstance(data, str | os.PathLike | DataSet) and not is_frame(data):
        raise BadInput(
            f"dpcrowd.fit was given an object of type {type(data).__name__}; allowed: the path of a file, the name of a"
            " data set, a data set of load_data or counts_from_array, a DataFrame, or an array of counts with a row per"
            " slot."
        )
    try:
        series, stated = _load(data, slot_length, loading)
    except OneSlot:
        what = "the DataFrame" if is_frame(data) else f"'{data}'"
        raise BadInput(f"{what} has 1 slot; a model needs at least 3.") from None
    _check_names(series)
    if is_drawn_anew(series):
        raise BadInput(f"'{series.name}' is drawn anew in each run and has no past to fit on; give a file of counts.")
    first, last = (0, series.slots) if span is None else read_span(span, series.slots)
    if last - first < 3:
        place = f"'{series.name}' has" if span is None else f"span '{span}' of '{series.name}' contains"
        number = counted(last - first, "slot")
        hint = "" if span is None or "." in span_text(span) else fraction_hint(first, last)
        raise BadInput(f"{place} {number}; a model needs at least 3.{hint}")
    series = cut(series, first, last)
    counts = series.truth(np.random.default_rng(0)).astype(np.float64)  # nothing is drawn: the file says it
    times = slot_times(series.slot_labels)
    season = checked_season(season)
    label_note = unknown_times_note(series.slot_labels) if times is None and season in _BY_TIME else None
    if label_note is not None:
        raise BadInput(f"season '{season}' needs the time of each slot, but {label_note}")
    check_seen_twice(season, None if times is None else times.length, series.slots)
    fitted, step = fit_after_step(counts, times, season, series.first)
    begin = 0 if step is None else step.begin
    later = None if times is None else SlotTimes(times.at(begin), times.length)
    model = make_model(
        fitted,
        series.regions,
        later,
        slot=stated,
        first=series.first + begin,
        slots=series.slots - begin,
        data=os.path.basename(series.name),
        source=source,
        change_var=one_step_var(counts[begin:].astype(np.int64)),
        digest=series_digest(counts[begin:]),
        notes=() if series.name in NAMES else notes_beside_variance(series),
    )
    process = model.process_model(series.regions, later, series.first + begin)
    remarks = [] if step is None else [step_note(step)]
    model = replace(model, notes=(*model.notes, *remarks, *count_notes(counts[begin:], series.regions, process)))
    model = with_remarks(model, season)
    if out is not None:
        write_model(model, out)
    return model


_NO_SOURCE = (
    "dpcrowd.fit was given no source. A model is public: say where its data come from and why that costs no privacy "
    "budget: published data, people whom the promise does not cover, or earlier releases, such as "
    "dpcrowd.fit(counts, source='CDC, published'). The model's file, servers and results repeat it as your assertion."
)


def _check_options(slot_length: str | float | None, loading: dict[str, Any]) -> None:
    """Refuse options that neither fit nor `load_data` has, and a slot length that no data may have."""
    if slot_length is not None:
        slot_length_us(slot_length)
    for name in ("releases", "made_with"):
        if name in loading:
            raise BadInput(f"dpcrowd.fit reads counts and has no '{name}'; give releases to dpcrowd.fit_releases.")
    known = {*signature(fit).parameters, *signature(load).parameters} - {"data", "loading", "name_or_path"}
    for name in loading:
        if name not in known:
            raise unknown_name("option of dpcrowd.fit", name, known)


def _check_names(data: DataSet) -> None:
    """Refuse names that no model may have, whether or not it is written: later the model's file would be blamed."""
    for region in data.regions:
        check_printable(region, f"column or region '{escaped(region)}' of '{os.path.basename(data.name)}'")


def _from_array(counts: list[Any] | NDArray[Any], options: dict[str, Any]) -> DataSet:
    for name in options:
        if name not in ("slots", "regions", "round_counts"):
            raise BadInput(f"{name} is for files; of an array of counts, slots, regions and round_counts may be given.")
    return counts_from_array(counts, **options)


def checked_source(source: str | None, missing: str) -> str:
    """Return why fitting costs no privacy budget; refuse a text without a word, one of several lines, and all else.

    missing  what to say if there is none
    """
    if source is None:
        raise BadInput(missing)
    value: object = source
    if isinstance(value, str) and any(character.isalnum() for character in value):
        text = value.strip()
        if len(text) > LONGEST_SOURCE:
            raise BadInput(
                f"the source has {len(text):,} characters; allowed: {LONGEST_SOURCE}, since every promise repeats it."
            )
        check_printable(text, "the source")
        return text
    problem = f"{value!r}, which is not a text"
    if isinstance(value, str):
        problem = "without a letter or digit" if value.strip() else "empty"
    raise BadInput(
        f"the source is {problem}; say why fitting on these data costs no privacy budget: published data, people whom "
        "the promise does not cover, or earlier releases."
    )


def _load(data: Any, slot_length: str | float | None, loading: dict[str, Any]) -> tuple[DataSet, int | None]:
    """Return the data, and the slot length in microseconds that the user states of counts without times."""
    if slot_length is None:
        return data if isinstance(data, DataSet) else load(data, **loading), None
    if not isinstance(data, DataSet) and not is_count_file(data, loading.get("header")):
        return load(data, slot_length=slot_length, **loading), None
    series = data if isinstance(data, DataSet) else load(data, **loading)
    times = slot_times(series.slot_labels)
    if times is not None:
        raise BadInput(
            f"a slot length was given, but '{series.name}' has times, which say that its slots are "
            f"{duration_text(times.length)} long; leave it out."
        )
    return series, slot_length_us(slot_length)


def checked_season(season: str | int) -> SeasonKind:
    """Return a season that may be given as text, or refuse it."""
    if isinstance(season, str) and season.isascii() and season.isdigit():
        season = int(season)
    value: object = season
    if not isinstance(value, bool) and isinstance(value, Integral):
        return int(value)
    if value not in (*SEASONS, "auto"):
        problem = str(unknown_name("season", str(value), ("auto", *SEASONS))).removesuffix(".")
        raise BadInput(f"{problem}, or a whole number of slots of at least 2.")
    return str(value)


def _heavy_tails(fitted: Fitted, region: int) -> tuple[float, float] | None:
    """Return the tails of a region in which deviations are mostly small."""
    if fitted.tails is None or not fitted.tails[0][region] < HEAVY:
        return None
    return float(fitted.tails[0][region]), float(fitted.tails[1][region])


def make_model(
    fitted: Fitted,
    regions: Sequence[str],
    times: SlotTimes | None,
    *,
    slot: int | None = None,
    first: int,
    slots: int,
    data: str,
    source: str,
    earlier_sources: tuple[str, ...] = (),
    change_var: Floats,
    digest: str,
    notes: tuple[str, ...] = (),
) -> Model:
    """Return what was fitted, with where it comes from, as a model for a file.

    slot  the length of a slot in microseconds, where the times are unknown
    """
    estimate, profile = fitted.estimate, fitted.estimate.profile
    seasonal = len(profile.rows) > 1
    return Model(
        regions=tuple(
            RegionModel(
                name,
                float(profile.level[k]),
                float(estimate.transition[k]),
                float(estimate.variance[k]),
                tuple(float(value) for value in profile.rows[:, k]) if seasonal else (),
                None if fitted.mean is None else float(fitted.mean[k]),
                _heavy_tails(fitted, k),
            )
            for k, name in enumerate(regions)
        ),
        season=fitted.season,
        slot=slot if times is None else times.length,
        variance=estimate.kind,
        change_var=tuple(float(value) for value in change_var),
        first=first,
        slots=slots,
        begins=None if times is None else times.start,
        data=data,
        source=source,
        earlier_sources=earlier_sources,
        version=__version__,
        digest=digest,
        scores=fitted.scores,
        reason=fitted.reason,
        notes=notes,
        region_correlation=fitted.region_correlation,
        in_common=fitted.in_common,
    )
