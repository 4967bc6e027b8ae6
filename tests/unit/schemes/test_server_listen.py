"""A server that listens without sampling, that spends from an account, and that is asked what it may still spend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.registry import SCHEMES, make_scheme
from dpcrowd.schemes.server import Server
from dpcrowd.schemes.snapshot import from_bytes
from schemes_support import (
    COUNTS,
    account_for,
    bits,
    lone_server,
    make_setting,
    neighbour_message,
    paid_in,
    watched_noise,
)

EPSILON = 3 * 10**9
LIVE = [name for name, scheme in SCHEMES.items() if scheme.live and scheme.reach != "relay"]  # see test_relay_again
live = pytest.mark.parametrize("name", LIVE)


def live_server(name: str, *, form: str = "diagonal", length: int = 8, account: bool = False, **options: Any) -> Server:
    """One of the schemes that a live node runs, with the guarantee that it takes."""
    kind = Guarantee.window if "window" in SCHEMES[name].kinds else Guarantee.finite
    guarantee = kind(length, 3.0)
    noise = options.pop("noise", None) or watched_noise()
    return Server(
        make_scheme(name, **options),
        make_setting(1, 3, guarantee, form=form),
        noise,
        number=0,
        share=0.5,
        max_degree=3,
        account=account_for(guarantee) if account else None,
        allow_simulated_noise=True,
    )


def test_there_are_live_schemes() -> None:
    """The tests below run over a list that must not be empty."""
    assert {"dpcrowd", "dpcrowd-w", "dpcrowd-plus"} <= set(LIVE)


# --------------------------------------------------------------------------------------------- a slot without counts


@live
@pytest.mark.parametrize("form", ["diagonal", "matrix"])
def test_without_counts_nothing_is_read_paid_or_said(name: str, form: str) -> None:
    """The server was down, or may not pay: the noise is not even asked, and no zeros are taken for a crowd."""
    watched = watched_noise()
    server = live_server(name, form=form, noise=watched)
    for slot in range(3):
        assert server.observe(slot, None) is None
        assert server.open_slot == slot
        assert server.open_sample() is None
        release = server.hear()
        assert release.epsilon == 0.0
        assert not release.sampled.any()
        assert np.isnan(release.estimate).all()
    assert watched.reads == []
    assert server.remaining(3) == EPSILON


@live
@pytest.mark.parametrize("form", ["diagonal", "matrix"])
def test_without_counts_neighbours_are_fused_and_intervals_widen(name: str, form: str) -> None:
    """It goes on with what others say and with prediction."""
    server = live_server(name, form=form)
    message = neighbour_message()
    if form == "matrix":
        message = type(message)(**{**message.arrays(), "info_mat": np.eye(3)[None] * 0.02})  # type: ignore[arg-type]
    server.observe(0, None)
    first = server.hear({1: message})
    assert np.isfinite(first.estimate).all()
    server.observe(1, None)
    second = server.hear()
    assert bits(second.estimate) == bits(first.estimate)
    assert (second.variance > first.variance).all()


@pytest.mark.parametrize("options", [{"sampling": "fixed", "interval": 3}, {"sampling": "lockstep", "interval": 3}])
def test_no_counts_is_a_slot_in_which_nothing_is_due(options: dict[str, Any]) -> None:
    """In slots that the schedule leaves out, counts and no counts must give the same bits, and the same state."""
    given, none = live_server("dpcrowd-w", **options), live_server("dpcrowd-w", **options)
    for slot in range(10):
        due = slot % 3 == 0
        said = given.observe(slot, COUNTS), none.observe(slot, COUNTS if due else None)
        assert (said[0] is None) == (said[1] is None) == (not due)
        assert given.save() == none.save()
        assert given.hear().estimate.tolist() == none.hear().estimate.tolist()
    assert given.save() == none.save()


def test_a_spent_budget_and_no_counts_are_the_same() -> None:
    """Adaptive: a slot that cannot be paid goes by like one that was missed."""
    spent, missed = (live_server("dpcrowd-plus", account=True) for _ in range(2))
    for server in (spent, missed):
        assert server.account is not None
        server.use(paid_in(server.account, -1, EPSILON))
    for slot in range(7):
        spent.observe(slot, COUNTS)
        missed.observe(slot, None)
        message = {1: neighbour_message()} if slot == 2 else {}
        assert bits(spent.hear(message).estimate) == bits(missed.hear(message).estimate)
        assert spent.save() == missed.save()


@live
def test_what_was_missed_is_sampled_as_soon_as_it_can_be(name: str) -> None:
    """A controller that was due and could not pay stays due: one missed slot must not cost a whole interval."""
    server = live_server(name)
    server.observe(0, None)
    server.hear()
    assert server.observe(1, COUNTS) is not None


def test_schemes_that_read_every_slot_cannot_go_without() -> None:
    """PeGaSus or BD pay for looking in every slot; leaving one out silently would be another scheme."""
    for name in ("bd", "uniform", "rescuedp", "pegasus"):
        server = lone_server(name)
        with pytest.raises(BadInput, match="reads the counts of every slot and cannot go without"):
            server.observe(0, None)
        assert server.slot == -1
        server.observe(0, COUNTS)


@live
def test_no_slot_is_observed_twice_without_counts_either(name: str) -> None:
    """None is no way around the rule: first None, then counts, would sample a slot that is over."""
    server = live_server(name)
    server.observe(4, None)
    with pytest.raises(BadInput, match="still open"):
        server.observe(5, None)
    server.hear()
    for counts in (None, COUNTS):
        with pytest.raises(BadInput, match="no slot may be observed twice"):
            server.observe(4, counts)


@live
def test_an_open_slot_without_counts_is_restored(name: str) -> None:
    """Killed between the two calls: the same open slot, still without a sample."""
    server, fresh = live_server(name), live_server(name)
    server.observe(0, COUNTS)
    server.hear()
    server.observe(1, None)
    fresh.restore(server.save())
    assert (fresh.open_slot, fresh.open_sample(), fresh.pending_message()) == (1, None, None)
    message = {1: neighbour_message()}
    assert bits(server.hear(message).estimate) == bits(fresh.hear(message).estimate)
    assert fresh.open_slot is None


# ---------------------------------------------------------------------------------------------- the open sample


@live
def test_the_open_sample_is_what_was_paid_and_drawn(name: str) -> None:
    """This is what a node writes to its ledger: another price, or other values, and the ledger lies."""
    watched = watched_noise()
    server = live_server(name, noise=watched)
    assert server.open_sample() is None
    server.observe(0, COUNTS)
    sample = server.open_sample()
    assert sample is not None
    nano, noisy = sample
    assert nano == int(watched.reads[0].charge.max())
    assert server.remaining(0) == EPSILON - nano
    assert noisy.shape == (3,)
    again = live_server(name)
    again.restore(server.save())
    restored = again.open_sample()
    assert restored is not None
    assert restored[0] == nano
    assert bits(restored[1]) == bits(noisy)
    assert server.hear().epsilon == nano / 1e9
    assert server.open_sample() is None


# ---------------------------------------------------------------------------------------------------- asking


@live
@pytest.mark.parametrize("account", [False, True], ids=["ledger", "account"])
def test_asking_what_is_left_changes_nothing(name: str, account: bool) -> None:
    """The API asks of the slot that is open now, while the one before is still to be sealed.

    A ledger goes to the slot that it is asked of; then the slot before could not be paid, and the node would stop.
    """
    asked, quiet = (live_server(name, length=5, account=account) for _ in range(2))
    for slot in range(12):
        for later in (slot + 3, slot + 1, slot):
            assert 0 <= asked.remaining(later) <= EPSILON
        assert asked.save() == quiet.save()
        said = asked.observe(slot, COUNTS), quiet.observe(slot, COUNTS)
        assert (said[0] is None) == (said[1] is None)
        asked.remaining(slot + 1)
        assert bits(asked.hear().estimate) == bits(quiet.hear().estimate)


def test_what_is_left_comes_back_with_the_window() -> None:
    """And a finite budget never does."""
    window, finite = live_server("dpcrowd-w"), live_server("dpcrowd")
    for server in (window, finite):
        server.observe(0, COUNTS)
        server.hear()
    paid = EPSILON - window.remaining(0)
    assert paid > 0
    assert [window.remaining(slot) for slot in (7, 8, 100)] == [EPSILON - paid, EPSILON, EPSILON]
    left = finite.remaining(0)
    assert left < EPSILON
    assert [finite.remaining(slot) for slot in (7, 8, 100)] == [left, 0, 0]


# ---------------------------------------------------------------------------------------------------- an account


@live
def test_what_was_paid_before_comes_first(name: str) -> None:
    """A new epoch, slot length or network id never refills the ledger."""
    server = live_server(name, account=True)
    assert server.account is not None
    server.use(paid_in(server.account, -2, EPSILON))
    assert server.remaining(0) == 0
    for slot in range(5):
        assert server.observe(slot, COUNTS) is None
        assert server.hear().epsilon == 0.0


def test_what_was_paid_before_comes_back_with_the_window() -> None:
    """Paid two slots before the epoch: it counts until slot w - 3, and is back in slot w - 2."""
    server = live_server("dpcrowd-plus", account=True)
    assert server.account is not None
    server.use(paid_in(paid_in(server.account, -2, EPSILON), -9, EPSILON))
    sampled = []
    for slot in range(10):
        server.observe(slot, COUNTS)
        sampled += [slot] if server.hear().epsilon else []
    assert sampled[0] == 6


@live
def test_a_state_holds_nothing_of_an_account(name: str) -> None:
    """Restored with an older state, a budget that was spent since would be there again."""
    server, fresh = live_server(name, account=True), live_server(name, account=True)
    server.observe(0, COUNTS)
    server.hear()
    assert server.remaining(1) < EPSILON
    assert not any(key.startswith("state.ledger") for key in from_bytes(server.save()))
    fresh.restore(server.save())
    assert fresh.remaining(1) == EPSILON
    assert server.account is not None
    fresh.use(server.account)
    assert fresh.remaining(1) == server.remaining(1)


@live
def test_a_state_with_a_ledger_in_it_goes_on(name: str) -> None:
    """Version 0.1 saved such states; what its ledger knew, the account knows."""
    old, new = live_server(name), live_server(name, account=True)
    for slot in range(3):
        old.observe(slot, COUNTS)
        old.hear()
    new.restore(old.save())
    assert new.slot == 2
    assert new.horizon == (0 if name == "dpcrowd" else None)
    assert new.remaining(3) == EPSILON
    for one in (old, new):
        one.observe(3, None)
    assert bits(old.hear().estimate) == bits(new.hear().estimate)


@live
def test_what_could_not_be_stored_was_not_paid(name: str) -> None:
    """A node that puts the state before the draw back goes on with the budget that it had before it."""
    server = live_server(name, account=True)
    before = server.save()
    server.observe(0, COUNTS)
    assert server.remaining(0) < EPSILON
    server.restore(before)
    assert server.remaining(0) == EPSILON


def test_only_a_live_scheme_with_sound_accounting_spends_from_an_account() -> None:
    """An account knows one number per slot: what each region has paid it cannot say."""
    for name, accounting in (("bd", "sound"), ("dpcrowd-plus", "per-region")):
        guarantee = Guarantee.window(8, 3.0)
        setting = make_setting(1, 3, guarantee, accounting=accounting)
        with pytest.raises(BadInput, match="a live scheme with sound accounting"):
            Server(
                make_scheme(name),
                setting,
                watched_noise(),
                number=0,
                share=0.5,
                max_degree=3,
                account=account_for(guarantee),
                allow_simulated_noise=True,
            )


def test_a_server_with_a_ledger_of_its_own_takes_no_account() -> None:
    """It would spend from both, or from the wrong one."""
    server = live_server("dpcrowd-plus")
    assert server.account is None
    for attempt in (
        lambda: server.use(account_for(Guarantee.window(8, 3.0))),
        server.begin_horizon,
        lambda: (server.observe(5, None), server.hear(), server.begin_again(2)),
    ):
        with pytest.raises(BadInput, match="a ledger of its own"):
            attempt()


def test_a_scheme_without_a_ledger_has_nothing_left() -> None:
    """NonPrivate promises nothing, so it pays nothing."""
    setting = make_setting(1, 3, None)
    server = Server(
        make_scheme("non-private"),
        setting,
        watched_noise(),
        number=0,
        share=0.5,
        max_degree=3,
        allow_simulated_noise=True,
    )
    assert server.remaining(0) == 0
