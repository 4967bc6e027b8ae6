"""A revision that begins a horizon at its first slot, at all servers: running, stopped at that slot, late, restarted.

Two live nodes by a clock that only the test moves; every slot is sealed by hand, and lasts as long as it takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.config import check_next, load_network, load_pair
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.live.revisions import current_revision, keep_current
from dpcrowd.node.live.timing import WallClock
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import SECOND
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.memory import MemoryHub, MemoryTransport
from dpcrowd.privacy import SecureNoise
from dpcrowd.privacy.network_guarantee import NetworkGuarantee
from dpcrowd.privacy.payments import Payment
from dpcrowd.privacy.units import NANO
from node_support_live import write_network
from node_support_pair import end_slot

EPOCH = 1_800_000_000 * SECOND
LENGTH = 8
NAMES = ("a", "b")


class HandClock(WallClock):
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.at = EPOCH
        self._moved = asyncio.Event()

    def now(self) -> int:
        return self.at

    def elapsed(self) -> int:
        return self.at

    def set(self, at_ns: int) -> None:
        self.at = max(self.at, at_ns)
        self._moved.set()
        self._moved = asyncio.Event()

    async def sleep_until(self, at_ns: int) -> None:
        while self.at < at_ns:
            await self._moved.wait()


class Pair:
    """Two servers, each with its folder, up or down."""

    def __init__(self, folder: Path, **guarantee: Any) -> None:
        self.folder = folder
        self.files = write_network(
            folder,
            dict.fromkeys(NAMES, 0.5),
            [NAMES],
            epoch_ns=EPOCH,
            regions=["north", "south"],
            guarantee={"kind": "finite", "length": LENGTH, "epsilon": "1", "users": "roaming", **guarantee},
            scheme={"name": "dpcrowd", "process_var": 100.0},
        )
        self.clock, self.hub = HandClock(), MemoryHub(np.random.default_rng(0))
        self.up: dict[str, tuple[LiveNode, Storage, asyncio.Task[None]]] = {}

    def node(self, name: str) -> LiveNode:
        return self.up[name][0]

    def start(self, name: str) -> LiveNode:
        """As `open_node` does, with this clock and transport."""
        node, network = load_pair(self.files[name])
        storage = Storage.open(node.data, network_id=network.id)
        found = current_revision(node, network, self.clock.at)
        live = LiveNode(
            node,
            found.current,
            storage,
            MemoryTransport(self.hub),
            SecureNoise(),
            self.clock,
            before=found.before,
            following=found.following,
        )
        keep_current(node, found.current)
        live.executor.give(on.Started(self.clock.at))
        self.up[name] = live, storage, asyncio.create_task(live.executor.run())
        return live

    async def stop(self, *names: str) -> None:
        for name in names or tuple(self.up):
            live, storage, task = self.up.pop(name)
            for one in (task, *live._tasks):
                one.cancel()
            await asyncio.gather(task, *live._tasks, return_exceptions=True)
            await live.intake.close()
            await live._transport.close()
            live.executor.close()
            storage.close()

    async def live(self, slots: Iterable[int]) -> None:
        """Seal one slot after another at all servers that are up."""
        for slot in slots:
            await self._live(slot, [live for live, _, _ in self.up.values()])

    async def _live(self, slot: int, nodes: list[LiveNode]) -> None:
        self.clock.set(max(node.time.ends(slot) for node in nodes))
        for node in nodes:
            node.presence.open(slot, node.clock.opens(slot))
            end_slot(node, slot)
        await _until(lambda: all(node.executor.machine.server.slot >= slot for node in nodes))
        await _until(lambda: all(node.executor.idle.is_set() for node in nodes))
        self.clock.set(max(node.executor.machine.view.ends(slot) for node in nodes))  # whoever is down is not heard
        await _until(lambda: all(_released(node, slot) for node in nodes))

    def revise(self, revision: int, slot: int, horizon: int | None = None) -> None:
        """Replace network.toml, at all servers."""
        path = self.folder / "network.toml"
        kept = [
            line
            for line in path.read_text().splitlines()
            if not line.startswith(("revision =", "valid_from_slot =")) and (horizon is None or "horizon" not in line)
        ]
        text = "\n".join(kept).replace("[network]", f"[network]\nrevision = {revision}\nvalid_from_slot = {slot}")
        if horizon is not None:
            text = text.replace("[guarantee]", f"[guarantee]\nhorizon_from_slot = {horizon}")
        path.write_text(text + "\n")

    def paid(self, name: str) -> dict[int, int]:
        """Nano-epsilon by slot, of a server that is up."""
        entries: list[Payment] = self.up[name][1].ledger.payments_since(0)
        assert all(entry.kind == "sample" for entry in entries)
        return {entry.slot: entry.nano for entry in entries if entry.slot is not None}

    def roaming_user(self, slots: Iterable[int]) -> int:
        """What a user pays who is, in each slot, at the server that pays most."""
        paid = [self.paid(name) for name in self.up]
        return sum(max(one.get(slot, 0) for one in paid) for slot in slots)

    def promise(self, name: str) -> NetworkGuarantee:
        (own,) = self.up[name][1].ledger.account(0).guarantees
        return own

    def events(self, name: str) -> list[str]:
        return [event.text for event in self.up[name][1].events.all() if event.kind == "new-horizon"]


async def _until(what: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if what():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the nodes stand still")


def _released(node: LiveNode, slot: int) -> bool:
    return node.executor.last is not None and node.executor.last.slot >= slot


def opens(slot: int) -> int:
    return EPOCH + slot * 2 * SECOND


def run(scenario: Callable[[Pair], Any], folder: Path, **guarantee: Any) -> None:
    async def main() -> None:
        pair = Pair(folder, **guarantee)
        try:
            await scenario(pair)
        finally:
            await pair.stop()

    asyncio.run(main())


@pytest.mark.slow
def test_a_revision_begins_a_horizon_at_its_slot_at_all_servers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Begun at each server by itself, a roaming user would be in three horizons where each server says two."""

    async def scenario(pair: Pair) -> None:
        for name in NAMES:
            pair.start(name)
        await pair.live(range(LENGTH + 2))
        before = pair.roaming_user(range(LENGTH + 2))
        assert 0 < before <= NANO
        for name in NAMES:
            assert max(pair.paid(name)) < LENGTH
            told = await pair.node(name).budget()
            assert not told.samples
            assert "horizon_from_slot" in told.text
            assert "new-horizon" not in told.text, "that command is refused here"
        start = LENGTH + 4
        pair.revise(2, start, start)
        for name in NAMES:
            told_reload = await pair.node(name).reload()
            assert f"slot {start}" in told_reload
            assert f"a new horizon of {LENGTH} slots begins" in told_reload
        await pair.live(range(LENGTH + 2, start))
        assert [pair.promise(name).since_ns for name in NAMES] == [0, 0], "not before its slot"
        known = {name: pair.node(name).executor.last for name in NAMES}
        await pair.live([start])
        for name in NAMES:
            assert pair.promise(name).since_ns == opens(start)
            (text,) = pair.events(name)
            assert f"{LENGTH} slots from slot {start} on" in text
            assert "only the sum holds: ε=2." in text
            last = pair.node(name).executor.last
            assert last is not None
            assert np.isfinite(known[name].estimate).all()  # type: ignore[union-attr]
            assert np.isfinite(last.estimate).all(), "what was known stays known"
        await pair.live(range(start + 1, start + LENGTH + 3))
        horizon = range(start, start + LENGTH)
        assert 0 < pair.roaming_user(horizon) <= NANO
        assert pair.roaming_user(range(start + LENGTH + 3)) == before + pair.roaming_user(horizon)

    with caplog.at_level(logging.WARNING):
        run(scenario, tmp_path)
    said = [record for record in caplog.records if getattr(record, "event", "") == "new-horizon"]
    assert len(said) == len(NAMES)


def test_a_server_that_was_down_takes_the_horizon_of_all_when_it_starts(tmp_path: Path) -> None:
    """From its start on instead, its horizon would end later than that of the others, and users pay at it longer."""

    async def scenario(pair: Pair) -> None:
        for name in NAMES:
            pair.start(name)
        await pair.live(range(5))
        await pair.stop("b")
        pair.revise(2, 7, 7)
        await pair.node("a").reload()
        await pair.live(range(5, 10))
        assert pair.promise("a").since_ns == opens(7)
        b = pair.start("b")
        assert "A new horizon begins with slot 7" in b.start_text
        assert pair.promise("b").since_ns == opens(7)
        assert len(pair.events("b")) == 1
        assert b.executor.machine.server.horizon == 7
        await pair.live(range(10, 19))
        assert all(slot < 7 + LENGTH for slot in pair.paid("b"))
        assert any(slot >= 10 for slot in pair.paid("b")), "it samples again"
        assert pair.roaming_user(range(7, 19)) <= NANO

    run(scenario, tmp_path)


def test_a_restart_begins_no_horizon_a_second_time(tmp_path: Path) -> None:
    """Also one right after the promise was declared, before anything of the new horizon was stored."""

    async def scenario(pair: Pair) -> None:
        for name in NAMES:
            pair.start(name)
        await pair.live(range(5))
        pair.revise(2, 6, 6)
        for name in NAMES:
            await pair.node(name).reload()
        await pair.live(range(5, 8))
        spent = pair.paid("a")
        await pair.stop("a")
        pair.start("a")
        assert pair.node("a").executor.machine.server.horizon == 6
        assert pair.node("a").start_text.startswith("the estimates go on after slot 7.")
        assert len(pair.events("a")) == 1
        assert (await pair.node("a").budget()).spent == sum(nano for slot, nano in spent.items() if slot >= 6) / NANO
        await pair.stop("b")
        pair.revise(3, 9, 9)
        pair.clock.set(opens(10))
        pair.start("b")
        await pair.stop("b")  # nothing was stored but the promise
        b = pair.start("b")
        assert b.executor.machine.server.horizon == 9
        assert len(pair.events("b")) == 2

    run(scenario, tmp_path)


def test_a_revision_that_is_taken_late_counts_from_its_own_slot(tmp_path: Path) -> None:
    """What was paid since, under the old revision, is part of the new horizon: forgotten, it would be paid twice."""

    async def scenario(pair: Pair) -> None:
        for name in NAMES:
            pair.start(name)
        await pair.live(range(3))
        pair.revise(2, 4, 4)
        await pair.node("b").reload()
        await pair.live(range(3, 7))
        under_the_old = {slot: nano for slot, nano in pair.paid("a").items() if slot >= 4}
        await pair.node("a").reload()
        await pair.live(range(7, 8))
        assert pair.promise("a").since_ns == opens(4)
        assert pair.node("a").executor.machine.server.horizon == 4
        spent = round((await pair.node("a").budget()).spent * NANO)
        assert spent == sum(nano for slot, nano in pair.paid("a").items() if slot >= 4) >= sum(under_the_old.values())
        await pair.live(range(8, 14))
        assert pair.roaming_user(range(4, 14)) <= NANO

    run(scenario, tmp_path)


def test_whoever_takes_a_revision_reads_what_is_probably_not_intended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the next restart said so, when the revision could no longer be withdrawn."""

    async def scenario(pair: Pair) -> None:
        pair.start("a")
        await pair.live(range(2))
        pair.revise(2, 4)
        network = pair.folder / "network.toml"
        plain = network.read_text()
        network.write_text(plain.replace("share = 0.5", "share = 0.9"))
        answer = await pair.node("a").reload()
        assert "Note: the shares add up to 1.8" in answer

    run(scenario, tmp_path)
    warned = [one.getMessage() for one in caplog.records if getattr(one, "event", "") == "configuration"]
    assert [text.partition(",")[0] for text in warned] == ["revision 2: the shares add up to 1.8"]


def test_pinned_users_may_have_it_by_a_revision_too(tmp_path: Path) -> None:
    """An operator need not stop a server for it."""

    async def scenario(pair: Pair) -> None:
        for name in NAMES:
            pair.start(name)
        await pair.live(range(LENGTH))
        spent = {name: sum(pair.paid(name).values()) for name in NAMES}
        pair.revise(2, LENGTH, LENGTH)
        for name in NAMES:
            await pair.node(name).reload()
        await pair.live(range(LENGTH, 2 * LENGTH))
        for name in NAMES:
            (text,) = pair.events(name)
            assert f"has spent ε={spent[name] / NANO:g} so far" in text
            assert spent[name] < sum(pair.paid(name).values()) <= spent[name] + NANO

    run(scenario, tmp_path, users="pinned")


def test_the_next_revision_goes_on_with_the_horizon_or_begins_one(tmp_path: Path) -> None:
    """One that begins earlier would take payments back, one that begins later would end at each server as it likes."""

    async def scenario(pair: Pair) -> None:
        pair.revise(2, 7, 7)
        current = load_network(pair.folder / "network.toml")
        for slot, horizon in ((9, 7), (9, 9)):
            pair.revise(3, slot, horizon)
            check_next(current, load_network(pair.folder / "network.toml"))
        for slot, horizon in ((9, 0), (9, 5), (9, 8)):
            pair.revise(3, slot, horizon)
            with pytest.raises(
                BadInput, match=rf"guarantee\.horizon_from_slot: given {horizon}; allowed: 7, .*or {slot}"
            ):
                check_next(current, load_network(pair.folder / "network.toml"))

    run(scenario, tmp_path)
