"""Files and messages of earlier versions: opened, migrated and continued from by the present code.

The folders under `tests/fixtures` were written by released versions and are never made anew.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.node.build import make_machine, make_view, revision_of
from dpcrowd.node.config import NetworkConfig, NodeConfig, digest, load_pair
from dpcrowd.node.live.decisions import declare_promise
from dpcrowd.node.storage import Storage
from dpcrowd.node.wire import peek
from dpcrowd.privacy import SecureNoise
from node_support import checked
from project_support import TESTS

FIXTURES = TESTS / "fixtures"
OPEN_SLOT, LAST_RELEASED, SAMPLES, SPENT = 35246, 35245, 12, 845_893_070
ESTIMATE = [86.48756947697818, 158.11503918879737, 164.35152828467767, 249.08813485206963]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy: opening a data folder migrates it."""
    return Path(shutil.copytree(FIXTURES / "v0.1.0", tmp_path / "v0.1.0"))


def _pair(folder: Path) -> tuple[NodeConfig, NetworkConfig]:
    return load_pair(folder / "server-1" / "node.toml")


def test_configuration_files_mean_the_same(folder: Path) -> None:
    """A digest that changed with the version would part a network whose servers are upgraded one by one."""
    _, network = _pair(folder)
    assert digest(network).hex() == "bc13aafd95ea080e201ce4ed727af841"


def test_a_data_folder_goes_on_where_it_stopped(folder: Path) -> None:
    """Payments, neighbours' counters and estimates that a new version could not read would be spent or lost again."""
    node, network = _pair(folder)
    view = make_view(node, network)
    now = view.clock.opens(OPEN_SLOT) + 1_000_000_000
    with Storage.open(node.data, network_id=network.id) as storage:
        declare_promise(network, storage, now)
        assert storage.ledger.counter() == SAMPLES
        assert storage.ledger.total_spent() == SPENT
        assert storage.memory.remembered()["server-2"][:2] == (LAST_RELEASED, SAMPLES)
        latest = storage.releases.latest()
        assert latest is not None
        assert (latest.slot, latest.estimate.tolist()) == (LAST_RELEASED, ESTIMATE)
        revision = revision_of(network, view, SecureNoise())
        machine, _ = make_machine(revision, network, storage, now)
        assert machine.server.slot == LAST_RELEASED
        room = storage.ledger.allowance(view.clock.opens(OPEN_SLOT))
        assert room.counted == SPENT
        assert machine.server.remaining(OPEN_SLOT) == room.nano
        machine.server.observe(OPEN_SLOT, np.array([75, 75, 75, 75]))
        assert machine.server.hear().slot == OPEN_SLOT


def test_messages_are_understood(folder: Path) -> None:
    """Version N talks to N - 1: a neighbour that has not been upgraded yet must not be refused."""
    node, network = _pair(folder)
    view = make_view(node, network)
    sender = network.number_of("server-2")
    for name, slot, has_sample in (("heartbeat", 35233, False), ("sample", 35238, True)):
        payload = (folder / "messages" / f"{name}.msgpack").read_bytes()
        assert peek(payload) == (slot, view.digest)
        heard = checked(view, sender, payload)
        assert (heard.body.server, heard.body.slot) == (sender, slot)
        assert (heard.message is not None) == has_sample
