"""The records that a node has of a network whose servers pass them on: which it keeps, forwards, waits for and refuses.

A record counts once, whoever brings it. When one arrives it is checked before anything is made of it:

    its layout and hops      at fault is the neighbour that sent it: honest servers pass no such record on
    its slot                 within the last L slots; older ones are too late, and only counted
    its origin's signature   by the keys of the revision that is valid in its slot
    its account and values   at fault is the origin, which has signed them

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

Who has which. A record goes to every neighbour that does not have it yet: those that sent it, or were sent it since
their link came up, have it. So it is never sent back, nor twice, and a neighbour that comes up gets everything that is
left of the last L slots. Its hops are counted where it arrives; it is passed on while they are below the reach.

Who is waited for. A slot is released when the records of all origins that sample in it have arrived. The schedule is
public; a server that has missed a sample has moved its schedule, which shows in the slot of its next record
(`Schedules`). Whoever has missed its last sample is not waited for until a record of it arrives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.errors import BadInput
from dpcrowd.node.machine.instructions import Instruction, RefuseMessage, Report, StoredRecord
from dpcrowd.node.machine.revision import NetworkView, RecordTerms
from dpcrowd.node.machine.schedules import Schedules
from dpcrowd.node.wire import MessageRefused
from dpcrowd.node.wire_records import (
    Equivocation,
    RecordValues,
    SignedRecord,
    pack,
    read_values,
    same_sample,
    sign_record,
    signed_parts,
    unpack_proof,
    unpack_record,
)
from dpcrowd.schemes.records import Obstacle, RecordMessages, ungrouped
from dpcrowd.schemes.server import Server

__all__ = ["MOST_USELESS", "Key", "Outgoing", "Records"]

MOST_USELESS = 64
"""Signatures of records that no honest server passes on, after which a neighbour is not heard any more in a slot."""


_SUSPECT = (
    "records of {name} disagree with those of the other servers, and count less from slot {slot} on: its operator "
    "should know that its feed may have stopped, count people twice, or name the wrong regions."
)
_PROOF_INVALID = (
    "the data folder has a proof that {origin} signed two different records for slot {slot}, but the revision that was "
    "valid in this slot does not confirm both signatures: the proof is not used. If this server did not take that "
    "revision late, the folder is damaged, or somebody has changed it."
)


class Key(NamedTuple):
    """The slot of a record, and the name of its origin, which is the same in all revisions."""

    slot: int
    origin: str


@dataclass
class _Held:
    """A record that was accepted.

    record         with the hops that it has travelled to this node
    noisy, groups  what it holds; groups None: every region is by itself
    fused          whether it was given to the filter
    """

    record: SignedRecord
    noisy: Floats
    groups: Ints | None = None
    fused: bool = False


@dataclass
class _Proof:
    """A proof of equivocation; fused: whether the filter was told."""

    proof: Equivocation
    fused: bool = False


class Outgoing(NamedTuple):
    """What is sent to some neighbours, by name, in one message."""

    to: tuple[str, ...]
    records: tuple[SignedRecord, ...]
    proofs: tuple[Equivocation, ...]


_Item = tuple[Literal["record", "proof"], Key]
# Slot, origin, nano-epsilon, hops, values and groups of a record.
_Row = tuple[int, int, int, int, Floats, Ints | None]


class Records:
    """What one node knows of the records of the last L slots.

    view    the revision in use
    server  whose filter they are for
    stored  what the disk has
    earlier revisions that were valid before it, oldest first, as far as they are known

    For those who show it, and nobody else changes it:

    received_by, late_by by (neighbour, origin): how many records counted when they arrived, or arrived after their slot
                         was final; an empty text is an origin that is not known any more
    forwarded_to         by neighbour: how many records were sent to it
    refused              how many were refused, by the name of who is at fault and the reason
    equivocators         by name: the last slot for which an origin has signed different records, as long as the proof
                         is kept, for L slots
    suspects             by name: the slot since which an origin's records count less, because they disagree with others
    arrived              slots of the records that the last message has brought
    schedules            who samples when, and who is missing
    """

    def __init__(
        self,
        view: NetworkView,
        server: Server,
        stored: Sequence[StoredRecord] = (),
        earlier: Sequence[NetworkView] = (),
    ) -> None:
        self._views = [*earlier, view]
        self._held: dict[Key, _Held] = {}
        self._proofs: dict[Key, _Proof] = {}
        self._known: dict[str, set[_Item]] = {}
        self._waiting: dict[str, set[int]] = {}  # by origin: slots of records that the filter was not given yet
        self._fused: list[_Held | _Proof] = []  # what the filter was given last
        self._checks: Counter[str] = Counter()
        self._useless: Counter[str] = Counter()  # of those: of records that no honest server passes on
        self._fresh: dict[_Item, None] = {}  # what has arrived since everything was passed on
        self._adopted: dict[Key, _Held] = {}  # own records of an earlier run, which others have
        self._behind: set[str] = set()  # neighbours that get everything: their links have come up
        self._unstored: dict[_Item, None] = {}
        self._storing: dict[_Item, None] = {}
        self.received_by: Counter[tuple[str, str]] = Counter()
        self.late_by: Counter[tuple[str, str]] = Counter()
        self.forwarded_to: Counter[str] = Counter()
        self.suspects: dict[str, int] = {}
        self.arrived: list[int] = []
        self._released: tuple[int, int] | None = None  # the first and the last slot that this run has released
        self.refused: Counter[tuple[str, str]] = Counter()
        self.equivocators: dict[str, int] = {}
        self._invalid_proofs: list[Key] = []
        for one in sorted(stored, key=lambda one: one.slot):
            key = Key(one.slot, one.origin)
            if one.kind == "proof":
                if (proof := self._stored_proof(one)) is not None:
                    self._proofs[key] = _Proof(proof, fused=True)
                    self.equivocators[one.origin] = one.slot
            elif (values := self._values_of(record := unpack_record(one.content))) is not None:
                self._held[key] = _Held(record, values.noisy, values.groups)
        self._held = {key: held for key, held in self._held.items() if view.number(key.origin) is not None}
        self._compare_with(server)

    @property
    def view(self) -> NetworkView:
        """The revision in use."""
        return self._views[-1]

    @property
    def terms(self) -> RecordTerms:
        assert self.view.records is not None
        return self.view.records

    @property
    def me(self) -> str:
        return self.view.names[self.view.me]

    @property
    def received(self) -> int:
        """How many records were accepted."""
        return self.received_by.total()

    @property
    def late(self) -> int:
        """How many records arrived after their slot was final."""
        return self.late_by.total()

    @property
    def forwarded(self) -> int:
        """How many records were sent on, counted per neighbour."""
        return self.forwarded_to.total()

    def overdue(self, origin: str) -> int | None:
        """Return the slot in which an origin should have sampled next and of which there is no record; None: none.

        Why this server itself has no sample, it knows better (`NotSampled`).
        """
        number = self.view.number(origin)
        if number is None or number == self.view.me or self._released is None:
            return None
        return self.schedules.overdue(number, *self._released)

    def is_final(self, slot: int) -> bool:
        """Whether a record of a slot would come too late."""
        return self._released is not None and slot <= self._released[1] - self.terms.lag

    def suspect(self, numbers: Iterable[int], slot: int) -> list[Instruction]:
        """Note whose records the filter gives less weight after a slot; return what an operator should know of it."""
        names = [self.view.names[number] for number in numbers]
        new = [name for name in names if name not in self.suspects]
        self.suspects = {name: self.suspects.get(name, slot) for name in names}
        return [Report("suspect", _SUSPECT.format(name=name, slot=slot)) for name in new]

    def proofs(self) -> list[tuple[str, bytes, Equivocation]]:
        """Return the proofs that are kept, with their origins and the digests of the revisions valid in their slots."""
        views = [(key, self._view_at(key.slot), proof) for key, proof in self._proofs.items()]
        known = [(key, view.digest, proof.proof) for key, view, proof in views if view is not None]
        return [(key.origin, digest, proof) for key, digest, proof in sorted(known, key=lambda one: one[0])]

    def last_slot(self, origin: str) -> int | None:
        """Return the slot of the last record of an origin that is kept; None: none of the last L slots."""
        return max((key.slot for key in self._held if key.origin == origin), default=None)

    # ---------------------------------------------------------------------------------------------------- revisions

    @property
    def earlier(self) -> tuple[NetworkView, ...]:
        """Revisions that were valid before the one in use and whose records may still count, oldest first."""
        return tuple(self._views[:-1])

    @property
    def first_known(self) -> int:
        """The first slot whose revision is known; records of earlier slots cannot be checked."""
        return self._views[0].first_slot

    def lacks_revision(self, server: Server, now: int) -> bool:
        """Whether records that still count in slot `now` cannot be checked: their revision is not known here."""
        return max(int(server.mailbox.since), now - self.terms.lag + 1, 0) < self.first_known

    def account_starts(self) -> set[int]:
        """Return the slots with which accounts of origins may have begun: those of revisions, and of a horizon."""
        ends = self.terms.ends
        return {view.first_slot for view in self._views} | (set() if ends is None else {ends - self.terms.length})

    def lag_shares(self, last: int) -> Floats | None:
        """Return the shares of the last L slots up to `last`, slot s at place s mod L, (L, servers); None: as now.

        Shares that differ by region are (L, servers, d).

        A record counts with the share that its origin had in its slot, by the revision that was valid then.
        """
        terms, names = self.terms, self.view.names
        if len(self._views) == 1 or not terms.shares:
            return None
        shares = np.stack([np.array(terms.shares)] * terms.lag)
        for slot in range(max(last - terms.lag + 1, 0), last + 1):
            view = self._view_at(slot)
            if view is None or view.records is None or not view.records.shares:
                continue
            if np.shape(view.records.shares)[1:] != shares.shape[2:]:  # of other regions: its records are final
                continue
            for number, name in enumerate(names):
                if (before := view.number(name)) is not None:
                    shares[slot % terms.lag, number] = view.records.shares[before]
        return shares

    def _view_at(self, slot: int) -> NetworkView | None:
        """Return the revision that was valid in a slot; None: it is not known any more."""
        return next((view for view in reversed(self._views) if view.first_slot <= slot), None)

    def view_of(self, digest: bytes) -> NetworkView | None:
        """Return the revision in use, or one of the last L slots, by its digest."""
        return next((view for view in reversed(self._views) if view.digest == digest), None)

    def use_key(self, view: NetworkView) -> None:
        """Continue with the same revision and a renewed key."""
        self._views[-1] = view

    def take_over(self, view: NetworkView, server: Server) -> None:
        """Continue under the next revision; records of earlier slots are checked by the one that was valid then."""
        before, schedules = self.view, self.schedules
        self._views.append(view)
        gone = [key for key in self._held if view.number(key.origin) is None or key.slot >= view.first_slot]
        for key in gone:  # of a server that has left, or made under a revision that was not valid any more
            del self._held[key]
        self._compare_with(server)
        self._continue_schedules(before, schedules)

    def _continue_schedules(self, before: NetworkView, schedules: Schedules) -> None:
        """Remember across a revision when each origin has sampled last, which may be longer ago than the lag.

        Without that, every server that samples less than once in `lag` slots would be missing at once, since the first
        slot of this run. If the revision changes how often servers sample, nothing is overdue before it.
        """
        if not schedules.has_schedule_of(self.terms):
            self.schedules = self._learn_schedules(self.view.first_slot)
            return
        slots = {name: schedules.last_slot(number) for number, name in enumerate(before.names)}
        lasts = [Key(slot, name) for name, slot in slots.items() if slot is not None]
        self.schedules = self._learn_schedules(schedules.begins, lasts)

    def _compare_with(self, server: Server) -> None:
        """Find out what a server's filter has, and when others sample."""
        self._waiting.clear()
        for key, held in self._held.items():
            number = self.view.number(key.origin)
            held.fused = number is None or number == self.view.me or server.holds_record(number, key.slot)
            if not held.fused:
                self._waiting.setdefault(key.origin, set()).add(key.slot)
        for proof in self._proofs.values():
            proof.fused = False
        self.schedules = self._learn_schedules()

    def _values_of(self, record: SignedRecord) -> RecordValues | None:
        """Return the values of a record that was stored; None: it is not valid under the revision of its slot.

        A server that takes a revision late has signed records under the one before, which nobody else can use.
        """
        view = self._view_at(record.slot)
        if view is None or not view.verify(record.origin, record.signature, *signed_parts(record, view.digest)):
            return None
        return read_values(_travelled(record), len(view.regions))

    def _stored_proof(self, stored: StoredRecord) -> Equivocation | None:
        """Return a proof that was stored; None: it proves nothing, or the revision of its slot is not known any more.

        Neighbours' proofs are checked as they arrive; those on disk once more, since whoever can write to the data
        folder could accuse any server.
        """
        view = self._view_at(stored.slot)
        if view is None:
            return None
        number = view.number(stored.origin)
        try:
            proof = unpack_proof(stored.content)
            for record in _both(proof):
                read_values(_travelled(record), len(view.regions))
        except BadInput:
            self._invalid_proofs.append(Key(stored.slot, stored.origin))
            return None
        is_proven = not same_sample(proof.first, proof.second) and all(
            (record.origin, record.slot) == (number, stored.slot)
            and view.verify(record.origin, record.signature, *signed_parts(record, view.digest))
            for record in _both(proof)
        )
        if not is_proven:
            self._invalid_proofs.append(Key(stored.slot, stored.origin))
        return proof if is_proven else None

    def report_invalid_proofs(self) -> list[Instruction]:
        """Return what an operator should know of stored proofs that were not used, once."""
        invalid, self._invalid_proofs = self._invalid_proofs, []
        return [Report("proof-invalid", _PROOF_INVALID.format(**key._asdict()), grave=True) for key in invalid]

    def _learn_schedules(self, begins: int = 0, lasts: Iterable[Key] = ()) -> Schedules:
        """Return when others sample, from the records that are kept and from the last ones of each origin."""
        schedules = Schedules(self.terms, self.view.me, begins)
        for key in sorted({*self._held, *lasts}):
            number = self.view.number(key.origin)
            if number is not None:
                schedules.hear(number, key.slot)
        return schedules

    def clear(self) -> None:
        """Forget all records: slots begin again, with other numbers."""
        self._released = None
        self.suspects.clear()
        self.equivocators.clear()
        self._held.clear()
        self._adopted.clear()
        self._proofs.clear()
        self._known.clear()
        self._waiting.clear()
        self._fresh.clear()
        self._unstored.clear()
        self._storing.clear()
        self.schedules = self._learn_schedules()

    # ------------------------------------------------------------------------------------------------------- the slot

    def begin_slot(self, slot: int) -> None:
        """Forget what is final when a slot is sealed."""
        self._checks.clear()
        self._useless.clear()
        first = slot - self.terms.lag + 1
        self._held = {key: held for key, held in self._held.items() if key.slot >= first}
        self._adopted = {key: held for key, held in self._adopted.items() if key.slot >= first}
        self._proofs = {key: proof for key, proof in self._proofs.items() if key.slot >= first}
        self.equivocators = {name: last for name, last in self.equivocators.items() if last >= first}
        self._unstored = {item: None for item in self._unstored if item[1].slot >= first}
        self._fresh = {item: None for item in self._fresh if item[1].slot >= first}
        for neighbour, known in self._known.items():
            self._known[neighbour] = {item for item in known if item[1].slot >= first}
        while len(self._views) > 1 and self._views[1].first_slot <= first:
            del self._views[0]

    def own(self, slot: int) -> SignedRecord | None:
        """Return the own record of a slot, as it is sent; None: there was no sample."""
        held = self._held.get(Key(slot, self.me))
        return None if held is None else self._sent(held.record)

    def add_own(self, slot: int, nano: int, noisy: Floats, groups: Ints | None = None) -> bytes:
        """Sign and keep the own sample of a slot; return the record as it is stored with its payment.

        groups  (d,) of its regions; None: every region is by itself
        """
        view, key = self.view, Key(slot, self.me)
        if key not in self._held:
            record = sign_record(
                noisy, digest=view.digest, origin=view.me, slot=slot, nano=nano, sign=view.sign, groups=groups
            )
            self._held[key] = _Held(record, noisy, groups, fused=True)  # the server has it from its own draw
        return pack(self._held[key].record)

    def drop_own(self, slot: int) -> None:
        """Forget the own sample of a slot, which was not paid for after all and was seen by nobody."""
        self._held.pop(Key(slot, self.me), None)

    def awaited(self, slot: int) -> set[str]:
        """Return the origins whose records of a slot are due and have not arrived."""
        names = self.view.names
        return self.lacking(slot, {names[number] for number in self.schedules.expected(slot)})

    def lacking(self, slot: int, origins: Iterable[str]) -> set[str]:
        """Return those of the origins whose records of a slot have not arrived."""
        return {name for name in origins if Key(slot, name) not in self._held and Key(slot, name) not in self._proofs}

    def end_slot(self, slot: int) -> None:
        """Note who is missing when a slot is released."""
        self._released = slot if self._released is None else self._released[0], slot
        for name in self.awaited(slot):
            number = self.view.number(name)
            assert number is not None
            self.schedules.miss(number)

    def messages(self) -> RecordMessages | None:
        """Return what the filter has not been given yet, in the order of slots and origins; None: nothing."""
        rows: list[_Row] = []
        regions = len(self.view.regions)
        every: list[_Held | _Proof] = [*self._proofs.values(), *self._held.values()]
        self._fused = [one for one in every if not one.fused]
        for key, proof in self._proofs.items():
            number = self.view.number(key.origin)
            if not proof.fused and number is not None:
                rows.append((key.slot, number, 0, 1, np.zeros(regions), None))
            proof.fused = True
        for key, held in self._held.items():
            number = self.view.number(key.origin)
            if not held.fused and number is not None and len(held.noisy) == regions:
                rows.append((key.slot, number, held.record.nano, held.record.hops, held.noisy, held.groups))
            held.fused = True
        self._waiting.clear()
        return _message_of(rows)

    def all_messages(self) -> RecordMessages | None:
        """Return everything that is kept for a filter that has nothing, own records of earlier runs among it."""
        rows: list[_Row] = []
        regions = len(self.view.regions)
        for key in self._proofs:
            if (number := self.view.number(key.origin)) is not None:
                rows.append((key.slot, number, 0, 1, np.zeros(regions), None))
        for key, held in (self._adopted | self._held).items():
            number = self.view.number(key.origin)
            if number is not None and len(held.noisy) == regions:
                hops = max(held.record.hops, 1)
                rows.append((key.slot, number, held.record.nano, hops, held.noisy, held.groups))
        return _message_of(rows)

    def join(self, server: Server) -> None:
        """Note that the server has joined: its filter has everything that is kept and not final."""
        self._held = {key: held for key, held in self._held.items() if key.slot > server.slot - self.terms.lag}
        self._compare_with(server)

    def undo_fusion(self) -> None:
        """Note that the server has returned to its state before it was given records for the last time."""
        for one in self._fused:
            one.fused = False
        for key, held in self._held.items():
            if not held.fused:
                self._waiting.setdefault(key.origin, set()).add(key.slot)

    # ------------------------------------------------------------------------------------------------------- arrivals

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
        """Whether a neighbour has had too many signatures checked in this slot for so many more."""
        if self._useless[sender] >= MOST_USELESS:
            return True
        return self._checks[sender] + signatures > self.terms.most_checks

    def _read(self, sender: str, record: SignedRecord) -> RecordValues | None:
        """Return the values of a record; None: the revision of its slot is not known here, or another one.

        A server that took a revision late, or not at all, has other records of the slots before the next one than its
        neighbours. Nobody is to blame for that now, and none of these records can be checked.
        """
        view = self._view_at(record.slot)
        if view is None:
            return None
        try:
            if record.origin >= len(view.names):
                raise BadInput(f"a record of server {record.origin}; there are {len(view.names)}.")
            return read_values(record, len(view.regions))
        except BadInput as error:
            if view is not self.view:
                return None
            self.refused[sender, "malformed"] += 1
            raise MessageRefused("malformed", f"{sender} sent {error}") from None

    def _take(
        self, sender: str, record: SignedRecord, values: RecordValues, now: int, server: Server
    ) -> list[Instruction]:
        view = self._view_at(record.slot)
        assert view is not None
        key = Key(record.slot, view.names[record.origin])
        number = self.view.number(key.origin)
        if record.slot > now:
            text = f"{sender} sent a record of slot {record.slot}, which is not over yet."
            return [self._refuse(now, sender, "wrong-slot", text)]
        if record.slot <= now - self.terms.lag or number is None:
            self.late_by[sender, key.origin] += 1
            return []
        held = self._held.get(key)
        if key in self._proofs or (held is not None and same_sample(held.record, record)):
            self._learn_path(sender, key, record)
            return []
        if not self._signed(sender, view, record):
            if view is not self.view:
                self.late_by[sender, key.origin] += 1
                return []
            self._useless[sender] += 1
            text = f"{sender} sent a record of {key.origin} that is not signed by a key that network.toml pins for it."
            return [self._refuse(now, sender, "bad-signature", text)]
        if held is not None:
            self._known_by(sender).add(("record", key))
            return self._expose(key, held.record, record)
        obstacle = server.record_obstacle(number, record.slot, record.nano, record.hops, now)
        if obstacle == "late":
            self.late_by[sender, key.origin] += 1
            return []
        refusal = self._refuse_unusable(sender, key, obstacle, values, now)
        if refusal is not None:
            self._useless[sender] += view is self.view
            return [refusal]
        if obstacle is not None:
            return []  # its slot is void
        if key.origin == self.me:  # of an earlier run, which its state knows
            self._adopted.setdefault(key, _Held(record, values.noisy, values.groups))
            return []
        before = self._above_account(key.origin, server)
        self._held[key] = _Held(record, values.noisy, values.groups)
        self._waiting.setdefault(key.origin, set()).add(key.slot)
        self._unstored["record", key] = self._fresh["record", key] = None
        self._known_by(sender).add(("record", key))
        self.arrived.append(key.slot)
        above = self._above_account(key.origin, server)
        if key.slot not in above:
            self.schedules.hear(number, key.slot)
            self.received_by[sender, key.origin] += 1
        return [self._refuse_above(key.origin, slot, now) for slot in sorted(above - before)]

    def _above_account(self, origin: str, server: Server) -> set[int]:
        """Return the slots of an origin's records that its account does not allow, by all that has arrived."""
        number = self.view.number(origin)
        assert number is not None
        proven = {key.slot for key, proof in self._proofs.items() if key.origin == origin and not proof.fused}
        return set(server.above_account(number, proven | self._waiting.get(origin, set())))

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
            case None if values.is_grouped and not self.terms.groups:
                text = f"{key.origin} has signed a record of grouped regions, which this network does not use."
                return self._refuse(now, key.origin, "grouped", text)
            case None if not self._is_plausible(values):
                text = f"{key.origin} has signed a record of far more people than there are."
                return self._refuse(now, key.origin, "absurd", text)
        return None

    def _learn_path(self, sender: str, key: Key, record: SignedRecord) -> None:
        """Note that a neighbour has a record, and whether it has come a shorter way than before."""
        if key in self._proofs:
            return
        self._known_by(sender).add(("record", key))
        held = self._held[key]
        if record.hops < held.record.hops:
            held.record = msgspec.structs.replace(held.record, hops=record.hops)
            self._fresh["record", key] = None  # it may be passed on now

    def _signed(self, sender: str, view: NetworkView, record: SignedRecord) -> bool:
        self._checks[sender] += 1
        return view.verify(record.origin, record.signature, *signed_parts(record, view.digest))

    def _is_plausible(self, values: RecordValues) -> bool:
        terms = self.terms
        return bool(((values.noisy >= terms.least) & (values.noisy <= terms.most)).all())

    # --------------------------------------------------------------------------------------------------- equivocation

    def _take_proof(self, sender: str, proof: Equivocation, now: int) -> list[Instruction]:
        """Take a proof that a neighbour has sent.

        The proof that is passed on contains the record that was passed on before, if there was one. So a neighbour that
        has this record checks one signature more; one that has none checks two; and one that has another record of
        the same slot one, since this record and its own are a proof. Whoever has a proof checks nothing.
        """
        first, second = _both(proof)
        view = self._view_at(first.slot)
        if view is None or first.slot <= now - self.terms.lag or first.slot > now:
            return []
        key = Key(first.slot, view.names[first.origin])
        if (first.origin, first.slot) != (second.origin, second.slot) or same_sample(first, second):
            text = f"{sender} sent two records as a proof of equivocation that prove nothing."
            return [self._refuse(now, sender, "malformed", text)]
        if key in self._proofs:
            self._known_by(sender).add(("proof", key))
            return []
        held = self._held.get(key)
        if held is not None:  # its signature is known to be good, and it differs from at least one of the two
            first, second = held.record, second if same_sample(held.record, first) else first
        if not self._signed(sender, view, second) or (held is None and not self._signed(sender, view, first)):
            if view is not self.view:
                return []
            self._useless[sender] += 1
            text = f"{sender} sent a proof of equivocation that {key.origin} has not signed."
            return [self._refuse(now, sender, "bad-signature", text)]
        self._known_by(sender).add(("proof", key))
        return self._expose(key, first, second)

    def _expose(self, key: Key, one: SignedRecord, other: SignedRecord) -> list[Instruction]:
        """Let no record of this origin and slot count, and say so once as long as the origin is known for it."""
        first, second = sorted((_travelled(one), _travelled(other)), key=pack)
        repeated = any(known.origin == key.origin for known in self._proofs)
        self._held.pop(key, None)
        self._waiting.get(key.origin, set()).discard(key.slot)
        self._unstored.pop(("record", key), None)
        self._fresh.pop(("record", key), None)
        self._proofs[key] = _Proof(Equivocation(first, second))
        self._unstored["proof", key] = self._fresh["proof", key] = None
        self.equivocators[key.origin] = max(key.slot, self.equivocators.get(key.origin, -1))
        self.refused[key.origin, "equivocation"] += 1
        number = self.view.number(key.origin)
        if number is not None:
            self.schedules.hear(number, key.slot)
        if repeated:
            return []
        text = (
            f"{key.origin} has signed two different records for slot {key.slot}: neither of them counts, and both are "
            "shown to all servers. Ask its operator whether a copy of the server runs, or its folder was restored."
        )
        return [Report("equivocation", text, grave=True)]

    def _refuse(self, slot: int, who: str, reason: str, text: str) -> RefuseMessage:
        self.refused[who, reason] += 1
        return RefuseMessage(slot, who, reason, text)

    # ----------------------------------------------------------------------------------------------------- forwarding

    def link_up(self, neighbour: str) -> None:
        """Note that a neighbour's link has come up: nothing is known of what it has."""
        self._known[neighbour] = set()
        self._behind.add(neighbour)

    def doubt_sent(self) -> None:
        """Note that messages were dropped before they were sent: nothing is known of what neighbours have."""
        self._known.clear()

    def _known_by(self, neighbour: str) -> set[_Item]:
        """Return what a neighbour has; one of which nothing is known yet gets everything."""
        if neighbour not in self._known:
            self.link_up(neighbour)
        return self._known[neighbour]

    def mark_own_sent(self, slot: int, neighbours: Iterable[str]) -> None:
        """Note that these neighbours have the own record of a slot from the slot's message."""
        for neighbour in neighbours:
            self._known_by(neighbour).add(("record", Key(slot, self.me)))

    def outgoing(self, neighbours: Sequence[str], *, to_all: bool) -> list[Outgoing]:
        """Return what each of these neighbours does not have yet; from now on it counts as sent.

        to_all  whether these are all neighbours that there are
        """
        missing: dict[tuple[_Item, ...], list[str]] = {}
        for neighbour in neighbours:
            items = self._forwardable(neighbour)
            known = self._known_by(neighbour)
            lacking = tuple(item for item in items if item not in known)
            self._behind.discard(neighbour)
            if lacking:
                known.update(lacking)
                missing.setdefault(lacking, []).append(neighbour)
        if to_all:
            self._fresh.clear()
        messages: list[Outgoing] = []
        for lacking, names in missing.items():
            for start in range(0, len(lacking), self.terms.per_message // 2):
                part = lacking[start : start + self.terms.per_message // 2]
                records = tuple(self._sent(self._held[key].record) for kind, key in part if kind == "record")
                proofs = tuple(self._proofs[key].proof for kind, key in part if kind == "proof")
                messages.append(Outgoing(tuple(names), records, proofs))
                self.forwarded_to.update(dict.fromkeys(names, len(records)))
        return messages

    def _sent(self, record: SignedRecord) -> SignedRecord:
        """Return a record as the next server gets it: one link farther."""
        return msgspec.structs.replace(record, hops=min(record.hops + 1, max(self._farthest, 1)))

    def has_outgoing(self, neighbours: Iterable[str]) -> bool:
        """Whether a neighbour lacks anything."""
        return any(item not in self._known.get(name, ()) for name in neighbours for item in self._forwardable(name))

    def _forwardable(self, neighbour: str) -> list[_Item]:
        """Return what may be passed on to a neighbour, in order; a record only while its hops are below the reach.

        Where records reach everybody, hops do not matter: no origin has signed them, and a forwarder that names too
        many would keep a record from others.
        """
        if neighbour in self._behind or neighbour not in self._known:
            items = sorted(self._everything(), key=lambda item: item[1])
        else:
            items = sorted(self._fresh, key=lambda item: item[1])
        reach = self.terms.reach
        if reach is None or reach >= self._farthest:
            return items
        return [(kind, key) for kind, key in items if kind == "proof" or self._held[key].record.hops < reach]

    @property
    def _farthest(self) -> int:
        """Return how many links a record travels at most: no honest one goes farther, whatever a neighbour says."""
        return len(self.terms.offsets) - 1

    # -------------------------------------------------------------------------------------------------------- storing

    def store(self) -> tuple[StoredRecord, ...]:
        """Return what is to be stored; from now on it counts as stored, unless `storing_failed` says otherwise."""
        self._storing, self._unstored = self._unstored, {}
        return tuple(self._stored_form(kind, key) for kind, key in self._storing if self._keeps(kind, key))

    def storing_done(self) -> None:
        """Note that all instructions that were given have been carried out."""
        self._storing = {}

    def storing_failed(self) -> None:
        """Note that an instruction failed: of what was to be stored nothing is relied upon."""
        self._unstored = {**self._storing, **self._unstored}
        self._storing = {}

    def contents(self) -> tuple[StoredRecord, ...]:
        """Return everything that is kept, as it is stored."""
        return tuple(self._stored_form(kind, key) for kind, key in self._everything())

    def _everything(self) -> list[_Item]:
        return [*(("record", key) for key in self._held), *(("proof", key) for key in self._proofs)]

    def _keeps(self, kind: str, key: Key) -> bool:
        return key in (self._held if kind == "record" else self._proofs)

    def _stored_form(self, kind: Literal["record", "proof"], key: Key) -> StoredRecord:
        content = self._held[key].record if kind == "record" else self._proofs[key].proof
        return StoredRecord(key.slot, key.origin, kind, pack(content))


def _message_of(rows: list[_Row]) -> RecordMessages | None:
    """Return records as the filter takes them, in the order of slots and origins; None: there are none."""
    if not rows:
        return None
    rows.sort(key=lambda row: row[:2])
    slots, origins, nano, hops = (np.array([row[place] for row in rows], dtype=np.int64) for place in range(4))
    noisy = np.stack([row[4] for row in rows])
    own = ungrouped(noisy.shape[1])
    groups = np.stack([own if row[5] is None else row[5] for row in rows])
    return RecordMessages.of(origins, slots, nano, hops, noisy, groups)


def _travelled(record: SignedRecord) -> SignedRecord:
    """Return a record as any server could have got it; in proofs, hops say nothing."""
    return msgspec.structs.replace(record, hops=1)


def _both(proof: Equivocation) -> tuple[SignedRecord, SignedRecord]:
    return proof.first, proof.second
