"""Which revision of the network is valid, across restarts: copies of network.toml beside the ledger.

The operator replaces network.toml before the new revision is valid. Until then, and for a start in between, the one in
use is kept in the data folder; from a reload to its first slot the next one is kept as well, since network.toml may
change again; and the one before, whose estimates are taken over, for a crash right after that.

The copy also shows that a file was changed without a new number, which is refused. There is one exception: a model file
that is corrected before any neighbour has accepted the wrong one. Nobody else has used that configuration, budget and
ledger do not depend on it, and without the exception a server that once started with the wrong model file could not
start with the right one.

Where servers pass records on, a record of an earlier slot is checked by the revision that was valid then, also after a
restart. So earlier revisions are kept for as long as records of theirs can count. The name of such a copy says up to
which slot it was valid, and its digest, so that a copy that was damaged or changed is not used. What the promise has to
name of the models of earlier revisions is in the ledger's database (`decisions.remember_models`): it is stored when a
revision takes over, before its copies are deleted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dpcrowd.errors import BadInput
from dpcrowd.node.config import (
    NetworkConfig,
    NodeConfig,
    check_new,
    check_next,
    describe_changes,
    digest,
    load_network,
    network_text,
    only_model_differs,
    parse_network,
)

__all__ = [
    "Revisions",
    "changes_text",
    "current_revision",
    "keep_current",
    "keep_next",
    "log_changes",
    "take_next",
    "text_of",
]

log = logging.getLogger("dpcrowd.node")

BEFORE, CURRENT, NEXT = "network.before.toml", "network.current.toml", "network.next.toml"
_EARLIER = "network.until-{until}-{digest}.toml"
_EARLIER_NAME = re.compile(r"network\.until-(\d{1,18})-([0-9a-f]{32})\.toml")


@dataclass(frozen=True)
class Revisions:
    """The revisions that a node starts with.

    before     the revision whose state may still be in the folder
    following  what network.toml holds already, if it is not valid yet
    earlier    those that were valid before the current one, oldest first, without a gap, as far as they are kept
    corrected  whether it is the current one with another model than when the node ran last
    replaced   what was in use when the node ran last, if the current one takes over with this start
    """

    current: NetworkConfig
    before: NetworkConfig | None = None
    following: NetworkConfig | None = None
    earlier: tuple[NetworkConfig, ...] = ()
    corrected: bool = False
    replaced: NetworkConfig | None = None

    @property
    def chain(self) -> tuple[NetworkConfig, ...]:
        """What has followed one another, oldest first; a corrected revision is in it with both models."""
        wrong = (self.replaced,) if self.corrected and self.replaced is not None else ()
        return (*self.earlier, *wrong, self.current)


def current_revision(
    node: NodeConfig, network: NetworkConfig, now_ns: int, heard_until: int | None = None
) -> Revisions:
    """Return what is valid now: network.toml, or the copy beside the ledger while network.toml is ahead of time.

    heard_until  the last slot in which a neighbour, which then had the same configuration, has reported something new
                 of its ledger; -1: none ever has; None: that is not known
    """
    used, older = _read_stored(node, CURRENT, network), _read_stored(node, BEFORE, network)
    if used is None or digest(used) != digest(network):
        check_new(network, str(node.network))
    if used is None or digest(used) == digest(network):
        return Revisions(network, before=older, earlier=_earlier(node, network, older))
    if heard_until is not None and heard_until < used.valid_from_slot and _is_corrected(used, network):
        # A relay server's estimates would contain records that nobody else has: it begins anew, and asks neighbours.
        before = used if network.relay is None else None
        return Revisions(network, before=before, earlier=_earlier(node, network, older), corrected=True, replaced=used)
    check_next(used, network)  # whoever changes the promise must not do so under the name of the old one
    if network.valid_from_slot <= network.clock().slot_of(now_ns - network.grace_ns):
        return Revisions(network, before=used, earlier=(*_earlier(node, used, older), used), replaced=used)
    return Revisions(used, before=older, following=network, earlier=_earlier(node, used, older))


def _is_corrected(used: NetworkConfig, network: NetworkConfig) -> bool:
    """Whether a file is that of the revision in use, with another model."""
    return used.revision == network.revision and only_model_differs(used, network)


def _earlier(node: NodeConfig, current: NetworkConfig, before: NetworkConfig | None) -> tuple[NetworkConfig, ...]:
    """Return the revisions before the current one that are kept, oldest first, up to the first gap.

    before  the one of `BEFORE`: folders of earlier versions have no other
    """
    earlier = dict(_read_earlier(node))
    if before is not None and before.valid_from_slot < current.valid_from_slot:
        earlier.setdefault(current.valid_from_slot, before)
    chain: list[NetworkConfig] = []
    following = current
    while (network := earlier.get(following.valid_from_slot)) is not None:
        try:
            check_next(network, following)
        except BadInput:
            break
        chain.append(network)
        following = network
    return tuple(reversed(chain))


def _read_earlier(node: NodeConfig) -> Iterator[tuple[int, NetworkConfig]]:
    """Yield the kept earlier revisions that are what their names say, each with the first slot after it."""
    for path, until, expected in _earlier_files(node):
        try:
            network = parse_network(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, BadInput) as error:
            log.error("%s cannot be read, and is not used: %s", path, error, extra={"event": "revision"})
            continue
        if digest(network).hex() == expected:
            yield until, network
        else:
            log.error("%s was changed, and is not used", path, extra={"event": "revision"})


def _earlier_files(node: NodeConfig) -> list[tuple[Path, int, str]]:
    """Return the copies of earlier revisions: path, first slot after it, and digest, as the name says."""
    matches = [(path, _EARLIER_NAME.fullmatch(path.name)) for path in sorted(node.data.glob("network.until-*.toml"))]
    return [(path, int(match[1]), match[2]) for path, match in matches if match is not None]


def _keep_earlier(node: NodeConfig, name: str, following: NetworkConfig) -> None:
    """Keep the copy of a revision of this network that another one has followed: records of its slots may come."""
    path = node.data / name
    if not path.exists():
        return
    try:
        text = path.read_text(encoding="utf-8")
        network = parse_network(text)
        check_next(network, following)
        if network.id == following.id and following.relay is not None:
            copy = _EARLIER.format(until=following.valid_from_slot, digest=digest(network).hex())
            _write(node.data / copy, text)
    except (ValueError, BadInput):  # it is of another network, or the start has refused it already
        return
    except OSError as error:  # after a restart, records of earlier slots could not be checked; no reason to end
        log.error("%s cannot be kept: %s", path, error.strerror, extra={"event": "revision"})


def _forget_earlier(node: NodeConfig, current: NetworkConfig) -> None:
    """Delete copies of revisions whose records were final when the current one took over."""
    revisions = (current, *(one for _, one in _read_earlier(node)))
    lag = max((one.relay.lag for one in revisions if one.relay is not None), default=0)
    for path, until, _ in _earlier_files(node):
        if until <= current.valid_from_slot - lag:
            path.unlink(missing_ok=True)


def _read_stored(node: NodeConfig, name: str, network: NetworkConfig) -> NetworkConfig | None:
    path = node.data / name
    network_of_file = load_network(path) if path.exists() else None
    return network_of_file if network_of_file is not None and network_of_file.id == network.id else None


def changes_text(before: NetworkConfig, after: NetworkConfig) -> str:
    """Return what a revision changes, as the operator who takes it should know it."""
    parts = describe_changes(before, after) or ["nothing but its number changes"]
    return f"{'; '.join(parts)}. Calibration begins anew with it."


def log_changes(before: NetworkConfig, after: NetworkConfig) -> None:
    """Log what a revision changes that takes over now."""
    text = f"revision {after.revision} after revision {before.revision}: {changes_text(before, after)}"
    log.warning(text, extra={"event": "revision"})


def keep_current(node: NodeConfig, network: NetworkConfig) -> None:
    """Keep a copy of the revision in use, after a start has taken over what an older one left."""
    if (current := _read_stored(node, CURRENT, network)) is not None:
        _keep_earlier(node, BEFORE, current)  # folders of earlier versions have no other copy
        if digest(current) != digest(network):
            _keep_earlier(node, CURRENT, network)
    _keep(node, network, CURRENT)
    _forget_earlier(node, network)


def keep_next(node: NodeConfig, network: NetworkConfig) -> None:
    """Keep a copy of the next revision, after a reload."""
    _keep(node, network, NEXT)


def take_next(node: NodeConfig, network: NetworkConfig) -> None:
    """Make the copy of the next revision the one in use."""
    path = node.data / NEXT
    try:
        if digest(parse_network(path.read_text(encoding="utf-8"))) == digest(network):
            if (node.data / CURRENT).exists():
                _keep_earlier(node, CURRENT, network)
                (node.data / CURRENT).replace(node.data / BEFORE)
            path.replace(node.data / CURRENT)
            _forget_earlier(node, network)
    except OSError as error:  # a start would begin estimates anew; no reason to end
        log.error("%s: %s", path, error.strerror, extra={"event": "revision"})


def text_of(node: NodeConfig, network: NetworkConfig) -> str | None:
    """Return the text of a revision's network.toml, from whichever file holds it; None: none does."""
    copies = (node.data / name for name in (CURRENT, NEXT, BEFORE))
    for path in (node.network, *copies, *(path for path, _, _ in _earlier_files(node))):
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
        _write(node.data / name, text)


def _write(path: Path, text: str) -> None:
    """Write a file so that it is there completely, or not at all."""
    fresh = path.with_name(f"{path.name}.part")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
