"""What is checked of a message before it is used, and of a proof before it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpcrowd.node.wire.format import (
    BODY,
    UNREADABLE,
    VERSION,
    Body,
    Envelope,
    Refused,
    Verify,
    body_of,
    encoder,
    envelopes,
    hash_of,
    heads,
)
from dpcrowd.node.wire.vectors import info_messages
from dpcrowd.schemes.messages import InfoMessages

__all__ = ["Heard", "decode", "proof_digest", "proven"]

MOST_RECORDS = 10_000
MOST_HEAD_BYTES = 256
"""Heads are kept and told again as proofs, whatever a later version adds to them."""
MOST_SLOTS = MOST_SAMPLES = 1 << 62
"""Nothing reaches them; numbers beyond could neither be stored nor counted on from."""


@dataclass(frozen=True)
class Heard:
    """A message that was checked: who said it, and what a scheme can use of it (None: a heartbeat).

    proof  that its sender has said this counter in this slot
    """

    body: Body
    message: InfoMessages | None
    proof: bytes


def decode(
    payload: bytes,
    *,
    sender: int,
    digest: bytes,
    slot: int,
    regions: int,
    form: str,
    verify: Verify,
    names: Mapping[int, str],
) -> Heard:
    """Check a payload from the neighbour `sender` for the open slot; `Refused` says what is wrong with it."""
    who = names[sender]
    try:
        envelope = envelopes.decode(payload)
        head = heads.decode(envelope.head)
    except UNREADABLE:
        raise Refused("malformed", f"{who} sent something that is not a message of dpcrowd.") from None
    if len(envelope.head) > MOST_HEAD_BYTES:
        raise Refused("malformed", f"{who} sent a head of {len(envelope.head)} bytes; allowed: {MOST_HEAD_BYTES}.")
    if head.digest == digest and head.server != sender:  # under another configuration it may have another number
        said = names.get(head.server, f"number {head.server}")
        raise Refused("wrong-sender", f"{who} sent a message in the name of {said}.")
    # Nothing is made of the rest, which may be long, before it is known whose it is.
    rest_hash = hash_of(envelope.rest)
    if not verify(sender, envelope.signature, BODY, envelope.head, rest_hash):
        raise Refused("bad-signature", f"a message of {who} is not signed by a key that network.toml pins for it.")
    if head.digest != digest:
        raise Refused(
            "other-configuration",
            f"{who} runs another configuration: {head.digest.hex()[:32]}, here {digest.hex()}. Compare network.toml.",
        )
    try:
        body = body_of(envelope)
    except UNREADABLE:
        raise Refused("malformed", f"{who} sent something that is not a message of dpcrowd.") from None
    if not VERSION - 1 <= body.version <= VERSION + 1:
        raise Refused("version", f"{who} speaks version {body.version}; this node speaks {VERSION} and its neighbours.")
    if body.slot != slot or not 0 <= slot <= MOST_SLOTS:
        raise Refused("wrong-slot", f"{who} sent slot {body.slot} while slot {slot} is open.")
    counters = [body.counter, *(2 * counter for _, counter in body.heard.values())]  # an echo may be counted on from
    if body.round < 1 or min(counters) < 0 or max(counters) > MOST_SAMPLES or len(body.records) > MOST_RECORDS:
        raise Refused("malformed", f"{who} sent a round, counter or number of records that cannot be.")
    proof = encoder.encode(Envelope(envelope.head, rest_hash, envelope.signature))
    return Heard(body, info_messages(body, digest, regions, form, verify, names), proof)


def proven(proof: bytes, server: int, verify: Verify) -> tuple[int, int] | None:
    """The (slot, counter) that a proof shows to have been said by whoever holds this server's keys; None: nothing."""
    try:
        said = envelopes.decode(proof)
        head = heads.decode(said.head)
    except UNREADABLE:
        return None
    if not verify(server, said.signature, BODY, said.head, said.rest):
        return None
    possible = 0 <= head.slot <= MOST_SLOTS and 0 <= head.counter <= MOST_SAMPLES
    return (head.slot, head.counter) if possible else None


def proof_digest(proof: bytes) -> bytes | None:
    """The configuration under which a proof was said, by what it says itself; None if it is none."""
    try:
        return heads.decode(envelopes.decode(proof).head).digest
    except UNREADABLE:
        return None
