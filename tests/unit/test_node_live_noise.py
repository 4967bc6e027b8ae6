"""Which noise a live node draws: exact noise of its own, or OpenDP's, and no other by any configuration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.config import load_pair
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.memory import MemoryHub, MemoryTransport
from dpcrowd.privacy import SeededNoise
from node_support_live import write_network

SIMULATED = SeededNoise([np.random.SeedSequence(1)], 1, 2)


def node_file(folder: Path) -> Path:
    """The node.toml of one of two servers."""
    return write_network(
        folder,
        {"a": 0.5, "b": 0.5},
        [("a", "b")],
        epoch_ns=1_700_000_000 * 10**9,
        regions=["north", "south"],
        guarantee={"kind": "window", "length": 10, "epsilon": "1"},
        scheme={"name": "dpcrowd-plus", "process_var": 100.0},
    )["a"]


def test_a_live_node_refuses_noise_of_a_simulation(tmp_path: Path) -> None:
    """Noise that can be repeated would be subtracted; and it is refused before anything is promised or written."""
    node, network = load_pair(node_file(tmp_path))
    transport = MemoryTransport(MemoryHub(np.random.default_rng(0)))
    with Storage.open(node.data, network_id=network.id) as storage:
        with pytest.raises(BadInput, match=r"^a live node was given SeededNoise, which is not private: .*SecureNoise"):
            LiveNode(node, network, storage, transport, SIMULATED)
        assert storage.ledger.promises.all() == []
        live = LiveNode(node, network, storage, transport, SIMULATED, allow_simulated_noise=True)
        assert live.keeper.machine.server.slot == -1
