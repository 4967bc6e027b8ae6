"""Servers that take a revision late: their records do not count, and nobody is taken for a forger because of them."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from dpcrowd.node.machine import Revision
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.arrivals import MOST_USELESS
from dpcrowd.node.machine.held_records import Key
from dpcrowd.node.wire_records import Equivocation, SignedRecord
from node_support import Network, Node
from node_support_records import FACTS as RECORD_FACTS
from node_support_records import listening, records_of, signed, tell
from node_support_relay import counts_of, facts_of, make_network

LAG, FIRST = 8, 10
FACTS = facts_of(lag=LAG)
COUNTS = counts_of(FACTS, 30)
LATE = {3: FIRST + 4, 4: FIRST + 6}  # by number: the slot with which a server takes the revision


def run(network: Network, slots: range) -> None:
    """Run slots; each server takes revision 2 with its first slot, or as late as `LATE` says."""
    for slot in slots:
        for node in network.nodes:
            node.counts = COUNTS[slot, node.view.me]
            if slot == LATE.get(node.view.me, FIRST):
                view = replace(node.view, digest=bytes(16), revision=2, first_slot=FIRST)
                node.following, node.earlier, node.view = Revision(view, node.make_server), (node.view,), view
                node.give(on.RevisionExpected(view.clock.opens(slot), 2, FIRST))
            node.give(on.SlotEnded(node.view.seals(slot), slot))
        for node in network.nodes:
            node.leave()
        network.deliver()
        for node in network.nodes:
            node.give(on.DeadlinePassed(node.view.ends(slot), slot))
        network.deliver()


def test_nobody_is_blamed_for_servers_that_take_a_revision_late() -> None:
    """Neighbours that pass on records of a late server, or a late server's own, were refused as forgers.

    The operator would have phoned an organisation about a stolen certificate that does not exist.
    """
    network = make_network(FACTS)
    run(network, range(FIRST + LAG + 4))
    refused = {(one.reason, one.sender) for node in network.nodes for one in node.refused}
    assert {reason for reason, _ in refused} <= {"other-configuration", "late"}
    by_record = {pair for node in network.nodes for pair in records_of(node).arrivals.refused}
    assert by_record <= {("server-3", "other-configuration"), ("server-4", "other-configuration")}
    assert ("server-3", "other-configuration") in records_of(network.nodes[0]).arrivals.refused, "server 4 passed it on"
    assert not any(one[0] == node.view.name for node in network.nodes for one in records_of(node).arrivals.refused)


def revised() -> Node:
    """Return server 1 after slot 8, of which revision 2 is valid already; neighbours send under revision 1."""
    _, node = listening(4)
    records_of(node).revisions.add(replace(node.view, digest=bytes(16), revision=2, first_slot=8))
    return node


def test_a_record_of_the_revision_before_is_named_and_never_used() -> None:
    """It must not be accepted because its signature is known; its origin is told once, and who sends it again is not.

    Without its own reason it would count as forged, and 64 of them would silence an honest neighbour.
    """
    node = revised()
    before = records_of(node).held.contents()
    for _ in range(MOST_USELESS + 1):
        tell(node, [signed(4, 8)])
    assert [(one.reason, one.sender) for one in node.refused] == [("other-configuration", "server-4")]
    assert "revision 1" in node.refused[0].text
    assert records_of(node).held.contents() == before
    assert Key(8, "server-4") not in records_of(node).held.records
    tell(node, [signed(0, 8)])
    assert node.refused[-1].reason == "other-configuration", "its neighbour is still heard"


def test_what_nobody_has_signed_stays_a_forgery() -> None:
    """A forger could otherwise hide behind any revision."""
    node = revised()
    forged = signed(4, 8, value=3, by=0)
    tell(node, [forged])
    tell(node, [msgspec.structs.replace(signed(4, 8), nano=RECORD_FACTS.price - 1)])
    tell(node, [], [Equivocation(*sorted((signed(4, 8), forged), key=lambda one: one.signature))])
    assert {(one.reason, one.sender) for one in node.refused} == {("bad-signature", "server-0")}


def test_an_origin_that_signs_at_will_under_an_old_revision_is_limited() -> None:
    """Each such record has to be checked twice: without a limit of their own they would keep this server busy."""
    node = revised()
    many: list[SignedRecord] = [signed(4, 8, value=value) for value in range(MOST_USELESS + 20)]
    for start in range(0, len(many), 20):
        tell(node, many[start : start + 20])
    assert "rate-limited" in {one.reason for one in node.refused}
    assert records_of(node).arrivals.refused["server-4", "other-configuration"] == MOST_USELESS + 1


def test_a_proof_of_the_revision_before_is_no_forgery() -> None:
    """A late neighbour has a proof against an origin that was late, too; here it proves nothing."""
    node = revised()
    proof = Equivocation(signed(4, 8, value=1), signed(4, 8, value=2))
    for _ in range(2):
        tell(node, [], [proof])
    assert [(one.reason, one.sender) for one in node.refused] == [("other-configuration", "server-4")]
    assert not records_of(node).held.proofs
