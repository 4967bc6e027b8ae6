"""Live nodes over Zenoh with real clocks: check-ins by HTTP, a crash, an old copy of the folder, a new revision."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.config import load_network
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.live.open import open_node
from node_support_live import TOKENS, write_network

SECOND = 1_000_000_000
NAMES = ("a", "b", "c")
LINE = [("a", "b"), ("b", "c")]


def _files(folder: Path, *, fast: bool = True) -> dict[str, Path]:
    """Return the files of a line of three servers that begins in a second; fast: with slots of one second, not two."""
    files = write_network(
        folder,
        dict.fromkeys(NAMES, 1 / 3),
        LINE,
        epoch_ns=(time.time_ns() // SECOND + 1) * SECOND,
        regions=["north", "south"],
        guarantee={"kind": "window", "length": 10, "epsilon": "10"},
        scheme={"name": "dpcrowd-plus", "process_var": 100.0},
    )
    if fast:
        text = (folder / "network.toml").read_text()
        text = text.replace('"2s"', '"1s"').replace('"200ms"', '"100ms"').replace('"1500ms"', '"700ms"')
        (folder / "network.toml").write_text(text)
    return files


@asynccontextmanager
async def _running(path: Path) -> AsyncIterator[LiveNode]:
    with ExitStack() as opened:
        node, stop = opened.enter_context(open_node(path)), asyncio.Event()
        task = asyncio.create_task(node.run(stop))
        try:
            yield node
        finally:
            stop.set()
            await asyncio.wait_for(task, 20)


async def _until(what: Callable[[], bool], told: str, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, told
        await asyncio.sleep(0.05)


async def _keep_counting(nodes: list[LiveNode], stop: asyncio.Event) -> None:
    """100 people in the north and 40 in the south of each server, in every slot."""
    counted: set[tuple[str, int]] = set()
    while not stop.is_set():
        for node in nodes:
            slot = node.clock.slot_of(time.time_ns())
            if slot >= 0 and (node.config.server, slot) not in counted:
                counted.add((node.config.server, slot))
                await node.take_counts(slot, {0: 100, 1: 40}, time.time_ns())
        await asyncio.sleep(0.1)


def _released(node: LiveNode, after: int = -1) -> bool:
    return node.executor.last is not None and node.executor.last.slot > after


def _knows(node: LiveNode) -> bool:
    return node.executor.last is not None and bool(np.isfinite(node.executor.last.estimate).all())


def _near(node: LiveNode) -> bool:
    """450 and 150 people, each of whom came twice per request and in many requests per slot, and counts once."""
    assert node.executor.last is not None
    return bool((np.abs(node.executor.last.estimate - [450, 150]) < [120, 90]).all())


def test_check_ins_by_http_become_estimates_of_the_whole_crowd_at_every_server(tmp_path: Path) -> None:
    """The whole way: HTTP, distinct counting, seal, noise, ledger, message, fusion, release, HTTP."""

    async def scenario() -> None:
        files = _files(tmp_path)
        for file in files.values():
            file.write_text(file.read_text().replace('accepts = "counts"', 'accepts = "checkins"'))
        async with (
            _running(files["a"]) as a,
            _running(files["b"]) as b,
            _running(files["c"]) as c,
            httpx.AsyncClient() as web,
        ):
            nodes = (a, b, c)
            base = {node: "http://{}:{}".format(*node.config.listen.http_address) for node in nodes}
            token = {"Authorization": f"Bearer {TOKENS['checkin']}"}
            await _until(lambda: a.clock.slot_of(time.time_ns()) >= 0, "the first slot did not open")
            await asyncio.sleep(0.3)
            sent = 0
            while not all(_knows(node) and _near(node) for node in nodes):
                for node in nodes:
                    people = [
                        {"user": f"{node.config.server}-{person}", "region": "north" if person % 4 else "south"}
                        for person in range(200)
                    ]
                    answer = await web.post(f"{base[node]}/v1/checkins", json=people * 2, headers=token)
                    assert answer.status_code == 202, answer.text
                sent += 1
                assert sent < 600, "the nodes did not come near the truth"
                await asyncio.sleep(0.1)
            for node in nodes:
                rows = (await web.get(f"{base[node]}/v1/estimates/latest")).json()
                assert [row["region"] for row in rows] == ["north", "south"]
                assert all(row["low"] < row["estimate"] < row["high"] for row in rows)
                budget = (await web.get(f"{base[node]}/v1/budget")).json()
                assert 0 < budget["spent"] <= budget["epsilon"]
                assert (await web.get(f"{base[node]}/readyz")).status_code == 200
                network = (await web.get(f"{base[node]}/v1/network")).json()
                assert set(network["refused_messages"]) <= {"late"}, "a busy machine may be late, nothing else"
            assert (await web.post(f"{base[a]}/v1/checkins", json=[], headers={})).status_code == 401

    asyncio.run(scenario())


def test_a_folder_that_was_restored_from_an_old_copy_may_not_sample(tmp_path: Path) -> None:
    """Otherwise a restore from a backup would spend the same budget a second time; neighbours remember."""

    async def scenario() -> None:
        files = _files(tmp_path)
        stop = asyncio.Event()
        async with _running(files["b"]) as b, _running(files["c"]) as c:
            old = tmp_path / "old"
            async with _running(files["a"]) as a:
                counting = asyncio.create_task(_keep_counting([a, b, c], stop))
                await _until(lambda: a.executor.machine.trust.counter >= 1, "no sample was taken")
                # The tool's way: a copy while the node runs.
                old.mkdir()
                before = a._storage.backup(old / "dpcrowd.db")
                await _until(lambda: a.executor.machine.trust.counter >= before + 2, "no further samples")
                counter = a.executor.machine.trust.counter
                remembered = b._storage.memory.remembered
                await _until(lambda: "a" in remembered() and remembered()["a"][1] >= counter, "b does not remember")
                stop.set()
                await counting
            shutil.rmtree(tmp_path / "data-a")
            shutil.move(old, tmp_path / "data-a")
            async with _running(files["a"]) as again:
                trust = again.executor.machine.trust
                await _until(lambda: trust.lost_at is not None, "nobody noticed the old copy")
                assert trust.lost_at >= counter > before  # type: ignore[operator]
                assert not trust.may_sample
                assert again.ready()[0] is False
                told = await again.confirm_loss()
                assert "fully spent" in told
                assert again.executor.machine.trust.may_sample
                budget = await again.budget()
                assert budget.remaining == 0, "the lost time counts as fully spent"
                with pytest.raises(BadInput, match="no loss"):
                    await again.confirm_loss()

    asyncio.run(scenario())


def test_a_new_revision_takes_over_at_its_slot_everywhere(tmp_path: Path) -> None:
    """A region and a link are added while the network runs; nobody is refused, nothing is spent twice."""

    async def scenario() -> None:
        files = _files(tmp_path)
        stop = asyncio.Event()
        async with _running(files["a"]) as a, _running(files["b"]) as b, _running(files["c"]) as c:
            nodes = [a, b, c]
            counting = asyncio.create_task(_keep_counting(nodes, stop))
            await _until(lambda: all(_released(node, 1) for node in nodes), "the nodes did not release")
            text = (tmp_path / "network.toml").read_text()
            start = a.clock.slot_of(time.time_ns()) + 3
            text = text.replace("revision = 1\n", f"revision = 2\nvalid_from_slot = {start}\n")
            text = text.replace('"south"', '"south", "west"') + '\n[[link]]\nbetween = ["a", "c"]\n'
            (tmp_path / "network.toml").write_text(text)
            assert load_network(tmp_path / "network.toml").revision == 2
            for node in nodes:
                assert f"slot {start}" in await node.reload()
                told = await node.network()
                assert (told.revision, told.next_revision, told.next_revision_slot) == (1, 2, start)
            await _until(lambda: all(_knows(node) for node in nodes), "the nodes do not know the crowd")
            await _until(lambda: all(_released(node, start + 1) for node in nodes), "revision 2 did not take over")
            stop.set()
            await counting
            for node in nodes:
                assert node.revision.revision == 2
                assert node.executor.last is not None
                assert node.executor.last.regions == ("north", "south", "west")
                assert (node.process[0], node.process[1].regions) == (node.executor.last.regions, 3)
                # A busy machine may be late; a neighbour that switches a moment earlier has the other digest already.
                assert {reason for _, reason in node.executor.refused} <= {"late", "other-configuration"}
                releases = await node.estimates(0, None, None, 100)
                slots = [release.slot for release in releases]
                assert slots == sorted(set(slots))
                (last,) = (release for release in releases if release.slot == start - 1)
                (first,) = (release for release in releases if release.slot == start)
                assert np.isfinite(first.estimate[:2]).all(), "what was known of the old regions stays known"
                if not first.sampled:
                    assert (first.variance[:2] < 4 * last.variance).all()
                told = await node.network()
                assert (told.revision, told.next_revision) == (2, None)
            assert {peer.name for peer in (await a.network()).neighbours} == {"b", "c"}
            (tmp_path / "network.toml").write_text(text.replace("revision = 2", "revision = 3"))
            with pytest.raises(BadInput, match="valid_from_slot"):
                await a.reload()

    asyncio.run(scenario())


def test_a_restart_finds_what_an_older_revision_left(tmp_path: Path) -> None:
    """network.toml was replaced while the node was down, and its slot has come: estimates go on all the same."""

    async def scenario() -> None:
        files = _files(tmp_path)
        stop = asyncio.Event()
        async with _running(files["b"]) as b, _running(files["c"]) as c:
            async with _running(files["a"]) as a:
                counting = asyncio.create_task(_keep_counting([a, b, c], stop))
                await _until(lambda: _knows(a), "a does not know the crowd")
                stop.set()
                await counting
            text = (tmp_path / "network.toml").read_text()
            start = b.clock.slot_of(time.time_ns())
            text = text.replace("revision = 1\n", f"revision = 2\nvalid_from_slot = {start}\n")
            text = text.replace('"north", "south"', '"west", "south", "north"').replace("share = 0.3", "share = 0.2", 1)
            (tmp_path / "network.toml").write_text(text)
            await _until(lambda: b.clock.slot_of(time.time_ns()) > start + 1, "time stands still")
            async with _running(files["a"]) as again:
                assert "the estimates go on after slot" in again.start_text
                assert "1 new regions" in again.start_text
                await _until(lambda: _released(again, start), "no release")
                assert again.executor.last is not None
                west, south, north = again.executor.last.estimate
                assert np.isfinite([south, north]).all()
                assert not np.isfinite(west) or again.executor.last.sampled
            async with _running(files["a"]) as third:
                assert "new regions" not in third.start_text

    asyncio.run(scenario())


def test_a_timed_link_ends_while_a_node_is_down(tmp_path: Path) -> None:
    """Back in the grace of the link's last slot, it has things to tell to somebody who is no neighbour any more."""

    async def scenario() -> None:
        files = _files(tmp_path, fast=False)
        text = (tmp_path / "network.toml").read_text()
        epoch = load_network(tmp_path / "network.toml").clock().opens(0)
        ends = (time.time_ns() - epoch) // (2 * SECOND) + 6
        timed = f'\n[[link]]\nbetween = ["a", "c"]\nuntil_slot = {ends}\n'
        text = text.replace('grace = "200ms"', 'grace = "500ms"') + timed
        (tmp_path / "network.toml").write_text(text)  # grace and deadline fill the slot: seal and end fall together
        async with _running(files["b"]) as b, _running(files["c"]) as c:
            async with _running(files["a"]) as a:
                await _until(lambda: all(_released(node, 1) for node in (a, b, c)), "no releases")
                assert {peer.name for peer in (await a.network()).neighbours} == {"b", "c"}
                await a._wall.sleep_until(a.clock.opens(ends) - SECOND // 2)
            async with _running(files["a"]) as again:
                await _until(lambda: all(_released(node, ends + 1) for node in (again, b, c)), "no releases later")
                assert {peer.name for peer in (await again.network()).neighbours} == {"b"}
                assert again.executor.machine.linked == {"b"}
                for node in (b, again):
                    assert {reason for _, reason in node.executor.refused} <= {"late"}

    asyncio.run(scenario())


def test_whoever_forgot_a_revision_takes_it_late(tmp_path: Path) -> None:
    """The others are ahead; an operator who is told to edit the file instead would make a third configuration."""

    async def scenario() -> None:
        files = _files(tmp_path)
        async with _running(files["a"]) as a, _running(files["b"]) as b:
            await _until(lambda: _released(a, 1) and _released(b, 1), "the nodes did not release")
            text = (tmp_path / "network.toml").read_text()
            start = a.clock.slot_of(time.time_ns()) + 2
            text = text.replace("revision = 1\n", f"revision = 2\nvalid_from_slot = {start}\n")
            (tmp_path / "network.toml").write_text(text.replace('"south"', '"west"'))
            told = await b.reload()
            assert "new regions: west" in told
            assert "gone regions: south" in told
            assert (await b.network()).next_digest in told  # type: ignore[operator]
            await _until(lambda: ("b", "other-configuration") in a.executor.refused, "a takes what it cannot read")
            told = await a.reload()
            assert f"late: it is valid since slot {start}" in told
            await _until(lambda: a.revision.revision == 2, "a did not take it")
            refused = dict(a.executor.refused)
            last = a.executor.last.slot if a.executor.last is not None else -1
            await _until(lambda: _released(a, last + 2), "no further releases")
            assert a.executor.refused["b", "other-configuration"] == refused["b", "other-configuration"]
            assert a.executor.last is not None
            assert a.executor.last.regions == ("north", "west")

    asyncio.run(scenario())
