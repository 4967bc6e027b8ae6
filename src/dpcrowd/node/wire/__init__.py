"""The message that a node sends its neighbours once a slot and round, as bytes and back, and what is checked first.

A payload is MessagePack: [head, rest, signature]. Head and rest are arrays whose places have fixed meanings; later
versions may add places at their ends, which earlier ones ignore, so that version N talks to N - 1. Vectors are raw
little-endian float64. Servers are named by their number in the configuration whose digest the head carries.

Two signatures. The sender signs its head and a hash of the rest: Zenoh authenticates the name of a neighbour by its
certificate, which any authority could mint; the signature is checked against the key that network.toml pins. The origin
of a record signs (digest, origin, slot, vectors), so that a record may be handed on in later rounds and still be known
as its own. The network's id is signed with both (`keys.words`): no word of one network counts in another.

A proof of "I said counter c in slot s" is (head, hash of the rest, signature): about 140 bytes of any message, which
whoever said it can check with its own pinned keys. Nothing else in it has to be known any more: neither the digest of a
revision that is over nor the number that the server had in it. It is the key, which one server has, that says who.

A message without a record is the heartbeat: under 200 bytes, and nobody waits for a silent server. Only what proves
something to a neighbour that seems to have lost it, or was not heard of in the last slot, comes on top.
"""

from dpcrowd.node.wire.check import Heard, decode, proof_digest, proven
from dpcrowd.node.wire.format import (
    VERSION,
    Body,
    Record,
    Refused,
    Sign,
    Verify,
    encode,
    most_bytes,
    peek,
    record_of,
    same_words,
    written_after,
)

__all__ = [
    "VERSION",
    "Body",
    "Heard",
    "Record",
    "Refused",
    "Sign",
    "Verify",
    "decode",
    "encode",
    "most_bytes",
    "peek",
    "proof_digest",
    "proven",
    "record_of",
    "same_words",
    "written_after",
]
