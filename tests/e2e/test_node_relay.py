"""Five live nodes in a ring over Zenoh that pass records on: what the simulator computes, also after a kill."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.config import load_network
from dpcrowd.node.release import SlotRelease
from dpcrowd.sampling.schedule import samples_due
from dpcrowd.schemes.base import Release
from node_support_relay import facts_of, simulate
from node_support_ring import NAMES, ChildNode, RingNode, ring_counts, stored_releases, write_ring
from schemes_support import bits

LAG, ABSENCE, TRIES = 12, 10, 4
KILLED, AWAY = 3, 2  # neighbours: the three that stay are linked
LEAVES, DIES, SLOTS = 3, 6, 20  # after these slots; the number of slots
FACTS = facts_of(lag=LAG)
COUNTS = ring_counts(LAG)


@dataclass
class Story:
    """What five nodes have done.

    releases  by server, by slot
    late      by server: slots of records that arrived after the node had released their slot
    unfed     by server: slots whose counts came too late
    back      by server: the first slot that it has released after its return
    """

    releases: list[dict[int, SlotRelease]]
    late: list[set[int]]
    unfed: list[set[int]]
    back: dict[int, int]

    @property
    def sampled(self) -> NDArray[np.bool_]:
        """Who has sampled when, (slots, servers)."""
        rows = [[slot in kept and kept[slot].sampled for kept in self.releases] for slot in range(SLOTS)]
        return np.array(rows, dtype=np.bool_)


async def _run(files: dict[str, Path]) -> Story:
    paths = list(files.values())
    nodes = {number: RingNode(paths[number], number, COUNTS, vouched=True) for number in range(5) if number != KILLED}
    child = ChildNode(paths[KILLED], KILLED, LAG, vouched=True)
    late: list[set[int]] = [set() for _ in NAMES]
    unfed = late.copy()
    try:
        await nodes[AWAY].released(LEAVES)
        before = await nodes[AWAY].estimates(0, SLOTS)
        await nodes.pop(AWAY).end()
        await nodes[0].released(DIES)
        child.kill()
        child = ChildNode(paths[KILLED], KILLED, LAG)
        await nodes[0].released(LEAVES + ABSENCE)
        nodes[AWAY] = RingNode(paths[AWAY], AWAY, COUNTS)
        for node in nodes.values():
            await node.released(SLOTS - 1)
        releases = [await nodes[number].estimates(0, SLOTS) if number in nodes else {} for number in range(5)]
        releases[AWAY] |= before
    finally:
        for number, node in nodes.items():
            late[number], unfed[number] = node.late, node.unfed
            await node.end()
        late[KILLED], unfed[KILLED] = await asyncio.to_thread(child.end)
    releases[KILLED] = stored_releases(paths[KILLED])
    back = {
        number: min((slot for slot in releases[number] if slot > last), default=SLOTS)
        for number, last in ((AWAY, LEAVES), (KILLED, DIES))
    }
    return Story(releases, late, unfed, back)


def _unexpected(story: Story, offsets: NDArray[np.int64]) -> set[int]:
    """Return slots with a record that nobody waits for, so that others may have released the slot before it came.

    They are those of the first sample of a server that was away, and of samples that its public schedule does not say.
    """
    slots, unexpected = np.arange(SLOTS), {DIES + 1, DIES + 2}  # what was stored and not sent leaves after the restart
    for number, back in story.back.items():
        due = samples_due(slots, FACTS.samples, FACTS.guarantee.length, offsets[number])
        later = np.flatnonzero(story.sampled[:, number] & (slots >= back)).tolist()
        unexpected |= {*later[:1], *(slot for slot in later if not due[slot])}
    return unexpected


def _compared(story: Story, number: int, uncertain: set[int]) -> list[int]:
    """Return slots in which a server has to release what the simulator computes: within two slots of its return."""
    first = story.back.get(number, LEAVES - 1) + 2
    return [slot for slot in sorted(story.releases[number]) if slot not in uncertain and not LEAVES < slot < first]


def _is_punctual(story: Story, uncertain: set[int]) -> bool:
    """Whether this machine was fast enough: all was counted, and every record there before its slot was released."""
    uncounted = [(slot, number) for number in range(5) for slot in story.unfed[number] if slot < SLOTS]
    if max(story.back.values()) > SLOTS - 4 or any(story.sampled[place] for place in uncounted):
        return False
    return not any(story.late[number] & set(_compared(story, number, uncertain)) for number in range(5))


def _same(mine: SlotRelease, theirs: Release, number: int) -> bool:
    both = zip((mine.estimate, mine.variance), (theirs.estimate, theirs.variance), strict=True)
    return all(bits(one) == bits(other[number]) for one, other in both)


def test_a_ring_over_zenoh_releases_what_the_simulator_computes(tmp_path: Path) -> None:
    """Whatever is delivered at last counts: one server is away for ten slots, another is killed meanwhile.

    If this broke, no simulated figure of relay would say anything about a network that runs.
    """
    for attempt in range(TRIES):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        files = write_ring(folder, LAG, lead=8, slot="1s", grace="100ms", deadline="850ms")
        story = asyncio.run(_run(files))
        offsets = np.array(load_network(folder / "network.toml").offsets, dtype=np.int64)
        uncertain = _unexpected(story, offsets)
        if _is_punctual(story, uncertain):
            break
    else:
        raise AssertionError(
            f"this machine is too slow for slots of a second: {story.late}, {story.unfed}, {story.back}"
        )
    batch = simulate(replace(FACTS, phases=offsets), COUNTS[:SLOTS], sampled=story.sampled)
    for number in range(5):
        compared = _compared(story, number, uncertain)
        assert len(compared) >= (SLOTS - len(uncertain) if number not in story.back else 5)
        different = [slot for slot in compared if not _same(story.releases[number][slot], batch[slot], number)]
        assert not different, (number, story.back, uncertain)
    assert LEAVES + ABSENCE < story.back[AWAY] <= LEAVES + ABSENCE + 3
    for number in (AWAY, KILLED):
        assert max(_compared(story, number, uncertain)) >= SLOTS - 2, "with all that it has missed"
    assert story.sampled[: LEAVES + 1, AWAY].any()
    assert story.sampled[DIES:, KILLED].any(), "a killed server samples again"
