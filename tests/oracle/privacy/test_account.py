"""Accounts beside a list of payments, with every window written down: how much a slot may cost, and that it is enough.

Several networks with slots of different lengths and epochs, with windows or horizons, and with users in different
numbers of regions and at different numbers of servers pay into one account. Losses are confirmed, horizons begin, a
network is withdrawn and comes back, with other slots or for more users, and the clock is set ahead. The oracle knows
none of the account's formulas: it lists windows one by one, tries every user that a promise may have, in fractions, and
every amount that a slot could cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpcrowd.errors import BadInput, BudgetExhausted, SlotTaken
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.clock_jumps import ClockSteps
from dpcrowd.privacy.network_guarantee import UserBounds
from dpcrowd.privacy.payments import Payments

SECOND = 1_000_000_000
BEGIN, NEVER = 1_000, 10_000
"""In seconds, as all times here."""


@dataclass(frozen=True)
class Row:
    """What was paid or lost."""

    network: int
    first: int
    end: int
    nano: int
    bounds: UserBounds
    lost: bool = False

    def overlaps(self, first: int, end: int) -> bool:
        return self.first < end and self.end > first


@dataclass
class Network:
    """What a network has told its users; windows None: it has horizons."""

    nano: int
    bounds: UserBounds
    length: int
    epoch: int
    windows: int | None
    here: bool = True
    paid_under: set[tuple[int, int, int]] = field(default_factory=set)  # length, epoch, windows
    starts: list[int] = field(default_factory=lambda: [0])  # of horizons

    def opens(self, at: int) -> int:
        return at - (at - BEGIN - self.epoch) % self.length

    def spans(self) -> list[tuple[int, int]]:
        """All windows, or horizons."""
        if self.windows is None:
            return list(zip(self.starts, [*self.starts[1:], NEVER], strict=True))
        return [
            (start, start + windows * length)
            for length, epoch, windows in {(self.length, self.epoch, self.windows), *self.paid_under}
            for start in range(BEGIN + epoch - 60 * length, BEGIN + 400, length)
        ]

    def worst(self, nano: int, payer: UserBounds) -> Fraction:
        """The most that a payment costs one of the network's users."""
        regions = range(1, max(payer.regions, self.bounds.regions) + 1)
        servers = range(1, max(payer.servers, self.bounds.servers) + 1)
        noise = Fraction(nano, payer.regions * payer.servers)
        return max(noise * some * many for some, many in product(regions, servers))


class World:
    """An account, and the list beside it."""

    def __init__(self, networks: list[Network]) -> None:
        self.networks, self.rows, self.now = networks, list[Row](), BEGIN + 60
        self.jumps: list[tuple[int, int]] = []  # when, and how far
        self.steps = [ClockSteps() for _ in networks]
        self.account = Account("")
        for number in range(len(networks)):
            self.declare(number)

    def of(self, number: int) -> Account:
        return replace(self.account, network=f"network {number}")

    def declare(self, number: int) -> None:
        told = self.networks[number]
        span = None if told.windows is None else told.windows * told.length * SECOND
        grid = {"slot_ns": told.length * SECOND, "epoch_ns": (BEGIN + told.epoch) * SECOND}
        self.account, told.here = self.of(number).declare(told.nano, span, bounds=told.bounds, **grid), True

    # -------------------------------------------------------------------------------------------------- the oracle

    def _ends(self, row: Row) -> int:
        """Return when a row ends by the present clock: what was before a jump is younger than its date says.

        A slot that was paid for while it was open, and that the clock then passed over, ended with the jump.
        """
        end = row.end
        for at, moved in self.jumps:
            end = end + moved if at >= end else max(end, at + moved)
        return end

    def counted(self, told: Network, opens: int) -> list[Row]:
        """What counts with a slot that opens at a time: all that ends after the earliest window, or horizon, begins."""
        if told.windows is None:
            begins = max((start for start in told.starts if start <= opens), default=0)
            return [row for row in self.rows if row.end > begins]
        begins = min(start for start, end in told.spans() if end > opens)
        return [row for row in self.rows if self._ends(row) > begins]

    def largest(self, number: int, opens: int) -> int:
        """The most that a slot may cost, found by trying."""
        payer, most = self.networks[number].bounds, None
        for told in self.networks:
            if not told.here:
                continue
            used = sum(math.ceil(told.worst(row.nano, row.bounds)) for row in self.counted(told, opens))
            fits = [nano for nano in range(told.nano + 1) if used + math.ceil(told.worst(nano, payer)) <= told.nano]
            most = min(max(fits, default=0), told.nano if most is None else most)
        assert most is not None
        return most

    def check_windows(self, new: Row) -> None:
        """No window or horizon that holds the new payment holds more than was promised, for any user."""
        for told in self.networks:
            for first, end in told.spans() if told.here else []:
                if new.overlaps(first, end):
                    held = (told.worst(row.nano, row.bounds) for row in self.rows if row.overlaps(first, end))
                    assert sum(held) <= told.nano

    # --------------------------------------------------------------------------------------------------- the world

    def pay(self, number: int, back: int, nano: int | None) -> None:
        told = self.networks[number]
        if not told.here:
            self.declare(number)
        opens = told.opens(self.now - back)
        if any(opens < at + moved and opens + told.length > at for at, moved in self.jumps):
            return  # nobody was there for a slot that the clock has passed over
        account, most = self.of(number), self.largest(number, opens)
        answer = account.allowance(opens * SECOND)
        assert answer.nano == most
        taken = [row for row in self.rows if row.network == number and row.overlaps(opens, opens + told.length)]
        if taken:
            why = "declared lost" if any(row.lost for row in taken) else "drawn before"
            with pytest.raises(SlotTaken, match=why):
                account.pay(0, opens * SECOND, told.length * SECOND, 1)
            return
        with pytest.raises(BudgetExhausted, match=r"asks for") as refused:
            account.pay(0, opens * SECOND, told.length * SECOND, most + 1)
        assert refused.value.remaining == most
        asked = most if nano is None else min(nano, most)
        if not asked:
            return
        self.account = account.pay(0, opens * SECOND, told.length * SECOND, asked)
        self.rows.append(Row(number, opens, opens + told.length, asked, told.bounds))
        if told.windows is not None:
            told.paid_under.add((told.length, told.epoch, told.windows))
        if not self.jumps:  # windows of dates; of time that has passed, see test_node_clock_steps
            self.check_windows(self.rows[-1])

    def lose(self, number: int, back: int, nano: int) -> None:
        first, end = self.now - back - 3, self.now - back + 1
        if not any(first < at + moved and end > at for at, moved in self.jumps):
            self.account = self.of(number).book_loss(first * SECOND, end * SECOND, nano)
            bounds = self.networks[number].bounds if self.networks[number].here else UserBounds()
            self.rows.append(Row(number, first, end, nano, bounds, lost=True))

    def begin_horizon(self, number: int) -> None:
        told = self.networks[number]
        if told.windows is not None or not told.here:
            with pytest.raises(BadInput):
                self.of(number).new_horizon(self.now * SECOND, self.now * SECOND)
            return
        self.account = self.of(number).new_horizon(self.now * SECOND, self.now * SECOND)
        start = self.of(number).own.since_ns // SECOND
        if start != told.starts[-1]:
            told.starts.append(start)

    def withdraw(self, number: int) -> None:
        told = self.networks[number]
        if told.here and told.windows is not None:
            self.account, told.here = self.account.withdraw(f"network {number}"), False
            told.paid_under.clear()

    def change(self, number: int, grid: tuple[int, int], bounds: UserBounds, less: int) -> None:
        """A stronger promise, for other slots: to promise less is refused."""
        told = self.networks[number]
        if not told.here:
            return
        with pytest.raises(BadInput, match="weaker"):
            self.of(number).declare(told.nano + 1, None, bounds=told.bounds)
        if told.windows is not None:
            told.windows = -(-told.windows * told.length // grid[0])
        told.length, told.epoch = grid
        told.bounds = UserBounds(max(told.bounds.regions, bounds.regions), max(told.bounds.servers, bounds.servers))
        told.nano = max(told.nano - less, 1)
        self.declare(number)

    def set_ahead(self, moved: int) -> None:
        """Every network's server sees it."""
        for number in range(len(self.networks)):
            given = self.of(number).set_clock(self.steps[number], self.now * SECOND, moved * SECOND)
            self.account, self.steps[number] = given
        self.jumps.append((self.now, moved))
        self.now += moved


numbers = st.integers(1, 3)
bounds = st.builds(UserBounds, numbers, numbers)
grids = st.tuples(st.integers(1, 4), st.integers(0, 3))
networks = st.builds(
    Network, st.integers(5, 25), bounds, st.integers(1, 4), st.integers(0, 3), st.one_of(st.none(), st.integers(1, 4))
)
steps = st.one_of(
    st.tuples(st.just("pay"), st.integers(0, 8), st.one_of(st.none(), st.integers(1, 9))),
    st.tuples(st.just("pay"), st.integers(0, 3), st.one_of(st.none(), st.integers(1, 9))),
    st.tuples(st.just("pass"), st.integers(1, 5), st.none()),
    st.tuples(st.just("lose"), st.integers(0, 5), st.integers(1, 9)),
    st.tuples(st.just("horizon"), st.none(), st.none()),
    st.tuples(st.just("withdraw"), st.none(), st.none()),
    st.tuples(st.just("change"), st.tuples(grids, bounds), st.integers(0, 2)),
    st.tuples(st.just("ahead"), st.integers(1, 9), st.none()),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(networks, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), steps), min_size=4, max_size=30),
)
@example(
    [Network(5, UserBounds(1, 1), 1, 0, 2)],
    [(0, ("pass", 1, None)), (0, ("pay", 0, None)), (0, ("ahead", 2, None)), (0, ("pay", 0, None))],
)
def test_a_slot_may_cost_what_every_promise_leaves_and_no_more(
    told: list[Network], plan: list[tuple[int, Any]]
) -> None:
    """Too much, and a promise is broken for good; too little, and a server is silent that could speak."""
    world = World(told)
    for who, (kind, what, more) in plan:
        number = who % len(told)
        match kind:
            case "pay":
                world.pay(number, what, more)
            case "pass":
                world.now += what
                world.account = replace(world.account, payments=Payments(world.account.payments))  # as if loaded anew
            case "lose":
                world.lose(number, what, more)
            case "horizon":
                world.begin_horizon(number)
            case "withdraw":
                world.withdraw(number)
            case "change":
                world.change(number, *what, more)
            case "ahead":
                world.set_ahead(what)
    for row in world.rows:
        assert world.account.total == sum(row.nano for row in world.rows), row
        assert world.account.lost == sum(row.nano for row in world.rows if row.lost)
