"""Servers that sign what they like and tell each server something else: honest servers stay together, unblamed."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.wire import VERSION, Body, encode
from dpcrowd.node.wire_records import Equivocation, SignedRecord, pack, sign_record
from examples_support import examples
from node_support import DIGEST, Network, Node, body_of, fake_sign
from node_support_records import records_of
from node_support_relay import counts_of, facts_of, make_network, terms_of
from schemes_support import bits

SLOTS = 6
FACTS = facts_of(lag=4)
COUNTS = counts_of(FACTS, SLOTS + FACTS.lag)
BROKEN = (3, 4)
HONEST = (0, 1, 2)
# A line of honest servers, so that what one of them learns needs two links to the other end; the others know everybody.
LINKS = {
    0: frozenset({1, 3, 4}),
    1: frozenset({0, 2, 3, 4}),
    2: frozenset({1, 3, 4}),
    3: frozenset({0, 1, 2, 4}),
    4: frozenset({0, 1, 2, 3}),
}


class Lie(NamedTuple):
    """A message of a dishonest server to an honest one: one record of a dishonest origin, or two of them as a proof.

    ago     the age of these records, in slots
    values  which of the three records that the origin has signed for that slot
    hops    the number of links that they have travelled, according to the sender
    early   whether it arrives before the honest servers exchange their own records of this slot
    """

    slot: int
    sender: int
    to: int
    origin: int
    ago: int
    values: tuple[int, ...]
    early: bool
    hops: int = 1


any_lie = st.builds(
    Lie,
    slot=st.integers(0, SLOTS - 1),
    sender=st.sampled_from(BROKEN),
    to=st.sampled_from(HONEST),
    origin=st.sampled_from(BROKEN),
    ago=st.integers(0, FACTS.lag - 1),
    values=st.sampled_from([(0,), (0,), (0,), (1,), (2,), (0, 1), (2, 0)]),
    early=st.booleans(),
    hops=st.sampled_from([1, 2, 4]),
)


def signed(origin: int, slot: int, value: int, hops: int) -> SignedRecord:
    """One of the records that a broken server has signed for a slot; the last one is beyond what can be counted."""
    noisy = np.full(3, (70.0, 900.0, 1e7)[value])
    own = {"digest": DIGEST, "origin": origin, "slot": slot, "nano": FACTS.price}
    return msgspec.structs.replace(sign_record(noisy, **own, sign=fake_sign(origin)), hops=hops)  # type: ignore[arg-type]


def tell(node: Node, lie: Lie) -> None:
    of = lie.slot - lie.ago
    if of < 0:
        return
    records = [signed(lie.origin, of, value, lie.hops) for value in lie.values]
    proofs = (Equivocation(*sorted(records, key=pack)),) if len(records) == 2 else ()
    relayed = () if proofs else tuple(records)
    body = Body(VERSION, DIGEST, lie.sender, lie.slot, 2, 0, {}, relayed=relayed, equivocations=proofs)
    payload = encode(body, fake_sign(lie.sender))
    node.give(on.MessageArrived(node.view.seals(lie.slot) + 1, node.view.names[lie.sender], payload))


def play(lies: list[Lie]) -> tuple[Network, list[tuple[object, ...]]]:
    """Run the honest servers; return them, and what they have passed on to each other."""
    network = make_network(FACTS, LINKS)
    network.down = set(BROKEN)
    sent: list[tuple[object, ...]] = []

    def look(sender: int, receiver: int, payload: bytes) -> bool:
        body = body_of(payload)
        sent.extend((sender, receiver, "record", one.origin, one.slot) for one in body.relayed)
        sent.extend((sender, receiver, "proof", one.first.origin, one.first.slot) for one in body.equivocations)
        return False

    network.drop = look
    nodes = [network.nodes[number] for number in HONEST]
    for slot in range(len(COUNTS)):
        for node in nodes:
            node.give(on.SlotSealed(node.view.seals(slot), slot, COUNTS[slot, node.view.me]))
        for early in (True, False):
            for lie in lies:
                if (lie.slot, lie.early) == (slot, early):
                    tell(network.nodes[lie.to], lie)
            network.deliver()
        for node in nodes:
            node.give(on.DeadlinePassed(node.view.ends(slot), slot))
        network.deliver()
        kept = {
            tuple(sorted((one.slot, one.origin, one.kind) for one in records_of(node).held.contents()))
            for node in nodes
        }
        assert len(kept) == 1, "all have the same records and know of the same proofs"
        for node in nodes:
            checks = records_of(node).arrivals._checks
            assert all(checks[f"server-{near}"] <= 4 * 5 * FACTS.lag for near in HONEST)
    return network, sent


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(st.lists(any_lie, min_size=8, max_size=30))
def test_honest_servers_release_the_same_bits_and_never_refuse_each_other(lies: list[Lie]) -> None:
    """Otherwise one broken origin could split a network, or have honest neighbours blamed for passing on its proofs."""
    network, sent = play(lies)
    nodes = [network.nodes[number] for number in HONEST]
    for releases in zip(*(node.published for node in nodes), strict=True):
        assert len({bits(release.estimate) for release in releases}) == 1
        assert len({bits(release.variance) for release in releases}) == 1
    for node in nodes:
        assert {refusal.sender for refusal in node.refused} <= {f"server-{number}" for number in BROKEN}
    assert len(set(sent)) == len(sent), "each record and each proof goes over a link once, whatever was signed"
    by_link_and_key: dict[tuple[object, ...], int] = {}
    for sender, receiver, _, origin, slot in sent:
        key = sender, receiver, origin, slot
        by_link_and_key[key] = by_link_and_key.get(key, 0) + 1
    assert all(number <= 2 for number in by_link_and_key.values())


def test_no_more_counts_of_an_origin_than_its_account_allows() -> None:
    """Three samples in eight slots, from a server that signs a record for every slot and tells each to another one."""
    lies = [Lie(slot, 3, HONEST[slot % 3], 3, 0, (0,), True) for slot in range(SLOTS)]
    network, _ = play(lies)
    assert terms_of(FACTS).samples == 3
    for number in HONEST:
        node = network.nodes[number]
        records = records_of(node)
        assert records.arrivals.refused["server-3", "above-account"] == SLOTS - 3, "slots 0, 2 and 5 are allowed"
        assert not [one for one in node.refused if one.sender != "server-3"]
