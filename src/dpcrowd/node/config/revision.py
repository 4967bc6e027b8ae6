"""Whether one network.toml may follow another while the network runs.

The next revision may change servers, links, shares, population, regions, keys, grace, deadline and send offset, and
with the regions the model (Q, A, or a fitted one) and the consensus step. It must not move the slots or change the
guarantee or the scheme: state and ledger of the running network would mean something else. There are two exceptions. It
may begin a new horizon of a finite guarantee, with its own first slot, so that all servers begin it in the same slot.
And it may change the scheme to relay: estimates begin anew, what was spent stays spent. A network that runs relay may
change how often servers sample and how far and how long records travel.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dpcrowd.errors import BadInput
from dpcrowd.node.config.digest import canonical
from dpcrowd.node.config.kinds import InvalidValue
from dpcrowd.node.config.network import NetworkConfig

__all__ = ["check_member", "check_new", "check_next", "differing_settings", "only_model_differs"]

_FREE_IN_SCHEME = {"process_var", "transition", "beta", "model", "learn", "turnover"}
_FREE_IN_RELAY = {"samples", "interval", "reach", "lag", "guard", "share_width", "meetings", "groups"}
_NAMED = 24
_MOST_DIFFERENCES = 5


def check_next(current: NetworkConfig, following: NetworkConfig, where: str = "network.toml") -> None:
    """Refuse a revision that cannot follow the current one."""
    try:
        _check(current, following)
    except InvalidValue as error:
        raise BadInput(f"{where}: {error}") from None


def check_new(network: NetworkConfig, where: str = "network.toml") -> None:
    """Refuse texts of a model that could forge or control what is printed, in a file that is not in use yet.

    What is in use, and copies of what was, are read whatever they say: it is escaped where it is printed.
    """
    try:
        if network.fitted is not None:
            network.fitted.check_texts()
    except BadInput as error:
        raise BadInput(f"{where}: scheme.model: {error}") from None


def check_member(network: NetworkConfig, server: str, where: str = "network.toml") -> None:
    """Refuse a server that does not belong to a revision.

    No similar name is suggested: it would be another organisation's.
    """
    names = [one.name for one in network.servers]
    if server in names:
        return
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    raise BadInput(
        f"{where}: revision {network.revision} of '{network.id}' has no server '{server}', only "
        f"{', '.join(names[:_NAMED])}{more}. If it has left the network, stop it for good; otherwise correct `server` "
        "in node.toml, or ask whoever maintains network.toml for a revision that contains it."
    )


def differing_settings(one: NetworkConfig, other: NetworkConfig) -> list[str]:
    """Return the names of the settings in which two files differ, as far as that matters to other servers.

    What servers compute themselves, with the levels of a model say, does not count as a setting.
    """
    names = []
    first, second = (msgspec.json.decode(canonical(network)) for network in (one, other))
    for section in sorted(first.keys() | second.keys()):
        before, now = first.get(section), second.get(section)
        if not isinstance(before, dict) or not isinstance(now, dict):
            names += [section] if before != now else []
            continue
        names += [f"{section}.{name}" for name in sorted(before.keys() | now.keys()) if _differ(before, now, name)]
    computed = {f"scheme.{name}" for name in ("samples", "reach") if _same_setting(one, other, name)}
    return [name for name in names if name not in computed]


def _differ(before: dict[str, Any], now: dict[str, Any], name: str) -> bool:
    return (name in before) != (name in now) or before.get(name) != now.get(name)


def _same_setting(one: NetworkConfig, other: NetworkConfig, name: str) -> bool:
    return bool(getattr(one.method, name) == getattr(other.method, name))


def only_model_differs(one: NetworkConfig, other: NetworkConfig) -> bool:
    """Whether two files of network.toml are the same and only the model files that they name differ."""
    return differing_settings(one, other) == ["scheme.model"] and None not in (one.fitted, other.fitted)


def _check(current: NetworkConfig, following: NetworkConfig) -> None:
    if following.revision < current.revision:
        raise InvalidValue("network.revision", _older_revision(current, following))
    if following.revision == current.revision:
        _check_lasting(current, following)  # no number makes such a change possible
        raise InvalidValue("network.revision", _same_revision(current, following))
    if following.valid_from_slot <= current.valid_from_slot:
        given = f"given {following.valid_from_slot}"
        if following.valid_from_slot == 0:
            given = "missing, or 0; a new revision needs the first slot in which it is valid"
        raise InvalidValue(
            "network.valid_from_slot",
            f"{given}; allowed: above {current.valid_from_slot}, where the current revision begins.",
        )
    _check_lasting(current, following)
    present, start = current.guarantee_section.horizon_from_slot, following.guarantee_section.horizon_from_slot
    if start not in (present, following.valid_from_slot):
        raise InvalidValue(
            "guarantee.horizon_from_slot",
            f"given {start}; allowed: {present}, where the present horizon began, or {following.valid_from_slot} "
            "(valid_from_slot), to begin a new one with this revision.",
        )


def _check_lasting(current: NetworkConfig, following: NetworkConfig) -> None:
    """Refuse changes of what no revision may change."""
    for name in ("id", "epoch", "slot"):
        _check_same(f"network.{name}", getattr(current.general, name), getattr(following.general, name))
    for name in current.guarantee_section.__struct_fields__:
        if name != "horizon_from_slot":
            _check_same(
                f"guarantee.{name}",
                getattr(current.guarantee_section, name),
                getattr(following.guarantee_section, name),
            )
    free = _FREE_IN_SCHEME
    if following.relay is not None:
        free = _FREE_IN_SCHEME | _FREE_IN_RELAY if current.relay is not None else set(current.method.__struct_fields__)
    for name in current.method.__struct_fields__:
        if name not in free:
            _check_same(f"scheme.{name}", getattr(current.method, name), getattr(following.method, name))


def _older_revision(current: NetworkConfig, following: NetworkConfig) -> str:
    """Return why an older file cannot follow. Under a higher number it would bring its old settings back."""
    return (
        f"given {following.revision}, but revision {current.revision} is in use: this is an older file, or one that "
        "was made from an older one. Take the newest network.toml (and its model), which the other servers have. Do "
        "not raise the number of an old file: that would bring its settings back."
    )


def _same_revision(current: NetworkConfig, following: NetworkConfig) -> str:
    """Return why a changed file with the number of the one in use cannot follow it."""
    given = f"given {following.revision}, but"
    if only_model_differs(current, following):
        return (
            f"{given} the model is another one than that of revision {current.revision}, which is in use; all other "
            "settings are the same. Put back the model that all servers have, or give a higher number for a changed "
            "one. A corrected model with the same number is taken when the server starts, as long as no neighbour has "
            "accepted the one before."
        )
    names = differing_settings(current, following)
    more = f" and {len(names) - _MOST_DIFFERENCES} more" if len(names) > _MOST_DIFFERENCES else ""
    return (
        f"{given} the file differs from revision {current.revision}, which is in use, in "
        f"{', '.join(names[:_MOST_DIFFERENCES])}{more}; allowed: a higher number for a changed file. If you did not "
        "change it, it is another one: take the network.toml that the other servers have."
    )


def _check_same(path: str, current: object, following: object) -> None:
    if current != following:
        raise InvalidValue(
            path, "differs from the running revision; to change it, create a new network with an id of its own."
        )
