"""Releases, smoothed slots, refusals and retention."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.release import SlotRelease, SmoothedSlots
from dpcrowd.node.storage import Refusal, SlotTaken
from dpcrowd.schemes.base import Release
from node_support_storage import LENGTH, draw, open_storage, opens, release


def test_a_release_comes_back_bit_for_bit(tmp_path: Path) -> None:
    """A rounded or reordered vector would be another estimate than the one that was published."""
    estimate = np.array([1 / 3, -0.0, np.nan, 1e300])
    variance = np.array([2 / 3, 5e-324, np.nan, 7.0])
    kept = SlotRelease(4, opens(4), LENGTH, ("a", "b", "ç", "d"), estimate, variance, False, 0, 3)
    with open_storage(tmp_path) as storage:
        assert storage.releases.latest() is None
        storage.commit_release([kept], b"after")
    with open_storage(tmp_path) as storage:
        found = storage.releases.latest()
        assert storage.state() == b"after"
    assert found is not None
    assert found.estimate.tobytes() == estimate.tobytes()
    assert found.variance.tobytes() == variance.tobytes()
    assert (found.slot, found.opens_ns, found.length_ns, found.regions) == (4, opens(4), LENGTH, ("a", "b", "ç", "d"))
    assert (found.sampled, found.nano, found.heard) == (False, 0, 3)
    published = Release(4, estimate, variance, np.array([False]), np.array([0]), np.array([False])).interval
    assert [bound.tobytes() for bound in found.interval] == [bound.tobytes() for bound in published]


def test_ranges_are_half_open_ordered_and_cut(tmp_path: Path) -> None:
    """A reader who goes on where the last range ended must get each slot once."""
    with open_storage(tmp_path) as storage:
        storage.commit_release([release(slot) for slot in (5, 1, 3, 2, 4)], b"")

        def slots(first: int, last: int, limit: int | None = None) -> list[int]:
            return [found.slot for found in storage.releases.between(opens(first), opens(last), limit=limit)]

        assert slots(2, 5) == [2, 3, 4]
        assert slots(0, 99, limit=2) == [1, 2]
        assert slots(0, 99, limit=0) == []
        latest = storage.releases.latest()
        assert latest is not None
        assert latest.slot == 5
        assert latest.sampled is True


@pytest.mark.parametrize("limit", [None, 1100, 1000, 999])
def test_long_ranges_are_read_in_pages_without_gaps(tmp_path: Path, limit: int | None) -> None:
    """A page that begins one slot too late or early would lose or repeat a slot for every 500."""
    with open_storage(tmp_path) as storage:
        storage.commit_release([release(slot, ("all",)) for slot in range(1200)], b"")
        found = [one.slot for one in storage.releases.between(0, opens(5000), limit=limit)]
    assert found == list(range(1200 if limit is None else limit))


def test_regions_may_change_between_slots(tmp_path: Path) -> None:
    """Each release is read with the regions of its own revision, or numbers would stand under wrong names."""
    with open_storage(tmp_path) as storage:
        storage.commit_release([release(0, ("north", "south"))], b"")
        storage.commit_release([release(1, ("west", "north"))], b"")
        found = list(storage.releases.between(0, opens(9), regions=["north", "west"]))
    assert [one.regions for one in found] == [("north",), ("north", "west")]
    assert [one.estimate.tolist() for one in found] == [[0.0], [1 + 1 / 3, 1.0]]
    assert [one.variance.tolist() for one in found] == [[1.0], [(1 + 1 / 3) + 1, 2.0]]


def test_a_slot_is_released_once_and_a_refusal_changes_nothing(tmp_path: Path) -> None:
    """A second release of a slot would contradict what was published."""
    with open_storage(tmp_path) as storage:
        storage.commit_release([release(1)], b"first")
        with pytest.raises(SlotTaken, match=r"slot 1, .* was released before"):
            storage.commit_release([release(0), release(1)], b"second", refused=[Refusal(opens(1), "message", "late")])
        assert storage.state() == b"first"
        assert [one.slot for one in storage.releases.between(0, opens(9))] == [1]
        assert storage.refusals.since(0) == []


def test_vectors_of_a_wrong_length_are_refused(tmp_path: Path) -> None:
    """They could not be read with their names again."""
    wrong = SlotRelease(0, opens(0), LENGTH, ("a", "b"), np.zeros(3), np.zeros(3), True, 1)
    with open_storage(tmp_path) as storage, pytest.raises(BadInput, match="2 regions needs vectors of 2"):
        storage.commit_release([wrong], b"")


def test_messages_are_counted_exactly_and_check_ins_only_as_happened(tmp_path: Path) -> None:
    """An exact number of refused check-ins would be a raw count of people on the disk."""
    with open_storage(tmp_path) as storage:
        storage.refusals.count(opens(1), "late")
        storage.refusals.count(opens(1), "late", 4)
        for _ in range(3):
            storage.refusals.happened(opens(1), "unknown-region")
        storage.commit_release(
            [], b"", refused=[Refusal(opens(1), "message", "late", 2), Refusal(opens(0), "check-in", "full")]
        )
        assert storage.refusals.since(0) == [
            Refusal(opens(0), "check-in", "full", 1),
            Refusal(opens(1), "check-in", "unknown-region", 1),
            Refusal(opens(1), "message", "late", 7),
        ]
        assert len(storage.refusals.since(opens(1))) == 2


def test_the_table_refuses_a_count_of_check_ins(tmp_path: Path) -> None:
    """The rule must hold for whatever code is written later."""
    with open_storage(tmp_path) as storage:
        storage.refusals.happened(opens(1), "full")
        connection = storage._database.connection
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("UPDATE refusal SET count = 12")


def test_retention_takes_releases_and_leaves_payments(tmp_path: Path) -> None:
    """Deleting a payment would refill the budget; keeping everything would fill the disk."""
    with open_storage(tmp_path) as storage:
        for slot in range(6):
            draw(storage, slot, nano=3)
        storage.commit_release([release(slot, ("old",) if slot < 3 else ("new",)) for slot in range(6)], b"")
        storage.commit_release([release(100 + slot, ("new",)) for slot in range(3)], b"")
        for slot in range(6):
            storage.refusals.count(opens(slot), "late")
        assert storage.retention(opens(3)) == 3
        assert storage.retention(opens(3)) == 0
        assert [one.slot for one in storage.releases.between(0, opens(999))] == [3, 4, 5, 100, 101, 102]
        assert [one.opens_ns for one in storage.refusals.since(0)] == [opens(3), opens(4), opens(5)]
        assert storage.ledger.sample(opens(2)) is None
        assert storage.ledger.sample(opens(3)) is not None
        assert (storage.ledger.total_spent(), storage.ledger.counter()) == (18, 6)
        assert len(storage.ledger.payments_since(0)) == 6
        with pytest.raises(SlotTaken):
            draw(storage, 2)
        assert storage._reader.rows("SELECT names FROM regions") == [('["new"]',)]


def test_retention_of_one_network_leaves_the_other(tmp_path: Path) -> None:
    """Two networks on one ledger have their own retention."""
    shared = tmp_path / "a"
    with open_storage(shared, "a") as a, open_storage(tmp_path / "b", "b", ledger=shared) as b:
        for storage in (a, b):
            draw(storage, 0)
            storage.commit_release([release(0)], b"")
            storage.refusals.count(opens(0), "late")
        assert a.retention(opens(9)) == 1
        assert b.ledger.sample(opens(0)) is not None
        assert len(list(b.releases.between(0, opens(9)))) == 1
        assert len(b.refusals.since(0)) == 1


def test_more_than_one_step_of_retention(tmp_path: Path) -> None:
    """Steps are small; a retention that took one step only would never catch up."""
    with open_storage(tmp_path) as storage:
        storage.commit_release([release(slot, ("all",)) for slot in range(1201)], b"")
        assert storage.retention(opens(1200)) == 1200


# ------------------------------------------------------------------------------------------- smoothed slots


def smoothed(first: int, last: int, add: float = 0.5, regions: int = 2) -> SmoothedSlots:
    """Slots with numbers that differ from the released ones by `add`."""
    slots = np.arange(first, last + 1)
    estimate = slots[:, None] + np.arange(regions) / 3 + add
    return SmoothedSlots(slots, estimate, estimate + 2, estimate + 10, estimate + 20)


def test_smoothed_slots_replace_one_another_and_never_a_release(tmp_path: Path) -> None:
    """A slot is estimated again after each release for as long as the lag; what was published must not change."""
    with open_storage(tmp_path) as storage:
        assert not storage.releases.has_smoothed()
        for slot in range(4):
            storage.commit_release([release(slot)], b"", smoothed=smoothed(max(0, slot - 1), slot, add=slot))
    with open_storage(tmp_path) as storage:
        found = list(storage.releases.smoothed(0, opens(99)))
        assert storage.releases.has_smoothed()
        assert [one.slot for one in found] == [0, 1, 2, 3]
        assert [one.estimate[0] for one in found] == [0 + 1, 1 + 2, 2 + 3, 3 + 3], "slot 3 may still change"
        assert [one.variance[0] for one in found] == [3, 5, 7, 8]
        assert [(one.measurement[0], one.measurement_var[0]) for one in found] == [
            (11, 21),
            (13, 23),
            (15, 25),
            (16, 26),
        ]
        assert all(one.measurement is None for one in storage.releases.between(0, opens(99)))
        assert [one.opens_ns for one in found] == [opens(slot) for slot in range(4)]
        assert all(one.sampled and one.nano == 7 and one.length_ns == LENGTH for one in found)
        assert [one.estimate[0] for one in storage.releases.between(0, opens(99))] == [0, 1, 2, 3]
        assert [one.slot for one in storage.releases.smoothed(opens(1), opens(9), limit=2)] == [1, 2]
        (chosen,) = storage.releases.smoothed(opens(1), opens(2), regions=["south", "gone"])
        assert (chosen.regions, chosen.estimate.tolist()) == (("south",), [1 + 1 / 3 + 2])
        assert chosen.measurement is not None
        assert chosen.measurement.tolist() == [1 + 1 / 3 + 2 + 10]


def test_slots_that_the_server_has_missed_can_be_smoothed(tmp_path: Path) -> None:
    """It was away and has no release of them; records that came later tell what they were."""
    with open_storage(tmp_path) as storage:
        storage.commit_release([release(7)], b"", smoothed=smoothed(4, 7))
        found = list(storage.releases.smoothed(0, opens(99)))
        assert [one.slot for one in found] == [4, 5, 6, 7]
        assert [(one.sampled, one.nano) for one in found] == [(False, 0)] * 3 + [(True, 7)]
        assert [one.slot for one in storage.releases.between(0, opens(99))] == [7]


def test_smoothed_slots_are_stored_with_their_release_or_not_at_all(tmp_path: Path) -> None:
    """Half of a commit would tell more than was released."""
    with open_storage(tmp_path) as storage:
        storage.commit_release([release(1)], b"first", smoothed=smoothed(0, 1))
        with pytest.raises(SlotTaken):
            storage.commit_release([release(1)], b"second", smoothed=smoothed(0, 1, add=9))
        with pytest.raises(BadInput, match="2 smoothed slots of 2 regions need as many numbers"):
            storage.commit_release([release(2)], b"third", smoothed=smoothed(1, 2, regions=3))
        assert [one.estimate[0] for one in storage.releases.smoothed(0, opens(99))] == [0.5, 1.5]
        assert storage.state() == b"first"


def test_retention_takes_smoothed_slots_too(tmp_path: Path) -> None:
    """The disk would fill with the history of years; names of regions stay as long as any slot has them."""
    with open_storage(tmp_path) as storage:
        storage.commit_release([release(3, ("old",))], b"", smoothed=smoothed(0, 3, regions=1))
        storage.commit_release([release(4, ("new",))], b"", smoothed=smoothed(4, 4, regions=1))
        assert storage.retention(opens(2)) == 0
        assert [one.slot for one in storage.releases.smoothed(0, opens(99))] == [2, 3, 4]
        assert storage.retention(opens(4)) == 1
        assert [one.slot for one in storage.releases.smoothed(0, opens(99))] == [4]
        assert storage._reader.rows("SELECT names FROM regions") == [('["new"]',)]


def test_smoothed_slots_of_a_clock_that_was_ahead_are_deleted(tmp_path: Path) -> None:
    """Their slots begin again: the old values would stand beside the new ones."""
    with open_storage(tmp_path) as storage:
        storage.commit_release([release(9)], b"", smoothed=smoothed(5, 9))
        storage.accept_clock(opens(7), opens(7), b"again", 6, "the clock was ahead")
        assert [one.slot for one in storage.releases.smoothed(0, opens(99))] == [5, 6]


def test_two_networks_on_one_ledger_have_their_own_history(tmp_path: Path) -> None:
    """A join over times alone would mix the slots of two networks."""
    shared = tmp_path / "a"
    with open_storage(shared, "a") as a, open_storage(tmp_path / "b", "b", ledger=shared) as b:
        a.commit_release([release(0)], b"", smoothed=smoothed(0, 0))
        b.commit_release([release(0, sampled=False)], b"", smoothed=smoothed(0, 0, add=3))
        assert [(one.estimate[0], one.sampled) for one in a.releases.smoothed(0, opens(9))] == [(0.5, True)]
        assert [(one.estimate[0], one.sampled) for one in b.releases.smoothed(0, opens(9))] == [(3.0, False)]
