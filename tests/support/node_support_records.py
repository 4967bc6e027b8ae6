"""A ring of five machines that pass records on: run it, sign records for it, and bring them to one of its servers."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import msgspec
import numpy as np

from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.records import Records
from dpcrowd.node.wire import VERSION, Body, encode
from dpcrowd.node.wire_records import Equivocation, SignedRecord, sign_record
from dpcrowd.schemes.base import Release
from node_support import DIGEST, Network, Node, fake_sign
from node_support_relay import counts_of, facts_of, make_network
from schemes_support import bits

__all__ = [
    "COUNTS",
    "FACTS",
    "SLOTS",
    "assert_released",
    "forward_of",
    "link_up",
    "listening",
    "records_of",
    "run",
    "signed",
    "tell",
]

SLOTS = 18
FACTS = facts_of()
COUNTS = counts_of(FACTS, SLOTS)


def assert_released(network: Network, batch: list[Release], since: int = 0) -> None:
    """Check that every server has released the bits of the simulator, from slot `since` on."""
    for node in network.nodes:
        released = {release.slot: release for release in node.published}
        for theirs in batch[since:]:
            mine, number = released[theirs.slot], node.view.me
            assert bits(mine.estimate) == bits(theirs.estimate[number]), (mine.slot, number)
            assert bits(mine.variance) == bits(theirs.variance[number]), (mine.slot, number)
            assert mine.nano == int(theirs.charge[number].max())


def run(network: Network, slots: range, counts: Any = COUNTS) -> None:
    """Run a network through slots, each with the counts of all servers."""
    for slot in slots:
        network.slot(slot, counts[slot])


def records_of(node: Node) -> Records:
    """Return what a node knows of records."""
    assert node.machine.records is not None
    return node.machine.records


def link_up(network: Network, one: int, other: int, at_ns: int) -> None:
    """Let the link between two servers come up."""
    for me, you in ((one, other), (other, one)):
        node = network.nodes[me]
        node.give(on.NeighbourUp(at_ns, node.view.names[you]))


def signed(
    origin: int, slot: int, *, value: int = 70, nano: int | None = None, by: int | None = None, hops: int = 1
) -> SignedRecord:
    """Return a record of an origin, as a neighbour passes it on; `by` is who has really signed it."""
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
    """Return a message that passes records and proofs on."""
    body = Body(VERSION, DIGEST, sender, slot, 2, 0, {}, relayed=tuple(records), equivocations=tuple(proofs or ()))
    return encode(body, fake_sign(sender))


def listening(*down: int) -> tuple[Network, Node]:
    """Return a network and its server 1, after slot 8 is released and its deadline has passed.

    down  servers that do not run; server 4 has sampled, unless it is one of them
    """
    network = deepcopy(_after_slot_8(frozenset(down)))
    return network, network.nodes[1]


@cache
def _after_slot_8(down: frozenset[int]) -> Network:
    """Return a network after its first slots, to be copied: most tests begin with the same."""
    network = make_network(FACTS)
    network.down |= down
    run(network, range(9))
    return network


def tell(node: Node, records: list[SignedRecord], proofs: list[Equivocation] | None = None, sender: int = 0) -> None:
    """Bring records and proofs to a node after slot 8."""
    node.give(on.MessageArrived(node.view.ends(8) + 1, f"server-{sender}", forward_of(sender, 8, records, proofs)))
