"""The message that a node sends its neighbours once per slot: its layout, and every check before it is used.

A payload is MessagePack: [head, rest, signature]. Head and rest are arrays whose places have fixed meanings; later
versions may add places at their ends, which earlier ones ignore, so that version N talks to N - 1. Vectors are raw
little-endian float64. Servers are named by their number in the configuration whose digest the head carries.

Two signatures. The sender signs its head and a hash of the rest: Zenoh authenticates the name of a neighbour by its
certificate, which any authority could mint; the signature is checked against the key that network.toml pins. The origin
of a record signs (digest, origin, slot, vectors), so that a record may be handed on in later rounds and still be known
as its own. The network's id is signed with both (`keys.words`): no message of one network counts in another.

A proof of "I sent counter c in slot s" is (head, hash of the rest, signature): about 140 bytes of any message, which
its sender can check with its own pinned keys. Nothing else in it has to be known any more: neither the digest of a
revision that is over nor the number that the server had in it. It is the key, which one server has, that says who.

Format 1 carries one record, of the sender, as information vectors, with the sender's prior. Format 2 is that of
networks whose servers pass records on (`wire_records`): records hold integers and there is no prior. Its first round is
the message of a slot; later rounds, in the same envelope, forward records of others, or ask for and send the state of
a server whose neighbour joins late. Each network has one format, so the bytes of format 1 stay what they were.

A message without a record is the heartbeat: under 200 bytes, and nobody waits for a silent server. Only what proves
something to a neighbour that seems to have lost it, or was not heard of in the last slot, comes on top.

A neighbour that is broken, or lies, could pull every estimate anywhere. So `decode` ends with the numbers themselves
(`plausible`). A sample is y = Y x + noise, where x are the people of each region, at most the population, and the noise
of y_k has the variance Y_kk. Its prior is an estimate of x, behind which there may be nothing better than one sample of
the least budget that any server spends. Noise of many standard deviations is rare but honest (Laplace tails), and
shares may be wrong by a factor; so the check is wide: it stops nonsense, not every lie. Full matrices are inverted
together with one's own: information beyond any count, or in one direction only, would leave nothing of the other
digits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import structs
from msgspec.structs import astuple

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput
from dpcrowd.node.wire_records import Equivocation, SignedRecord, most_record_bytes
from dpcrowd.schemes.messages import InfoMessages

__all__ = [
    "DEVIATIONS",
    "FORMAT_1",
    "VERSION",
    "Body",
    "CheckedMessage",
    "CounterEcho",
    "MessageReason",
    "MessageRefused",
    "Record",
    "Sign",
    "Verify",
    "decode",
    "encode",
    "most_bytes",
    "most_counted",
    "peek",
    "peek_round",
    "pilot_of",
    "plausible",
    "plausible_sample",
    "prior_of",
    "proof_digest",
    "proven",
    "record_of",
    "same_content",
    "written_after",
]

VERSION = 2
FORMAT_1 = 1
"""The format of networks whose servers exchange estimates."""

Sign = Callable[..., bytes]
"""sign(*parts) -> signature, for one network"""
Verify = Callable[..., bool]
"""verify(server number, signature, *parts) -> whether one of its pinned keys made it"""

_MOST_RECORDS = 10_000
_MOST_HEAD_BYTES = 256
"""Heads are stored and sent again as proofs, whatever a later version adds to them."""
_MOST_SLOTS = _MOST_SAMPLES = 1 << 62
"""Nothing reaches them; numbers beyond could neither be stored nor counted on from."""
_LARGEST, _LEAST_INFORMATION, _MOST_INFORMATION = 1e24, 1e-60, 1e100
"""Counts stay below 2^52 and epsilon above 1e-9: nothing honest is beyond these, and nothing within them overflows."""
_TIMES_POPULATION = 10.0
DEVIATIONS = 40.0  # of Laplace noise: one draw in 10^24
_MOST_IN_MATRIX = 1e8  # a variance of 1e-8 people

_BODY, _RECORD = b"dpcrowd message", b"dpcrowd record"


MessageReason = Literal[
    "late",
    "wrong-slot",
    "other-configuration",
    "version",
    "not-a-neighbour",
    "flood",
    "stranger",
    "wrong-sender",
    "bad-signature",
    "replay",
    "malformed",
    "wrong-length",
    "not-finite",
    "negative-information",
    "absurd",
    "above-account",
    "rate-limited",
    "grouped",
]
"""Why a message of a neighbour is not used: the labels of dpcrowd_messages_refused_total, which docs/failures.md
explains. A new reason goes to the end."""


class MessageRefused(Exception):
    """A message that is not used: the reason is counted, the text explains."""

    def __init__(self, reason: MessageReason, text: str) -> None:
        super().__init__(text)
        self.reason: MessageReason = reason


# --------------------------------------------------------------------------------------------------------- the layout


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One server's noisy sample of a slot, as information."""

    origin: int
    info_vec: bytes
    info_mat: bytes
    signature: bytes


class _Head(msgspec.Struct, array_like=True, frozen=True):
    version: int
    digest: bytes
    server: int
    slot: int
    round: int
    counter: int


class CounterEcho(NamedTuple):
    """The highest counter that a neighbour ever sent, and how many slots before the message's slot it first did so."""

    slots_ago: int
    counter: int


class Body(_Head, array_like=True, frozen=True):
    """The content of a message of one slot and round.

    counter  number of samples that the sender's ledger has ever paid for
    heard    the echo of each neighbour's counter, by its number: a server that was restored from an old copy learns
             from it what it has lost. Slots ago take fewer bytes than slots
    prior    raw float64, empty without a record; prior_known: one byte per region
    proofs   of some of `heard`: what the neighbour itself signed
    since    of some of `heard`: how many slots ago the memory of the neighbour began, if that is longer; since 0.2
    expires  when the sender's certificate expires, in seconds since 1970; 0: it does not say
    after    whether it was written again after the exchange of its slot, while the next slot was open: then what it
             echoes was heard by then; since 0.2
    relayed  records of format 2: the own one of the slot, or, in later rounds, those that are passed on
    equivocations  proofs that are passed on, of format 2
    asks     whether the sender asks for the receiver's finalised state, of format 2 (`machine.join`)
    state    the sender's finalised state after the message's slot, which the receiver has asked for, of format 2
    pilot    info_vec, info_mat, prior and prior_known, one after the other, of the filter that decides when to sample,
             where another one learns; of format 1, since 0.2

    A new field goes to the end, where earlier versions ignore it. A message of format 1 without `pilot` ends before
    `relayed`, as those of version 0.1 do.
    """

    heard: dict[int, CounterEcho]
    prior: bytes = b""
    prior_known: bytes = b""
    records: tuple[Record, ...] = ()
    proofs: dict[int, bytes] = {}
    since: dict[int, int] = {}
    expires: int = 0
    after: bool = False
    relayed: tuple[SignedRecord, ...] = ()
    equivocations: tuple[Equivocation, ...] = ()
    asks: bool = False
    state: bytes = b""
    pilot: bytes = b""


def _without_head(body: type[Body]) -> Any:
    """Return the type of the fields of a body that are not in its head, with the same names, types and defaults."""
    fields: list[Any] = []
    for field in structs.fields(body)[len(_Head.__struct_fields__) :]:
        default = msgspec.field(default=field.default, default_factory=field.default_factory)  # type: ignore[call-overload]
        fields.append((field.name, field.type) if field.required else (field.name, field.type, default))
    return msgspec.defstruct("_Rest", fields, array_like=True, frozen=True)


_Rest = _without_head(Body)


class _Envelope(msgspec.Struct, array_like=True, frozen=True):
    """A message; in a proof the hash stands in place of the rest."""

    head: bytes
    rest: bytes
    signature: bytes


# A few thousand nested arrays end the decoder's recursion: RecursionError is not an error of msgspec's.
_UNREADABLE = (msgspec.MsgspecError, RecursionError)
_IN_HEAD = len(_Head.__struct_fields__)
_IN_FORMAT_1 = Body.__struct_fields__.index("relayed")
_encoder = msgspec.msgpack.Encoder()
_envelopes = msgspec.msgpack.Decoder(_Envelope)
_heads = msgspec.msgpack.Decoder(_Head)
_rests: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_Rest)


def record_of(message: InfoMessages, *, digest: bytes, origin: int, slot: int, sign: Sign) -> Record:
    """Return the own sample as a signed record."""
    info_vec, info_mat = (np.ascontiguousarray(part, "<f8").tobytes() for part in (message.info_vec, message.info_mat))
    return Record(origin, info_vec, info_mat, sign(*_signed_parts(digest, origin, slot, info_vec, info_mat)))


def pilot_of(message: InfoMessages) -> bytes:
    """Return what the filter says that decides when to sample, as bytes; none if there is one filter."""
    if (pilot := message.pilot) is None:
        return b""
    vectors = (np.ascontiguousarray(part, "<f8").tobytes() for part in (pilot.info_vec, pilot.info_mat, pilot.prior))
    known: bytes = pilot.prior_known[0].astype("u1").tobytes()
    return b"".join(vectors) + known


def encode(body: Body, sign: Sign) -> bytes:
    """Return the payload that travels."""
    fields = astuple(body)
    last = _IN_FORMAT_1 if body.version == FORMAT_1 and not body.pilot else len(fields)
    while last > _IN_FORMAT_1 and not fields[last - 1]:
        last -= 1
    head, rest = _encoder.encode(fields[:_IN_HEAD]), _encoder.encode(fields[_IN_HEAD:last])
    return _encoder.encode(_Envelope(head, rest, sign(_BODY, head, _hash_of(rest))))


def _hash_of(rest: bytes) -> bytes:
    return hashlib.sha256(rest).digest()


def _body_of(envelope: _Envelope) -> Body:
    return Body(*astuple(_heads.decode(envelope.head)), *astuple(_rests.decode(envelope.rest)))


def _signed_parts(digest: bytes, origin: int, slot: int, info_vec: bytes, info_mat: bytes) -> tuple[bytes, ...]:
    return _RECORD, digest, origin.to_bytes(8, "little"), slot.to_bytes(8, "little"), info_vec, info_mat


def most_bytes(servers: int, regions: int, form: str, records: int = 0) -> int:
    """Return an upper bound on the size of a message of a network, with room for what later versions add.

    records  how many records one message has room for, in format 2
    """
    if records:
        return records * most_record_bytes(regions) + 512 * servers + 8192
    vectors = 3 * 8 * regions + regions if form == "diagonal" else 2 * 8 * regions + 8 * regions**2 + regions
    return 2 * vectors + 512 * servers + 8192


# ----------------------------------------------------------------------------------------------------- before any check


def peek(payload: bytes) -> tuple[int, bytes]:
    """Return the slot and the configuration's digest that a payload names; nothing of it has been checked."""
    try:
        head = _heads.decode(_envelopes.decode(payload).head)
        return head.slot, head.digest
    except _UNREADABLE:
        raise MessageRefused("malformed", "not a message of dpcrowd.") from None


def peek_round(payload: bytes) -> int:
    """Return the round that a payload names, 1 if it cannot be read; nothing of it has been checked."""
    try:
        return int(_heads.decode(_envelopes.decode(payload).head).round)
    except _UNREADABLE:
        return 1


def prior_of(payload: bytes) -> Floats | None:
    """Return the prior of a message that was checked, NaN where it is not known; None if the message has none."""
    try:
        rest = _rests.decode(_envelopes.decode(payload).rest)
        prior, known = np.frombuffer(rest.prior, "<f8"), np.frombuffer(rest.prior_known, np.uint8)
    except (*_UNREADABLE, ValueError):
        return None
    return np.where(known != 0, prior, np.nan) if prior.size and prior.size == known.size else None


def written_after(payload: bytes) -> bool:
    """Whether a payload says that it was written after the exchange of its slot; nothing of it has been checked."""
    try:
        return bool(_rests.decode(_envelopes.decode(payload).rest).after)
    except _UNREADABLE:
        return False


def same_content(payload: bytes, other: bytes) -> bool:
    """Whether two payloads that `peek` could read say the same of their slot.

    A restarted node sends the message of its slot again, and may by then remember more of its neighbours than before,
    or be of a build that says more: a pilot beside the same sample is no other content.
    """
    try:
        if payload == other:
            return True
        one, two = (_body_of(_envelopes.decode(part)) for part in (payload, other))
    except _UNREADABLE:  # `peek` has read the head only
        return False
    return _content(one) == _content(two) and (one.pilot == two.pilot or not (one.pilot and two.pilot))


def _content(body: Body) -> tuple[object, ...]:
    return body.slot, body.round, body.prior, body.prior_known, body.records, body.relayed


# ----------------------------------------------------------------------------------------------------------- the checks


@dataclass(frozen=True)
class CheckedMessage:
    """A message that has passed every check.

    message  what a scheme can use of it; None: a heartbeat, or a message of format 2, whose records are to be checked
             one by one
    proof    that its sender has sent this counter in this slot
    """

    body: Body
    message: InfoMessages | None
    proof: bytes

    @property
    def has_sample(self) -> bool:
        """Whether it says that its sender has sampled its slot."""
        body = self.body
        return bool(body.records) or any(
            (record.origin, record.slot) == (body.server, body.slot) for record in body.relayed
        )


def decode(
    payload: bytes,
    *,
    sender: int,
    digest: bytes,
    regions: int,
    form: str,
    verify: Verify,
    names: Mapping[int, str],
    population: int | None = None,
    coarsest: float = 0.0,
    relays: bool = False,
) -> CheckedMessage:
    """Check a payload from the neighbour `sender`, of whatever slot: whether that is open is up to the caller.

    `MessageRefused` says what is wrong with it. For `population` and `coarsest` see `plausible`; without a population
    no sample is too large. `relays`: the network's servers pass records on, so its messages are of format 2.
    """
    who = names[sender]
    try:
        envelope = _envelopes.decode(payload)
        head = _heads.decode(envelope.head)
    except _UNREADABLE:
        raise MessageRefused("malformed", f"{who} sent something that is not a message of dpcrowd.") from None
    if len(envelope.head) > _MOST_HEAD_BYTES:
        text = f"{who} sent a head of {len(envelope.head)} bytes; allowed: {_MOST_HEAD_BYTES}."
        raise MessageRefused("malformed", text)
    if head.digest == digest and head.server != sender:  # under another configuration it may have another number
        other = names.get(head.server, f"number {head.server}")
        raise MessageRefused("wrong-sender", f"{who} sent a message in the name of {other}.")
    # Nothing is made of the rest, which may be long, before it is known whose it is.
    rest_hash = _hash_of(envelope.rest)
    if not verify(sender, envelope.signature, _BODY, envelope.head, rest_hash):
        text = f"a message of {who} is not signed by a key that network.toml pins for it."
        raise MessageRefused("bad-signature", text)
    if head.digest != digest:
        raise MessageRefused(
            "other-configuration",
            f"{who} runs another configuration: {head.digest.hex()[:32]}, here {digest.hex()}. "
            "Compare network.toml, and the model file if it names one.",
        )
    try:
        body = _body_of(envelope)
    except _UNREADABLE:
        raise MessageRefused("malformed", f"{who} sent something that is not a message of dpcrowd.") from None
    _check_body(body, who, relays)
    proof = _encoder.encode(_Envelope(envelope.head, rest_hash, envelope.signature))
    message = _sample(body, digest, regions, form, verify, who)
    if message is not None:
        try:
            message.check_values(who)
        except BadInput as error:
            raise MessageRefused("absurd", str(error)) from None
        if population is not None and not plausible(message, population, coarsest):
            raise MessageRefused("absurd", f"{who} sent a sample of far more people than there are.")
    return CheckedMessage(body, message, proof)


def _check_body(body: Body, who: str, relays: bool) -> None:
    """Refuse a version that is not understood, and numbers that no server has."""
    if not VERSION - 1 <= body.version <= VERSION + 1:
        text = f"{who} speaks version {body.version}; this node understands versions {VERSION - 1} to {VERSION + 1}."
        raise MessageRefused("version", text)
    if relays != bool(body.version > FORMAT_1):
        text = f"{who} speaks format {body.version}; this network has format {VERSION if relays else FORMAT_1}."
        if relays or body.relayed or body.equivocations or body.asks or body.state:
            raise MessageRefused("version", text)
    if not 0 <= body.slot <= _MOST_SLOTS:
        raise MessageRefused("wrong-slot", f"{who} sent slot {body.slot}; allowed: 0 to {_MOST_SLOTS}.")
    counters = [body.counter, *(2 * echo.counter for echo in body.heard.values())]  # an echo may be counted on from
    if (
        body.round < 1
        or min(counters) < 0
        or max(counters) > _MOST_SAMPLES
        or max(len(body.records), len(body.relayed), len(body.equivocations)) > _MOST_RECORDS
    ):
        raise MessageRefused("malformed", f"{who} sent a round, counter or number of records that cannot be.")
    if relays and (body.records or body.prior or body.prior_known or body.pilot):
        raise MessageRefused("malformed", f"{who} sent vectors; records of this network hold integers.")


def _sample(body: Body, digest: bytes, regions: int, form: str, verify: Verify, who: str) -> InfoMessages | None:
    """Return the sender's own record as the scheme's message; None if it has none."""
    if not body.records:
        return None
    own = [record for record in body.records if record.origin == body.server]
    if len(own) != 1 or len(body.records) != 1:
        text = f"{who} sent {len(body.records)} records in round {body.round}; allowed: its own."
        raise MessageRefused("malformed", text)
    record = own[0]
    message = _info((record.info_vec, record.info_mat, body.prior, body.prior_known), regions, form, who)
    parts = _signed_parts(digest, record.origin, body.slot, record.info_vec, record.info_mat)
    if not verify(record.origin, record.signature, *parts):
        text = f"a record of {who} is not signed by a key that network.toml pins for it."
        raise MessageRefused("bad-signature", text)
    if not body.pilot:
        return message
    if form != "diagonal" or len(body.pilot) != 25 * regions:
        text = f"{who} sent a pilot of {len(body.pilot)} bytes; allowed: {25 * regions}, in the diagonal form."
        raise MessageRefused("wrong-length", text)
    ends = 8 * regions, 16 * regions, 24 * regions
    of_pilot = tuple(body.pilot[first:last] for first, last in zip((0, *ends), (*ends, None), strict=True))
    return replace(message, pilot=_info(of_pilot, regions, form, f"the pilot of {who}"))


def _info(parts: tuple[bytes, ...], regions: int, form: str, who: str) -> InfoMessages:
    """Return info_vec, info_mat, prior and prior_known as the message of one filter, checked."""
    raw_vec, raw_mat, raw_prior, known = parts
    shape = (1, regions) if form == "diagonal" else (1, regions, regions)
    info_vec = _floats(raw_vec, (1, regions), who, "info_vec")
    info_mat = _floats(raw_mat, shape, who, "info_mat")
    prior = _floats(raw_prior, (1, regions), who, "prior")
    if len(known) != regions or not set(known) <= {0, 1}:
        text = f"{who} sent prior_known of {len(known)} bytes; allowed: {regions}."
        raise MessageRefused("wrong-length", text)
    if form == "diagonal" and (info_mat < 0).any():
        raise MessageRefused("negative-information", f"{who} sent an info_mat below 0: no measurement has that.")
    _check_magnitudes(info_vec, info_mat, prior, who)
    has_prior = np.frombuffer(known, dtype=np.uint8).astype(np.bool_)[None, :]
    return InfoMessages(np.ones(1, dtype=np.bool_), info_vec, info_mat, prior, has_prior)


def _floats(raw: bytes, shape: tuple[int, ...], who: str, name: str) -> Floats:
    size = int(np.prod(shape))
    if len(raw) != 8 * size:
        raise MessageRefused("wrong-length", f"{who} sent {name} of {len(raw)} bytes; allowed: {8 * size}.")
    values = np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(shape)
    if not np.isfinite(values).all():
        raise MessageRefused("not-finite", f"{who} sent {name} with NaN or infinity; allowed: finite numbers.")
    return values


def _check_magnitudes(info_vec: Floats, info_mat: Floats, prior: Floats, who: str) -> None:
    """Refuse numbers that overflow later: 1e308 times anything is infinite, and would end everybody's filter."""
    information = np.abs(info_mat if info_mat.ndim == 2 else np.diagonal(info_mat, axis1=1, axis2=2))
    absurd = (information < _LEAST_INFORMATION) & (information != 0.0)
    absurd |= (np.abs(prior) > _LARGEST) | (np.abs(info_vec) > _LARGEST * np.minimum(information, _MOST_INFORMATION))
    if absurd.any() or (np.abs(info_mat) > _MOST_INFORMATION).any():
        raise MessageRefused("absurd", f"{who} sent numbers that no count of people and no epsilon can give.")


def most_counted(population: int, sensitivity: int = 1) -> float:
    """Return the largest count of a region that is not absurd, apart from noise.

    sensitivity  by how much one person changes the counts of a slot
    """
    return _TIMES_POPULATION * population * sensitivity


def plausible(message: InfoMessages, population: int, coarsest: float) -> bool:
    """Whether a sample could be noisy counts, and its prior an estimate, of this many people.

    coarsest  standard deviation of the noisiest honest sample
    """
    if not plausible_sample(message, population):
        return False
    if message.pilot is not None and not plausible(message.pilot, population, coarsest):
        return False
    most = most_counted(population) + DEVIATIONS * coarsest
    return bool((np.abs(message.prior[message.prior_known]) <= most).all())


def plausible_sample(message: InfoMessages, population: int) -> bool:
    """Whether a sample could be noisy counts of this many people, whatever its prior is."""
    if message.pilot is not None and not plausible_sample(message.pilot, population):
        return False
    info_mat, most = message.info_mat, most_counted(population)
    diagonal = info_mat.ndim == 2
    information = info_mat if diagonal else np.diagonal(info_mat, axis1=1, axis2=2)
    above, below = np.maximum(info_mat, 0.0), np.maximum(-info_mat, 0.0)
    if not diagonal:
        if information.max(initial=0.0) > _MOST_IN_MATRIX:
            return False
        above, below = above.sum(axis=2), below.sum(axis=2)
    noise = DEVIATIONS * np.sqrt(np.maximum(information, 0.0))
    return not ((message.info_vec > above * most + noise).any() or (message.info_vec < -below * most - noise).any())


# ----------------------------------------------------------------------------------------------------------- proofs


def proven(proof: bytes, server: int, verify: Verify) -> tuple[int, int] | None:
    """Return the (slot, counter) that a proof shows to be signed with this server's keys; None: it shows nothing."""
    try:
        envelope = _envelopes.decode(proof)
        head = _heads.decode(envelope.head)
    except _UNREADABLE:
        return None
    if not verify(server, envelope.signature, _BODY, envelope.head, envelope.rest):
        return None
    possible = 0 <= head.slot <= _MOST_SLOTS and 0 <= head.counter <= _MOST_SAMPLES
    return (head.slot, head.counter) if possible else None


def proof_digest(proof: bytes) -> bytes | None:
    """Return the digest of the configuration that a proof names; None if it is not a proof."""
    try:
        return _heads.decode(_envelopes.decode(proof).head).digest
    except _UNREADABLE:
        return None
