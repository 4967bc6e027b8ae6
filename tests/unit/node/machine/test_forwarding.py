"""Which records are passed on, to whom, and when, in a ring of five machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.held_records import Key
from dpcrowd.node.wire import Body
from node_support import Network, Node, body_of
from node_support_records import COUNTS, FACTS, SLOTS, forward_of, records_of, run, signed
from node_support_relay import facts_of, make_network


def sent_by(network: Network) -> list[tuple[int, str, Body]]:
    """Everything that was sent: sender, receiver, content."""
    letters: list[tuple[int, str, Body]] = []

    def look(sender: int, receiver: int, payload: bytes) -> bool:
        letters.append((sender, network.nodes[receiver].view.names[receiver], body_of(payload)))
        return False

    network.drop = look
    return letters


@pytest.mark.parametrize("reach", [1, 2, "all"])
def test_a_record_goes_once_to_each_neighbour_and_never_back(reach: Any) -> None:
    """Without this, a ring of five would send each record for ever."""
    network = make_network(facts_of(reach=reach))
    letters = sent_by(network)
    run(network, range(SLOTS))
    seen = set()
    for sender, receiver, body in letters:
        for record in body.relayed:
            key = sender, receiver, record.origin, record.slot
            assert key not in seen, "sent twice"
            seen.add(key)
            assert network.nodes[record.origin].view.names[record.origin] != receiver, "sent to its origin"
            assert 1 <= record.hops <= (4 if reach == "all" else reach)
    forwards = [body for _, _, body in letters if body.round > 1]
    assert bool(forwards) == (reach != 1)
    farthest = max(record.hops for _, _, body in letters for record in body.relayed)
    assert farthest == reach or (reach == "all" and farthest >= 2), "a ring of five is two links wide"


def test_kinds_of_messages_are_told_apart() -> None:
    """Heartbeats are counted separately from data: who compares schemes by their messages needs both."""
    network = make_network(FACTS)
    run(network, range(SLOTS))
    for node in network.nodes:
        sends = [one for one in node.told if isinstance(one, do.Send)]
        for one in sends:
            body = body_of(one.payload)
            own = [record for record in body.relayed if record.slot == body.slot and record.origin == node.view.me]
            expected = "forward" if body.round > 1 else "data" if own else "heartbeat"
            assert one.kind == expected
        assert {one.kind for one in sends} == {"heartbeat", "data", "forward"}


def test_nothing_is_forwarded_before_the_own_message() -> None:
    """Between the seal and the own message a node counts, which takes the longer the more there is to count."""
    network = make_network(FACTS, send_offset_ns=40)
    run(network, range(6))
    node = network.nodes[1]
    seal = node.view.seals(6)
    told = len(node.told)
    node.give(on.SlotSealed(seal, 6, COUNTS[6, 1]))
    record = signed(0, 6)
    node.give(on.MessageArrived(seal + 5, "server-0", forward_of(0, 6, [record])))
    new = node.told[told:]
    assert not [one for one in new if isinstance(one, do.ScheduleForward)]
    assert not node.outbox
    node.leave(seal + 40)
    forwards = [one for one in node.outbox if one.kind == "forward"]
    assert [one.to for one in forwards] == [("server-2",)]
    node.give(on.DeadlinePassed(node.view.ends(6), 6))
    assert isinstance(node.told[-1], do.ForgetCheckIns), (
        "forgetting takes time, too, and waits until nothing is passed on"
    )


def after_a_late_record() -> tuple[Network, Node]:
    """A network whose server-4 is silent, and server-1 after the deadline of slot 5, with a record of server-4."""
    network = make_network(FACTS)
    network.down.add(4)
    run(network, range(6))
    node = network.nodes[1]
    node.give(on.MessageArrived(node.view.ends(5) + 1, "server-0", forward_of(0, 5, [signed(4, 5)])))
    return network, node


def test_what_comes_after_the_deadline_goes_with_the_next_slot() -> None:
    """Otherwise the moment of a message would tell how long check-ins took to be forgotten."""
    network, node = after_a_late_record()
    assert node.forward_at is None
    assert Key(5, "server-4") in records_of(node).held.records
    network.slot(6, COUNTS[6])
    assert any(
        (record.origin, record.slot) == (4, 5)
        for one in node.told
        if isinstance(one, do.Send) and one.slot == 6
        for record in body_of(one.payload).relayed
    )


def test_what_was_dropped_with_an_unpaid_sample_is_sent_after_all() -> None:
    """The disk fails at the payment, and all instructions after it are dropped, those that pass records on as well."""
    network, node = after_a_late_record()
    slot = next(slot for slot in range(6, 9) if FACTS.due(slot, 1))
    run(network, range(6, slot))
    node.machine.records.forwarding.doubt_sent()  # type: ignore[union-attr]
    node.disk.full = True
    told = len(node.told)
    node.give(on.SlotSealed(node.view.seals(slot), slot, COUNTS[slot, 1]))
    assert slot not in node.disk.samples
    sent = [body_of(one.payload) for one in node.told[told:] if isinstance(one, do.Send)]
    assert (4, 5) in {(record.origin, record.slot) for body in sent for record in body.relayed}
    assert not [record for body in sent for record in body.relayed if (record.origin, record.slot) == (1, slot)]


def test_a_revision_without_a_server_passes_none_of_its_records_on() -> None:
    """A record that had come after the deadline would be missing when the next slot is passed on, and end the node."""
    _, node = after_a_late_record()
    records, terms = records_of(node), node.view.records
    assert terms is not None
    assert records.forwarding.has_outgoing(["server-2"])
    terms = replace(terms, offsets=terms.offsets[:4])
    view = replace(node.view, names=node.view.names[:4], revision=2, first_slot=6, records=terms)
    records.take_over(view, node.machine.server)
    assert not records.forwarding.has_outgoing(["server-2"])
    assert records.forwarding.outgoing(["server-2"], to_all=True) == []


def test_who_was_away_sends_nothing_that_is_final() -> None:
    """After a crash it holds records of before: sent again, they would count as late at its neighbours."""
    network = make_network(FACTS)
    run(network, range(9))
    network.down.add(2)
    away = FACTS.lag - 2
    run(network, range(9, 9 + away))
    network.down.clear()
    letters = sent_by(network)
    node, at_ns = network.nodes[2], network.nodes[2].view.ends(8 + away) + 1
    assert any(key.slot <= 8 + away - FACTS.lag for key in records_of(node).held.records), "or nothing is shown"
    node.restart(at_ns, vouched=True)
    for number in (1, 3):
        node.give(on.NeighbourUp(at_ns + 1, f"server-{number}"))
    network.deliver()
    slots = {record.slot for _, _, body in letters for record in body.relayed}
    assert slots
    assert min(slots) > 8 + away - FACTS.lag
