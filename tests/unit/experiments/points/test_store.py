"""Results on disk: what comes back is what was written, and damage costs a batch, not the report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.experiments.points.point import Point, SchemeEntry
from dpcrowd.experiments.points.store import Store
from dpcrowd.sim.data import load
from dpcrowd.sim.engine import run_batch
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.result import METRICS, merge_records

DATA = load("linear", slots=40)
POINT = Point(
    "linear", (SchemeEntry("dpcrowd", "dpcrowd"), SchemeEntry("exact", "non-private")), density=0.5, by_slot=True
)
CONFIG = POINT.config(DATA, runs=4, seed=0, servers=6)


@pytest.fixture(scope="module")
def whole() -> list[RunRecords]:
    return run_batch(CONFIG, range(4))


@pytest.fixture(scope="module")
def halves() -> list[list[RunRecords]]:
    return [run_batch(CONFIG, [0, 1]), run_batch(CONFIG, [2, 3])]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "points")


def test_what_is_read_is_what_was_written_bit_for_bit(
    store: Store, whole: list[RunRecords], halves: list[list[RunRecords]]
) -> None:
    """A resumed reproduction has to show the same figures as one that was never interrupted."""
    for half in reversed(halves):
        store.write("key", half, by_slot=True)
    assert store.runs_on_disk("key") == {0, 1, 2, 3}
    back = store.read("key", 4)
    for record in whole:
        assert back[record.label].runs.tolist() == [0, 1, 2, 3]
        assert back[record.label].paid == record.paid, "a scheme without privacy has no payments"
        assert back[record.label].server_slots == record.server_slots
        for name in (*METRICS, "missing", "are_by_slot", "ace_by_slot"):
            np.testing.assert_array_equal(getattr(back[record.label], name), getattr(record, name), err_msg=name)


def test_only_the_runs_that_are_asked_for(store: Store, whole: list[RunRecords]) -> None:
    """A report of 2 runs after one of 4 is one of 2 runs: otherwise the same command gives two results."""
    store.write("key", whole, by_slot=False)
    assert store.read("key", 2)["dpcrowd"].runs.tolist() == [0, 1]
    assert store.read("key", 2)["dpcrowd"].are_by_slot.size == 0, "not kept unless asked for"


def test_a_run_that_was_written_twice_counts_once(
    store: Store, whole: list[RunRecords], halves: list[list[RunRecords]]
) -> None:
    """Two reproductions in one folder at once may do a batch twice; its runs would weigh double."""
    store.write("key", halves[0], by_slot=True)
    store.write("key", whole, by_slot=True)
    assert store.read("key", 4)["dpcrowd"].runs.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(store.read("key", 4)["dpcrowd"].are, merge_records(whole[:1]).are)


def test_a_damaged_file_is_done_again(store: Store, halves: list[list[RunRecords]]) -> None:
    """A full disk or a crash leaves a torn file; the rest of the work must not be lost with it."""
    for half in halves:
        store.write("key", half, by_slot=True)
    torn = sorted((store.folder / "key").iterdir())[0]
    torn.write_bytes(torn.read_bytes()[:100])
    assert store.runs_on_disk("key") == {2, 3}
    store.write("key", halves[0], by_slot=True)
    assert store.runs_on_disk("key") == {0, 1, 2, 3}


def test_an_unfinished_write_is_not_seen(store: Store, halves: list[list[RunRecords]]) -> None:
    """A process that is killed while it writes leaves its part file, never half a result."""
    store.write("key", halves[0], by_slot=True)
    (store.folder / "key" / "000002-000003-2.77.part").write_bytes(b"PAR1")
    assert store.runs_on_disk("key") == {0, 1}
    assert store.runs_on_disk("other") == set()


def test_a_folder_that_cannot_be_written_is_said_in_a_line(tmp_path: Path, halves: list[list[RunRecords]]) -> None:
    """Not a traceback of the file system."""
    (tmp_path / "points").write_text("a file where a folder should be")
    with pytest.raises(BadInput, match="cannot write"):
        Store(tmp_path / "points").write("key", halves[0], by_slot=True)
