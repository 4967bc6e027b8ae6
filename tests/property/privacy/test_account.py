"""Accounts beside simulated ledgers: on one grid of slots, with one network, both allow the same integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpcrowd.errors import BudgetExhausted
from dpcrowd.privacy import Guarantee, open_ledger
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.account_ledger import AccountLedger
from dpcrowd.privacy.network_guarantee import Slots, UserBounds
from dpcrowd.privacy.payments import Payment, Payments
from dpcrowd.privacy.units import NANO
from examples_support import examples

SLOT, REGIONS = 10_000_000_000, 2
EPOCH = 7 * SLOT + 3


def account_of(guarantee: Guarantee) -> Account:
    span = guarantee.length * SLOT if guarantee.kind == "window" else None
    bounds = UserBounds(guarantee.regions_per_slot, guarantee.servers_per_slot)
    account = Account("crowd", configured=Slots(EPOCH, SLOT, guarantee.length))
    return account.declare(guarantee.total, span, bounds=bounds, slot_ns=SLOT, epoch_ns=EPOCH)


steps = st.lists(
    st.tuples(st.integers(0, 4), st.one_of(st.none(), st.tuples(st.integers(0, 9), st.integers(0, 9)))), max_size=40
)


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(
    kind=st.sampled_from(["window", "finite"]),
    length=st.integers(1, 8),
    total=st.integers(1, 20),
    bounds=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    steps=steps,
)
def test_both_ledgers_allow_the_same(
    kind: str, length: int, total: int, bounds: tuple[int, int], steps: list[tuple[int, tuple[int, int] | None]]
) -> None:
    """A live server would sample in other slots, or at another price, than the simulation that it was tuned by."""
    guarantee = Guarantee(
        kind,  # type: ignore[arg-type]
        length,
        total / NANO,
        regions_per_slot=bounds[0],
        servers_per_slot=bounds[1],
    )
    batch, live = open_ledger(guarantee, 1, REGIONS), AccountLedger(account_of(guarantee), REGIONS)
    slot = 0
    for skipped, asked in steps:
        slot += skipped
        assert live.remaining(slot).tolist() == batch.remaining(slot).tolist()
        if asked is not None:
            charge = np.array([asked])
            outcomes = []
            for ledger in (batch, live):
                try:
                    outcomes.append(ledger.spend(slot, charge).tolist())
                except BudgetExhausted:
                    outcomes.append(None)
            assert outcomes[0] == outcomes[1]
        assert live.remaining(slot).tolist() == batch.remaining(slot).tolist(), "after the payment, too"


payments = st.builds(
    lambda number, network, kind, opens, length, nano, regions, servers: Payment(
        number, network, kind, None, opens, opens + length, nano, regions, servers
    ),
    st.integers(1, 10**6),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["sample", "lost"]),
    st.integers(-50, 50),
    st.integers(1, 20),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(1, 3),
)


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(
    first=st.lists(payments, max_size=30),
    more=st.lists(payments, max_size=30),
    repeats=st.sampled_from([1, 20]),
    asked=st.tuples(st.integers(-80, 80), st.integers(1, 30)),
    bounds=st.builds(UserBounds, st.integers(1, 3), st.integers(1, 3)),
)
@example(first=[], more=[Payment(1, "a", "sample", 0, 0, 9, 3)], repeats=400, asked=(0, 5), bounds=UserBounds())
def test_sums_are_those_of_a_list(
    first: list[Payment], more: list[Payment], repeats: int, asked: tuple[int, int], bounds: UserBounds
) -> None:
    """Sums that are kept by prefix, and made longer with each payment, must not lose or repeat any of them."""
    held, listed = Payments(first), list(first)
    for kind in ("sample", "lost"):
        held.cost(bounds, 0, kind)  # so that sums are there which have to be made longer
    for _ in range(repeats):
        for one in more:
            held = held.add(one)
            listed.append(one)
    after = [one for one in listed if one.closes_ns > asked[0]]
    for kind in ("sample", "lost"):
        cost = sum(bounds.cost(one.nano, one.bounds) for one in after if one.kind == kind)
        assert held.cost(bounds, asked[0], kind) == cost
    assert sorted(held.after(asked[0])) == sorted(after)
    assert [one.closes_ns for one in held.after(asked[0])] == sorted(one.closes_ns for one in after)
    assert held.closed_by(asked[0]) == len(listed) - len(after)
    opens, closes = asked[0], asked[0] + asked[1]
    across = [one for one in listed if one.network == "a" and one.closes_ns > opens and one.opens_ns < closes]
    assert sorted(held.overlapping("a", opens, closes)) == sorted(across)
    assert len(held) == len(listed)
    if more and repeats == 1 and len(more) < 200:
        assert held.newest(len(more)) == more


@given(
    window=st.booleans(),
    paid=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), max_size=25),
    asked=st.integers(0, 120),
)
def test_what_is_said_to_come_back_comes_back(window: bool, paid: list[tuple[int, int]], asked: int) -> None:
    """An operator who is told a slot and an amount waits for it."""
    guarantee = Guarantee("window" if window else "finite", 6 if window else 1000, 20 / NANO)
    account, slot = account_of(guarantee), 0
    for skipped, nano in paid:
        slot += skipped + 1
        opens = account.slots.opens(slot)
        if nano := min(nano, account.allowance(opens).nano):
            account = account.pay(slot, opens, SLOT, nano)
    now = account.allowance(account.slots.opens(slot + asked // 10))
    back, amount = now.binding.returns
    later = [account.allowance(account.slots.opens(slot + asked // 10 + more)).nano for more in range(1, 12)]
    if back is None:
        assert all(one == now.nano for one in later)
    else:
        first = back - (slot + asked // 10) - 1
        assert later[:first] == [now.nano] * first
        assert later[first] == now.nano + amount
