"""Which neighbour has which record, and so what is passed on to it.

A record, or proof, goes to every neighbour that does not have it yet: those that sent it, or were sent it since their
link came up, have it. So it is never sent back, nor twice, and a neighbour that comes up gets everything that is left
of the last L slots. The hops of a record are counted where it arrives; it is passed on while they are below the reach.
Proofs go to everybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from dpcrowd.node.machine.held_records import HeldRecords, Item, Key
from dpcrowd.node.machine.revision import KnownRevisions, RecordTerms
from dpcrowd.node.wire_records import Equivocation, SignedRecord

__all__ = ["Forwarding", "Outgoing", "next_hop"]


class Outgoing(NamedTuple):
    """What is sent to some neighbours, by name, in one message."""

    to: tuple[str, ...]
    records: tuple[SignedRecord, ...]
    proofs: tuple[Equivocation, ...]


class Forwarding:
    """What each neighbour has of the records that are held, and lacks.

    revisions     which say how far records travel
    held          what may be passed on
    forwarded_to  by neighbour: how many records were sent to it; for those who show it, and nobody else changes it
    """

    def __init__(self, revisions: KnownRevisions, held: HeldRecords) -> None:
        self._revisions, self._held = revisions, held
        self._known: dict[str, set[Item]] = {}
        self._fresh: dict[Item, None] = {}  # what has arrived since everything was passed on
        self._behind: set[str] = set()  # neighbours that get everything: their links have come up
        self.forwarded_to: Counter[str] = Counter()

    # -------------------------------------------------------------------------------------------------- who has which

    def link_up(self, neighbour: str) -> None:
        """Note that a neighbour's link has come up: nothing is known of what it has."""
        self._known[neighbour] = set()
        self._behind.add(neighbour)

    def doubt_sent(self) -> None:
        """Note that messages were dropped before they were sent: nothing is known of what neighbours have."""
        self._known.clear()

    def mark_known(self, neighbour: str, item: Item) -> None:
        """Note that a neighbour has a record or proof."""
        self._known_by(neighbour).add(item)

    def mark_own_sent(self, slot: int, neighbours: Iterable[str]) -> None:
        """Note that these neighbours have the own record of a slot from the slot's message."""
        for neighbour in neighbours:
            self.mark_known(neighbour, ("record", Key(slot, self._revisions.current.name)))

    def _known_by(self, neighbour: str) -> set[Item]:
        """Return what a neighbour has; one of which nothing is known yet gets everything."""
        if neighbour not in self._known:
            self.link_up(neighbour)
        return self._known[neighbour]

    # ------------------------------------------------------------------------------------------------ what is to pass

    def add(self, key: Key) -> None:
        """Have a record passed on that has arrived, or that has come a shorter way than before."""
        self._fresh["record", key] = None

    def add_proof(self, key: Key) -> None:
        """Have a proof passed on, and no longer the record in its place."""
        self._fresh.pop(("record", key), None)
        self._fresh["proof", key] = None

    def drop(self, key: Key) -> None:
        """Pass a record on no more, which is not held any longer."""
        self._fresh.pop(("record", key), None)

    def forget_before(self, first: int) -> None:
        """Forget everything of slots before `first`."""
        self._fresh = {item: None for item in self._fresh if item[1].slot >= first}
        for neighbour, known in self._known.items():
            self._known[neighbour] = {item for item in known if item[1].slot >= first}

    def clear(self) -> None:
        """Forget what neighbours have, and what was to be passed on."""
        self._known.clear()
        self._fresh.clear()

    # -------------------------------------------------------------------------------------------------------- sending

    def outgoing(self, neighbours: Sequence[str], *, to_all: bool, first: int = 0) -> list[Outgoing]:
        """Return what each of these neighbours does not have yet; from now on it counts as sent.

        to_all  whether these are all neighbours that there are
        first   the first slot that is not final by the clock; earlier ones, which a node still holds that was away,
                are of no use to anybody
        """
        missing: dict[tuple[Item, ...], list[str]] = {}
        for neighbour in neighbours:
            items = [item for item in self._forwardable(neighbour) if item[1].slot >= first]
            known = self._known_by(neighbour)
            lacking = tuple(item for item in items if item not in known)
            self._behind.discard(neighbour)
            if lacking:
                known.update(lacking)
                missing.setdefault(lacking, []).append(neighbour)
        if to_all:
            self._fresh.clear()
        messages: list[Outgoing] = []
        terms, held = self._revisions.terms, self._held
        for lacking, names in missing.items():
            for start in range(0, len(lacking), terms.per_message // 2):
                part = lacking[start : start + terms.per_message // 2]
                records = tuple(next_hop(held.records[key].record, terms) for kind, key in part if kind == "record")
                proofs = tuple(held.proofs[key].proof for kind, key in part if kind == "proof")
                messages.append(Outgoing(tuple(names), records, proofs))
                self.forwarded_to.update(dict.fromkeys(names, len(records)))
        return messages

    def has_outgoing(self, neighbours: Iterable[str]) -> bool:
        """Whether a neighbour lacks anything."""
        return any(item not in self._known.get(name, ()) for name in neighbours for item in self._forwardable(name))

    def _forwardable(self, neighbour: str) -> list[Item]:
        """Return what may be passed on to a neighbour, in order; a record only while its hops are below the reach.

        Where records reach everybody, hops do not matter: no origin has signed them, and a forwarder that names too
        many would keep a record from others.
        """
        if neighbour in self._behind or neighbour not in self._known:
            items = sorted(self._held.items(), key=lambda item: item[1])
        else:
            items = sorted(self._fresh, key=lambda item: item[1])
        terms, held = self._revisions.terms, self._held.records
        reach = terms.reach
        if reach is None or reach >= terms.farthest:
            return items
        return [(kind, key) for kind, key in items if kind == "proof" or held[key].record.hops < reach]


def next_hop(record: SignedRecord, terms: RecordTerms) -> SignedRecord:
    """Return a record as the next server gets it: one link farther."""
    return msgspec.structs.replace(record, hops=min(record.hops + 1, max(terms.farthest, 1)))
