"""Check-ins between the API and the seal: races with the clock, with the disk and with other slots, and restarts."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.node.collect import IntakeRefused
from dpcrowd.node.ingest.batch import ARRIVAL, Batch
from dpcrowd.node.live.intake import Intake
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage.journal import Journal
from node_support_storage import EPOCH, LENGTH, SECOND, copy_files, open_storage, opens

NORTH, SOUTH = ["north", "south"], ["south", "north"]
CLOCK = SlotClock(EPOCH, LENGTH)
SECONDS = 20


class Hands:
    """The clock's, the disk's: `now` is set by the test, `hold` makes the next write wait until `let_go`."""

    def __init__(self, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = opens(0)
        self.grace = dict.fromkeys(range(-1, 20), 0)
        self._held: threading.Event | None = None
        self.arrived = threading.Event()
        write = journal.append_all

        def slow(batches: Sequence[tuple[int, bytes]]) -> set[int]:
            held, self._held = self._held, None
            if held is not None:
                self.arrived.set()
                assert held.wait(SECONDS)
            return write(batches)

        monkeypatch.setattr(journal, "append_all", slow)

    def hold(self) -> Callable[[], None]:
        self.arrived.clear()
        self._held = threading.Event()
        return self._held.set

    async def writing(self) -> None:
        assert await asyncio.to_thread(self.arrived.wait, SECONDS)


class Bench:
    """An intake over a real journal."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, regions: list[str], capacity: int) -> None:
        self.storage = open_storage(folder)
        self.journal = self.storage.journal
        self.hands = Hands(self.journal, monkeypatch)
        self.intake = Intake(
            self.journal,
            CLOCK,
            grace_of=lambda slot: self.hands.grace[slot],
            future_ns=LENGTH,
            capacity=capacity,
            now=lambda: self.hands.now,
        )
        self.intake.learn(regions)

    def seal(self, slot: int, regions: Sequence[str] = NORTH) -> list[int]:
        """As a node does: the counts first, and then the check-ins are forgotten."""
        counts = self.intake.seal(slot, regions)
        assert counts is not None
        self.journal.forget_before(opens(slot + 1))
        return [int(count) for count in counts]

    async def seal_from_disk(self, slot: int, regions: Sequence[str] = NORTH) -> list[int]:
        """Likewise, for a slot with more users than memory holds."""
        assert self.intake.seal(slot, regions) is None
        counts = await self.intake.count_journal(slot, regions)
        self.journal.forget_before(opens(slot + 1))
        return [int(count) for count in counts]


@contextmanager
def bench(
    folder: Path, monkeypatch: pytest.MonkeyPatch, regions: list[str] = NORTH, capacity: int = 100
) -> Iterator[Bench]:
    made = Bench(folder, monkeypatch, regions, capacity)
    with made.storage:
        yield made


def rows(*users: str, region: int = 0, times: list[int] | None = None) -> Batch:
    moments = None if times is None else np.array(times, dtype=np.int64)
    return Batch([user.encode() for user in users], [region] * len(users), moments)


def run(story: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(story, SECONDS))


def test_a_check_in_that_was_counted_before_the_seal_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no grace a seal falls between counting and writing: the sender would be told that the node had failed."""
    with bench(tmp_path, monkeypatch) as made:

        async def story() -> None:
            await made.intake.take_checkins(rows("ann"), opens(0))
            let_go = made.hands.hold()
            sent = [asyncio.create_task(made.intake.take_checkins(rows(user), opens(1) - 1)) for user in ("bob", "eve")]
            counts = asyncio.create_task(made.intake.take_counts(1, {0: 9}, opens(1)))
            await made.hands.writing()
            assert made.seal(0) == [3, 0]
            let_go()
            await asyncio.gather(*sent, counts)  # nobody fails, not the other slot either
            assert made.journal.pending() == [opens(1)]
            assert made.seal(1) == [9, 0]

        run(story())


def test_a_check_in_of_a_slot_that_was_passed_over_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a jump of the clock a slot is closed without being counted: acknowledging its check-ins would be a lie."""
    with bench(tmp_path, monkeypatch) as made:

        async def story() -> None:
            let_go = made.hands.hold()
            sent = asyncio.create_task(made.intake.take_checkins(rows("ann"), opens(0)))
            await made.hands.writing()
            other = asyncio.create_task(made.intake.take_checkins(rows("bob", times=[opens(3)]), opens(3)))
            assert made.seal(2) == [0, 0]
            let_go()
            assert await sent == [(0, "late")]
            assert await other == []

        run(story())


def test_one_row_never_decides_about_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One late check-in in a batch of a thousand would remove a thousand people from the slot's counts."""
    with bench(tmp_path, monkeypatch) as made:
        made.hands.grace[0] = SECOND

        async def story() -> None:
            times = [opens(0), opens(1), opens(5), opens(-1), ARRIVAL, opens(1) + 5]
            people = rows("ann", "bob", "far", "old", "eve", "joe", times=times)
            assert await made.intake.take_checkins(people, opens(1)) == [(2, "future"), (3, "late")]
            alone = rows("old", times=[opens(-1)])
            assert await made.intake.take_checkins(alone, opens(1)) == [(0, "late")]
            assert made.seal(0) == [1, 0]
            assert made.seal(1) == [3, 0]

        run(story())


def test_rows_are_named_by_their_place_in_the_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that was left out while decoding shifts those behind it: the sender would correct the wrong ones."""
    with bench(tmp_path, monkeypatch) as made:
        times = np.array([opens(0), opens(-2), opens(0)], dtype=np.int64)
        body = Batch([b"ann", b"old", b"eve"], [0, 0, 1], times, [0, 3, 4], ((1, "user"), (2, "unknown-region")))
        refused = run(made.intake.take_checkins(body, opens(0)))
        assert refused == [(1, "user"), (2, "unknown-region"), (3, "late")]
        assert made.seal(0) == [1, 1]


def test_nobody_is_turned_away_for_lack_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that says "full" tells how many are there, and one more person displaces another."""
    with bench(tmp_path, monkeypatch, capacity=3) as made:

        async def story() -> None:
            for number in range(10):
                assert await made.intake.take_checkins(rows(f"user {number}"), opens(0)) == []
            assert await made.intake.take_checkins(rows("user 0", "user 9", region=1), opens(0)) == []
            copy_files(tmp_path, tmp_path.with_name("killed"))
            assert await made.seal_from_disk(0) == [8, 2]
            await made.intake.take_checkins(rows("ann"), opens(1))
            assert made.seal(1) == [1, 0]

        run(story())
    with bench(tmp_path.with_name("killed"), monkeypatch, SOUTH, capacity=3) as again:
        again.intake.restore(opens(0))
        assert run(again.seal_from_disk(0, ["north", "south"])) == [8, 2]


def test_a_check_in_that_is_being_written_is_counted_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count reads the journal: it has to wait for what is acknowledged while the slot is sealed."""
    with bench(tmp_path, monkeypatch, capacity=1) as made:

        async def story() -> None:
            await made.intake.take_checkins(rows("ann", "bob"), opens(0))
            let_go = made.hands.hold()
            sent = asyncio.create_task(made.intake.take_checkins(rows("eve"), opens(0)))
            await made.hands.writing()
            sealed = asyncio.create_task(made.seal_from_disk(0))
            await asyncio.sleep(0)
            let_go()
            assert await sealed == [3, 0]
            assert await sent == []

        run(story())


def test_load_is_shed_by_a_public_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a user is kept must depend on nothing but its own hash, and be decided anew in each slot."""
    with bench(tmp_path, monkeypatch, capacity=10_000) as made:
        monkeypatch.setattr(made.intake, "_keep_of", lambda slot: 0.25 if slot < 3 else 1.0)

        async def story() -> None:
            kept = []
            for slot in range(4):
                users = [f"user {number}" for number in range(2000)]
                assert await made.intake.take_checkins(rows(*users), opens(slot)) == []
                assert await made.intake.take_checkins(rows(*users, region=1), opens(slot)) == []
                size = sum(map(len, made.journal.batches(opens(slot))))
                north, south = made.seal(slot)
                assert north == 0, "all of a user's check-ins are kept, or none"
                assert 20 * 2 * south <= size <= 20 * 2 * south + 100, "the disk is spared, too"
                kept.append(south)
            assert kept[3] == 2000
            assert all(350 < number < 650 for number in kept[:3])  # 500 expected, a standard deviation of 19
            assert len(set(kept[:3])) > 1

        run(story())


def test_a_check_in_without_a_time_is_never_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a starved machine its slot may be over before it is looked at: it counts in the slot that is open then."""
    with bench(tmp_path, monkeypatch) as made:

        async def story() -> None:
            made.seal(0)
            made.hands.now = opens(4)
            assert await made.intake.take_checkins(rows("ann"), opens(0)) == []
            both = rows("bob", "eve", times=[ARRIVAL, opens(0)])
            assert await made.intake.take_checkins(both, opens(0)) == [(1, "late")]
            assert made.seal(4) == [2, 0]

        run(story())


def test_a_slot_that_is_sealed_while_its_key_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is fetched from the disk, and the seal does not wait for it."""
    with bench(tmp_path, monkeypatch) as made:
        make = made.journal.slot_key

        def key_and_seal(opens_ns: int) -> bytes:
            found = make(opens_ns)
            if opens_ns == opens(0):
                made.seal(0)
                made.hands.now = opens(1)
            return found

        monkeypatch.setattr(made.journal, "slot_key", key_and_seal)

        async def story() -> None:
            await made.intake.take_checkins(rows("ann"), opens(0))
            with pytest.raises(IntakeRefused) as refused:
                await made.intake.take_counts(0, {0: 5}, opens(0))
            assert refused.value.reason == "late"
            assert made.seal(1) == [1, 0]

        run(story())


def test_a_clock_that_was_set_back_says_to_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All slots that the clock could mean are sealed: not the sender's fault, and nothing that stays so."""
    with bench(tmp_path, monkeypatch) as made:
        made.seal(7)
        made.hands.now = opens(3)
        with pytest.raises(IntakeRefused) as refused:
            run(made.intake.take_checkins(rows("ann"), opens(3)))
        assert refused.value.reason == "unavailable"


def test_every_slot_has_the_grace_of_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revision may change the grace: an old slot must not be refused early, nor taken after its seal."""
    with bench(tmp_path, monkeypatch) as made:
        made.hands.grace |= {0: SECOND, 1: 3 * SECOND}

        async def taken(slot: int, at_ns: int) -> bool:
            refused = await made.intake.take_checkins(rows("ann", times=[opens(slot)]), at_ns)
            if refused:
                assert refused == [(0, "late")]
                with pytest.raises(IntakeRefused, match="sealed"):
                    await made.intake.take_counts(slot, {}, at_ns)
            else:
                await made.intake.take_counts(slot, {}, at_ns)
            return not refused

        async def story() -> None:
            assert await taken(0, opens(1) + SECOND - 1)
            assert not await taken(0, opens(1) + SECOND)
            assert await taken(1, opens(2) + 3 * SECOND - 1)
            assert not await taken(1, opens(2) + 3 * SECOND)

        run(story())


def test_regions_are_restored_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers depend on the order in which a process learnt the regions: another order would move people."""
    with bench(tmp_path / "data", monkeypatch) as made:

        async def story() -> None:
            await made.intake.take_checkins(rows("ann", "bob"), opens(0))
            await made.intake.take_checkins(rows("eve", region=1), opens(0))
            await made.intake.take_counts(1, {0: 8, 1: 3}, opens(0))
            made.intake.learn(["west", *SOUTH])
            await made.intake.take_checkins(rows("joe", region=2), opens(0))

        run(story())
        copy_files(tmp_path / "data", tmp_path / "killed")
    with bench(tmp_path / "killed", monkeypatch, SOUTH) as again:
        again.intake.learn(["east"])
        again.intake.restore(opens(0))

        async def more() -> None:
            await again.intake.take_checkins(rows("ann"), opens(0))  # now in number 0, the south; hashed by the old key
            await again.intake.take_checkins(rows("amy", region=2), opens(0))

        run(more())
        copy_files(tmp_path / "killed", tmp_path / "killed twice")
        assert again.seal(0, ["north", "south", "east"]) == [1, 2, 1]
        assert again.seal(1, ["north", "south", "east"]) == [8, 3, 0]
    with bench(tmp_path / "killed twice", monkeypatch, ["east", "north"]) as third:
        third.intake.restore(opens(0))
        # The south is gone. Eve is dropped with it; of ann, what is left is that she was in the north before.
        assert third.seal(0, ["north", "east"]) == [2, 1]


def test_a_slot_is_fed_by_an_empty_list_and_remembers_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody came, or nobody counted? Only the feed can say, and a restart must not forget what it said."""
    with bench(tmp_path / "data", monkeypatch) as made:

        async def story() -> None:
            await made.intake.take_checkins(rows(), opens(1) - 1)
            await made.intake.take_counts(1, {0: 1}, opens(0))

        assert not made.intake.fed(0)
        run(story())
        copy_files(tmp_path / "data", tmp_path / "killed")
        assert [made.intake.fed(slot) for slot in (0, 1, 2)] == [True, True, False]
        assert made.seal(0) == [0, 0]
        assert made.intake.fed(0)
        assert made.seal(2) == [0, 0]
        assert not made.intake.fed(2)
    with bench(tmp_path / "killed", monkeypatch) as again:
        again.intake.restore(opens(0))
        assert [again.intake.fed(slot) for slot in (0, 1, 2)] == [True, True, False]
        assert again.seal(1) == [1, 0]


def test_a_restart_forgets_what_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check-ins of a slot whose grace has passed would otherwise stay on disk for ever."""
    with bench(tmp_path / "data", monkeypatch) as made:
        run(made.intake.take_checkins(rows("ann", "bob", times=[opens(0), opens(1)]), opens(0)))
        copy_files(tmp_path / "data", tmp_path / "killed")
    with bench(tmp_path / "killed", monkeypatch) as again:
        again.hands.grace[0] = SECOND
        again.intake.restore(opens(1) + SECOND)
        assert again.journal.pending() == [opens(1)]
        assert not again.intake.fed(0)


def test_a_full_disk_is_no_fault_of_the_sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 and a text that names the disk; once it works again, the slot's numbers still have their names."""
    with bench(tmp_path / "data", monkeypatch) as made:
        run(made.intake.take_checkins(rows(), opens(0)))
        made.intake.learn(["west"])

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        write = os.pwrite
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(IntakeRefused, match="the disk is full") as refused:
            run(made.intake.take_checkins(rows("ann", region=2), opens(0)))
        monkeypatch.setattr(os, "pwrite", write)
        assert refused.value.reason == "unavailable"
        run(made.intake.take_checkins(rows("bob", region=2), opens(0)))
        copy_files(tmp_path / "data", tmp_path / "killed")
    with bench(tmp_path / "killed", monkeypatch, ["west"]) as again:
        again.intake.restore(opens(0))
        assert again.seal(0, ["west"]) == [1]


def test_a_disk_that_is_behind_is_told_before_anything_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused and counted all the same, a check-in that is sent again in the next slot would count twice."""
    monkeypatch.setattr("dpcrowd.node.live.intake._MOST_WAITING", 1)
    with bench(tmp_path, monkeypatch) as made:

        async def story() -> None:
            await made.intake.take_checkins(rows(), opens(0))
            let_go = made.hands.hold()
            sent = [asyncio.create_task(made.intake.take_checkins(rows("ann"), opens(0)))]
            await made.hands.writing()
            sent.append(asyncio.create_task(made.intake.take_checkins(rows("bob"), opens(0))))
            await asyncio.sleep(0)
            with pytest.raises(IntakeRefused) as refused:
                await made.intake.take_checkins(rows("eve"), opens(0))
            assert refused.value.reason == "unavailable"
            let_go()
            await asyncio.gather(*sent)
            assert made.seal(0) == [2, 0]

        run(story())


def test_a_sealed_slots_key_is_in_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the key, hashes that a disk may still hold could be tried against every name."""
    with bench(tmp_path, monkeypatch) as made:

        async def story() -> None:
            await made.intake.take_checkins(rows("ann", "bob", times=[opens(0), opens(1)]), opens(0))
            assert set(made.intake._keys) == {0, 1}
            made.seal(0)
            assert set(made.intake._keys) == {1}

        run(story())


def test_slots_of_an_earlier_run_are_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started with a clock that is behind, the node would keep check-ins that it can never count."""
    with bench(tmp_path, monkeypatch) as made:
        made.journal.slot_key(opens(3))
        made.intake.begin_after(5)
        made.intake.restore(opens(3))
        assert made.journal.pending() == []

        async def story() -> None:
            made.hands.now = opens(3)
            with pytest.raises(IntakeRefused, match="the clock went back"):
                await made.intake.take_checkins(rows("ann"), opens(3))
            with pytest.raises(IntakeRefused, match="sealed"):
                await made.intake.take_counts(4, {0: 1}, opens(3))
            assert made.journal.pending() == []
            await made.intake.take_counts(6, {0: 1}, opens(6))

        run(story())


def test_many_rows_are_counted_in_steps_and_each_is_counted_or_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body of a million rows must not keep others waiting; one that the seal cuts in two is acknowledged as far."""
    monkeypatch.setattr("dpcrowd.node.live.intake._STEP", 2)
    with bench(tmp_path, monkeypatch) as made:

        async def story() -> None:
            people = rows(*(f"user {number}" for number in range(7)), times=[opens(0)] * 7)
            sent = asyncio.create_task(made.intake.take_checkins(people, opens(0)))
            async with asyncio.timeout(30):
                while not made.intake.fed(0):
                    await asyncio.sleep(0)
            counted = made.intake.seal(0, NORTH)
            assert counted is not None
            refused = await sent
            assert 0 < counted[0] < 7
            assert refused == [(row, "late") for row in range(int(counted[0]), 7)]
            assert await made.intake.take_checkins(people, opens(1)) == [(row, "late") for row in range(7)]
            assert await made.intake.take_checkins(rows(*"abcdefg"), opens(1)) == []
            assert made.seal(1) == [7, 0]

        run(story())


def test_what_could_not_be_written_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that is counted from the disk would be sampled without those who were refused, and nobody would know."""
    with bench(tmp_path, monkeypatch, capacity=1) as made:
        run(made.intake.take_checkins(rows("ann", "bob"), opens(0)))

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        write = os.pwrite
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(IntakeRefused):
            run(made.intake.take_checkins(rows("eve"), opens(0)))
        monkeypatch.setattr(os, "pwrite", write)
        assert made.intake.unkept == {0}
        assert run(made.seal_from_disk(0)) == [2, 0]
        assert made.intake.unkept == {0}, "still known when the slot has been counted"
        made.seal(1)
        assert made.intake.unkept == set()
