"""Build a `SimulationConfig` from what a user asks for: names become schemes, data and networks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from numpy.typing import NDArray

from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.filters import Observation
from dpcrowd.models.model import Model
from dpcrowd.models.season import SECOND
from dpcrowd.plugins import make_scheme
from dpcrowd.privacy import Accounting, Users
from dpcrowd.schemes.base import Form, Scheme, check_share_width
from dpcrowd.schemes.registry import SCHEMES
from dpcrowd.schemes.relay import Relay, check_groups_beside_learning
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.adopted import NO_MODEL, adopt_crowd_settings, adopt_model, differing_settings, turnover_note
from dpcrowd.sim.config import OBSERVED_AS_PEOPLE, Entrant, SimulationConfig, guarantee_for
from dpcrowd.sim.data import PAPER_SETS, CheckIns, DataSet
from dpcrowd.sim.data.draw import check_composition
from dpcrowd.sim.data.in_memory import data_set_of
from dpcrowd.sim.data.series import OneSlot, is_var_of_steps
from dpcrowd.sim.data.shares import checked_composition, checked_share_width, is_partition
from dpcrowd.sim.data.synthetic import SyntheticData
from dpcrowd.sim.data.times import slot_times
from dpcrowd.sim.fitted import apply_model, by_position
from dpcrowd.sim.network_choice import is_graph_file, network_spec
from dpcrowd.sim.network_file import NetworkFile, is_network_file, read_network_file
from dpcrowd.sim.planning import planned_reach, planned_samples, with_reach
from dpcrowd.sim.share_choice import SharesLike, is_changing, resolved_shares, sized_shares, turnover_of
from dpcrowd.sim.tuned import Tuned, read_tuned

__all__ = ["Data", "Schemes", "SharesLike", "TuningLike", "configure"]

_SHARES_OF_FILE = "shares are those of '{file}'; shares=uniform draws them."

Data = str | os.PathLike[str] | DataSet | NDArray[Any] | list[Any] | Any
"""Also a DataFrame of pandas or polars."""
Schemes = str | Scheme | Iterable[str | Scheme] | Mapping[str, str | Scheme]
TuningLike = Tuning | Tuned | dict[str, Any] | str | os.PathLike[str]

_BURN_IN = 20


def configure(
    schemes: Schemes,
    data: Data = "linear",
    *,
    servers: int | None = None,
    density: float | None = None,
    epsilon: float = 1.0,
    window: int | None = None,
    horizon: int | None = None,
    runs: int = 50,
    seed: int = 0,
    accounting: Accounting = "sound",
    users: Users = "pinned",
    observation: Observation | None = None,
    shares: SharesLike | None = None,
    graph: str | os.PathLike[str] = "random",
    dynamic: bool | None = None,
    interval: int | None = None,
    sampling: str | None = None,
    grouping: str | None = None,
    samples: int | None = None,
    reach: int | str | None = None,
    hops_per_slot: int | str | None = None,
    lag: int | None = None,
    groups: str | None = None,
    form: Form = "diagonal",
    beta: float | None = None,
    burn_in: int | None = None,
    tuning: TuningLike | None = None,
    servers_per_slot: int = 1,
    regions_per_slot: int = 1,
    correlation: float = 1.0,
    keep_estimates: bool = False,
    smoothed: bool = False,
    nonnegative: bool = False,
    median: bool = False,
    slots: int | None = None,
    regions: Sequence[str] | None = None,
    process_var: object | None = None,
    slot_length: str | float | None = None,
    round_counts: bool = False,
    gaps: str | None = None,
    header: bool | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    model: Model | str | os.PathLike[str] | None = None,
    learn: bool | None = None,
    turnover: float | None = None,
    composition: float | None = None,
    share_width: float | None = None,
) -> SimulationConfig:
    """Check everything and build the configuration of a simulation.

    servers           m; default: as many as the file of links, or the shares (a file, list or array) have, else 50
    density           of the network, 2 links/(m (m - 1)); default: 0.1, or the lowest possible where that is higher;
                      ring, grid, complete and a file have their own
    window, horizon   w or T, in slots; default: the complete stream for finite schemes, 100 for window schemes
    accounting        "sound", or "per-region" (the paper's, where a user who moves pays more)
    users             "pinned" or "roaming"
    observation       how counts arise, in data and filter: "paper" or "binomial"; default: "binomial", as in live
                      servers, but "paper" for the paper's data sets unless every user is at one server
                      (shares="partition")
    shares            "uniform", "per-slot", "partition", "equal" (a partition into equal parts), a list, an array
                      (servers, regions), or a CSV file with the columns server,share or server,region,share; default:
                      those of a network.toml, else "uniform".
                      Filters know shares that differ by region
    graph             random, ring, grid, small-world, scale-free, geometric, complete, a plug-in's, or a file of links
                      (a list, a 0/1 matrix, or the links of a network.toml)
    dynamic           draw the graph anew in each slot; default: only for the random graph, as in the paper
    interval          sample every `interval` slots instead of adaptively; sampling: fixed, staggered or lockstep
    samples           of relay: samples per window or horizon; default: the fewest within 2% of the least predicted
                      error
    reach             of relay: hops that a record travels, or "all"; default: the fewest within 2% of the predicted
                      error of "all" (a Relay() that is given as an object has its own)
    hops_per_slot     of relay: hops per slot, or "all"; default: 1
    lag               of relay: slots that a record may be late; default: 16
    groups            of relay: "auto" joins small regions into groups that share one draw of noise; default: "off"
    beta              consensus step size; default: 1/(2 (1 + max degree))
    servers_per_slot, regions_per_slot, correlation   see `dpcrowd.Guarantee`
    gaps              slots that a file of counts leaves out: "error" refuses it, "zero" counts nobody in them
    header            whether the first line of a CSV file has names of regions; default: unless it looks like counts
    nonnegative       also score the non-negative view of the estimates (`filters.nonnegative`)
    median            also score the median view of the estimates (`filters.median`)
    burn_in           slots at the beginning that are not scored; default: 20; of 20 slots or fewer, a tenth
    smoothed          also estimate every slot with what came later, for schemes that keep records (relay)
    tuning            parameters of sampling, budget and grouping, or a file of `dpcrowd tune`, which contains A and Q,
                      too; default: those of the data set
    model             a process model of `dpcrowd fit`, or its file: what all filters know of every slot beforehand;
                      "none": no model, although a network.toml has one
    learn             whether filters learn from releases how well their model fits, or without one how large Q is;
                      default: with a model, and without one for relay, if Q is only a guess and users are counted
    turnover          the part of the pinned users who are replaced per slot, in (0, 1]; default: 0.05. Roaming users
                      choose a server anew in every slot, which is a turnover of 1
    composition       makes the shares of a partition differ by region: 5 moderately, 0.5 strongly; default: not at
                      all. The filters know the public share of each server only
    share_width       of relay: typical relative error of the public shares of a partition, such as 0.1; it then learns
                      the shares of every region from records. Default: 0, public shares are taken as they are

    With a network.toml as `graph`, its turnover, groups and share_width are the defaults, where they can be used, and
    its process model, unless a process variance is given.
    """
    check_groups_beside_learning(groups, 0.0 if share_width is None else checked_share_width(share_width))
    loading = {
        **{"slots": slots, "process_var": process_var, "slot_length": slot_length, "regions": regions},
        **{"round_counts": round_counts or None, "gaps": gaps, "header": header, "data_dir": data_dir},
    }
    data = _load_data(data, {name: value for name, value in loading.items() if value is not None}, model)
    tuning = read_tuned(tuning) if isinstance(tuning, str | os.PathLike) else tuning
    tuned: Tuned | None = None
    if isinstance(tuning, Tuned):
        if process_var is not None:
            raise BadInput(f"a process variance was given, and {tuning.file} has one, too; leave one of them out.")
        tuned, tuning = tuning, None
    file = read_network_file(graph) if is_network_file(graph) else None
    fitted, notes = adopt_model(model, file, {"process_var": process_var})
    if fitted is not None:
        if process_var is not None:
            raise BadInput("a process variance was given, and the model has one, too; leave one of them out.")
        fitted, data = _with_model(fitted, data, file if model is None else None)
    learn = file.learn if learn is None and model is None and file is not None else learn
    learning_chosen, observation_chosen = learn is not None, observation is not None
    data = replace(data, notes=(*data.notes, *notes)) if notes else data
    shares, servers = sized_shares(shares, graph, servers, data, selected=regions is not None)
    network = network_spec(graph, servers, density, dynamic)
    if shares is None:
        known = None if file is None else file.shares_of(data.regions)
        shares = "uniform" if known is None else known
        if known is not None:
            data = replace(data, notes=(*data.notes, _SHARES_OF_FILE.format(file=os.fspath(graph))))
    known_shares = resolved_shares(
        shares, network.servers, data, is_default=servers is None and not is_graph_file(graph)
    )
    one_server = isinstance(data, CheckIns) or (
        known_shares == "partition" if isinstance(known_shares, str) else is_partition(known_shares)
    )
    if observation is None:
        of_paper = data.name in PAPER_SETS or isinstance(data, SyntheticData)  # a plan simulates the paper's process
        observation = "paper" if of_paper and not one_server else "binomial"
        if observation == "binomial" and not one_server:
            data = replace(data, notes=(*data.notes, OBSERVED_AS_PEOPLE))
    check_composition(composition, data, network.servers, known_shares, observation)
    options = {"sampling": sampling, "interval": interval, "grouping": grouping}
    labelled = _with_labels(schemes)
    by_name = any(scheme == Relay.name for _, scheme in labelled)
    usable = {
        "turnover": users == "pinned" and observation == "binomial" and not is_changing(known_shares),
        "groups": by_name and not share_width,
        "share_width": by_name
        and one_server
        and reach in (None, "all")
        and groups in (None, "off")
        and observation == "binomial"
        and form == "diagonal",
    }
    # Where a network file has the width, servers meet as those of the live network do.
    meetings = file is None or not file.crowd.get("share_width") or file.meetings
    crowd, data = _of_file(file, {"turnover": turnover, "groups": groups, "share_width": share_width}, usable, data)
    turnover, groups, share_width = crowd["turnover"], crowd["groups"], crowd["share_width"]
    relay_options = {
        **{"samples": samples, "reach": _hops(reach), "hops_per_slot": _hops(hops_per_slot), "lag": lag},
        "groups": groups,
    }
    share_width = _prepare_learning(share_width, relay_options, labelled, one_server=one_server)
    instances = _make_all(labelled, options, relay_options)
    entrants = tuple(
        Entrant(
            label or scheme.name,
            scheme,
            guarantee_for(
                scheme,
                epsilon=epsilon,
                window=window,
                horizon=horizon,
                slots=data.slots,
                users=users,
                servers_per_slot=servers_per_slot,
                regions_per_slot=regions_per_slot,
                correlation=correlation,
                beside=[other.kinds for _, other in instances],
            ),
            hops_assumed=relay_options["hops_per_slot"] is None and given == Relay.name,
        )
        for (label, scheme), (_, given) in zip(instances, labelled, strict=True)
    )
    if tuned is not None:
        data, entrants = tuned.give(data, entrants, _burn_in(burn_in, data), fitted)
    config = SimulationConfig(
        data=data,
        entrants=entrants,
        network=network,
        runs=runs,
        seed=seed,
        shares=known_shares,
        observation=observation,
        users=users,
        accounting=accounting,
        form=form,
        beta=beta,
        burn_in=_burn_in(burn_in, data),
        tuning=_merge_tuning(data.tuning, tuning),
        keep_estimates=keep_estimates,
        smoothed=smoothed,
        nonnegative=nonnegative,
        median=median,
        fitted=fitted,
        learn=_learns(observation, data, file, share_width) or fitted is not None if learn is None else learn,
        learning_chosen=learning_chosen,
        turnover=turnover_of(turnover, users, observation, known_shares, None if observation_chosen else data.name),
        composition=None if composition is None else checked_composition(composition),
        share_width=share_width,
        meetings=share_width > 0.0 and meetings and users == "pinned",
    )
    entrants = tuple(
        _with_reach(config, entrant) if relay_options["reach"] is None and given == Relay.name else entrant
        for entrant, (_, given) in zip(entrants, labelled, strict=True)
    )
    config = replace(config, entrants=tuple(_with_samples(config, entrant) for entrant in entrants))
    return _with_differences(config, file, process_var, tuned)


def _with_differences(
    config: SimulationConfig, file: NetworkFile | None, process_var: object | None, tuned: Tuned | None
) -> SimulationConfig:
    """Return the simulation with a note on what its network.toml, if it has one, states otherwise."""
    if file is None:
        return config
    used = _used_settings(config)
    if process_var is not None:
        used["process_var"] = process_var
    elif config.fitted is None and tuned is None:
        used["process_var"] = "of the data"
    turnover = config.turnover if any(entrant.scheme.name == file.scheme for entrant in config.entrants) else 1.0
    notes = (*config.data.notes, *differing_settings(file, used), *turnover_note(file, turnover))
    return replace(config, data=replace(config.data, notes=notes))


def _used_settings(config: SimulationConfig) -> dict[str, Any]:
    """Return the settings of a simulation by the names that a network.toml has for them."""
    used: dict[str, Any] = {"users": config.users, "observation": config.observation}
    times = slot_times(config.data.slot_labels)
    if times is not None:
        used["slot"] = times.length / SECOND
    promised = [entrant for entrant in config.entrants if entrant.guarantee is not None]
    for entrant in sorted(promised, key=lambda entrant: not isinstance(entrant.scheme, Relay))[:1]:
        guarantee, scheme = entrant.guarantee, entrant.scheme
        assert guarantee is not None
        used["window" if guarantee.kind == "window" else "horizon"] = guarantee.length
        used["epsilon"] = float(guarantee.epsilon)
        used |= {name: getattr(guarantee, name) for name in ("servers_per_slot", "regions_per_slot", "correlation")}
        if isinstance(scheme, Relay):
            used |= {"samples": entrant.samples, "reach": scheme.max_hops or "all", "lag": scheme.lag}
            used["hops_per_slot"] = scheme.rounds or "all"
    return used


def _of_file(
    file: NetworkFile | None, settings: dict[str, Any], usable: dict[str, bool], data: DataSet
) -> tuple[dict[str, Any], DataSet]:
    """Return settings with those of a network.toml, if there is one, and the data with notes on them."""
    if file is None:
        return settings, data
    merged, notes = adopt_crowd_settings(file, settings, usable)
    return merged, replace(data, notes=(*data.notes, *notes))


def _with_model(model: Model, data: DataSet, file: NetworkFile | None) -> tuple[Model, DataSet]:
    """Return a model, and the data whose filters know it; `file` is the network file that it comes from, if any."""
    if file is None:  # the regions of a network have names
        model, notes = by_position(model, data.regions)
        data = apply_model(model, data)
        return model, replace(data, notes=(*data.notes, *notes))
    try:
        return model, apply_model(model, data)
    except BadInput as error:
        raise BadInput(
            f"the {file.model_name} does not fit the data: {error} Give data of that network, another model (--model "
            "FILE), or none (--model none)."
        ) from None


def _learns(observation: Observation, data: DataSet, file: NetworkFile | None, share_width: float) -> bool:
    """Whether filters without a model learn Q by default: where nobody has stated one.

    Drawn series have the Q that they are drawn with, and servers of a network.toml do what it says. Where shares are
    learned, Q is what tells a crowd that comes and goes from wrong shares.
    """
    stated = share_width > 0.0 or file is not None or isinstance(data, SyntheticData)
    return observation == "binomial" and not stated and is_var_of_steps(data.model, data.change_var)


def _prepare_learning(
    share_width: float | None,
    relay_options: dict[str, Any],
    labelled: list[tuple[str | None, str | Scheme]],
    *,
    one_server: bool,
) -> float:
    """Return the share width; above 0, let relay have the reach with which shares can be learned, or say why not."""
    share_width = 0.0 if share_width is None else checked_share_width(share_width)
    check_share_width(share_width)
    if share_width == 0.0:
        return share_width
    if not any(scheme == Relay.name or isinstance(scheme, Relay) for _, scheme in labelled):
        raise BadInput(f"share_width={share_width:g} is for scheme 'relay' only.")
    reach = relay_options["reach"]
    if reach not in (None, "all"):
        raise BadInput(
            f"share_width={share_width:g} needs reach=all, so that every server has every record; given {reach}."
        )
    if not one_server:
        raise BadInput(
            f"share_width={share_width:g} needs every user at one server; give shares=partition, or shares that sum "
            "to 1."
        )
    if any(scheme == Relay.name for _, scheme in labelled):
        relay_options["reach"] = "all"
    return share_width


def _with_reach(config: SimulationConfig, entrant: Entrant) -> Entrant:
    """Return relay with the reach that is planned for it."""
    scheme, guarantee = entrant.scheme, entrant.guarantee
    if not isinstance(scheme, Relay) or guarantee is None:
        return entrant
    reach = planned_reach(config, scheme, guarantee)
    return replace(entrant, scheme=with_reach(scheme, reach), reach_planned=True)


def _with_samples(config: SimulationConfig, entrant: Entrant) -> Entrant:
    """Return the entrant with its number of samples, if its scheme leaves that open."""
    scheme, guarantee = entrant.scheme, entrant.guarantee
    if not isinstance(scheme, Relay) or guarantee is None:
        return entrant
    if scheme.samples is None and scheme.interval is None:
        return replace(entrant, samples=planned_samples(config, scheme, guarantee))
    return replace(entrant, samples=scheme.samples_per(guarantee.length))


def _hops(value: int | str | None) -> int | str | None:
    """Return a number of hops that may be given as text."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def _make_all(
    labelled: list[tuple[str | None, str | Scheme]], options: dict[str, Any], relay_options: dict[str, Any]
) -> list[tuple[str | None, Scheme]]:
    """Make the schemes; `relay_options` apply to relay alone, also where it is compared with others.

    If both samples and an interval are given, the samples are for relay and the interval is for the others.
    """
    names = [name for name, value in relay_options.items() if value is not None]
    if names and not any(scheme == Relay.name for _, scheme in labelled):
        by_hand = any(isinstance(scheme, Relay) for _, scheme in labelled)
        pronoun, verb = ("it", "is") if len(names) == 1 else ("them", "are")
        why = (
            f"cannot change a scheme object; pass {pronoun} to Relay()"
            if by_hand
            else f"{verb} for scheme 'relay' only"
        )
        raise BadInput(f"{', '.join(names)} {why}.")
    of_relay = {**options, **relay_options}
    if relay_options["samples"] is not None and any(scheme != Relay.name for _, scheme in labelled):
        of_relay["interval"] = None
    return [(label, _make(scheme, of_relay if scheme == Relay.name else options)) for label, scheme in labelled]


def _make(scheme: str | Scheme, options: dict[str, Any]) -> Scheme:
    if isinstance(scheme, str):
        return make_scheme(scheme, **options)
    names = [name for name, value in options.items() if value is not None]
    if names:
        raise BadInput(f"{', '.join(names)} cannot change a scheme object; pass it to its constructor instead.")
    return scheme


def _burn_in(requested: int | None, data: DataSet) -> int:
    """Return how many slots are not scored."""
    if requested is not None:
        return requested
    return _BURN_IN if data.slots > _BURN_IN else data.slots // 10


def _load_data(data: Data, options: dict[str, Any], model: object = None) -> DataSet:
    """Return the data; one slot is enough where a process model says how the counts change."""
    try:
        return data_set_of(data, options)
    except OneSlot:
        if model is None or model == NO_MODEL:
            raise
        return data_set_of(data, {**options, "process_var": 1.0})


def _with_labels(schemes: Schemes) -> list[tuple[str | None, str | Scheme]]:
    """Return (label, scheme) of each scheme that was asked for; None stands for the scheme's own name."""
    if isinstance(schemes, str):
        schemes = [name.strip() for name in schemes.split(",") if name.strip()]
    elif isinstance(schemes, Scheme) or not isinstance(schemes, Iterable):
        schemes = [schemes]
    pairs: Iterable[tuple[str | None, str | Scheme]]
    pairs = schemes.items() if isinstance(schemes, Mapping) else ((None, scheme) for scheme in schemes)
    labelled = list(pairs)
    if not labelled:
        raise BadInput(f"no scheme was given; allowed: {', '.join(SCHEMES)}.")
    for _, scheme in labelled:
        if not isinstance(scheme, (str, Scheme)):
            raise BadInput(f"{scheme!r} was given as a scheme; allowed: a name such as 'dpcrowd', or DPCrowd().")
    return labelled


def _merge_tuning(base: Tuning, changes: Tuning | dict[str, Any] | None) -> Tuning:
    if isinstance(changes, Tuning):
        return changes
    if changes is not None and not isinstance(changes, dict):
        raise BadInput(
            f"tuning must be a Tuning or a dictionary of its parameters, or a tuned file; given {changes!r}."
        )
    names = [field.name for field in fields(Tuning)]
    for name in changes or {}:
        if name not in names:
            raise unknown_name("tuning parameter", name, names)
    return replace(base, **(changes or {}))
