"""Proofs of equivocation for people: what a node shows of one, and how anybody checks it with network.toml alone.

A proof is two records of one server and slot that differ, with the server's signatures. It is shown as the bytes that
were signed, so that whoever checks it need not trust the node that shows it, nor know how records are laid out:

    signed      what Ed25519 (RFC 8032) has signed: the parts below, after their number and lengths
    signature   64 bytes, by the key that network.toml pins for the server

    parts       "dpcrowd network", the network's id, "dpcrowd record 2", the digest of the revision that was valid in
                the slot, the server's number in it, the slot, the nano-epsilon of the sample, its groups and its values

Two samples of one slot may be two draws of the same counts, and together tell more than was promised of either. So
proofs are for operators, as those of other servers are, who have both records anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.signing import read_signed, signed_text, verify_text
from dpcrowd.node.wire_records import Equivocation, SignedRecord, signed_parts

__all__ = ["ProofView", "ProofsView", "SignedBytes", "check_proof", "show_proof"]

_PARTS = 7  # of a record, without the network's


class SignedBytes(Struct, frozen=True, kw_only=True):
    """One of the two records, as it was signed."""

    signed: Annotated[bytes, Meta(description="The bytes that the server has signed, in Base64.")]
    signature: Annotated[bytes, Meta(description="Its signature by Ed25519, 64 bytes in Base64.")]


class ProofView(Struct, frozen=True, kw_only=True):
    """A proof that a server has signed two different records for one slot."""

    network: Annotated[str, Meta(description="Id of the network, which is signed with every record.")]
    server: Annotated[str, Meta(description="Name of the server that has signed both records.")]
    slot: int
    first: SignedBytes
    second: SignedBytes


class ProofsView(Struct, frozen=True, kw_only=True):
    """All proofs of the last `lag` slots that this node has."""

    proofs: list[ProofView]


def show_proof(proof: Equivocation, network: str, server: str, digest: bytes) -> ProofView:
    """Return what is shown of a proof; `digest` is that of the revision that was valid in its slot."""

    def shown(record: SignedRecord) -> SignedBytes:
        return SignedBytes(signed=signed_text(network, *signed_parts(record, digest)), signature=record.signature)

    first, second = shown(proof.first), shown(proof.second)
    return ProofView(network=network, server=server, slot=proof.first.slot, first=first, second=second)


def check_proof(proof: ProofView, network: str, keys: Sequence[str]) -> None:
    """Refuse a proof that does not show that a server has signed two different records for one slot.

    keys  that network.toml pins for the server that the proof names
    """
    facts = []
    for record in (proof.first, proof.second):
        if not verify_text(keys, record.signature, record.signed):
            raise BadInput(f"a record was not signed by a key that network.toml pins for '{proof.server}'.")
        of, parts = read_signed(record.signed)
        if of != network or len(parts) != _PARTS or not parts[0].startswith(b"dpcrowd record"):
            raise BadInput(f"'{proof.server}' has signed something else than a record of network '{network}'.")
        facts.append((parts[:4], parts[4:]))
    (which, first), (other, second) = facts
    if which != other or int.from_bytes(which[3], "little") != proof.slot:
        raise BadInput(f"the two records are not both of slot {proof.slot} of '{proof.server}' under one revision.")
    if first == second:
        raise BadInput("the two records are the same: a server may sign a record as often as it likes.")
