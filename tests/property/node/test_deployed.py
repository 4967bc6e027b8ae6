"""Operation sequences on the deployed path: state machine, shell, account and storage together, on real SQLite files.

Whatever fails, is killed, put back, set wrong or decided: nobody tells more than was promised in any window of time, no
slot is drawn twice, nothing leaves that is not paid for and stored, and once everything is put right the servers sample
again. `World` checks all of that; and whatever happened gives the same instructions when it is replayed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from examples_support import examples
from node_support_deployed import LENGTH, NAMES, Fault, Kind, World, make_files
from node_support_virtual import SECOND, VirtualLoop, run_virtually

pytestmark = pytest.mark.slow

PAIR = NAMES[:2]
KINDS: tuple[Kind, ...] = get_args(Kind)
PATIENT = settings(suppress_health_check=[HealthCheck.too_slow])
_RECOVERY = 14  # slots: a window, a clock that was ahead for six, and some to be vouched for


@pytest.fixture(scope="module")
def files() -> Iterator[dict[int, Path]]:
    """Networks of two servers and of three."""
    with tempfile.TemporaryDirectory() as folder:
        yield {len(names): make_files(Path(folder) / str(len(names)), names) for names in (PAIR, NAMES)}


async def set_ahead(world: World, name: str, slots: int) -> None:
    world.clocks[name].ahead_ns = round(slots * LENGTH * SECOND)


# ------------------------------------------------------------------------------------ a fault at every durable write


async def tale(world: World) -> None:
    """Everything that is stored, once: samples, releases, a revision, an old copy, a loss, a clock that is accepted."""
    await world.sleep_until(1, 1.5)
    world.copy("a")
    await world.sleep_until(2, 1.0)
    await world.revise()
    await world.sleep_until(4, 1.0)
    await world.roll_back("a", 0)
    for slot in (6, 7):
        await world.sleep_until(slot, 0.3)
        await world.decide("a", "confirm")
    await world.sleep_until(7, 1.0)
    await set_ahead(world, "a", 5)
    await world.sleep_until(8, 1.0)
    await set_ahead(world, "a", 0)
    await world.sleep_until(9, 1.0)
    await world.decide("a", "accept")
    await world.sleep_until(10, 1.0)


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


def test_the_tale_has_everything_in_it(files: dict[int, Path]) -> None:
    """A tale in which nothing was sampled, lost or accepted would prove nothing."""
    kinds: list[str] = []

    async def story(loop: VirtualLoop) -> None:
        async with World(files[2], loop, PAIR) as world:
            await tale(world)
            kinds.extend(event.kind for event in world.runs["a"].storage.events.all())
            assert world.runs["a"].live.revision.revision == 2
            await world.recover(_RECOVERY)
        assert len(world.spent["b"]) >= 4
        assert world.refused <= {"late", "wrong-slot"}, world.refused

    run_virtually(story)
    assert {"loss", "clock", "clock-accepted"} <= set(kinds)


def test_a_disk_may_fail_at_any_write(files: dict[int, Path]) -> None:
    """Refused, done and said to have failed, or killed before or after it: one after another, at every write."""
    writes = tell(files[2], None)
    assert writes > 25
    for number in range(writes):
        fault = Fault(KINDS[number % len(KINDS)], number)
        tell(files[2], fault, replayed=number % 3 == 0)  # all kinds in turn; a replay takes a third of the time
        assert fault.struck


# --------------------------------------------------------------------------------------------------------- stories

anybody = st.sampled_from(NAMES)
faults = st.tuples(st.just("fault"), anybody, st.sampled_from(KINDS), st.integers(0, 6))
COMMON = [
    faults,
    st.tuples(st.sampled_from(["repair", "kill", "restart", "cut", "heal"]), anybody),
    st.tuples(st.just("revise"), st.just("a")),
]
OF_A = [
    st.tuples(st.just("fault"), st.just("a"), st.sampled_from(KINDS), st.integers(0, 6)),
    st.tuples(st.sampled_from(["copy", "roll back", "confirm", "kill", "restart"]), st.just("a"), st.integers(0, 3)),
    st.tuples(st.just("revise"), st.just("a")),
    st.tuples(st.just("ahead"), st.just("a"), st.integers(2, 6)),
    st.tuples(st.sampled_from(["back", "accept", "repair"]), st.just("a")),
]
Event = tuple[float, tuple[Any, ...]]


def stories(kinds: list[Any]) -> st.SearchStrategy[list[list[Event]]]:
    """For each slot: at which second of it, what."""
    event = st.tuples(st.sampled_from([0.05, 0.21, 0.3, 0.9, 1.6, 1.95]), st.one_of(kinds))
    return st.lists(st.lists(event, max_size=3), min_size=3, max_size=8)


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
            world.hub.cut(name, NAMES[(NAMES.index(name) + 1) % len(NAMES)])
        case "heal":
            world.hub.heal()
        case "revise":
            await world.revise()
        case "copy":
            world.copy(name)
        case "roll back":
            await world.roll_back(name, *given)
        case "confirm" | "accept":
            await world.decide(name, what)  # type: ignore[arg-type]
        case "ahead":
            await set_ahead(world, name, *given)
        case "back":
            await set_ahead(world, name, 0)


def tell_story(files: Path, slots: list[list[Event]], disturbed: Sequence[str]) -> None:
    async def story(loop: VirtualLoop) -> None:
        async with World(files, loop) as world:
            await world.sleep_until(2, 1.0)  # they vouch for each other
            world.copy("a")
            for slot, events in enumerate(slots, start=3):
                for second, event in sorted(events, key=lambda timed: timed[0]):
                    await world.sleep_until(slot, second)
                    await happen(world, *event)
            await world.sleep_until(len(slots) + 3, 1.0)
            await world.recover(_RECOVERY)
            world.replay_all(disturbed)

    run_virtually(story)


@settings(PATIENT, max_examples=examples(12))
@given(stories(COMMON))
def test_servers_whose_disks_fail_and_links_break(files: dict[int, Path], slots: list[list[Event]]) -> None:
    """At any server, while the network is revised; decisions are made only where they are asked for, at the end."""
    tell_story(files[3], slots, NAMES)


@settings(PATIENT, max_examples=examples(12))
@given(stories(OF_A))
@example([[(0.9, ("ahead", "a", 6))], [], [(0.3, ("back", "a")), (0.9, ("fault", "a", "kill after", 0))], []])
def test_old_copies_wrong_clocks_and_decisions(files: dict[int, Path], slots: list[list[Event]]) -> None:
    """At one server, whose two neighbours remember what it said: no sample is spent twice, whatever its operator does
    to its folder and its clock."""
    tell_story(files[3], slots, "a")
