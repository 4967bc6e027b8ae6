"""Promises on one ledger: other slots, other bounds of users, roaming users, and horizons that begin anew."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

from dpcrowd.errors import BadInput, BudgetExhausted
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Storage
from dpcrowd.node.storage.migrate import LEDGER_STEPS
from dpcrowd.privacy.account import EVER
from dpcrowd.privacy.network_guarantee import NetworkGuarantee, UserBounds, Windows
from node_support_storage import EPOCH, LENGTH, SECOND, SLOTS, draw, open_storage, opens

FINE = SlotClock(EPOCH, SECOND)
"""Slots a tenth as long as those of the tests."""


def fine(storage: Storage, slot: int, nano: int) -> None:
    storage.commit_sample(slot, FINE.opens(slot), SECOND, nano, b"", b"")


# -------------------------------------------------------------------------------------------------------------- slots


@pytest.mark.parametrize(("slot", "offset", "slots"), list(product((1, 2, 3, 5), (0, 1, 2, 4), (1, 2, 3))))
def test_reach_is_where_the_earliest_window_begins_that_holds_a_slot(slot: int, offset: int, slots: int) -> None:
    """A nanosecond later would leave out a row of that window; earlier, budget would come back too late."""
    offset %= slot
    span = slots * slot
    windows = Windows(span, slot, offset)
    starts = [start for start in range(-60, 60) if (start - offset) % slot == 0]
    for opens_at, length in product(range(-10, 11), (1, 2, 5)):
        holding = [start for start in starts if start < opens_at + length and start + span > opens_at]
        assert windows.reach(opens_at) == min(holding)
    for closes_at, opens_at in product(range(-5, 6), range(-30, 31)):
        shares = windows.reach(opens_at) < closes_at
        assert shares == (opens_at < windows.free_from(closes_at))


def test_a_network_that_comes_back_with_longer_slots_keeps_the_windows_it_promised(tmp_path: Path) -> None:
    """A restored ledger and another network.toml: by the new slots alone, an old window would hold 2 epsilon."""
    with Storage.open(tmp_path, network_id="crowd") as storage:
        declare = storage.ledger.declare
        declare(100, LENGTH, slots=FINE)
        fine(storage, 9, 100)
        declare(100, LENGTH, slots=SLOTS)
        with pytest.raises(BudgetExhausted):
            draw(storage, 1, nano=1)  # ten short slots before it begin the old window that ends in this one
        draw(storage, 2, nano=100)
        with pytest.raises(BudgetExhausted):
            draw(storage, 3, nano=1)  # a window of the short slots would lie across both


def test_a_network_that_comes_back_with_another_epoch_keeps_the_windows_it_promised(tmp_path: Path) -> None:
    """Half a slot later, each window of one epoch overlaps two slots of the other."""
    later = SlotClock(EPOCH + LENGTH // 2, LENGTH)
    with Storage.open(tmp_path, network_id="crowd") as storage:
        storage.ledger.declare(100, LENGTH, slots=SLOTS)
        draw(storage, 0, nano=100)
        storage.ledger.declare(100, LENGTH, slots=later)
        for slot, allowed in ((0, False), (1, True), (2, False), (3, True)):
            assert storage.ledger.allowance(later.opens(slot)).nano == (100 if allowed else 0)
            if allowed:
                storage.commit_sample(slot, later.opens(slot), LENGTH, 100, b"", b"")


def test_longer_windows_of_new_slots_cost_nothing_more(tmp_path: Path) -> None:
    """Where the new windows hold the old ones, the old ones must not take budget away."""
    with Storage.open(tmp_path, network_id="crowd") as storage:
        storage.ledger.declare(100, 3 * SECOND, slots=FINE)
        fine(storage, 9, 60)
        storage.ledger.declare(100, 3 * LENGTH, slots=SLOTS)
        assert [storage.ledger.allowance(opens(slot)).nano for slot in (1, 2, 3)] == [40, 40, 100]


def test_the_state_of_other_slots_is_not_taken_over(tmp_path: Path) -> None:
    """Its slot numbers mean other times: a node that went on from slot 9000 would wait for years in slot 900."""
    with Storage.open(tmp_path, network_id="crowd") as storage:
        storage.ledger.declare(100, LENGTH, slots=FINE)
        fine(storage, 9, 1)
        storage.ledger.declare(100, LENGTH, slots=FINE)
        assert storage.state() is not None
        storage.ledger.declare(100, LENGTH, slots=SLOTS)
        assert storage.state() is None


# ------------------------------------------------------------------------------------------------------------- bounds


def test_a_payment_costs_what_its_noise_does_not_cover() -> None:
    """The bound in exact numbers, over all users that a promise may have."""
    small = range(1, 5)
    for own in (UserBounds(r, s) for r, s in product(small, small)):
        for payer in (UserBounds(r, s) for r, s in product(small, small)):
            worst = max(
                Fraction(7 * regions * servers, payer.regions * payer.servers)
                for regions in range(1, max(own.regions, payer.regions) + 1)
                for servers in range(1, max(own.servers, payer.servers) + 1)
            )
            cost = own.cost(7, payer)
            assert cost >= 7
            assert worst <= cost < worst + 1
            affordable = own.affordable(50, payer)
            assert own.cost(affordable, payer) <= 50 < own.cost(affordable + 1, payer)


def test_bounds_of_which_only_the_product_is_known_cost_the_most_that_they_may() -> None:
    """A promise of an earlier version: too little would break it, and more than the product it never is."""
    unknown = UserBounds(6, 6, exact=False)
    assert unknown.sensitivity == 6
    splits = [UserBounds(r, 6 // r) for r in (1, 2, 3, 6)]
    for payer in (UserBounds(r, s) for r, s in product(range(1, 8), range(1, 8))):
        most = max(split.cost(7, payer) for split in splits)
        assert most <= unknown.cost(7, payer) <= 42
    assert unknown.cost(7, UserBounds(6, 6)) == 7


def test_users_at_more_servers_pay_more_for_noise_that_was_made_for_fewer(tmp_path: Path) -> None:
    """At 4 servers a user is in 4 samples, each with noise for one: ε=4 where the ledger says 1."""
    shared = tmp_path / "few"
    with (
        Storage.open(shared, network_id="few") as few,
        Storage.open(tmp_path / "many", network_id="many", ledger_folder=shared) as many,
    ):
        few.ledger.declare(100, 3 * LENGTH, slots=SLOTS)
        many.ledger.declare(100, 3 * LENGTH, slots=SLOTS, bounds=UserBounds(1, 4))
        room = few.ledger.allowance(opens(0))
        assert (room.nano, room.guarantee.network, room.is_weighted) == (25, "many", True)
        with pytest.raises(
            BudgetExhausted,
            match=r"asks for ε=0\.000000026 \(ε=0\.000000104 for users in one region at each of up to 4",
        ):
            draw(few, 0, nano=26)
        draw(few, 0, nano=5)
        assert few.ledger.allowance(opens(1)).nano == 20
        draw(many, 1, nano=80)  # its noise is made for 4 servers: whoever is at one pays no more
        own, other = many.ledger.account(0).guarantees
        assert (own.network, other.network) == ("few", "many")
        account = many.ledger.account(opens(1))
        costs = [
            sum(p.bounds.cost(e.nano, e.bounds) for e in account.counted_payments(p, opens(1))) for p in (own, other)
        ]
        assert costs == [85, 100]
        assert many.ledger.allowance(opens(2)).nano == 0


def test_a_promise_that_is_made_for_more_servers_counts_old_payments_for_them(tmp_path: Path) -> None:
    """The noise of old payments did not grow with the promise."""
    with Storage.open(tmp_path, network_id="crowd") as storage:
        storage.ledger.declare(100, None, slots=SLOTS)
        draw(storage, 0, nano=30)
        storage.ledger.declare(100, None, slots=SLOTS, bounds=UserBounds(1, 3))
        assert storage.ledger.allowance(opens(1)).nano == 10


def test_products_beyond_the_integers_of_the_database_are_exact(tmp_path: Path) -> None:
    """SQLite would turn the product into a float, and lose the last digits of the budget."""
    with Storage.open(tmp_path, network_id="crowd") as storage:
        storage.ledger.declare(10**15, None, slots=SLOTS)
        draw(storage, 0, nano=10**15 - 1)
        storage.ledger.declare(10**15, None, slots=SLOTS, bounds=UserBounds(10_000, 10_000))
        room = storage.ledger.allowance(opens(1))
        assert (room.nano, room.counted) == (0, (10**15 - 1) * 10**8)


# ------------------------------------------------------------------------------------------------------------ roaming


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_a_roaming_network_shares_its_ledger_with_nobody(tmp_path: Path, first: bool, second: bool) -> None:
    """Its users pay a whole epsilon at another server, and another one to the second network here."""
    with (
        Storage.open(tmp_path / "a", network_id="a") as a,
        Storage.open(tmp_path / "b", network_id="b", ledger_folder=tmp_path / "a") as b,
    ):
        a.ledger.declare(100, LENGTH, roaming=first, slots=SLOTS)
        with pytest.raises(BadInput, match=r"'b' shares its ledger with 'a'.* roam.*a ledger of its own.*withdraw"):
            b.ledger.declare(100, LENGTH, roaming=second, slots=SLOTS)
        assert [promise.network for promise in a.ledger.account(0).guarantees] == ["a"]
        a.ledger.declare(100, LENGTH, roaming=first, slots=SLOTS)
        b.ledger.withdraw("a", 1, "has ended")
        b.ledger.declare(100, LENGTH, roaming=second, slots=SLOTS)


def test_networks_of_pinned_users_share_and_one_of_them_cannot_become_roaming(tmp_path: Path) -> None:
    """Declared again with roaming users, a network would slip past the check of its first start."""
    with (
        open_storage(tmp_path / "a", "a") as a,
        open_storage(tmp_path / "b", "b", ledger=tmp_path / "a"),
        pytest.raises(BadInput, match="'a' shares its ledger with 'b', and the users of 'a' roam"),
    ):
        a.ledger.declare(1, None, roaming=True, slots=SLOTS)


# ----------------------------------------------------------------------------------------------------------- horizons


def horizons(storage: Storage) -> list[tuple[int, int | None]]:
    (own,) = [promise for promise in storage.ledger.account(0).guarantees if promise.network == storage._network]
    starts = [*own.earlier, own.since_ns]
    return list(zip(starts, [*starts[1:], None], strict=True))


def holds(horizon: tuple[int, int | None], opens_ns: int, closes_ns: int) -> bool:
    return closes_ns > horizon[0] and (horizon[1] is None or opens_ns < horizon[1])


def test_a_slot_that_is_sealed_after_a_new_horizon_counts_in_one_of_them(tmp_path: Path) -> None:
    """In its grace when the command ran, it counted in neither: two horizons of 10 would pay 30."""
    with open_storage(tmp_path, nano=10) as storage:
        draw(storage, 0, nano=10)
        now = opens(2) + LENGTH // 10
        storage.ledger.new_horizon(now, now, "the slot before is in its grace")
        with pytest.raises(BudgetExhausted):
            draw(storage, 1, nano=1)  # of the old horizon, which is spent
        draw(storage, 2, nano=10)  # of the new one, which began with the slot that was open
        assert [sum(holds(one, opens(slot), opens(slot + 1)) for one in horizons(storage)) for slot in (0, 1, 2)] == [
            1,
            1,
            1,
        ]


def test_a_late_slot_is_paid_from_what_the_old_horizon_has_left(tmp_path: Path) -> None:
    """Refusing it would lose a sample; the new horizon must not be charged for what it does not hold."""
    with open_storage(tmp_path, nano=10) as storage:
        draw(storage, 0, nano=7)
        storage.ledger.new_horizon(opens(2), opens(2), "")
        assert storage.ledger.allowance(opens(1)).nano == 3
        draw(storage, 1, nano=3)
        assert storage.ledger.allowance(opens(2)).nano == 10


def test_a_horizon_begins_behind_what_was_paid_or_lost_for_the_open_slot(tmp_path: Path) -> None:
    """A confirmed loss reaches to the end of the open slot: inside the new horizon it would spend it at once."""
    with open_storage(tmp_path, nano=10) as storage:
        storage.ledger.book_loss(opens(0), opens(3), 10, "restored", at_ns=opens(2))
        now = opens(2) + 5
        assert storage.ledger.account(now).next_horizon_start(now, now) == opens(3)
        storage.ledger.new_horizon(now, now, "")
        assert storage.ledger.allowance(opens(3)).nano == 10
        storage.commit_sample(900, opens(900), LENGTH, 4, b"", b"")  # by a clock that was far ahead
        assert storage.ledger.account(opens(5)).next_horizon_start(opens(5), opens(5)) == opens(5), (
            "not in hours, when that has passed"
        )


def test_a_revision_begins_a_horizon_once_and_says_so(tmp_path: Path) -> None:
    """Each start declares the promise again: that must neither begin a horizon, nor forget the one that began."""
    with Storage.open(tmp_path, network_id="crowd") as storage:

        def declare(slot: int) -> bool:
            at = opens(9) + slot
            return storage.ledger.declare(
                10, None, roaming=True, slots=SLOTS, horizon_slot=slot, at_ns=at, text=lambda account: f"horizon {slot}"
            )

        assert not declare(0)
        draw(storage, 0, nano=10)
        assert not declare(0)
        assert declare(5)
        assert not declare(5)
        assert [(event.kind, event.text) for event in storage.events.all()] == [("new-horizon", "horizon 5")]
        (own,) = storage.ledger.account(0).guarantees
        assert (own.since_ns, own.earlier, own.horizon_slot) == (opens(5), (0,), 5)
        assert storage.state() is not None, "estimates go on"
        assert storage.ledger.account(EVER).total_promised() == 20
        draw(storage, 5, nano=10)
        with pytest.raises(BadInput, match=r"has begun the horizon of slot 5.*newest network\.toml"):
            declare(0)
        with pytest.raises(BudgetExhausted):
            draw(storage, 6, nano=1)


def test_a_new_epoch_begins_no_horizon(tmp_path: Path) -> None:
    """The slot of the last horizon is later in the new epoch: payments since must not be forgotten for that."""
    with Storage.open(tmp_path, network_id="crowd") as storage:
        for roaming in (False, True):
            storage.ledger.declare(10, None, roaming=roaming, slots=SLOTS, horizon_slot=5)
            storage.ledger.declare(10, None, roaming=roaming, slots=SlotClock(opens(100), LENGTH), horizon_slot=5)
            assert storage.ledger.account(0).guarantees[0].since_ns == opens(5)


def test_a_horizon_of_one_server_alone_ends_when_users_roam(tmp_path: Path) -> None:
    """Begun by an earlier version, or while users were pinned, it would run past the horizon of all other servers."""
    with open_storage(tmp_path, nano=10) as storage:
        draw(storage, 0, nano=10)
        storage.ledger.new_horizon(opens(3), opens(3), "here alone")
        assert storage.ledger.allowance(opens(3)).nano == 10
        storage.ledger.declare(10, None, roaming=True, slots=SLOTS, at_ns=opens(4))
        assert storage.ledger.allowance(opens(4)).nano == 0
        assert [event.kind for event in storage.events.all()] == ["new-horizon", "horizon"]
        with pytest.raises(BadInput, match=r"roaming users.*horizon_from_slot"):
            storage.ledger.new_horizon(opens(5), opens(5), "again")


def test_pinned_users_keep_a_later_horizon_of_their_operator(tmp_path: Path) -> None:
    """A revision that is taken late would take back what the operator decided meanwhile."""
    with open_storage(tmp_path, nano=10) as storage:
        storage.ledger.new_horizon(opens(8), opens(8), "")
        storage.ledger.declare(10, None, slots=SLOTS, horizon_slot=5)
        assert storage.ledger.account(0).guarantees[0].since_ns == opens(8)
        storage.ledger.declare(10, None, slots=SLOTS, horizon_slot=9)
        assert storage.ledger.account(0).guarantees[0].since_ns == opens(9)


@pytest.mark.parametrize("span", [3 * LENGTH, None])
def test_only_a_finite_promise_has_a_horizon_and_it_begins_with_a_slot(tmp_path: Path, span: int | None) -> None:
    """A window with a horizon would forget what lies before it."""
    with Storage.open(tmp_path, network_id="crowd") as storage, pytest.raises(BadInput, match="a horizon from slot 5"):
        storage.ledger.declare(10, span, horizon_slot=5, slots=None if span is None else SLOTS)


# ---------------------------------------------------------------------------------------------------------- old files


def old_file(folder: Path, *statements: str) -> None:
    """A ledger of the schema before slots, bounds and horizons were stored."""
    with closing(sqlite3.connect(folder / "dpcrowd.db")) as old, old:
        for step in LEDGER_STEPS[:2]:
            for statement in (*step,):
                old.execute(statement)
        for statement in statements:
            old.execute(statement)
        old.execute("PRAGMA user_version = 2")


def test_an_old_ledger_keeps_the_windows_under_which_it_has_paid(tmp_path: Path) -> None:
    """They are not stored in it, but every payment is one slot long, and begins where a slot does."""
    old_file(
        tmp_path,
        f"INSERT INTO promise VALUES ('crowd', 100, {LENGTH}, 0, 1, 0)",
        f"INSERT INTO ledger VALUES (1, 'crowd', 'sample', 9, {FINE.opens(9)}, {FINE.opens(10)}, 100, '')",
        "UPDATE account SET counter = 1, total = 100",
    )
    with Storage.open(tmp_path, network_id="crowd") as storage:
        storage.ledger.declare(100, LENGTH, slots=SLOTS)
        assert [storage.ledger.allowance(opens(slot)).nano for slot in (1, 2)] == [0, 100]


@pytest.mark.parametrize(("slots", "kept"), [(FINE, True), (SLOTS, False), (SlotClock(EPOCH + LENGTH, SECOND), False)])
def test_the_state_of_an_old_ledger_is_of_the_slots_of_its_last_sample(
    tmp_path: Path, slots: SlotClock, kept: bool
) -> None:
    """An update must not throw estimates away, nor take those over that count other slots."""
    old_file(
        tmp_path,
        f"INSERT INTO promise VALUES ('crowd', 100, {LENGTH}, 0, 1, 0)",
        f"INSERT INTO ledger VALUES (1, 'crowd', 'sample', 9, {FINE.opens(9)}, {FINE.opens(10)}, 100, '')",
        "UPDATE account SET counter = 1, total = 100",
        "INSERT INTO state VALUES ('crowd', x'00')",
    )
    with Storage.open(tmp_path, network_id="crowd") as storage:
        storage.ledger.declare(100, LENGTH, slots=slots)
        assert (storage.state() is not None) == kept


def test_old_payments_count_as_if_their_noise_were_for_one_server(tmp_path: Path) -> None:
    """How large their noise was is not stored, and the promise may have been raised since: 1 is the only safe value."""
    old_file(
        tmp_path,
        f"INSERT INTO promise VALUES ('crowd', 100, {3 * LENGTH}, 0, 6, 0)",
        f"INSERT INTO ledger VALUES (1, 'crowd', 'sample', 0, {opens(0)}, {opens(1)}, 10, '')",
        "UPDATE account SET counter = 1, total = 10",
    )
    with open_storage(tmp_path / "new", "new", ledger=tmp_path, nano=100, slots=3) as other:
        room = other.ledger.allowance(opens(1))  # 6 times the payment; and what is paid now counts 6 times as well
        assert (room.nano, room.counted, room.guarantee.network) == ((100 - 60) // 6, 60, "crowd")
        assert "with up to 6 counts per slot" in str(room.guarantee)
        other.ledger.withdraw("new", 1, "")
    with Storage.open(tmp_path, network_id="crowd") as storage:
        with pytest.raises(BadInput, match="weaker"):
            storage.ledger.declare(100, 3 * LENGTH, slots=SLOTS, bounds=UserBounds(5, 1))
        storage.ledger.declare(100, 3 * LENGTH, slots=SLOTS, bounds=UserBounds(2, 3))
        room = storage.ledger.allowance(opens(1))
        assert (room.nano, room.counted) == (40, 60)
        draw(storage, 3, nano=100)


def test_the_horizons_of_an_old_ledger_are_known(tmp_path: Path) -> None:
    """What was promised in them is part of the sum that a new one states."""
    old_file(
        tmp_path,
        f"INSERT INTO promise VALUES ('crowd', 100, NULL, {opens(7) + 3}, 1, 0)",
        f"INSERT INTO event VALUES (1, 'crowd', {opens(4) + 3}, 'new-horizon', '')",
        f"INSERT INTO event VALUES (2, 'crowd', {opens(7) + 3}, 'new-horizon', '')",
    )
    with open_storage(tmp_path, nano=100) as storage:
        assert [start for start, _ in horizons(storage)] == [0, opens(4) + 3, opens(7) + 3]
        assert storage.ledger.account(EVER).total_promised() == 300


def test_a_promise_names_its_users() -> None:
    """Two promises that read the same would be taken for the same."""
    texts = {
        str(NetworkGuarantee("a", 10**9, None, 0, bounds, roaming))
        for bounds in (UserBounds(), UserBounds(2, 1), UserBounds(1, 2), UserBounds(2, 2, exact=False))
        for roaming in (False, True)
    }
    assert len(texts) == 8
    assert "ε=1 over its complete horizon for pinned users in one region at one server per slot" in texts
