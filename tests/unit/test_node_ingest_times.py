"""Times of check-ins, the slots that they fall in, and users' hashes."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcrowd.node.collect import NotTaken
from dpcrowd.node.ingest.batch import ARRIVAL, Batch, BodyRefused
from dpcrowd.node.ingest.hashing import hash_users
from dpcrowd.node.ingest.times import RowsNotTaken, nanoseconds, parse_time, rfc3339, slots_of
from dpcrowd.node.slots import SECOND, SlotClock

CLOCK = SlotClock(epoch_ns=1_000 * SECOND, length_ns=10 * SECOND)
GRACE, FUTURE = 3 * SECOND, 2 * SECOND


def batch(*times: int | None) -> Batch:
    given = (
        None
        if set(times) == {None}
        else np.array([ARRIVAL if time is None else time for time in times], dtype=np.int64)
    )
    return Batch([b"user"] * len(times), [0] * len(times), given)


def slots(arrived: int, *times: int | None) -> dict[int, list[int]]:
    found = slots_of(batch(*times), arrived, CLOCK, grace_ns=GRACE, future_ns=FUTURE)
    return {slot: rows.tolist() for slot, rows in found.items()}


@given(st.integers(0, 2**63 - 1))
def test_rfc3339_there_and_back(at_ns: int) -> None:
    """A slot's start that is read again must be the same slot; beyond microseconds it may be rounded."""
    exact = at_ns - at_ns % 1_000
    assert parse_time(rfc3339(exact)) == exact
    assert rfc3339(at_ns).endswith("Z")


def test_rfc3339_texts() -> None:
    """Offsets are honoured; a time without one means different moments to different people."""
    assert parse_time("1970-01-01T02:00:01+02:00") == SECOND
    assert parse_time("1970-01-01T00:00:01.25Z") == 1_250_000_000
    for wrong in (
        "1970-01-01T00:00:01",
        "1970-01-01",
        "",
        "1",
        "1969-12-31T23:59:59Z",
        "2263-01-01T00:00:00Z",
        "1970-13-01T00:00:00Z",
    ):
        assert parse_time(wrong) is None
    assert rfc3339(1_767_225_600 * SECOND) == "2026-01-01T00:00:00Z"
    assert rfc3339(1_500_000_000) == "1970-01-01T00:00:01.5Z"


def test_decoded_times_become_nanoseconds() -> None:
    """Milliseconds, moments in any zone and none, in one batch."""
    zone = timezone(timedelta(hours=-5))
    times = [
        5,
        None,
        datetime(1970, 1, 1, 0, 0, 1, 250_000, tzinfo=UTC),
        datetime(1969, 12, 31, 19, 0, 2, tzinfo=zone),
        0,
    ]
    found = nanoseconds(times)
    assert found is not None
    assert found.tolist() == [5_000_000, ARRIVAL, 1_250_000_000, 2 * SECOND, 0]
    assert nanoseconds([None, None]) is None
    assert nanoseconds([]) is None
    for wrong in (-1, 2**63, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))):
        with pytest.raises(BodyRefused, match=r"^row 1: time"):
            nanoseconds([5, wrong])


def test_arrival_decides_without_a_time() -> None:
    """All rows in one slot, without a look at each; no rows are also told of the slot in which they arrived."""
    assert slots(1_015 * SECOND, None, None) == {1: [0, 1]}
    assert slots(1_015 * SECOND) == {1: []}
    nobody = Batch([], [], np.empty(0, dtype=np.int64))
    assert list(slots_of(nobody, 1_015 * SECOND, CLOCK, grace_ns=GRACE, future_ns=FUTURE)) == [1]


def test_rows_that_waited_belong_to_the_present() -> None:
    """Counted long after their arrival, rows without a time are neither late nor early; others go by their own."""
    arrived, present = 1_009 * SECOND, 1_055 * SECOND
    rows = batch(arrived, None, arrived + 1)
    found = slots_of(rows, arrived, CLOCK, grace_ns=GRACE, future_ns=FUTURE, present_ns=present)
    assert {slot: rows.tolist() for slot, rows in found.items()} == {0: [0, 2], 5: [1]}
    assert list(slots_of(batch(None), arrived, CLOCK, grace_ns=0, future_ns=0, present_ns=present)) == [5]


def test_rows_go_to_the_slots_of_their_times() -> None:
    """Around a slot's end a batch belongs to two slots; rows keep their order, since the last region wins."""
    found = slots(1_011 * SECOND, 1_009 * SECOND, None, 1_010 * SECOND, 1_010 * SECOND - 1, 1_000 * SECOND)
    assert found == {0: [0, 3, 4], 1: [1, 2]}


def test_a_slot_is_sealed_when_its_grace_has_passed() -> None:
    """To the nanosecond: at closes + grace the counts have been read, and a check-in would vanish."""
    closes = CLOCK.closes(0)
    assert slots(closes + GRACE - 1, closes - 1) == {0: [0]}
    with pytest.raises(RowsNotTaken) as caught:
        slots(closes + GRACE, closes, closes - 1, None, closes - 2)
    assert caught.value.reason == "late"
    assert caught.value.rows == (1, 3)
    assert str(caught.value).startswith("row 1: time: ")


def test_the_future_is_refused_beyond_a_margin() -> None:
    """A clock that runs ahead could fill slots that nobody expects, or keep memory for ever."""
    arrived = 1_005 * SECOND
    assert slots(arrived, arrived + FUTURE) == {0: [0]}
    with pytest.raises(RowsNotTaken) as caught:
        slots(arrived, arrived, arrived + FUTURE + 1)
    assert (caught.value.reason, caught.value.rows) == ("future", (1,))
    with pytest.raises(RowsNotTaken):
        slots(arrived, 2**63 - 1)


def test_before_the_first_slot() -> None:
    """There is no slot before the epoch; a negative one would be counted nowhere."""
    with pytest.raises(NotTaken) as caught:
        slots(1_000 * SECOND - 1, None)
    assert caught.value.reason == "unavailable"
    with pytest.raises(RowsNotTaken) as late:
        slots(1_000 * SECOND + 1, 1_000 * SECOND - 1)
    assert late.value.reason == "late"


def test_hashes_are_keyed_blake2b() -> None:
    """Another key, other hashes: what is left of one slot says nothing about the next."""
    users, key = [b"ann", b"bob", b"ann", b""], bytes(range(32))
    found = hash_users(users, key)
    assert found == [hashlib.blake2b(user, key=key, digest_size=16).digest() for user in users]
    assert not set(found) & set(hash_users(users, bytes(32)))
    assert hash_users([], key) == []
    for wrong in (b"", bytes(15), bytes(65)):
        with pytest.raises(ValueError, match="16 to 64 bytes"):
            hash_users(users, wrong)


def test_all_times_out_of_range_are_named() -> None:
    """Whoever sends can leave them out at once; of a thousand and more the first thousand."""
    with pytest.raises(BodyRefused) as caught:
        nanoseconds([5, -1, None, 2**63])
    assert caught.value.rows == (1, 3)
    with pytest.raises(BodyRefused) as caught:
        nanoseconds([-1] * 1_001)
    assert caught.value.rows == tuple(range(1_000))
    with pytest.raises(RowsNotTaken) as late:
        slots(1_100 * SECOND, *[0] * 1_001)
    assert late.value.rows == tuple(range(1_000))
