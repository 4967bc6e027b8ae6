"""A node from its two files: storage, keys, transport and noise, put together.

Whatever the files say, a live node has exact noise: `allow_simulated_noise` stays off here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpcrowd.node.config import NetworkConfig, load_pair
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.live.revisions import current_revision, keep_current, keep_next, log_changes
from dpcrowd.node.sampler import make_noise
from dpcrowd.node.storage import Storage
from dpcrowd.node.storage.failures import translated
from dpcrowd.node.storage.journal import Journal
from dpcrowd.node.transport.zenoh import ZenohTransport
from dpcrowd.node.transport.zenoh_settings import TlsFiles

__all__ = ["open_node"]

log = logging.getLogger("dpcrowd.node")


@contextmanager
def open_node(path: Path) -> Iterator[LiveNode]:
    """Open the node that a node.toml describes, with its folder locked."""
    node, network = load_pair(path)
    noise = make_noise(node)  # before the folder: where the sampler is missing, nothing is made
    with Storage.open(node.data, network_id=network.id, ledger_folder=node.ledger.shared) as storage:
        tls = TlsFiles(key=node.keys.key, certificate=node.keys.certificate, ca=node.keys.ca)
        transport = ZenohTransport(network.id, tls, node.listen.transport)
        revisions = current_revision(node, network, time.time_ns(), storage.memory.heard_until())
        if revisions.corrected:
            text = "revision %d goes on with another model file: no neighbour has accepted the one before."
            log.warning(text, network.revision, extra={"event": "revision"})
        if revisions.replaced is not None:
            log_changes(revisions.replaced, revisions.current)
        _log_damage(storage.journal, revisions.current)
        live = LiveNode(
            node,
            revisions.current,
            storage,
            transport,
            noise,
            before=revisions.before,
            following=revisions.following,
            earlier=revisions.earlier,
            corrected=revisions.replaced if revisions.corrected else None,
            path=path.absolute(),
        )
        with translated(node.data):
            keep_current(node, revisions.current)
            if revisions.following is not None:
                keep_next(node, revisions.following)
        yield live


def _log_damage(journal: Journal, network: NetworkConfig) -> None:
    """Log damaged files. Of records nothing is said: how they end tells whether somebody checked in."""
    for opens_ns in journal.damaged:
        slot, path = network.clock().slot_of(opens_ns), journal.folder / f"{opens_ns}.slot"
        text = "%s was damaged: the check-ins of slot %d in it are lost, and it is not sampled. Check the disk."
        log.error(text, path, slot, extra={"event": "journal-damaged", "slot": slot})
    if journal.stamp_damaged():
        text = "%s was damaged: since when the node was away is not known, so the open slot counts as missed until now."
        log.error(f"{text} Check the disk.", journal.folder / "alive", extra={"event": "journal-damaged"})
