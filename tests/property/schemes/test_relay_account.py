"""What a relay server spends, and what its receivers let it spend: exactly n samples per window, and never one more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee, Users
from dpcrowd.schemes.records import Mailbox, RecordMessages
from dpcrowd.schemes.server import Server
from relay_support import Network, message_of
from schemes_support import account_for, bits, fingerprint, lone_server, paid_in, watched_noise


def network_of(length: int, samples: int, offset: int, *, users: Users = "pinned", finite: bool = False) -> Network:
    guarantee = Guarantee.finite(length, 1.0, users=users) if finite else Guarantee.window(length, 1.0, users=users)
    phases = np.array([offset, 0, 0], dtype=np.int64)
    return Network(np.array([0.5, 0.4, 0.8]), ProcessModel.of(1.0, [100.0]), guarantee, samples, phases, lag=4)


def mailbox_of(network: Network) -> Mailbox:
    """The mailbox of server 1."""
    return Mailbox.start(1, 3, network.lag, network.samples, network.guarantee.length)


@st.composite
def schedules(draw: Any) -> tuple[int, int, int]:
    """w, n and an offset."""
    length = draw(st.integers(1, 20))
    return length, draw(st.integers(1, length)), draw(st.integers(0, length - 1))


def charges_of(server: Server, slots: range, seed: int = 0, missed: float = 0.0) -> list[int]:
    """Nano-epsilon of each slot, when some are skipped, and some come without counts."""
    rng, spent = np.random.default_rng(seed), []
    counts = np.random.default_rng(seed + 1).integers(0, 5000, len(slots))
    for slot in slots:
        kind = rng.choice(["here", "away", "empty"], p=[1 - missed, missed / 2, missed / 2])
        if kind == "away":
            spent.append(0)
            continue
        server.observe(slot, None if kind == "empty" else [int(counts[slot])])
        spent.append(round(server.hear().epsilon * 1e9))
    return spent


@pytest.mark.slow
@settings(max_examples=40)
@given(schedules(), st.sampled_from(["pinned", "roaming"]))
def test_every_window_holds_exactly_n_samples(schedule: tuple[int, int, int], users: Users) -> None:
    """One more breaks the promise; one less is wasted budget."""
    length, samples, offset = schedule
    network = network_of(length, samples, offset, users=users)
    spent = np.array(charges_of(network.server(0), range(3 * length)))
    assert set(spent.tolist()) <= {0, network.price}
    for first in range(2 * length + 1):
        assert np.count_nonzero(spent[first : first + length]) == samples
        assert spent[first : first + length].sum() <= network.guarantee.total


@pytest.mark.slow
@settings(max_examples=20)
@given(schedules(), st.sampled_from(["pinned", "roaming"]))
def test_a_horizon_holds_exactly_n_samples(schedule: tuple[int, int, int], users: Users) -> None:
    """After the horizon nothing is left to spend, whatever the phase."""
    length, samples, offset = schedule
    network = network_of(length, samples, offset, users=users, finite=True)
    spent = np.array(charges_of(network.server(0), range(length + 9)))
    assert np.count_nonzero(spent[:length]) == samples
    assert not spent[length:].any()


@settings(max_examples=50)
@given(schedules(), st.booleans(), st.sampled_from(["pinned", "roaming"]), st.integers(0, 10**6))
@pytest.mark.slow
def test_whatever_is_missed_nothing_is_overspent(
    schedule: tuple[int, int, int], finite: bool, users: Users, seed: int
) -> None:
    """Samples that are made up for must not meet those that come after: they move along."""
    length, samples, offset = schedule
    network = network_of(length, samples, offset, users=users, finite=finite)
    server, slots = network.server(0), range(3 * length)
    spent = np.array(charges_of(server, slots, seed, missed=0.4))
    for first in slots:
        assert spent[first : first + length].sum() <= network.guarantee.total
    if finite:
        assert spent.sum() <= network.guarantee.total
    # Its receivers have the same rule: they refuse none of the samples, in whatever order they come.
    receiver = mailbox_of(network)
    assert accepted(receiver, np.flatnonzero(spent), network, seed) == np.count_nonzero(spent)
    assert not receiver.refused.any()


@pytest.mark.slow
@settings(max_examples=20)
@given(
    schedules(),
    st.booleans(),
    st.sampled_from(["pinned", "roaming"]),
    st.dictionaries(st.integers(0, 90), st.integers(1, 10**9), max_size=5),
    st.integers(0, 10**6),
)
def test_a_server_spends_from_its_account(
    schedule: tuple[int, int, int], finite: bool, users: Users, others: dict[int, int], seed: int
) -> None:
    """What others have paid from the same account is not there to spend; without it, an account is a ledger."""
    length, samples, offset = schedule
    network = network_of(length, samples, offset, users=users, finite=finite)
    stored, own = account_for(network.guarantee), network.server(0)
    server, paid = network.server(0, stored), dict[int, int]()
    for slot in range(3 * length):
        if slot in others:  # the slot is taken, and what it has cost is gone
            stored, paid[slot] = paid_in(stored, slot, others[slot]), others[slot]
        server.use(stored)
        left = server.remaining(slot)
        counts = None if np.random.default_rng([seed, slot]).random() < 0.1 else [100]
        releases = []
        for one in (server, own):
            one.observe(slot, counts)
            if one is server and (sample := server.open_sample()) is not None:
                assert slot not in paid
                assert sample[0] == network.price <= left
                begin = 0 if finite else slot - length + 1
                before = sum(nano for past, nano in paid.items() if past >= begin)
                assert before + sample[0] <= network.guarantee.total
                stored = stored.pay(slot, stored.slots.opens(slot), stored.slots.slot_ns, sample[0])
                paid[slot] = sample[0]
            releases.append(one.hear())
        if not paid.keys() & others.keys():
            assert fingerprint(releases[0]) == fingerprint(releases[1])


def accepted(mailbox: Mailbox, slots: Any, network: Network, seed: int, lost: float = 0.0) -> int:
    """How many of origin 0's records of these slots are taken, when they come late, twice and in any order."""
    rng, number = np.random.default_rng(seed), 0
    arrivals: dict[int, list[tuple[int, int]]] = {}
    for slot in slots:
        if rng.random() >= lost:
            for _ in range(rng.integers(1, 3)):
                arrivals.setdefault(int(slot + rng.integers(0, network.lag)), []).append((0, int(slot)))
    for now in range(max(arrivals, default=-1) + 1):
        mailbox.open(now)
        came = arrivals.get(now, [])
        rng.shuffle(came)
        if came:
            message = message_of(dict.fromkeys(came, np.array([5.0])), came, network.price)
            number += int(mailbox.accept(message, now, network.price).sum())
    return number


@pytest.mark.slow
@settings(max_examples=100)
@given(schedules(), st.lists(st.integers(0, 12), max_size=12), st.integers(0, 10**6))
def test_honest_records_are_never_refused(schedule: tuple[int, int, int], delays: list[int], seed: int) -> None:
    """Any phase, any rational w/n, and a phase that has moved again and again: an honest origin keeps its weight."""
    length, samples, offset = schedule
    network = network_of(length, samples, offset)
    slots, shift = [], 0
    for number in range(25):
        due = -(-(number * length + offset) // samples)  # the first slot in which n t - offset reaches a multiple of w
        shift += delays[number] if number < len(delays) else 0
        slots.append(due + shift)
    assert len(set(slots)) == len(slots)
    mailbox = mailbox_of(network)
    assert accepted(mailbox, slots, network, seed) == len(slots)
    mailbox = mailbox_of(network)
    accepted(mailbox, slots, network, seed, lost=0.3)
    assert not mailbox.refused.any()


@pytest.mark.slow
@settings(max_examples=100)
@given(schedules(), st.integers(0, 10**6))
def test_nobody_is_heard_more_than_n_times_per_window(schedule: tuple[int, int, int], seed: int) -> None:
    """An origin that speaks in every slot at the price of a sample would count for more than it has paid."""
    length, samples, _ = schedule
    network = network_of(length, samples, 0)
    rng = np.random.default_rng(seed)
    assume(samples < length)
    mailbox, taken = mailbox_of(network), list[int]()
    for now in range(3 * length):
        final = now - network.lag
        taken += [final] if final >= 0 and mailbox.counting(now - 1)[final % network.lag, 0] else []
        mailbox.open(now)
        for _ in range(2):
            slot = int(now - rng.integers(0, network.lag))
            if slot >= 0:
                message = message_of({(0, slot): np.array([9.0])}, [(0, slot)], network.price)
                mailbox.accept(message, now, network.price)
    for first in range(3 * length):
        assert sum(first <= slot < first + length for slot in taken) <= samples
    assert taken or 3 * length <= network.lag


@pytest.mark.slow
@settings(max_examples=60)
@given(schedules(), st.lists(st.tuples(st.integers(0, 14), st.booleans()), max_size=24), st.integers(0, 10**6))
def test_which_records_count_is_a_function_of_their_set(
    schedule: tuple[int, int, int], events: list[tuple[int, bool]], seed: int
) -> None:
    """An origin that samples too often, or signs twice, would split the servers that have its records in another order.

    One mailbox has everything in the order of slots, in its own slot; the other one late, and in any order.
    """
    length, samples, _ = schedule
    network = network_of(length, samples, 0)
    rng, orders = (
        np.random.default_rng(seed),
        [dict[int, list[tuple[int, bool]]](), dict[int, list[tuple[int, bool]]]()],
    )
    for slot, is_void in events:
        orders[0].setdefault(slot, []).append((slot, is_void))
        orders[1].setdefault(int(slot + rng.integers(0, network.lag)), []).append((slot, is_void))
    ends = []
    for order in orders:
        mailbox, final = mailbox_of(network), list[list[bool]]()
        for now in range(20):
            final.append(mailbox.counting(now - 1)[now % network.lag].tolist())
            mailbox.open(now)
            for slot, is_void in order.get(now, []):
                if is_void:
                    mailbox.cancel(0, slot, now)
                message = message_of({(0, slot): np.array([9.0])}, [(0, slot)], network.price)
                mailbox.accept(message, now, network.price)
            above = {slot % network.lag for slot in mailbox.above_account(0, now)}
            expected = [bool(mailbox.held[place, 0]) and place not in above for place in range(network.lag)]
            assert mailbox.counting(now)[:, 0].tolist() == expected, "the fast way and the slow one agree"
        ends.append((final, mailbox.paid_until.tolist()))
    assert ends[0] == ends[1]


def test_counts_change_nothing_in_the_schedule() -> None:
    """If the slots depended on the counts, that a server speaks would tell something about them, unpaid."""
    network = network_of(12, 5, 3)
    schedules = {tuple(charges_of(network.server(0), range(40), seed)) for seed in range(5)}
    assert len(schedules) == 1


# ------------------------------------------------------------------------------------------------- what is refused


def forged(origin: int = 1, slot: int = 6, nano: int | None = None, value: float = 70.0) -> RecordMessages:
    return message_of({(origin, slot): np.array([value])}, [(origin, slot)], nano or NETWORK.price)


NETWORK = network_of(12, 3, 0)


def listening(slots: int = 6) -> Server:
    """Server 0, in the middle of slot `slots`."""
    server = NETWORK.server(0)
    for slot in range(slots):
        server.observe(slot, [80])
        server.hear()
    server.observe(slots, [80])
    return server


@pytest.mark.parametrize(
    ("message", "counter"),
    [
        (forged(nano=10**15), "refused"),  # epsilon = 10^6
        (forged(nano=NETWORK.price + 1), "refused"),
        (forged(slot=7), "refused"),  # has not begun
        (forged(origin=3), "unknown"),
        (forged(origin=10**9), "unknown"),
        (forged(slot=2), "late"),
        (forged(origin=0), None),  # its own: nobody else can know better
    ],
)
def test_records_that_are_refused(message: RecordMessages, counter: str | None) -> None:
    """A record that names a large epsilon must not buy weight; none of these may change the estimate."""
    server, other = listening(), listening()
    assert bits(server.hear({1: message}).estimate) == bits(other.hear().estimate)
    counts = {name: int(getattr(server.mailbox, name).sum()) for name in ("refused", "unknown", "late")}
    assert counts == {name: int(name == counter) for name in counts}
    if counter == "refused":
        assert server.mailbox.refused[1] == 1


def test_a_record_that_comes_too_often_is_refused() -> None:
    """n = 3 in 12 slots: two records of one origin are at least four slots apart."""
    server, other = listening(), listening()
    for one in (server, other):
        one.hear({1: forged(slot=6)})
    for slot in (7, 8, 9):
        for one in (server, other):
            one.observe(slot, [80])
        extra = server.hear({1: forged(slot=slot, value=9000.0)})
        assert bits(extra.estimate) == bits(other.hear().estimate), "kept, and without any weight"
    assert server.mailbox.refused.tolist() == [0, 3, 0]
    for one in (server, other):
        one.observe(10, [80])
    server.hear({1: forged(slot=10)})
    assert server.mailbox.refused.tolist() == [0, 3, 0]
    assert server.mailbox.held[10 % NETWORK.lag].tolist() == [False, True, False]


def test_a_record_of_an_earlier_slot_takes_the_place_of_a_later_one() -> None:
    """Which of two records counts must not depend on which arrived first: both servers release the same bits then."""
    server, other = listening(), listening()
    first, second = forged(slot=6, value=70.0), forged(slot=7, value=95.0)
    releases = []
    for one, early in ((server, None), (other, first)):
        one.hear(None if early is None else {1: early})
        one.observe(7, [80])
        one.hear({1: second})
        one.observe(8, [80])
        releases.append(bits(one.hear({1: first} if early is None else None).estimate))
        assert one.mailbox.counting(8)[[6 % NETWORK.lag, 7 % NETWORK.lag], 1].tolist() == [True, False]
    assert releases[0] == releases[1]


def test_of_two_values_for_one_slot_the_first_counts() -> None:
    """An origin that says two things must not count twice, nor rewrite what was released."""
    server, other = listening(), listening()
    first = server.hear({1: forged(value=70.0), 2: forged(value=7000.0)})
    assert bits(first.estimate) == bits(other.hear({1: forged(value=70.0)}).estimate)
    releases = []
    for one, message in ((server, forged(value=9000.0)), (other, None)):
        one.observe(7, [80])
        releases.append(bits(one.hear(None if message is None else {2: message}).estimate))
    assert releases[0] == releases[1]
    assert not server.mailbox.refused.any()


@pytest.mark.parametrize("value", [0.5, np.nan, np.inf, 2.0**60])
def test_values_that_no_honest_server_sends(value: float) -> None:
    """Noisy counts are integers; anything else would spoil the filter for good."""
    server = listening()
    with pytest.raises(BadInput, match="not integers"):
        server.hear({1: forged(value=value)})
    server.hear()


def test_a_server_has_to_know_its_network() -> None:
    """Without the public shares it could not read the others' records; with another's number it would sign as them."""
    with pytest.raises(BadInput, match="needs the public shares"):
        lone_server("relay", regions=1)
    setting = NETWORK.setting(0)
    for number, share in ((1, 0.4), (0, 0.9)):
        with pytest.raises(BadInput, match="is not the one that its peers name"):
            Server(NETWORK.scheme(), setting, watched_noise(), number=number, share=share, allow_simulated_noise=True)
    with pytest.raises(BadInput, match="keeps no records"):
        assert lone_server().mailbox
