"""Carrying instructions out: refusals are counted exactly and told once, storage has a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.node.api.broadcast import Broadcast
from dpcrowd.node.live.keeper import Keeper
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.memory import MemoryHub, MemoryTransport
from node_support import body_of
from node_support_lone import Lone, beat
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
            keeper.machine.server.observe(0, None)
            await keeper._carry_out(do.StoreRelease(keeper.machine.server.hear(), b"state", ()))

        asyncio.run(run())
        keeper.close()
        assert keeper.refused == {("server-1", "malformed"): 1000, ("server-2", "malformed"): 2}
        assert [(one.reason, one.count) for one in storage.refusals.since(0)] == [("malformed", 501)] * 2
        assert not keeper._refusals
    assert len(caplog.records) == 4


class Line:
    """A transport that looks at the disk at the moment in which a message leaves."""

    most_bytes = 1 << 20

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.sent: list[tuple[bytes, dict[str, tuple[int, int, bytes, int]]]] = []

    async def send(self, payload: bytes, to: Sequence[str]) -> None:
        self.sent.append((payload, self._storage.memory.remembered()))


def test_what_a_message_echoes_is_on_disk_when_it_leaves(tmp_path: Path) -> None:
    """Otherwise a node that crashes forgets what it has echoed, and vouches later for a copy that knows less.

    The first message came after the release of its slot, the second one before the seal of the next.
    """
    with open_storage(tmp_path) as storage:
        keeper, line, node = keeper_of(storage), Line(storage), Lone((1, 2))
        keeper.machine, keeper._transport, keeper.linked = node.machine, line, frozenset({"server-1", "server-2"})  # type: ignore[assignment]
        seals = node.view.seals

        async def run() -> None:
            await keeper.handle(on.SlotSealed(seals(0), 0, None))
            await keeper.handle(on.DeadlinePassed(node.view.ends(0), 0))
            await keeper.handle(on.MessageArrived(seals(1) - 9, "server-1", beat(1, 0, counter=7)))
            await keeper.handle(on.MessageArrived(seals(1) - 5, "server-2", beat(2, 1, counter=5)))
            await keeper.handle(on.SlotSealed(seals(1), 1, None))

        asyncio.run(run())
        keeper.close()
        payload, on_disk = line.sent[-1]
        assert body_of(payload).heard == {1: (1, 7), 2: (0, 5)}
        assert {name: said[:2] for name, said in on_disk.items()} == {"server-1": (0, 7), "server-2": (1, 5)}


def test_the_last_slot_of_a_complete_ledger_is_stored_with_the_release(tmp_path: Path) -> None:
    """After the next start neighbours have to remember that far; an older slot would let too few of them vouch."""
    with open_storage(tmp_path) as storage:
        keeper, node = keeper_of(storage), Lone(())
        keeper.machine = node.machine
        asyncio.run(keeper.handle(on.SlotSealed(node.view.seals(4), 4, None)))
        keeper.close()
        assert storage.memory.complete_until() == 4


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
