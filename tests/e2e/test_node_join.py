"""Late join over real links: a node that was away for long, one with a new folder, and neighbours that disagree."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.recording.replay import replay
from dpcrowd.schemes.server import Joined
from dpcrowd.schemes.snapshot import from_bytes, to_bytes
from node_support_live import live, write_network
from node_support_relay import counts_of, facts_of
from relay_support import KnownNoise
from schemes_support import bits

LAG, SECOND = 3, 1_000_000_000
NAMES = [f"server-{number}" for number in range(5)]
FACTS = facts_of(lag=LAG)
COUNTS = counts_of(FACTS, 200)
AWAY, EMPTIED, LIAR = 2, 3, 4


async def _feed(node: LiveNode, number: int) -> None:
    """Each slot's counts, given while it is open."""
    slot = max(node.clock.slot_of(time.time_ns()), 0)
    while True:
        while time.time_ns() < node.clock.opens(slot):
            await asyncio.sleep(0.02)
        counts = {region: int(count) for region, count in enumerate(COUNTS[slot, number])}
        await node.take_counts(slot, counts, time.time_ns())
        slot += 1


class _Running:
    """One node, from its start to its end."""

    def __init__(self, path: Path, number: int) -> None:
        self._opened = ExitStack()
        self.node = self._opened.enter_context(live(path, KnownNoise(5, 3, number)))
        self._stop = asyncio.Event()
        self._tasks = [asyncio.create_task(self.node.run(self._stop)), asyncio.create_task(_feed(self.node, number))]

    @property
    def joined(self) -> Joined | None:
        return self.node.executor.machine.server.joined

    @property
    def last(self) -> int:
        return -1 if self.node.executor.last is None else self.node.executor.last.slot

    async def end(self) -> None:
        self._tasks[1].cancel()
        self._stop.set()
        await asyncio.wait(self._tasks, timeout=20)
        self._opened.close()

    async def released(self, slot: int) -> None:
        deadline = self.node.clock.closes(slot) + 30 * SECOND
        while self.last < slot:
            assert time.time_ns() < deadline, f"slot {slot} is not released"
            assert not self._tasks[0].done(), "a node stopped"
            await asyncio.sleep(0.05)

    async def estimates(self, first: int, last: int) -> dict[int, Any]:
        return {one.slot: one for one in await self.node.estimates(first, last, None, 100)}


async def _run(files: dict[str, Path], folder: Path) -> None:
    running = [_Running(path, number) for number, path in enumerate(files.values())]
    try:
        for one in running:
            one.node.executor.machine.trust.vouched = True  # nobody could have spoken before the first slot
        await running[0].released(LAG + 1)
        for number in (AWAY, EMPTIED):
            await running[number].end()
        shutil.rmtree(folder / f"data-{NAMES[EMPTIED]}")
        back = running[0].last + LAG + 1
        await running[0].released(back)
        for number in (AWAY, EMPTIED):
            path = files[NAMES[number]]
            path.write_text(f'{path.read_text()}\n[debug]\nrecord = "{path.stem}.recording"\n')
            running[number] = _Running(path, number)
        first = back + 3
        for one in running:
            await one.released(first + 3)
        await _compare(running, first, first + 3)
        for number in (AWAY, EMPTIED):
            joined, status = running[number].joined, await running[number].node.network()
            assert joined is not None
            assert back <= joined.slot <= back + 2, "within two slots"
            assert status.joined_from == list(joined.sources) != []
            assert status.joined_slot == joined.slot
        await _disagree(running, files, folder)
    finally:
        for one in running:
            await one.end()


async def _compare(running: list[_Running], first: int, last: int) -> None:
    """All release the same bits.

    Where a server that has come back samples out of turn, others may have its record one slot later than it has.
    """
    kept = [await one.estimates(first, last) for one in running]
    same = [slot for slot in range(first, last + 1) if len({bits(one[slot].estimate) for one in kept}) == 1]
    moved = [slot for slot in range(first, last + 1) if kept[AWAY][slot].sampled]
    assert set(range(first, last + 1)) - set(same) <= set(moved)
    assert same


async def _disagree(running: list[_Running], files: dict[str, Path], folder: Path) -> None:
    """One of the two neighbours of a node with a new folder sends what is not true."""
    server: Any = running[LIAR].node.executor.machine.server
    honest = server.finalised_state

    def lie() -> bytes:
        arrays = from_bytes(honest())
        return to_bytes(arrays | {name: np.asarray(arrays[name] + 1000.0) for name in ("base", "level")})

    await running[EMPTIED].end()
    shutil.rmtree(folder / f"data-{NAMES[EMPTIED]}")
    server.finalised_state = lie
    running[EMPTIED] = _Running(files[NAMES[EMPTIED]], EMPTIED)
    await running[EMPTIED].released(running[0].last + 3)
    assert running[EMPTIED].joined is None
    status = await running[EMPTIED].node.network()
    assert status.join_disagreement == [NAMES[AWAY], NAMES[LIAR]]


def test_nodes_that_lost_the_past_join_over_zenoh(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a neighbour's state they would release estimates of their own for good, and nobody would know why."""
    caplog.set_level(logging.INFO)
    files = write_network(
        tmp_path,
        {name: float(FACTS.shares[number]) for number, name in enumerate(NAMES)},
        [(NAMES[number], NAMES[(number + 1) % 5]) for number in range(5)],
        epoch_ns=(time.time_ns() // SECOND + 6) * SECOND,
        regions=["north", "east", "south"],
        guarantee={"kind": "window", "length": 8, "epsilon": "3"},
        scheme={"name": "relay", "process_var": 400.0, "observation": "binomial", "samples": 3, "lag": LAG},
    )
    asyncio.run(_run(files, tmp_path))
    for number, lives in ((AWAY, 1), (EMPTIED, 2)):
        replayed = replay(tmp_path / f"{NAMES[number]}.recording")
        assert replayed.difference is None, "a recording shows how a server has joined"
        assert replayed.lives == lives
    events = [getattr(record, "event", "") for record in caplog.records]
    assert events.count("joined") == 2
    reports = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "join-disagreement"]
    assert 1 <= len(reports) <= 2, "it asks again after the lag"
    assert all(NAMES[LIAR] in report and NAMES[AWAY] in report for report in reports)
