"""What a neighbour brings, records and proofs, is checked before anything is made of it.

A record counts once, whoever brings it. When one arrives it is checked:

    its layout and hops      at fault is the neighbour that sent it: honest servers pass no such record on
    its slot                 within the last L slots; older ones are too late, and only counted, unless they are copies
    its origin's signature   by the keys of the revision that is valid in its slot
    its account and values   at fault is the origin, which has signed them

A server that takes a revision late signs its records under the revision before until then, and neighbours that are as
late pass them on. Nobody can use such a record, but nobody has forged it either: if its signature is valid under
another revision that is still known here, its origin is named, for its configuration. The revisions that are known only
decide what is said of a record that is not accepted.

Only accepted records are kept, stored and forwarded: one per origin and slot, for L slots. What one neighbour can make
a node check is bounded per slot (`RecordTerms.most_checks`), and far more so if nothing honest is in it
(`MOST_USELESS`).

The same records everywhere. Estimates are a function of the set of records, so servers must end with the same set
whatever an origin sends to whom, and in whatever order. Of each origin and slot a server knows one of three things, and
each can only be followed by the next: nothing, one record, or a proof that there are two. Whatever it learns it passes
on, once; so all servers that reach each other end with the same. There are two ways to break the rules:

    two different records for one slot   are a proof of equivocation. Neither of them counts. The proof travels like a
                                         record, but to everybody. One per slot is enough, and others are not looked at
    more records than the account holds  each is signed once, and nothing is proven against any of them. They are kept
                                         and passed on; which of them count is decided in the order of slots and not of
                                         arrival (`schemes.records`)

It would be simpler to leave out everything that an origin has signed from its first proof on. But this would have to
be remembered for longer than the L slots for which anybody keeps records, and told to servers that join late; and an
operator who has run a copy of a server by mistake would lose all of its records instead of those that contradict each
other. Slot by slot, everything is forgotten when it is final, and the work is bounded: an origin can have at most one
record and one proof per slot passed on, which is two signatures per neighbour (`_take_proof`).

A record, or proof, that reaches its first server shortly before its slot is final may be too late at others. Then their
estimates differ within their intervals, until records that arrive in time have outweighed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from dpcrowd.errors import BadInput
from dpcrowd.node.machine.forwarding import Forwarding
from dpcrowd.node.machine.held_records import HeldRecord, HeldRecords, Key
from dpcrowd.node.machine.instructions import Instruction, RefuseMessage, Report
from dpcrowd.node.machine.revision import KnownRevisions, NetworkView
from dpcrowd.node.machine.schedules import AwaitedRecords
from dpcrowd.node.wire import MessageReason, MessageRefused
from dpcrowd.node.wire_records import (
    Equivocation,
    RecordValues,
    SignedRecord,
    read_values,
    same_sample,
    signed_parts,
)
from dpcrowd.schemes.records import Obstacle
from dpcrowd.schemes.server import Server

__all__ = ["MOST_USELESS", "Arrivals"]

MOST_USELESS = 64
"""Signatures of records that no honest server passes on, after which a neighbour is not heard any more in a slot."""


class Arrivals:
    """Checks what arrives; what is accepted is held, passed on, and not waited for any more.

    revisions   by which records are checked
    held        where accepted records and proofs are kept
    forwarding  which passes them on
    waiting     which waits for them

    For those who show it, and nobody else changes it:

    received_by, late_by by (neighbour, origin): how many records counted when they arrived, or arrived after their slot
                         was final; an empty text is an origin that is not known any more
    refused              how many were refused, by the name of who is at fault and the reason
    equivocators         by name: the last slot for which an origin has signed different records, as long as the proof
                         is kept, for L slots
    new_slots            slots of the records that the last message has brought
    """

    def __init__(
        self, revisions: KnownRevisions, held: HeldRecords, forwarding: Forwarding, waiting: AwaitedRecords
    ) -> None:
        self._revisions, self._held, self._forwarding, self._waiting = revisions, held, forwarding, waiting
        self._checks: Counter[str] = Counter()
        self._useless: Counter[str] = Counter()  # of those: of records that no honest server passes on
        self.received_by: Counter[tuple[str, str]] = Counter()
        self.late_by: Counter[tuple[str, str]] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()
        self.equivocators: dict[str, int] = {key.origin: key.slot for key in sorted(held.proofs)}
        # By neighbour and key: records that are signed under a revision that was not valid in their slot.
        self._other_revision: dict[tuple[str, Key], SignedRecord] = {}
        self.new_slots: list[int] = []

    def begin_slot(self, first: int) -> None:
        """Let neighbours have signatures checked again, and forget proofs of slots before `first`."""
        self._checks.clear()
        self._useless.clear()
        self.equivocators = {name: last for name, last in self.equivocators.items() if last >= first}
        self._other_revision = {one: record for one, record in self._other_revision.items() if one[1].slot >= first}

    def receive(
        self,
        sender: str,
        records: Sequence[SignedRecord],
        proofs: Sequence[Equivocation],
        now: int,
        server: Server,
    ) -> list[Instruction]:
        """Take what a neighbour has sent, in a message that was checked; return what has to be said about it.

        now  the last slot that is sealed
        """
        instructions: list[Instruction] = []
        read = [self._read(sender, record) for record in records]
        readable = [all(self._read(sender, one) is not None for one in _both(proof)) for proof in proofs]
        dropped = False
        for record, values in zip(records, read, strict=True):
            if values is None:
                self.late_by[sender, ""] += 1
            elif self._is_limited(sender):
                dropped = True
            else:
                instructions += self._take(sender, record, values, now, server)
        for proof, is_readable in zip(proofs, readable, strict=True):
            if is_readable and self._is_limited(sender, 2):
                dropped = True
            elif is_readable:
                instructions += self._take_proof(sender, proof, now)
        if dropped:
            text = f"{sender} had this server check more signatures in one slot than it can need; the rest is dropped."
            instructions.append(self._refuse(now, sender, "rate-limited", text))
        return instructions

    def may_check_message(self, sender: str) -> bool:
        """Whether one more message of a neighbour may be checked in this slot; from now on it counts as checked."""
        if self._is_limited(sender):
            return False
        self._checks[sender] += 1
        return True

    def _is_limited(self, sender: str, signatures: int = 1) -> bool:
        """Whether checking this many more signatures of a neighbour would exceed the limit of the slot."""
        if self._useless[sender] >= MOST_USELESS:
            return True
        return self._checks[sender] + signatures > self._revisions.terms.most_checks

    def _read(self, sender: str, record: SignedRecord) -> RecordValues | None:
        """Return the values of a record; None: the revision of its slot is not known here, or another one.

        A server that took a revision late, or not at all, has other records of the slots before the next one than its
        neighbours, and made its own under the revision before. Nobody is to blame for that now, and none of these
        records can be checked.
        """
        view = self._revisions.at(record.slot)
        if view is None:
            return None
        try:
            return _values(record, view)
        except BadInput as error:
            if view is not self._revisions.current or any(_fits(record, one) for one in self._revisions.earlier):
                return None
            self.refused[sender, "malformed"] += 1
            raise MessageRefused("malformed", f"{sender} sent {error}") from None

    def _take(
        self, sender: str, record: SignedRecord, values: RecordValues, now: int, server: Server
    ) -> list[Instruction]:
        view = self._revisions.at(record.slot)
        assert view is not None
        key = Key(record.slot, view.names[record.origin])
        number = self._revisions.current.number(key.origin)
        if record.slot > now:
            text = f"{sender} sent a record of slot {record.slot}, which is not over yet."
            return [self._refuse(now, sender, "wrong-slot", text)]
        if record.slot <= now - self._revisions.terms.lag or number is None:
            if not self._held.was_kept(key):
                self.late_by[sender, key.origin] += 1
            return []
        held = self._held.records.get(key)
        if key in self._held.proofs or (held is not None and same_sample(held.record, record)):
            self._learn_path(sender, key, record)
            return []
        if self._is_known_elsewhere(sender, key, record):
            return []
        if not self._signed(sender, view, record):
            return self._leave_out_unsigned(sender, key, record, now)
        if held is not None:
            self._forwarding.mark_known(sender, ("record", key))
            return self._expose(key, held.record, record)
        obstacle = server.record_obstacle(number, record.slot, record.nano, record.hops, now)
        if obstacle == "late":
            self.late_by[sender, key.origin] += 1
            return []
        refusal = self._refuse_unusable(sender, key, obstacle, values, now)
        if refusal is not None:
            self._useless[sender] += view is self._revisions.current
            return [refusal]
        if obstacle is not None:
            return []  # its slot is void
        if key.origin == self._revisions.current.name:  # of an earlier run, which its state knows
            self._held.adopt(key, HeldRecord(record, values.noisy, values.groups))
            return []
        before = self._above_account(key.origin, server)
        self._held.add(key, HeldRecord(record, values.noisy, values.groups))
        self._forwarding.add(key)
        self._forwarding.mark_known(sender, ("record", key))
        self.new_slots.append(key.slot)
        above = self._above_account(key.origin, server)
        if key.slot not in above:
            self._waiting.hear(key.origin, key.slot)
            self.received_by[sender, key.origin] += 1
        return [self._refuse_above(key.origin, slot, now) for slot in sorted(above - before)]

    def _leave_out_unsigned(self, sender: str, key: Key, record: SignedRecord, now: int) -> list[Instruction]:
        """Leave a record out that is not signed under the revision that was valid in its slot; name who is at fault."""
        if self._revisions.at(record.slot) is not self._revisions.current:
            self.late_by[sender, key.origin] += 1
            return []
        if (other := self._signed_elsewhere(sender, record)) is not None:
            return self._leave_to(other, sender, key, record, now)
        self._useless[sender] += 1
        text = f"{sender} sent a record of {key.origin} that is not signed by a key that network.toml pins for it."
        return [self._refuse(now, sender, "bad-signature", text)]

    def _above_account(self, origin: str, server: Server) -> set[int]:
        """Return the slots of an origin's records that its account does not allow, by all that has arrived."""
        number = self._revisions.current.number(origin)
        assert number is not None
        return set(server.above_account(number, self._held.unfused_slots(origin)))

    def _refuse_above(self, origin: str, slot: int, now: int) -> RefuseMessage:
        text = (
            f"{origin} has signed a record for slot {slot} that its public account does not allow: it does not count."
        )
        return self._refuse(now, origin, "above-account", text)

    def _refuse_unusable(
        self, sender: str, key: Key, obstacle: Obstacle | None, values: RecordValues, now: int
    ) -> RefuseMessage | None:
        """Refuse a record that is validly signed and that no server can use, so that no honest one sends it."""
        match obstacle:
            case "hops":
                text = f"{sender} sent a record of {key.origin} that has travelled farther than the network is wide."
                return self._refuse(now, sender, "malformed", text)
            case "price":
                text = f"{key.origin} has signed a record for slot {key.slot} with a larger epsilon than a sample has."
                return self._refuse(now, key.origin, "above-account", text)
            case None if values.is_grouped and not self._revisions.terms.groups:
                text = f"{key.origin} has signed a record of grouped regions, which this network does not use."
                return self._refuse(now, key.origin, "grouped", text)
            case None if not self._revisions.terms.is_plausible(values.noisy):
                text = f"{key.origin} has signed a record of far more people than there are."
                return self._refuse(now, key.origin, "absurd", text)
        return None

    def _learn_path(self, sender: str, key: Key, record: SignedRecord) -> None:
        """Note that a neighbour has a record, and whether it has come a shorter way than before."""
        if key in self._held.proofs:
            return
        self._forwarding.mark_known(sender, ("record", key))
        held = self._held.records[key]
        if record.hops < held.record.hops:
            held.record = msgspec.structs.replace(held.record, hops=record.hops)
            self._forwarding.add(key)  # it may be passed on now

    def _signed(self, sender: str, view: NetworkView, record: SignedRecord) -> bool:
        self._checks[sender] += 1
        return view.verify(record.origin, record.signature, *signed_parts(record, view.digest))

    # ------------------------------------------------------------------------------------------------ other revisions

    def _is_known_elsewhere(self, sender: str, key: Key, record: SignedRecord) -> bool:
        """Whether a neighbour has sent this record already, and it was found to be of another revision."""
        known = self._other_revision.get((sender, key))
        return known is not None and known.signature == record.signature and same_sample(known, record)

    def _signed_elsewhere(self, sender: str, record: SignedRecord) -> NetworkView | None:
        """Return the earlier revision under which a record is signed that is not signed under that of its slot.

        A server of the next revision sends its messages under it, and they are refused as such before anybody looks
        at their records.
        """
        views = (view for view in reversed(self._revisions.earlier) if _fits(record, view))
        return next((view for view in views if self._signed(sender, view, record)), None)

    def _leave_to(self, view: NetworkView, sender: str, key: Key, record: SignedRecord, now: int) -> list[Instruction]:
        """Leave a record out that is signed under another revision; its origin is named, and not who passes it on.

        An honest neighbour passes on one record per origin and slot. More of them, which an origin can sign at will,
        are checked no more often than forged ones.
        """
        if (sender, key) in self._other_revision:
            self._useless[sender] += 1
        self._other_revision[sender, key] = record
        origin = view.names[record.origin]
        if origin == self._revisions.current.name:  # which has taken the revision late, and knows it
            return []
        text = (
            f"{origin} has signed a record for slot {record.slot} under revision {view.revision} of network.toml, not "
            f"under revision {self._revisions.current.revision}, which is valid in this slot: it does not count."
        )
        return [self._refuse(now, origin, "other-configuration", text)]

    # --------------------------------------------------------------------------------------------------- equivocation

    def _take_proof(self, sender: str, proof: Equivocation, now: int) -> list[Instruction]:
        """Take a proof that a neighbour has sent.

        The proof that is passed on contains the record that was passed on before, if there was one. So a neighbour that
        has this record checks one signature more; one that has none checks two; and one that has another record of
        the same slot one, since this record and its own are a proof. Whoever has a proof checks nothing.
        """
        first, second = _both(proof)
        view = self._revisions.at(first.slot)
        if view is None or first.slot <= now - self._revisions.terms.lag or first.slot > now:
            return []
        key = Key(first.slot, view.names[first.origin])
        if (first.origin, first.slot) != (second.origin, second.slot) or same_sample(first, second):
            text = f"{sender} sent two records as a proof of equivocation that prove nothing."
            return [self._refuse(now, sender, "malformed", text)]
        if key in self._held.proofs:
            self._forwarding.mark_known(sender, ("proof", key))
            return []
        held = self._held.records.get(key)
        if held is not None:  # its signature is known to be good, and it differs from at least one of the two
            first, second = held.record, second if same_sample(held.record, first) else first
        if self._is_known_elsewhere(sender, key, second):
            return []
        if not self._signed(sender, view, second) or (held is None and not self._signed(sender, view, first)):
            if view is not self._revisions.current:
                return []
            others = [
                self._signed_elsewhere(sender, one) for one in ((second,) if held is not None else (second, first))
            ]
            if others[0] is not None and all(others):
                return self._leave_to(others[0], sender, key, second, now)
            self._useless[sender] += 1
            text = f"{sender} sent a proof of equivocation that {key.origin} has not signed."
            return [self._refuse(now, sender, "bad-signature", text)]
        self._forwarding.mark_known(sender, ("proof", key))
        return self._expose(key, first, second)

    def _expose(self, key: Key, one: SignedRecord, other: SignedRecord) -> list[Instruction]:
        """Let no record of this origin and slot count, and say so once as long as the origin is known for it."""
        repeated = any(known.origin == key.origin for known in self._held.proofs)
        self._held.add_proof(key, one, other)
        self._forwarding.add_proof(key)
        self.equivocators[key.origin] = max(key.slot, self.equivocators.get(key.origin, -1))
        self.refused[key.origin, "equivocation"] += 1
        self._waiting.hear(key.origin, key.slot)
        if repeated:
            return []
        text = (
            f"{key.origin} has signed two different records for slot {key.slot}: neither of them counts, and both are "
            "shown to all servers. Ask its operator whether a copy of the server runs, or its folder was restored."
        )
        return [Report("equivocation", text, grave=True)]

    def _refuse(self, slot: int, who: str, reason: MessageReason, text: str) -> RefuseMessage:
        self.refused[who, reason] += 1
        return RefuseMessage(slot, who, reason, text)


def _both(proof: Equivocation) -> tuple[SignedRecord, SignedRecord]:
    return proof.first, proof.second


def _values(record: SignedRecord, view: NetworkView) -> RecordValues:
    """Return the values of a record of a revision; `BadInput`: it has another form."""
    if record.origin >= len(view.names):
        raise BadInput(f"a record of server {record.origin}; there are {len(view.names)}.")
    return read_values(record, len(view.regions))


def _fits(record: SignedRecord, view: NetworkView) -> bool:
    """Whether a record has the form that a revision asks for."""
    try:
        _values(record, view)
    except BadInput:
        return False
    return True
