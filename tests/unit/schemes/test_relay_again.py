"""A relay server whose horizon begins anew, or whose clock was ahead: its schedule is new, its filter goes on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.relay_state import RelayState
from dpcrowd.schemes.server import Server
from relay_support import Network, message_of
from schemes_support import account_for, bits

LENGTH, SAMPLES, LAG = 12, 4, 5
COUNTS = [300, 40]


def network() -> Network:
    return Network(
        shares=np.array([0.5, 0.4]),
        model=ProcessModel.of(1.0, [100.0, 25.0]),
        guarantee=Guarantee.finite(LENGTH, 4.0),
        samples=SAMPLES,
        phases=np.array([5, 0]),
        lag=LAG,
    )


def make(number: int = 0) -> Server:
    return network().server(number, account_for(network().guarantee))


def run_slots(server: Server, slots: range, sampling: bool = True) -> list[float]:
    """Let a server live through slots without neighbours; give what it has paid in each."""
    spent = []
    for slot in slots:
        server.observe(slot, COUNTS if sampling else None)
        spent.append(server.hear().epsilon)
    return spent


def begin_horizon(server: Server, first: int) -> None:
    assert server.account is not None
    own = server.account.own
    server.use(
        server.account.declare(
            own.nano, None, roaming=own.roaming, slot_ns=own.slot_ns, epoch_ns=own.epoch_ns, horizon_slot=first
        )
    )
    server.begin_horizon()


def test_a_new_horizon_has_its_own_samples_and_ends() -> None:
    """With the old schedule, which moves on while the account is empty, it would sample late, or never again."""
    server = make()
    assert np.count_nonzero(run_slots(server, range(LENGTH + 7))) == SAMPLES
    first = server.slot + 1
    begin_horizon(server, first)
    spent = run_slots(server, range(first, first + LENGTH + 4))
    assert np.count_nonzero(spent[:LENGTH]) == SAMPLES
    assert not any(spent[LENGTH:])


def test_the_filter_goes_on_in_a_new_horizon() -> None:
    """Records are paid for: to forget them would cost a horizon's first samples, at all servers at once."""
    server, other = make(), make()
    for one in (server, other):
        run_slots(one, range(LENGTH + 2))
    begin_horizon(server, server.slot + 1)
    for one in (server, other):
        one.observe(one.slot + 1, None)
    assert bits(server.hear().estimate) == bits(other.hear().estimate)


def test_a_neighbour_that_was_late_may_sample_early_in_the_new_horizon() -> None:
    """Its old records lie where an outage has moved them: with the new ones they would be too many for its account."""
    sender, receiver = make(1), make(0)
    for slot in range(LENGTH + 4):
        if slot == LENGTH:
            for one in (sender, receiver):
                begin_horizon(one, slot)
        message = sender.observe(slot, None if slot in (6, 7) else COUNTS)
        receiver.observe(slot, COUNTS)
        sender.hear()
        receiver.hear({} if message is None else {1: message})
    assert not receiver.mailbox.refused.any()
    assert receiver.mailbox.held[[11 % LAG, 12 % LAG], 1].all()


def test_a_clock_that_comes_back_keeps_the_estimate_and_counts_nothing_twice() -> None:
    """Records of the slots before may be in the estimate already; of the slots after, none is."""
    server = make()
    records = {(1, slot): np.array([120.0, 16.0]) for slot in (3, 12)}
    price = network().price
    server.observe(3, COUNTS)
    server.hear({1: message_of(records, [(1, 3)], price)})
    run_slots(server, range(500, 503), sampling=False)
    state = server._state
    assert isinstance(state, RelayState)
    estimate = state.mean[502 % LAG, 0].copy()
    assert server.account is not None
    server.use(account_for(network().guarantee))
    server.begin_again(11)
    assert server.slot == 11
    server.observe(12, None)
    release = server.hear({1: message_of(records, [(1, 3), (1, 12)], price)})
    assert server.mailbox.late == 1
    assert server.mailbox.held.sum() == 1
    assert np.isfinite(release.estimate).all()
    assert not np.array_equal(release.estimate, estimate), "the record of slot 12 counts"
    assert np.abs(release.estimate - estimate).max() < 100.0, "and the estimate was kept"


def test_slots_from_before_are_not_smoothed_any_more() -> None:
    """After the clock came back all slots in memory hold the latest estimate; stored as the past, it would be wrong."""
    server = make()
    run_slots(server, range(LENGTH + 2))
    assert server.smoothed().slots.tolist() == list(range(LENGTH + 2 - LAG, LENGTH + 2))
    server.begin_again(8)
    assert server.smoothed().slots.tolist() == []
    run_slots(server, range(9, 11))
    assert server.smoothed().slots.tolist() == [9, 10]
    assert np.isfinite(server.smoothed().estimate).all()


def test_it_survives_a_restart_after_both() -> None:
    """What is not in the saved state would begin the old horizon, or accept old records, again."""
    server = make()
    run_slots(server, range(LENGTH + 2))
    begin_horizon(server, server.slot + 1)
    server.begin_again(server.slot - 3)
    again = make()
    again.restore(server.save())
    assert again.save() == server.save()
    assert again.mailbox.since == server.slot + 1


def test_deviations_are_remembered_when_the_clock_comes_back() -> None:
    """The estimate is kept, so what its error has in common with the servers' deviations has to be kept, too."""
    facts = replace(network(), observation="binomial", turnover=0.1)
    server = facts.server(0, account_for(facts.guarantee))
    run_slots(server, range(LENGTH + 2))
    before = server._state
    assert isinstance(before, RelayState)
    assert before.cross is not None
    latest = before.cross[int(before.last) % LAG].copy()
    assert np.abs(latest).max() > 0.0
    server.begin_again(8)
    after = server._state
    assert isinstance(after, RelayState)
    assert after.cross is not None
    assert after.base_cross is not None
    assert all(bits(cross) == bits(latest) for cross in (*after.cross, after.base_cross))
