"""A server that goes back to earlier slots: the clock was ahead. Its account is new, its estimates go on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.units import NANO
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from schemes_support import COUNTS, account_for, bits, make_setting, paid_in, watched_noise

LENGTH, EPSILON = 6, 3.0

schemes = pytest.mark.parametrize(
    ("name", "guarantee", "options"),
    [
        ("dpcrowd-plus", Guarantee.window(LENGTH, EPSILON), {}),
        ("dpcrowd-w", Guarantee.window(LENGTH, EPSILON), {"sampling": "fixed", "interval": 1}),
        ("dpcrowd", Guarantee.finite(1000, EPSILON), {}),
    ],
    ids=["plus", "window", "finite"],
)


def make(name: str, guarantee: Guarantee, options: dict[str, Any]) -> Server:
    setting = make_setting(1, len(COUNTS), guarantee)
    return Server(
        make_scheme(name, **options),
        setting,
        watched_noise(),
        number=0,
        share=0.5,
        max_degree=3,
        account=account_for(guarantee),
        allow_simulated_noise=True,
    )


def lived(name: str, guarantee: Guarantee, options: dict[str, Any]) -> Server:
    """Ten slots, and then three of a clock that is far ahead."""
    server = make(name, guarantee, options)
    for slot in (*range(10), 500, 501, 502):
        server.observe(slot, COUNTS)
        server.hear()
    return server


@schemes
def test_slots_begin_again_with_what_is_owed(name: str, guarantee: Guarantee, options: dict[str, Any]) -> None:
    """Without the debts it would spend again what the wrong clock has spent; without a new start, stay silent."""
    server = lived(name, guarantee, options)
    fresh = account_for(guarantee)
    server.use(paid_in(fresh, 9, int(EPSILON) * NANO))
    server.begin_again(11)
    assert server.slot == 11
    assert server.remaining(12) == 0
    with pytest.raises(BadInput, match="no slot may be observed twice"):
        server.observe(11, None)
    server = lived(name, guarantee, options)
    server.use(fresh)
    server.begin_again(11)
    paid = []
    for slot in range(12, 12 + LENGTH):
        server.observe(slot, COUNTS)
        paid.append(server.hear().epsilon)
    assert 0 < sum(paid) <= EPSILON + 1e-9


@schemes
def test_estimates_go_on(name: str, guarantee: Guarantee, options: dict[str, Any]) -> None:
    """They are paid for, and the crowd has not changed because a clock was wrong."""
    server, other = lived(name, guarantee, options), lived(name, guarantee, options)
    server.begin_again(11)
    for one, slot in ((server, 12), (other, 503)):
        one.observe(slot, None)
    assert bits(server.hear().estimate) == bits(other.hear().estimate)


@schemes
def test_it_survives_a_restart(name: str, guarantee: Guarantee, options: dict[str, Any]) -> None:
    """A state that still held the later slots would wait for them again."""
    server = lived(name, guarantee, options)
    server.begin_again(11)
    again = make(name, guarantee, options)
    again.restore(server.save())
    assert again.slot == 11
    assert again.save() == server.save()


def test_an_open_slot_is_released_first() -> None:
    """What was paid for is part of what is known."""
    server = make("dpcrowd-w", Guarantee.window(LENGTH, EPSILON), {"sampling": "fixed", "interval": 1})
    server.observe(500, COUNTS)
    server.begin_again(3)
    assert server.open_slot is None
    server.observe(4, None)
    assert np.isfinite(server.hear().estimate).all()


@pytest.mark.parametrize("last", [-2, 502, 600])
def test_only_earlier_slots_can_begin_again(last: int) -> None:
    """Later ones need nothing, and would take the account with them."""
    server = lived("dpcrowd-plus", Guarantee.window(LENGTH, EPSILON), {})
    with pytest.raises(BadInput, match="is not before slot 502"):
        server.begin_again(last)
