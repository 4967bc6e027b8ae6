"""Two live nodes in one process and in virtual time, with slots of a second and a clock that a test can set.

There are no sockets: `web` asks a node's HTTP interface without any.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import numpy as np

from dpcrowd.node.config import load_pair
from dpcrowd.node.live import node as live_module
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.live.timing import WallClock
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.memory import MemoryHub, MemoryTransport
from dpcrowd.privacy import SecureNoise
from node_support_live import write_network
from node_support_virtual import SECOND, VirtualLoop, run_virtually, wait_until
from node_support_world import NoSockets

_BEGIN = (time.time_ns() // SECOND) * SECOND + SECOND // 10


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in virtual time."""
    run_virtually(lambda _: scenario())


def virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "start the scenario with `run`"
    return loop


class SetClock(WallClock):
    """A clock that a test can set; the time that passes it cannot."""

    def __init__(self) -> None:
        self._loop = virtual_loop()
        self.ahead = 0

    def now(self) -> int:
        return _BEGIN + self.elapsed() + self.ahead

    def elapsed(self) -> int:
        return self._loop.microseconds * 1_000


def web(node: LiveNode, **settings: Any) -> httpx.AsyncClient:
    """A client of a node's HTTP interface."""
    server: Any = node._http
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=server.app), base_url="http://node", **settings)


@asynccontextmanager
async def pair_of_nodes(
    folder: Path,
    clock: SetClock | Sequence[SetClock],
    *,
    length: int = 10,
    kind: str = "window",
    needs_feed: bool = False,
    epoch_ns: int | None = None,
    scheme: dict[str, Any] | None = None,
    accepts: str = "counts",
) -> AsyncIterator[list[LiveNode]]:
    """Two nodes on one machine, that is with one clock, or with a clock each; slots of a second."""
    clocks = [clock, clock] if isinstance(clock, SetClock) else clock
    usual = {"name": "dpcrowd-plus" if kind == "window" else "dpcrowd", "process_var": 100.0}
    files = write_network(
        folder,
        {"a": 0.5, "b": 0.5},
        [("a", "b")],
        epoch_ns=(SetClock().now() // SECOND) * SECOND if epoch_ns is None else epoch_ns,
        regions=["north", "south"],
        guarantee={"kind": kind, "length": length, "epsilon": "1"},
        scheme=scheme or usual,
    )
    text = (folder / "network.toml").read_text()
    text = text.replace('"2s"', '"1s"').replace('"200ms"', '"100ms"').replace('"1500ms"', '"600ms"')
    (folder / "network.toml").write_text(text)
    hub = MemoryHub(np.random.default_rng(0))
    stop = asyncio.Event()
    with ExitStack() as opened:
        nodes, tasks = [], []
        for path, own_clock in zip(files.values(), clocks, strict=True):
            if needs_feed:
                path.write_text(path.read_text() + "needs_feed = true\n")  # its last table is [ingest]
            path.write_text(path.read_text().replace('accepts = "counts"', f'accepts = "{accepts}"'))
            node, network = load_pair(path)
            storage = opened.enter_context(Storage.open(node.data, network_id=network.id))
            nodes.append(LiveNode(node, network, storage, MemoryTransport(hub), SecureNoise(), own_clock))
        servers: list[NoSockets] = []

        def make_server(app: Any, *_: object, **__: object) -> NoSockets:
            servers.append(NoSockets(app))
            return servers[-1]

        with mock.patch.object(live_module, "make_server", make_server):
            tasks = [asyncio.create_task(node.run(stop)) for node in nodes]
            await wait_until(lambda: len(servers) == len(nodes) or any(task.done() for task in tasks))
        try:
            yield nodes
        finally:
            stop.set()
            await asyncio.wait_for(asyncio.gather(*tasks), 20)


async def until(what: Callable[[], bool], told: str, seconds: float = 60.0) -> None:
    """Wait for something; fail with what was told if it does not come."""
    loop = virtual_loop()
    end = loop.time() + seconds
    while not what():
        assert loop.time() < end, told
        await asyncio.sleep(0.02)


def last_slot(node: LiveNode) -> int:
    """The last slot that a node has released in this run."""
    return -1 if node.executor.last is None else node.executor.last.slot


def spent(node: LiveNode) -> int:
    """Nano-epsilon of all payments in a node's ledger."""
    return node._storage.ledger.total_spent()


def end_slot(node: LiveNode, slot: int) -> None:
    """The grace of a slot is over now, whatever the clock says."""
    node.counting.end(slot, tuple(node.revision_of(slot).regions))
    node.executor.give(on.SlotEnded(node._wall.now(), slot))
