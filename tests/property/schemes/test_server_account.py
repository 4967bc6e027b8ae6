"""Servers that spend from an account with a past: old and new payments together never exceed epsilon, in any window."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.account import Account
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from examples_support import examples
from node_support import FreshNoise
from schemes_support import COUNTS, account_for, make_setting, paid_in

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


def guarantee_of(name: str, length: int) -> Guarantee:
    return (Guarantee.finite if name == "dpcrowd" else Guarantee.window)(length, 3.0)


def make(name: str, options: dict[str, Any], length: int, account: Account) -> Server:
    return Server(
        make_scheme(name, **options),
        make_setting(1, 3, guarantee_of(name, length)),
        FreshNoise(1),
        number=0,
        share=0.5,
        max_degree=3,
        account=account,
        allow_simulated_noise=True,
    )


@settings(max_examples=examples(100))
@given(
    scheme=st.sampled_from(SCHEMES),
    length=st.integers(4, 9),
    debts=st.dictionaries(st.integers(-12, 6), st.integers(1, TOTAL // 2), max_size=6),
    now=st.integers(-1, 6),
    story=st.lists(
        st.sampled_from(["counts", "counts", "counts", "none", "skip", "restart", "ask", "fails", "back"]), max_size=25
    ),
)
def test_old_and_new_payments_together_stay_within_epsilon(
    scheme: tuple[str, dict[str, Any]], length: int, debts: dict[int, int], now: int, story: list[str]
) -> None:
    """Whatever was paid before, even more than epsilon: a new server adds nothing to a window with nothing left.

    fails  the payment cannot be stored: the node puts the state before it back
    back   the clock was ahead by some slots, and is accepted: slots begin again
    """
    name, options = scheme
    debts = {slot: nano for slot, nano in debts.items() if slot <= now}
    length = 4 * length if name == "dpcrowd" else length
    stored = account_for(guarantee_of(name, length))
    for slot, nano in debts.items():
        stored = paid_in(stored, slot, nano)
    server = make(name, options, length, stored)
    paid, slot = dict(debts), now
    span = 10**6 if name == "dpcrowd" else length
    for what in story:
        slot += 1
        if what == "skip":
            continue
        if what == "back" and server.slot >= 2:
            slot = server.slot - 1
            server.use(stored)
            server.begin_again(slot - 1)
        if what == "ask":
            server.remaining(slot + 2)
        server.use(stored)
        before, state = server.remaining(slot), server.save()
        server.observe(slot, None if what == "none" else COUNTS)
        sample = server.open_sample()
        if sample is not None and what == "fails":
            server.restore(state)
            server.observe(slot, None)
        elif sample is not None:
            assert what != "none"
            assert 0 < sample[0] <= before
            assert slot not in paid
            paid[slot] = sample[0]
            stored = stored.pay(slot, stored.slots.opens(slot), stored.slots.slot_ns, sample[0])
            assert server.account is not None
            assert [*server.account.payments] == [*stored.payments], "as it is stored"
        if what == "restart":
            saved = server.save()
            server = make(name, options, length, stored)
            server.restore(saved)
        server.hear()
    new = {slot: nano for slot, nano in paid.items() if slot not in debts}
    assert most_in(new, span) <= TOTAL
    if most_in(debts, span) <= TOTAL:
        assert most_in(paid, span) <= TOTAL
