"""The collector against the plainest thing that does the same, and the journal's blobs there and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dpcrowd.node.collect import HASH_BYTES, Collector, NotTaken, pack_batch, unpack_batch

REGIONS, CAPACITY = 3, 5
users = st.integers(0, 7).map(lambda number: number.to_bytes(HASH_BYTES, "big"))
rows = st.lists(st.tuples(users, st.integers(0, REGIONS - 1)), max_size=7)
slots = st.integers(0, 4)


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
    def add(self, slot: int, batch: list[tuple[bytes, int]]) -> None:
        there = {**self.users.get(slot, {}), **dict(batch)}
        expected = None
        if slot <= self.sealed:
            expected = "late"
        elif slot in self.counts and batch:
            expected = "mixed"
        elif len(dict(batch)) > CAPACITY:
            expected = "too-large"
        elif len(there) > CAPACITY:
            expected = "full"
        assert (
            self.outcome(lambda: self.collector.add(slot, [user for user, _ in batch], [at for _, at in batch]))
            == expected
        )
        if expected is None:
            self.fed.add(slot)
            self.users[slot] = there
            self.journal.setdefault(slot, []).append(pack_batch([user for user, _ in batch], [at for _, at in batch]))

    @rule(slot=slots, counts=st.dictionaries(st.integers(0, REGIONS - 1), st.integers(0, 2**40)))
    def set_counts(self, slot: int, counts: dict[int, int]) -> None:
        expected = "late" if slot <= self.sealed else "mixed" if self.users.get(slot) else None
        assert self.outcome(lambda: self.collector.set_counts(slot, counts)) == expected
        if expected is None:
            self.fed.add(slot)
            self.counts[slot] = [counts.get(region, 0) for region in range(REGIONS)]

    @rule(slot=slots)
    def seal(self, slot: int) -> None:
        found = self.collector.seal(slot)
        assert found.dtype == np.int64
        places = list(self.users.get(slot, {}).values())
        expected = self.counts.get(slot, [places.count(region) for region in range(REGIONS)])
        assert found.tolist() == expected
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
        for slot, blobs in self.journal.items():
            for blob in blobs:
                self.collector.add(slot, *unpack_batch(blob))
        self.fed -= self.counts.keys() - self.journal.keys()
        self.fed = {slot for slot in self.fed if slot > self.sealed}
        self.counts.clear()

    @invariant()
    def nothing_of_a_sealed_slot_is_kept(self) -> None:
        assert all(slot > self.sealed for slot in self.collector._open)

    @invariant()
    def a_slot_is_fed_by_what_was_taken_and_nothing_else(self) -> None:
        later = range(self.sealed + 1, 6)
        assert [slot for slot in later if self.collector.fed(slot)] == [slot for slot in later if slot in self.fed]

    @staticmethod
    def outcome(act: object) -> str | None:
        try:
            assert callable(act)
            act()
        except NotTaken as refused:
            return refused.reason
        return None


TestReference = Reference.TestCase
"""Without it: a user counted twice, in a slot that is over, beyond the capacity, or lost by a restart."""


@given(st.lists(st.tuples(st.binary(min_size=HASH_BYTES, max_size=HASH_BYTES), st.integers(0, 2**32 - 1))))
def test_a_batch_there_and_back(batch: list[tuple[bytes, int]]) -> None:
    """An acknowledged check-in survives a crash as it was, also a hash that ends in zeros."""
    hashes, regions = [user for user, _ in batch], [at for _, at in batch]
    blob = pack_batch(hashes, regions)
    assert len(blob) == 20 * len(batch)
    assert unpack_batch(blob) == (hashes, regions)


def test_a_refused_batch_leaves_nothing() -> None:
    """Taken whole or not at all: a client that sends again must not have been half counted."""
    collector = Collector(REGIONS, 2)
    many = [bytes([number]) * HASH_BYTES for number in range(3)]
    with pytest.raises(NotTaken):
        collector.add(0, many, [0, 1, 2])
    collector.add(0, [many[0], many[0], many[1]], [0, 2, 1])
    assert collector.seal(0).tolist() == [0, 1, 1]


def test_a_batch_of_two_slots_is_taken_whole_or_not_at_all() -> None:
    """Refused for its second slot, a batch would still be counted in its first, and again when it is sent again."""
    one, two, three = (bytes([number]) * HASH_BYTES for number in range(3))
    collector = Collector(REGIONS, 1)
    collector.set_counts(1, {0: 5})
    for batch in (
        {0: ([one], [0]), 1: ([two], [1])},  # mixed
        {0: ([one], [0]), 2: ([two, three], [1, 1])},  # too-large
    ):
        with pytest.raises(NotTaken):
            collector.add_all(batch)
        assert not collector.fed(0)
    collector.seal(0)
    with pytest.raises(NotTaken):
        collector.add_all({2: ([one], [0]), 0: ([two], [1])})  # late
    assert collector.seal(2).tolist() == [0, 0, 0]


def test_what_was_acknowledged_is_restored_beyond_the_capacity() -> None:
    """A capacity that was made smaller must not lose check-ins, nor keep the node from starting."""
    collector = Collector(REGIONS, 1)
    collector.restore(0, [bytes([number]) * HASH_BYTES for number in range(3)], [0, 1, 1])
    assert collector.seal(0).tolist() == [1, 2, 0]


def test_counts_of_a_slot_outlast_new_regions() -> None:
    """A reload may add regions after a slot was given its counts: sealing it must not fail."""
    collector = Collector(1, 10)
    collector.set_counts(0, {0: 7})
    collector.regions = 3
    assert collector.seal(0).tolist() == [7, 0, 0]


def test_what_can_never_fit_is_not_told_to_come_back() -> None:
    """A batch of more users than a slot holds would be sent again in every slot, for ever; its size is not said."""
    collector = Collector(REGIONS, 2)
    many = [bytes([number]) * HASH_BYTES for number in range(97)]
    with pytest.raises(NotTaken) as refused:
        collector.add(0, many, [0] * 97)
    assert refused.value.reason == "too-large"
    assert "allowed: 2 " in str(refused.value)
    assert "97" not in str(refused.value)
    collector.add(0, many[:1], [0])
    with pytest.raises(NotTaken) as refused:
        collector.add(0, many[1:3], [0, 0])
    assert refused.value.reason == "full"
