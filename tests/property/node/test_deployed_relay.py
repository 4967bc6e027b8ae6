"""Relay on the deployed path: state machine, shell, account and storage together, on real SQLite files.

As in `test_deployed`, whatever fails: nobody tells more than was promised, no slot is drawn twice, nothing leaves that
is not paid for and stored, and everything that happened gives the same instructions when it is replayed. In the end all
servers release the same bits again, since all of them have the same records.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dpcrowd.node.config import load_network
from examples_support import examples
from node_support_deployed import LENGTH, RELAY, Fault, Kind, World, make_files
from node_support_virtual import SECOND, VirtualLoop, run_virtually

pytestmark = pytest.mark.slow

PAIR, THREE, FIVE = ("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d", "e")
RING = [*pairwise(FIVE), ("e", "a")]
LINE = list(pairwise(THREE))
KINDS: tuple[Kind, ...] = get_args(Kind)
PATIENT = settings(suppress_health_check=[HealthCheck.too_slow])
_RECOVERY = 12


@pytest.fixture(scope="module")
def files() -> Iterator[dict[str, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        yield {
            "ring": make_files(Path(folder) / "ring", FIVE, scheme=RELAY, links=RING),
            "line": make_files(Path(folder) / "line", THREE, scheme=RELAY, links=LINE),
            "pair": make_files(Path(folder) / "pair", PAIR, scheme=RELAY),
            "before": make_files(Path(folder) / "before", THREE, links=LINE),
        }


def assert_agreed(world: World) -> None:
    """All servers have released the last slot with the same bits."""
    lasts = {name: world.runs[name].live.executor.last for name in world.names}
    assert len({(last.slot, last.estimate.tobytes()) for last in lasts.values() if last is not None}) == 1, lasts
    assert None not in lasts.values()


def test_a_ring_agrees(files: dict[str, Path]) -> None:
    """Five servers, of which nobody hears more than two, release the same bits in every slot."""

    async def story(loop: VirtualLoop) -> None:
        async with World(files["ring"], loop, FIVE) as world:
            await world.sleep_until(12, 1.0)
            assert_agreed(world)
            world.replay_all()
            assert all(len(world.spent[name]) >= 2 for name in FIVE)
            for name in FIVE:
                kinds = world.runs[name].live.executor.sent_by_kind
                assert kinds["heartbeat"] > kinds["data"] > 0
                assert kinds["forward"] > 0
                assert kinds["join"] == 0, "nobody has missed anything"
        assert not world.refused

    run_virtually(story)


def test_a_server_that_was_killed_is_back_with_the_others(files: dict[str, Path]) -> None:
    """Down for a few slots, it gets what it has missed from its neighbours, and releases what they release."""

    async def story(loop: VirtualLoop) -> None:
        async with World(files["ring"], loop, FIVE) as world:
            await world.sleep_until(8, 1.0)
            await world.end("c")
            await world.sleep_until(10, 1.0)
            await world.start("c")
            await world.sleep_until(12, 1.0)
            assert_agreed(world)
            world.replay_all()

    run_virtually(story)


async def announce(world: World, valid_from: int) -> None:
    """A revision under which records, estimates and schedules go on: one server sees a few more people."""
    path = world.folder / "network.toml"
    text = path.read_text(encoding="utf-8")
    text = text.replace("revision = 1", f"revision = 2\nvalid_from_slot = {valid_from}")
    text = text.replace("share = 0.3", "share = 0.31", 1)
    path.write_text(text, encoding="utf-8")
    assert load_network(path).revision == 2
    for node_run in world.runs.values():
        await node_run.live.reload()


@pytest.mark.parametrize("copies", [True, False])
def test_a_restart_after_a_revision_loses_no_record(files: dict[str, Path], copies: bool) -> None:
    """Records of slots before the revision arrive after the restart: the copy of that revision is needed to check them.

    A folder without copies, as of an earlier version after two revisions, asks its neighbours when they are final.
    """

    async def story(loop: VirtualLoop) -> None:
        async with World(files["ring"], loop, FIVE) as world:
            await world.sleep_until(6, 1.0)
            await announce(world, 8)
            for name in ("b", "d"):
                world.hub.cut("c", name)
            await world.sleep_until(10, 0.1)
            await world.end("c")
            data = world.folder / "data-c"
            assert [path.name.split("-")[1] for path in data.glob("network.until-*")] == ["8"]
            if not copies:
                for path in (*data.glob("network.until-*"), data / "network.before.toml"):
                    path.unlink()
            await world.start("c")
            world.hub.heal()
            await world.sleep_until(12 if copies else 16, 1.0)
            assert_agreed(world)
            joined = world.runs["c"].live.executor.machine.server.joined
            assert (joined is None) == copies
            world.replay_all()

    run_virtually(story)


async def tale(world: World) -> None:
    """What relay stores, once: samples and records, releases, a revision, a clock that is accepted.

    Old copies and losses are in `test_deployed`: nothing about them depends on the scheme.
    """
    await world.sleep_until(2, 1.0)
    await world.revise()
    await world.sleep_until(5, 1.0)
    world.clocks["a"].ahead_ns = round(3 * LENGTH * SECOND)
    await world.sleep_until(6, 1.0)
    world.clocks["a"].ahead_ns = 0
    await world.sleep_until(7, 1.0)
    await world.decide("a", "accept")
    await world.sleep_until(8, 1.0)


def tell(files: Path, fault: Fault | None, *, replayed: bool = True) -> int:
    """Return how often server a has written in the tale, and see whether it gives the same instructions again."""

    async def story(loop: VirtualLoop) -> int:
        world = World(files, loop, PAIR)
        if fault is not None:
            world.faults["a"] = fault
        async with world:
            await tale(world)
            writes = world.writes["a"]
            await world.recover(_RECOVERY)
            if replayed:
                world.replay_all("a")
        return writes

    return run_virtually(story)


def test_a_disk_may_fail_at_any_write(files: dict[str, Path]) -> None:
    """Refused, done and said to have failed, or killed before or after it: one after another, at every write."""
    writes = tell(files["pair"], None)
    assert writes > 15
    for number in range(writes):
        fault = Fault(KINDS[number % len(KINDS)], number)
        tell(files["pair"], fault, replayed=number % 3 == 0)  # all kinds in turn; a replay takes a third of the time
        assert fault.struck


anybody = st.sampled_from(THREE)
EVENTS = [
    st.tuples(st.just("fault"), anybody, st.sampled_from(KINDS), st.integers(0, 6)),
    st.tuples(st.sampled_from(["repair", "kill", "restart", "cut", "heal"]), anybody),
    st.tuples(st.just("revise"), st.just("a")),
]
timed = st.tuples(st.sampled_from([0.05, 0.21, 0.25, 0.3, 0.9, 1.6, 1.95]), st.one_of(EVENTS))


async def happen(world: World, what: str, name: str, *given: Any) -> None:
    match what:
        case "fault":
            world.faults[name] = Fault(*given)
        case "repair":
            world.faults.pop(name, None)
        case "kill":
            world.kill(name)
        case "restart":
            await world.restart(name)
        case "cut":
            world.hub.cut(name, THREE[(THREE.index(name) + 1) % len(THREE)])
        case "heal":
            world.hub.heal()
        case "revise":
            await world.revise()


@settings(PATIENT, max_examples=examples(12))
@given(st.lists(st.lists(timed, max_size=3), min_size=3, max_size=8))
@example(  # servers that have missed different revisions cannot check each other
    [
        [],
        [(0.05, ("kill", "b")), (0.9, ("fault", "a", "full", 2)), (1.6, ("fault", "a", "lying", 3))],
        [(0.21, ("revise", "a")), (0.9, ("revise", "a")), (1.95, ("cut", "a"))],
        [(0.05, ("revise", "a")), (1.95, ("fault", "b", "full", 0))],
        [(0.9, ("restart", "c")), (1.6, ("cut", "a")), (1.95, ("revise", "a"))],
        [],
        [(0.9, ("revise", "a")), (1.6, ("fault", "b", "kill", 2))],
    ]
)
@example(  # a server whose disk is full takes a revision late, and has made records of its slots under the one before
    [
        [(0.05, ("revise", "a")), (0.05, ("fault", "a", "lying", 0))],
        [(0.05, ("revise", "a")), (0.05, ("repair", "a")), (0.05, ("fault", "a", "lying", 0))],
        [],
        [(0.05, ("fault", "c", "kill after", 4)), (0.05, ("repair", "a")), (1.6, ("revise", "a"))],
        [(0.05, ("fault", "a", "full", 6))],
        [(0.05, ("fault", "a", "full", 0)), (0.05, ("fault", "a", "full", 2))],
        [(0.05, ("repair", "a")), (0.05, ("revise", "a"))],
    ]
)
def test_servers_whose_disks_fail_and_links_break(files: dict[str, Path], slots: list[list[Any]]) -> None:
    """Three servers in a line: what one end says reaches the other end through the middle, whatever fails there."""

    async def story(loop: VirtualLoop) -> None:
        async with World(files["line"], loop) as world:
            await world.sleep_until(2, 1.0)
            for slot, events in enumerate(slots, start=3):
                for second, event in sorted(events, key=lambda one: one[0]):
                    await world.sleep_until(slot, second)
                    await happen(world, *event)
            await world.sleep_until(len(slots) + 3, 1.0)
            await world.recover(_RECOVERY)
            await world.sleep_until(world.slot + 1, 1.0)
            world.replay_all()
        assert not world.refused & {"equivocation", "bad-signature", "malformed", "above-account"}, world.refused

    run_virtually(story)


def test_a_network_changes_over_to_relay(files: dict[str, Path]) -> None:
    """By a revision: until its first slot messages are of format 1; estimates begin anew, and no ledger is refilled."""

    async def story(loop: VirtualLoop) -> None:
        async with World(files["before"], loop) as world:
            await world.sleep_until(5, 1.0)
            path = world.folder / "network.toml"
            text = path.read_text(encoding="utf-8").split("[scheme]")[0]
            servers = path.read_text(encoding="utf-8")[path.read_text(encoding="utf-8").index("[[server]]") :]
            text = text.replace("revision = 1", "revision = 2\nvalid_from_slot = 8")
            scheme = '[scheme]\nname = "relay"\nprocess_var = 100.0\nsamples = 2\nlag = 4\n'
            path.write_text(text + scheme + servers, encoding="utf-8")
            assert load_network(path).relay is not None
            for node_run in world.runs.values():
                await node_run.live.reload()
            await world.sleep_until(16, 1.0)
            for name in THREE:
                machine = world.runs[name].live.executor.machine
                assert machine.records is not None
                assert machine.records.arrivals.received_by.total() > 0
            assert_agreed(world)
            world.replay_all()
        assert not world.refused

    run_virtually(story)
