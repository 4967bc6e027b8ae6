"""Late join in the state machine: who asks, who answers, what is taken, and what is refused, in a ring of five."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.join import fits
from dpcrowd.node.wire import VERSION, Body, encode
from dpcrowd.schemes.relay_bounds import least_variance
from dpcrowd.schemes.server import saved_join
from dpcrowd.schemes.snapshot import from_bytes, to_bytes
from node_support import DIGEST, Disk, Network, Node, body_of, fake_sign
from node_support_relay import RING, counts_of, facts_of, make_network
from schemes_support import bits

SLOTS, LAG, AWAY = 40, 5, 2
FACTS = replace(facts_of(lag=LAG), observation="binomial")
COUNTS = counts_of(FACTS, SLOTS)
NEAR = (1, 3)


def run(network: Network, slots: range) -> None:
    for slot in slots:
        network.slot(slot, COUNTS[slot])


def come_back(network: Network, last: int, *, fresh: bool, near: tuple[int, ...] = NEAR) -> Node:
    """The server that was away starts after the exchange of a slot, and its links come up."""
    network.down.discard(AWAY)
    node = network.nodes[AWAY]
    node.published.clear()
    if fresh:
        node.disk = Disk()
    node.restart(node.view.ends(last) + 1, vouched=True)
    for other in near:
        link_up(network, other, node.view.ends(last) + 2)
    network.deliver()
    return node


def link_up(network: Network, other: int, at_ns: int) -> None:
    for me, you in ((other, AWAY), (AWAY, other)):
        node = network.nodes[me]
        node.give(on.NeighbourUp(at_ns, node.view.names[you]))


@cache
def _network_after(slots: int, away_since: int | None = None) -> Network:
    """A network after some slots, the same object for everybody who asks: see `network_after`."""
    if slots == 0:
        return make_network(FACTS)
    network = network_after(slots - 1, away_since)
    if away_since is not None and slots > away_since:
        network.down.add(AWAY)
    run(network, range(slots - 1, slots))
    return network


def network_after(slots: int, away_since: int | None = None) -> Network:
    """A network of one's own that has run for some slots, in which server 2 is away from one of them on.

    Most tests begin with the same slots: they are run once, and copied.
    """
    same = away_since is None or slots <= away_since
    return deepcopy(_network_after(slots, None if same else away_since))


def gone(*, since: int, until: int) -> Network:
    """A network whose server 2 is away in some slots."""
    return network_after(until, since)


def assert_one_estimate(network: Network, since: int, until: int, *, moved: bool = False) -> None:
    """All servers release the same bits.

    moved  the schedule of the server that was away has moved, and others may not wait for its records: where it has
           sampled, they may have its record one slot later than it has
    """
    sampled = {one.slot for one in network.nodes[AWAY].published if one.sampled}
    compared = [slot for slot in range(since, until) if not (moved and slot in sampled)]
    assert len(compared) > 2
    for slot in compared:
        released = [next(one for one in node.published if one.slot == slot) for node in network.nodes]
        assert len({bits(one.estimate) for one in released}) == 1, slot
        assert len({bits(one.variance) for one in released}) == 1, slot


def events(node: Node) -> list[str]:
    return [report.event for report in node.reports]


def joined_text(node: Node) -> str:
    (report,) = [report for report in node.reports if report.event == "joined"]
    return report.text


def answers_of(node: Node) -> list[do.Send]:
    return [one for one in node.told if isinstance(one, do.Send) and body_of(one.payload).state]


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("away", [LAG, LAG + 1, 3 * LAG])
def test_who_was_away_for_long_releases_what_the_others_do(fresh: bool, away: int) -> None:
    """Records that nobody keeps any more are in its estimates."""
    network = gone(since=9, until=9 + away)
    node = come_back(network, 8 + away, fresh=fresh)
    run(network, range(9 + away, 9 + away + 8))
    assert_one_estimate(network, 9 + away, 9 + away + 8, moved=not fresh)
    assert "joined" in events(node)
    joined = node.machine.server.joined
    assert joined is not None
    assert (joined.sources, joined.slot) == (("server-1", "server-3"), 8 + away)
    assert "it is the word of 2 neighbours, and the signed records" in joined_text(node)
    assert not any(one.refused for one in network.nodes)
    assert saved_join(node.machine.server.save()) == joined, "tools read it from the folder"
    node.restart(node.view.ends(16 + away) + 1)
    assert node.machine.server.joined == joined


@pytest.mark.parametrize("away", [1, LAG - 1])
def test_who_was_away_for_less_needs_nobodys_word(away: int) -> None:
    """All records since then can still be had: to ask would replace what it knows by what another says."""
    network = gone(since=9, until=9 + away)
    node = come_back(network, 8 + away, fresh=False)
    run(network, range(9 + away, 9 + away + 8))
    assert_one_estimate(network, 9 + away, 9 + away + 8, moved=True)
    assert node.machine.server.joined is None
    assert not any(answers_of(one) for one in network.nodes)


def test_nobody_asks_when_a_network_begins() -> None:
    """All begin with nothing, and have missed nothing."""
    network = make_network(FACTS)
    for node in network.nodes:
        node.give(on.Started(node.view.seals(0) - 1))
    for other in NEAR:
        link_up(network, other, network.nodes[0].view.seals(0) - 1)
    run(network, range(8))
    assert not any(isinstance(one, do.Send) and one.kind == "join" for node in network.nodes for one in node.told)


def start_late(first: int, *, without: int | None = None) -> Network:
    """All nodes start long after the epoch, but one, if it is named."""
    network = make_network(FACTS)
    there = [number for number in range(5) if number != without]
    if without is not None:
        network.down.add(without)
    for number in there:
        network.nodes[number].give(on.Started(network.nodes[number].view.ends(first - 1) + 1))
    for number in there:
        for other in RING[number] & set(there):
            node = network.nodes[number]
            node.give(on.NeighbourUp(node.view.ends(first - 1) + 2, f"server-{other}"))
    network.deliver()
    return network


def requests_of(network: Network) -> list[int]:
    """Slots after which anybody has asked."""
    sent = [one for node in network.nodes for one in node.told if isinstance(one, do.Send) and one.kind == "join"]
    return [body.slot for one in sent if (body := body_of(one.payload)).asks]


@pytest.mark.slow
def test_a_network_that_begins_late_has_nobody_to_ask() -> None:
    """All nodes start long after the epoch: they soon know that nobody has a state, and all begin from nothing.

    A state that somebody far away has would take as many slots as there are links to it.
    """
    first = 15
    network = start_late(first)
    run(network, range(first, SLOTS))
    assert_one_estimate(network, first, SLOTS)
    assert not any(answers_of(node) for node in network.nodes)
    assert all(events(node).count("join-first") == 1 for node in network.nodes)
    assert not any("join-none" in events(node) for node in network.nodes), "nobody has lost anything"
    assert set(requests_of(network)) == set(range(first - 1, first + 4))


def test_who_joins_a_network_that_has_begun_late_is_answered() -> None:
    """While all servers asked each other, nobody answered, and a joiner was left with what it knew for long."""
    first = 12
    network = start_late(first, without=AWAY)
    run(network, range(first, first + 9))
    node = come_back(network, first + 8, fresh=True)
    run(network, range(first + 9, first + 16))
    assert node.machine.server.joined is not None
    assert node.machine.server.joined.slot == first + 8
    assert_one_estimate(network, first + 9, first + 16, moved=True)


@pytest.mark.slow
def test_a_state_travels_through_servers_that_ask_themselves() -> None:
    """Four of five have lost everything: the farthest is two links away from the one that knows, and gets its state."""
    network = network_after(14)
    for number in (0, 1, 2, 3):
        node = network.nodes[number]
        node.disk = Disk()
        node.published.clear()
        node.restart(node.view.ends(13) + 1, vouched=True)
    for number in range(5):
        for other in RING[number]:
            node = network.nodes[number]
            node.give(on.NeighbourUp(node.view.ends(13) + 2, f"server-{other}"))
    network.deliver()
    run(network, range(14, 26))
    assert all(network.nodes[number].machine.server.joined is not None for number in range(4))
    assert_one_estimate(network, 19, 26)


@pytest.mark.slow
def test_whose_link_comes_up_inside_an_exchange_is_answered_after_it() -> None:
    """Records of the slot in exchange have opened a new slot: a state of the one before would lack some of them."""
    network = gone(since=9, until=20)
    network.down.discard(AWAY)
    node, slot = network.nodes[AWAY], 20
    node.disk = Disk()
    node.published.clear()
    for other in (0, 1, 3, 4):
        one = network.nodes[other]
        one.give(on.SlotSealed(one.view.seals(slot), slot, COUNTS[slot, other]))
    node.restart(node.view.seals(slot) + 1, vouched=True)
    for other in NEAR:
        link_up(network, other, node.view.seals(slot) + 2)
    assert not any(answers_of(one) for one in network.nodes)
    network.deliver()
    for other in (0, 1, 3, 4):
        one = network.nodes[other]
        one.give(on.DeadlinePassed(one.view.ends(slot), slot))
    network.deliver()
    run(network, range(slot + 1, slot + 8))
    assert_one_estimate(network, slot + 1, slot + 8)


@pytest.mark.slow
def test_nothing_is_asked_or_answered_while_a_slot_is_counted() -> None:
    """Between the seal and the own message, the moment at which anything is sent tells how long counting took."""
    network = make_network(FACTS, send_offset_ns=40)
    run(network, range(9))
    network.down.add(AWAY)
    run(network, range(9, 20))
    network.down.clear()
    node, other, slot = network.nodes[AWAY], network.nodes[1], 20
    node.disk = Disk()
    node.restart(node.view.ends(19) + 1, vouched=True)
    for one in (node, other):
        one.told.clear()
        one.give(on.SlotSealed(one.view.seals(slot), slot, COUNTS[slot, one.view.me]))
    node.give(on.NeighbourUp(node.view.seals(slot) + 1, "server-1"))
    payload = encode(Body(VERSION, DIGEST, AWAY, slot - 1, 3, 0, heard={}, asks=True), fake_sign(AWAY))
    other.give(on.MessageArrived(other.view.seals(slot) + 1, "server-2", payload))
    assert not [one for each in (node, other) for one in each.outbox]
    for one in (node, other):
        one.leave()
        one.give(on.DeadlinePassed(one.view.ends(slot), slot))
    assert [body_of(one.payload).asks for one in node.outbox if one.kind == "join"] == [True]
    assert len(answers_of(other)) == 1


def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    """One slot later it has the others' estimate: back within two slots."""
    network = gone(since=9, until=20)
    network.drop = lambda sender, receiver, payload: bool(body_of(payload).state)
    node = come_back(network, 19, fresh=True)
    run(network, range(20, 21))
    assert node.machine.server.joined is None
    network.drop = lambda sender, receiver, payload: False
    run(network, range(21, 28))
    assert_one_estimate(network, 22, 28)
    assert node.machine.server.joined is not None


def test_a_process_that_stood_still_for_long_joins_while_it_runs() -> None:
    """A machine that slept has lost as much as one that was off."""
    network = gone(since=9, until=20)
    network.down.discard(AWAY)
    node = network.nodes[AWAY]
    for other in NEAR:
        link_up(network, other, node.view.ends(19) + 2)
    network.deliver()
    run(network, range(20, 28))
    assert node.machine.server.joined is not None
    assert_one_estimate(network, 21, 28, moved=True)


@pytest.mark.slow
def test_a_server_that_was_cut_off_for_long_joins_when_a_link_is_back() -> None:
    """It has run all the time, but has none of the others' records, and nobody keeps them any more."""
    network = network_after(9)
    network.drop = lambda sender, receiver, payload: AWAY in (sender, receiver)
    run(network, range(9, 20))
    node = network.nodes[AWAY]
    assert len({bits(one.published[-1].estimate) for one in network.nodes}) == 2
    network.drop = lambda sender, receiver, payload: False
    for other in NEAR:
        link_up(network, other, node.view.ends(19) + 2)
    network.deliver()
    run(network, range(20, 30))
    assert node.machine.server.joined is not None
    assert_one_estimate(network, 21, 30)


def lie(network: Network, liar: int, change: Any, *names: str) -> None:
    """One neighbour sends another state than the one it has; another estimate, and the level that follows from it."""
    server = network.nodes[liar].machine.server
    honest = server.finalised_state

    def changed() -> bytes:
        arrays = from_bytes(honest())
        for name in names or ("base", "level"):
            arrays[name] = np.asarray(change(arrays[name]), dtype=arrays[name].dtype)
        return to_bytes(arrays)

    server.finalised_state = changed  # type: ignore[method-assign]


def test_of_two_neighbours_that_disagree_none_is_taken() -> None:
    """One of them lies, or is broken: both are named, and the node begins from nothing."""
    network = gone(since=9, until=20)
    lie(network, 3, lambda base: base + 1e4)
    node = come_back(network, 19, fresh=True)
    run(network, range(20, 28))
    report = next(one for one in node.reports if one.event == "join-disagreement")
    assert report.grave
    assert "server-1" in report.text
    assert "server-3" in report.text
    assert node.machine.server.joined is None
    assert node.machine.contradicting == ("server-1", "server-3")
    mine, theirs = node.published[-1], network.nodes[0].published[-1]
    assert np.allclose(mine.estimate, theirs.estimate, rtol=0.2), "the records of the last slots are its own"


def disagreements(node: Node) -> list[str]:
    return [one.text for one in node.reports if one.event == "join-disagreement"]


def test_who_has_taken_no_state_asks_again_after_the_lag() -> None:
    """The one that was broken may have been repaired; a node must not go without for ever."""
    network = gone(since=9, until=20)
    honest = network.nodes[3].machine.server.finalised_state
    lie(network, 3, lambda base: base * 1.5)
    node = come_back(network, 19, fresh=True)
    run(network, range(20, 22))
    assert len(disagreements(node)) == 1
    assert "asks again after slot 24" in disagreements(node)[0]
    network.nodes[3].machine.server.finalised_state = honest  # type: ignore[method-assign]
    run(network, range(22, 30))
    joined = node.machine.server.joined
    assert joined is not None
    assert (joined.sources, joined.slot) == (("server-1", "server-3"), 24)
    assert node.machine.contradicting == ()
    assert_one_estimate(network, 25, 30)


@pytest.mark.slow
def test_states_that_contradict_each_other_are_asked_for_a_few_times() -> None:
    """A node that asked for ever would never answer anybody, and a liar would have it ask in every slot."""
    network = gone(since=9, until=15)
    lie(network, 3, lambda base: base * 1.5)
    node = come_back(network, 14, fresh=True)
    run(network, range(15, SLOTS))
    assert len(disagreements(node)) == 4
    assert "does not ask again" in disagreements(node)[-1]
    asked = [body_of(one.payload).slot for one in node.told if isinstance(one, do.Send) and one.kind == "join"]
    assert sorted(set(asked)) == [14, 19, 24, 29]
    assert node.machine.server.joined is None


def test_neighbours_that_differ_within_their_intervals_agree() -> None:
    """One that began from nothing a while ago is honest. Who claims less is taken: certainty must be no advantage."""
    network = gone(since=9, until=20)
    lie(network, 1, lambda var: var * 1.5, "base_var")
    node = come_back(network, 19, fresh=True)
    run(network, range(20, 24))
    assert node.machine.server.joined is not None
    assert node.machine.server.joined.sources == ("server-1",)
    assert "join-disagreement" not in events(node)
    assert "it is the word of one neighbour, and the signed records" in joined_text(node)


@pytest.mark.parametrize(
    ("factor", "silenced"), [(1.1, ()), (3.0, ()), *((factor, (0, 2, 3, 4)) for factor in (0.5, 1.1, 3.0))]
)
def test_a_wrong_state_is_overruled_by_the_records_after_it(factor: float, silenced: tuple[int, ...]) -> None:
    """The only neighbour says what is wrong by a factor, as certainly as it may, and that the others are broken.

    From the first slot on the estimate is within a tenth of the truth: the guard takes the word of the records of the
    last L slots, which others have signed, against it. A lie within the noise is not seen, and fades.
    """
    network = gone(since=9, until=20)
    server = network.nodes[1].machine.server
    arrays = from_bytes(server.finalised_state())
    score = np.array([100.0 if number in silenced else 1.0 for number in range(5)])
    lies = {
        "base": arrays["base"] * factor,
        "level": arrays["level"] * factor,
        "base_var": least_variance(server.setting, FACTS.samples, None) / 3.9,
        "base_recent": np.zeros_like(arrays["base_recent"]),
        "score": score,
        "penalty": np.tile(np.where(score > 1.0, score**2, 1.0), (LAG, 1)),
        "suspicious": np.full(LAG, bool(silenced)),
    }
    server.finalised_state = lambda: to_bytes(arrays | lies)  # type: ignore[method-assign]
    node = come_back(network, 19, fresh=True, near=(1,))
    run(network, range(20, 32))
    assert node.machine.server.joined is not None
    assert node.machine.server.joined.sources == ("server-1",)
    for slot in range(20, 32):
        mine, others = (next(one for one in each.published if one.slot == slot) for each in (node, network.nodes[0]))
        assert np.abs(mine.estimate / others.estimate - 1.0).max() < 0.1, slot


@pytest.mark.slow
def test_a_state_that_claims_too_much_certainty_is_refused_by_its_sender() -> None:
    """It would outweigh records that are right; the other neighbour's is taken."""
    network = gone(since=9, until=20)
    lie(network, 3, lambda var: var * 1e-6, "base_var")
    node = come_back(network, 19, fresh=True)
    run(network, range(20, 24))
    assert [(one.sender, one.reason) for one in node.refused] == [("server-3", "absurd")]
    assert "server-3 sent a finalised state that is too certain" in node.refused[0].text
    assert node.machine.server.joined is not None
    assert node.machine.server.joined.sources == ("server-1",)


def test_who_has_refused_all_neighbours_does_not_ask_for_ever() -> None:
    """It would answer nobody who joins later."""
    network = gone(since=9, until=13)
    for liar in NEAR:
        lie(network, liar, lambda var: -var, "base_var")
    network.nodes[AWAY].reports.clear()
    node = come_back(network, 12, fresh=True)
    run(network, range(13, 27))
    assert {one.sender for one in node.refused} == {"server-1", "server-3"}
    assert "join-first" not in events(node), "the network has a past"
    assert events(node).count("join-none") == 1


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("base", lambda base: base * np.nan),
        ("base_var", lambda var: -var),
        ("base", lambda base: base[:1]),
        ("slot", lambda slot: slot + 1),  # a slot that the node would have to observe twice
        ("since", lambda since: since + 18),  # accounts that begin too late: no record could contradict the state
        ("level", lambda level: level * 9),  # people who are not there: likewise
    ],
)
def test_an_impossible_state_is_refused_and_its_sender_named(name: str, change: Any) -> None:
    """Otherwise one neighbour could end a joining node, or keep records from correcting it; the other's is taken."""
    network = gone(since=9, until=20)
    lie(network, 3, change, name)
    node = come_back(network, 19, fresh=True)
    run(network, range(20, 24))
    assert [(one.sender, one.reason) for one in node.refused] == [("server-3", "absurd")]
    assert node.machine.server.joined is not None
    assert node.machine.server.joined.sources == ("server-1",)
    assert_one_estimate(network, 20, 24)


def test_a_state_of_more_people_than_there_are_is_refused() -> None:
    """It would be in every estimate until records have outweighed it."""
    network = gone(since=9, until=20)
    lie(network, 1, lambda base: base + 1e6)
    node = network.nodes[AWAY]
    node.view = replace(node.view, population=10_000)
    node = come_back(network, 19, fresh=True, near=(1,))
    run(network, range(20, 22))
    assert [(one.sender, one.reason) for one in node.refused] == [("server-1", "absurd")]
    assert node.machine.server.joined is None


@pytest.mark.slow
def test_a_state_that_nobody_asked_for_is_not_used() -> None:
    """A neighbour must not be able to replace what a node knows."""
    network = network_after(20)
    node, state = network.nodes[AWAY], network.nodes[1].machine.server.finalised_state()
    payload = encode(Body(VERSION, DIGEST, 1, 19, 3, 0, heard={}, state=state), fake_sign(1))
    node.give(on.MessageArrived(node.view.ends(19) + 1, "server-1", payload))
    run(network, range(20, 24))
    assert node.machine.server.joined is None
    assert_one_estimate(network, 20, 24)


@pytest.mark.slow
def test_who_asks_often_is_answered_a_few_times() -> None:
    """An answer is long: what one neighbour can make a node send is bounded."""
    network = network_after(10)
    node = network.nodes[1]
    for slot in range(10, 30):
        payload = encode(Body(VERSION, DIGEST, AWAY, slot - 1, 3, 0, heard={}, asks=True), fake_sign(AWAY))
        for moment in range(3):
            node.give(on.MessageArrived(node.view.ends(slot - 1) + 1 + moment, "server-2", payload))
        run(network, range(slot, slot + 1))
    slots = [body_of(one.payload).slot for one in answers_of(node)]
    assert len(slots) == len(set(slots))
    for slot in range(10, 30):
        assert sum(slot - LAG < one <= slot for one in slots) <= 4


def test_a_state_that_does_not_fit_is_not_sent_and_not_asked_for() -> None:
    """A long message would be refused by its size: the node begins from nothing, and says so."""
    network = gone(since=9, until=20)
    node = network.nodes[AWAY]
    size = type(node.view).most_bytes
    try:
        type(node.view).most_bytes = property(lambda view: 1500)  # type: ignore[assignment,method-assign]
        come_back(network, 19, fresh=True)
        run(network, range(20, 22))
    finally:
        type(node.view).most_bytes = size  # type: ignore[method-assign]
    assert "join-none" in events(node)
    assert not any(answers_of(one) for one in network.nodes)


@pytest.mark.parametrize(
    ("form", "regions", "expected"), [("diagonal", 1000, True), ("matrix", 64, True), ("matrix", 100, False)]
)
def test_which_states_fit_into_a_message(form: Any, regions: int, expected: bool) -> None:
    """A thousand regions with the default lag must be able to join; full matrices only as far as they fit."""
    facts = replace(facts_of(lag=16, regions=regions), form=form, observation="binomial")
    node = make_network(facts).nodes[0]
    assert fits(node.machine.server, node.view) == expected


@pytest.mark.slow
def test_own_records_of_an_earlier_run_are_not_sent_as_its_own() -> None:
    """Its folder is new: it has paid for none of them, and only its filter uses them."""
    network = network_after(20)
    network.nodes[AWAY].told.clear()
    node = come_back(network, 19, fresh=True)
    run(network, range(20, 28))
    assert_one_estimate(network, 20, 28)
    sent = [record for one in node.told if isinstance(one, do.Send) for record in body_of(one.payload).relayed]
    assert {record.slot for record in sent if record.origin == AWAY} <= set(node.disk.samples)
