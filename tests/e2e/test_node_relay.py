"""Five live nodes in a ring over Zenoh that pass records on: what the simulator computes, also after a kill."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.node.config import load_network
from dpcrowd.node.live.node import LiveNode
from node_support_live import live, write_network
from node_support_relay import counts_of, facts_of, simulate
from relay_support import KnownNoise
from schemes_support import bits

COMPARED, SLOTS, TRIES = 5, 10, 4
SECOND = 1_000_000_000
NAMES = [f"server-{number}" for number in range(5)]
FACTS = facts_of()
COUNTS = counts_of(FACTS, SLOTS)
AWAY = 2


async def _feed(node: LiveNode, number: int) -> None:
    """Each slot's counts, given while it is open."""
    clock = node.clock
    for slot in range(max(clock.slot_of(time.time_ns()), 0), SLOTS):
        while time.time_ns() < clock.opens(slot):
            await asyncio.sleep(0.02)
        counts = {region: int(count) for region, count in enumerate(COUNTS[slot, number])}
        await node.take_counts(slot, counts, time.time_ns())


class _Running:
    """One node, from its start to its end."""

    def __init__(self, path: Path, number: int) -> None:
        self._opened = ExitStack()
        self.node = self._opened.enter_context(live(path, KnownNoise(5, 3, number)))
        self._stop = asyncio.Event()
        self._tasks = [asyncio.create_task(self.node.run(self._stop)), asyncio.create_task(_feed(self.node, number))]

    async def end(self) -> None:
        self._tasks[1].cancel()
        self._stop.set()
        await asyncio.wait(self._tasks, timeout=20)
        self._opened.close()

    async def released(self, slot: int) -> None:
        deadline = self.node.clock.closes(slot) + 30 * SECOND
        while self.node.executor.last is None or self.node.executor.last.slot < slot:
            assert time.time_ns() < deadline, f"slot {slot} is not released"
            assert not self._tasks[0].done(), "a node stopped"
            await asyncio.sleep(0.05)


async def _run(files: dict[str, Path]) -> tuple[list[list[Any]], list[Any], list[int]]:
    """The first releases of all nodes, the last ones, and how many were late or refused by each."""
    running = [_Running(path, number) for number, path in enumerate(files.values())]
    try:
        for one in running:
            one.node.executor.machine.trust.vouched = True  # nobody could have spoken before the first slot
        for one in running:
            await one.released(COMPARED - 1)
        first = [list(await one.node.estimates(0, COMPARED - 1, None, 100)) for one in running]
        await running[AWAY].end()
        await running[0].released(COMPARED + 1)
        running[AWAY] = _Running(files[NAMES[AWAY]], AWAY)
        for one in running:
            await one.released(SLOTS - 1)
        last = [one.node.executor.last for one in running]
        refused = [sum(one.node.executor.refused.values()) for one in running]
    finally:
        for one in running:
            await one.end()
    return first, last, refused


def test_a_ring_over_zenoh_releases_what_the_simulator_computes(tmp_path: Path) -> None:
    """If this broke, no simulated figure of relay would say anything about a network that runs."""
    outcome, folder = None, tmp_path
    for attempt in range(TRIES):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        files = write_network(
            folder,
            {name: float(FACTS.shares[number]) for number, name in enumerate(NAMES)},
            [(NAMES[number], NAMES[(number + 1) % 5]) for number in range(5)],
            epoch_ns=(time.time_ns() // SECOND + 6) * SECOND,
            regions=["north", "east", "south"],
            guarantee={"kind": "window", "length": 8, "epsilon": "3"},
            scheme={"name": "relay", "process_var": 400.0, "observation": "paper", "samples": 3, "lag": 5},
        )
        outcome = asyncio.run(_run(files))
        if not any(outcome[2]):
            break
    assert outcome is not None
    network = load_network(folder / "network.toml")
    facts = replace(FACTS, phases=np.array(network.offsets, dtype=np.int64))
    batch = simulate(facts, COUNTS[:COMPARED])
    for number, kept in enumerate(outcome[0]):
        assert [release.slot for release in kept] == list(range(COMPARED))
        for mine, theirs in zip(kept, batch, strict=True):
            assert bits(mine.estimate) == bits(theirs.estimate[number]), (number, mine.slot)
            assert mine.sampled == bool(theirs.sampled[number].any())
    assert {release.slot for release in outcome[1]} == {SLOTS - 1}
    assert len({bits(release.estimate) for release in outcome[1]}) == 1, (
        "the one that was away has what the others have"
    )
