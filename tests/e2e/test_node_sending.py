"""When messages of live nodes leave, by real clocks, and what a stop inside an exchange leaves behind.

On a busy machine everything happens later, and nothing here fails for that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import numpy as np

from dpcrowd.node.config import load_pair
from dpcrowd.node.ingest.batch import Batch
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.memory import MemoryHub, MemoryTransport
from dpcrowd.node.wire import peek
from dpcrowd.privacy import SecureNoise
from node_support_live import write_network

SECOND = 1_000_000_000


class Watched(MemoryTransport):
    """Notes when the message of each slot left for the first time."""

    def __init__(self, hub: MemoryHub) -> None:
        super().__init__(hub)
        self.left: dict[int, int] = {}

    async def send(self, payload: bytes, to: Sequence[str]) -> None:
        self.left.setdefault(peek(payload)[0], time.time_ns())
        await super().send(payload, to)


@asynccontextmanager
async def _running(files: dict[str, Path], names: str) -> AsyncIterator[list[tuple[LiveNode, Watched]]]:
    hub, stop = MemoryHub(np.random.default_rng(0)), asyncio.Event()
    with ExitStack() as opened:
        nodes = []
        for name in names:
            node, network = load_pair(files[name])
            storage = opened.enter_context(Storage.open(node.data, network_id=network.id))
            line = Watched(hub)
            nodes.append((LiveNode(node, network, storage, line, SecureNoise()), line))
        tasks = [asyncio.create_task(node.run(stop)) for node, _ in nodes]
        try:
            yield nodes
        finally:
            stop.set()
            await asyncio.wait_for(asyncio.gather(*tasks), 20)


def _files(folder: Path) -> dict[str, Path]:
    return write_network(
        folder,
        {"a": 0.5, "b": 0.5},
        [("a", "b")],
        epoch_ns=(time.time_ns() // SECOND) * SECOND,
        regions=["north", "south"],
        guarantee={"kind": "window", "length": 10, "epsilon": "1"},
        scheme={"name": "dpcrowd-plus", "process_var": 100.0},
    )


async def _until(what: Callable[[], bool], told: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, told
        await asyncio.sleep(0.02)


async def _feed(node: LiveNode, people: int) -> None:
    users = [b"person %d" % number for number in range(people)]
    assert await node.intake.take_checkins(Batch(users, [0] * people), time.time_ns()) == []


def test_no_message_leaves_before_its_moment(tmp_path: Path) -> None:
    """Of slots with people and without: whatever was ready earlier would tell which was which."""

    async def scenario() -> None:
        async with _running(_files(tmp_path), "ab") as nodes:
            (a, sent), _ = nodes
            first = a.clock.slot_of(time.time_ns()) + 1
            for slot in range(first, first + 4):
                await _until(lambda slot=slot: a.clock.slot_of(time.time_ns()) >= slot, "time stands still")  # type: ignore[misc]
                if slot % 2:
                    await _feed(a, 1000)
            await _until(lambda: len(sent.left) >= 4, "no messages")
            view = a.executor.machine.view
            assert view.send_offset_ns == 25_000_000
            assert all(left >= view.sends(slot) for slot, left in sent.left.items())
            assert "dpcrowd_messages_late_total" in await a.operator_metrics()

    asyncio.run(scenario())


def test_a_stop_inside_an_exchange_leaves_no_check_ins_of_its_slot(tmp_path: Path) -> None:
    """They are forgotten after the release, which a silent neighbour holds back; a server may be down for long."""

    async def scenario() -> None:
        files = _files(tmp_path)
        async with _running(files, "a") as nodes:
            ((a, _),) = nodes
            slot = a.clock.slot_of(time.time_ns()) + 1
            await _until(lambda: a.clock.slot_of(time.time_ns()) >= slot, "time stands still")
            await _feed(a, 100)
            await _until(lambda: a.executor.machine.exchanging == slot, "the slot was not sealed")
            assert a._storage.journal.pending()
        node, network = load_pair(files["a"])
        with Storage.open(node.data, network_id=network.id) as storage:
            closed = network.clock().closes(slot)
            assert [opens for opens in storage.journal.pending() if opens < closed] == []

    asyncio.run(scenario())
