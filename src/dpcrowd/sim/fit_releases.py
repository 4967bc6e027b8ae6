"""`dpcrowd fit --releases`: fit a process model on earlier releases of a network, at no cost in privacy.

The file has one row per slot and region, as the client exports it: slot, region, estimate, and low and high, or
variance; `start`, when the slot opened, is needed for a season. With which model the filters made the releases is
public: it stands in the network.toml of the network.

A table with `measurement` and `measurement_variance` (relay: `/v1/estimates?smoothed=true&measurements=true`) has what
the records of each slot say by themselves. The model is fitted on these: no filter has to be undone, so it does not
matter what the filters knew, or have learned.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import BadInput, counted
from dpcrowd.filters import ProcessModel
from dpcrowd.models.estimate import Fitted, fit_series
from dpcrowd.models.file import read_model, write_model
from dpcrowd.models.model import Model
from dpcrowd.models.releases import check_growth, measurements, walk_of
from dpcrowd.models.season import check_seen_twice
from dpcrowd.sim.data import NAMES
from dpcrowd.sim.data.span import Span
from dpcrowd.sim.data.tables import Table, read_table
from dpcrowd.sim.earlier import (
    as_start,
    earlier_model,
    is_network,
    keep_facts,
    keep_sources,
    reads_groups,
    season_notes,
)
from dpcrowd.sim.export import check_toml_path, checked_path
from dpcrowd.sim.fit import checked_season, checked_source, make_model
from dpcrowd.sim.fit_notes import with_remarks
from dpcrowd.sim.network_file import NetworkFile, read_network_process
from dpcrowd.sim.release_table import ReleaseTable, cut_releases, read_releases

__all__ = ["fit_releases"]

_EXPORT = "/v1/estimates?smoothed=true&measurements=true of a server of relay"
_NOT_NEEDED = "the table has measurements, on which the model was fitted, so the process variance {whose} was not used."
_NO_SOURCE = (
    "dpcrowd.fit_releases was given no source. A model is public: say whose releases these are and why they are paid "
    "for, such as source='releases of our own network, January to June 2026'. The model's file, servers and results "
    "repeat it as your assertion."
)
_FAR_OFF = 3.0
"""How far levels may be off those of the releases, in deviations of a single release."""
_FEWEST = 3  # slots with a measurement of a region
_LEARNED = (
    "filters {may} learned how well their model fits ([scheme] learn, the default with a model). Behind a release of "
    "theirs stand several filters, and only that of the model is undone here: fitted variances may be several times "
    "too large or too small. Export the releases with measurements, which need not be undone: "
    f"{_EXPORT}."
)


def fit_releases(
    file: str | os.PathLike[str],
    *,
    source: str | None = None,
    season: str | int = "auto",
    made_with: Model | str | os.PathLike[str] | None = None,
    process_var: float | Sequence[float] | None = None,
    out: str | os.PathLike[str] | None = None,
    span: Span | None = None,
) -> Model:
    """Fit a process model on a table of releases.

    file         a table of one server's releases: slot, start, region, estimate, and low and high, or variance; with
                 measurement and measurement_variance, the model is fitted on these, and nothing has to be undone
    source       has to be given, as of `dpcrowd.fit`: only you know whose releases they are. Of a model that the
                 filters had (`made_with`), parts are kept, and so are its sources (`Model.earlier_sources`)
    season       as of `dpcrowd.fit`
    made_with    what the filters that made the releases knew: the network.toml of their network, or a process model,
                 whose season (unless another one predicts clearly better) and region_correlation are kept
    process_var  instead of it, Q of a random walk: a number, or one per region, in the order of the table. Without
                 either, Q is taken from the table, and refused if the table does not show it
    out          the file, whose name ends in .toml
    span         fit on these slots only: "70:395", by their numbers in the table, or fractions of it, "0:0.5"
    """
    source = checked_source(source, _NO_SOURCE)
    if out is not None:
        check_toml_path(checked_path("out", out), "a model")
    if made_with is not None and process_var is not None:
        raise BadInput("made_with and process_var are both given; leave one out.")
    if made_with is not None and not isinstance(made_with, Model):
        made_with = checked_path("made_with", made_with)
        if not made_with.is_file():
            raise BadInput(
                f"'{made_with}' (--made-with) is not a file that exists; give the network.toml of the network that "
                "made the releases, or a model that 'dpcrowd fit' wrote."
            )
    table = _table(file)
    releases = read_releases(table)
    releases = releases if span is None else cut_releases(releases, span, table.file)
    slots, times = releases.slots, releases.times
    if len(slots) < 3:
        hint = "" if span is None else f" in span {span} (0:1 is slot 0 alone; fractions have a point: 0:1.0)"
        raise BadInput(f"{table.file} has releases of {counted(len(slots), 'slot')}{hint}; a model needs at least 3.")
    first = int(slots[0])
    (value, noise), earlier, notes = _measurements(releases, made_with, process_var)
    number = np.isfinite(noise).sum(axis=0)
    if number.max() < _FEWEST:
        raise BadInput(
            f"{table.file} has at most {counted(int(number.max()), 'slot')} in which anything was learned about a "
            f"region; a model needs at least {_FEWEST} of one region. Give releases of a longer time"
            + (f", or export them with measurements: {_EXPORT}." if releases.measured is None else ".")
        )
    season = checked_season(season)
    start = None
    if earlier is not None:
        start = as_start(earlier, releases.regions, times, first, shape_only=releases.measured is None)
    if start is None or start.shape is None or season != start.season:  # a shape that is known need not be seen twice
        check_seen_twice(season, None if times is None else times.length, len(slots))
    estimate = np.where(np.isfinite(releases.variance), releases.mean, np.nan)
    fitted = fit_series(value, noise, times, season, first, estimate, start)
    if earlier is not None:
        if season == "auto":
            notes = (*notes, *season_notes(earlier, fitted.season, times, len(slots)))
        fitted, remarks = keep_facts(fitted, earlier, releases.regions, times)
        notes = (*notes, *remarks)
    if releases.measured is not None:
        notes = (*notes, *_group_notes(np.isfinite(noise), releases.present, reads_groups(made_with)))
    notes = (*notes, *_weak_notes(fitted, releases.regions, number))
    q, a = fitted.estimate.variance, fitted.estimate.transition
    level = fitted.estimate.profile.level if fitted.estimate.kind == "proportional" else 1.0
    model = make_model(
        fitted,
        releases.regions,
        times,
        first=first,
        slots=len(slots),
        data=table.file,
        source=source,
        earlier_sources=() if earlier is None else keep_sources(source, earlier),
        change_var=2.0 * q * level / (1.0 + a),
        digest=hashlib.sha256(
            np.ascontiguousarray(np.stack([releases.mean, releases.variance]), dtype="<f8").tobytes()
        ).hexdigest(),
        notes=(*releases.notes, *notes),
    )
    model = with_remarks(model, season, releases=True, made_with=made_with is not None)
    _check_levels(model, releases, table.file)
    if out is not None:
        write_model(model, out)
    return model


def _table(file: str | os.PathLike[str]) -> Table:
    path = checked_path("file", file, "releases.csv")
    if os.fspath(file) in NAMES and not path.exists():
        raise BadInput(f"'{file}' is a data set of counts; give a table of releases, or leave --releases out.")
    return read_table(path)


def _check_levels(model: Model, releases: ReleaseTable, file: str) -> None:
    """Refuse a model whose levels are not at all those of the releases: undoing the filters has gone wrong."""
    course = _of_model(model, releases).course
    assert course is not None
    if releases.measured is not None:  # nothing was undone
        return
    expected = np.stack([course.mean(slot) for slot in range(len(releases.slots))])
    known = np.isfinite(releases.variance) & np.isfinite(releases.mean)
    number = np.maximum(known.sum(axis=0), 1)
    released, fitted, spread = (
        np.where(known, values, 0.0).sum(axis=0) / number
        for values in (releases.mean, expected, np.sqrt(np.maximum(releases.variance, 0.0)))
    )
    off = np.abs(released - fitted) - _FAR_OFF * np.maximum(spread, 1.0)
    worst = int(off.argmax())
    if off[worst] > 0.0:
        raise BadInput(
            f"a model of {file} would expect {fitted[worst]:.3g} people of '{releases.regions[worst]}' on average, "
            f"where the releases say {released[worst]:.3g}: what the filters that made them have learned cannot be "
            f"undone. Export the releases with measurements, which need not be undone: {_EXPORT}."
        )


def _measurements(
    releases: ReleaseTable,
    made_with: Model | str | os.PathLike[str] | None,
    process_var: float | Sequence[float] | None,
) -> tuple[tuple[Floats, Floats], Model | None, tuple[str, ...]]:
    """Return measurements and their variances, (T, d) each, the model of the filters, and what to know about them."""
    if releases.measured is None:
        process, notes = _process(releases, made_with, process_var)
        return measurements(releases.mean, releases.variance, process), earlier_model(made_with), notes
    if process_var is not None:
        _variances(process_var, releases.regions, releases.regions, "process_var")
    model = earlier_model(made_with)
    whose = None
    if process_var is not None:
        whose = "that was given"
    elif model is None and made_with is not None and not isinstance(made_with, Model):
        whose = f"of '{os.fspath(made_with)}'"
    return releases.measured, model, () if whose is None else (_NOT_NEEDED.format(whose=whose),)


def _group_notes(measured: Bools, present: Bools, in_groups: bool | None) -> list[str]:
    """Return what groups cost a fit, from where (T, d) there is a measurement.

    A record has all regions, so where only some of a slot were measured, others were read in groups, or the records
    told less of them than rounding does. Slots without any measurement may have had no record at all.

    present    (T, d) whether the table has a row; rows that it lacks have a note of their own
    in_groups  whether servers read regions in groups; None: unknown
    """
    some = measured.any(axis=1)
    none = ~some & present.any(axis=1)
    shared, empty = int((present & ~measured)[some].sum()), int(none.sum())
    if in_groups is False or not (shared or (in_groups and empty)):
        return []
    parts = []
    if shared:
        parts.append(
            f"in {shared} of {measured.size} slots x regions, a region has no measurement of its own while others of "
            "the slot have one"
        )
    if empty:
        parts.append(
            f"in {empty} of {len(measured)} slots, which are {int(present[none].sum())} slots x regions, no region "
            "has one: there was no record, or " + ("all of them had sums only" if in_groups else "none that tells any")
        )
    text, used = ", and ".join(parts), "Shapes, a and variances are those of the other measurements"
    if in_groups:
        return [
            f'regions were read in groups: {text}. {used}; groups = "off" in the time before a fit gives more of them.'
        ]
    return [
        f"some measurements are missing: {text}. {used}. A region has none of its own in a slot whose records say too "
        'little of it, or in which all of them have read it in a group with others: if [scheme] groups is "auto" in '
        'network.toml, "off" in the time before a fit gives more of them; --made-with network.toml tells which it is.'
    ]


def _weak_notes(fitted: Fitted, regions: tuple[str, ...], number: Ints) -> list[str]:
    """Return notes on regions of which the measurements, (d,) of them, tell little."""
    profile = fitted.estimate.profile
    unmeasured = number < _FEWEST
    weak = ~unmeasured & (2.0 * np.sqrt(profile.level_var) > profile.level)
    notes = []
    if unmeasured.any():
        notes.append(
            f"{_listed(regions, unmeasured)}: measured by themselves in fewer than {_FEWEST} slots (not at all, or in "
            "groups only). Their levels are those of their estimates, as far as they agree over time, shrunk towards "
            "the other regions; a and variance are what the others have in common."
        )
    if weak.any():
        notes.append(
            f"{_listed(regions, weak)}: noise hides how many people are there. Their levels are near 0, shrunk towards "
            "the other regions, and their variances contain the doubt that is left."
        )
    return notes


def _listed(regions: tuple[str, ...], chosen: Bools) -> str:
    names = [name for name, is_chosen in zip(regions, chosen.tolist(), strict=True) if is_chosen]
    shown = ", ".join(f"'{name}'" for name in names[:3])
    more = "" if len(names) <= 3 else f" and {len(names) - 3} more"
    return f"{shown}{more} of {len(regions)} regions"


def _process(
    releases: ReleaseTable,
    made_with: Model | str | os.PathLike[str] | None,
    process_var: float | Sequence[float] | None,
) -> tuple[ProcessModel, tuple[str, ...]]:
    """Return the model of the filters that made the releases, and what to know about it."""
    if process_var is not None:
        q = _variances(process_var, releases.regions, releases.regions, "process_var")
        process = ProcessModel.of(1.0, q)
    elif made_with is None:
        return walk_of(releases.variance), ()
    elif isinstance(made_with, Model) or not is_network(Path(made_with)):
        model = made_with if isinstance(made_with, Model) else read_model(made_with)
        return _of_model(model, releases), (_LEARNED.format(may="may have"),)
    else:
        network = read_network_process(made_with)
        process = _of_network(network, releases)
        # Without a model, filters learn only where the file says so.
        if network.learn or (network.learn is None and network.model is not None):
            return process, (_LEARNED.format(may="have"),)
    check_growth(releases.variance, process, releases.regions)
    return process, ()


def _of_model(model: Model, releases: ReleaseTable) -> ProcessModel:
    return model.process_model(releases.regions, releases.times, int(releases.slots[0]))


def _of_network(network: NetworkFile, releases: ReleaseTable) -> ProcessModel:
    """Return the model of a network's filters for the regions of the releases."""
    if network.model is not None:
        return _of_model(network.read_model(), releases)
    if "process_var" not in network.settings:
        raise BadInput(f"'{network.path}' has neither process_var nor model in [scheme]; give the file of a network.")
    missing = [name for name in releases.regions if name not in network.regions]
    if missing:
        raise BadInput(
            f"'{network.path}' has no region '{missing[0]}', which the releases have; give the network.toml of the "
            "network that made them."
        )
    numbers = {
        name: _variances(value, network.regions, releases.regions, f"scheme.{name} of '{network.path}'")
        for name, value in (("process_var", network.settings["process_var"]), ("transition", network.transition))
    }
    a = numbers["transition"]
    return ProcessModel.of(1.0 if (a == 1.0).all() else a, numbers["process_var"])


def _variances(value: object, regions: tuple[str, ...], wanted: tuple[str, ...], what: str) -> Floats:
    """Return one number per wanted region, from one number or one per region."""
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.zeros((0, 0))
    if numbers.shape not in ((), (1,), (len(regions),)) or not np.isfinite(numbers).all() or (numbers < 0.0).any():
        raise BadInput(
            f"{what} is {value!r}; allowed here: a number from 0, or {len(regions)} numbers, one per region."
        )
    by_region = dict(zip(regions, np.broadcast_to(numbers, len(regions)), strict=True))
    return np.array([by_region[name] for name in wanted])
