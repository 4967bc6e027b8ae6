"""Random lives of a ledger beside a brute-force model that keeps every payment in a list and adds Fractions.

Whatever the order of spending, asking, pausing, crashing and coming back, no account may ever hold more than its
total in any w consecutive slots (or in the whole horizon), and a refusal must say what the model says.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dpcrowd.errors import BadInput, BudgetExhausted
from dpcrowd.privacy import Ledger, ObserverLedger
from dpcrowd.privacy.guarantee import Guarantee
from dpcrowd.privacy.ledger import open_ledger
from dpcrowd.privacy.units import NANO
from examples_support import examples

Account = tuple[int, int]


class LedgerLife(RuleBasedStateMachine):
    """Charges are small whole numbers of nano-epsilon, so that limits are met exactly and often."""

    @initialize(
        kind=st.sampled_from(["finite", "window"]),
        length=st.integers(1, 6),
        total=st.integers(1, 12),
        servers=st.integers(1, 3),
        regions=st.integers(1, 3),
        accounting=st.sampled_from(["sound", "per-region"]),
    )
    def open(self, kind: Any, length: int, total: int, servers: int, regions: int, accounting: Any) -> None:
        length = length if kind == "window" else 4 * length
        self.guarantee = Guarantee(kind, length, float(total) / NANO)
        self.total = Fraction(total, NANO)
        self.servers, self.regions, self.accounting = servers, regions, accounting
        self.ledger: Ledger = open_ledger(self.guarantee, servers, regions, accounting)
        self.observer = ObserverLedger(self.guarantee, servers, regions)
        self.now = -1
        self.payments: list[tuple[int, Account, Fraction]] = []

    # ------------------------------------------------------------------------------------------------- the model

    def accounts(self) -> list[Account]:
        columns = 1 if self.accounting == "sound" else self.regions
        return [(server, column) for server in range(self.servers) for column in range(columns)]

    def between(self, account: Account, first: int, last: int) -> Fraction:
        return sum((paid for slot, who, paid in self.payments if who == account and first <= slot <= last), Fraction(0))

    def left(self, account: Account, slot: int) -> Fraction:
        if self.guarantee.kind == "finite":
            return self.total - self.between(account, -1, slot) if slot < self.guarantee.length else Fraction(0)
        return self.total - self.between(account, slot - self.guarantee.length + 1, slot)

    def cost(self, charge: Any, account: Account) -> Fraction:
        server, column = account
        row = [Fraction(int(value), NANO) for value in charge[server]]
        return max(row) if self.accounting == "sound" else row[column if len(row) > 1 else 0]

    def next_return(self, account: Account, slot: int) -> int | None:
        if self.guarantee.kind == "finite":
            return None
        later = range(slot + 1, slot + self.guarantee.length + 1)
        return next((t for t in later if self.between(account, *[t - self.guarantee.length] * 2) > 0), None)

    # ---------------------------------------------------------------------------------------------------- events

    def pay(self, slot: int, charge: Any) -> None:
        costs = {account: self.cost(charge, account) for account in self.accounts()}
        over = [account for account in self.accounts() if costs[account] > self.left(account, slot)]
        self.now = max(self.now, slot)
        ended = self.guarantee.kind == "finite" and slot >= self.guarantee.length
        if not over:
            charged = self.ledger.spend(slot, charge)
            assert {a: Fraction(int(charged[a]), NANO) for a in self.accounts()} == costs
            self.payments += [(slot, account, paid) for account, paid in costs.items()]
            self.observer.record(slot, charge)
            return
        with pytest.raises(BudgetExhausted) as refused:
            self.ledger.spend(slot, charge)
        error = refused.value
        if ended:
            assert (error.remaining, error.returns_at) == (0, None)
            self.now = self.ledger.slot
            return
        assert Fraction(error.requested, NANO) == costs[over[0]]
        assert Fraction(error.remaining, NANO) == self.left(over[0], slot)
        assert error.returns_at == self.next_return(over[0], slot)

    @rule(step=st.integers(0, 8), one_column=st.booleans(), data=st.data())
    def spend(self, step: int, one_column: bool, data: st.DataObject) -> None:
        shape = (self.servers, 1 if one_column else self.regions)
        size = shape[0] * shape[1]
        largest = int(self.total * NANO) // 2 + 1
        values = data.draw(st.lists(st.integers(0, largest), min_size=size, max_size=size))
        self.pay(max(self.now, 0) + step, np.array(values, dtype=np.int64).reshape(shape))

    @rule(step=st.integers(0, 3))
    def spend_all_that_is_left_and_one_more(self, step: int) -> None:
        slot = max(self.now, 0) + step
        left = self.ledger.remaining(slot)
        self.now = slot
        self.pay(slot, left if self.accounting == "per-region" else left[:, :1])
        one = np.zeros((self.servers, self.regions), dtype=np.int64)
        one[-1, -1] = 1
        self.pay(slot, one)

    @rule(step=st.integers(0, 20))
    def ask(self, step: int) -> None:
        self.now = max(self.now, 0) + step
        left = self.ledger.remaining(self.now)
        for account in self.accounts():
            assert Fraction(int(left[account]), NANO) == self.left(account, self.now)
            assert self.ledger.returns_at(self.now, *account)[0] == self.next_return(account, self.now)

    @rule(back=st.integers(1, 4))
    def go_back(self, back: int) -> None:
        if self.now >= 0 and not (self.guarantee.kind == "finite" and self.now - back >= self.guarantee.length):
            with pytest.raises(BadInput, match="already reached"):
                self.ledger.spend(self.now - back, np.ones((self.servers, 1), dtype=np.int64))

    @rule()
    def crash_and_restore(self) -> None:
        saved = self.ledger.arrays()
        self.ledger = open_ledger(self.guarantee, self.servers, self.regions, self.accounting)
        self.ledger.restore(saved)

    # -------------------------------------------------------------------------------------------------- promises

    @invariant()
    def no_window_exceeds_the_total(self) -> None:
        length = self.guarantee.length if self.guarantee.kind == "window" else 10**9
        for account in self.accounts():
            for first in {slot for slot, who, _ in self.payments if who == account}:
                assert self.between(account, first, first + length - 1) <= self.total

    @invariant()
    def the_observer_agrees(self) -> None:
        paid = self.observer.report()
        bounded = paid.moving if self.accounting == "sound" else paid.staying
        assert Fraction(bounded, NANO) <= self.total
        assert paid.staying <= paid.moving <= paid.roaming


LedgerLife.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=25)
TestLedgerLife = pytest.mark.slow(LedgerLife.TestCase)
