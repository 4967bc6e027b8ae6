"""The durable ledger: one draw a slot, exact sums, promises of all networks, nothing ever refilled."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from dpcrowd.errors import BadInput, BudgetExhausted
from dpcrowd.node.storage import SlotTaken, Storage, StorageError
from dpcrowd.node.storage.notes import LARGEST_COUNTER
from dpcrowd.privacy.network_guarantee import NetworkGuarantee, UserBounds
from node_support_storage import EPOCH, LENGTH, SECOND, SLOTS, draw, open_storage, opens, release


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    with open_storage(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Storage]:
    with open_storage(tmp_path / "window", nano=10, slots=3) as opened:
        yield opened


@pytest.fixture
def longer(tmp_path: Path) -> Iterator[Storage]:
    with open_storage(tmp_path / "longer", nano=100, slots=5) as opened:
        yield opened


def test_a_payment_its_values_and_the_state_are_there_again_after_a_restart(tmp_path: Path) -> None:
    """Without durable values a restarted node would draw a second time, or send nothing for what it paid."""
    with open_storage(tmp_path) as storage:
        assert storage.ledger.counter() == 0
        assert storage.state() is None
        assert draw(storage, 3, nano=250, noisy=b"\x00values", state=b"after 3") == 1
        assert draw(storage, 4, nano=50, noisy=b"more", state=b"after 4") == 2
    with open_storage(tmp_path) as storage:
        sample = storage.ledger.sample(opens(3))
        assert sample is not None
        assert (sample.counter, sample.slot, sample.nano, sample.noisy) == (1, 3, 250, b"\x00values")
        assert storage.ledger.sample(opens(5)) is None
        assert (storage.ledger.counter(), storage.ledger.total_spent()) == (2, 300)
        assert storage.state() == b"after 4"


def test_a_slot_is_never_drawn_a_second_time(storage: Storage) -> None:
    """A second draw of the same counts would cost twice what the ledger says."""
    draw(storage, 3, noisy=b"first", state=b"first")
    with pytest.raises(SlotTaken, match=r"slot 3, open from 2027-01-15T08:00:30Z, was drawn before"):
        draw(storage, 3, noisy=b"second", state=b"second")
    sample = storage.ledger.sample(opens(3))
    assert sample is not None
    assert sample.noisy == b"first"
    assert storage.state() == b"first"
    assert (storage.ledger.counter(), storage.ledger.total_spent()) == (1, 5)


@pytest.mark.parametrize("shift", [-LENGTH + 1, -1, 1, LENGTH - 1])
def test_a_new_epoch_does_not_give_the_same_seconds_again(storage: Storage, shift: int) -> None:
    """Keyed by slot number, or by exact start, a shifted epoch would let the same check-ins be drawn again."""
    draw(storage, 3)
    with pytest.raises(SlotTaken):
        storage.commit_sample(900, opens(3) + shift, LENGTH, 5, b"again", b"")


def test_the_same_number_in_a_new_epoch_is_another_slot(storage: Storage) -> None:
    """A ledger with a unique slot number would refuse all of a new epoch's first slots."""
    draw(storage, 3)
    assert storage.commit_sample(3, opens(3) + 100 * LENGTH, LENGTH, 5, b"later", b"") == 2


@pytest.mark.parametrize("neighbour", [2, 4])
def test_slots_that_only_touch_are_both_drawn(storage: Storage, neighbour: int) -> None:
    """An overlap test that is off by one would refuse every second slot."""
    draw(storage, 3)
    assert draw(storage, neighbour) == 2


def test_a_restart_with_other_settings_refills_nothing(tmp_path: Path) -> None:
    """A new epsilon or network id must find all that was spent in this folder."""
    with open_storage(tmp_path, "old", nano=100) as storage:
        draw(storage, 0, nano=60)
    with open_storage(tmp_path, "new", nano=100) as storage:
        assert storage.ledger.counter() == 0
        assert [(entry.network, entry.nano) for entry in storage.ledger.payments_since(0)] == [("old", 60)]
        with pytest.raises(BudgetExhausted) as refused:
            draw(storage, 50, nano=41)
        assert (refused.value.requested, refused.value.remaining) == (41, 40)
        assert draw(storage, 50, nano=40) == 1


def test_payments_since_lists_what_closed_later(storage: Storage) -> None:
    """The window of the scheme's ledger is rebuilt from this list: a slot that just left must not be in it."""
    for slot in (1, 2, 5):
        draw(storage, slot, nano=slot)
    found = storage.ledger.payments_since(opens(3))
    assert [(entry.slot, entry.opens_ns, entry.closes_ns, entry.nano, entry.kind) for entry in found] == [
        (5, opens(5), opens(6), 5, "sample")
    ]
    assert [entry.slot for entry in storage.ledger.payments_since(opens(3) - 1)] == [2, 5]


def test_a_window_promise_holds_at_its_exact_edge(window: Storage) -> None:
    """One slot more or less in the window would refuse what is allowed, or overspend."""
    storage = window
    draw(storage, 0, nano=6)
    draw(storage, 2, nano=4)
    with pytest.raises(BudgetExhausted, match=r"ε=0\.000000001.*0\.00000001 of the 0\.00000001.*\(0 left\)"):
        storage.commit_sample(2, opens(1), LENGTH, 1, b"", b"")
    assert draw(storage, 3, nano=6) == 3  # slot 0 has left
    with pytest.raises(BudgetExhausted):
        draw(storage, 4, nano=1)


def test_what_a_clock_that_was_ahead_has_paid_counts_until_its_date_has_passed(tmp_path: Path) -> None:
    """Dated far in the future, and paid a moment ago: another network on the ledger would spend it again."""
    shared = tmp_path / "a"
    with open_storage(shared, "a", nano=10, slots=3) as a, open_storage(tmp_path / "b", "b", ledger=shared) as b:
        draw(a, 1000, nano=8)
        for slot in (7, 998, 1002):
            with pytest.raises(BudgetExhausted):
                draw(b, slot, nano=3)
        assert draw(b, 1003, nano=3) == 1


def test_promises_of_other_networks_on_the_ledger_bind_too(tmp_path: Path) -> None:
    """Two networks over the same users: whoever comes second must see what the first has spent, and promised."""
    shared = tmp_path / "a"
    with open_storage(shared, "a", nano=10) as a, open_storage(tmp_path / "b", "b", ledger=shared, nano=100) as b:
        draw(b, 0, nano=5, noisy=b"of b", state=b"b")
        assert a.ledger.sample(opens(0)) is None
        assert a.ledger.counter() == 0
        assert draw(a, 0, nano=4, noisy=b"of a", state=b"a") == 1  # the same seconds: another draw, paid as well
        for storage, name in ((a, b"a"), (b, b"b")):
            sample = storage.ledger.sample(opens(0))
            assert sample is not None
            assert (sample.noisy, storage.state()) == (b"of " + name, name)
        with pytest.raises(BudgetExhausted, match="network 'a'"):
            draw(b, 1, nano=2)
        assert [entry.network for entry in a.ledger.payments_since(0)] == ["b", "a"]
        assert a.ledger.total_spent() == b.ledger.total_spent() == 9
        assert [(one.network, one.nano, one.span_ns) for one in a.ledger.account(0).guarantees] == [
            ("a", 10, None),
            ("b", 100, None),
        ]
        b.ledger.withdraw("a", 1, "ended")
        assert draw(b, 1, nano=2) == 2
        assert (a.ledger.counter(), b.ledger.counter(), b.ledger.payments()) == (1, 2, 3)
        assert [(event.kind, event.network) for event in a.events.all()] == [("withdrawn", "a")]
        with pytest.raises(BadInput, match="'a'"):
            b.ledger.withdraw("a", 2, "again")


@pytest.mark.parametrize(("starts", "allowed"), [((1 - LENGTH, 3 * LENGTH - 1), 1), ((-LENGTH, 3 * LENGTH), 2)])
def test_slots_across_the_ends_of_anothers_window_count_in_it(
    tmp_path: Path, starts: tuple[int, int], allowed: int
) -> None:
    """Two slots of b that both reach a nanosecond into a's window [0, 3 slots) are closer than b's own grid says."""
    shared = tmp_path / "a"
    with open_storage(shared, "a", nano=10, slots=3), open_storage(tmp_path / "b", "b", ledger=shared) as b:
        b.commit_sample(0, EPOCH + starts[0], LENGTH, 8, b"", b"")
        with nullcontext() if allowed == 2 else pytest.raises(BudgetExhausted, match="network 'a'"):
            b.commit_sample(1, EPOCH + starts[1], LENGTH, 3, b"", b"")
        assert b.ledger.counter() == allowed


def test_the_narrowest_promise_binds_whoever_made_it(tmp_path: Path) -> None:
    """Checking only the own promise, or the first one, would break the other's."""
    shared = tmp_path / "a"
    with open_storage(shared, "a", nano=100) as a, open_storage(tmp_path / "b", "b", ledger=shared, nano=10):
        with pytest.raises(BudgetExhausted, match="network 'b'"):
            draw(a, 0, nano=11)
        assert draw(a, 0, nano=10) == 1


def test_nothing_is_paid_before_a_promise_is_declared(tmp_path: Path) -> None:
    """A node that forgets to declare would pay without any limit."""
    with Storage.open(tmp_path, network_id="crowd") as storage, pytest.raises(BadInput, match="declare it first"):
        draw(storage, 0)


def test_a_new_horizon_is_explicit_and_logged(storage: Storage) -> None:
    """Declaring the same finite promise again, as each restart does, must not begin a new horizon."""
    storage.ledger.declare(10, None, slots=SLOTS)
    draw(storage, 0, nano=10)
    storage.ledger.declare(10, None, slots=SLOTS)
    with pytest.raises(BudgetExhausted):
        draw(storage, 5, nano=1)
    storage.ledger.new_horizon(opens(1), opens(5), "sum is now 2e-8")
    storage.ledger.declare(10, None, slots=SLOTS)
    assert storage.ledger.account(0).guarantees[0].since_ns == opens(1)
    assert draw(storage, 5, nano=10) == 2
    storage.ledger.new_horizon(opens(0), opens(6), "begins behind all that was paid")
    assert storage.ledger.account(0).guarantees[0].since_ns == opens(6)
    assert storage.ledger.total_spent() == 20
    assert (storage.events.all()[0].at_ns, storage.events.all()[0].kind) == (opens(5), "new-horizon")


def test_a_window_has_no_horizon_that_could_begin_anew(window: Storage) -> None:
    """Its budget comes back by itself; a new horizon would refill it at will."""
    with pytest.raises(BadInput, match="no finite horizon"):
        window.ledger.new_horizon(opens(9), 1, "")


def test_a_confirmed_loss_is_paid_blocks_its_slots_and_lifts_the_counter(longer: Storage) -> None:
    """After an old copy was restored, slots that may have been drawn must not be drawn again, nor counters repeat."""
    storage = longer
    draw(storage, 0, nano=1)
    counter = storage.ledger.book_loss(opens(1), opens(4), 100, "restored", at_ns=opens(4), counter=17)
    assert counter == storage.ledger.counter() == 18
    with pytest.raises(SlotTaken, match="declared lost"):
        draw(storage, 3)
    with pytest.raises(BudgetExhausted):
        draw(storage, 7)
    assert storage.ledger.book_loss(opens(1), opens(2), 1, "again", at_ns=opens(4)) == 19
    (event, _) = storage.events.all()
    assert event.kind == "loss"
    assert "restored" in event.text


@pytest.mark.parametrize("table", ["ledger", "account", "tally", "event", "complete"])
def test_a_fault_at_any_write_of_a_loss_books_nothing_of_it(tmp_path: Path, table: str) -> None:
    """A loss without its last slot would be asked for again, and the second answer would block the budget twice."""
    with open_storage(tmp_path) as storage:
        draw(storage, 0, nano=1)
        before = loss_facts(storage)
        with closing(sqlite3.connect(tmp_path / "dpcrowd.db")) as other:
            for verb in ("INSERT", "UPDATE"):
                stop = "BEGIN SELECT RAISE(ABORT, 'no room'); END"
                other.execute(f"CREATE TRIGGER stop_{verb} BEFORE {verb} ON {table} {stop}")
            with pytest.raises(StorageError):
                book_loss(storage)
            assert loss_facts(storage) == before
            for verb in ("INSERT", "UPDATE"):
                other.execute(f"DROP TRIGGER stop_{verb}")
        assert book_loss(storage) == 18
        assert loss_facts(storage) == (2, 101, 18, ["loss"], 4)


def book_loss(storage: Storage) -> int:
    return storage.ledger.book_loss(opens(1), opens(4), 100, "restored", at_ns=opens(4), counter=17, complete_until=4)


def loss_facts(storage: Storage) -> tuple[object, ...]:
    """Return everything that booking a loss changes."""
    ledger = storage.ledger
    events = [event.kind for event in storage.events.all()]
    return ledger.payments(), ledger.total_spent(), ledger.counter(), events, storage.memory.complete_until()


def test_what_was_lost_is_known_to_every_run_and_every_network(tmp_path: Path) -> None:
    """A second network on the ledger, or a restart, would call blocked what the first calls spent, or the reverse."""
    with (
        open_storage(tmp_path / "a", "a") as storage,
        open_storage(tmp_path / "b", "b", ledger=tmp_path / "a") as other,
    ):
        assert other.ledger.account(opens(2)).lost == 0
        storage.ledger.book_loss(opens(1), opens(2), 7, "an old copy", at_ns=opens(2))
        for each in (storage, other, storage, other):
            assert each.ledger.account(opens(2)).lost == 7, "each row is counted once"
    with open_storage(tmp_path / "a", "a") as storage:
        assert storage.ledger.account(opens(9000)).lost == 7


def test_lost_slots_leave_the_window_like_others(longer: Storage) -> None:
    """A loss that counted for ever would end sampling for good."""
    storage = longer
    storage.ledger.book_loss(opens(1), opens(4), 100, "restored", at_ns=opens(4))
    with pytest.raises(BudgetExhausted):
        draw(storage, 7)
    assert draw(storage, 8) == 2


@pytest.mark.parametrize(("nano", "span"), [(11, 3 * LENGTH), (10, 3 * LENGTH - 1), (1, 1)])
def test_a_weaker_promise_under_the_same_name_is_refused(window: Storage, nano: int, span: int) -> None:
    """Whoever edits epsilon in the file, and deletes the copy beside the ledger, would break what users were told."""
    (before,) = window.ledger.account(0).guarantees
    with pytest.raises(BadInput, match=r"promised ε=0\.00000001 in any 30 s .* weaker"):
        window.ledger.declare(nano, span, slots=SLOTS)
    assert window.ledger.account(0).guarantees == (before,)


def test_fewer_regions_or_servers_and_pinned_users_are_a_weaker_promise(tmp_path: Path) -> None:
    """The noise is made for the counts in which a user may be: promised for 8, made for 1, it is 8 times too small."""
    with Storage.open(tmp_path, network_id="crowd") as storage:
        declare = storage.ledger.declare
        declare(10, None, bounds=UserBounds(2, 4), roaming=True)
        for bounds, roaming in (
            (UserBounds(1, 4), True),
            (UserBounds(4, 2), True),  # as many counts, but fewer servers
            (UserBounds(8, 1), True),
            (UserBounds(2, 4), False),
        ):
            with pytest.raises(
                BadInput, match=r"for roaming users in up to 2 regions at each of up to 4 servers per slot.* weaker"
            ):
                declare(10, None, bounds=bounds, roaming=roaming)
        declare(10, None, bounds=UserBounds(2, 5), roaming=True)
        assert storage.ledger.account(0).guarantees == (NetworkGuarantee("crowd", 10, None, 0, UserBounds(2, 5), True),)


def test_a_stronger_promise_is_taken(window: Storage) -> None:
    """To promise more is always allowed; a whole horizon is more than any window of it, and not the other way."""
    window.ledger.declare(9, 4 * LENGTH, slots=SLOTS)
    window.ledger.declare(9, None, slots=SLOTS)
    with pytest.raises(BadInput, match="over its complete horizon"):
        window.ledger.declare(9, 100 * LENGTH, slots=SLOTS)


def test_room_is_what_can_be_paid(tmp_path: Path) -> None:
    """The scheme asks for no more than this; told too little it would fall silent, told too much be refused."""
    shared = tmp_path / "a"
    with open_storage(shared, "a", nano=10, slots=3) as a, open_storage(tmp_path / "b", "b", ledger=shared) as b:
        draw(a, 0, nano=4)
        room = b.ledger.allowance(opens(1))
        assert (room.nano, room.counted, room.guarantee.network) == (6, 4, "a")
        with pytest.raises(BudgetExhausted):
            draw(b, 1, nano=7)
        draw(b, 1, nano=6)
        assert a.ledger.allowance(opens(2)).nano == 0
        assert a.ledger.allowance(opens(3)).nano == 4


def test_a_loss_confirmed_in_one_network_does_not_hide_that_of_another(tmp_path: Path) -> None:
    """With one counter for all, a loss that a confirms would lift b above what b's neighbours remember."""
    shared = tmp_path / "a"
    with open_storage(shared, "a") as a, open_storage(tmp_path / "b", "b", ledger=shared) as b:
        draw(b, 0)
        a.ledger.book_loss(opens(1), opens(2), 1, "restored", at_ns=0, counter=50)
        assert (a.ledger.counter(), b.ledger.counter()) == (51, 1)


@pytest.mark.parametrize("jumps", [[5], [2, 2, 1], [1, 1, 1, 1, 1]])
def test_a_clock_that_is_set_ahead_refills_no_window(window: Storage, jumps: list[int]) -> None:
    """By the date alone a payment of a moment ago would have left the window, as often as somebody sets the clock."""
    draw(window, 0, nano=10)
    slot = 1
    for jump in jumps:
        window.ledger.set_clock(opens(slot), jump * LENGTH)
        slot += jump
    assert window.ledger.allowance(opens(slot)).nano == 0
    with pytest.raises(BudgetExhausted):
        draw(window, slot, nano=1)
    (entry,) = window.ledger.payments_since(opens(slot - 2))
    assert entry.opens_ns == opens(slot - 1)
    draw(window, slot + 2, nano=10)  # three slots of time have passed
    assert [event.kind for event in window.events.all()] == ["clock"] * len(jumps)


def test_ahead_after_back_counts_what_was_paid_between(window: Storage) -> None:
    """A payment that is dated after a jump's start, because the clock had gone back before, is as old as it is."""
    draw(window, 10, nano=10)
    window.ledger.set_clock(opens(9), 20 * LENGTH)
    assert window.ledger.allowance(opens(29)).nano == 0
    assert window.ledger.allowance(opens(33)).nano == 10


def test_two_networks_that_see_one_jump_keep_it_once(tmp_path: Path) -> None:
    """Kept twice, a window would be a jump too long."""
    shared = tmp_path / "a"
    with open_storage(shared, "a", nano=10, slots=3) as a, open_storage(tmp_path / "b", "b", ledger=shared) as b:
        draw(a, 0, nano=10)
        a.ledger.set_clock(opens(1), 9 * LENGTH)
        b.ledger.set_clock(opens(1) + SECOND, 9 * LENGTH + 1)
        assert a.ledger.allowance(opens(12)).nano == 10
        b.ledger.set_clock(opens(12), 9 * LENGTH)  # another one, which a has not seen yet
        a.ledger.set_clock(opens(12) + SECOND, 9 * LENGTH)
        assert len(a.events.all()) == 2
        b.ledger.set_clock(opens(1) + SECOND, 3 * LENGTH)  # at the same time, but another step
        assert len(a.events.all()) == 3


@pytest.mark.parametrize("nano", [0, -1, 10**15 + 1])
def test_amounts_that_are_no_payment_are_refused(storage: Storage, nano: int) -> None:
    """A draw for nothing, or a negative one that gives budget back, would be a hole."""
    for attempt in (
        lambda: draw(storage, 0, nano=nano),
        lambda: storage.ledger.declare(nano, None),
        lambda: storage.ledger.book_loss(1, 2, nano, "", at_ns=0),
    ):
        with pytest.raises(BadInput, match="allowed"):
            attempt()
    assert storage.ledger.total_spent() == 0


def test_times_and_counters_that_cannot_be_are_refused(storage: Storage) -> None:
    """An empty slot would overlap nothing and could be drawn again; a giant counter would overflow the file's."""
    with pytest.raises(BadInput, match="has a length of 0 ns"):
        storage.commit_sample(0, opens(0), 0, 1, b"", b"")
    with pytest.raises(BadInput, match="a window of 0 ns"):
        storage.ledger.declare(1, 0)
    with pytest.raises(BadInput, match="an end after the start"):
        storage.ledger.book_loss(opens(1), opens(1), 1, "", at_ns=0)
    with pytest.raises(BadInput, match="the counter that a neighbour remembers is"):
        storage.ledger.book_loss(opens(1), opens(2), 1, "", at_ns=0, counter=LARGEST_COUNTER + 1)


@pytest.mark.parametrize("statement", ["DELETE FROM ledger", "UPDATE ledger SET nano = 1"])
def test_the_file_itself_refuses_to_lose_a_payment(tmp_path: Path, statement: str) -> None:
    """A later version's mistake, or a hand on the file, must not refill the budget."""
    with open_storage(tmp_path) as storage:
        draw(storage, 0)
    connection = sqlite3.connect(tmp_path / "dpcrowd.db")
    with pytest.raises(sqlite3.IntegrityError, match="a payment is never"):
        connection.execute(statement)
    connection.close()


def test_neighbours_counters_are_remembered_and_never_lowered(tmp_path: Path) -> None:
    """A neighbour that comes back from an old copy says a lower counter: the memory must keep the higher one."""
    with open_storage(tmp_path) as storage:
        storage.memory.remember({"clinic": (5, 9, b"signed", 5)})
        storage.memory.remember({"clinic": (6, 9, b"signed again", 3)})
        storage.memory.remember({"clinic": (7, 8, b"signed lower", 7)})
        storage.commit_release([release(0)], b"", heard={"tram": (4, 2, b"tram's", 4), "liar": (1, 1 << 64, b"", 0)})
    with open_storage(tmp_path) as storage:
        assert storage.memory.remembered() == {
            "clinic": (6, 9, b"signed again", 3),
            "tram": (4, 2, b"tram's", 4),
            "liar": (1, LARGEST_COUNTER, b"", 0),
        }
    with open_storage(tmp_path, "other") as storage:
        assert storage.memory.remembered() == {}


def test_up_to_which_slot_the_ledger_is_complete_is_kept_with_each_commit(tmp_path: Path) -> None:
    """Kept apart, a crash in between would leave a folder that neighbours cannot vouch for, or vouch for too easily."""
    with open_storage(tmp_path) as storage:
        assert storage.memory.complete_until() is None
        draw(storage, 3)
        assert storage.memory.complete_until() == 3, "only a ledger that is complete pays"
        with pytest.raises(SlotTaken):
            draw(storage, 3)
        storage.commit_release([release(4)], b"")
        assert storage.memory.complete_until() == 3
        storage.commit_release([release(5)], b"", complete_until=5)
    with open_storage(tmp_path) as storage:
        assert storage.memory.complete_until() == 5
        storage.ledger.book_loss(opens(6), opens(9), 1, "restored", at_ns=opens(9), complete_until=9)
        assert storage.memory.complete_until() == 9
    with open_storage(tmp_path, "other") as storage:
        assert storage.memory.complete_until() is None, "of another network"


def test_the_epoch_of_these_tests_is_a_whole_second() -> None:
    """Texts above name this time."""
    assert EPOCH % SECOND == 0
