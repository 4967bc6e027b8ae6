"""The slot of a node: sealed, sampled, paid, told, fused, published; and what clocks and silence do to it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import SECOND
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.payments import Payment
from dpcrowd.schemes import server
from node_support import body_of
from node_support_lone import COUNTS, WINDOW, Lone, beat, make_server, sample
from schemes_support import bits

# ------------------------------------------------------------------------------------------------ order of a slot


def test_a_sample_is_stored_before_it_is_sent() -> None:
    """A message that left before its price was durable would be unpaid after a crash."""
    node = Lone()
    kinds = [type(told) for told in node.machine.handle(on.SlotSealed(node.view.seals(0), 0, COUNTS))]
    assert kinds == [do.StoreSample, do.Send, do.ScheduleDeadline]


def test_the_stored_sample_is_the_sent_one() -> None:
    """After a crash the stored values are sent again: they must be those of the first message."""
    node = Lone()
    stored, sent, deadline = node.machine.handle(on.SlotSealed(node.view.seals(3), 3, COUNTS))
    assert isinstance(stored, do.StoreSample)
    assert isinstance(sent, do.Send)
    assert (stored.slot, stored.nano_epsilon, stored.counter) == (3, 2 * 10**9 // WINDOW, 1)
    body = body_of(sent.payload)
    assert (body.slot, body.counter, sent.to) == (3, 1, ("server-1", "server-2"))
    again = make_server(None)
    again.restore(stored.state)
    message = again.pending_message()
    assert message is not None
    assert body.records[0].info_vec == message.arrays()["info_vec"].tobytes()
    assert np.frombuffer(stored.noisy).tolist() == again.open_sample()[1].tolist()  # type: ignore[index]
    assert deadline == do.ScheduleDeadline(3, node.view.ends(3))


def test_a_slot_without_a_sample_costs_nothing_and_is_told() -> None:
    """The heartbeat: nobody waits until the deadline for a server that has nothing to say."""
    node = Lone(interval=2)
    node.live([0])
    node.take(do.Send)
    node.seal(1)
    assert [type(told) for told in node.told] == [do.NotSampled, do.Send, do.ScheduleDeadline]
    body = body_of(node.outbox[-1].payload)
    assert (body.records, body.prior, body.counter) == ((), b"", 1)


def test_the_exchange_ends_when_all_have_spoken() -> None:
    """Waiting longer would delay the release for nothing."""
    node = Lone()
    node.seal(0)
    node.hear(1, beat(1, 0))
    assert node.machine.exchanging == 0
    node.hear(2, sample(2, 0))
    assert node.machine.exchanging is None
    assert [release.slot for release in node.published] == [0]
    assert [told.heard for told in node.take(do.StoreRelease)] == [("server-1", "server-2")]
    node.pass_deadline(0)
    assert len(node.published) == 1, "a deadline that comes after all changes nothing"


def test_what_is_heard_is_fused() -> None:
    """Neighbours' samples are the point of the network: they move the estimate and narrow its interval."""
    with_data, without = Lone(), Lone()
    for node, second in ((with_data, sample(2, 0)), (without, beat(2, 0))):
        node.seal(0)
        node.hear(1, beat(1, 0))
        node.hear(2, second)
    assert (with_data.published[0].variance < without.published[0].variance).all()
    assert bits(with_data.published[0].estimate) != bits(without.published[0].estimate)


def test_the_order_of_arrival_changes_no_bit() -> None:
    """Sums run in the order of the servers' numbers, or two runs of one network would differ."""
    first, second = Lone((1, 2, 3)), Lone((1, 2, 3))
    said = {number: sample(number, 0, 33.3 * number) for number in (1, 2, 3)}
    for node, order in ((first, (1, 2, 3)), (second, (3, 1, 2))):
        node.seal(0)
        for number in order:
            node.hear(number, said[number])
    assert bits(first.published[0].estimate) == bits(second.published[0].estimate)


# --------------------------------------------------------------------------------------------------------- silence


def test_a_silent_neighbour_is_not_waited_for_beyond_the_deadline() -> None:
    """Failure table: fuses without it at the deadline, marks it (it is not in `heard`), goes on."""
    node = Lone()
    node.seal(0)
    node.hear(1, sample(1, 0))
    node.pass_deadline(0)
    assert [told.heard for told in node.take(do.StoreRelease)] == [("server-1",)]
    node.seal(1)
    node.hear(1, beat(1, 1))
    node.hear(2, beat(2, 1))
    assert [told.heard for told in node.take(do.StoreRelease)] == [("server-1", "server-2")]


def test_all_silent_is_the_server_alone() -> None:
    """Failure table: own samples and prediction, to the bit those of a server that never had neighbours."""
    node, alone = Lone(), make_server(Lone().noise)
    for slot in range(6):
        node.live([slot])
        alone.observe(slot, COUNTS)
        release = alone.hear()
        assert bits(node.published[-1].estimate) == bits(release.estimate)
        assert bits(node.published[-1].variance) == bits(release.variance)


def test_all_silent_and_no_sample_widens_the_interval() -> None:
    """An estimate that pretends to be fresh while nobody knows anything is a lie."""
    node = Lone(interval=4)
    node.live(range(4))
    variances = [release.variance for release in node.published]
    for before, after in pairwise(variances):
        assert (after > before).all()
    assert bits(node.published[3].estimate) == bits(node.published[0].estimate)


def test_without_neighbours_a_slot_ends_at_once() -> None:
    """A server whose links begin later must neither wait for a deadline nor send into the void."""
    node = Lone(())
    node.seal(0)
    assert [type(told) for told in node.told] == [do.StoreSample, do.StoreRelease, do.Publish, do.ForgetCheckIns]
    assert node.machine.exchanging is None


def test_links_of_the_slot_count() -> None:
    """A timed list of links: who is expected changes from slot to slot."""
    node = Lone(lambda slot: frozenset({1} if slot < 2 else {2}))
    for slot, number in ((0, 1), (1, 1), (2, 2)):
        node.seal(slot)
        assert node.outbox[-1].to == (f"server-{number}",)
        node.hear(number, beat(number, slot))
    assert [release.slot for release in node.published] == [0, 1, 2]


# --------------------------------------------------------------------------------------------------------- budget


@pytest.mark.parametrize("guarantee", [Guarantee.window(6, 2.0), Guarantee.finite(3, 2.0)], ids=["window", "finite"])
def test_a_spent_budget_is_no_sample(guarantee: Guarantee) -> None:
    """Failure table: neighbours and prediction go on, nothing is spent, nothing invented."""
    node = Lone(guarantee=guarantee, interval=1)
    account = node.account()
    assert account is not None
    others = Payment(1, "others", "sample", 0, *_times(node, 0), guarantee.total)
    node.give(on.SlotSealed(node.view.seals(0), 0, COUNTS, account.add(others)))
    assert node.noise.drawn == []
    assert not node.disk.samples
    assert body_of(node.outbox[-1].payload).records == ()
    node.hear(1, sample(1, 0, 70.0))
    node.pass_deadline(0)
    assert np.allclose(node.published[0].estimate, 70.0)
    assert node.published[0].nano == 0


def test_sampling_stops_with_the_horizon() -> None:
    """A finite stream: after its last slot nothing is read any more, for ever."""
    node = Lone(guarantee=Guarantee.finite(3, 2.0))
    node.live(range(8))
    assert sorted(node.disk.samples) == [0, 1, 2]
    assert sum(nano for nano, _ in node.disk.samples.values()) <= 2 * 10**9
    assert len(node.published) == 8


# ---------------------------------------------------------------------------------------------------------- clocks


@pytest.mark.parametrize("state", ["exchanging", "released"])
@pytest.mark.parametrize("again", [5, 4, 0])
def test_a_clock_that_goes_back_never_draws_again(state: str, again: int) -> None:
    """Failure table: a slot is not opened twice; the noise is not even asked."""
    node = Lone()
    node.live(range(5))
    node.seal(5)
    if state == "released":
        node.pass_deadline(5)
    drawn, sent = list(node.noise.drawn), len(node.outbox)
    node.seal(again, COUNTS + 1)
    assert node.noise.drawn == drawn
    assert len(node.outbox) == sent
    assert node.events == ["clock-behind"]
    assert f"slot {again}" in node.reports[0].text
    assert "slot 5" in node.reports[0].text
    if state == "exchanging":
        node.pass_deadline(5)
    node.live([6])
    assert [release.slot for release in node.published] == list(range(7))


def test_missed_slots_are_no_samples() -> None:
    """Suspended for five slots: they cost nothing, are reported, and the interval grows by each of them."""
    node, awake = Lone(), Lone()
    node.live([0])
    node.live([6])
    awake.live([0])
    for slot in range(1, 6):
        awake.seal(slot, None)
        awake.pass_deadline(slot)
    awake.live([6])
    assert sorted(node.disk.samples) == [0, 6]
    assert node.events == ["slots-missed"]
    assert "slots 1 to 5" in node.reports[0].text
    assert bits(node.published[-1].estimate) == bits(awake.published[-1].estimate)
    assert bits(node.published[-1].variance) == bits(awake.published[-1].variance)


def test_one_missed_slot_is_told_as_one() -> None:
    """ "Slots 1 to 1" makes one look for the other."""
    node = Lone()
    node.live([0])
    node.live([2])
    text = "slot 1 passed without being sealed in time; it is not sampled."
    assert [report.text for report in node.reports] == [text]


@pytest.mark.parametrize(
    ("happening", "reason"),
    [
        (on.ClockSet(0, 30 * 10**9), "passed when the clock was set ahead by 30.0 s"),
        (on.StoodStill(0), "ended while this node stood still"),
        (None, "ended while this node was not running"),
    ],
)
def test_missed_slots_are_put_down_to_what_happened(happening: on.Stimulus | None, reason: str) -> None:
    """An operator whose clock was set would look for a crash that never was."""
    node = Lone()
    node.live([0])
    if happening is None:
        node.restart(node.view.seals(5) + 1, vouched=True)
    else:
        node.give(happening)
    node.live([6])
    assert [one.text for one in node.reports if one.event == "slots-missed"] == [
        f"slots 1 to 5 {reason}; they are not sampled."
    ]
    node.live([8])
    assert node.reports[-1].text == "slot 7 passed without being sealed in time; it is not sampled.", "said once"


def test_a_first_start_late_in_the_network_misses_nothing() -> None:
    """A server that joins at slot 5,000 was never there before: nothing to catch up, nothing to report."""
    node = Lone()
    node.live([5000])
    assert node.events == []
    assert node.published[0].slot == 5000


def test_a_jump_ahead_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten years are not caught up slot by slot; and when the clock is put right again, no slot is drawn twice."""
    monkeypatch.setattr(server, "_MOST_PASSED", 50)
    node = Lone()
    node.live([0])
    far = 10 * 366 * 86_400
    node.live([far])
    assert sorted(node.disk.samples) == [0, far]
    assert np.isfinite(node.published[-1].estimate).all()
    node.live([1])
    assert node.events == ["slots-missed", "clock-behind"]
    assert sorted(node.disk.samples) == [0, far]


def test_a_late_timer_does_not_hold_the_next_slot_up() -> None:
    """The next seal ends the exchange whose deadline was never told, with all that was heard."""
    node = Lone()
    node.seal(0)
    node.hear(1, sample(1, 0))
    node.seal(1, late=3 * SECOND)
    assert [release.slot for release in node.published] == [0]
    assert node.machine.exchanging == 1
    node.pass_deadline(0)
    assert node.machine.exchanging == 1, "an old deadline does not end a new exchange"
    kinds = [type(told) for told in node.told]
    assert kinds.index(do.Publish) < kinds.index(do.StoreSample, 1)


def test_a_node_that_was_not_there_to_count_does_not_sample() -> None:
    """Counts that nobody collected are no zeros: sampling them would tell the network that the crowd went home."""
    node = Lone()
    node.live([0])
    node.seal(1, None)
    assert node.noise.drawn == [0]
    assert body_of(node.outbox[-1].payload).records == ()


# ------------------------------------------------------------------------------------------------------- raw counts


class Deaf:
    """Noise that does not look at the counts: whatever depends on them afterwards has gone around it."""

    private = False

    def noisy(self, slot, counts, charge, sensitivity, where, read=0):  # type: ignore[no-untyped-def]
        return np.where(where, 50.0 + slot, 0.0)


def test_nothing_that_leaves_the_machine_depends_on_raw_counts() -> None:
    """Two crowds, the same noisy values: every instruction must be the same to the last bit, failures included."""
    told = []
    for counts in (np.array([40, 17]), np.array([987_654_321_987, 0])):
        node = Lone(noise=Deaf())
        node.seal(0, counts)
        node.hear(1, sample(1, 0))
        node.hear(2, beat(2, 0))
        node.seal(0, counts)
        node.seal(1, counts)
        node.disk.full = True
        node.seal(2, counts)
        node.pass_deadline(2)
        node.disk.full = False
        node.give(on.StorageRecovered(0))
        node.seal(5, counts)
        told.append([repr(instruction) for instruction in node.told])
        for text in told[-1]:
            assert str(counts[0]) not in text or counts[0] < 100
    assert told[0] == told[1]


def _times(node: Lone, slot: int) -> tuple[int, int]:
    return node.view.clock.opens(slot), node.view.clock.closes(slot)


def test_a_slot_is_paid_from_the_account_that_comes_with_it() -> None:
    """Others may have spent from the same ledger, or the clock was set ahead: the one before would allow more."""
    node = Lone()
    asks = 500_000_000
    for slot, left in enumerate((4 * asks, asks, asks - 1, 0, asks + 1)):
        account = node.account()
        assert account is not None
        spent = 4 * asks - asks * len(node.disk.samples) - left
        others = Payment(account.count + 1, "others", "sample", slot, *_times(node, slot), spent)
        node.give(on.SlotSealed(node.view.seals(slot), slot, COUNTS, account.add(others) if spent else account))
        node.pass_deadline(slot)
    assert sorted(node.disk.samples) == [0, 1, 4]
    assert [nano for nano, _ in node.disk.samples.values()] == [asks] * 3


def test_after_time_was_lost_a_neighbour_has_to_vouch_again() -> None:
    """The process may be the snapshot of a machine that has lived on since, and has spent what this one still has."""
    node = Lone()
    node.live(range(2))
    node.give(on.TimeLost(node.view.clock.opens(5)))
    for slot in (5, 6):
        node.seal(slot)
        node.hear(1, beat(1, slot, echo=2, ago=slot - 1))
        node.pass_deadline(slot)
    assert sorted(node.disk.samples) == [0, 1, 6]


def test_only_messages_that_were_used_count_as_heard() -> None:
    """A neighbour whose messages are all refused must not look healthy."""
    node = Lone()
    node.seal(0)
    node.hear(1, beat(1, 0))
    node.hear(2, b"nonsense")
    node.pass_deadline(0)
    assert {name: slot for name, (slot, _) in node.machine.used.items()} == {"server-1": 0}
