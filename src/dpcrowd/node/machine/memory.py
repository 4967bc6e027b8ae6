"""What neighbours have said of their own ledgers: remembered for them, and told to them again.

Of each the highest counter that it ever said is kept, the slot in which it first said so, and a proof that it did: its
own signature, which it can check by its own key. The counter is echoed in every message. The proof is long and travels
only when it may be needed: when the neighbour's last word told less than is remembered, when it said nothing in the
slot before, and may come back as an old copy of itself, or when its link has just come up.

An echo says "I would know if you had spent more", and so must outlive a crash of this node: it is on disk before it is
told (`StoreCounters`, or the last `StoreRelease`). What could not be stored is not echoed; what was stored earlier is.

How far back the memory of a neighbour reaches is kept with its counter (`since`): to the slot of the last sample that
was heard of it, or else of its first word. A counter that rises without a sample, because that was missed here, does
not shorten the memory: a life of the neighbour that nobody vouches for yet may have told it. What the neighbour makes
of it is in `trust`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from dpcrowd.node.wire import Heard, proof_digest

__all__ = ["Echoes", "NeighbourMemory", "Remembered"]

Remembered = tuple[int, int, bytes, int]
"""(slot in which it was first said, counter, proof, slot since which the neighbour is remembered)"""


@dataclass(frozen=True)
class Echoes:
    """The part of a message that tells neighbours what is remembered of them; by their numbers.

    heard   (slots ago, counter)
    proofs  what they signed
    since   slots ago since which they are remembered, where that is longer than `heard` says
    """

    heard: dict[int, tuple[int, int]]
    proofs: dict[int, bytes]
    since: dict[int, int]


@dataclass
class NeighbourMemory:
    """By the neighbours' numbers.

    known   outlives a restart, once it is stored
    last    of this life: the slot of the last word, how far its counter is below 0, whether it told a sample
    stored  of `known`, what is on disk when the instructions that were given have been carried out
    """

    known: dict[int, Remembered]
    last: dict[int, tuple[int, int, bool]] = field(default_factory=dict)
    stored: dict[int, Remembered] = field(init=False)
    _on_disk: dict[int, Remembered] = field(init=False)

    def __post_init__(self) -> None:
        self.stored, self._on_disk = dict(self.known), dict(self.known)

    def hear(self, number: int, heard: Heard, *, ahead: bool) -> None:
        """Learn from a message that was checked.

        ahead  of a slot that is not to come yet: its sender's clock is wrong, and its next word will be of another slot
        """
        body = heard.body
        if not ahead:
            word = body.slot, -body.counter, bool(body.records)
            self.last[number] = max(
                word, self.last.get(number, word)
            )  # of two words of a slot, the one that tells less
        first, counter, proof, since = self.known.get(number, (body.slot, -1, b"", body.slot))
        if body.counter > counter:
            self.known[number] = body.slot, body.counter, heard.proof, body.slot if body.records else since
        elif body.counter == counter and not body.records and proof_digest(proof) != body.digest:
            # Without anything new it is renewed once a revision: the key that signed it may be pinned no longer later.
            self.known[number] = first, counter, heard.proof, since

    def echoes(self, slot: int, numbers: Iterable[int], prove_to: Collection[int] = ()) -> Echoes:
        """For the own message of a slot to these neighbours; some of them get their proof in any case."""
        told = {number: self.stored[number] for number in sorted(numbers) if number in self.stored}
        return Echoes(
            heard={number: (slot - first, counter) for number, (first, counter, _, _) in told.items()},
            proofs={
                number: proof
                for number, (_, _, proof, _) in told.items()
                if proof and (number in prove_to or self._doubtful(number, slot))
            },
            since={number: slot - since for number, (first, _, _, since) in told.items() if since < first},
        )

    def _doubtful(self, number: int, slot: int) -> bool:
        """Whether its last word, before it hears this slot's, leaves open that it knows what is remembered of it."""
        if number not in self.last:
            return True
        first, counter, _, _ = self.stored[number]
        said, below, sampled = self.last[number]
        # A sample raises the counter: as many as before, a later sample among them, are fewer of those before.
        return said < slot - 1 or -below < counter or (-below == counter and sampled and said > first)

    # ---------------------------------------------------------------------------------------------------- storing

    def unsaved(self) -> dict[int, Remembered]:
        """What is remembered and was not given to be stored yet."""
        return {number: said for number, said in self.known.items() if self.stored.get(number) != said}

    def store(self) -> dict[int, Remembered]:
        """What has to be stored; from now on it counts as stored, unless `storing_failed` says otherwise."""
        unsaved = self.unsaved()
        self.stored |= unsaved
        return unsaved

    def storing_done(self) -> None:
        """All instructions that were given have been carried out."""
        self._on_disk = dict(self.stored)

    def storing_failed(self) -> None:
        """One of them could not be: of what they were to store nothing is relied upon."""
        self.stored = dict(self._on_disk)

    def follow(self, before: NeighbourMemory, renumbered: Mapping[int, int | None]) -> None:
        """Take over from the revision before, in which the neighbours had other numbers."""
        for number, new in renumbered.items():
            if new is not None and number in before.known:
                self.known[new] = before.known[number]
            if new is not None and number in before.last:
                self.last[new] = before.last[number]
