"""The records that a node has of a network whose servers pass them on, from slot to slot and revision to revision.

A record counts once, whoever brings it. Estimates are a function of the set of records, so all servers that reach each
other must end with the same set. What a node knows of that set has four parts:

    held        records and proofs of the last L slots, and which of them the filter and the disk have (`held_records`)
    arrivals    what is accepted of what neighbours bring, and who is at fault if something is not (`arrivals`)
    forwarding  which neighbour has which record, and so what it is sent (`forwarding`)
    waiting     whose records a slot waits for, and whose are overdue, by the public schedule (`schedules`)

Each record is checked by the revision of the network that was valid in its slot (`revision.KnownRevisions`). Here is
what concerns all parts at once: a slot begins, a revision takes over, the node joins late, the own sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpcrowd.arrays import Floats, Ints
from dpcrowd.node.machine.arrivals import Arrivals
from dpcrowd.node.machine.forwarding import Forwarding, next_hop
from dpcrowd.node.machine.held_records import HeldRecords, Key
from dpcrowd.node.machine.instructions import Instruction, Report, StoredRecord
from dpcrowd.node.machine.revision import KnownRevisions, NetworkView, RecordTerms
from dpcrowd.node.machine.schedules import AwaitedRecords
from dpcrowd.node.wire_records import Equivocation, SignedRecord, pack, sign_record
from dpcrowd.schemes.server import Server

__all__ = ["Records"]

_SUSPECT = (
    "records of {name} disagree with those of the other servers, and count less from slot {slot} on: its share in "
    "network.toml, or that of a region, may not be what it counts, or may have moved; or its feed may have stopped, "
    "count people twice, or name the wrong regions. Its operator should know."
)
_PROOF_INVALID = (
    "the data folder has a proof that {origin} signed two different records for slot {slot}, but the revision that was "
    "valid in this slot does not confirm both signatures: the proof is not used. If this server did not take that "
    "revision late, the folder is damaged, or somebody has changed it."
)


class Records:
    """What one node knows of the records of the last L slots.

    view    the revision in use
    server  whose filter they are for
    stored  what the disk has
    earlier revisions that were valid before it, oldest first, as far as they are known

    suspects  by name: the slot since which an origin's records count less, because they disagree with others; for those
              who show it, and nobody else changes it
    """

    def __init__(
        self,
        view: NetworkView,
        server: Server,
        stored: Sequence[StoredRecord] = (),
        earlier: Sequence[NetworkView] = (),
    ) -> None:
        self.revisions = KnownRevisions(view, earlier)
        self.held = HeldRecords(self.revisions, stored)
        self.held.compare_with(server)
        self.forwarding = Forwarding(self.revisions, self.held)
        self.waiting = AwaitedRecords(self.revisions, self.held)
        self.arrivals = Arrivals(self.revisions, self.held, self.forwarding, self.waiting)
        self.suspects: dict[str, int] = {}

    @property
    def terms(self) -> RecordTerms:
        """What the revision in use says about records."""
        return self.revisions.terms

    def suspect(self, numbers: Iterable[int], slot: int) -> list[Instruction]:
        """Note whose records the filter gives less weight after a slot; return what an operator should know of it."""
        names = [self.revisions.current.names[number] for number in numbers]
        new = [name for name in names if name not in self.suspects]
        self.suspects = {name: self.suspects.get(name, slot) for name in names}
        return [Report("suspect", _SUSPECT.format(name=name, slot=slot)) for name in new]

    def proofs(self) -> list[tuple[str, bytes, Equivocation]]:
        """Return the proofs that are kept, with their origins and the digests of the revisions valid in their slots."""
        views = [(key, self.revisions.at(key.slot), proof) for key, proof in self.held.proofs.items()]
        known = [(key, view.digest, proof.proof) for key, view, proof in views if view is not None]
        return [(key.origin, digest, proof) for key, digest, proof in sorted(known, key=lambda one: one[0])]

    def report_invalid_proofs(self) -> list[Instruction]:
        """Return what an operator should know of stored proofs that were not used, once."""
        invalid = self.held.take_invalid_proofs()
        return [Report("proof-invalid", _PROOF_INVALID.format(**key._asdict()), grave=True) for key in invalid]

    # -------------------------------------------------------------------------------- slots, revisions, another start

    def begin_slot(self, slot: int) -> None:
        """Forget what is final when a slot is sealed."""
        first = slot - self.terms.lag + 1
        self.arrivals.begin_slot(first)
        self.held.forget_before(first)
        self.forwarding.forget_before(first)
        self.revisions.forget_before(first)

    def take_over(self, view: NetworkView, server: Server) -> None:
        """Continue under the next revision; records of earlier slots are checked by the one that was valid then."""
        before = self.revisions.current
        self.revisions.add(view)
        gone = [key for key in self.held.records if view.number(key.origin) is None or key.slot >= view.first_slot]
        for key in gone:  # of a server that has left, or made under a revision that was not valid any more
            self.held.drop(key)
            self.forwarding.drop(key)
        self.held.compare_with(server)
        self.waiting.take_over(before)

    def lacks_revision(self, server: Server, now: int) -> bool:
        """Whether records that still count in slot `now` cannot be checked: their revision is not known here."""
        return max(int(server.mailbox.since), now - self.terms.lag + 1, 0) < self.revisions.first_known

    def join(self, server: Server) -> None:
        """Note that the server has joined: its filter has everything that is kept and not final."""
        for key in [key for key in self.held.records if key.slot <= server.slot - self.terms.lag]:
            self.held.drop(key)
        self.held.compare_with(server)
        self.waiting.learn_again()

    def clear(self) -> None:
        """Forget all records: slots begin again, with other numbers."""
        self.suspects.clear()
        self.arrivals.equivocators.clear()
        self.held.clear()
        self.forwarding.clear()
        self.waiting.clear()

    # ------------------------------------------------------------------------------------------------- the own sample

    def own(self, slot: int) -> SignedRecord | None:
        """Return the own record of a slot, as it is sent; None: there was no sample."""
        held = self.held.records.get(self._own_key(slot))
        return None if held is None else next_hop(held.record, self.terms)

    def add_own(self, slot: int, nano: int, noisy: Floats, groups: Ints | None = None) -> bytes:
        """Sign and keep the own sample of a slot; return the record as it is stored with its payment.

        groups  (d,) of its regions; None: every region is by itself
        """
        view, key = self.revisions.current, self._own_key(slot)
        if key not in self.held.records:
            record = sign_record(
                noisy, digest=view.digest, origin=view.me, slot=slot, nano=nano, sign=view.sign, groups=groups
            )
            self.held.add_own(key, record, noisy, groups)
        return pack(self.held.records[key].record)

    def drop_own(self, slot: int) -> None:
        """Forget the own sample of a slot, which was not paid for after all and was seen by nobody."""
        self.held.drop(self._own_key(slot))

    def _own_key(self, slot: int) -> Key:
        return Key(slot, self.revisions.current.name)
