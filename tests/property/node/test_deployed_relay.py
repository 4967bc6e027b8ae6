"""Relay on the deployed path: state machine, shell, account and storage together, on real SQLite files.

As in `test_deployed`, whatever fails: nobody tells more than was promised, no slot is drawn twice, nothing leaves that
is not paid for and stored, everything that happened gives the same instructions when it is replayed. And in the end all
servers release the same bits, since all of them have the same records.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from node_support_deployed import RELAY, World, make_files
from node_support_virtual import VirtualLoop, run_virtually

pytestmark = pytest.mark.slow

FIVE = ("a", "b", "c", "d", "e")
RING = [*pairwise(FIVE), ("e", "a")]


@pytest.fixture(scope="module")
def files() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield make_files(Path(folder) / "ring", FIVE, scheme=RELAY, links=RING)


def test_a_ring_agrees(files: Path) -> None:
    """Five servers, of which nobody hears more than two, release the same bits in every slot."""

    async def story(loop: VirtualLoop) -> None:
        async with World(files, loop, FIVE) as world:
            await world.sleep_until(12, 1.0)
            lasts = [world.lives[name].live.executor.last for name in FIVE]
            world.replay_all()
            assert len({(last.slot, last.estimate.tobytes()) for last in lasts if last is not None}) == 1, lasts
            assert all(len(world.spent[name]) >= 2 for name in FIVE)
        assert not world.refused

    run_virtually(story)
