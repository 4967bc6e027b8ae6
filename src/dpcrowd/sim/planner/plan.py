"""`dpcrowd.plan`: what a network of relay servers will reach, before it exists, and what to choose.

The result holds the recommended reach and number of samples, the expected error of each region with its interval,
traffic, a table over epsilon and one over reach, and remarks on what cannot be reached.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput, counted, unknown_name
from dpcrowd.models.model import Model
from dpcrowd.models.season import SECOND, duration_text
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import USUAL_TURNOVER
from dpcrowd.schemes.relay import Hops
from dpcrowd.sim.adopted import adopt_model
from dpcrowd.sim.configure import SharesLike
from dpcrowd.sim.data import NAMES, PAPER_SETS
from dpcrowd.sim.data.checkins import slot_length_us
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.in_memory import data_set_of
from dpcrowd.sim.data.share_file import is_share_file, read_shares
from dpcrowd.sim.data.span import notes_beside_variance
from dpcrowd.sim.fitted import unknown_slot_note
from dpcrowd.sim.network_file import NetworkFile, is_network_file, read_network_file
from dpcrowd.sim.notes import overlap_notes, promise
from dpcrowd.sim.planner.adopt import adopt_settings, name_levels
from dpcrowd.sim.planner.goal import Goal, parse_goal
from dpcrowd.sim.planner.groups import GroupsPlan, plan_groups
from dpcrowd.sim.planner.predict import Prediction, choices, config_of, facts_of, guarantee_of, predict
from dpcrowd.sim.planner.remedies import advice_on_goal, advice_on_hidden
from dpcrowd.sim.planner.request import EQUAL, Levels, PlanRequest, levels_of_model, read_levels
from dpcrowd.sim.planner.share_width import ShareWidth, adopt_share_width, planned_share_width, with_meetings
from dpcrowd.sim.planner.skewed import with_held_out_error
from dpcrowd.sim.planner.solve import Solution, Variable, solve
from dpcrowd.sim.planner.text import percent, short_text
from dpcrowd.sim.planner.traffic import PlannedTraffic, planned_traffic
from dpcrowd.sim.topology import Networks
from dpcrowd.threads import one_thread

__all__ = ["NetworkPlan", "PlanRow", "RegionPlan", "beside_model", "plan"]

_HARDLY_BETTER = 0.98
"""Records that leave more than this part of the total error of a process model hardly gain anything over it."""
_NO_BETTER = 0.998
"""Records that leave more than this part of it are not expected to be better at all."""
_SHORTEST_LIVE, _LONGEST_LIVE = 1.0, 86_400.0  # seconds: what a network.toml takes as the length of a slot
_EPSILON_FACTORS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class RegionPlan:
    """What is expected of one region.

    level      people per slot
    deviation  standard deviation of the estimates, in people
    low, high  the 95% interval around the level
    error      the expected relative error, E |estimate - truth|/max(truth, 1)
    visible    whether the region can be told from 0
    mae        the expected absolute error, in people
    """

    region: str
    level: float
    deviation: float
    low: float
    high: float
    error: float
    visible: bool
    mae: float


@dataclass(frozen=True)
class PlanRow:
    """A row of a table: one choice of epsilon and reach with its best number of samples.

    error        the mean of the regions' expected relative errors
    worst_error  the largest of them
    total_error  sum of the expected absolute errors / sum of the people; None: nobody is expected
    hidden       number of regions that cannot be told from 0
    """

    epsilon: float
    reach: Hops
    samples: int
    error: float
    worst_error: float
    hidden: int
    traffic: PlannedTraffic
    total_error: float | None


@dataclass(frozen=True)
class KnownModel:
    """The process model of a plan.

    path   its file; None: a model without a file was given
    learn  whether servers learn how well it fits, as a network.toml states it; None: nothing is stated
    """

    fitted: Model
    path: Path | None = None
    learn: bool | None = None


@dataclass(frozen=True)
class NetworkPlan:
    """A plan; `samples` and `reach` are recommended, unless they were given.

    servers, links  links is None if they change from slot to slot
    promise         the guarantee in words, with the limits that the shares put on it
    shares          one per server; where they differ by region, the part of all people that it counts, and
                    `shares_by_region` has one tuple per server
    error           the mean of the regions' expected relative errors, which a simulation calls ARE
    total_error     sum of the regions' expected absolute errors / sum of their people, as in a simulation; None:
                    nobody is expected
    by_epsilon      the same network with other budgets, each with its best number of samples
    by_reach        the same budget with other reaches
    goal, solution  what was asked for, and what reaches it, if it was to be solved
    remarks         what cannot be reached, and what the plan assumes
    server_names    those of a network.toml or of a file of shares; None: the servers have no names yet
    groups          what is predicted of small regions that share one draw of noise
    share_width     typical relative error of public shares, as it was given, or as a network.toml states it; None: it
                    does not, or this network could not learn them
    model           the process model that servers know, if any
    model_error     the total error of that model alone, without any record; None without a model, or where nobody is
                    expected
    learn           whether servers without a model learn Q, as a network.toml states it; None: nothing is stated
    """

    request: PlanRequest
    guarantee: Guarantee
    promise: str
    servers: int
    shares: tuple[float, ...]
    links: tuple[tuple[int, int], ...] | None
    observation: str
    samples: int
    reach: Hops
    error: float
    total_error: float | None
    regions: tuple[RegionPlan, ...]
    traffic: PlannedTraffic
    by_epsilon: tuple[PlanRow, ...]
    by_reach: tuple[PlanRow, ...]
    goal: Goal | None
    goal_reached: bool | None
    solution: Solution | None
    remarks: tuple[str, ...]
    server_names: tuple[str, ...] | None = None
    shares_by_region: tuple[tuple[float, ...], ...] | None = None
    groups: GroupsPlan | None = None
    model: KnownModel | None = None
    share_width: float | None = None
    model_error: float | None = None
    learn: bool | None = None

    def __str__(self) -> str:
        """Return what is recommended and what it reaches, in a few lines; the fields have the rest."""
        return short_text(self)

    def summary(self) -> dict[str, Any]:
        """Return everything as plain values, as `dpcrowd plan --json` prints it."""
        request, slot = self.request, self.request.slot
        day = None if slot is None else self.traffic.per_day(slot)
        return {
            "guarantee": {
                "kind": self.guarantee.kind,
                "length": self.guarantee.length,
                "epsilon": float(self.guarantee.epsilon),
                "users": self.guarantee.users,
                "promise": self.promise,
            },
            "servers": self.servers,
            "graph": request.graph,
            "density": config_of(request).network.density,
            "observation": self.observation,
            "hops_per_slot": request.hops_per_slot,
            "turnover": request.turnover,
            "share_width": self.share_width,
            "meetings": request.meetings,
            "model": None if self.model is None else self.model.fitted.file,
            "slot_seconds": slot,
            "samples": self.samples,
            "reach": self.reach,
            "error": self.error,
            "total_error": self.total_error,
            "model_error": self.model_error,
            "regions": [dict(vars(region)) for region in self.regions],
            "traffic": {
                **vars(self.traffic),
                "packets_per_day": None if day is None else day[0],
                "bytes_per_day": None if day is None else day[1],
                "heartbeats_per_day": None if slot is None else self.traffic.heartbeats_per_day(slot),
            },
            "by_epsilon": [_plain(row) for row in self.by_epsilon],
            "by_reach": [_plain(row) for row in self.by_reach],
            "goal": None if self.goal is None else str(self.goal),
            "goal_reached": self.goal_reached,
            "solved": None if self.solution is None else {self.solution.variable: self.solution.value},
            "groups": None if self.groups is None else dict(vars(self.groups)),
            "notes": list(self.remarks),  # what they are called everywhere else
            "remarks": list(self.remarks),
        }


def _plain(row: PlanRow) -> dict[str, Any]:
    return {**vars(row), "traffic": dict(vars(row.traffic))}


def plan(
    level: object | None = None,
    *,
    process_var: object | None = None,
    data: Any = None,
    model: Model | str | os.PathLike[str] | None = None,
    samples: int | None = None,
    reach: Hops | None = None,
    share_width: float | None = None,
    slot: str | float | None = None,
    goal: str | None = None,
    solve_for: Variable | None = None,
    epsilons: Sequence[float] | None = None,
    shares: SharesLike | None = None,
    graph: str | os.PathLike[str] = "random",
    advice: bool = True,
    loading: dict[str, Any] | None = None,
    **settings: Any,
) -> NetworkPlan:
    """Predict what a network of relay servers reaches, and recommend its number of samples and reach.

    level        expected people per slot: a number, a list, or a mapping from names of regions to numbers
    process_var  Q, the variance of the change of a region's count in one slot: one number or a list
    data         public data instead, from which levels and Q are estimated: a file, a data set, a DataFrame, or an
                 array of counts with a row per slot (`dpcrowd.load_data`, options: `loading`)
    model        a process model of `dpcrowd fit`, or its file, instead of level, Q and data: what servers know
                 beforehand; default: that of a network.toml, unless level, Q or data are given, or model="none"
    samples      per window or horizon; default: the best number
    reach        hops that records travel, or "all"; default: the recommended number
    share_width  typical relative error of the shares, such as 0.1: servers then learn them, with meetings, and every
                 record has to reach all of them; default: that of a network.toml, else 0: shares are right
    slot         the length of a slot ("15m", or seconds), for traffic per day; default: that of a process model
    goal         such as "5% in every region above 1000"
    solve_for    "epsilon", "slot" or "servers": the least one that reaches the goal
    shares       "equal" (equal parts, every user at one server), "partition" (drawn, they sum to 1), "uniform" (drawn
                 independently, from 0.05 to 1), one number per server, or a CSV file with the columns server,share or
                 server,region,share; default: those of a network.toml, else "equal", but "uniform" for the paper's data
                 sets
    graph        as in `dpcrowd.simulate`: a name, a file of links, or a network.toml, whose shares, slot, guarantee,
                 Q or process model, observation, samples, reach, lag and turnover are taken, too, where they are not
                 given
    epsilons     of the table; default: from a tenth to ten times epsilon
    advice       whether to look for what would help where something cannot be reached (it takes seconds)
    settings     epsilon, window, horizon, servers, density, dynamic, users, observation, hops_per_slot, lag, seed,
                 servers_per_slot, regions_per_slot, correlation, turnover: as in `dpcrowd.simulate`; hops_per_slot is
                 "all" by default if the slot is known and has 1 s or more, since live servers forward records at once;
                 turnover is 1 for a network.toml that states none, as for its servers

    >>> result = plan({"north": 5000, "south": 800}, process_var=400, servers=8, density=0.5, window=50)
    >>> [region.region for region in result.regions], result.samples > 0
    (['north', 'south'], True)
    """
    if solve_for is not None:
        _check_solvable(solve_for, goal, samples)
    _check_settings(settings)
    arguments: dict[str, Any] = {
        **settings,
        "slot": None if slot is None else slot_length_us(slot) / 1e6,
        "samples": samples,
        "reach": reach,
        "shares": shares if shares is None or isinstance(shares, str | os.PathLike) else _tuples(shares),
        "process_var": process_var,
    }
    remarks: list[str] = []
    file = read_network_file(graph) if is_network_file(graph) else None
    known, model_remarks = _known_model(model, file, {"level": level, "process_var": process_var, "data": data})
    fitted = None if known is None else known.fitted
    if file is not None:
        without = ["samples", "reach"] if solve_for is not None else []
        without += ["process_var"] if data is not None or fitted is not None else []
        without += ["turnover"] if (settings.get("users"), settings.get("observation")) not in _OF_PEOPLE else []
        arguments, remarks = adopt_settings(file, arguments, without)
        level, other_regions = name_levels(level, file)
        remarks += [*other_regions, *_adopt_turnover(arguments, file)]
    remarks += [*model_remarks, *_adopt_slot(arguments, fitted)]
    width = adopt_share_width(share_width, file, arguments)
    samples, reach, process_var = (arguments.pop(name) for name in ("samples", "reach", "process_var"))
    if fitted is None:
        known_data, read_how = _loaded(data, loading)
        levels = read_levels(level, process_var, known_data, seed=settings.get("seed") or 0)
    else:
        _refuse_beside_model(level, process_var, data)
        levels, read_how = _expected_levels(fitted, file, arguments["slot"])
    remarks += read_how
    names = _read_shares(arguments, levels, file)
    values = {name: value for name, value in arguments.items() if value is not None}
    values = _defaults(_is_of_paper(data), values.get("slot")) | values
    request = with_meetings(PlanRequest(levels=levels, graph=os.fspath(graph), **values), width, reach)
    request = replace(request, turnover=config_of(request).turnover)
    target = None if goal is None else parse_goal(goal, levels)
    solution: Solution | None = None
    if fitted is not None:
        remarks.append(_PUBLIC.format(file=fitted.file, source=fitted.quoted_sources))
        remarks += _unchecked_times(fitted, request.slot)
    with one_thread():
        if target is not None and solve_for is not None:
            solution = solve(request, target.reached, solve_for, reach)
            if solution is None:
                remarks.append(f"no {_RANGES[solve_for]} reaches the goal of {target}.")
            else:
                request = solution.request
        prediction = predict(request, reach, samples)
        if request.slot is not None and solution is not None and solution.variable == "slot":
            remarks.append(
                "a longer slot is taken to count the visitors of several short ones, and the promise to cover the same "
                "time; where people stay for several slots, a longer slot gains less."
            )
        if advice:
            of_goal = None if target is None else advice_on_goal(request, prediction, target)
            remarks += [f"{text}." for text in (of_goal, advice_on_hidden(request, prediction)) if text is not None]
        assembled = _assemble(request, prediction, target, solution, remarks, epsilons, names, width)
    return replace(assembled, model=known, learn=file.learn if file is not None and known is None else None)


_SETTINGS = (
    *("epsilon", "window", "horizon", "servers", "density", "dynamic", "users", "observation", "hops_per_slot"),
    *("lag", "seed", "servers_per_slot", "regions_per_slot", "correlation", "turnover"),
)
_OF_PEOPLE = {(users, observation) for users in (None, "pinned") for observation in (None, "binomial")}
_PUBLIC = (
    "servers are taken to know {file}. A model is public: it costs no ε only if it was fitted on published data, on "
    "people whom the promise does not cover, or on earlier releases. Its source, as asserted by whoever fitted it: "
    "{source}."
)
_RANGES = {
    "epsilon": "ε up to 1000",
    "slot": "slot that fits into the promise",
    "servers": "number of servers up to 500",
}


def _adopt_turnover(arguments: dict[str, Any], file: NetworkFile) -> list[str]:
    """Take users for new in every slot where a network.toml states no turnover, as its servers do, and say so."""
    people = (arguments.get("users"), arguments.get("observation")) in _OF_PEOPLE
    if arguments.get("turnover") is not None or file.scheme is None or not people:
        return []
    arguments["turnover"] = 1.0
    return [
        f"'{file.path}' states no turnover, so its servers take deviations from their shares for new ones in every "
        f"slot, and so does this plan. Where users stay, give turnover={USUAL_TURNOVER:g}, and state it in [scheme]."
    ]


def _check_settings(settings: dict[str, Any]) -> None:
    for name in settings:
        if name not in _SETTINGS:
            raise unknown_name("setting of a plan", name, _SETTINGS)


def _loaded(data: Any, loading: dict[str, Any] | None) -> tuple[DataSet | None, list[str]]:
    """Return public data, and how they were read if they are a user's own."""
    if data is None:
        return None, []
    series = data_set_of(data, loading or {})
    if series is data:
        return series, []
    return series, [] if series.name in NAMES else list(notes_beside_variance(series))


def _check_solvable(variable: str, goal: str | None, samples: int | None) -> None:
    """Refuse to solve without a goal, or with a number of samples that only one solution would have."""
    if goal is None:
        raise BadInput(f"solving for {variable} needs a goal, such as '5% in every region above 1000'.")
    if samples is not None:
        raise BadInput(
            f"samples={samples} and a goal to solve for were given; leave samples out: every {variable} has its own "
            "best number."
        )


def _defaults(of_paper: bool, slot: float | None) -> dict[str, Any]:
    """Return settings as in the paper for its data sets, else as in a live network.

    slot  seconds; live servers forward records at once, over links that are faster than a second
    """
    hops: Hops = "all" if slot is not None and slot >= 1.0 else 1
    if of_paper:
        return {"shares": "uniform", "hops_per_slot": hops}
    return {"shares": EQUAL, "observation": "binomial", "hops_per_slot": hops}


def _is_of_paper(data: Any) -> bool:
    """Whether a data set is one of the paper's, which is planned in the paper's setting by default."""
    if isinstance(data, str | os.PathLike):
        return os.fspath(data) in PAPER_SETS
    return isinstance(data, DataSet) and data.name in PAPER_SETS


def _known_model(
    model: Model | str | os.PathLike[str] | None, file: NetworkFile | None, instead: dict[str, object]
) -> tuple[KnownModel | None, list[str]]:
    """Return the process model that was given, else that of a network file, and remarks on it."""
    only_level = instead["level"] is not None and instead["process_var"] is None and instead["data"] is None
    if model is None and file is not None and file.model is not None and only_level:
        raise BadInput(
            f"levels were given without a process variance, and '{file.path}' has a process model instead of one; "
            "leave the levels out (--level), or give both (--process-var)."
        )
    fitted, remarks = adopt_model(model, file, instead)
    if fitted is None:
        return None, remarks
    if model is None:
        assert file is not None
        return KnownModel(fitted, file.model_path, file.learn), remarks
    return KnownModel(fitted, None if isinstance(model, Model) else Path(model)), remarks


def _adopt_slot(arguments: dict[str, Any], model: Model | None) -> list[str]:
    """Give the arguments the slot length of a model, if they have none: a network with it can have no other."""
    if model is None or model.slot is None or arguments["slot"] is not None:
        return []
    arguments["slot"] = length = model.slot / SECOND
    remarks = [f"taken from {model.file}: slots of {duration_text(model.slot)}."]
    if not _SHORTEST_LIVE <= length <= _LONGEST_LIVE:
        remarks.append(
            "live servers have slots of 1s to 1d, so this plan cannot become a network; for one, fit the model in "
            "such slots."
        )
    return remarks


def _unchecked_times(model: Model, slot: float | None) -> list[str]:
    """Return remarks on what cannot be checked of a model that was fitted on data without times."""
    remarks = []
    if model.season_lacks_times:
        remarks.append(
            f"{model.file}: its season of {model.season} slots is counted from slot 0 of '{model.data_name}', which "
            "has no times. The plan averages over the season; live servers take it to begin at the network's epoch. "
            "Fit the model again on public counts, or on your own releases, whose slots are labelled with times."
        )
    if model.slot is None and slot is not None:
        remarks.append(unknown_slot_note(model, duration_text(round(slot * SECOND))))
    return remarks


def beside_model(names: Sequence[str]) -> str:
    """Return why these settings are refused beside a model."""
    them = " and ".join(names)
    return f"a model was given beside {them}, and has levels and variances of its own; leave {them} out, or the model."


def _expected_levels(model: Model, file: NetworkFile | None, slot: float | None) -> tuple[Levels, list[str]]:
    """Return what a model expects of the regions of a file, or of its own, and how it was read."""
    regions, read_how = _regions_of_model(model, file)
    levels = levels_of_model(model, regions, slot)
    return with_held_out_error(levels, levels_of_model(model, (), slot), model.scores.past), read_how


def _refuse_beside_model(level: object | None, process_var: object | None, data: object | None) -> None:
    """Refuse levels, variances or data beside a model, which has its own."""
    given = {"level": level, "process_var": process_var, "data": data}
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise BadInput(beside_model(names))


def _regions_of_model(model: Model, file: NetworkFile | None) -> tuple[tuple[str, ...], list[str]]:
    """Return the regions that are planned: those of a network file if the model has them; and a remark if not."""
    if file is None or not file.regions:
        return (), []
    if set(file.regions) <= set(model.names):
        return file.regions, []
    names = ", ".join(file.regions)
    return (), [f"this plan has other regions ({len(model.names)}), but '{file.path}' has {names}."]


def _assemble(
    request: PlanRequest,
    prediction: Prediction,
    goal: Goal | None,
    solution: Solution | None,
    remarks: list[str],
    epsilons: Sequence[float] | None,
    names: tuple[str, ...] | None,
    width: ShareWidth,
) -> NetworkPlan:
    config, file = config_of(request), width.file
    static = None if config.network.dynamic else _links(request)
    values = [request.epsilon * factor for factor in _EPSILON_FACTORS] if epsilons is None else _numbers(epsilons)
    by_epsilon = [
        _row(changed, predict(changed, prediction.reach))
        for changed in (replace(request, epsilon=float(f"{value:.6g}")) for value in values)
    ]
    by_reach = [_row(request, predict(request, choice.reach, choice.samples)) for choice in choices(request)]
    by_reach.append(by_reach.pop(0))  # "all" comes last
    facts = facts_of(request, prediction.reach)
    # Groups need one share per server, and relay refuses them together with shares that it learns.
    groups = None if request.has_shares_by_region or width.value else plan_groups(facts, prediction)
    if groups is not None:
        grouping_file = file.path if file is not None and file.crowd.get("groups") == "auto" else None
        groups = replace(groups, in_use=grouping_file is not None)
        known = facts.model.course is not None
        remark = groups.remark(len(request.levels), known, grouping_file, facts.model.region_correlation)
        remarks = remarks if remark is None else [*remarks, remark]
    learned, width_remarks = planned_share_width(width, request, prediction)
    remarks = [*remarks, *_gain_over_model(prediction, by_epsilon), *width_remarks]
    return NetworkPlan(
        request=request,
        guarantee=guarantee_of(request),
        promise=promise(config, config.entrants[0]) or "",
        servers=config.servers,
        shares=tuple(_counted_parts(prediction, facts.shares).tolist()),
        shares_by_region=request.shares if request.has_shares_by_region else None,  # type: ignore[arg-type]
        links=static,
        observation=config.observation,
        samples=prediction.samples,
        reach=prediction.reach,
        error=prediction.error,
        total_error=prediction.total_error,
        regions=_regions(prediction),
        traffic=planned_traffic(request, prediction),
        by_epsilon=tuple(by_epsilon),
        by_reach=tuple(by_reach),
        goal=goal,
        goal_reached=None if goal is None else goal.reached(prediction),
        solution=solution,
        remarks=(*remarks, *overlap_notes(config)),
        server_names=names,
        groups=groups,
        share_width=learned,
        model_error=prediction.model_error,
    )


def _gain_over_model(prediction: Prediction, by_epsilon: Sequence[PlanRow]) -> list[str]:
    """Return a remark if the records of a plan tell hardly more than the process model alone, and what would help."""
    alone, error = prediction.model_error, prediction.total_error
    if alone is None or error is None or error <= _HARDLY_BETTER * alone:
        return []
    gained = f"records hardly gain anything over the model alone: {percent(error)} instead of"
    if error > _NO_BETTER * alone:
        gained = "records are not expected to be better than the model alone, which costs no ε: a total error of"
    better = [row for row in by_epsilon if row.total_error is not None and row.total_error <= _HARDLY_BETTER * alone]
    remedy = "No ε of the table changes that; fewer or larger regions, or longer slots, may."
    if better:
        least = min(better, key=lambda row: row.epsilon)
        remedy = (
            f"Of the table, ε = {least.epsilon:g} is the least that does better ({percent(least.total_error)}); fewer "
            "or larger regions, or longer slots, may, too."
        )
    still = "Records still show a crowd that leaves its past; while it does not, the model alone says as much."
    return [f"{gained} {percent(alone)}. {remedy} {still}"]


def _numbers(epsilons: Sequence[object]) -> list[float]:
    """Return the budgets of the table; refuse anything but numbers."""
    numbers = []
    for value in epsilons:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise BadInput(f"epsilons must be numbers above 0, such as [0.1, 1]; given {value!r}.")
        numbers.append(float(value))
    return numbers


def _tuples(shares: Any) -> tuple[Any, ...]:
    """Return numbers per server, or per server and region, as tuples."""
    try:
        np.array(shares, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"shares must be numbers, as many for each server; given {shares!r}.") from None
    return tuple(_tuples(share) if np.ndim(share) else float(share) for share in shares)


def _read_shares(arguments: dict[str, Any], levels: Levels, file: NetworkFile | None) -> tuple[str, ...] | None:
    """Replace a file of shares, or the shares of a network file by region, by their numbers, in place.

    Returns the names of the servers as a file states them; None: they have none.
    """
    shares, names = arguments["shares"], None if file is None else file.names
    if is_share_file(shares):
        stated = read_shares(shares)
        numbers = stated.shares(names, levels.regions)
        if file is None:
            _count_servers(arguments, len(stated.servers), f"'{stated.path}'")
            names = stated.names
    elif file is not None and file.by_region is not None and shares == file.shares:
        of_file = file.shares_of(levels.regions)
        assert of_file is not None
        numbers = of_file
    else:
        if file is None and isinstance(shares, tuple):
            _count_servers(arguments, len(shares), "the list of shares")
        return names
    arguments["shares"] = _tuples(numbers[0] if numbers.ndim == 3 else numbers)
    return names


def _count_servers(arguments: dict[str, Any], number: int, what: str) -> None:
    """Plan as many servers as there are shares, in place, or refuse another number."""
    servers = arguments.get("servers")
    if servers is None:
        arguments["servers"] = number
    elif servers != number:
        raise BadInput(
            f"{what} has shares of {counted(number, 'server')}, but {servers} servers were given; give one for each of "
            f"{servers} servers, or leave the number of servers out."
        )


def _counted_parts(prediction: Prediction, shares: Floats) -> Floats:
    """Return the part of all people that each server counts, (m,), from shares (m,) or (m, d)."""
    if shares.ndim == 1:
        return shares
    level = np.maximum(np.array(prediction.levels.level), 1e-9)
    return np.asarray((shares * level).sum(axis=1) / level.sum())


def _row(request: PlanRequest, prediction: Prediction) -> PlanRow:
    return PlanRow(
        prediction.epsilon,
        prediction.reach,
        prediction.samples,
        prediction.error,
        max(prediction.errors),
        len(prediction.hidden),
        planned_traffic(request, prediction),
        prediction.total_error,
    )


def _regions(prediction: Prediction) -> tuple[RegionPlan, ...]:
    levels = prediction.levels
    errors = (prediction.errors, prediction.absolute_errors)
    columns = (levels.regions, levels.level, prediction.deviation, prediction.half_width, *errors)
    return tuple(
        RegionPlan(name, level, deviation, max(0.0, level - half), level + half, error, half < level, mae)
        for name, level, deviation, half, error, mae in zip(*columns, strict=True)
    )


def _links(request: PlanRequest) -> tuple[tuple[int, int], ...]:
    """Return the links of a network that stays, as pairs of server numbers."""
    config = config_of(request)
    links = Networks(config.network, config.seed, [0], None, "numpy").static
    assert links is not None
    sources, targets, _ = links.graph.pairs()
    return tuple(zip(sources.tolist(), targets.tolist(), strict=True))
