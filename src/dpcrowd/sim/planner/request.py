"""What a plan depends on, in one frozen object: levels, process variance, shares, graph, guarantee and slot length.

A request can be changed (`replace`), so that a solver can ask what another epsilon, slot or number of servers gives.
A longer slot counts the visitors of several short slots. With f short slots in a long one:

    level   f r
    Q       f (2 f^2 + 1)/3 Q       the variance of the change of a sum over f slots of a random walk
    w or T  divided by f            rounded up, so that the promise covers no less time
    s       s^f                     the part 1 - turnover of a server's users who stay
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpcrowd.arrays import Floats, Shares
from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.filters import Course, Observation, ProcessModel
from dpcrowd.models.model import Model
from dpcrowd.models.season import SECOND, SlotTimes
from dpcrowd.privacy import Users
from dpcrowd.schemes.relay import Hops, Relay
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.adopted import NO_MODEL
from dpcrowd.sim.config import DEFAULT_WINDOW, SimulationConfig
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.draw import load
from dpcrowd.sim.data.observe import KINDS as OBSERVATIONS
from dpcrowd.sim.data.seeds import Purpose, generator
from dpcrowd.sim.data.series import believed
from dpcrowd.sim.data.shares import EQUAL
from dpcrowd.sim.data.shares import KINDS as DRAWN_SHARES
from dpcrowd.sim.data.synthetic import SyntheticData
from dpcrowd.sim.network_choice import network_spec
from dpcrowd.sim.planner.moving import change_covariances
from dpcrowd.sim.planner.replay import Series

__all__ = ["EQUAL", "Levels", "PlanRequest", "SeasonRows", "levels_of_model", "read_levels"]

_LARGEST = 1e15
_COLUMNS, _FEWEST_RUNS = 32, 4  # a synthetic process is drawn until there are this many columns of counts


@dataclass(frozen=True, eq=False)
class SeasonRows:
    """What a process model expects in each part of its season.

    level        (rows, d) the mean count
    process_var  (rows, d) Q
    """

    level: Floats
    process_var: Floats

    def merged(self, others: list[int], numbers: list[int]) -> SeasonRows:
        """Return the rows with some regions merged into one, which comes last."""
        return SeasonRows(
            *(
                np.column_stack([part[:, others], part[:, numbers].sum(axis=1)])
                for part in (self.level, self.process_var)
            )
        )


@dataclass(frozen=True)
class Crowd:
    """How counts vary around a process model, one number per region.

    mean      the mean count of a slot, which is more than the level where rare bursts count less in it
    variance  of a count around its mean, which is no less than the model says
    misfit    by what deviations from the model were larger on slots that were held out than these numbers say
    """

    mean: tuple[float, ...]
    variance: tuple[float, ...]
    misfit: float = 1.0

    def merged(self, others: Sequence[int], numbers: Sequence[int]) -> Crowd:
        """Return the same with some regions merged into one, which comes last."""
        mean, variance = (
            (*(values[k] for k in others), sum(values[k] for k in numbers)) for values in (self.mean, self.variance)
        )
        return replace(self, mean=mean, variance=variance)

    def in_longer_slots(self, factor: float, growth: Floats) -> Crowd:
        """Return the same of slots that are `factor` times as long, whose variances are `growth` times as large."""
        mean, variance = (value * factor for value in self.mean), _floats(np.array(self.variance) * growth)
        return replace(self, mean=tuple(mean), variance=variance)


@dataclass(frozen=True)
class Levels:
    """What is expected of the crowd, one number per region.

    level          the mean count of a slot; of a process model, what it expects
    inverse_level  the mean of 1/max(count, 1), by which an error becomes a relative one; 1/level if the level stays
    process_var    Q: the variance of the change of a count in one slot
    transition     a: the part of a deviation that is left after one slot, if a process model is known; None: a random
                   walk from an unknown start
    region_correlation  of the deviations of two regions from the process model, on average; None: unknown
    covariances    of these changes, slot by slot, if people move between the regions (`moving`); merged regions and
                   other slot lengths are planned without them
    series         the levels slot by slot, if public data say them
    count_var      Q in the paper's variance of a count, where people who move between regions make it another one
    season         levels and Q by part of the season, if a process model has one
    crowd          how counts vary around a process model whose file says it; None: as the model says
    """

    regions: tuple[str, ...]
    level: tuple[float, ...]
    inverse_level: tuple[float, ...]
    process_var: tuple[float, ...]
    covariances: tuple[tuple[float, ...], ...] | None = None
    series: Series | None = None
    count_var: tuple[float, ...] | None = None
    transition: tuple[float, ...] | None = None
    season: SeasonRows | None = None
    region_correlation: float | None = None
    crowd: Crowd | None = None

    def __len__(self) -> int:
        return len(self.regions)

    @property
    def spread(self) -> Floats:
        """The variance of a count around its level, if a process model is known."""
        assert self.transition is not None
        return np.asarray(np.array(self.process_var) / (1.0 - np.square(self.transition)))

    @property
    def people(self) -> tuple[float, ...]:
        """The mean count of a slot."""
        return self.level if self.crowd is None else self.crowd.mean

    def merged(self, numbers: Sequence[int]) -> Levels:
        """Return the levels with some regions merged into one, which comes last."""
        others = [k for k in range(len(self)) if k not in numbers]
        level = sum(self.level[k] for k in numbers)
        variance = sum(self.process_var[k] for k in numbers)
        name = "+".join(self.regions[k] for k in numbers)
        return Levels(
            (*(self.regions[k] for k in others), name),
            (*(self.level[k] for k in others), level),
            (*(self.inverse_level[k] for k in others), 1.0 / max(level, 1.0)),
            (*(self.process_var[k] for k in others), variance),
            series=None if self.series is None else self.series.merged(others, list(numbers)),
            transition=None if self.transition is None else self._merged_transition(others, numbers),
            season=None if self.season is None else self.season.merged(others, list(numbers)),
            region_correlation=self.region_correlation,
            crowd=None if self.crowd is None else self.crowd.merged(others, numbers),
        )

    def _merged_transition(self, others: Sequence[int], numbers: Sequence[int]) -> tuple[float, ...]:
        """Return a of each region and of merged ones: their mean, weighted by the variance of the deviations."""
        assert self.transition is not None
        weights = [self.process_var[k] / (1.0 - self.transition[k] ** 2) for k in numbers]
        pairs = zip(weights, (self.transition[k] for k in numbers), strict=True)
        merged = sum(weight * a for weight, a in pairs) / sum(weights)
        return (*(self.transition[k] for k in others), merged)

    def in_longer_slots(self, factor: float) -> Levels:
        """Return the levels of slots that are `factor` times as long."""
        if self.transition is not None:
            return self._longer_around_model(factor)
        growth = _change_of_sum(factor) if factor >= 1.0 else 1.0 / _change_of_sum(1.0 / factor)
        return Levels(
            self.regions,
            tuple(value * factor for value in self.level),
            tuple(value / factor for value in self.inverse_level),
            tuple(value * growth for value in self.process_var),
            series=None if self.series is None else self.series.in_longer_slots(factor),
        )

    def _longer_around_model(self, factor: float) -> Levels:
        """Return the same with a process model: deviations of neighbouring slots add up as far as they last."""
        assert self.transition is not None
        variances, transitions = [], []
        for a, q in zip(self.transition, self.process_var, strict=True):
            spread = q / (1.0 - a * a) * min(factor * factor, factor * (1.0 + a) / (1.0 - a))
            transitions.append(a**factor)
            variances.append(spread * (1.0 - a ** (2.0 * factor)))
        level, inverse = (
            tuple(value * by for value in of) for of, by in ((self.level, factor), (self.inverse_level, 1 / factor))
        )
        season = self.season
        if season is not None:  # longer slots are in several parts of the season; how uneven it is stays as it was
            growth = np.array(variances) / np.array(self.process_var)
            season = SeasonRows(season.level * factor, season.process_var * growth)
        crowd = self.crowd
        if crowd is not None:
            spreads = (q / (1.0 - a * a) for a, q in zip(transitions, variances, strict=True))
            crowd = crowd.in_longer_slots(factor, np.array(list(spreads)) / self.spread)
        return Levels(
            self.regions,
            level,
            inverse,
            tuple(variances),
            transition=tuple(transitions),
            season=season,
            region_correlation=self.region_correlation,
            crowd=crowd,
        )


def levels_of_model(model: Model, regions: Sequence[str] = (), slot: float | None = None) -> Levels:
    """Return what a process model expects, averaged over its season.

    regions  in this order; default: those of the model
    slot     the length of the slots in seconds, which has to be that of the model; None: unknown
    """
    names = tuple(regions) or model.names
    process = model.process_model(names, _some_times(model, slot))
    course = process.course
    assert course is not None
    level = np.maximum(course.profile.mean(axis=0), 1e-9)
    inverse = (1.0 / np.maximum(course.profile, 1.0)).mean(axis=0)
    return Levels(
        names,
        _floats(level),
        _floats(inverse),
        _floats(process.process_var),
        transition=_floats(process.transition),
        season=SeasonRows(np.maximum(course.profile, 1e-9), course.variance) if len(course.profile) > 1 else None,
        region_correlation=process.region_correlation,
        crowd=_crowd(model, names, process, course),
    )


def _crowd(model: Model, names: Sequence[str], process: ProcessModel, course: Course) -> Crowd | None:
    """Return how counts vary, as far as the file of a model says it.

    A model whose levels are those of usual slots cuts bursts off, in its variances, too. The changes of the counts have
    them: of an AR(1) process their mean square is 2 (1 - a) times the variance, and what a season changes from row to
    row is no part of it.
    """
    by_name = {region.name: region for region in model.regions}
    means = [by_name[name].mean for name in names]
    if any(mean is None for mean in means):
        return None
    changes = np.array([model.change_var[model.names.index(name)] for name in names])
    by_season = np.square(course.profile - np.roll(course.profile, 1, axis=0)).mean(axis=0)
    a, spread = process.diagonal_transition, process.noise_var / (1.0 - np.square(process.diagonal_transition))
    variance = np.maximum((changes - by_season) / (2.0 * (1.0 - a)), spread)
    return Crowd(tuple(max(mean or 0.0, 1e-9) for mean in means), _floats(variance))


def _some_times(model: Model, slot: float | None) -> SlotTimes | None:
    """Return times with slots of this length; when they begin makes no difference to an average."""
    length = model.slot if slot is None else round(slot * SECOND)
    return None if length is None else SlotTimes(model.begins or 0, length)


def read_levels(
    level: object | None = None,
    process_var: object | None = None,
    data: str | os.PathLike[str] | DataSet | None = None,
    *,
    seed: int = 0,
    runs: int | None = None,
    **loading: Any,
) -> Levels:
    """Return expected levels from numbers, or from public data.

    level        a number, a list, or a mapping from names of regions to numbers
    process_var  Q: one number for all regions, or a list; with data, the default is the mean square of their changes
    data         a data set, or what `dpcrowd.load_data` takes, with its options in `loading`
    seed, runs   of a synthetic process, which is drawn several times, as a simulation draws it
    """
    if data is None:
        if level is None:
            raise BadInput(
                "the expected level of each region is missing; give it (--level), public data (--data), a process "
                "model of dpcrowd fit (--model), or a network.toml with such a model (--graph)."
            )
        if process_var is None:
            raise BadInput(
                "the process variance Q is missing: the variance of the change of a region's count in one slot; give "
                "it (--process-var, process_var= in Python), or public data from which it is estimated (--data)."
            )
        names, values = _named(level)
        model = _moving_model(believed(ProcessModel.of(1.0, np.ones(len(values))), process_var))
        return Levels(names, values, tuple(1.0 / max(value, 1.0) for value in values), _floats(model.noise_var))
    series = data if isinstance(data, DataSet) else load(data, **loading)
    model = _moving_model(series.model if process_var is None else believed(series.model, process_var))
    if isinstance(series, SyntheticData):
        # E[1/r] of a process that may come near 0 depends on a few runs; the level of its definition does not.
        mean = series.expected_level
        inverse = 1.0 / np.maximum(mean, 1.0)
        numbers = range(max(_FEWEST_RUNS, _COLUMNS // len(series.regions)) if runs is None else runs)
        truths = [series.truth(generator(seed, run, Purpose.TRUTH)) for run in numbers]
    else:
        truths = [series.truth(np.random.default_rng(0))]  # nothing is drawn: the file says it
        mean, inverse = truths[0].mean(axis=0), (1.0 / np.maximum(truths[0], 1)).mean(axis=0)
    by_slot: Series | None = Series(np.array(truths, dtype=np.float64))
    if level is not None:
        names, values = _named(level, series.regions)
        mean = np.array(values)
        inverse = 1.0 / np.maximum(mean, 1.0)
        by_slot = None
    covariances = change_covariances(model)
    rows = None if covariances is None else tuple(_floats(row) for row in covariances)
    count_var = None if rows is None else _floats(model.noise_var)
    return Levels(
        series.regions, _floats(mean), _floats(inverse), _floats(model.diagonal_var), rows, by_slot, count_var
    )


def _moving_model(model: ProcessModel) -> ProcessModel:
    """Return a model whose counts change, or refuse it: without changes there is no steady state to predict."""
    if (model.noise_var <= 0.0).any():
        raise BadInput(
            f"the process variance Q is {float(model.noise_var.min()):g}; allowed in a plan: above 0, the variance of "
            "the change of a region's count in one slot."
        )
    return model


def _change_of_sum(slots: float) -> float:
    """Return the variance of the change of sums over this many slots of a random walk with Q = 1."""
    return slots * (2.0 * slots**2 + 1.0) / 3.0


def _named(level: object, regions: Sequence[str] | None = None) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return names and levels of the regions."""
    if isinstance(level, Mapping):
        names, values = [str(name) for name in level], list(level.values())
    else:
        values = list(level) if isinstance(level, Sequence | np.ndarray) and not isinstance(level, str) else [level]
        names = list(regions) if regions is not None else [f"region-{k}" for k in range(1, len(values) + 1)]
    if regions is not None and (len(values) != len(regions) or set(names) != set(regions)):
        raise BadInput(
            f"{len(values)} levels were given for other regions than those of the data; allowed: one for "
            f"each of {', '.join(regions)}."
        )
    if not values:
        raise BadInput("the list of expected levels is empty; give one number per region.")
    for name, value in zip(names, values, strict=True):
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not (number and 0.0 < float(value) <= _LARGEST):
            raise BadInput(f"the expected level of region '{name}' is {value!r}; allowed: a number of people above 0.")
    if isinstance(level, Mapping) and regions is not None:
        values = [level[name] for name in regions]
        names = list(regions)
    return tuple(names), tuple(float(value) for value in values)


def _floats(values: Floats) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """Everything that a prediction depends on; the same words as in `dpcrowd.simulate`.

    shares    as there, or "equal": equal parts, so that every user is at one server; by region: one tuple per server
    slot      seconds; None: unknown, and nothing is said per day
    turnover  the part of a server's pinned users who are replaced per slot, as the filters of the network know it; 1:
              deviations from a share are fresh in every slot; None: 0.05 where users may stay, as in simulations
    meetings  whether schedules let servers meet in turn, since they learn shares
    """

    levels: Levels
    epsilon: float = 1.0
    window: int | None = None
    horizon: int | None = None
    servers: int | None = None
    density: float | None = None
    graph: str = "random"
    dynamic: bool | None = None
    shares: str | tuple[float, ...] | tuple[tuple[float, ...], ...] = "uniform"
    users: Users = "pinned"
    observation: Observation | None = None
    hops_per_slot: Hops = 1
    lag: int = 16
    seed: int = 0
    servers_per_slot: int = 1
    regions_per_slot: int = 1
    correlation: float = 1.0
    slot: float | None = None
    turnover: float | None = None
    meetings: bool = False

    def __post_init__(self) -> None:
        if self.window is None and self.horizon is None:
            object.__setattr__(self, "window", DEFAULT_WINDOW)
        if self.slot is not None and not 0.0 < self.slot < math.inf:
            raise BadInput(f"the slot is {self.slot} seconds long; allowed: more than 0.")
        if self.observation not in (None, *OBSERVATIONS):
            raise unknown_name("observation", str(self.observation), OBSERVATIONS)
        if isinstance(self.shares, str) and self.shares not in (EQUAL, *DRAWN_SHARES):
            problem = unknown_name("kind of shares", self.shares, (EQUAL, *DRAWN_SHARES))
            raise BadInput(f"{problem} One number per server and the path of a CSV file (*.csv) are allowed, too.")

    @property
    def length(self) -> int:
        """The window or the horizon, in slots."""
        length = self.window if self.window is not None else self.horizon
        assert length is not None
        return length

    @property
    def has_drawn_shares(self) -> bool:
        """Whether the shares are random numbers, which nobody gave."""
        return isinstance(self.shares, str) and self.shares != EQUAL

    @property
    def has_shares_by_region(self) -> bool:
        """Whether the shares differ by region."""
        return not isinstance(self.shares, str) and any(isinstance(share, tuple) for share in self.shares)

    def _explicit_shares(self) -> str | Shares | tuple[float, ...]:
        """Return the shares as `configure` takes them."""
        if self.has_shares_by_region:
            return np.array(self.shares, dtype=np.float64)[None]
        if self.shares != EQUAL:
            return self.shares  # type: ignore[return-value]
        servers = network_spec(self.graph, self.servers, self.density, self.dynamic).servers
        return (1.0 / servers,) * servers

    def scheme(self, reach: Hops = "all", samples: int = 1) -> Relay:
        """Return relay as it is planned. The prediction decides how many samples it takes, so one stands for any."""
        return Relay(samples=samples, reach=reach, hops_per_slot=self.hops_per_slot, lag=self.lag)

    def config(self) -> SimulationConfig:
        """Return the simulation whose public facts are those of the request, checked."""
        model = ProcessModel.of(1.0, self.levels.process_var)
        if self.levels.transition is not None:
            course = Course(np.array([self.levels.level]), np.array([self.levels.process_var]))
            known = self.levels.region_correlation
            model = ProcessModel.around(course, np.array(self.levels.transition), region_correlation=known)
        slots = self.length if isinstance(self.length, int) and self.length > 0 else 1
        data = SyntheticData(
            name="plan",
            regions=self.levels.regions,
            slots=slots,
            model=model,
            tuning=Tuning(),
            notes=(),
            change_var=model.noise_var,
            start=np.array(self.levels.level),
            process=ProcessModel.of(1.0, self.levels.process_var),
        )
        config = configure(
            self.scheme(),
            data,
            runs=1,
            burn_in=0,
            shares=self._explicit_shares(),
            model=NO_MODEL,  # what is known of the crowd is in the data already
            **{name: getattr(self, name) for name in _SETTINGS},
        )
        return replace(config, meetings=self.meetings)

    def merge_regions(self, numbers: Sequence[int]) -> PlanRequest:
        """Return the same request with some regions merged into one, which comes last.

        Of the merged region a server counts the mean of its shares there, weighted by the expected people.
        """
        levels = self.levels.merged(numbers)
        if not self.has_shares_by_region:
            return replace(self, levels=levels)
        others = [k for k in range(len(self.levels)) if k not in numbers]
        weights = np.maximum(np.array(self.levels.level)[list(numbers)], 1e-9)
        shares = np.array(self.shares, dtype=np.float64)
        merged = shares[:, list(numbers)] @ weights / weights.sum()
        columns = np.column_stack([shares[:, others], merged])
        return replace(self, levels=levels, shares=tuple(_floats(row) for row in columns))

    def in_slots_of(self, seconds: float) -> PlanRequest:
        """Return the same request with another slot length: the promise covers the same time, or a little more.

        A window of 25 h is 4 slots of 8 h: with 3 of them, users would be promised an hour less than was asked for.
        """
        assert self.slot is not None
        factor = seconds / self.slot
        turnover = self.config().turnover if self.turnover is None else self.turnover

        def shorter(length: int | None) -> int | None:
            return None if length is None else max(1, math.ceil(length / factor - 1e-9))

        return replace(
            self,
            slot=seconds,
            levels=self.levels.in_longer_slots(factor),
            window=shorter(self.window),
            horizon=shorter(self.horizon),
            turnover=1.0 - (1.0 - turnover) ** factor,
        )


_SETTINGS = (
    *("epsilon", "window", "horizon", "servers", "density", "graph", "dynamic", "users", "observation"),
    *("seed", "servers_per_slot", "regions_per_slot", "correlation", "turnover"),
)
