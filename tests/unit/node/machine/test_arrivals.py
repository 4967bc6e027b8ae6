"""What neighbours bring: which records and proofs a machine accepts, and who is at fault for the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.arrivals import MOST_USELESS
from dpcrowd.node.machine.held_records import Key
from dpcrowd.node.wire import VERSION, Body, encode
from dpcrowd.node.wire_records import Equivocation, SignedRecord, pack, sign_record, unpack_proof
from node_support import DIGEST, Network, Node, fake_sign
from node_support_records import (
    COUNTS,
    FACTS,
    assert_released,
    forward_of,
    listening,
    records_of,
    run,
    signed,
    tell,
)
from node_support_relay import simulate, terms_of
from schemes_support import bits


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
    before = records_of(node).held.contents()
    tell(node, [record])
    assert [(one.reason, one.sender) for one in node.refused] == [(reason, who)]
    assert records_of(node).held.contents() == before
    assert records_of(node).arrivals.refused[who, reason] == 1
    for one in (network, other):
        one.slot(9, COUNTS[9])
    released = [[bits(node.published[-1].estimate) for node in one.nodes[:4]] for one in (network, other)]
    assert released[0] == released[1]


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
    assert any(reason == "grouped" for _, reason in records_of(node).arrivals.refused)


def test_a_record_that_is_right_is_accepted() -> None:
    """If the tests of refusals refused everything, they would prove nothing."""
    _, node = listening(4)
    tell(node, [signed(4, 8)])
    assert not node.refused
    assert Key(8, "server-4") in records_of(node).held.records


def test_a_record_that_comes_too_late_is_counted_and_left_out() -> None:
    """Its slot is final: nobody could use it, and nobody is to blame."""
    _, node = listening()
    tell(node, [signed(4, 8 - FACTS.lag)])
    assert records_of(node).arrivals.late_by.total() == 1
    assert not node.refused


def test_a_copy_of_a_record_that_was_used_is_not_late() -> None:
    """A neighbour that comes back sends what it had: all servers, this one too, seemed to be late because of that."""
    network, node = listening()
    sampled = [key for key in records_of(node).held.records if key.slot <= 12 - FACTS.lag]
    run(network, range(9, 13))
    assert {key.origin for key in sampled} >= {"server-1", "server-4"}
    for key in sampled:
        number = node.view.names.index(key.origin)
        node.give(on.MessageArrived(node.view.ends(12) + 1, "server-0", forward_of(0, 12, [signed(number, key.slot)])))
    assert not records_of(node).arrivals.late_by
    empty = next(slot for slot in range(4, 8) if Key(slot, "server-4") not in sampled)
    node.give(on.MessageArrived(node.view.ends(12) + 1, "server-0", forward_of(0, 12, [signed(4, empty)])))
    assert records_of(node).arrivals.late_by == {("server-0", "server-4"): 1}, "what was never there is late"


def test_records_of_long_ago_are_forgotten() -> None:
    """A server that runs for months would remember every record that it ever had."""
    network, node = listening()
    held = records_of(node).held
    old = next(key for key in held.records if key.slot <= 12 - FACTS.lag)
    run(network, range(9, 13))
    assert held.was_kept(old)
    run(network, range(13, 20), np.concatenate([COUNTS, COUNTS]))
    assert not held.was_kept(old)
    assert len(held._final) <= len(node.view.names) * FACTS.lag


def test_who_samples_too_often_is_refused_by_its_account() -> None:
    """An origin that says something in every slot would count for more than it has paid."""
    network, node = listening()
    held = {key.slot for key in records_of(node).held.records if key.origin == "server-4"}
    extra = [signed(4, slot) for slot in range(5, 9) if slot not in held]
    received = records_of(node).arrivals.received_by["server-0", "server-4"]
    tell(node, extra)
    assert {(one.reason, one.sender) for one in node.refused} == {("above-account", "server-4")}
    assert len(node.refused) + records_of(node).arrivals.received_by["server-0", "server-4"] - received == len(extra)
    network.slot(9, COUNTS[9])
    counting = node.machine.server.mailbox.counting(9)[:, 4]
    assert np.count_nonzero(counting) <= 3
    assert len({bits(one.published[-1].estimate) for one in network.nodes[:4]}) == 1, (
        "passed on, so that all decide alike"
    )


def test_its_own_records_are_ignored() -> None:
    """Neighbours may not know whose it is that they pass on; what a node has signed itself it knows better."""
    _, node = listening()
    before = records_of(node).held.contents()
    slot = next(slot for slot in range(5, 9) if Key(slot, "server-1") not in records_of(node).held.records)
    tell(node, [signed(1, slot)])
    assert records_of(node).held.contents() == before
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
    records_of(node).arrivals._checks.clear()
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
    records_of(node).arrivals._checks.clear()
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
    slot = next(slot for slot in range(8, 3, -1) if Key(slot, "server-4") in records_of(network.nodes[1]).held.records)
    other = signed(4, slot, value=999)
    held = records_of(network.nodes[1]).held.records[Key(slot, "server-4")].record
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
        assert Key(held.slot, "server-4") not in records.held.records
        assert records.arrivals.equivocators == {"server-4": held.slot}
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
    assert Key(held.slot, "server-4") not in records_of(node).held.records
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
        assert (records_of(node).arrivals.equivocators, records_of(node).proofs()) == ({}, [])
        (report,) = [one for one in node.reports if one.event == "proof-invalid"]
        assert f"server-4 signed two different records for slot {held.slot}" in report.text
    node.disk.records[place] = proven
    node.reports.clear()
    node.restart(start, vouched=True)
    assert records_of(node).arrivals.equivocators == {"server-4": held.slot}
    assert "proof-invalid" not in [one.event for one in node.reports]


def test_a_proof_has_to_prove_something() -> None:
    """Otherwise any neighbour could make any origin's record void."""
    _, node = listening()
    slot = next(slot for slot in range(8, 3, -1) if Key(slot, "server-4") in records_of(node).held.records)
    good = records_of(node).held.records[Key(slot, "server-4")].record
    cases: list[tuple[Equivocation, str]] = [
        (Equivocation(good, signed(4, slot, value=3, by=0)), "bad-signature"),
        (Equivocation(good, good), "malformed"),
        (Equivocation(good, signed(4, slot - 1, value=3)), "malformed"),
    ]
    for proof, reason in cases:
        node.refused.clear()
        tell(node, [], [proof])
        assert [(one.reason, one.sender) for one in node.refused] == [(reason, "server-0")]
        assert Key(slot, "server-4") in records_of(node).held.records
    tell(node, [], [Equivocation(good, signed(4, slot, value=3))])
    assert records_of(node).arrivals.equivocators == {"server-4": slot}


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
    assert records_of(network.nodes[1]).arrivals.equivocators == {"server-4": held.slot}
    run(network, range(held.slot + FACTS.lag, held.slot + FACTS.lag + 1))
    for node in network.nodes:
        assert records_of(node).arrivals.equivocators == {}
        assert records_of(node).proofs() == []
