"""What a revision of network.toml changes, in words: whoever takes it answers for it.

The digest says that all servers have the same file, not what is in it. A model changes the promise, since its `source`
is asserted by every operator; turnover, shares or samples change what estimates assume. So `dpcrowd node reload` and
the log name every setting that differs (`revision.differing_settings`), and what comes and goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dpcrowd.errors import counted
from dpcrowd.models.file import model_digest
from dpcrowd.models.model import Model
from dpcrowd.node.config.network import NetworkConfig
from dpcrowd.node.config.revision import differing_settings

__all__ = ["describe_changes"]

_NAMED = 10
_LONGEST = 60
_TOLD_OTHERWISE = {
    "network.revision",
    "network.valid_from_slot",
    "network.regions",
    "guarantee.horizon_from_slot",
    "scheme.model",
    "server",
    "link",
}


def describe_changes(before: NetworkConfig, after: NetworkConfig) -> list[str]:
    """Return what changes from one revision to the next, for the operator: some parts of one sentence.

    A renamed region or server is a new one, and loses the old.
    """
    servers = {one.name: one for one in before.servers}, {one.name: one for one in after.servers}
    parts = [*_come_and_go("regions", before.regions, after.regions), *_come_and_go("servers", *map(list, servers))]
    parts += _come_and_go("links", *(_links(network) for network in (before, after)))
    settings = list(_settings(before, after))
    for name in servers[0].keys() & servers[1].keys():
        old, new = servers[0][name], servers[1][name]
        settings += [
            f"{field} of {name} {_text(getattr(old, field))} -> {_text(getattr(new, field))}"
            for field in old.__struct_fields__
            if getattr(old, field) != getattr(new, field)
        ]
    if settings:
        parts.append(f"changed: {_some(sorted(settings))}")
    if after.guarantee_section.horizon_from_slot > before.guarantee_section.horizon_from_slot:
        parts.append(
            f"a new horizon of {counted(after.guarantee_section.length, 'slot')} begins with it, a promise on top of "
            "the old one"
        )
    return [*parts, *_model(before.fitted, after.fitted)]


def _settings(before: NetworkConfig, after: NetworkConfig) -> Iterator[str]:
    """Yield the settings of the tables [network], [guarantee] and [scheme] that differ: name, old -> new."""
    for path in differing_settings(before, after):
        if path in _TOLD_OTHERWISE:
            continue
        section, _, name = path.partition(".")
        old, new = (_text(getattr(_section(network, section), name)) for network in (before, after))
        if old != new:  # what a model replaces may still be written there
            yield f"{path} {old} -> {new}"


def _section(network: NetworkConfig, name: str) -> object:
    return {"network": network.general, "guarantee": network.guarantee_section, "scheme": network.method}[name]


def _model(before: Model | None, after: Model | None) -> list[str]:
    """Return how the model changes, and what each operator asserts from now on."""
    if after is None:
        return [] if before is None else [f"the model fitted on '{before.data_name}' is no longer used"]
    if before is not None and model_digest(before) == model_digest(after):
        return []
    old = "no model" if before is None else f"the model fitted on '{before.data_name}'"
    return [
        f"{old} -> a model fitted on '{after.data_name}', digest {model_digest(after)[:16]}; whoever takes this "
        f"revision asserts that the new model costs no budget, for this reason: {after.quoted_sources}"
    ]


def _links(network: NetworkConfig) -> list[str]:
    links = []
    for link in network.links:
        slots = "" if link.from_slot is None else f" from slot {link.from_slot}"
        slots += "" if link.until_slot is None else f" until slot {link.until_slot}"
        links.append("-".join(sorted(link.between)) + slots)
    return links


def _come_and_go(what: str, old: Sequence[str], new: Sequence[str]) -> list[str]:
    ways = (("new", [one for one in new if one not in old]), ("gone", [one for one in old if one not in new]))
    return [f"{way} {what}: {_some(names)}" for way, names in ways if names]


def _some(texts: Iterable[str]) -> str:
    texts = list(texts)
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more


def _text(value: object) -> str:
    """Return a value as an operator would write it; long lists and tables are cut."""
    if value is None or value == {}:
        return "(not set)"
    if isinstance(value, bool):
        return str(value).lower()
    is_plain = isinstance(value, int | float | str)
    text = str(value) if is_plain else msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
