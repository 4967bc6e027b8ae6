"""The journal of open slots: durable, in order, and truly gone once a slot is forgotten."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.storage import Storage, StorageError, journal
from dpcrowd.node.storage.journal import MISSED_ALL, Journal
from node_support_storage import bytes_on_disk, copy_files, draw, open_storage, opens


def test_batches_come_back_in_order_after_a_kill(tmp_path: Path) -> None:
    """The last region wins: batches in another order, or one too few, would count a user in a wrong region."""
    with open_storage(tmp_path / "data") as storage:
        key = storage.journal.slot_key(opens(1))
        storage.journal.slot_key(opens(2))
        storage.journal.append(opens(1), b"batch 0")
        storage.journal.append_all([(opens(1), b"batch %d" % number) for number in range(1, 300)])
        storage.journal.append_all([(opens(2), b"x"), (opens(1), b"last"), (opens(2), b"y")])
        copy_files(tmp_path / "data", tmp_path / "killed")
    with open_storage(tmp_path / "killed") as storage:
        assert storage.journal.pending() == [opens(1), opens(2)]
        assert list(storage.journal.batches(opens(1))) == [*(b"batch %d" % n for n in range(300)), b"last"]
        assert list(storage.journal.batches(opens(2))) == [b"x", b"y"]
        assert storage.journal.slot_key(opens(1)) == key


def test_every_slot_has_its_own_key(tmp_path: Path) -> None:
    """One key for two slots would let a user be followed from slot to slot; a new one on each call, counted twice."""
    with open_storage(tmp_path) as storage:
        one, two = storage.journal.slot_key(opens(1)), storage.journal.slot_key(opens(2))
        assert len(one) == len(two) == 32
        assert one != two
        assert storage.journal.slot_key(opens(1)) == one
        storage.journal.forget(opens(1))
        assert storage.journal.slot_key(opens(1)) != one


def test_nothing_is_left_of_a_forgotten_slot(tmp_path: Path) -> None:
    """What is left on the disk, its size included, would tell how many people were there."""
    with open_storage(tmp_path) as storage:
        folder = storage.journal.folder
        before = {path.name: path.stat().st_size for path in folder.iterdir()}
        secret = b"a keyed hash and a region " * 500
        key, other_key = storage.journal.slot_key(opens(1)), storage.journal.slot_key(opens(2))
        storage.journal.append_all([(opens(1), secret)] * 300)
        storage.journal.append(opens(2), b"the slot that stays open")
        assert secret[:26] in bytes_on_disk(tmp_path)
        assert key in bytes_on_disk(tmp_path)
        storage.journal.forget(opens(1))
        left = bytes_on_disk(tmp_path)
        assert b"a keyed hash" not in left
        assert key not in left
        assert other_key in left
        assert list(storage.journal.batches(opens(2))) == [b"the slot that stays open"]
        storage.journal.forget_before(opens(2))
        assert storage.journal.pending() == [opens(2)]
        storage.journal.forget_before(opens(3))
        assert storage.journal.pending() == []
        assert {path.name: path.stat().st_size for path in folder.iterdir()} == before


def test_a_deleted_file_is_overwritten_first(tmp_path: Path) -> None:
    """Deleting gives the blocks back as they are; whoever reads the disk, or holds the file open, could read on."""
    with open_storage(tmp_path) as storage:
        key = storage.journal.slot_key(opens(1))
        storage.journal.append(opens(1), b"someone was here" * 200_000)
        with open(storage.journal.folder / f"{opens(1)}.slot", "rb") as held:
            size = os.fstat(held.fileno()).st_size
            storage.journal.forget(opens(1))
            left = held.read()
        assert len(left) == size
        assert not left.strip(b"\0")
        assert key not in left


def test_a_forgetting_that_was_killed_is_finished_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between its steps, a slot would stay on the disk for ever, or be counted again without its key."""
    with open_storage(tmp_path / "data") as storage:
        key = storage.journal.slot_key(opens(1))
        storage.journal.append_all([(opens(1), b"half forgotten")] * 300)
        snapshots: list[Path] = []
        write = journal._write_all

        def snapshot(handle: int, content: bytes, at: int) -> None:
            copy_files(tmp_path / "data", tmp_path / f"killed{len(snapshots)}")
            snapshots.append(tmp_path / f"killed{len(snapshots)}")
            write(handle, content, at)

        monkeypatch.setattr(journal, "_write_all", snapshot)
        storage.journal.forget(opens(1))
        monkeypatch.undo()
    left = []
    for folder in snapshots:
        with open_storage(folder) as storage:
            left.append(len(list(storage.journal.batches(opens(1)))))
            if left[-1]:
                assert storage.journal.slot_key(opens(1)) == key
                continue
            assert storage.journal.pending() == []
            assert b"half forgotten" not in bytes_on_disk(folder)
            assert key not in bytes_on_disk(folder)
    assert left == [300, 0]  # all as long as the key is there, and then none


def test_a_slot_that_is_not_open_takes_nothing(tmp_path: Path) -> None:
    """A batch for a slot that is gone would never be counted or deleted; and others must not fail with it."""
    with open_storage(tmp_path) as storage:
        storage.journal.slot_key(opens(1))
        with pytest.raises(BadInput, match="is not open in the journal"):
            storage.journal.append(opens(2), b"stray")
        group = [(opens(1), b"first"), (opens(2), b"stray"), (opens(1), b"second"), (opens(3), b"stray")]
        assert storage.journal.append_all(group) == {opens(2), opens(3)}
        assert list(storage.journal.batches(opens(1))) == [b"first", b"second"]
        storage.journal.forget(opens(1))
        with pytest.raises(BadInput, match="is not open in the journal"):
            storage.journal.append(opens(1), b"stray")
        assert storage.journal.pending() == []
        assert b"stray" not in bytes_on_disk(tmp_path)


def test_a_slot_beyond_its_limit_is_marked_and_answers_as_before(tmp_path: Path) -> None:
    """An error would tell the sender how much others have sent; without the mark too few people would be counted."""
    one = Journal(tmp_path / "journal", limit=1000)
    one.slot_key(opens(1))
    one.append(opens(1), b"x" * 800)
    assert not one.limit_hit(opens(1))
    one.append(opens(1), b"y" * 300)
    one.append(opens(1), b"z")
    assert one.limit_hit(opens(1))
    assert (tmp_path / "journal" / f"{opens(1)}.slot").stat().st_size <= 1000
    one.close()
    again = Journal(tmp_path / "journal", limit=10_000)
    assert again.limit_hit(opens(1)), "a restart does not bring back what was not kept"
    assert not again.limit_hit(opens(2))
    again.close()


def test_what_was_missed_of_a_slot_outlives_a_restart(tmp_path: Path) -> None:
    """Short absences add up; a restart that forgot them would sample a slot of which half was missed."""
    one = Journal(tmp_path / "journal")
    one.slot_key(opens(1))
    assert one.missed(opens(1)) == MISSED_ALL, "a check-in has made the file, and nobody has attended to the slot"
    one.attend(opens(1), 5)
    one.add_missed(opens(1), 7)
    one.append(opens(1), b"a record")
    one.stamp(opens(2))
    one.close()
    again = Journal(tmp_path / "journal")
    assert again.missed(opens(1)) == 12
    assert again.last_stamp() == opens(2)
    again.add_missed(opens(1), MISSED_ALL)
    assert again.missed(opens(1)) == MISSED_ALL
    assert list(again.batches(opens(1))) == [b"a record"]
    assert again.missed(opens(2)) == MISSED_ALL, "nothing is known of a slot that was never opened"
    again.close()
    (tmp_path / "journal" / "alive").write_bytes(b"garbage")
    assert Journal(tmp_path / "journal").last_stamp() is None


def test_a_slot_that_was_opened_for_counts_is_not_one_of_check_ins(tmp_path: Path) -> None:
    """After a change of `accepts` a slot holds half of each: its sum would count nobody rightly."""
    Journal(tmp_path / "journal", kind=0).attend(opens(1), 0)
    other = Journal(tmp_path / "journal", kind=1)
    assert other.missed(opens(1)) == MISSED_ALL
    other.attend(opens(2), 0)
    assert other.missed(opens(2)) == 0


def test_what_is_damaged_costs_what_stands_behind_it_and_not_the_start(tmp_path: Path) -> None:
    """Check-ins of one slot are no reason to refuse a start: only the ledger must be whole."""
    one = Journal(tmp_path / "journal")
    for slot in (1, 2, 3):
        one.slot_key(opens(slot))
        one.append_all([(opens(slot), b"first" * 10), (opens(slot), b"second" * 10), (opens(slot), b"third" * 10)])
    one.close()
    path = tmp_path / "journal" / f"{opens(1)}.slot"
    content = bytearray(path.read_bytes())
    content[content.index(b"second")] ^= 1
    path.write_bytes(content)
    (tmp_path / "journal" / f"{opens(2)}.slot").write_bytes(b"short")
    (tmp_path / "journal" / "not-a-number.slot").write_bytes(bytes(1000))
    again = Journal(tmp_path / "journal")
    assert again.pending() == [opens(1), opens(3)]
    assert list(again.batches(opens(1))) == [b"first" * 10]
    again.append(opens(1), b"fourth")
    assert list(again.batches(opens(1))) == [b"first" * 10, b"fourth"]
    assert not (tmp_path / "journal" / "not-a-number.slot").exists()
    again.close()


def test_a_folder_that_is_deleted_under_the_node_is_noticed(tmp_path: Path) -> None:
    """A deleted file takes what is written to it, and loses it: nothing must be acknowledged."""
    one = Journal(tmp_path / "journal")
    one.slot_key(opens(1))
    shutil.rmtree(tmp_path / "journal")
    with pytest.raises(StorageError, match="deleted or moved away while the node was running") as failed:
        one.append(opens(1), b"lost")
    assert failed.value.kind == "missing"
    assert one.failure is failed.value
    one.close()


def test_the_journal_of_an_earlier_version_is_wiped(tmp_path: Path) -> None:
    """It does not say how much of a slot was missed, so its slot cannot be sampled, and its keys must not stay."""
    (tmp_path / "data").mkdir()
    for name in ("journal.db", "journal.db-wal"):
        (tmp_path / "data" / name).write_bytes(b"a keyed hash beside its key" * 100)
    with open((tmp_path / "data" / "journal.db"), "rb") as held, open_storage(tmp_path / "data"):
        assert not held.read().strip(b"\0")
        assert not list((tmp_path / "data").glob("journal.db*"))


def test_backups_hold_no_check_ins(tmp_path: Path) -> None:
    """A backup lives for years; a check-in must not outlive its slot."""
    with open_storage(tmp_path / "data") as storage:
        key = storage.journal.slot_key(opens(1))
        storage.journal.append(opens(1), b"someone was here")
        draw(storage, 0, noisy=b"paid for")
        storage.backup(tmp_path / "backup.db")
    content = (tmp_path / "backup.db").read_bytes()
    assert b"paid for" in content
    assert b"someone was here" not in content
    assert key not in content


def test_tools_beside_the_node_see_no_check_ins(tmp_path: Path) -> None:
    """`status` and `doctor` must not become a way to read raw data."""
    with (
        open_storage(tmp_path),
        Storage.inspect(tmp_path, network_id="crowd") as tool,
        pytest.raises(StorageError, match="no access to check-ins"),
    ):
        _ = tool.journal


def test_a_slot_whose_head_is_damaged_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """What was acknowledged is lost: sampled as if nobody had come, the slot would tell of too few, with no word."""
    one = Journal(tmp_path / "journal")
    for slot in (1, 2):
        one.attend(opens(slot), 0)
        one.append(opens(slot), b"somebody")
    one.close()
    path = tmp_path / "journal" / f"{opens(1)}.slot"
    path.write_bytes(b"\xa5" * 64 + path.read_bytes()[64:])
    again = Journal(tmp_path / "journal")
    assert again.missed(opens(1)) == MISSED_ALL
    assert list(again.batches(opens(1))) == []
    assert again.missed(opens(2)) == 0
    again.attend(opens(1), 0)
    assert again.missed(opens(1)) == MISSED_ALL, "the node attends to it after a start, as to any other"
    again.close()
