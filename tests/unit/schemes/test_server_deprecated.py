"""What `dpcrowd.Server` could before accounts, until version 0.3."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee, SeededNoise
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.dpcrowd import DPCrowd
from dpcrowd.schemes.dpcrowd_w import DPCrowdW
from dpcrowd.schemes.server import Server


def server(guarantee: Guarantee) -> Server:
    scheme = (DPCrowd if guarantee.kind == "finite" else DPCrowdW)("fixed", 1)
    setting = Setting(1, ProcessModel.of(1.0, [4.0]), guarantee)
    noise = SeededNoise([np.random.SeedSequence(1)], 1, 1)
    noise.prepare(0)
    return Server(scheme, setting, noise, number=0, share=0.5, allow_simulated_noise=True)


@pytest.mark.parametrize("guarantee", [Guarantee.window(4, 2.0), Guarantee.finite(8, 2.0)])
def test_debts_are_taken_over_with_a_warning(guarantee: Guarantee) -> None:
    """A program of today that carries debts over would spend them a second time, or break without a word."""
    one = server(guarantee)
    with pytest.deprecated_call(match="account="):
        one.carry_over({-9: 10**9, 3: 10**9}, 4)
    spent = 10**9 if guarantee.kind == "window" else 2 * 10**9
    assert one.remaining(5) == 2 * 10**9 - spent


def test_room_is_kept_to_with_a_warning() -> None:
    """A ceiling that is passed over lets a slot cost more than a ledger outside allows."""
    one = server(Guarantee.window(4, 2.0))
    with pytest.deprecated_call(match="account="):
        assert one.observe(0, np.array([3]), room=10) is None
    one.hear()
    assert one.remaining(0) == 2 * 10**9, "nothing was spent, and the budget is what it was"


def test_room_after_slots_that_were_left_out() -> None:
    """The ledger was moved on before those slots had passed, which it then refused, in every later slot as well."""
    one, other = server(Guarantee.window(4, 2.0)), server(Guarantee.window(4, 2.0))
    for slot in (0, 5, np.int64(10)):
        with pytest.deprecated_call(match="account="):
            one.observe(slot, np.array([3]), room=10**9)
        other.observe(slot, np.array([3]))
        assert one.hear().variance == other.hear().variance


@pytest.mark.parametrize("room", [None, 10**9])
@pytest.mark.parametrize(
    ("slot", "counts"), [(10, [1, 2]), (10, [-1]), (10.5, [1]), (True, [1]), (np.int64(0), [1])], ids=str
)
def test_what_is_refused_moves_nothing(slot: int, counts: list[int], room: int | None) -> None:
    """The slots before it had passed by then, and could not be observed any more."""
    one = server(Guarantee.window(4, 2.0))
    one.observe(0, np.array([3]))
    one.hear()
    before = one.save()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(BadInput):
            one.observe(slot, counts, room)
    assert (one.slot, one.save()) == (0, before)
    one.observe(1, np.array([3]))
    assert one.hear().nano > 0
