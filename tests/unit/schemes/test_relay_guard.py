"""Relay's guard, record by record: whom a server believes while it knows little, and whom it names later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.filters.course import Course
from dpcrowd.filters.learning import MODEL
from dpcrowd.filters.tails import Tails
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.server import Server
from relay_support import Network, message_of

CROWD = 1000.0


def make_network(*, guard: bool = True) -> Network:
    """Ten servers; number 0 only listens, since its turn comes last."""
    phases = np.arange(10, dtype=np.int64) * 4
    phases[0] = 39
    model, guarantee = ProcessModel.of(1.0, [25.0]), Guarantee.window(40, 40.0)
    return Network(np.full(10, 0.5), model, guarantee, samples=1, phases=phases, lag=8, guard=guard)


def hear(server: Server, network: Network, slot: int, *records: tuple[int, float]) -> float:
    """Records (origin, claimed crowd) of a slot; the estimate after it."""
    server.observe(slot, None)
    values = {(origin, slot): np.array([round(claim * 0.5)], dtype=np.float64) for origin, claim in records}
    messages = {1: message_of(values, list(values), network.price)} if values else None
    return float(server.hear(messages).estimate[0])


@pytest.mark.parametrize("wrong", [100 * CROWD, -CROWD, -100 * CROWD])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_of_two_the_impossible_or_larger_claim_is_doubted(wrong: float, together: bool, first: bool) -> None:
    """A prior that rests on one broken record must not hold its ground against every honest one after it."""
    network = make_network()
    server = network.server(0)
    claims = [(1, wrong), (2, CROWD)] if first else [(1, CROWD), (2, wrong)]
    if together:
        estimate = hear(server, network, 0, *claims)
    else:
        estimate = [hear(server, network, slot, claim) for slot, claim in enumerate(claims)][-1]
    assert estimate == pytest.approx(CROWD, rel=0.05)


def test_of_three_the_majority_is_believed() -> None:
    """A server that is stuck at 0 wins against one other, since it claims less, but not against two."""
    network = make_network()
    server = network.server(0)
    assert hear(server, network, 0, (1, 0.0)) == 0.0
    assert abs(hear(server, network, 1, (2, CROWD))) < 0.2 * CROWD
    assert hear(server, network, 2, (3, CROWD)) == pytest.approx(CROWD, rel=0.05)
    assert hear(server, network, 3, (4, 100 * CROWD)) == pytest.approx(CROWD, rel=0.05)


def test_a_crowd_that_really_moves_is_followed() -> None:
    """When most records agree that the prior is off, the prior is, and not all the servers."""
    network = make_network()
    server = network.server(0)
    hear(server, network, 0, *((origin, CROWD) for origin in range(1, 6)))
    everybody = [(origin, 20 * CROWD) for origin in range(1, 10)]
    assert hear(server, network, 40, *everybody) == pytest.approx(20 * CROWD, rel=0.05)


@pytest.mark.parametrize(("agreeing", "followed"), [(2, False), (3, True), (4, True)])
def test_three_records_of_one_slot_that_agree_are_believed(agreeing: int, followed: bool) -> None:
    """Where few servers sample in a slot, a burst that all of them reported was over before anybody believed it.

    Two may be broken.
    """
    network = make_network()
    server = network.server(0)
    for slot in range(0, 24, 4):
        hear(server, network, slot, (1 + slot // 4, CROWD))
    estimate = hear(server, network, 64, *((origin, 20 * CROWD) for origin in range(1, 1 + agreeing)))
    assert (estimate == pytest.approx(20 * CROWD, rel=0.05)) == followed
    assert followed or estimate == pytest.approx(CROWD, rel=0.2)


@pytest.mark.parametrize("learn", [False, True])
def test_a_burst_such_as_those_of_the_past_is_no_fault(learn: bool) -> None:
    """A single record of a burst counted thousands of times less, although the model said that there are bursts."""
    profile, estimates = np.array([[CROWD]]), []
    for bursts in (None, np.array([4e8])):  # 20,000 people now and then
        tails = Tails(np.array([0.2]), np.array([0.01]), bursts)
        course = Course(profile, np.full(profile.shape, 400.0), season=1, step=1, tails=tails)
        model = ProcessModel.around(course, 0.05)
        network = replace(make_network(), model=model, learn=learn, observation="binomial")
        server = network.server(0)
        for slot in range(0, 24, 4):
            hear(server, network, slot, (1 + slot // 4, CROWD))
        estimates.append(hear(server, network, 40, (1, 20 * CROWD)))
    doubted, believed = estimates
    assert doubted < 1.2 * CROWD
    assert believed > 3.0 * CROWD


def test_a_burst_that_all_records_show_is_followed_by_filters_that_learn() -> None:
    """The guard widened all beliefs alike: none explained the burst better, and the estimate stayed where it was."""
    profile = np.array([[80.0, 40.0]])
    tails = Tails(np.array([0.2, 0.2]), np.array([0.02, 0.02]))
    course = Course(profile, np.full(profile.shape, 400.0), season=1, step=1, tails=tails)
    model = ProcessModel.around(course, 0.05)
    network = replace(make_network(), model=model, learn=True, observation="binomial")
    server = network.server(0)
    crowds = [np.array([80.0, 40.0])] * 10 + [np.array([4800.0, 40.0])]
    for number, crowd in enumerate(crowds):
        slot = 40 * number
        server.observe(slot, None)
        values = {(origin, slot): np.rint(0.5 * crowd) for origin in range(1, 10)}
        release = server.hear({1: message_of(values, list(values), network.price)})
    assert release.estimate[0] == pytest.approx(4800.0, rel=0.1), "it was 222"
    assert np.sqrt(release.variance[0]) < 400.0
    burst, usual = np.exp(server._state.bank.weight[slot % 8, MODEL, 0])
    assert burst < 0.3 < usual, "the burst is evidence against the model, in its region alone"


def test_without_a_guard_a_broken_record_counts_as_any_other() -> None:
    """What the guard is for."""
    network = make_network(guard=False)
    server = network.server(0)
    assert hear(server, network, 0, (1, CROWD), (2, 100 * CROWD)) > 10 * CROWD
    assert server.suspects() == []


@pytest.mark.parametrize("after", [0.2, 5.0, 1000.0])
@pytest.mark.parametrize("at_once", [1, 9])
def test_whoever_reports_a_jump_first_is_not_suspected(after: float, at_once: int) -> None:
    """The first records after a jump disagree with all before them; their servers are honest, and stay so in public."""
    network = make_network()
    server = network.server(0)
    for number in range(0, 180, at_once):
        crowd = CROWD * (1.0 if number < 45 else after)
        records = [(1 + (number + other) % 9, crowd) for other in range(at_once)]
        estimate = hear(server, network, 4 * number // at_once, *records)
        assert server.suspects() == []
    assert estimate == pytest.approx(CROWD * after, rel=0.05)


@pytest.mark.slow
def test_broken_origins_are_named_when_their_slots_are_final_and_forgiven_slowly() -> None:
    """An operator has to know whose feed is broken; and a server that is repaired must count again some day."""
    network = make_network()
    server = network.server(0)
    everybody = range(1, 10)
    for slot in range(0, 200, 40):
        hear(server, network, slot, *((origin, CROWD * (100 if origin == 4 else 1)) for origin in everybody))
        assert server.suspects() == ([] if slot <= 40 else [4])  # one final record is not enough
    restored = network.server(0)
    restored.restore(server.save())
    assert restored.suspects() == [4]
    suspected = []
    for slot in range(200, 200 + 40 * 120, 40):
        hear(server, network, slot, *((origin, CROWD) for origin in everybody))
        suspected.append(server.suspects())
    assert suspected[5] == [4]
    assert suspected[-1] == []
