"""What five live servers that pass records on tell at the API: all servers, messages, and the smoothed history."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.api.proofs import check_proof
from dpcrowd.node.api.views import NetworkStatus
from dpcrowd.node.machine.held_records import HeldProof
from dpcrowd.node.wire_records import Equivocation
from node_support_deployed import RELAY, World, make_files
from node_support_virtual import VirtualLoop, run_virtually

pytestmark = pytest.mark.slow

FIVE = ("a", "b", "c", "d", "e")
RING = [*pairwise(FIVE), ("e", "a")]
LAG: int = RELAY["lag"]


@pytest.fixture(scope="module")
def files() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield make_files(Path(folder) / "ring", FIVE, scheme=RELAY, links=RING)


async def status_of(world: World, name: str) -> NetworkStatus:
    return await world.runs[name].live.network()


async def smoothed_of(world: World, name: str) -> dict[int, bytes]:
    slots = await world.runs[name].live.smoothed(None, None, None, 1000)
    assert slots is not None
    return {one.slot: one.estimate.tobytes() for one in slots}


def metrics_in(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_all_servers_and_messages_are_told(files: Path) -> None:
    """An operator sees servers that are not neighbours, too; and the metrics are those of the same numbers."""

    async def story(loop: VirtualLoop) -> None:
        async with World(files, loop, FIVE) as world:
            await world.sleep_until(14, 1.0)
            status = await status_of(world, "a")
            assert (status.scheme, status.lag) == ("relay", LAG)
            assert [server.name for server in status.servers] == list(FIVE)
            assert status.servers[0].records == 0, "nobody brings a server its own records"
            for server in status.servers[1:]:
                assert server.last_record is not None
                assert server.last_record >= status.slot - 6
                assert (server.overdue, server.missing, server.equivocation) == (None, False, None)
                assert server.records >= 2
                assert server.records_refused == {}
            neighbours = {one.name: one for one in status.neighbours}
            assert neighbours.keys() == {"b", "e"}
            brought = sum(one.records_received for one in status.neighbours)
            assert brought == sum(server.records for server in status.servers)
            assert all(one.records_forwarded > 0 and one.records_late == 0 for one in status.neighbours)
            sent = status.messages_sent
            assert sent.keys() == {"heartbeat", "data", "forward", "join"}
            assert sent["data"] == 2 * len(world.spent["a"])
            assert sent["heartbeat"] > 0 and sent["forward"] > 0  # noqa: PT018
            metrics = metrics_in(await world.runs["a"].live.metrics())
            for kind, count in sent.items():
                assert metrics[f'dpcrowd_messages_sent_by_kind_total{{kind="{kind}"}}'] == count
            assert metrics["dpcrowd_messages_sent_total"] == sum(sent.values())
            assert metrics["dpcrowd_messages_sent_bytes_total"] > 100 * sum(sent.values())
            for name, neighbour in neighbours.items():
                assert metrics[f'dpcrowd_records_received_total{{neighbour="{name}"}}'] == neighbour.records_received
                assert metrics[f'dpcrowd_records_forwarded_total{{neighbour="{name}"}}'] == neighbour.records_forwarded
            for name in FIVE:
                assert metrics[f'dpcrowd_server_missing{{server="{name}"}}'] == 0
            records = world.runs["a"].live.neighbour_history(1_000, None).records
            assert {name: len(one.slots) for name, one in records.items()} == {
                server.name: server.records for server in status.servers[1:]
            }
            assert all(half is not None and half > 0 for one in records.values() for half in one.half_width)
            check_proofs_of(world.runs["a"].live)

    run_virtually(story)


def test_the_schedule_of_relay_is_not_shown_as_a_lack_of_budget(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its samples use up the window as planned: lines, counts and notices of a fault in most slots hide real ones."""

    async def story(loop: VirtualLoop) -> None:
        async with World(files, loop, FIVE) as world:
            used_up = 0
            for slot in range(6, 14):
                await world.sleep_until(slot, 1.5)
                view = await world.runs["a"].live.budget()
                assert (view.samples, view.waits_for, view.text) == (True, None, "")
                metrics = metrics_in(await world.runs["a"].live.metrics())
                used_up += metrics["dpcrowd_may_sample"] == 0
            assert used_up, "or there was nothing to hide"
            assert metrics['dpcrowd_slots_unsampled_total{reason="budget"}'] == 0
            assert metrics['dpcrowd_slots_unsampled_total{reason="schedule"}'] > 0

    with caplog.at_level(logging.INFO):
        run_virtually(story)
    assert not [one for one in caplog.records if getattr(one, "event", "").startswith("budget")]


def test_the_budget_names_a_model_from_which_estimates_go_on(files: Path) -> None:
    """A revision without it would silently take back what the operators have asserted of it."""

    async def story(loop: VirtualLoop) -> None:
        async with World(files, loop, ("a",)) as world:
            await world.sleep_until(1, 1.0)
            live = world.runs["a"].live
            assert "census" not in (await live.budget()).guarantee
            live._storage.earlier_models.put([("digest", "the old census", -1000, True)])
            assert '"the old census"' in (await live.budget()).guarantee

    run_virtually(story)


def check_proofs_of(live: Any) -> None:
    """Records of a server that is no neighbour are shown as they were signed: with real keys, both verify."""
    records, network = live.executor.machine.records, live.revision
    assert live.proofs().proofs == []
    key, held = next((key, held) for key, held in sorted(records.held.records.items()) if key.origin == "c")
    records.held.proofs[key] = HeldProof(Equivocation(held.record, held.record))
    (proof,) = live.proofs().proofs
    assert (proof.network, proof.server, proof.slot) == (network.id, "c", key.slot)
    with pytest.raises(BadInput, match="the two records are the same"):  # both are signed by this server
        check_proof(proof, network.id, network.servers[network.number_of("c")].keys)
    with pytest.raises(BadInput, match="not signed by a key"):
        check_proof(proof, network.id, network.servers[network.number_of("d")].keys)
    del records.held.proofs[key]


def test_a_server_that_is_down_becomes_missing_and_comes_back(files: Path) -> None:
    """Two links away nobody notices otherwise: the neighbours of this server are all there."""

    async def story(loop: VirtualLoop) -> None:
        async with World(files, loop, FIVE) as world:
            await world.sleep_until(9, 1.0)
            await world.end("c")
            seen: list[tuple[Any, bool]] = []
            for slot in range(10, 10 + 3 * LAG):
                await world.sleep_until(slot, 1.0)
                (server,) = [one for one in (await status_of(world, "a")).servers if one.name == "c"]
                seen.append((server.overdue, server.missing))
            overdue = {slot for slot, _ in seen} - {None}
            assert len(overdue) == 1
            assert seen[-1] == (overdue.pop(), True)
            assert [missing for _, missing in seen] == sorted(missing for _, missing in seen)
            metrics = metrics_in(await world.runs["a"].live.metrics())
            assert metrics['dpcrowd_server_missing{server="c"}'] == 1
            await world.start("c")
            await world.sleep_until(10 + 3 * LAG + 8, 1.0)
            (server,) = [one for one in (await status_of(world, "a")).servers if one.name == "c"]
            assert (server.overdue, server.missing) == (None, False)

    run_virtually(story)


def test_the_smoothed_history_is_stored_and_final_after_the_lag(files: Path) -> None:
    """It survives a restart; slots that a server has missed are there if it was back within the lag."""

    async def story(loop: VirtualLoop) -> None:
        async with World(files, loop, FIVE) as world:
            await world.sleep_until(12, 1.0)
            first = await smoothed_of(world, "a")
            released = {one.slot: one for one in await world.runs["a"].live.estimates(None, None, None, 1000)}
            assert first.keys() == released.keys()
            assert [slot for slot in first if first[slot] != released[slot].estimate.tobytes()]
            last = max(first)
            world.kill("a")
            await world.sleep_until(last + 3, 1.0)
            await world.start("a")
            await world.sleep_until(last + 10, 1.0)
            second, other = await smoothed_of(world, "a"), await smoothed_of(world, "b")
            for slot in range(min(first), last - LAG + 2):
                assert second[slot] == first[slot], "final"
            missed = set(range(last + 1, last + 9)) - {
                one.slot for one in await world.runs["a"].live.estimates(None, None, None, 1000)
            }
            assert missed
            assert missed <= second.keys()
            recent = [slot for slot in second if slot > last]
            assert [slot for slot in recent if second[slot] != other[slot]] == []

    run_virtually(story)


def test_a_network_that_passes_no_records_on_has_no_history(tmp_path: Path) -> None:
    """Neither smoothed slots, nor servers that nobody has heard; the messages are counted all the same."""

    async def story(loop: VirtualLoop) -> None:
        async with World(make_files(tmp_path / "three"), loop) as world:
            await world.sleep_until(6, 1.0)
            live, status = world.runs["a"].live, await status_of(world, "a")
            assert await live.smoothed(None, None, None, 1000) is None
            assert (status.servers, status.lag, status.scheme) == ([], None, "dpcrowd-plus")
            assert status.messages_sent["data"] == 2 * len(world.spent["a"])
            assert status.messages_sent["heartbeat"] > 0
            assert status.messages_sent["forward"] == 0
            assert "dpcrowd_records" not in await live.metrics()

    run_virtually(story)
