"""The records and proofs that a node keeps for L slots, and which of them its filter and its disk have.

There is one record, or one proof that there are two, per origin and slot. What is kept was checked before (`arrivals`).

The filter is given each of them once, with the next release (`messages`); if that release is undone, once more. A
record is stored with the release after its arrival, so that a node that is restarted has what it has passed on; the own
record is stored with its payment.

Which records were kept is remembered for another L slots: a neighbour that comes back sends them once more, and a copy
of a record that was used in time is not late.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.errors import BadInput
from dpcrowd.node.machine.instructions import StoredRecord
from dpcrowd.node.machine.revision import KnownRevisions
from dpcrowd.node.wire_records import (
    Equivocation,
    RecordValues,
    SignedRecord,
    pack,
    read_values,
    same_sample,
    signed_parts,
    unpack_proof,
    unpack_record,
)
from dpcrowd.schemes.records import RecordMessages, ungrouped
from dpcrowd.schemes.server import Server

__all__ = ["HeldProof", "HeldRecord", "HeldRecords", "Item", "Key"]


class Key(NamedTuple):
    """The slot of a record, and the name of its origin, which is the same in all revisions."""

    slot: int
    origin: str


Item = tuple[Literal["record", "proof"], Key]


@dataclass
class HeldRecord:
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
class HeldProof:
    """A proof of equivocation; fused: whether it was given to the filter."""

    proof: Equivocation
    fused: bool = False


# Slot, origin, nano-epsilon, hops, values and groups of a record.
_Row = tuple[int, int, int, int, Floats, Ints | None]


class HeldRecords:
    """Records and proofs of the last L slots.

    revisions  by which records are checked, and origins are numbered
    stored     what the disk has

    Others may read `records` and `proofs`, by slot and origin, and do not change them.
    """

    def __init__(self, revisions: KnownRevisions, stored: Sequence[StoredRecord] = ()) -> None:
        self._revisions = revisions
        self.records: dict[Key, HeldRecord] = {}
        self.proofs: dict[Key, HeldProof] = {}
        self._adopted: dict[Key, HeldRecord] = {}  # own records of an earlier run, which others have
        self._unfused: dict[str, set[int]] = {}  # by origin: slots of records that the filter was not given yet
        self._last_fused: list[HeldRecord | HeldProof] = []
        self._unstored: dict[Item, None] = {}
        self._storing: dict[Item, None] = {}
        self._invalid_proofs: list[Key] = []
        self._final: set[Key] = set()  # of records and proofs that were kept until their slots were final
        for one in sorted(stored, key=lambda one: one.slot):
            key = Key(one.slot, one.origin)
            if one.kind == "proof":
                if (proof := self._stored_proof(one)) is not None:
                    self.proofs[key] = HeldProof(proof, fused=True)
            elif (values := self._stored_values(record := unpack_record(one.content))) is not None:
                self.records[key] = HeldRecord(record, values.noisy, values.groups)
        view = revisions.current
        self.records = {key: held for key, held in self.records.items() if view.number(key.origin) is not None}

    def _stored_values(self, record: SignedRecord) -> RecordValues | None:
        """Return the values of a record that was stored; None: it is not valid under the revision of its slot.

        A server that takes a revision late has signed records under the one before, which nobody else can use.
        """
        view = self._revisions.at(record.slot)
        if view is None or not view.verify(record.origin, record.signature, *signed_parts(record, view.digest)):
            return None
        return read_values(_travelled(record), len(view.regions))

    def _stored_proof(self, stored: StoredRecord) -> Equivocation | None:
        """Return a proof that was stored; None: it proves nothing, or the revision of its slot is not known any more.

        Neighbours' proofs are checked as they arrive; those on disk once more, since whoever can write to the data
        folder could accuse any server.
        """
        view = self._revisions.at(stored.slot)
        if view is None:
            return None
        number, proof = view.number(stored.origin), None
        with contextlib.suppress(BadInput):
            proof = unpack_proof(stored.content)
            for record in (proof.first, proof.second):
                read_values(_travelled(record), len(view.regions))
        is_proven = (
            proof is not None
            and not same_sample(proof.first, proof.second)
            and all(
                (record.origin, record.slot) == (number, stored.slot)
                and view.verify(record.origin, record.signature, *signed_parts(record, view.digest))
                for record in (proof.first, proof.second)
            )
        )
        if not is_proven:
            self._invalid_proofs.append(Key(stored.slot, stored.origin))
        return proof if is_proven else None

    def take_invalid_proofs(self) -> list[Key]:
        """Return which stored proofs were not used, once."""
        invalid, self._invalid_proofs = self._invalid_proofs, []
        return invalid

    # -------------------------------------------------------------------------------------------------------- keeping

    def add(self, key: Key, held: HeldRecord) -> None:
        """Keep a record of another server."""
        self.records[key] = held
        self._unfused.setdefault(key.origin, set()).add(key.slot)
        self._unstored["record", key] = None

    def add_proof(self, key: Key, one: SignedRecord, other: SignedRecord) -> None:
        """Keep a proof of equivocation instead of a record."""
        first, second = sorted((_travelled(one), _travelled(other)), key=pack)
        self.records.pop(key, None)
        self._unfused.get(key.origin, set()).discard(key.slot)
        self._unstored.pop(("record", key), None)
        self.proofs[key] = HeldProof(Equivocation(first, second))
        self._unstored["proof", key] = None

    def add_own(self, key: Key, record: SignedRecord, noisy: Floats, groups: Ints | None) -> None:
        """Keep an own sample, which the filter has from its own draw and which is stored with its payment."""
        self.records[key] = HeldRecord(record, noisy, groups, fused=True)

    def adopt(self, key: Key, held: HeldRecord) -> None:
        """Keep an own record of an earlier run for a filter that has nothing."""
        self._adopted.setdefault(key, held)

    def drop(self, key: Key) -> None:
        """Forget a record, if there is one."""
        self.records.pop(key, None)

    def forget_before(self, first: int) -> None:
        """Forget everything of slots before `first`, which are final, but for which records there were."""
        final = {key for key in (*self.records, *self.proofs) if key.slot < first}
        self._final = {key for key in self._final | final if key.slot >= first - self._revisions.terms.lag}
        self.records = {key: held for key, held in self.records.items() if key.slot >= first}
        self._adopted = {key: held for key, held in self._adopted.items() if key.slot >= first}
        self.proofs = {key: proof for key, proof in self.proofs.items() if key.slot >= first}
        self._unstored = {item: None for item in self._unstored if item[1].slot >= first}

    def clear(self) -> None:
        """Forget everything."""
        self.records.clear()
        self._adopted.clear()
        self.proofs.clear()
        self._unfused.clear()
        self._unstored.clear()
        self._storing.clear()
        self._final.clear()

    def items(self) -> list[Item]:
        """Return the kinds and keys of everything that is kept."""
        return [*(("record", key) for key in self.records), *(("proof", key) for key in self.proofs)]

    def was_kept(self, key: Key) -> bool:
        """Whether a record, or a proof, of a slot that became final in the last L slots was kept until then."""
        return key in self._final

    def last_slot(self, origin: str) -> int | None:
        """Return the slot of the last record of an origin that is kept; None: none of the last L slots."""
        return max((key.slot for key in self.records if key.origin == origin), default=None)

    # ----------------------------------------------------------------------------------------------------- the filter

    def compare_with(self, server: Server) -> None:
        """Find out what a server's filter has."""
        view = self._revisions.current
        self._unfused.clear()
        for key, held in self.records.items():
            number = view.number(key.origin)
            held.fused = number is None or number == view.me or server.holds_record(number, key.slot)
            if not held.fused:
                self._unfused.setdefault(key.origin, set()).add(key.slot)
        for proof in self.proofs.values():
            proof.fused = False

    def unfused_slots(self, origin: str) -> set[int]:
        """Return the slots of an origin's records and proofs that the filter was not given yet."""
        proven = {key.slot for key, proof in self.proofs.items() if key.origin == origin and not proof.fused}
        return proven | self._unfused.get(origin, set())

    def messages(self) -> RecordMessages | None:
        """Return what the filter has not been given yet, in the order of slots and origins; None: nothing."""
        rows: list[_Row] = []
        view = self._revisions.current
        regions = len(view.regions)
        every: list[HeldRecord | HeldProof] = [*self.proofs.values(), *self.records.values()]
        self._last_fused = [one for one in every if not one.fused]
        for key, proof in self.proofs.items():
            number = view.number(key.origin)
            if not proof.fused and number is not None:
                rows.append((key.slot, number, 0, 1, np.zeros(regions), None))
            proof.fused = True
        for key, held in self.records.items():
            number = view.number(key.origin)
            if not held.fused and number is not None and len(held.noisy) == regions:
                rows.append((key.slot, number, held.record.nano, held.record.hops, held.noisy, held.groups))
            held.fused = True
        self._unfused.clear()
        return _message_of(rows)

    def all_messages(self) -> RecordMessages | None:
        """Return everything that is kept for a filter that has nothing, own records of earlier runs among it."""
        rows: list[_Row] = []
        view = self._revisions.current
        regions = len(view.regions)
        for key in self.proofs:
            if (number := view.number(key.origin)) is not None:
                rows.append((key.slot, number, 0, 1, np.zeros(regions), None))
        for key, held in (self._adopted | self.records).items():
            number = view.number(key.origin)
            if number is not None and len(held.noisy) == regions:
                hops = max(held.record.hops, 1)
                rows.append((key.slot, number, held.record.nano, hops, held.noisy, held.groups))
        return _message_of(rows)

    def undo_fusion(self) -> None:
        """Note that the server has returned to its state before it was given records for the last time."""
        for one in self._last_fused:
            one.fused = False
        for key, held in self.records.items():
            if not held.fused:
                self._unfused.setdefault(key.origin, set()).add(key.slot)

    # ------------------------------------------------------------------------------------------------------- the disk

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
        return tuple(self._stored_form(kind, key) for kind, key in self.items())

    def _keeps(self, kind: str, key: Key) -> bool:
        return key in (self.records if kind == "record" else self.proofs)

    def _stored_form(self, kind: Literal["record", "proof"], key: Key) -> StoredRecord:
        content = self.records[key].record if kind == "record" else self.proofs[key].proof
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
    """Return a record as any server could have got it; in proofs, and on disk, hops say nothing."""
    return msgspec.structs.replace(record, hops=1)
