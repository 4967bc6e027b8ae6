"""Live nodes on folders that are there already, in virtual time: what fixtures are made by, and continued with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from dpcrowd.node.config import load_pair
from dpcrowd.node.live import node as live_module
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.live.revisions import current_revision, keep_current, keep_next
from dpcrowd.node.slots import rfc3339
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.memory import Faults, MemoryHub, MemoryTransport
from node_support_live import TOKENS
from node_support_outside import Asgi, ask
from node_support_virtual import SetClock, wait_until
from node_support_world import AgreedNoise, Draw, NoSockets

__all__ = ["LATENCY", "Message", "NodeRun", "make_hub", "start"]

LATENCY = 0.002
"""Seconds that a message is on its way."""

Message = tuple[str, str, bytes]
"""Sender, receiver, payload."""


def make_hub() -> MemoryHub:
    """A network without faults."""
    return MemoryHub(np.random.default_rng(0), faults=Faults(delay=(LATENCY, LATENCY)))


class _Noting(MemoryTransport):
    """Notes what leaves."""

    def __init__(self, hub: MemoryHub, name: str, sent: list[Message]) -> None:
        super().__init__(hub)
        self._name, self._sent = name, sent

    async def send(self, payload: bytes, to: Sequence[str]) -> None:
        self._sent += [(self._name, receiver, payload) for receiver in to]
        await super().send(payload, to)


@dataclass
class NodeRun:
    """A node from its start to its end.

    draws  the raw counts that were sampled
    sent   what has left
    """

    clock: SetClock
    stop: asyncio.Event
    draws: list[Draw] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    resources: ExitStack = field(default_factory=ExitStack)
    app: Asgi = None  # type: ignore[assignment]
    task: asyncio.Task[None] = None  # type: ignore[assignment]

    async def get(self, path: str) -> Any:
        """What a reader is answered."""
        status, _, content = await ask(self.app, "GET", path, {"authorization": f"Bearer {TOKENS['admin']}"})
        assert status == 200, (path, status, content)
        return json.loads(content)  # type: ignore[arg-type]

    async def post(self, path: str, body: object = None, *, token: str = "checkin") -> Any:
        """What a sender of check-ins, or the operator, is answered."""
        content = b"" if body is None else json.dumps(body).encode()
        headers = {
            "authorization": f"Bearer {TOKENS[token]}",
            "content-type": "application/json",
            "content-length": str(len(content)),
        }
        status, _, answer = await ask(self.app, "POST", path, headers, content)
        assert status in (200, 202), (path, status, answer)
        return json.loads(answer)  # type: ignore[arg-type]

    async def check_in(self, region: str, users: range) -> None:
        """So many people are in a region now."""
        now = rfc3339(self.clock.now())
        rows = [{"user": f"user {number}", "region": region, "time": now} for number in users]
        answer = await self.post("/v1/checkins", rows)
        assert not answer.get("refused"), answer

    async def end(self) -> None:
        """Cleanly, as by a signal."""
        self.stop.set()
        await self.task
        self.resources.close()


async def start(path: Path, clock: SetClock, hub: MemoryHub) -> NodeRun:
    """Start the node of a node.toml as the command does, with agreed noise, and without sockets."""
    node, network = load_pair(path)
    node_run = NodeRun(clock, asyncio.Event())
    storage = Storage.open(node.data, network_id=network.id, ledger_folder=node.ledger.shared)
    node_run.resources.enter_context(storage)
    revisions = current_revision(node, network, clock.now())
    live = LiveNode(
        node,
        revisions.current,
        storage,
        _Noting(hub, node.server, node_run.sent),
        AgreedNoise(node_run.draws),
        clock,
        before=revisions.before,
        following=revisions.following,
        earlier=revisions.earlier,
        path=path,
        allow_simulated_noise=True,
    )
    keep_current(node, revisions.current)
    if revisions.following is not None:
        keep_next(node, revisions.following)
    servers: list[NoSockets] = []

    def make_server(app: Asgi, *_: object, **__: object) -> NoSockets:
        servers.append(NoSockets(app))
        return servers[-1]

    with mock.patch.object(live_module, "make_server", make_server):
        node_run.task = asyncio.create_task(live.run(node_run.stop))
        await wait_until(lambda: bool(servers) or node_run.task.done())
    if not servers:
        await node_run.task  # raises why the node could not start
    node_run.app = servers[0].app
    return node_run
