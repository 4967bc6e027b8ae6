"""The journal of open slots: durable, in order, and truly gone once a slot is forgotten."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.storage import Storage, StorageFailed
from dpcrowd.node.storage.journal import SlotForgotten
from node_support_storage import bytes_on_disk, copy_files, draw, open_storage, opens


def test_batches_come_back_in_order_after_a_kill(tmp_path: Path) -> None:
    """The last region wins: batches in another order, or one too few, would count a user in a wrong region."""
    with open_storage(tmp_path / "data") as storage:
        key = storage.journal.slot_key(opens(1))
        storage.journal.slot_key(opens(2))
        storage.journal.append(opens(1), b"batch 0")
        storage.journal.append_all([(opens(1), b"batch %d" % number) for number in range(1, 300)])  # more than a page
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


def test_a_forgotten_slot_is_in_no_file_any_more(tmp_path: Path) -> None:
    """Without secure_delete and an emptied log, check-ins of last year could be read from the disk."""
    with open_storage(tmp_path) as storage:
        secret = b"a keyed hash and a region " * 500
        key, other_key = storage.journal.slot_key(opens(1)), storage.journal.slot_key(opens(2))
        storage.journal.append_all([(opens(1), secret)] * 300)
        storage.journal.append(opens(2), b"the slot that stays open")
        assert secret[:26] in bytes_on_disk(tmp_path)
        assert key in bytes_on_disk(tmp_path)
        assert storage.journal.forget(opens(1))
        left = bytes_on_disk(tmp_path)
        assert b"a keyed hash" not in left
        assert key not in left
        assert other_key in left
        assert list(storage.journal.batches(opens(2))) == [b"the slot that stays open"]
        assert storage.journal.pending() == [opens(2)]
        storage.journal.append(opens(2), b"late check-ins")
        assert storage.journal.forget_before(opens(2))
        assert storage.journal.pending() == [opens(2)]
        assert storage.journal.forget_before(opens(3))
        assert b"late check-ins" not in bytes_on_disk(tmp_path)
        assert storage.journal.pending() == []
        assert storage.journal.forget_before(opens(3))


def test_a_forgetting_that_was_killed_is_finished_at_the_next_start(tmp_path: Path) -> None:
    """Killed between its steps, a slot would stay on the disk for ever, or be counted again without its key."""
    with open_storage(tmp_path / "data") as storage:
        key = storage.journal.slot_key(opens(1))
        storage.journal.append_all([(opens(1), b"half forgotten")] * 300)
        snapshots: list[Path] = []

        def snapshot(statement: str) -> None:
            target = tmp_path / f"killed{len(snapshots)}"
            copy_files(tmp_path / "data", target)
            snapshots.append(target)

        connection = storage.journal._database.connection
        connection.set_trace_callback(snapshot)
        storage.journal.forget(opens(1))
        connection.set_trace_callback(None)
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
    assert left[0] == 300
    assert set(left) == {300, 0}  # all as long as nothing was committed, and then none
    assert left.count(0) > 4


def test_a_slot_without_a_key_takes_nothing(tmp_path: Path) -> None:
    """A batch for a slot that is gone would never be counted or deleted; and others must not fail with it."""
    with open_storage(tmp_path) as storage:
        storage.journal.slot_key(opens(1))
        with pytest.raises(BadInput, match="has no key"):
            storage.journal.append(opens(2), b"stray")
        group = [(opens(1), b"first"), (opens(2), b"stray"), (opens(1), b"second"), (opens(3), b"stray")]
        assert storage.journal.append_all(group) == {opens(2), opens(3)}
        assert list(storage.journal.batches(opens(1))) == [b"first", b"second"]
        storage.journal.forget(opens(1))
        with pytest.raises(BadInput, match="has no key"):
            storage.journal.append(opens(1), b"stray")
        assert storage.journal.pending() == []
        assert b"stray" not in bytes_on_disk(tmp_path)


def test_a_slot_that_is_being_forgotten_takes_nothing(tmp_path: Path) -> None:
    """Between the deletion of the key and that of the batches another thread may still come with check-ins."""
    with open_storage(tmp_path) as storage:
        storage.journal.slot_key(opens(1))
        storage.journal._database.write("UPDATE slot SET hash_key = NULL")
        assert storage.journal.append_all([(opens(1), b"stray"), (opens(1), b"stray")]) == {opens(1)}
        for attempt in (lambda: storage.journal.append(opens(1), b"stray"), lambda: storage.journal.slot_key(opens(1))):
            with pytest.raises(SlotForgotten, match="has no key"):
                attempt()
        assert storage.journal.forget(opens(1))
        assert storage.journal.pending() == []


def test_a_reader_in_the_way_is_told_and_the_next_forget_makes_it_good(tmp_path: Path) -> None:
    """A foreign program that holds the file keeps the log: the node must know, and try again."""
    with open_storage(tmp_path) as storage:
        storage.journal._database.connection.execute("PRAGMA busy_timeout = 10")
        storage.journal.slot_key(opens(1))
        storage.journal.append(opens(1), b"held back")
        reader = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM batch").fetchone()
        assert not storage.journal.forget(opens(1))
        reader.execute("COMMIT")
        reader.close()
        assert storage.journal.forget(opens(1))
        assert b"held back" not in bytes_on_disk(tmp_path)


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
        pytest.raises(StorageFailed, match="no access to check-ins"),
    ):
        _ = tool.journal
