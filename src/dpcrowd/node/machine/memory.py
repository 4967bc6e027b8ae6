"""What neighbours have said of their own ledgers: remembered for them, and told to them again.

Of each the highest counter that it ever said is kept, the slot in which it first said so, and a proof that it did: its
own signature, which it can check by its own key. The counter is echoed in every message. The proof is long and travels
only when it may be needed: when the neighbour's last word told less than is remembered, or when it said nothing in the
slot before, and may come back as an old copy of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dpcrowd.node.wire import Heard, proof_digest

__all__ = ["NeighbourMemory", "Remembered"]

Remembered = tuple[int, int, bytes]
"""(slot in which it was first said, counter, proof)"""


@dataclass
class NeighbourMemory:
    """By the neighbours' numbers.

    known  outlives a restart
    last   of this life: the slot of the last word, how far its counter is below 0, whether it told a sample
    """

    known: dict[int, Remembered]
    last: dict[int, tuple[int, int, bool]] = field(default_factory=dict)

    def hear(self, number: int, heard: Heard, *, ahead: bool) -> Remembered | None:
        """A message that was checked; what has to be stored because of it.

        ahead  of a slot that is not to come yet: its sender's clock is wrong, and its next word will be of another slot
        """
        body = heard.body
        if not ahead:
            word = body.slot, -body.counter, bool(body.records)
            self.last[number] = max(
                word, self.last.get(number, word)
            )  # of two words of a slot, the one that tells less
        first, counter, proof = self.known.get(number, (body.slot, -1, b""))
        if body.counter < counter:
            return None
        if body.counter == counter and (body.records or proof_digest(proof) == body.digest):
            return None
        # Without anything new it is renewed once a revision: the key that signed it may be pinned no longer in a later.
        remembered = body.slot if body.counter > counter else first, body.counter, heard.proof
        self.known[number] = remembered
        return remembered

    def echoes(self, slot: int, numbers: Iterable[int]) -> tuple[dict[int, tuple[int, int]], dict[int, bytes]]:
        """For the own message of a slot to these neighbours: (slots ago, counter) of what they said, and proofs."""
        told = {number: self.known[number] for number in sorted(numbers) if number in self.known}
        heard = {number: (slot - first, counter) for number, (first, counter, _) in told.items()}
        proofs = {number: said[2] for number, said in told.items() if said[2] and self._doubtful(number, slot)}
        return heard, proofs

    def _doubtful(self, number: int, slot: int) -> bool:
        """Whether its last word, before it hears this slot's, leaves open that it knows what is remembered of it."""
        if number not in self.last:
            return True
        first, counter, _ = self.known[number]
        said, below, sampled = self.last[number]
        # A sample raises the counter: as many as before, a later sample among them, are fewer of those before.
        return said < slot - 1 or -below < counter or (-below == counter and sampled and said > first)

    def follow(self, before: NeighbourMemory, renumbered: Mapping[int, int | None]) -> None:
        """Take over from the revision before, in which the neighbours had other numbers."""
        for number, new in renumbered.items():
            if new is not None and number in before.known:
                self.known[new] = before.known[number]
            if new is not None and number in before.last:
                self.last[new] = before.last[number]
