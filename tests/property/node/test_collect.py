"""The collector against the plainest thing that does the same, and the journal's records there and back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dpcrowd.node.collect import (
    HASH_BYTES,
    Collector,
    HashedRows,
    checkins_record,
    count_distinct,
    names_record,
    replay,
)

REGIONS, CAPACITY = 3, 5
NAMES = ("north", "south", "west")
users = st.integers(0, 7).map(lambda number: number.to_bytes(HASH_BYTES, "big"))
rows = st.lists(st.tuples(users, st.integers(0, REGIONS - 1)), max_size=7)
slots = st.integers(0, 4)

Row = tuple[bytes, int]


MANY_NAMES = [f"region-{number}" for number in range(1000)]


def unpacked(record: bytes) -> HashedRows:
    """Users and regions of one record of check-ins, by the numbers with which it was written."""
    numbers = {name: number for number, name in enumerate(MANY_NAMES)}
    (rows,) = replay([names_record(MANY_NAMES), record], numbers)
    assert not isinstance(rows, dict)
    return rows


def hashed(record: bytes) -> tuple[list[bytes], list[int]]:
    """What the journal holds, as a collector takes it."""
    hashes, regions = unpacked(record)
    return [user.tobytes() for user in hashes], regions.tolist()


def packed(batch: list[Row]) -> bytes:
    return checkins_record([user for user, _ in batch], [at for _, at in batch])


class Reference(RuleBasedStateMachine):
    """{slot: {user: region}} or {slot: counts}, with every rule of the module written out."""

    def __init__(self) -> None:
        super().__init__()
        self.collector = Collector(REGIONS, CAPACITY)
        self.journal: dict[int, list[bytes]] = {}
        self.users: dict[int, dict[bytes, int]] = {}
        self.counts: dict[int, list[int]] = {}
        self.fed: set[int] = set()
        self.sealed = -1

    @rule(slot=slots, batch=rows)
    def add(self, slot: int, batch: list[Row]) -> None:
        hashes, regions = [user for user, _ in batch], [at for _, at in batch]
        if slot <= self.sealed:
            with pytest.raises(ValueError, match="sealed"):
                self.collector.add(slot, hashes, regions)
            return
        if slot in self.counts:
            return  # a node takes one or the other: ingest.accepts
        self.collector.add(slot, hashes, regions)
        self.fed.add(slot)
        self.users.setdefault(slot, {}).update(batch)
        self.journal.setdefault(slot, []).append(packed(batch))

    @rule(slot=slots, counts=st.dictionaries(st.integers(0, REGIONS - 1), st.integers(0, 2**40)))
    def set_counts(self, slot: int, counts: dict[int, int]) -> None:
        if slot <= self.sealed:
            with pytest.raises(ValueError, match="sealed"):
                self.collector.set_counts(slot, counts)
            return
        if slot in self.users:
            return
        self.collector.set_counts(slot, counts)
        self.fed.add(slot)
        self.counts[slot] = [counts.get(region, 0) for region in range(REGIONS)]

    @rule(slot=slots)
    def seal(self, slot: int) -> None:
        found = self.collector.seal(slot)
        held = self.users.get(slot, {})
        if len(held) > CAPACITY:
            assert found is None
            found = count_distinct(lambda: map(unpacked, self.journal[slot]), REGIONS, CAPACITY)
        assert found is not None
        assert found.dtype == np.int64
        places = list(held.values())
        in_check_ins = [places.count(region) for region in range(REGIONS)]
        assert found.tolist() == self.counts.get(slot, in_check_ins)
        if slot >= self.sealed:
            assert self.collector.fed(slot) == (slot in self.fed)  # still known once it is sealed
        self.sealed = max(self.sealed, slot)
        for gone in range(self.sealed + 1):
            self.users.pop(gone, None)
            self.counts.pop(gone, None)
            self.journal.pop(gone, None)

    @rule()
    def restart(self) -> None:
        """What the journal holds gives the same check-ins again, in any case; counts are sent again by their job."""
        self.collector = Collector(REGIONS, CAPACITY)
        if self.sealed >= 0:
            self.collector.seal(self.sealed)
        for slot, records in self.journal.items():
            for record in records:
                self.collector.add(slot, *hashed(record))
        self.fed = {slot for slot in self.fed if slot > self.sealed and slot in self.journal}
        self.counts.clear()

    @invariant()
    def nothing_of_a_sealed_slot_is_kept(self) -> None:
        assert all(slot > self.sealed for slot in self.collector._open)

    @invariant()
    def no_more_users_are_held_than_memory_is_for(self) -> None:
        assert all(len(held.users) <= CAPACITY for held in self.collector._open.values())

    @invariant()
    def a_slot_is_fed_by_what_was_taken_and_nothing_else(self) -> None:
        later = range(self.sealed + 1, 6)
        assert [slot for slot in later if self.collector.fed(slot)] == [slot for slot in later if slot in self.fed]


TestReference = pytest.mark.slow(Reference.TestCase)
"""Without it: a user counted twice, in a slot that is over, lost by a restart, or for lack of memory."""


@given(st.lists(st.tuples(st.binary(min_size=HASH_BYTES, max_size=HASH_BYTES), st.integers(0, len(MANY_NAMES) - 1))))
def test_a_batch_there_and_back(batch: list[Row]) -> None:
    """An acknowledged check-in survives a crash as it was, also a hash that ends in zeros."""
    record = packed(batch)
    assert len(record) == 1 + 20 * len(batch)
    assert hashed(record) == ([user for user, _ in batch], [at for _, at in batch])


any_hash = st.one_of(
    users,
    st.binary(min_size=HASH_BYTES, max_size=HASH_BYTES),
    # Hashes that differ in one half only: a part of the users is chosen by the first.
    st.tuples(st.integers(0, 2), st.integers(0, 2)).map(lambda two: b"".join(n.to_bytes(8, "little") for n in two)),
)
batches = st.lists(st.lists(st.tuples(any_hash, st.integers(0, REGIONS - 1)), max_size=12), max_size=6)


@given(batches, st.integers(1, 40))
@pytest.mark.slow
def test_counting_the_journal_is_counting_in_memory(given_batches: list[list[Row]], capacity: int) -> None:
    """Whether a slot fits into memory must not change its counts: the last region of each user, once, in any case."""
    memory = Collector(REGIONS, 10**9)
    for batch in given_batches:
        memory.add(0, [user for user, _ in batch], [at for _, at in batch])
    expected = memory.seal(0)
    assert expected is not None

    records = [packed(batch) for batch in given_batches]
    found = count_distinct(lambda: map(unpacked, records), REGIONS, capacity)
    assert found.dtype == np.int64
    assert found.tolist() == expected.tolist()


@pytest.mark.slow
@given(batches, st.integers(1, 40), st.permutations(NAMES))
def test_the_journal_is_counted_by_the_names_of_regions(
    given_batches: list[list[Row]], capacity: int, order: list[str]
) -> None:
    """After a restart regions may have other numbers: counted by the old ones, people would change places."""
    records = [
        names_record(NAMES),
        *(checkins_record([u for u, _ in batch], [at for _, at in batch]) for batch in given_batches),
    ]
    numbers = {name: number for number, name in enumerate(order)}

    def read() -> Iterator[HashedRows]:
        for content in replay(records, numbers):
            assert not isinstance(content, dict)
            yield content

    last = {user: NAMES[at] for batch in given_batches for user, at in batch}
    expected = [list(last.values()).count(name) for name in order]
    assert count_distinct(read, REGIONS, capacity).tolist() == expected


@given(st.lists(st.binary(min_size=HASH_BYTES, max_size=HASH_BYTES), max_size=60), st.integers(1, 20))
def test_the_journal_is_read_once_for_each_part(hashes: list[bytes], capacity: int) -> None:
    """Once to count its rows, and then for as many parts as memory needs: more would keep a seal waiting."""
    reads = 0

    def read() -> Iterator[HashedRows]:
        nonlocal reads
        reads += 1
        yield unpacked(checkins_record(hashes, [0] * len(hashes)))

    assert count_distinct(read, REGIONS, capacity).tolist() == [len(set(hashes)), 0, 0]
    assert reads == 1 + max(1, -(-len(hashes) // capacity))


def test_beyond_the_capacity_a_slot_is_left_to_the_journal() -> None:
    """Users are dropped from memory, not turned away; one that was there before does not make a slot too large."""
    collector = Collector(REGIONS, 2)
    one, two, three = (bytes([number]) * HASH_BYTES for number in range(3))
    collector.add(0, [one, two, one, two], [0, 1, 2, 2])
    collector.add(0, [one], [1])
    assert collector.seal(0) is not None
    collector.add(1, [one, two], [0, 0])
    collector.add(1, [three], [1])
    assert collector.fed(1)
    collector.add(1, [one], [2])
    assert not collector._open[1].users  # memory for what is counted elsewhere
    assert collector.seal(1) is None
    assert collector.fed(1)
    after = collector.seal(2)
    assert after is not None
    assert after.tolist() == [0, 0, 0]


def test_one_slot_that_is_large_leaves_the_next_alone() -> None:
    """Around a slot's end two are open: the users of one say nothing about the memory of the other."""
    collector = Collector(REGIONS, 1)
    one, two = (bytes([number]) * HASH_BYTES for number in range(2))
    collector.add(0, [one, two], [0, 0])
    collector.add(1, [one], [1])
    assert collector.seal(0) is None
    left = collector.seal(1)
    assert left is not None
    assert left.tolist() == [0, 1, 0]


def test_counts_of_a_slot_outlast_new_regions() -> None:
    """A reload may add regions after a slot was given its counts: sealing it must not fail."""
    collector = Collector(1, 10)
    collector.set_counts(0, {0: 7})
    collector.regions = 3
    counts = collector.seal(0)
    assert counts is not None
    assert counts.tolist() == [7, 0, 0]
