"""Five live nodes in a ring over Zenoh that pass records on, with known counts and noise, as the simulator has them.

A node runs in this process, or in one of its own that can be killed (`python node_support_ring.py FILE …`).
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.collect import IntakeRefused
from dpcrowd.node.config import load_pair
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.storage import Storage
from dpcrowd.schemes.server import Joined
from node_support_live import live, write_network
from node_support_relay import counts_of, facts_of
from relay_support import KnownNoise

__all__ = ["NAMES", "ChildNode", "RingNode", "ring_counts", "stored_releases", "write_ring"]

SECOND = 1_000_000_000
NAMES = [f"server-{number}" for number in range(5)]
_REGIONS = ["north", "east", "south"]
_SLOTS = 200


def ring_counts(lag: int) -> NDArray[np.int64]:
    """Return the counts of all servers, (slots, servers, regions), the same in every process."""
    return counts_of(facts_of(lag=lag), _SLOTS)


def write_ring(folder: Path, lag: int, *, observation: str = "paper", lead: int = 6, **times: str) -> dict[str, Path]:
    """Write the files of a ring whose first slot opens in `lead` seconds; `times` as in `write_network`."""
    facts = facts_of(lag=lag)
    return write_network(
        folder,
        {name: float(facts.shares[number]) for number, name in enumerate(NAMES)},
        [(NAMES[number], NAMES[(number + 1) % 5]) for number in range(5)],
        epoch_ns=(time.time_ns() // SECOND + lead) * SECOND,
        regions=_REGIONS,
        guarantee={"kind": "window", "length": 8, "epsilon": "3"},
        scheme={"name": "relay", "process_var": 400.0, "observation": observation, "samples": 3, "lag": lag},
        **times,
    )


class RingNode:
    """One node, from its start to its end.

    late   slots of records that have arrived after the node had released their slot
    unfed  slots whose counts came too late
    """

    def __init__(self, path: Path, number: int, counts: NDArray[np.int64], *, vouched: bool = False) -> None:
        self._opened = ExitStack()
        self.node = self._opened.enter_context(live(path, KnownNoise(5, 3, number)))
        self.late: set[int] = set()
        self.unfed: set[int] = set()
        if vouched:  # nobody could have spoken before the first slot
            self.node.executor.machine.trust.vouched = True
        self._note_late()
        self._stop = asyncio.Event()
        feeding = asyncio.create_task(self._feed(number, counts))
        self._tasks = [asyncio.create_task(self.node.run(self._stop)), feeding]

    async def _feed(self, number: int, counts: NDArray[np.int64]) -> None:
        """Give the counts of each slot while it is open."""
        clock = self.node.clock
        for slot in range(max(clock.slot_of(time.time_ns()), 0), len(counts)):
            while time.time_ns() < clock.opens(slot):
                await asyncio.sleep(0.02)
            of_slot = {region: int(count) for region, count in enumerate(counts[slot, number])}
            try:
                await self.node.take_counts(slot, of_slot, time.time_ns())
            except IntakeRefused:  # a machine that is busy with something else
                self.unfed.add(slot)

    def _note_late(self) -> None:
        meter: Any = self.node.executor._meter
        arrived = meter.records_arrived

        def note(slots: Sequence[int], at_ns: int, view: Any) -> None:
            self.late.update(slot for slot in slots if slot <= self.last)
            arrived(slots, at_ns, view)

        meter.records_arrived = note

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

    async def estimates(self, first: int, last: int) -> dict[int, SlotRelease]:
        return {one.slot: one for one in await self.node.estimates(first, last, None, 100)}


class ChildNode:
    """A node in a process of its own."""

    def __init__(self, path: Path, number: int, lag: int, *, vouched: bool = False) -> None:
        words = [str(path), str(number), str(lag), str(int(vouched))]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def kill(self) -> None:
        """End the process as a crash of the machine would: nothing is closed."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def end(self) -> tuple[set[int], set[int]]:
        """Let the node end; return `late` and `unfed` of `RingNode`."""
        text, _ = self._process.communicate(b"\n", timeout=60)
        late, unfed = json.loads(text)
        return set(late), set(unfed)


async def _run_child(path: Path, number: int, lag: int, vouched: bool) -> None:
    node = RingNode(path, number, ring_counts(lag), vouched=vouched)
    await asyncio.to_thread(sys.stdin.readline)  # the parent says when it is over, or has ended
    await node.end()
    print(json.dumps([sorted(node.late), sorted(node.unfed)]))


def stored_releases(path: Path) -> dict[int, SlotRelease]:
    """Return what a node that has ended released, by slot."""
    node, network = load_pair(path)
    with Storage.open(node.data, network_id=network.id) as storage:
        return {one.slot: one for one in storage.releases.between(0, time.time_ns())}


if __name__ == "__main__":
    asyncio.run(_run_child(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1"))
