"""Times of check-ins, the slots that they fall in, and users' hashes."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcrowd.node.collect import IntakeRefused
from dpcrowd.node.ingest.batch import ARRIVAL, Batch, RowRefusal, hash_users, nanoseconds, parse_time, slots_of
from dpcrowd.node.slots import SECOND, SlotClock, rfc3339

CLOCK = SlotClock(epoch_ns=1_000 * SECOND, length_ns=10 * SECOND)
GRACE, FUTURE = 3 * SECOND, 2 * SECOND


def batch(*times: int | None) -> Batch:
    given = (
        None
        if set(times) == {None}
        else np.array([ARRIVAL if time is None else time for time in times], dtype=np.int64)
    )
    return Batch([b"user"] * len(times), [0] * len(times), given)


def sorted_out(
    arrived: int, *times: int | None, sealed: int = -1, present: int | None = None
) -> tuple[dict[int, list[int]], list[RowRefusal]]:
    found, refused = slots_of(
        batch(*times), arrived, CLOCK, grace_ns=GRACE, future_ns=FUTURE, sealed=sealed, present_ns=present
    )
    return {slot: rows.tolist() for slot, rows in found.items()}, refused


def slots(arrived: int, *times: int | None) -> dict[int, list[int]]:
    found, refused = sorted_out(arrived, *times)
    assert refused == []
    return found


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
    found, wrong = nanoseconds(times)
    assert found is not None
    assert found.tolist() == [5_000_000, ARRIVAL, 1_250_000_000, 2 * SECOND, 0]
    assert wrong == []
    assert nanoseconds([None, None]) == (None, [])
    assert nanoseconds([]) == (None, [])


@pytest.mark.parametrize(
    "time",
    [
        -1,
        2**63,
        10**30,
        (2**63 - 1) // 10**6 + 1,
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, tzinfo=UTC),
    ],
)
def test_times_out_of_range_are_named_and_the_others_kept(time: datetime | int) -> None:
    """A number of seconds, or of microseconds, is a typing mistake: it must neither wrap around nor stop the others."""
    found, wrong = nanoseconds([5, time, None, time, 7])
    assert found is not None
    assert found[[0, 2, 4]].tolist() == [5_000_000, ARRIVAL, 7_000_000]
    assert wrong == [1, 3]
    last, wrong = nanoseconds([(2**63 - 1) // 10**6])
    assert last is not None
    assert wrong == []


@pytest.mark.parametrize("seconds", [978_307_200, 1_767_225_605, 4_102_444_799])
def test_a_number_of_seconds_is_named(seconds: int) -> None:
    """Read as milliseconds it is some day of 1970, and the sender would be told "late" and look for a slow line."""
    found, wrong = nanoseconds([seconds * 1000, seconds, None])
    assert found is not None
    assert found.tolist() == [seconds * SECOND, ARRIVAL, ARRIVAL]
    assert wrong == [1]


def test_times_of_1970_that_nobody_can_have_meant_as_seconds() -> None:
    """A moment is what it says, and numbers outside of 2001 to 2100 as seconds are no mistake of that kind."""
    moment = datetime(1970, 1, 20, tzinfo=UTC)
    found, wrong = nanoseconds([moment, 978_307_199, 4_102_444_800])
    assert found is not None
    assert found.tolist() == [19 * 86_400 * SECOND, 978_307_199_000_000, 4_102_444_800_000_000]
    assert wrong == []


def test_arrival_decides_without_a_time() -> None:
    """All rows in one slot, without a look at each; no rows are also told of the slot in which they arrived."""
    assert slots(1_015 * SECOND, None, None) == {1: [0, 1]}
    assert slots(1_015 * SECOND) == {1: []}
    nobody = Batch([], [], np.empty(0, dtype=np.int64))
    assert list(slots_of(nobody, 1_015 * SECOND, CLOCK, grace_ns=GRACE, future_ns=FUTURE)[0]) == [1]


def test_rows_that_waited_belong_to_the_present() -> None:
    """Counted long after their arrival, rows without a time are neither late nor early; others go by their own."""
    arrived, present = 1_009 * SECOND, 1_055 * SECOND
    assert sorted_out(arrived, arrived, None, arrived + 1, present=present) == ({0: [0, 2], 5: [1]}, [])
    assert sorted_out(arrived, None, present=present) == ({5: [0]}, [])
    assert sorted_out(arrived, arrived, None, present=present, sealed=0) == ({5: [1]}, [(0, "late")])


def test_rows_go_to_the_slots_of_their_times() -> None:
    """Around a slot's end a batch belongs to two slots; rows keep their order, since the last region wins."""
    found = slots(1_011 * SECOND, 1_009 * SECOND, None, 1_010 * SECOND, 1_010 * SECOND - 1, 1_000 * SECOND)
    assert found == {0: [0, 3, 4], 1: [1, 2]}


def test_a_slot_is_sealed_when_its_grace_has_passed() -> None:
    """To the nanosecond: at closes + grace the counts have been read, and a check-in would vanish."""
    closes = CLOCK.closes(0)
    assert slots(closes + GRACE - 1, closes - 1) == {0: [0]}
    found = sorted_out(closes + GRACE, closes, closes - 1, None, closes - 2)
    assert found == ({1: [0, 2]}, [(1, "late"), (3, "late")])


def test_what_was_sealed_stays_sealed_whatever_the_clock_says() -> None:
    """A clock that was set back must not open a slot again whose counts have been drawn."""
    arrived = 1_025 * SECOND
    assert sorted_out(arrived, 1_021 * SECOND, 1_026 * SECOND, sealed=1) == ({2: [0, 1]}, [])
    assert sorted_out(arrived, 1_021 * SECOND, None, sealed=2) == ({2: [1]}, [(0, "late")])


def test_the_future_is_refused_beyond_a_margin() -> None:
    """A clock that runs ahead could fill slots that nobody expects, or keep memory for ever."""
    arrived = 1_005 * SECOND
    assert slots(arrived, arrived + FUTURE) == {0: [0]}
    assert sorted_out(arrived, arrived, arrived + FUTURE + 1) == ({0: [0]}, [(1, "future")])
    assert sorted_out(arrived, 2**63 - 1) == ({}, [(0, "future")])


def test_before_the_first_slot() -> None:
    """There is no slot before the epoch; a negative one would be counted nowhere."""
    with pytest.raises(IntakeRefused) as caught:
        slots(1_000 * SECOND - 1, None)
    assert caught.value.reason == "unavailable"
    assert sorted_out(1_000 * SECOND + 1, 1_000 * SECOND - 1) == ({}, [(0, "late")])


@given(
    st.integers(0, 60 * SECOND),
    st.lists(st.none() | st.integers(-5 * SECOND, 90 * SECOND), min_size=1, max_size=8),
    st.integers(-1, 7),
)
def test_no_row_decides_about_another(arrived: int, times: list[int | None], sealed: int) -> None:
    """Each row has the slot, or the reason, that it would have if it had come alone."""
    arrived += CLOCK.epoch_ns
    moments = [None if time is None else CLOCK.epoch_ns + time for time in times]
    found, refused = sorted_out(arrived, *moments, sealed=sealed)
    alone = [sorted_out(arrived, moment, sealed=sealed) for moment in moments]
    assert refused == [(row, why[0][1]) for row, (_, why) in enumerate(alone) if why]
    assert {row: slot for slot, rows in found.items() for row in rows} == {
        row: next(iter(taken)) for row, (taken, _) in enumerate(alone) if taken
    }


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
