"""The same inputs, seeds and links through the simulator and through live nodes over Zenoh: the same releases."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.node.config import load_network
from dpcrowd.node.live.node import LiveNode
from dpcrowd.schemes.registry import make_scheme
from node_support_live import live, write_network
from schemes_support import World, bits, make_world, play

SLOTS, SERVERS, TRIES = 5, 4, 4
SECOND = 1_000_000_000
CASES: list[tuple[str, int, dict[str, Any], dict[str, Any]]] = [
    ("dpcrowd", 1, {"kind": "finite", "length": 1000, "epsilon": "300"}, {"observation": "paper"}),
    # Filters that learn, and pilots that choose the slots: both are in every message.
    ("dpcrowd-plus", 3, {"kind": "window", "length": 8, "epsilon": "3"}, {"observation": "binomial", "learn": True}),
]


async def _feed(node: LiveNode, number: int, world: World) -> None:
    """Each slot's counts, given while it is open."""
    clock = node.clock
    for slot in range(SLOTS):
        while time.time_ns() < clock.opens(slot):
            await asyncio.sleep(0.02)
        counts = {region: int(count) for region, count in enumerate(world.counts[slot, number])}
        await node.take_counts(slot, counts, time.time_ns())


async def _run(files: dict[str, Path], world: World) -> list[list[Any]] | None:
    """What each node published; None if the machine was too slow for the slots, so that a message came late."""
    stop = asyncio.Event()
    with ExitStack() as opened:
        nodes = [
            opened.enter_context(live(path, world.noise(only=number))) for number, path in enumerate(files.values())
        ]
        for node in nodes:
            node.executor.machine.trust.vouched = True  # nobody could have spoken before the first slot
        running = [asyncio.create_task(node.run(stop)) for node in nodes]
        feeding = [asyncio.create_task(_feed(node, number, world)) for number, node in enumerate(nodes)]
        deadline = nodes[0].clock.closes(SLOTS) + 60 * SECOND
        while any(node.executor.last is None or node.executor.last.slot < SLOTS - 1 for node in nodes):
            assert time.time_ns() < deadline, "the nodes did not finish their slots"
            assert not any(task.done() for task in running), "a node stopped"
            await asyncio.sleep(0.05)
        await asyncio.gather(*feeding)
        kept = [list(await node.estimates(0, SLOTS - 1, None, 100)) for node in nodes]
        in_time = all(
            stored.heard == len(node.revision.neighbours(node.config.server, stored.slot))
            for node in nodes
            for stored in node._storage.releases.between(0, time.time_ns())
        )
        stop.set()
        await asyncio.wait_for(asyncio.gather(*running), 20)
    return kept if in_time else None


def _write(
    folder: Path,
    world: World,
    scheme: str,
    names: list[str],
    links: list[tuple[str, str]],
    regions: int,
    guarantee: dict[str, Any],
    settings: dict[str, Any],
) -> dict[str, Path]:
    return write_network(
        folder,
        {name: float(world.shares[number, 0]) for number, name in enumerate(names)},
        links,
        epoch_ns=(time.time_ns() // SECOND + 3) * SECOND,
        regions=[f"region {number}" for number in range(regions)],
        guarantee={**guarantee, "servers_per_slot": 4},
        scheme={"name": scheme, "process_var": 200.0, "beta": world.gain, **settings},
    )


@pytest.mark.parametrize(("name", "regions", "guarantee", "settings"), CASES)
def test_live_nodes_release_what_the_simulator_computes(
    name: str, regions: int, guarantee: dict[str, Any], settings: dict[str, Any], tmp_path: Path
) -> None:
    """If this broke, no simulated figure would say anything about a network that runs."""
    world = make_world(3, SERVERS, regions, SLOTS)
    graph = world.graph(0)
    names = [f"server-{number}" for number in range(SERVERS)]
    links = [(names[a], names[int(b)]) for a in range(SERVERS) for b in graph.neighbours(a) if a < int(b)]
    released, folder = None, tmp_path
    for attempt in range(TRIES):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        files = _write(folder, world, name, names, links, regions, guarantee, settings)
        released = asyncio.run(_run(files, world))
        if released is not None:
            break
    assert released is not None, "this machine is too slow for slots of two seconds"
    network = load_network(folder / "network.toml")
    setting = replace(network.setting(names[0]), servers=SERVERS)
    batch = play(make_scheme(name), setting, world)
    for number, kept in enumerate(released):
        assert [release.slot for release in kept] == list(range(SLOTS))
        for mine, theirs in zip(kept, batch, strict=True):
            assert bits(mine.estimate) == bits(theirs.estimate[number]), (number, mine.slot)
            assert [bits(bound) for bound in mine.interval] == [bits(bound[number]) for bound in theirs.interval]
            assert mine.sampled == bool(theirs.sampled[number].any())
    assert any(release.sampled.any() for release in batch[1:]), "more than one sample was compared"
    assert np.isfinite(batch[-1].estimate).all()
