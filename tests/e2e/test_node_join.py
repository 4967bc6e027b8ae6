"""Late join over real links: a node that was away for long, one with a new folder, and neighbours that disagree."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.node.recording.replay import replay
from dpcrowd.schemes.snapshot import from_bytes, to_bytes
from node_support_ring import NAMES, RingNode, ring_counts, write_ring
from schemes_support import bits

LAG = 3
COUNTS = ring_counts(LAG)
AWAY, EMPTIED, LIAR = 2, 3, 4


async def _run(files: dict[str, Path], folder: Path) -> int:
    """Let servers join; return how often one had to begin anew until both neighbours had answered in time."""
    running = [RingNode(path, number, COUNTS, vouched=True) for number, path in enumerate(files.values())]
    try:
        await running[0].released(LAG + 1)
        for number in (AWAY, EMPTIED):
            await running[number].end()
        shutil.rmtree(folder / f"data-{NAMES[EMPTIED]}")
        back = running[0].last + LAG + 1
        await running[0].released(back)
        for number in (AWAY, EMPTIED):
            path = files[NAMES[number]]
            path.write_text(f'{path.read_text()}\n[debug]\nrecord = "{path.stem}.recording"\n')
            running[number] = RingNode(path, number, COUNTS)
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
        return await _disagree(running, files, folder)
    finally:
        for one in running:
            await one.end()


async def _compare(running: list[RingNode], first: int, last: int) -> None:
    """All release the same bits.

    Where a server that has come back samples out of turn, others may have its record one slot later than it has.
    """
    kept = [await one.estimates(first, last) for one in running]
    same = [slot for slot in range(first, last + 1) if len({bits(one[slot].estimate) for one in kept}) == 1]
    moved = [slot for slot in range(first, last + 1) if kept[AWAY][slot].sampled]
    assert set(range(first, last + 1)) - set(same) <= set(moved)
    assert same


async def _disagree(running: list[RingNode], files: dict[str, Path], folder: Path) -> int:
    """One of the two neighbours of a node with a new folder sends what is not true.

    On a busy machine the link to it may come up after the other one has answered, whose word is then taken alone: the
    node begins anew. Returns how often that was so.
    """
    server: Any = running[LIAR].node.executor.machine.server
    honest = server.finalised_state

    def lie() -> bytes:
        arrays = from_bytes(honest())
        return to_bytes(arrays | {name: np.asarray(arrays[name] + 1000.0) for name in ("base", "level")})

    server.finalised_state = lie
    again = 0
    while True:
        await running[EMPTIED].end()
        shutil.rmtree(folder / f"data-{NAMES[EMPTIED]}")
        running[EMPTIED] = RingNode(files[NAMES[EMPTIED]], EMPTIED, COUNTS)
        await running[EMPTIED].released(running[0].last + 3)
        if running[EMPTIED].joined is None or again == 2:
            break
        again += 1
    assert running[EMPTIED].joined is None
    status = await running[EMPTIED].node.network()
    assert status.join_disagreement == [NAMES[AWAY], NAMES[LIAR]]
    return again


def test_nodes_that_lost_the_past_join_over_zenoh(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a neighbour's state they would release estimates of their own for good, and nobody would know why."""
    caplog.set_level(logging.INFO)
    files = write_ring(tmp_path, LAG, observation="binomial")
    again = asyncio.run(_run(files, tmp_path))
    for number, lives in ((AWAY, 1), (EMPTIED, 2 + again)):
        replayed = replay(tmp_path / f"{NAMES[number]}.recording")
        assert replayed.difference is None, "a recording shows how a server has joined"
        assert replayed.lives == lives
    events = [getattr(record, "event", "") for record in caplog.records]
    assert events.count("joined") == 2 + again
    reports = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "join-disagreement"]
    assert 1 <= len(reports) <= 2, "it asks again after the lag"
    assert all(NAMES[LIAR] in report and NAMES[AWAY] in report for report in reports)
