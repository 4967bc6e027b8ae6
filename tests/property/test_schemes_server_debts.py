"""Servers that begin with old debts: old and new payments together never exceed epsilon, in any window."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.privacy import FiniteLedger, Guarantee, WindowLedger
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from node_support import FreshNoise
from schemes_support import COUNTS, make_setting

TOTAL = 3 * 10**9

SCHEMES: list[tuple[str, dict[str, Any]]] = [
    ("dpcrowd", {}),
    ("dpcrowd", {"sampling": "fixed", "interval": 2}),
    ("dpcrowd-w", {}),
    ("dpcrowd-w", {"blocks": "full"}),
    ("dpcrowd-w", {"sampling": "fixed", "interval": 3}),
    ("dpcrowd-plus", {}),
    ("dpcrowd-plus", {"grouping": "none"}),
]


def most_in(payments: dict[int, int], length: int) -> int:
    """The largest sum of any `length` consecutive slots."""
    return max((sum(n for s, n in payments.items() if start <= s < start + length) for start in payments), default=0)


def make(name: str, options: dict[str, Any], length: int) -> Server:
    kind = Guarantee.finite if name == "dpcrowd" else Guarantee.window
    setting = make_setting(1, 3, kind(length, 3.0))
    return Server(
        make_scheme(name, **options),
        setting,
        FreshNoise(1),
        number=0,
        share=0.5,
        max_degree=3,
        allow_simulated_noise=True,
    )


@settings(max_examples=100)
@given(
    scheme=st.sampled_from(SCHEMES),
    length=st.integers(4, 9),
    debts=st.dictionaries(st.integers(-12, 6), st.integers(0, TOTAL // 2), max_size=6),
    now=st.integers(-1, 6),
    story=st.lists(st.sampled_from(["counts", "counts", "counts", "none", "skip", "restart", "ask"]), max_size=25),
)
def test_old_and_new_payments_together_stay_within_epsilon(
    scheme: tuple[str, dict[str, Any]], length: int, debts: dict[int, int], now: int, story: list[str]
) -> None:
    """Whatever was paid before, even more than epsilon: a new server adds nothing to a window with nothing left."""
    name, options = scheme
    debts = {slot: nano for slot, nano in debts.items() if slot <= now}
    length = 4 * length if name == "dpcrowd" else length
    server = make(name, options, length)
    server.carry_over(debts, now)
    paid, slot = dict(debts), now
    span = 10**6 if name == "dpcrowd" else length
    for what in story:
        slot += 1
        if what == "skip":
            continue
        if what == "ask":
            server.remaining(slot + 2)
        before = server.remaining(slot)
        server.observe(slot, None if what == "none" else COUNTS)
        sample = server.open_sample()
        if sample is not None:
            assert what != "none"
            assert 0 < sample[0] <= before
            assert slot not in paid
            paid[slot] = sample[0]
            assert sum(n for s, n in paid.items() if slot - span < s <= slot) <= TOTAL
        if what == "restart":
            saved = server.save()
            server = make(name, options, length)
            server.restore(saved)
        server.hear()
    new = {slot: nano for slot, nano in paid.items() if slot > now}
    assert most_in(new, span) <= TOTAL
    if most_in(debts, span) <= TOTAL:
        assert most_in(paid, span) <= TOTAL


@settings(max_examples=100)
@given(
    window=st.booleans(),
    length=st.integers(1, 7),
    debts=st.dictionaries(st.integers(-15, 5), st.integers(0, 20), max_size=8),
    now=st.integers(-3, 5),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.booleans()), max_size=12),
)
def test_a_ledger_with_debts_is_a_ledger_that_paid_them(
    window: bool, length: int, debts: dict[int, int], now: int, steps: list[tuple[int, int, bool]]
) -> None:
    """Beside a list of all payments: what is left is what the list says, before and after saving."""
    total = 40
    length = length if window else 100
    kind = WindowLedger if window else FiniteLedger
    debts = {slot: nano for slot, nano in debts.items() if slot <= now}
    ledger = kind(total, length, 1, 2, "sound")
    ledger.carry_over(debts, now)
    payments, slot = list(debts.items()), now
    for step, charge, restart in steps:
        slot += step
        counted = sum(nano for paid, nano in payments if not window or paid > slot - length)
        left = max(total - counted, 0)
        assert ledger.remaining(slot).tolist() == [[left]]
        if charge <= left:
            ledger.spend(slot, np.array([[charge, 0]]))
            payments.append((slot, charge))
        if restart:
            fresh = kind(total, length, 1, 2, "sound")
            fresh.restore(ledger.arrays())
            ledger = fresh
