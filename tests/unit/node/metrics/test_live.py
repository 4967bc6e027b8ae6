"""Metrics of a live node whose slots are sealed by hand: the parts tell the meter what they do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dpcrowd.node.config import load_pair
from dpcrowd.node.ingest.batch import Batch
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.live.timing import WallClock
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.metrics.families import FAMILIES
from dpcrowd.node.storage import Storage, StorageError
from dpcrowd.node.transport.memory import MemoryHub, MemoryTransport
from dpcrowd.privacy import SecureNoise
from node_support_live import write_network
from node_support_pair import end_slot

SECOND = 1_000_000_000
EPOCH = 1_800_000_000 * SECOND
LENGTH = 2 * SECOND


class HandClock(WallClock):
    """A clock that stands still until it is set."""

    at = EPOCH

    def now(self) -> int:
        return self.at

    def elapsed(self) -> int:
        return self.at


class Driven:
    """A node that is not run: time and seals come from the test."""

    def __init__(self, node: LiveNode, clock: HandClock) -> None:
        self.node, self.clock = node, clock

    async def seal(self, slot: int, *, opened: bool = True) -> None:
        """A slot that the node has seen from its beginning, unless it was not there to open it."""
        if opened:
            self.clock.at = self.node.clock.opens(slot)
            self.node.presence.open(slot, self.clock.at)
        self.clock.at = self.node.time.ends(slot)
        end_slot(self.node, slot)
        await self.done()
        self.clock.at = max(self.clock.at, self.node.executor.machine.view.sends(slot))
        while self.node.executor._timers:  # the message leaves at its moment, and the release comes after it
            await asyncio.sleep(0.001)
        await self.done()

    async def done(self) -> None:
        await asyncio.sleep(0)
        await asyncio.wait_for(self.node.executor.idle.wait(), 30)

    async def values(self, *, operator: bool = False) -> dict[str, float]:
        text = await (self.node.operator_metrics() if operator else self.node.metrics())
        lines = [line.rpartition(" ") for line in text.splitlines() if line[0] != "#"]
        return {name: float(value) for name, _, value in lines}

    async def reasons(self) -> dict[str, float]:
        """Slots without a sample, by reason."""
        found = {name.partition('"')[2][:-2]: value for name, value in (await self.values()).items() if "unsam" in name}
        return {reason: value for reason, value in found.items() if value}


@asynccontextmanager
async def driven(folder: Path, *, settings: str = "", servers: tuple[str, ...] = ("a",)) -> AsyncIterator[Driven]:
    """Server a; every slot is sampled as long as the budget of four slots lasts."""
    path = write_network(
        folder,
        {name: 1 / len(servers) for name in servers},
        [(servers[0], other) for other in servers[1:]],
        epoch_ns=EPOCH,
        regions=["north", "south"],
        guarantee={"kind": "finite", "length": 4, "epsilon": "1"},
        scheme={"name": "dpcrowd", "process_var": 100.0, "sampling": "fixed", "interval": 1},
    )["a"]
    path.write_text(path.read_text(encoding="utf-8") + settings, encoding="utf-8")  # its last table is [ingest]
    config, network = load_pair(path)
    clock = HandClock()
    with Storage.open(config.data, network_id=network.id) as storage:
        transport = MemoryTransport(MemoryHub(np.random.default_rng(0)))
        node = LiveNode(config, network, storage, transport, SecureNoise(), clock)
        executor = asyncio.create_task(node.executor.run())
        try:
            node.executor.give(on.Started(clock.at))
            yield Driven(node, clock)
        finally:
            executor.cancel()
            with suppress(asyncio.CancelledError):
                await executor
            await transport.close()
            node.executor.close()


def test_samples_are_counted_and_so_is_every_reason_for_none(tmp_path: Path) -> None:
    """`sampled` is false for many reasons; an operator who cannot tell them apart mends the wrong thing."""

    async def scenario() -> None:
        async with driven(tmp_path) as it:
            await it.seal(0)
            await it.seal(1, opened=False)
            assert await it.reasons() == {"downtime": 1}
            await it.seal(5)
            values = await it.values()
            assert (values["dpcrowd_samples_total"], values["dpcrowd_slots_missed_total"]) == (1, 3)
            assert await it.reasons() == {"downtime": 1, "budget": 1}  # the horizon of four slots is over
            assert (values["dpcrowd_may_sample"], values["dpcrowd_epsilon_remaining"]) == (0, 0)
            assert values["dpcrowd_released_slot"] == 5
            assert values["dpcrowd_release_delay_seconds_count"] == 3
            end_slot(it.node, 4)  # the clock went back: it was sealed before
            await it.done()
            assert await it.reasons() == {"downtime": 1, "budget": 1}

    asyncio.run(scenario())


def test_a_silent_feed_is_a_reason_of_its_own(tmp_path: Path) -> None:
    """It is the operator's to mend, and looks like a dead node otherwise."""

    async def scenario() -> None:
        async with driven(tmp_path, settings="needs_feed = true\n") as it:
            await it.seal(0)
            assert await it.reasons() == {"feed": 1}

    asyncio.run(scenario())


def test_a_silent_feed_is_a_warning_until_it_has_spoken_for_a_slot(tmp_path: Path) -> None:
    """A monitor of /readyz would be content while no slot is sampled. Inside a slot nothing changes: when somebody
    speaks there is nobody's business."""

    async def scenario() -> None:
        async with driven(tmp_path, settings="needs_feed = true\n") as it:
            assert it.node.warnings() == [], "nothing is known before the first seal"
            await it.seal(0)
            await it.seal(1)
            (text,) = it.node.warnings()
            assert text.startswith("no feed has sent a request in slot 0 or since (ingest.needs_feed): ")
            assert it.node.ready()[0], "it does its work"
            it.clock.at = it.node.clock.opens(2)
            await it.node.take_counts(2, {}, it.clock.at)
            assert it.node.warnings() == [text]
            await it.seal(2)
            assert it.node.warnings() == []
            await it.seal(3)
            assert "in slot 3 or since" in it.node.warnings()[0]
            await it.seal(4, opened=False)
            assert "in slot 3 or since" in it.node.warnings()[0], "nobody knows of a slot that was missed"

    asyncio.run(scenario())


def test_whoever_needs_no_feed_is_not_warned(tmp_path: Path) -> None:
    """An empty shop would be called a fault, and so tell that it is empty."""

    async def scenario() -> None:
        async with driven(tmp_path) as it:
            await it.seal(0)
            assert it.node.warnings() == []

    asyncio.run(scenario())


def test_a_ledger_that_nobody_vouches_for_is_a_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After a restore nothing is sampled until the operator has confirmed the loss: that must be seen at once."""

    async def scenario() -> None:
        async with driven(tmp_path, servers=("a", "b")) as it:
            await it.seal(0)
            assert await it.reasons() == {"ledger": 1}
            values = await it.values()
            assert values['dpcrowd_neighbour_up{neighbour="b"}'] == 0
            assert (values["dpcrowd_may_sample"], values["dpcrowd_ready"]) == (0, 0)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert "slot 0 is not sampled: no neighbour has vouched" in caplog.text


def test_a_full_disk_is_counted_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that cannot pay does not sample; whoever watches the metrics alone must see why."""
    failure = StorageError("full", "the disk is full", "free some")

    def refuse(*_: object, **__: object) -> int:
        raise failure

    async def scenario() -> None:
        async with driven(tmp_path) as it:
            assert (await it.values())["dpcrowd_storage_up"] == 1
            with monkeypatch.context() as patched:
                patched.setattr(it.node._storage, "commit_sample", refuse)
                patched.setattr(it.node._storage, "commit_release", refuse)
                it.node._storage._database.failure = failure
                await it.seal(0)
                await it.seal(1)
                values = await it.values()
                assert values["dpcrowd_storage_up"] == 0
                assert values['dpcrowd_storage_failures_total{kind="full"}'] == 3  # a sample, and two releases
                assert await it.reasons() == {"storage": 2}
            await it.seal(2)  # its release is the first thing that can be stored again
            await it.seal(3)
            values = await it.values()
            assert (values["dpcrowd_storage_up"], values["dpcrowd_samples_total"]) == (1, 1)
            assert await it.reasons() == {"storage": 3}

    asyncio.run(scenario())


def test_a_neighbours_message_is_timed(tmp_path: Path) -> None:
    """Late neighbours and wrong clocks are the two reasons for releases at the deadline; both are told by arrivals."""

    async def scenario() -> None:
        async with driven(tmp_path, servers=("a", "b")) as it:
            other = tmp_path / "b.toml"
            config, network = load_pair(other)
            with Storage.open(config.data, network_id=network.id) as storage:
                peer = LiveNode(config, network, storage, MemoryTransport(MemoryHub(np.random.default_rng(0))),
                                SecureNoise(), it.clock)  # fmt: skip
                sent: list[bytes] = []
                for slot in (0, 1):
                    done = peer.executor.machine.handle(on.SlotSealed(it.clock.at, slot, None))
                    sent += [one.payload for one in done if hasattr(one, "payload")]
                    peer.executor.machine.handle(on.DeadlinePassed(it.clock.at, slot))
                peer.executor.close()
            await it.seal(0)
            it.clock.at = it.node.time.ends(0) + SECOND * 3 // 10
            it.node.executor.message_arrived("b", sent[0])
            await it.done()
            await it.seal(1)
            it.clock.at += 4 * SECOND  # the deadline is 1.5 s: it is late, and not used
            it.node.executor.give(on.DeadlinePassed(it.clock.at, 1))
            it.node.executor.message_arrived("b", sent[1])
            await it.done()
            values = await it.values()
            assert values['dpcrowd_message_delay_seconds_bucket{neighbour="b",le="0.5"}'] == 1
            assert values['dpcrowd_message_delay_seconds_count{neighbour="b"}'] == 1
            assert values['dpcrowd_neighbour_clock_offset_seconds{neighbour="b"}'] == 0.3
            assert values['dpcrowd_exchanges_total{outcome="complete"}'] == 1
            assert values['dpcrowd_exchanges_total{outcome="incomplete"}'] == 1
            assert values['dpcrowd_messages_refused_total{reason="late"}'] == 1

    asyncio.run(scenario())


def test_a_jump_of_the_clock_is_counted(tmp_path: Path) -> None:
    """The watch and the metric must not drift apart."""

    class Jumping(HandClock):
        passed = 0

        def elapsed(self) -> int:
            return self.passed

    async def scenario() -> None:
        async with driven(tmp_path) as it:
            clock = Jumping()
            watch = it.node.time._watch
            watch._clock, watch._offset, watch._last = clock, clock.now(), 0
            clock.at -= 30 * SECOND
            it.node.time.look()
            assert (await it.values())['dpcrowd_clock_jumps_total{direction="back"}'] == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("exact", [False, True])
def test_who_sees_which_metrics(tmp_path: Path, exact: bool) -> None:
    """Readers see nothing that depends on the load, unless the operator has switched exact counters on."""
    hidden = {family.name for family in FAMILIES if family.audience == "operator" and family.kind != "histogram"}
    settings = "exact_counters = true\n" if exact else ""

    async def scenario() -> None:
        async with driven(tmp_path, settings=settings) as it:
            await it.seal(0)
            reader, operator = await it.values(), await it.values(operator=True)
            assert hidden <= operator.keys()
            assert hidden <= reader.keys() if exact else not hidden & reader.keys()
            assert ("dpcrowd_checkins_taken_total" in reader) == exact
            assert ("dpcrowd_checkins_taken_total" in operator) == exact
            assert reader["process_start_time_seconds"] == EPOCH / SECOND
            info = next(name for name in reader if name.startswith("dpcrowd_network_info"))
            assert f'digest="{it.node.executor.machine.view.digest.hex()}"' in info
            assert 'revision="1"' in info
            assert any(name.startswith("dpcrowd_build_info{version=") for name in reader)

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", ["limit", "storage"])
def test_check_ins_that_are_lost_while_the_slot_is_sealed_are_not_passed_over(tmp_path: Path, fault: str) -> None:
    """A body in the writer's queue at the seal may hit the limit: the slot would be sampled without its people."""

    async def scenario() -> None:
        async with driven(tmp_path, settings="capacity = 1\n") as it:
            intake, count = it.node.intake, it.node.intake.count_journal
            journal = it.node._storage.journal

            async def late(slot: int, regions: Sequence[str]) -> NDArray[np.int64]:
                if fault == "limit":
                    journal.limit = 1
                    journal.append(it.node.clock.opens(slot), b"more")
                else:
                    intake.unkept.add(slot)
                return await count(slot, regions)

            await it.seal(0)
            it.node.presence.open(1, it.node.clock.opens(1))
            await intake.take_checkins(Batch([b"ann", b"bob"], [0, 0]), it.node.clock.opens(1))
            intake.count_journal = late  # type: ignore[method-assign]
            await it.seal(1)
            assert await it.reasons() == {fault: 1}
            assert (await it.values())["dpcrowd_samples_total"] == 1

    asyncio.run(scenario())
