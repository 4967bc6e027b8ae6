"""Records in the state machine: what is passed on, waited for, kept, refused and shown, in a ring of five machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.records import MOST_USELESS, Key, Records
from dpcrowd.node.machine.schedules import Schedules
from dpcrowd.node.wire import VERSION, Body, encode
from dpcrowd.node.wire_records import Equivocation, SignedRecord, pack, sign_record, unpack_proof, unpack_record
from dpcrowd.schemes.base import Release
from node_support import DIGEST, Network, Node, body_of, fake_sign
from node_support_relay import RING, counts_of, facts_of, make_network, simulate, terms_of
from schemes_support import bits

SLOTS = 24
FACTS = facts_of()
COUNTS = counts_of(FACTS, SLOTS)


def assert_released(network: Network, batch: list[Release], since: int = 0) -> None:
    for node in network.nodes:
        released = {release.slot: release for release in node.published}
        for theirs in batch[since:]:
            mine, number = released[theirs.slot], node.view.me
            assert bits(mine.estimate) == bits(theirs.estimate[number]), (mine.slot, number)
            assert bits(mine.variance) == bits(theirs.variance[number]), (mine.slot, number)
            assert mine.nano == int(theirs.charge[number].max())


def run(network: Network, slots: range, counts: Any = COUNTS) -> None:
    for slot in slots:
        network.slot(slot, counts[slot])


def records_of(node: Node) -> Records:
    assert node.machine.records is not None
    return node.machine.records


# ------------------------------------------------------------------------------------------------ the same estimates


@pytest.mark.parametrize("send_offset_ns", [0, 40])
@pytest.mark.parametrize("reach", [1, 2, "all"])
def test_a_ring_releases_what_the_simulator_computes(reach: object, send_offset_ns: int) -> None:
    """If this broke, no simulated figure would say anything about a network that runs."""
    facts = facts_of(reach=reach)
    network = make_network(facts, RING, send_offset_ns=send_offset_ns)
    run(network, range(SLOTS))
    assert_released(network, simulate(facts, COUNTS))
    assert not any(node.refused for node in network.nodes)


def test_servers_that_join_regions_release_what_the_simulator_computes() -> None:
    """Groups that were not signed, stored, read or passed on would give every server other sums; some are restarted."""
    facts, counts = facts_of(regions=6, groups="auto"), np.zeros((SLOTS, 5, 6), dtype=np.int64)
    facts = replace(facts, model=ProcessModel.of(1.0, np.full(6, 1.0)))
    network = make_network(facts)
    plain = network.deliver

    def restart_one_first() -> None:
        node = network.nodes[network.nodes[0].machine.server.slot % 5]
        if node.machine.server.open_sample() is not None:
            node.restart(node.view.seals(node.machine.server.slot) + 1, vouched=True)
            for near in RING[node.view.me]:
                link_up(network, near, node.view.me, node.view.seals(node.machine.server.slot) + 2)
        plain()

    network.deliver = restart_one_first  # type: ignore[method-assign]
    run(network, range(SLOTS), counts)
    assert_released(network, simulate(facts, counts))
    stored = [unpack_record(one.content) for one in records_of(network.nodes[2]).contents()]
    assert any(record.groups is not None for record in stored), "no record joins regions: the test shows nothing"


def test_a_network_without_groups_refuses_records_of_groups() -> None:
    """An origin that joined regions where nobody expects it would be summed up by some servers and not by others."""
    _, node = listening(4)
    record = sign_record(
        np.array([7.0, 0.0, 5.0]),
        digest=DIGEST,
        origin=4,
        slot=8,
        nano=FACTS.price,
        sign=fake_sign(4),
        groups=np.array([0, 0, 2]),
    )
    tell(node, [msgspec.structs.replace(record, hops=1)])
    assert any(reason == "grouped" for _, reason in records_of(node).refused)


def test_roaming_users_are_sampled_in_lockstep() -> None:
    """All servers sample in the same slots, and all wait for all."""
    facts = facts_of(roaming=True)
    network = make_network(facts)
    run(network, range(SLOTS))
    assert_released(network, simulate(facts, COUNTS))
    sampled = {tuple(release.slot for release in node.published if release.sampled) for node in network.nodes}
    assert len(sampled) == 1


def test_a_server_that_is_killed_and_comes_back_changes_no_bit() -> None:
    """It comes back inside the slot with the record that it has signed, and with those that it had stored."""
    network = make_network(FACTS)
    plain, rng, restarts = network.deliver, np.random.default_rng(1), 0

    def restart_some_first() -> None:
        nonlocal restarts
        for node in network.nodes:
            if node.machine.server.open_sample() is not None and rng.random() < 0.5:
                slot = node.machine.server.slot
                own = records_of(node).own(slot)
                node.restart(node.view.seals(slot) + 1, vouched=True)
                assert records_of(node).own(slot) == own, "it has signed it, and must not sign another"
                assert {(one.slot, one.origin) for one in records_of(node).contents()} == set(node.disk.records)
                for near in RING[node.view.me]:
                    link_up(network, near, node.view.me, node.view.seals(slot) + 2)
                restarts += 1
        plain()

    network.deliver = restart_some_first  # type: ignore[method-assign]
    run(network, range(SLOTS))
    assert restarts > 10
    assert_released(network, simulate(FACTS, COUNTS))


def test_a_server_that_was_away_gets_what_it_has_missed() -> None:
    """Away for some slots, fewer than the lag: when its links come up it has all records, and releases what all do."""
    network = make_network(FACTS)
    run(network, range(9))
    network.down.add(2)
    run(network, range(9, 12))
    network.down.clear()
    away = network.nodes[2]
    away.restart(away.view.seals(11) + 1, vouched=True)
    for near in (1, 3):
        link_up(network, near, 2, away.view.ends(11) + 1)
    network.deliver()
    run(network, range(12, SLOTS))
    last = [node.published[-1] for node in network.nodes]
    assert len({bits(release.estimate) for release in last}) == 1
    assert len({bits(release.variance) for release in last}) == 1
    first = {node.published[-12].slot: bits(node.published[-12].estimate) for node in network.nodes}
    assert len(first) == 1, "in the first slot after its return it has everything"


def link_up(network: Network, one: int, other: int, at_ns: int) -> None:
    """The link between two servers comes up."""
    for me, you in ((one, other), (other, one)):
        node = network.nodes[me]
        node.give(on.NeighbourUp(at_ns, node.view.names[you]))


def test_records_that_are_lost_on_a_link_come_another_way() -> None:
    """A ring has two ways: one broken link must not cost a record, and everybody waits for it only once."""
    network = make_network(FACTS)
    network.drop = lambda sender, receiver, payload: {sender, receiver} == {0, 1}
    run(network, range(SLOTS))
    assert_released(network, simulate(FACTS, COUNTS))


@pytest.mark.parametrize("seed", range(4))
def test_order_and_repetition_change_nothing(seed: int) -> None:
    """Messages come in any order, some of them twice: the estimates are those of the same records."""
    rng, network = np.random.default_rng(seed), make_network(FACTS)
    hand_over = network._hand_over

    def twice(sender: Node, name: str, message: do.Send) -> None:
        hand_over(sender, name, message)
        if rng.random() < 0.4:
            hand_over(sender, name, message)

    def shuffled() -> None:
        while any(node.outbox or node.forward_at is not None for node in network.nodes):
            letters = []
            for node in network.nodes:
                node.forward()
                letters += [(node, name, message) for message in node.outbox for name in message.to]
                node.outbox.clear()
            for place in rng.permutation(len(letters)):
                twice(*letters[place])

    network.deliver = shuffled  # type: ignore[method-assign]
    run(network, range(SLOTS))
    assert_released(network, simulate(FACTS, COUNTS))


# --------------------------------------------------------------------------------------------------------- forwarding


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


def test_what_comes_after_the_deadline_goes_with_the_next_slot() -> None:
    """Otherwise the moment of a message would tell how long check-ins took to be forgotten."""
    network = make_network(FACTS)
    network.down.add(4)
    run(network, range(6))
    node = network.nodes[1]
    node.give(on.MessageArrived(node.view.ends(5) + 1, "server-0", forward_of(0, 5, [signed(4, 5)])))
    assert node.forward_at is None
    assert Key(5, "server-4") in records_of(node)._held
    network.slot(6, COUNTS[6])
    assert any(
        (record.origin, record.slot) == (4, 5)
        for one in node.told
        if isinstance(one, do.Send) and one.slot == 6
        for record in body_of(one.payload).relayed
    )


# -------------------------------------------------------------------------------------------------- who is waited for


def test_a_slot_is_released_when_all_records_are_there() -> None:
    """A node that waited for the deadline in every slot would be late for no reason; one that did not wait, wrong."""
    network = make_network(FACTS)
    run(network, range(6))
    for node in network.nodes:
        node.give(on.SlotSealed(node.view.seals(6), 6, COUNTS[6, node.view.me]))
    node = network.nodes[0]
    due = {origin for origin in range(5) if FACTS.due(6, origin)}
    assert due - {0, 1, 4}, "somebody samples who is not a neighbour"
    for near in (1, 4):
        (message,) = [one for one in network.nodes[near].outbox if one.kind != "forward"]
        node.give(on.MessageArrived(node.view.seals(6) + 9, f"server-{near}", message.payload))
    assert node.machine.exchanging == 6, "both neighbours have spoken, but a record is still to come"
    network.deliver()
    assert node.published[-1].slot == 6
    assert all(one.machine.exchanging is None for one in network.nodes)


def test_who_has_missed_its_sample_is_not_waited_for_until_it_is_heard_again() -> None:
    """A server that is down must cost the others one deadline, not one in every slot."""
    schedules = Schedules(terms_of(FACTS), me=1)
    first, second = (slot for slot in range(8) if FACTS.due(slot, 0) and slot < 6)
    assert 0 in schedules.expected(first)
    schedules.miss(0)
    assert 0 not in schedules.expected(second)
    schedules.hear(0, second + 1)
    third = next(slot for slot in range(second + 2, 20) if 0 in schedules.expected(slot))
    assert third - (second + 1) in (2, 3), "its schedule has moved by a slot"


def test_a_network_waits_once_for_a_server_that_is_down() -> None:
    """Its neighbours wait for its heartbeat until the deadline; all others must not wait for its records."""
    links = {**RING, 0: frozenset({1}), 4: frozenset({3})}  # a line: 0, 1, 2, 3, 4
    network = make_network(FACTS, links)
    run(network, range(6))
    network.down.add(0)
    run(network, range(6, 12))
    assert records_of(network.nodes[3]).schedules.missing == {0}
    for slot in range(12, 16):
        for node in network._up():
            node.give(on.SlotSealed(node.view.seals(slot), slot, COUNTS[slot, node.view.me]))
        network.deliver()
        assert network.nodes[3].published[-1].slot == slot, "released before its deadline"
        for node in network._up():
            node.give(on.DeadlinePassed(node.view.ends(slot), slot))


# ------------------------------------------------------------------------------------------------- what is refused


def signed(
    origin: int, slot: int, *, value: int = 70, nano: int | None = None, by: int | None = None, hops: int = 1
) -> SignedRecord:
    record = sign_record(
        np.full(3, float(value)),
        digest=DIGEST,
        origin=origin,
        slot=slot,
        nano=FACTS.price if nano is None else nano,
        sign=fake_sign(origin if by is None else by),
    )
    return msgspec.structs.replace(record, hops=hops)


def forward_of(sender: int, slot: int, records: list[SignedRecord], proofs: list[Equivocation] | None = None) -> bytes:
    body = Body(VERSION, DIGEST, sender, slot, 2, 0, {}, relayed=tuple(records), equivocations=tuple(proofs or ()))
    return encode(body, fake_sign(sender))


def listening(*down: int) -> tuple[Network, Node]:
    """Server 1, after slot 8 is released and its deadline has passed; server 4 has sampled, unless it is down."""
    network = make_network(FACTS)
    network.down |= set(down)
    run(network, range(9))
    return network, network.nodes[1]


def tell(node: Node, records: list[SignedRecord], proofs: list[Equivocation] | None = None, sender: int = 0) -> None:
    node.give(on.MessageArrived(node.view.ends(8) + 1, f"server-{sender}", forward_of(sender, 8, records, proofs)))


@pytest.mark.parametrize(
    ("record", "reason", "who"),
    [
        (signed(4, 8, by=0), "bad-signature", "server-0"),
        (signed(4, 8, nano=FACTS.price + 1), "above-account", "server-4"),
        (signed(4, 9), "wrong-slot", "server-0"),
        (signed(4, 8, value=10**7), "absurd", "server-4"),
        (signed(4, 8, hops=5), "malformed", "server-0"),
        (signed(7, 8), "malformed", "server-0"),
        (msgspec.structs.replace(signed(4, 8), values=b"\x80\x00\x01\x01"), "malformed", "server-0"),
        (msgspec.structs.replace(signed(4, 8), signature=b"short"), "malformed", "server-0"),
    ],
)
def test_records_that_are_refused(record: SignedRecord, reason: str, who: str) -> None:
    """None of them is kept or passed on; at fault is who has sent it, or, for what is validly signed, its origin."""
    network, node = listening(4)
    other, _ = listening(4)
    before = records_of(node).contents()
    tell(node, [record])
    assert [(one.reason, one.sender) for one in node.refused] == [(reason, who)]
    assert records_of(node).contents() == before
    assert records_of(node).refused[who, reason] == 1
    for one in (network, other):
        one.slot(9, COUNTS[9])
    released = [[bits(node.published[-1].estimate) for node in one.nodes[:4]] for one in (network, other)]
    assert released[0] == released[1]


def test_a_record_that_is_right_is_accepted() -> None:
    """If the tests of refusals refused everything, they would prove nothing."""
    _, node = listening(4)
    tell(node, [signed(4, 8)])
    assert not node.refused
    assert Key(8, "server-4") in records_of(node)._held


def test_a_record_that_comes_too_late_is_counted_and_left_out() -> None:
    """Its slot is final: nobody could use it, and nobody is to blame."""
    _, node = listening()
    tell(node, [signed(4, 8 - FACTS.lag)])
    assert records_of(node).late == 1
    assert not node.refused


def test_who_samples_too_often_is_refused_by_its_account() -> None:
    """An origin that says something in every slot would count for more than it has paid."""
    network, node = listening()
    held = {key.slot for key in records_of(node)._held if key.origin == "server-4"}
    extra = [signed(4, slot) for slot in range(5, 9) if slot not in held]
    received = records_of(node).received_by["server-0", "server-4"]
    tell(node, extra)
    assert {(one.reason, one.sender) for one in node.refused} == {("above-account", "server-4")}
    assert len(node.refused) + records_of(node).received_by["server-0", "server-4"] - received == len(extra)
    network.slot(9, COUNTS[9])
    counting = node.machine.server.mailbox.counting(9)[:, 4]
    assert np.count_nonzero(counting) <= 3
    assert len({bits(one.published[-1].estimate) for one in network.nodes[:4]}) == 1, (
        "passed on, so that all decide alike"
    )


def test_its_own_records_are_ignored() -> None:
    """Neighbours may not know whose it is that they pass on; what a node has signed itself it knows better."""
    _, node = listening()
    before = records_of(node).contents()
    slot = next(slot for slot in range(5, 9) if Key(slot, "server-1") not in records_of(node)._held)
    tell(node, [signed(1, slot)])
    assert records_of(node).contents() == before
    assert not node.refused


def counted_checks(node: Node) -> list[int]:
    """Whose signatures a node checks from now on, by number."""
    checks: list[int] = []
    verify = node.view.verify

    def counted(number: int, *parts: Any) -> bool:
        checks.append(number)
        return verify(number, *parts)

    object.__setattr__(node.machine.view, "verify", counted)
    return checks


def test_one_neighbour_can_have_only_so_many_signatures_checked() -> None:
    """A neighbour that floods a node with records must not keep it busy; it is named, and others are still heard."""
    network, node = listening()
    forged = [signed(4, 8, by=0, value=value) for value in range(60)]
    records_of(node)._checks.clear()
    checks = counted_checks(node)
    for _ in range(8):
        tell(node, forged)
    assert MOST_USELESS == 64, "docs/trust.md names this number"
    assert checks == [0, *[4] * 60, 0, *[4] * 4], "two messages, and 64 records"
    assert ("rate-limited", "server-0") in {(one.reason, one.sender) for one in node.refused}
    tell(node, [], sender=2)
    assert len(checks) == 67, "of another neighbour"
    network.slot(9, COUNTS[9])
    assert_released(network, simulate(FACTS, COUNTS[:10]))


@pytest.mark.parametrize(
    ("kind", "most"), [("message", 4 * 5 * 5 + 64), ("slot", 4 * 5 * 5 + 64), ("proof", 3 + 64), ("absurd", 3 + 64)]
)
def test_whatever_a_neighbour_sends_its_signatures_are_counted(kind: str, most: int) -> None:
    """Messages without records, or of slots that are over, proofs, and records that nobody can use cost as much."""
    _, node = listening(4)
    assert terms_of(FACTS).most_checks == 4 * 5 * FACTS.lag + 64, "docs/trust.md names this number"
    records_of(node)._checks.clear()
    checks = counted_checks(node)
    forged = Equivocation(signed(4, 8), signed(4, 8, by=0, value=3))
    for counter in range(200):
        body = Body(VERSION, DIGEST, 0, 8, 1 if kind == "slot" else 2, counter, {})
        if kind == "proof":
            body = msgspec.structs.replace(body, equivocations=(forged,) * 30)
        if kind == "absurd":
            body = msgspec.structs.replace(body, relayed=(signed(4, 8, value=10**7),) * 30)
        node.give(on.MessageArrived(node.view.ends(8) + 1, "server-0", encode(body, fake_sign(0))))
    assert len(checks) == most
    assert node.refused[-1].reason == "rate-limited"


# ------------------------------------------------------------------------------------------------------ equivocation


def equivocate(network: Network) -> tuple[SignedRecord, SignedRecord]:
    """Server 4 has told server 0 one thing in slot 8, and tells server 3 another, after the slot is released."""
    slot = next(slot for slot in range(8, 3, -1) if Key(slot, "server-4") in records_of(network.nodes[1])._held)
    other = signed(4, slot, value=999)
    held = records_of(network.nodes[1])._held[Key(slot, "server-4")].record
    node = network.nodes[3]
    node.give(on.MessageArrived(node.view.ends(8) + 1, "server-4", forward_of(4, 8, [other])))
    return held, other


def test_two_records_for_one_slot_are_void_everywhere() -> None:
    """Who says one thing to some and another to others must not pull anybody's estimate, nor tear them apart."""
    network, _ = listening()
    held, _ = equivocate(network)
    run(network, range(9, 12))
    for node in network.nodes:
        records = records_of(node)
        assert Key(held.slot, "server-4") not in records._held
        assert records.equivocators == {"server-4": held.slot}
        assert [one.event for one in node.reports].count("equivocation") == 1
        assert (held.slot, "server-4") in node.disk.records
        assert node.disk.records[held.slot, "server-4"].kind == "proof"
        assert node.machine.server.mailbox.void[held.slot % FACTS.lag, 4]
    others = [node.published[-1] for node in network.nodes]
    assert len({bits(one.estimate) for one in others}) == 1
    plain = simulate(FACTS, COUNTS[:12])[-1]
    assert bits(others[0].estimate) != bits(plain.estimate[0]), "the record counts no more"


def test_a_void_slot_stays_void() -> None:
    """Whichever of the two records comes once more, and after a restart."""
    network, _ = listening()
    held, other = equivocate(network)
    run(network, range(9, 11))
    node = network.nodes[1]
    node.restart(node.view.ends(10) + 1, vouched=True)
    for record in (held, other):
        node.give(
            on.MessageArrived(
                node.view.ends(10) + 1, "server-0", forward_of(0, 10, [msgspec.structs.replace(record, hops=1)])
            )
        )
    assert Key(held.slot, "server-4") not in records_of(node)._held
    run(network, range(11, 13))
    assert len({bits(one.published[-1].estimate) for one in network.nodes}) == 1


def test_a_stored_proof_that_nobody_signed_is_dropped_at_the_start() -> None:
    """Whoever can write to the data folder could accuse any server, and the node would show and pass on the lie."""
    network, node = listening()
    held, other = equivocate(network)
    run(network, range(9, 11))
    place, start = (held.slot, "server-4"), node.view.ends(10) + 1
    proven = node.disk.records[place]
    forged = signed(4, held.slot, value=3, by=0)
    for content in (
        b"no proof",
        pack(Equivocation(other, forged)),
        pack(Equivocation(forged, other)),
        pack(Equivocation(other, other)),
        pack(Equivocation(signed(4, held.slot - 1, value=3), signed(4, held.slot - 1, value=4))),
        pack(Equivocation(signed(3, held.slot, value=3), signed(3, held.slot, value=4))),
    ):
        node.disk.records[place] = replace(proven, content=content)
        node.reports.clear()
        node.restart(start, vouched=True)
        assert (records_of(node).equivocators, records_of(node).proofs()) == ({}, [])
        (report,) = [one for one in node.reports if one.event == "proof-invalid"]
        assert f"server-4 signed two different records for slot {held.slot}" in report.text
    node.disk.records[place] = proven
    node.reports.clear()
    node.restart(start, vouched=True)
    assert records_of(node).equivocators == {"server-4": held.slot}
    assert "proof-invalid" not in [one.event for one in node.reports]


def test_a_proof_has_to_prove_something() -> None:
    """Otherwise any neighbour could make any origin's record void."""
    _, node = listening()
    slot = next(slot for slot in range(8, 3, -1) if Key(slot, "server-4") in records_of(node)._held)
    good = records_of(node)._held[Key(slot, "server-4")].record
    cases: list[tuple[Equivocation, str]] = [
        (Equivocation(good, signed(4, slot, value=3, by=0)), "bad-signature"),
        (Equivocation(good, good), "malformed"),
        (Equivocation(good, signed(4, slot - 1, value=3)), "malformed"),
    ]
    for proof, reason in cases:
        node.refused.clear()
        tell(node, [], [proof])
        assert [(one.reason, one.sender) for one in node.refused] == [(reason, "server-0")]
        assert Key(slot, "server-4") in records_of(node)._held
    tell(node, [], [Equivocation(good, signed(4, slot, value=3))])
    assert records_of(node).equivocators == {"server-4": slot}


def test_the_proof_is_shown_as_it_was_signed() -> None:
    """Whoever reads it must be able to check both signatures; it is the same bytes at every server."""
    network, _ = listening()
    held, other = equivocate(network)
    run(network, range(9, 11))
    contents = {node.disk.records[held.slot, "server-4"].content for node in network.nodes}
    assert len(contents) == 1
    proof = unpack_proof(contents.pop())
    assert {proof.first.signature, proof.second.signature} == {held.signature, other.signature}
    assert [records_of(node).proofs() for node in network.nodes] == [[("server-4", DIGEST, proof)]] * 5


def test_a_proof_is_forgotten_with_its_slot() -> None:
    """A server that has equivocated once must not be shown as broken for ever, nor its proofs fill the memory."""
    network, _ = listening()
    held, _ = equivocate(network)
    run(network, range(9, held.slot + FACTS.lag))
    assert records_of(network.nodes[1]).equivocators == {"server-4": held.slot}
    run(network, range(held.slot + FACTS.lag, held.slot + FACTS.lag + 1))
    for node in network.nodes:
        assert records_of(node).equivocators == {}
        assert records_of(node).proofs() == []


# ------------------------------------------------------------------------------------------------------------ storage


def test_a_release_that_cannot_be_stored_loses_no_record() -> None:
    """What was not stored is stored with the next release; a draw that was not paid leaves no signed record behind."""
    network = make_network(FACTS)
    run(network, range(6))
    network.nodes[1].disk.full = True
    run(network, range(6, 8))
    node = network.nodes[1]
    node.disk.full = False
    node.give(on.StorageRecovered(node.view.ends(7)))
    run(network, range(8, 10))
    held = records_of(node)._held
    assert {(key.slot, key.origin) for key in held} == set(node.disk.records)
    assert not [key for key in held if key.origin == "server-1" and key.slot not in node.disk.samples]
    assert len({bits(one.published[-1].estimate) for one in network.nodes}) == 1


def test_what_was_dropped_with_an_unpaid_sample_is_sent_after_all() -> None:
    """The disk fails at the payment, and all instructions after it are dropped, those that pass records on as well."""
    network = make_network(FACTS)
    network.down.add(4)
    run(network, range(6))
    node = network.nodes[1]
    node.give(on.MessageArrived(node.view.ends(5) + 1, "server-0", forward_of(0, 5, [signed(4, 5)])))
    slot = next(slot for slot in range(6, 9) if FACTS.due(slot, 1))
    run(network, range(6, slot))
    node.machine.records.doubt_sent()  # type: ignore[union-attr]
    node.disk.full = True
    told = len(node.told)
    node.give(on.SlotSealed(node.view.seals(slot), slot, COUNTS[slot, 1]))
    assert slot not in node.disk.samples
    sent = [body_of(one.payload) for one in node.told[told:] if isinstance(one, do.Send)]
    assert (4, 5) in {(record.origin, record.slot) for body in sent for record in body.relayed}
    assert not [record for body in sent for record in body.relayed if (record.origin, record.slot) == (1, slot)]


def test_only_the_last_slots_are_kept() -> None:
    """A node must not grow for ever."""
    network = make_network(FACTS)
    run(network, range(SLOTS))
    for node in network.nodes:
        assert min(slot for slot, _ in node.disk.records) > SLOTS - 1 - FACTS.lag
        assert {(key.slot, key.origin) for key in records_of(node)._held} == set(node.disk.records)
