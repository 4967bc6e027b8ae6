"""A data folder that is deleted under a running node: it says so, and neither acknowledges nor pays any more."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dpcrowd.node.collect import IntakeRefused
from node_support_pair import SetClock, last_slot, pair_of_nodes, run, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="other systems do not let go of a file that is open")

EVERY_SLOT = {"name": "dpcrowd-w", "process_var": 100.0, "sampling": "fixed", "interval": 1}


@pytest.mark.parametrize("part", ["", "dpcrowd.db"])
def test_a_node_whose_folder_is_deleted_says_so_and_pays_nothing(part: str, tmp_path: Path) -> None:
    """It used to say that it is ready, and to pay into a file which the next start does not find."""

    async def scenario() -> None:
        clock = SetClock()
        async with pair_of_nodes(tmp_path, clock, length=100, scheme=EVERY_SLOT) as (a, b):
            await until(lambda: all(node._storage.ledger.counter() > 1 for node in (a, b)), "no samples")
            gone = tmp_path / "data-a" / part
            shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
            await until(lambda: not a.ready()[0], "nobody noticed")
            paid, slot = a._storage.ledger.counter(), a.clock.slot_of(clock.now())
            assert any("deleted or moved away while the node was running" in problem for problem in a.ready()[1])
            with pytest.raises(IntakeRefused, match="while the node was running") as refused:
                await a.take_counts(slot, {0: 5}, clock.now())
            assert refused.value.reason == "unavailable"
            await until(lambda: last_slot(a) > slot + 2, "it does not even estimate from its neighbour")
            assert a.executor.machine.trust.counter == paid == a._storage.ledger.counter()
            assert not a.ready()[0], "it stays so"
            assert b.executor.machine.trust.counter > paid, "its neighbour goes on"

    run(scenario)
