"""The network that `dpcrowd init` writes: a sample with settings that the planner recommends, or one from a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.node.config.kinds import Duration
from dpcrowd.node.config.plan_file import PlannedNetwork, read_plan
from dpcrowd.node.config.samples import (
    EPSILON,
    POPULATION,
    REGIONS,
    WINDOW,
    sample_names,
    sample_network,
    usual_process_var,
)
from dpcrowd.privacy.units import format_epsilon
from dpcrowd.sim.planner.live import settings_of_ring

__all__ = ["MODEL_FILE", "NewNetwork", "planned_network", "sample_of_scheme"]

_SECOND = 1_000_000_000
_MINUTE, _DAY = 60 * _SECOND, 86_400 * _SECOND
_SCHEMES: dict[str, dict[str, Any]] = {
    "relay": {},
    "dpcrowd": {"kind": "finite"},
    "dpcrowd-w": {},
    "dpcrowd-plus": {"interval": None},
}
"""The schemes that can run live, with what a sample of each needs."""
_OBSERVED_AS_IN_PAPER = (
    "'{path}' has observation = \"paper\", the model of the paper's simulated counts: intervals of a live network "
    "would be too narrow; plan again with --observation binomial."
)
_SEASON_FROM_EPOCH = (
    "the model has a season of {season} slots and no times, so servers take slot 0 of '{data}' to be at the epoch in "
    "network.toml. Set the epoch to such a moment, or fit the model again on public counts, or on your own "
    "releases, whose slots are labelled with times."
)
_MODEL_CHANGED = (
    "the model '{model}' is not the one with which '{path}' was planned: its numbers of samples and links, and the "
    "errors that it expects, are for another model. The network gets the file as it is now; plan again, or put the "
    "model back that was planned with."
)
_SLOT_UNKNOWN = (
    "the model has no slot length, since '{data}' has no times: nothing checks that its slots are {slot} long, as "
    "those of this network are. 'dpcrowd fit --slot-length' stores it."
)


@dataclass(frozen=True)
class NewNetwork:
    """A network to be written.

    slot      in nanoseconds
    settings  arguments of `sample_network`
    model     the text of the process model that the settings name, if any
    """

    names: tuple[str, ...]
    slot: int
    settings: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    model: str | None = None

    @property
    def horizon(self) -> int | None:
        """The length of a finite promise, in slots; None: it is one for every window."""
        return int(self.settings.get("length", WINDOW)) if self.settings.get("kind") == "finite" else None

    def epoch(self, now: int, *, dev: bool) -> int:
        """Return when slot 0 opens, in nanoseconds since 1970 UTC.

        A window can begin in the past: at midnight. A horizon would then be over soon, or at once, so it begins ahead:
        in a trial when slots of this length begin anew after two minutes, else at the first midnight after an hour, by
        which organisations can exchange keys or, more often, agree on a later one.

        now  in the same unit
        dev  whether it is a trial on this machine
        """
        if self.horizon is None:
            return now // _DAY * _DAY
        lead, unit = (2 * _MINUTE, max(self.slot, _MINUTE)) if dev else (60 * _MINUTE, _DAY)
        return -(-(now + lead) // unit) * unit

    def text(self, **more: Any) -> str:
        """Return the text of its network.toml; a slot of any length has room for grace and deadline."""
        return sample_network(
            self.names,
            slot=str(Duration(self.slot)),
            grace=str(Duration(min(5 * _SECOND, self.slot // 5))),
            deadline=str(Duration(min(10 * _SECOND, self.slot // 2))),
            **self.settings,
            **more,
        )


_OF_SCHEME = (
    *("samples", "reach", "lag", "groups", "turnover", "share_width", "meetings", "process_var", "learn"),
    "observation",
)
MODEL_FILE = "model.toml"
"""The name of a process model beside the network.toml that names it."""


def sample_of_scheme(servers: int, scheme: str, slot: int) -> NewNetwork:
    """Return a sample network; relay gets the number of samples and the reach that the planner recommends for it.

    Nobody knows the process variance of a crowd that was never counted, so servers with relay learn it.
    """
    if scheme not in _SCHEMES:
        raise unknown_name("scheme", scheme, _SCHEMES)
    names = sample_names(servers)
    settings = {"scheme": scheme, **_SCHEMES[scheme]}
    if scheme == "relay":
        number = len(REGIONS)
        process_var = usual_process_var(POPULATION, number)
        chosen = settings_of_ring(servers, [POPULATION / number] * number, process_var, WINDOW, float(EPSILON))
        settings |= {**vars(chosen), "learn": True}
    return NewNetwork(names, slot, settings)


def planned_network(path: Path, explicit: Mapping[str, Any], slot: int | None) -> NewNetwork:
    """Return the network of a plan.

    explicit  options of the command that were given: they have to agree with the plan
    slot      the length that was given, in nanoseconds; needed if neither the plan nor its model has one
    """
    try:
        plan = read_plan(path)
    except BadInput as error:
        raise BadInput(f"--plan {error}") from None
    network = plan.network
    planned = {
        "servers": (len(plan.names), f"has {len(plan.names)} servers"),
        "scheme": (network.method.name, f"has the scheme '{network.method.name}'"),
    }
    for name, (value, text) in planned.items():
        if explicit.get(name, value) != value:
            raise BadInput(f"--{name} is {explicit[name]}, but '{path}' {text}; leave --{name} out, or plan again.")
    length = int(network.general.slot)
    if plan.has_slot and slot not in (None, length):
        raise BadInput(
            f"--slot is {explicit['slot']}, but '{path}' has slots of {network.general.slot}; leave --slot out, or "
            "plan again."
        )
    if not plan.has_slot:
        if slot is None and (network.fitted is None or network.fitted.slot is None):
            raise BadInput(
                f"'{path}' does not give the length of a slot; give it here (--slot 15m), or plan with --slot."
            )
        length = length if slot is None else slot
    _check_model_slot(plan, length, path)
    guarantee, method = network.guarantee_section, network.method
    settings = {
        "population": network.population,
        "regions": network.regions,
        "kind": guarantee.kind,
        "length": guarantee.length,
        "epsilon": format_epsilon(guarantee.epsilon),
        **{name: getattr(guarantee, name) for name in ("users", "servers_per_slot", "regions_per_slot", "correlation")},
        "scheme": method.name,
        **{name: getattr(method, name) for name in _OF_SCHEME},
        "model": None if method.model is None else MODEL_FILE,
        "shares": {server.name: server.share for server in network.servers},
        "shares_by_region": {server.name: dict(server.shares) for server in network.servers if server.shares},
        "links": [link.between for link in network.links],
    }
    if guarantee.users == "pinned" and method.turnover is None:
        settings["turnover"] = 1.0  # plans of earlier versions do not state it, and have predicted this
    warnings = [_OBSERVED_AS_IN_PAPER.format(path=path)] if method.observation == "paper" else []
    fitted = network.fitted
    if plan.model_changed:
        warnings.append(_MODEL_CHANGED.format(model=plan.model_file, path=path))
    if fitted is not None and fitted.season_lacks_times:
        warnings.append(_SEASON_FROM_EPOCH.format(season=fitted.season, data=fitted.data_name))
    if fitted is not None and fitted.slot is None:
        warnings.append(_SLOT_UNKNOWN.format(data=fitted.data_name, slot=Duration(length)))
    return NewNetwork(plan.names, length, settings, tuple(warnings), method.model)


def _check_model_slot(plan: PlannedNetwork, length: int, path: Path) -> None:
    """Refuse slots of another length, in nanoseconds, than those that the plan's process model is for."""
    fitted = plan.network.fitted
    if fitted is None or fitted.slot is None or fitted.slot * 1000 == length:
        return
    raise BadInput(
        f"--slot is {Duration(length)}, but the model '{plan.model_file}' of '{path}' was fitted on slots of "
        f"{Duration(fitted.slot * 1000)}; give that length, or plan with a model of slots of {Duration(length)}."
    )
