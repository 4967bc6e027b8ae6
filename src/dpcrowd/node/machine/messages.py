"""The messages of the protocol: what a node writes into them, and how a neighbour's message is checked.

    round 1   once per slot: the own sample or record, and what is remembered of the receivers' ledgers
    round 2   passes on records and proofs of any servers
    round 3   late join: a request for a neighbour's finalised state, or the state itself

Every message tells the counter of the sender's ledger and is signed. The layout is in `wire`.
"""

from __future__ import annotations

from dpcrowd.node.machine.forwarding import Outgoing
from dpcrowd.node.machine.neighbours import Echoes
from dpcrowd.node.machine.revision import NetworkView
from dpcrowd.node.wire import FORMAT_1, VERSION, Body, CheckedMessage, Record, decode, encode, pilot_of, record_of
from dpcrowd.node.wire_records import SignedRecord
from dpcrowd.schemes.messages import InfoMessages

__all__ = ["check_message", "forward_message", "join_answer", "join_request", "slot_message"]


def check_message(view: NetworkView, number: int, payload: bytes) -> CheckedMessage:
    """Check a neighbour's message under a revision of the network; `MessageRefused` says what is wrong."""
    return decode(
        payload,
        sender=number,
        digest=view.digest,
        regions=len(view.regions),
        form=view.form,
        verify=view.verify,
        names=dict(enumerate(view.names)),
        population=view.population,
        coarsest=view.coarsest,
        relays=view.records is not None,
    )


def slot_message(
    view: NetworkView,
    slot: int,
    counter: int,
    echoes: Echoes,
    *,
    sample: InfoMessages | None = None,
    record: SignedRecord | None = None,
    after: bool = False,
) -> bytes:
    """Return the message of a slot; without a sample and a record it is a heartbeat.

    echoes  what is remembered of the receivers
    sample  the own one, where servers exchange estimates
    record  the own one, where servers pass records on
    after   whether it is written again, after the exchange of its slot
    """
    records: tuple[Record, ...] = ()
    prior, prior_known, pilot = b"", b"", b""
    if sample is not None:
        records = (record_of(sample, digest=view.digest, origin=view.me, slot=slot, sign=view.sign),)
        prior = sample.prior[0].astype("<f8").tobytes()
        prior_known = sample.prior_known[0].astype("u1").tobytes()
        pilot = pilot_of(sample)
    version = FORMAT_1 if view.records is None else VERSION
    body = Body(
        version,
        view.digest,
        view.me,
        slot,
        1,
        counter,
        heard=echoes.heard,
        prior=prior,
        prior_known=prior_known,
        records=records,
        proofs=echoes.proofs,
        since=echoes.since,
        expires=view.expires,
        after=after,
        relayed=() if record is None else (record,),
        pilot=pilot,
    )
    return encode(body, view.sign)


def forward_message(view: NetworkView, slot: int, counter: int, outgoing: Outgoing) -> bytes:
    """Return a message that passes records and proofs on."""
    head = VERSION, view.digest, view.me, slot, 2, counter
    return encode(Body(*head, heard={}, relayed=outgoing.records, equivocations=outgoing.proofs), view.sign)


def join_request(view: NetworkView, slot: int, counter: int) -> bytes:
    """Return a message that asks for a neighbour's finalised state after a slot."""
    return encode(Body(VERSION, view.digest, view.me, slot, 3, counter, heard={}, asks=True), view.sign)


def join_answer(view: NetworkView, slot: int, counter: int, state: bytes) -> bytes:
    """Return a message with the own finalised state after a slot."""
    return encode(Body(VERSION, view.digest, view.me, slot, 3, counter, heard={}, state=state), view.sign)
