"""A node from its two files: storage, keys, transport and noise, put together.

Whatever the files say, a live node has exact noise: `allow_simulated_noise` stays off here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpcrowd.node.config import load_pair
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.live.revisions import current_revision, keep_current, keep_next
from dpcrowd.node.sampler import make_noise
from dpcrowd.node.storage import Storage
from dpcrowd.node.storage.failures import translated
from dpcrowd.node.transport.zenoh import ZenohTransport
from dpcrowd.node.transport.zenoh_settings import TlsFiles

__all__ = ["open_node"]


@contextmanager
def open_node(path: Path) -> Iterator[LiveNode]:
    """The node that a node.toml describes, with its folder locked."""
    node, network = load_pair(path)
    noise = make_noise(node)  # before the folder: where the sampler is missing, nothing is made
    with Storage.open(node.data, network_id=network.id, ledger_folder=node.ledger.shared) as storage:
        tls = TlsFiles(key=node.keys.key, certificate=node.keys.certificate, ca=node.keys.ca)
        transport = ZenohTransport(network.id, tls, node.listen.transport)
        found = current_revision(node, network, time.time_ns())
        live = LiveNode(
            node,
            found.current,
            storage,
            transport,
            noise,
            before=found.before,
            following=found.following,
            path=path.absolute(),
        )
        with translated(node.data):
            keep_current(node, found.current)
            if found.following is not None:
                keep_next(node, found.following)
        yield live
