"""Signed records on disk: stored with what they belong to, and deleted once they are final."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpcrowd.node.storage import RecordRow, SlotTaken
from node_support_storage import LENGTH, open_storage, opens, release

OWN = RecordRow(3, "a", "record", b"own")
OTHER = RecordRow(2, "b", "record", b"other")
PROOF = RecordRow(2, "b", "proof", b"both")


def test_an_own_record_is_stored_with_its_payment(tmp_path: Path) -> None:
    """A record without a payment could be sent unpaid; a payment without its record would be sampled for nothing."""
    with open_storage(tmp_path) as storage:
        storage.commit_sample(3, opens(3), LENGTH, 5, b"noisy", b"state", OWN)
        assert storage.records.all() == [OWN]
        with pytest.raises(SlotTaken):
            storage.commit_sample(3, opens(3), LENGTH, 5, b"again", b"state", OWN._replace(content=b"another"))
    with open_storage(tmp_path) as storage:
        assert storage.records.all() == [OWN]
    with open_storage(tmp_path, "other") as storage:
        assert storage.records.all() == [], "each network has its own"


def test_records_of_others_come_with_a_release_and_go_when_they_are_final(tmp_path: Path) -> None:
    """They are passed on after a restart; kept for ever, they would fill the disk."""
    with open_storage(tmp_path) as storage:
        storage.commit_release([release(2)], b"", records=[OTHER], final_until=-2)
        storage.commit_sample(3, opens(3), LENGTH, 5, b"noisy", b"state", OWN)
        storage.commit_release([release(3)], b"", final_until=1)
        assert storage.records.all() == [OTHER, OWN]
        storage.commit_release([release(4)], b"", final_until=2)
        assert storage.records.all() == [OWN]
        storage.commit_release([release(5)], b"")
        assert storage.records.all() == [OWN], "a scheme without records deletes none"


def test_a_proof_takes_the_place_of_its_record(tmp_path: Path) -> None:
    """After a restart the record must not count again."""
    with open_storage(tmp_path) as storage:
        storage.commit_release([release(2)], b"", records=[OTHER])
        storage.commit_release([release(3)], b"", records=[PROOF])
        assert storage.records.all() == [PROOF]


def test_slots_that_begin_again_have_no_records(tmp_path: Path) -> None:
    """They were made by a clock that was ahead, for slots that are still to come."""
    with open_storage(tmp_path) as storage:
        storage.commit_release([release(2)], b"", records=[OTHER])
        storage.accept_clock(opens(2), opens(1), b"state", 0, "the clock was ahead.")
        assert storage.records.all() == []
