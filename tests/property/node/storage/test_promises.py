"""Random histories of a ledger that several networks share: whatever is paid, no user pays more than any promise says.

The networks have slots of different lengths and epochs, windows or horizons, users in different numbers of regions and
at different numbers of servers. They pay, begin new horizons, come back with other slots, as a restored ledger does
with another network.toml, and promise more. The test keeps its own list of what was paid, and after every payment it
adds up, for every promise, every window or horizon, and every user that the promise may have, what that user has paid:
slot by slot and user by user, in fractions, with nothing of the ledger's own rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.errors import BadInput, BudgetExhausted
from dpcrowd.node.slots import SECOND, SlotClock
from dpcrowd.node.storage import SlotTaken, database
from dpcrowd.node.storage.database import Database
from dpcrowd.node.storage.ledger import LedgerStore
from dpcrowd.node.storage.migrate import LEDGER_STEPS, migrate
from dpcrowd.privacy.network_guarantee import UserBounds
from examples_support import examples

BEGIN, END, NEVER = 1_000, 1_016, 1_100
"""In seconds; what is paid is between the first two. Close together, so that windows of all kinds overlap."""

numbers = st.integers(1, 3)
lengths = st.integers(1, 4)
times = st.integers(BEGIN, END)
bounds = st.builds(UserBounds, numbers, numbers)


@dataclass(frozen=True)
class Paid:
    """A payment: seconds, nano-epsilon, and for how many regions and servers its noise was made."""

    network: int
    first: int
    end: int
    nano: int
    bounds: UserBounds

    def overlaps(self, span: tuple[int, int]) -> bool:
        return self.first < span[1] and self.end > span[0]


@dataclass
class Network:
    """What a network has told its users; windows None: it has horizons."""

    nano: int
    bounds: UserBounds
    length: int
    epoch: int
    windows: int | None
    paid_under: set[tuple[int, int, int]] = field(default_factory=set)  # length, epoch, windows
    starts: list[int] = field(default_factory=lambda: [0])  # of horizons
    promised_more: bool = False
    """Then what was paid before may be too much for a window that was not promised yet; nothing is added to it."""

    @property
    def clock(self) -> SlotClock:
        return SlotClock((BEGIN + self.epoch) * SECOND, self.length * SECOND)

    def spans(self) -> set[tuple[int, int]]:
        """All windows, or horizons, of all slots under which it has promised anything to anybody."""
        if self.windows is None:
            return set(zip(self.starts, [*self.starts[1:], NEVER], strict=True))
        return {
            (start, start + windows * length)
            for length, epoch, windows in {(self.length, self.epoch, self.windows), *self.paid_under}
            for start in range(BEGIN + epoch - 10 * length, NEVER, length)
        }

    def worst_user(self, paid: Iterable[Paid]) -> Fraction:
        """The most that one of its users pays, over all numbers of regions and servers.

        In the slots of each network a user keeps within that network's bounds or within those of this promise.
        """
        total = Fraction(0)
        for one in paid:
            noise = Fraction(one.nano, one.bounds.regions * one.bounds.servers)
            regions = range(1, max(one.bounds.regions, self.bounds.regions) + 1)
            servers = range(1, max(one.bounds.servers, self.bounds.servers) + 1)
            total += max(noise * some * many for some, many in product(regions, servers))
        return total


networks = st.builds(
    Network, st.integers(6, 30), bounds, lengths, st.integers(0, 3), st.one_of(st.none(), st.integers(1, 4))
)
steps = st.one_of(
    st.tuples(st.just("pay"), times, st.integers(1, 12)),
    st.tuples(st.just("pay"), times, st.none()),  # all that is left: where a rule that allows too much shows
    st.tuples(st.just("horizon"), times, st.none()),
    st.tuples(st.just("slots"), st.tuples(lengths, st.integers(0, 3)), st.integers(1, 6)),
    st.tuples(st.just("more"), bounds, st.integers(0, 3)),
)


class SharedLedger:
    """Networks on one ledger, and the test's own list of what they have paid."""

    def __init__(self, storage: Database, told: list[Network]) -> None:
        self.database, self.told = storage, told
        self.ledgers = [LedgerStore(storage, storage, f"network {number}") for number in range(len(told))]
        self.paid: list[Paid] = []
        for number in range(len(told)):
            self.declare(number)

    def declare(self, number: int) -> None:
        told = self.told[number]
        span = None if told.windows is None else told.windows * told.length * SECOND
        self.ledgers[number].declare(told.nano, span, bounds=told.bounds, slots=told.clock)

    def step(self, number: int, kind: str, what: Any, more: Any) -> None:
        told = self.told[number]
        if kind == "pay":
            self.pay(number, what, more)
        elif kind == "horizon":
            self.begin_horizon(number, what)
        elif kind == "slots":
            before = (told.windows or 0) * told.length
            told.length, told.epoch = what
            if told.windows is not None:
                told.windows = max(more, -(-before // told.length))
            told.promised_more = True
            self.declare(number)
        else:
            told.bounds = UserBounds(max(told.bounds.regions, what.regions), max(told.bounds.servers, what.servers))
            told.nano = max(told.nano - more, 1)
            told.promised_more = True
            self.declare(number)

    def pay(self, number: int, at: int, nano: int | None) -> None:
        told, ledger = self.told[number], self.ledgers[number]
        slot = told.clock.slot_of(at * SECOND)
        opens = told.clock.opens(slot)
        room = ledger.allowance(opens)
        counted = room.account.counted_payments(room.guarantee, opens)
        assert room.counted == sum(room.guarantee.bounds.cost(one.nano, one.bounds) for one in counted)
        asked = max(room.nano, 1) if nano is None else nano
        try:
            with self.database.transaction() as connection:
                ledger.pay(connection, slot, opens, told.length * SECOND, asked, b"")
        except (BudgetExhausted, SlotTaken) as refused:
            if isinstance(refused, BudgetExhausted) and asked <= room.nano:
                raise
            return
        assert asked <= room.nano
        new = Paid(number, opens // SECOND, opens // SECOND + told.length, asked, told.bounds)
        self.paid.append(new)
        if told.windows is not None:
            told.paid_under.add((told.length, told.epoch, told.windows))
        for one in self.told:
            for span in one.spans():
                if new.overlaps(span) or not one.promised_more:
                    assert one.worst_user(paid for paid in self.paid if paid.overlaps(span)) <= one.nano

    def begin_horizon(self, number: int, at: int) -> None:
        told, ledger = self.told[number], self.ledgers[number]
        if told.windows is not None:
            with pytest.raises(BadInput):
                ledger.new_horizon(at * SECOND, at * SECOND, "")
            return
        ledger.new_horizon(at * SECOND, at * SECOND, "")
        since = ledger.account(0).guarantees[number].since_ns // SECOND
        assert since > at - told.length
        assert since == told.starts[-1] or (since - BEGIN - told.epoch) % told.length == 0, "slots are not cut in two"
        if since != told.starts[-1]:
            told.starts.append(since)

    def check_horizons(self) -> None:
        """Every payment is in one horizon of its network; in two if an old horizon begins inside a new slot."""
        for one in self.paid:
            told = self.told[one.network]
            if told.windows is None:
                across = any(one.first < start < one.end for start in told.starts)
                assert across or sum(one.overlaps(span) for span in told.spans()) == 1


@cache
def empty_ledger() -> bytes:
    """A database without payments: each example begins with a copy."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "dpcrowd.db"
        with closing(Database(path)) as storage:
            migrate(storage, LEDGER_STEPS, keep_copy=False)
        return path.read_bytes()


@contextmanager
def shared_ledger(told: list[Network]) -> Iterator[SharedLedger]:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        # No crash happens here: no waiting for the disk.
        patch.setattr(database, "_PRAGMAS", (*database._PRAGMAS, "synchronous = OFF"))
        path = Path(folder) / "dpcrowd.db"
        path.write_bytes(empty_ledger())
        with closing(Database(path)) as storage:
            yield SharedLedger(storage, told)


@given(
    st.lists(networks, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), steps), min_size=5, max_size=40),
)
@settings(max_examples=examples(150))
@pytest.mark.slow
def test_no_user_pays_more_than_any_network_has_promised(told: list[Network], plan: list[tuple[int, Any]]) -> None:
    """Sums without the bounds of users, windows of other slots, or horizons that forget a slot would break it."""
    with shared_ledger(told) as shared:
        for number, (kind, what, more) in plan:
            shared.step(number % len(told), kind, what, more)
            shared.check_horizons()


@given(
    st.tuples(lengths, st.integers(0, 3)),
    st.tuples(lengths, st.integers(0, 3)),
    st.integers(1, 4),
    st.lists(times, max_size=12),
    st.lists(times, min_size=1, max_size=12),
)
@settings(max_examples=examples(150))
@pytest.mark.slow
def test_a_network_with_other_slots_keeps_the_windows_of_both(
    old: tuple[int, int], new: tuple[int, int], windows: int, before: list[int], after: list[int]
) -> None:
    """By the present slots alone, a network that comes back with other ones would pay twice within a window."""
    with shared_ledger([Network(12, UserBounds(), *old, windows)]) as shared:
        for at in before:
            shared.pay(0, at, None if at % 2 else 5)
        shared.step(0, "slots", new, 1)
        for at in after:
            shared.pay(0, at, None if at % 2 else 5)
