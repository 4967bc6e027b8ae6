"""A node from its two files: storage, keys, transport and noise, put together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpcrowd.node.config import load_pair
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.live.revisions import current_revision, keep_current, keep_next
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.zenoh import ZenohTransport
from dpcrowd.node.transport.zenoh_settings import TlsFiles
from dpcrowd.privacy import SecureNoise

__all__ = ["open_node"]


@contextmanager
def open_node(path: Path) -> Iterator[LiveNode]:
    """The node that a node.toml describes, with its folder locked. A live node has exact noise, and no other."""
    node, network = load_pair(path)
    with Storage.open(node.data, network_id=network.id, ledger_folder=node.ledger.shared) as storage:
        tls = TlsFiles(key=node.keys.key, certificate=node.keys.certificate, ca=node.keys.ca)
        transport = ZenohTransport(network.id, tls, node.listen.transport)
        found = current_revision(node, network, time.time_ns())
        live = LiveNode(
            node, found.current, storage, transport, SecureNoise(), before=found.before, following=found.following
        )
        keep_current(node, found.current)
        if found.following is not None:
            keep_next(node, found.following)
        yield live
