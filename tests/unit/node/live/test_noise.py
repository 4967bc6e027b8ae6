"""Which noise a live node draws: exact noise of its own, or OpenDP's, and no other by any configuration."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.node.config import load_pair
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.live.open import open_node
from dpcrowd.node.live.process import CONFIGURATION, run_node
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.memory import MemoryHub, MemoryTransport
from dpcrowd.privacy import OpenDPNoise, SecureNoise, SeededNoise
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
        assert storage.ledger.account(0).guarantees == ()
        live = LiveNode(node, network, storage, transport, SIMULATED, allow_simulated_noise=True)
        assert live.executor.machine.server.slot == -1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", SecureNoise),
        ('[noise]\nsampler = "exact"\n', SecureNoise),
        ('[noise]\nsampler = "opendp"\n', OpenDPNoise),
    ],
)
def test_the_configured_sampler_is_the_one_that_draws(text: str, kind: type, tmp_path: Path) -> None:
    """A setting that is read and not used would leave an operator with the sampler that was not wanted."""
    path = node_file(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")
    with open_node(path) as live:
        assert type(live.executor.machine.server._noise) is kind


def test_a_missing_sampler_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the folder is made, with the line to type: a node that cannot draw must not count anybody."""
    path = node_file(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + '[noise]\nsampler = "opendp"\n', encoding="utf-8")
    for name in [name for name in sys.modules if name.partition(".")[0] == "opendp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opendp", None)
    told = (
        'sampler = "opendp" in [noise] of node.toml needs opendp, which is not installed: pip install "dpcrowd[opendp]"'
    )
    with pytest.raises(MissingExtra) as refused, open_node(path):
        pass
    assert str(refused.value) == told
    lines: list[str] = []
    assert run_node(path, lines.append) == CONFIGURATION
    assert lines == [told]
    assert not load_pair(path)[0].data.exists()
