"""Nodes whose clock is set, or that stand still: what was paid stays as young as it is, half a slot is not a sample."""

from __future__ import annotations

import asyncio
import logging
import shutil
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.node.collect import IntakeRefused
from dpcrowd.node.config import load_pair
from dpcrowd.node.ingest.batch import Batch
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.machine.instructions import CountSlot
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.memory import MemoryHub, MemoryTransport
from dpcrowd.privacy import SecureNoise
from dpcrowd.privacy.units import NANO
from node_support_pair import SECOND, SetClock, end_slot, last_slot, pair_of_nodes, run, spent, until, virtual_loop


def test_a_clock_that_is_set_ahead_refills_no_budget(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By their dates the payments of a few seconds would lie in windows of their own, each with a whole epsilon."""

    async def scenario() -> None:
        clock = SetClock()
        async with pair_of_nodes(tmp_path, clock, length=30) as nodes:
            for jump in range(4):
                await until(lambda: all(node.executor.machine.trust.may_sample for node in nodes), "nobody vouches")
                before = [last_slot(node) for node in nodes]
                await until(
                    lambda before=before: all(last_slot(n) > b + 2 for n, b in zip(nodes, before, strict=True)),
                    "no further releases",
                )
                if jump < 3:
                    clock.ahead += 45 * SECOND
            assert clock.elapsed() < 30 * SECOND, "more than a window has passed: this says nothing"
            for node in nodes:
                budget = await node.budget()
                assert 0 < budget.spent == spent(node) / NANO <= 1, "all of it was paid within one window"
                assert round((budget.remaining + budget.spent) * NANO) <= NANO
                events = [event.kind for event in node._storage.events.all()]
                assert events == ["clock"] * 3
        assert "set ahead by 45.0 s" in caplog.text

    with caplog.at_level(logging.WARNING):
        run(scenario)


def test_a_clock_that_is_set_back_is_reported_and_nothing_is_drawn_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that says it is ready and releases nothing for an hour would be a riddle."""

    async def scenario() -> None:
        clock = SetClock()
        async with pair_of_nodes(tmp_path, clock) as nodes:
            await until(lambda: all(last_slot(node) > 2 and node.ready()[0] for node in nodes), "not ready")
            clock.ahead -= 3600 * SECOND
            await until(lambda: "set back by 3600.0 s" in caplog.text, "nobody noticed")
            rows = [node._storage.ledger.payments() for node in nodes]
            for node in nodes:
                ready, problems = node.ready()
                assert not ready
                assert "the clock went back" in problems[0]
            await asyncio.sleep(1.5)
            assert rows == [node._storage.ledger.payments() for node in nodes]
            before = [last_slot(node) for node in nodes]
            clock.ahead += 3600 * SECOND
            await until(
                lambda: all(last_slot(n) > b + 1 and n.ready()[0] for n, b in zip(nodes, before, strict=True)),
                "no return",
            )

    with caplog.at_level(logging.WARNING):
        run(scenario)


def test_slots_in_which_the_node_stood_still_are_no_samples(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody could check in meanwhile: the slot would be told as nearly empty, and paid for."""

    async def scenario() -> None:
        clock = SetClock()
        async with pair_of_nodes(tmp_path, clock, length=100) as nodes:
            await until(lambda: all(last_slot(node) > 2 for node in nodes), "no releases")
            first = nodes[0].clock.slot_of(clock.now())
            virtual_loop().skip(3)  # both at once, as a machine that is suspended
            last = nodes[0].clock.slot_of(clock.now())
            await until(lambda: all(last_slot(node) > last + 3 for node in nodes), "no releases after the standstill")
            for node in nodes:
                told = await node.estimates(first, last, None, 100)
                assert not any(one.sampled for one in told)
                later = await node.estimates(last + 1, None, None, 100)
                assert any(one.sampled for one in later)

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "stood still" in caplog.text


def test_a_node_that_needs_a_feed_samples_no_silence(tmp_path: Path) -> None:
    """If the feed is dead, nobody was counted, which is not the same as nobody was there."""

    async def scenario() -> None:
        clock = SetClock()
        async with pair_of_nodes(tmp_path, clock, length=100, needs_feed=True) as (a, b):
            await until(lambda: last_slot(a) > 3 and last_slot(b) > 3, "no releases")
            assert a._storage.ledger.payments() == b._storage.ledger.payments() == 0
            for _ in range(100):
                if spent(a):
                    break
                slot = a.clock.slot_of(clock.now())
                await a.take_counts(slot, {}, clock.now())
                await asyncio.sleep(0.3)
            assert spent(a) > 0
            assert spent(b) == 0

    run(scenario)


def test_check_ins_of_a_slot_in_grace_are_counted_after_a_restart(tmp_path: Path) -> None:
    """They were acknowledged: a restart between the end of a slot and its seal must not lose them."""

    async def scenario() -> None:
        clock = SetClock()
        async with pair_of_nodes(tmp_path, clock, length=100) as (a, _):
            await until(lambda: a.executor.machine.trust.may_sample and last_slot(a) > 1, "not ready")
            slot = a.clock.slot_of(clock.now()) + 1
            await clock.sleep_until(a.clock.opens(slot))
            await a.take_counts(slot, {0: 50}, clock.now())
        with ExitStack() as opened:
            with open(tmp_path / "a.toml", "a", encoding="utf-8") as file:
                file.write('max_downtime = "2s"\n')  # its last table is [ingest]
            node, network = load_pair(tmp_path / "a.toml")
            clock.ahead = network.clock().closes(slot) + network.grace_ns // 2 - (clock.now() - clock.ahead)
            storage = opened.enter_context(Storage.open(node.data, network_id=network.id))
            transport = MemoryTransport(MemoryHub(np.random.default_rng(0)))
            again = LiveNode(node, network, storage, transport, SecureNoise(), clock)
            end_slot(again, slot)
            sealed = await again.counting.count(CountSlot(slot, tuple(network.regions)), clock.now())
            assert sealed.counts is not None
            assert sealed.counts.tolist() == [50, 0]
            again.executor.close()

    run(scenario)


def test_a_horizon_ends_and_a_new_one_begins_with_its_own_slots(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At its end sampling stops and the node says so; a new one that counts from the epoch would be over at once."""

    async def scenario() -> None:
        clock = SetClock()
        epoch = (clock.now() // SECOND) * SECOND
        async with pair_of_nodes(tmp_path, clock, kind="finite", length=6, epoch_ns=epoch) as nodes:
            await until(lambda: all(last_slot(node) > 7 for node in nodes), "no releases")
            for node in nodes:
                budget = await node.budget()
                assert (budget.remaining, budget.samples) == (0, False)
                assert "ended with slot 5" in budget.text
                assert node.ready()[0], "it still estimates"
            rows = nodes[0]._storage.ledger.payments()
            assert rows >= 1
        for name in ("a", "b"):
            with Storage.open(tmp_path / f"data-{name}", network_id="trial") as storage:
                storage.ledger.new_horizon(clock.now(), clock.now(), "a new one")
        shutil.rmtree(tmp_path / "keys")
        async with pair_of_nodes(tmp_path, clock, kind="finite", length=1000, epoch_ns=epoch) as nodes:
            await until(lambda: all(node._storage.ledger.payments() > rows for node in nodes), "no sample")
            budget = await nodes[0].budget()
            assert budget.samples
            assert budget.spent < budget.total_spent

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert [record.event for record in caplog.records if "horizon" in record.getMessage()] == ["budget-spent"] * 2  # type: ignore[attr-defined]


def test_a_start_with_a_clock_that_is_behind_keeps_no_check_ins(tmp_path: Path) -> None:
    """They could not be counted, their slots being sealed by the other clock, and would lie on the disk for long."""

    async def scenario() -> None:
        clock = SetClock()
        epoch = (clock.now() // SECOND) * SECOND - 100 * SECOND
        async with pair_of_nodes(tmp_path, clock, epoch_ns=epoch) as (a, _):
            await until(lambda: last_slot(a) > 101, "no releases")
        clock.ahead -= 50 * SECOND
        shutil.rmtree(tmp_path / "keys")
        async with pair_of_nodes(tmp_path, clock, epoch_ns=epoch) as (a, _):
            slot = a.clock.slot_of(clock.now())
            with pytest.raises(IntakeRefused) as refused:
                await a.take_counts(slot, {0: 5}, clock.now())
            assert refused.value.reason == "unavailable"
            batch = Batch([b"someone"], [0], None)
            with pytest.raises(IntakeRefused) as refused:
                await a.intake.take_checkins(batch, clock.now())
            assert refused.value.reason == "unavailable"
            await until(lambda: a.clock.slot_of(clock.now()) > slot + 1, "time stands still")
            sealed = a.executor.machine.server.slot
            assert all(opens_ns > a.clock.opens(sealed) for opens_ns in a._storage.journal.pending())
            assert not a.ready()[0]

    run(scenario)


def test_a_revision_whose_key_is_gone_waits_for_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The key is read when a revision takes over; a node that ended for that would leave its neighbours alone."""

    async def scenario() -> None:
        clock = SetClock()
        async with pair_of_nodes(tmp_path, clock) as (a, _):
            await until(lambda: last_slot(a) > 1, "no releases")
            start = a.clock.slot_of(clock.now()) + 2
            text = (tmp_path / "network.toml").read_text()
            text = text.replace("revision = 1\n", f"revision = 2\nvalid_from_slot = {start}\n")
            (tmp_path / "network.toml").write_text(text)
            await a.reload()
            hidden = a.config.keys.key.rename(tmp_path / "hidden.key")
            await until(lambda: last_slot(a) > start, "the old revision does not go on")
            assert a.revision.revision == 1
            hidden.rename(a.config.keys.key)
            await until(lambda: a.revision.revision == 2, "it did not take over")

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "cannot take over yet" in caplog.text
