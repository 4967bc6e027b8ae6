"""Which revision of the network is valid, across restarts: copies of network.toml beside the ledger.

The operator replaces network.toml before the new revision is valid. Until then, and for a start in between, the one in
use is kept in the data folder; from a reload to its first slot the next one is kept as well, since network.toml may
change again; and the one before, whose estimates are taken over, for a crash right after that.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from dpcrowd.errors import BadInput
from dpcrowd.node.config import NetworkConfig, NodeConfig, check_next, digest, load_network, network_text, parse_network

__all__ = ["Revisions", "current_revision", "differences", "keep_current", "keep_next", "take_next", "text_of"]

log = logging.getLogger("dpcrowd.node")

_NAMED = 10
BEFORE, CURRENT, NEXT = "network.before.toml", "network.current.toml", "network.next.toml"


@dataclass(frozen=True)
class Revisions:
    """The revisions that a node starts with.

    before     the revision whose state may still be in the folder
    following  what network.toml holds already, if it is not valid yet
    """

    current: NetworkConfig
    before: NetworkConfig | None = None
    following: NetworkConfig | None = None


def current_revision(node: NodeConfig, network: NetworkConfig, now_ns: int) -> Revisions:
    """Return what is valid now: network.toml, or the copy beside the ledger while network.toml is ahead of time."""
    used, older = _kept(node, CURRENT, network), _kept(node, BEFORE, network)
    if used is None or digest(used) == digest(network):
        return Revisions(network, before=older)
    check_next(used, network)  # whoever changes the promise must not do so under the name of the old one
    if network.valid_from_slot <= network.clock().slot_of(now_ns - network.grace_ns):
        return Revisions(network, before=used)
    return Revisions(used, before=older, following=network)


def _kept(node: NodeConfig, name: str, network: NetworkConfig) -> NetworkConfig | None:
    path = node.data / name
    network_of_file = load_network(path) if path.exists() else None
    return network_of_file if network_of_file is not None and network_of_file.id == network.id else None


def differences(before: NetworkConfig, after: NetworkConfig) -> str:
    """Return what comes and goes, for the operator: a renamed region or server is a new one, and loses the old."""
    parts = []
    for what, old, new in (
        ("regions", before.regions, after.regions),
        ("servers", [one.name for one in before.servers], [one.name for one in after.servers]),
    ):
        for way, names in (
            ("new", [one for one in new if one not in old]),
            ("gone", [one for one in old if one not in new]),
        ):
            if names:
                more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                parts.append(f"; {way} {what}: {', '.join(names[:_NAMED])}{more}")
    if after.guarantee_section.horizon_from_slot > before.guarantee_section.horizon_from_slot:
        parts.append(
            f"; a new horizon of {after.guarantee_section.length} slots begins with it, a promise on top of the old one"
        )
    return "".join(parts)


def keep_current(node: NodeConfig, network: NetworkConfig) -> None:
    """Keep a copy of the revision in use, after a start has taken over what an older one left."""
    _keep(node, network, CURRENT)


def keep_next(node: NodeConfig, network: NetworkConfig) -> None:
    """Keep a copy of the next revision, after a reload."""
    _keep(node, network, NEXT)


def take_next(node: NodeConfig, network: NetworkConfig) -> None:
    """Make the copy of the next revision the one in use."""
    path = node.data / NEXT
    try:
        if digest(parse_network(path.read_text(encoding="utf-8"))) == digest(network):
            if (node.data / CURRENT).exists():
                (node.data / CURRENT).replace(node.data / BEFORE)
            path.replace(node.data / CURRENT)
    except OSError as error:  # a start would begin estimates anew; no reason to end
        log.error("%s: %s", path, error.strerror, extra={"event": "revision"})


def text_of(node: NodeConfig, network: NetworkConfig) -> str | None:
    """Return the text of a revision's network.toml, from whichever file holds it; None: none does."""
    for path in (node.network, *(node.data / name for name in (CURRENT, NEXT, BEFORE))):
        try:
            text = network_text(path)
            if digest(parse_network(text)) == digest(network):
                return text
        except (OSError, ValueError, BadInput):
            continue
    return None


def _keep(node: NodeConfig, network: NetworkConfig, name: str) -> None:
    text = network_text(node.network)
    if digest(parse_network(text)) == digest(network):  # else it is another one, and its copy is there already
        fresh: Path = node.data / f"{name}.part"
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(node.data / name)
