"""Carrying instructions out: refusals are counted exactly and told once, storage has a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.node.api.broadcast import Broadcast
from dpcrowd.node.live.keeper import Keeper
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.memory import MemoryHub, MemoryTransport
from node_support_lone import Lone
from node_support_storage import open_storage


def keeper_of(storage: Storage) -> Keeper:
    transport = MemoryTransport(MemoryHub(np.random.default_rng(0)))
    return Keeper(Lone().machine, storage, transport, Broadcast(), ("north", "south"), lambda slot, at_ns: None)


def test_a_flood_of_refusals_is_counted_exactly_and_logged_once_a_slot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A neighbour that sends nonsense all day would fill the disk with the log of it."""
    with open_storage(tmp_path) as storage, caplog.at_level(logging.WARNING):
        keeper = keeper_of(storage)

        async def run() -> None:
            for slot in (3, 4):
                for _ in range(500):
                    await keeper._carry_out(do.RefuseMessage(slot, "server-1", "malformed", "nonsense"))
                await keeper._carry_out(do.RefuseMessage(slot, "server-2", "malformed", "nonsense"))
            release = keeper.machine.server.observe(0, None) or keeper.machine.server.hear()
            assert not isinstance(release, bytes)
            await keeper._store_release(release, b"state", 0)  # type: ignore[arg-type]

        asyncio.run(run())
        keeper.close()
        assert keeper.refused == {("server-1", "malformed"): 1000, ("server-2", "malformed"): 2}
        assert [(one.reason, one.count) for one in storage.refusals.since(0)] == [("malformed", 501)] * 2
        assert not keeper._refusals
    assert len(caplog.records) == 4


def test_storage_does_not_wait_for_those_who_read(tmp_path: Path) -> None:
    """With the threads that everybody shares, a few dozen slow readers would delay every slot."""
    with open_storage(tmp_path) as storage:
        keeper = keeper_of(storage)

        async def run() -> str:
            held = threading.Event()
            busy = [asyncio.create_task(asyncio.to_thread(held.wait, 30)) for _ in range(64)]
            await asyncio.sleep(0.05)
            try:
                return await asyncio.wait_for(keeper.in_thread(lambda: threading.current_thread().name), 20)
            finally:
                held.set()
                await asyncio.gather(*busy)

        assert asyncio.run(run()).startswith("dpcrowd-keeper")
        keeper.close()
