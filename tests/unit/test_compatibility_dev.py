"""Files and messages of the development version before the core of the node was restructured.

They hold what `v0.1.0` cannot: two networks on one ledger, a confirmed loss, a clock that was set ahead, a slot that is
paid and not told, a revision to come. `tests/fixtures/make.py` tells how they came about.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.node.build import make_machine, make_view, revision_of
from dpcrowd.node.config import digest, load_pair, parse_network
from dpcrowd.node.storage import Storage
from dpcrowd.node.wire import peek
from dpcrowd.privacy import SecureNoise
from dpcrowd.schemes.server import Server
from node_support import body_of, checked
from node_support_folder import NodeRun, make_hub, start
from node_support_virtual import SECOND, SetClock, VirtualLoop, run_virtually
from node_support_world import AgreedNoise
from project_support import TESTS

FIXTURE = TESTS / "fixtures" / "v0.2.dev-11"
EXPECTED: dict[str, Any] = json.loads((FIXTURE / "expected.json").read_text(encoding="utf-8"))
FIRST, SECOND_SERVER, SURVEY = "trial/server-1", "trial/server-2", "survey/server-1"
PAID = 38
"""The slot that the first server has paid for and not told."""
VALID_FROM = 44
"""The first slot of the next revision."""
SAMPLED = {FIRST: [40, 42, 46], SECOND_SERVER: [40, 42, 44, 46]}
"""Slots that are sampled later; in slot 44 the payments of the survey leave the first server too little."""
PENDING = 17
"""People who had checked in for the open slot of the survey."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy: whoever continues writes."""
    return Path(shutil.copytree(FIXTURE, tmp_path / "fixture"))


class World:
    """The three nodes, `away` seconds after they were killed."""

    def __init__(self, folder: Path, loop: VirtualLoop, away: float = 0.2) -> None:
        self.folder, self.loop = folder, loop
        began = {name: node["now_ns"] + round(away * SECOND) for name, node in EXPECTED["nodes"].items()}
        machines = {FIRST: SetClock(loop, began[FIRST]), SECOND_SERVER: SetClock(loop, began[SECOND_SERVER])}
        self.clocks = {**machines, SURVEY: machines[FIRST]}
        self.hubs = {"trial": make_hub(), "survey": make_hub()}
        self.runs: dict[str, NodeRun] = {}

    async def __aenter__(self) -> World:
        for name in (FIRST, SECOND_SERVER, SURVEY):
            await self.start(name)
        return self

    async def start(self, name: str) -> None:
        hub = self.hubs[name.partition("/")[0]]
        self.runs[name] = await start(self.folder / name / "node.toml", self.clocks[name], hub)

    async def __aexit__(self, *_: object) -> None:
        for node_run in self.runs.values():
            await node_run.end()

    async def until_slot(self, slot: int) -> None:
        """Until a slot of the trial is half over by both clocks."""
        opens = load_pair(self.folder / FIRST / "node.toml")[1].clock().opens(slot)
        await asyncio.sleep((opens - self.clocks[FIRST].now()) / SECOND + 6)


def _ledger(folder: Path, network: str) -> list[tuple[str, str, int | None, int]]:
    with closing(sqlite3.connect(folder / network / "data" / "dpcrowd.db")) as database:
        return database.execute("SELECT network, kind, slot, nano FROM ledger ORDER BY counter").fetchall()


def test_configuration_files_mean_the_same(folder: Path) -> None:
    """With another digest for a file with every setting, servers of two versions would refuse each other."""
    _, following = load_pair(folder / FIRST / "node.toml")
    current = parse_network((folder / FIRST / "data" / "network.current.toml").read_text(encoding="utf-8"))
    assert digest(current).hex() == EXPECTED["digest"]
    assert digest(following).hex() == EXPECTED["next_digest"]


def test_the_budget_is_remembered(folder: Path) -> None:
    """A loss, a jump, or a payment of the other network that is forgotten by a new version would be spent again."""

    async def story(loop: VirtualLoop) -> None:
        async with World(folder, loop) as world:
            for name, node_run in world.runs.items():
                before, budget = EXPECTED["nodes"][name]["budget"], await node_run.get("/v1/budget")
                # When the folder was made, losses that were confirmed counted among what was spent.
                budget["total_spent"] = round(budget["total_spent"] + budget["total_blocked"], 9)
                assert {key: budget[key] for key in before} == before, name
                latest = await node_run.get("/v1/estimates/latest")
                assert latest == EXPECTED["nodes"][name]["latest"], name

    paid = {name: sum(row[-1] for row in _ledger(folder, name)) for name in (FIRST, SECOND_SERVER)}
    run_virtually(story)
    for name, nano in paid.items():
        assert nano == EXPECTED["nodes"][name]["total_nano"]
        assert sum(row[-1] for row in _ledger(folder, name)) == nano, "a start costs nothing"


def test_whoever_begins_anew_keeps_the_debts(folder: Path) -> None:
    """A scheme whose state is gone would plan with a whole budget, of which the ledger then refuses the most."""
    with closing(sqlite3.connect(folder / FIRST / "data" / "dpcrowd.db")) as database, database:
        database.execute("DELETE FROM state")
    node, _ = load_pair(folder / FIRST / "node.toml")
    network = parse_network((folder / FIRST / "data" / "network.current.toml").read_text(encoding="utf-8"))
    expected, view = EXPECTED["nodes"][FIRST], make_view(node, network)
    with Storage.open(node.data, network_id=network.id) as storage:
        revision = revision_of(network, view, SecureNoise())
        machine, _ = make_machine(revision, network, storage, expected["now_ns"])
        assert machine.server.remaining(expected["slot"]) == expected["room_nano"]


def test_a_paid_slot_is_told_and_not_drawn_again(folder: Path) -> None:
    """A second draw for a slot that is paid once would cost users twice what the ledger says."""

    async def story(loop: VirtualLoop) -> World:
        async with World(folder, loop) as world:
            await world.until_slot(PAID + 1)
            rows = await world.runs[FIRST].get("/v1/estimates")
            assert [row["sampled"] for row in rows if row["slot"] == PAID] == [True, True]
        return world

    with closing(sqlite3.connect(folder / FIRST / "data" / "dpcrowd.db")) as database:
        stored = database.execute(
            "SELECT noisy FROM noisy JOIN ledger USING (counter) WHERE network = 'trial' AND slot = ?", (PAID,)
        ).fetchone()[0]
    world = run_virtually(story)
    assert all(slot != PAID for slot, _, _ in world.runs[FIRST].draws)
    told = [body_of(payload) for _, _, payload in world.runs[FIRST].sent]
    (record,) = next(body.records for body in told if body.slot == PAID)
    info_vec, info_mat = np.frombuffer(record.info_vec), np.frombuffer(record.info_mat)
    noisy = info_vec / info_mat * 0.5  # its share of the people
    assert np.allclose(noisy, np.frombuffer(stored), rtol=1e-9)


@pytest.mark.slow
def test_nodes_go_on(folder: Path) -> None:
    """Neighbours that no longer vouch for each other, or an account that has lost its ways, would end all samples."""

    async def story(loop: VirtualLoop) -> World:
        async with World(folder, loop) as world:
            await world.runs[SURVEY].check_in("town", range(100, 105))
            await world.until_slot(VALID_FROM + 4)
            for name in (FIRST, SECOND_SERVER):
                rows = await world.runs[name].get("/v1/estimates")
                regions = {slot: {row["region"] for row in rows if row["slot"] == slot} for slot in range(39, 48)}
                assert all(len(found) == (2 if slot < VALID_FROM else 3) for slot, found in regions.items()), regions
                status = await world.runs[name].get("/v1/network")
                (other,) = status["neighbours"]
                # The new revision opens links anew; whoever comes up is told the last slot, under the old revision.
                assert other["connected"]
                assert set(other["refused"]) <= {"late"}, other["refused"]
        return world

    before = {name: _ledger(folder, name) for name in (FIRST, SECOND_SERVER)}
    world = run_virtually(story)
    for name, rows in before.items():
        after = _ledger(folder, name)
        assert after[: len(rows)] == rows, "what was paid stays"
        new = [(slot, nano) for network, kind, slot, nano in after[len(rows) :] if network == "trial"]
        assert new == [(slot, 250_000_000) for slot in SAMPLED[name]]
        assert [slot for slot, _, _ in world.runs[name].draws] == SAMPLED[name], "nothing is drawn that is not paid"
    slot, _, counted = world.runs[SURVEY].draws[0]
    assert (slot, counted) == (EXPECTED["nodes"][SURVEY]["slot"], (PENDING + 5,)), "check-ins on disk were acknowledged"


def test_a_slot_that_was_missed_is_not_sampled(folder: Path) -> None:
    """Counts of a slot in which the node was down for longer than allowed tell of too few people."""

    async def story(loop: VirtualLoop) -> World:
        async with World(folder, loop, away=5.0) as world:
            await world.until_slot(PAID + 6)
        return world

    drawn = [slot for slot, _, _ in run_virtually(story).runs[SURVEY].draws]
    missed = EXPECTED["nodes"][SURVEY]["slot"]
    assert drawn[:2] == [missed + 1, missed + 2]


@pytest.mark.slow
def test_a_clock_that_is_set_ahead_refills_nothing(folder: Path) -> None:
    """Whoever sets the clock ahead by more than a window would have a whole budget again, at once."""

    async def story(loop: VirtualLoop) -> None:
        async with World(folder, loop) as world:
            await world.until_slot(VALID_FROM)
            before = (await world.runs[FIRST].get("/v1/budget"))["remaining"]
            assert before < 0.5
            world.clocks[FIRST].ahead_ns += 100 * SECOND
            await asyncio.sleep(2)
            budget = await world.runs[FIRST].get("/v1/budget")
            assert budget["remaining"] <= before
            assert budget["waits_for"] == "vouching", "this may be a snapshot of a machine that has lived on since"

    run_virtually(story)


@pytest.mark.slow
def test_an_old_copy_is_exposed_and_its_loss_counts(folder: Path) -> None:
    """Samples that the copy does not know of would be drawn and paid a second time, and a loss would stop the node."""

    async def story(loop: VirtualLoop) -> None:
        async with World(folder, loop) as world:
            await world.until_slot(VALID_FROM + 1)
            for name in (SURVEY, FIRST):
                await world.runs[name].end()
            shutil.rmtree(folder / FIRST / "data")
            shutil.copytree(FIXTURE / FIRST / "data", folder / FIRST / "data")
            for name in (FIRST, SURVEY):
                await world.start(name)
            await world.until_slot(VALID_FROM + 3)
            first = world.runs[FIRST]
            assert (await first.get("/v1/budget"))["waits_for"] == "operator"
            await first.post("/v1/admin/confirm-loss", token="admin")
            budget = await first.get("/v1/budget")
            assert (budget["blocked"], budget["remaining"]) == (1.0, 0.0)
            await world.until_slot(VALID_FROM + 16)
            drawn = [slot for slot, _, _ in first.draws]
            # The loss was booked up to the end of slot 47: the first window without it ends with slot 55.
            assert drawn[:2] == [56, 58]

    run_virtually(story)
    new = [row for row in _ledger(folder, FIRST)[EXPECTED["nodes"][FIRST]["payments"] :] if row[0] == "trial"]
    assert new[0] == ("trial", "lost", None, 1_000_000_000)


@pytest.mark.parametrize("kind", ["heartbeat", "sample", "proofs", "since", "after"])
def test_messages_are_understood(folder: Path, kind: str) -> None:
    """Version N talks to N - 1: a neighbour that has not been upgraded yet must not be refused."""
    node, network = load_pair(folder / FIRST / "node.toml")
    current = parse_network((folder / FIRST / "data" / "network.current.toml").read_text(encoding="utf-8"))
    view, sender = make_view(node, current), network.number_of("server-2")
    payload = (folder / "messages" / f"{kind}.msgpack").read_bytes()
    slot, under = peek(payload)
    assert under == view.digest
    heard = checked(view, sender, payload)
    assert (heard.body.server, heard.body.slot) == (sender, slot)
    assert heard.body.expires > 1_800_000_000
    assert heard.message is not None or kind in ("heartbeat", "proofs", "since", "after")
    if kind in ("proofs", "since", "after"):
        assert getattr(heard.body, kind)


@pytest.mark.parametrize("name", sorted(EXPECTED["states"]))
def test_saved_states_go_on(folder: Path, name: str) -> None:
    """A scheme that cannot read its own state begins anew: estimates and what is known of the budget are lost."""
    expected = EXPECTED["states"][name]
    network = parse_network((folder / "states" / f"{name}.toml").read_text(encoding="utf-8"))
    server = Server(
        network.scheme(),
        network.setting("server-1"),
        AgreedNoise([]),
        number=0,
        share=0.5,
        max_degree=network.max_degree(),
        beta=network.beta,
        allow_simulated_noise=True,
    )
    server.restore((folder / "states" / f"{name}.state").read_bytes())
    assert server.open_slot == 12
    sample = server.open_sample()
    paid, noisy = (0, []) if sample is None else (sample[0], sample[1].tolist())
    assert (paid, noisy) == (expected["paid_nano"], expected["noisy"])
    estimates, remaining = [server.hear().estimate], []
    for slot in range(13, 20):
        remaining.append(server.remaining(slot))
        server.observe(slot, np.array([40 + 3 * slot, 20 + slot]))
        estimates.append(server.hear().estimate)
    assert remaining == expected["remaining_nano"]
    assert np.allclose(estimates, expected["estimates"], rtol=1e-9)
