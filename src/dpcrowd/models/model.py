"""A fitted process model: what is expected of every region, on what it was fitted, and how good it was there.

The parameters are those of `filters.course`. A model is public: whoever has the file knows what it says. It costs no
privacy budget only if it was fitted on published data, on people whom the promise does not cover, or on earlier
releases; `source` says which, and that is the assertion of whoever fitted it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput, counted
from dpcrowd.filters import Course, ProcessModel
from dpcrowd.filters.model import InCommon
from dpcrowd.filters.tails import HEAVY, NORMAL, Tails, burst_var
from dpcrowd.models.printable import LONGEST_SOURCE, check_printable, escaped, quote_sources
from dpcrowd.models.season import LABEL_SLOTS, SeasonKind, SlotTimes, duration_text, timing
from dpcrowd.models.text import model_text

__all__ = [
    "LEAST_VAR",
    "LONGEST_SOURCE",
    "MOST_EARLIER_SOURCES",
    "Model",
    "RegionModel",
    "Scores",
    "VarianceKind",
    "deviation_scale",
    "expected_people",
    "row_variances",
]

VarianceKind = Literal["fixed", "proportional", "relative"]

LEAST_VAR = 1.0 / 12.0
"""The smallest variance of a deviation: that of rounding to whole people."""

MOST_EARLIER_SOURCES = 8
"""A promise quotes all of them."""

_MOST_PEOPLE = 1e18
_LEAST_PART, _LEAST_EXPECTED = 0.1, 0.05  # of the level, and in people: where hardly anybody is expected


@dataclass(frozen=True, eq=False)
class RegionModel:
    """What is expected of one region.

    level       the expected count, averaged over the season; where rare bursts count less, it is below the mean count
    transition  a: which part of a deviation is left after one slot, 0 <= a < 1
    variance    of what one slot adds to the deviation; if it is proportional, per expected person, and if it is
                relative, per expected person squared
    profile     the expected count by row of the season; empty: the level
    mean        the mean count, bursts included, of the slots that the level stands for; None: unknown
    tails       the part of the variance that usual deviations have, and the part of slots with unusual ones; None:
                all are usual
    """

    name: str
    level: float
    transition: float
    variance: float
    profile: tuple[float, ...] = ()
    mean: float | None = None
    tails: tuple[float, float] | None = None


@dataclass(frozen=True)
class Scores:
    """How good a model was on blocks of the series that it had not seen.

    error     sum of |error| / sum of counts of predictions from the slot before
    past      the same of the model alone, without any record
    coverage, past_coverage  of their 95% intervals, in regions where anybody was counted
    slots     how many slots were held out; 0: the series was too short, and the scores are NaN. If nobody was counted
              in them, the errors are NaN
    """

    error: float
    past: float
    coverage: float
    past_coverage: float
    slots: int


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Model:
    """A fitted model; `print` shows what it says.

    season      "none", "day", "week", "hour-of-week", "year", or a number of slots
    slot        the length of a slot in microseconds; None: unknown
    variance    whether variances are fixed, or in proportion to the expected count; relative: whether deviations
                themselves are in proportion to it
    change_var  per region: the mean square of the change of a count in one slot
    first       the number of the first slot of the span in its series
    slots       how many slots it was fitted on
    begins      when the first of them begins, in microseconds since 1970 UTC; None: unknown
    data        what the series is called
    source      why fitting on it costs no privacy budget, in the words of whoever fitted it
    version     which dpcrowd fitted it
    digest      of the counts or releases that it was fitted on
    file        what to call it in messages
    region_correlation  of the deviations of two regions, on average; None: unknown
    in_common   how what regions have in common moves; None: there is nothing, or it is unknown
    earlier_sources  of a model of releases: the sources of the model with which these were made, and of those before
                it, since parts of them were kept; without duplicates, the latest first
    notes       what to know about the fit; they are shown, and not written to the file
    """

    regions: tuple[RegionModel, ...]
    season: SeasonKind
    slot: int | None
    variance: VarianceKind
    change_var: tuple[float, ...]
    first: int
    slots: int
    begins: int | None
    data: str
    source: str
    version: str
    digest: str
    scores: Scores
    reason: str = ""
    file: str = "the model"
    notes: tuple[str, ...] = ()
    region_correlation: float | None = None
    in_common: InCommon | None = None
    earlier_sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a model without a source, since nobody would know whether it costs no privacy budget."""
        if not any(character.isalnum() for character in self.source):
            raise BadInput(
                f"{self.file} has no source; a model has to say why it costs no privacy budget. Fit it with 'dpcrowd "
                "fit --source TEXT' on published data, on people outside the promise, or on earlier releases."
            )

    def check_texts(self) -> None:
        """Refuse texts that could forge or control what is printed: in what is written, and in what is newly used."""
        texts = {
            "source": self.source,
            **{f"earlier_sources[{number}]": text for number, text in enumerate(self.earlier_sources)},
            "data": self.data,
            "reason": self.reason,
            "dpcrowd": self.version,
            "digest": self.digest,
        }
        for key, text in texts.items():
            check_printable(text, f"'{key}' of {self.file}")
        for region in self.regions:
            check_printable(region.name, f"the name of a region of {self.file}")

    def __repr__(self) -> str:
        """Return one line; the numbers of all regions and rows of the season would fill many pages."""
        return f"Model({counted(len(self.regions), 'region')}, season {self.season!r}, {self.span})"

    def __str__(self) -> str:
        """Return what the model says, in the lines of the table of `dpcrowd fit`."""
        return model_text(self)

    @property
    def sources(self) -> tuple[str, ...]:
        """Why it costs no privacy budget: its own source, then those of earlier models of which it keeps a part."""
        return (self.source, *self.earlier_sources)

    @property
    def quoted_sources(self) -> str:
        """The sources as promises and notes quote them, in quotation marks."""
        return quote_sources(self.sources)

    @property
    def data_name(self) -> str:
        """What the series is called, as it may be printed."""
        return escaped(self.data)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its regions."""
        return tuple(region.name for region in self.regions)

    @property
    def span(self) -> str:
        """The slots that it was fitted on, in words."""
        return f"slots {self.first} to {self.first + self.slots - 1} of '{self.data_name}'"

    @property
    def season_lacks_times(self) -> bool:
        """Whether its season is counted in slots of a series without times: only slot numbers say where it begins."""
        return isinstance(self.season, int) and (self.begins is None or self.slot is None)

    def process_model(self, regions: Sequence[str], times: SlotTimes | None, first: int = 0) -> ProcessModel:
        """Return the model of the filters for slots that begin at these times.

        regions  the names of the regions, in the order in which the filters have them
        times    when slot 0 begins, and how long slots are; None: unknown
        first    the number of slot 0 in its series, if the season is counted in slots and times are unknown
        """
        chosen = [self.regions[k] for k in self._places(regions)]
        change_var = np.array([self.change_var[k] for k in self._places(regions)])
        if times is not None and self.slot is not None and times.length != self.slot:
            raise BadInput(
                f"{self.file} was fitted on slots of {duration_text(self.slot)}, but slots are "
                f"{duration_text(times.length)} long here; fit it again on public counts or your own releases in "
                "slots of the same length."
            )
        if isinstance(self.season, str) and self.season != "none" and times is None:
            raise BadInput(
                f"{self.file} has the season '{self.season}', and the data have no times; {LABEL_SLOTS}, or fit a "
                "model with --season none."
            )
        if times is not None and self.begins is not None and self.slot is not None:
            first = self.first + (times.start - self.begins) // self.slot
        place = timing(self.season, times, first)
        profile = np.array([region.profile or (region.level,) * place.rows for region in chosen]).T
        if len(profile) != place.rows:
            raise BadInput(
                f"{self.file} has profiles of {counted(len(profile), 'row')}; a season '{self.season}' of these slots "
                f"has {place.rows}."
            )
        transition = np.array([region.transition for region in chosen])
        level, variance = (np.array([getattr(region, name) for region in chosen]) for name in ("level", "variance"))
        variances = row_variances(profile, level, transition, variance, self.variance)
        scale = deviation_scale(profile, level, transition, variance) if self.variance == "relative" else None
        course = Course(profile, variances, place.season, place.offset, place.step, scale, _tails(chosen))
        return ProcessModel.around(course, transition, change_var, self.region_correlation, self.in_common)

    def _places(self, regions: Sequence[str]) -> list[int]:
        places = {region.name: number for number, region in enumerate(self.regions)}
        missing = [name for name in regions if name not in places]
        if missing:
            names = ", ".join(f"'{name}'" for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
            known = ", ".join(f"'{name}'" for name in self.names[:5]) + (", ..." if len(self.regions) > 5 else "")
            raise BadInput(
                f"{self.file} has no region {names}; it has {known}. Fit it again on public counts or "
                "your own releases of the regions that are used, by their names."
            )
        return [places[name] for name in regions]


def _tails(regions: Sequence[RegionModel]) -> Tails | None:
    if all(region.tails is None for region in regions):
        return None
    usual, unusual = np.array([region.tails or NORMAL for region in regions]).T
    level = np.array([region.level for region in regions])
    mean = np.array([region.level if region.mean is None else region.mean for region in regions])
    bursts = np.where(usual < HEAVY, burst_var(level, mean, unusual), 0.0)
    return Tails(usual, unusual, bursts if bursts.any() else None)


def expected_people(profile: Floats, level: Floats) -> Floats:
    """Return what variances or deviations are in proportion to: the expected count, but never next to nothing."""
    return np.maximum(np.maximum(profile, _LEAST_PART * level), _LEAST_EXPECTED)


def deviation_scale(profile: Floats, level: Floats, transition: Floats, variance: Floats) -> Floats:
    """Return what relative deviations are in proportion to, (rows, d): the expected count, but never next to nothing.

    Where it is so small that deviations would be less than those of a Poisson count, or of rounding, it is raised to
    what makes them equal. To raise the variance instead would let the chance of the night grow with the crowd of the
    morning.
    """
    people, new_part = expected_people(profile, level), 1.0 - np.square(transition)
    by_chance = np.maximum(profile, LEAST_VAR) * new_part
    return np.maximum(people, np.sqrt(by_chance / np.maximum(variance, new_part / _MOST_PEOPLE)))


def row_variances(profile: Floats, level: Floats, transition: Floats, variance: Floats, kind: VarianceKind) -> Floats:
    """Return q by row of the season, (rows, d), at least that of rounding."""
    if kind == "proportional":
        variance = variance * expected_people(profile, level)
    if kind == "relative":
        variance = variance * np.square(deviation_scale(profile, level, transition, variance))
    least = LEAST_VAR * (1.0 - np.square(transition))
    return np.maximum(np.broadcast_to(variance, profile.shape), least)
