"""Neighbours whose links have come up: they are told at once what is remembered of them, if it can be told.

A neighbour that was restarted waits for somebody to vouch for its ledger (`trust`). The own message of the next slot
would come after its next seal, and the slot would be lost. So the own message of the last slot s is written and sent
once more, with what is remembered by now and marked as such (`Body.after`). What that says is "I have heard whatever
was told up to slot s". It is true, and may be said,

- when the exchange of slot s has had its whole time, even if everybody has spoken before: a message that is still on
  its way is heard by then, or by nobody;
- of a slot s that this life has sealed itself, and since when it has not stood still: a node that was not there, or
  has not read what waits for it, does not know what was told;
- while slot s + 1 is not sealed: by then something later may have been told.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dpcrowd.node.machine.view import NetworkView

__all__ = ["Newcomers"]


@dataclass
class Newcomers:
    """waiting: numbers of neighbours that came up. attended: the last slot whose exchange was attended; -1: none."""

    waiting: set[int] = field(default_factory=set)
    attended: int = -1

    def sealed(self, slot: int) -> None:
        """A slot is sealed: its message, which is about to leave, tells everybody who waits."""
        self.attended = slot
        self.waiting.clear()

    def link(self, number: int | None, *, up: bool) -> None:
        """A neighbour can be reached, or cannot be reached any more; None: a stranger."""
        if number is not None:
            (self.waiting.add if up else self.waiting.discard)(number)

    def missed(self) -> None:
        """Time has passed in which nothing was heard, or read."""
        self.attended = -1

    def due(self, view: NetworkView, slot: int, at_ns: int) -> frozenset[int]:
        """Whom to tell now what is remembered after the exchange of a slot."""
        heard_all = self.attended == slot >= 0 and view.ends(slot) <= at_ns < view.seals(slot + 1)
        return frozenset(self.waiting) & view.links(slot + 1) if heard_all else frozenset()
