"""Whether the ledger in the folder can be trusted: a folder that was restored from an old copy would pay twice.

A node tells its ledger's counter in every message, and neighbours echo the highest that they ever heard, with the slot
in which they first heard it. After a start the node samples only when a neighbour has spoken: one that echoes no more
than the node itself knows (or has never heard of a node whose ledger is empty) shows that nothing is lost. One that
echoes more proves a loss; sampling then waits until the operator has confirmed it.

What a neighbour says in slot t it wrote before it heard slot t. So an old message must not vouch: samples that are lost
may be as young as the slot that was sealed last, and only what neighbours say of later slots can know of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

__all__ = ["Trust"]

_REMEMBERED = 1000


@dataclass
class Trust:
    """Of one life of a node, from start to stop.

    counter   samples that this ledger has paid for
    lost_at   what a neighbour remembers beyond that
    since     the first slot whose messages can vouch; None before the start
    paid_in   slots of the last samples of this life, newest last
    """

    counter: int
    vouched: bool = False
    lost_at: int | None = None
    since: int | None = None
    paid_in: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    @property
    def may_sample(self) -> bool:
        return self.vouched and self.lost_at is None

    def start(self, last: int, following: int) -> None:
        """The node runs: its folder knows slots up to `last`, the next one to be sealed is `following`."""
        self.since = last if last >= following - 1 else following

    def doubt(self, last: int, following: int) -> None:
        """Time has passed unseen: a neighbour has to vouch again, as after a start."""
        self.vouched = False
        self.start(last, following)

    def echo(self, slot: int | None, echoed: tuple[int, int] | None) -> bool:
        """A neighbour has spoken in a slot; what it remembers of this node, as (slot, counter), if anything.

        Slot None: its message cannot vouch for anything. True if it shows a loss anew.
        """
        if echoed is not None and self._unknown(*echoed):
            anew = self.lost_at is None
            self.lost_at = max(echoed[1], self.lost_at or 0)
            return anew
        # Nobody knows a node whose ledger is empty; one that has samples needs somebody who remembers them.
        fresh = slot is not None and self.since is not None and slot >= self.since
        if fresh and (echoed is not None or self.counter == 0):
            self.vouched = True
        return False

    def _unknown(self, slot: int, counter: int) -> bool:
        """Whether this ledger had not paid for so many samples by that slot.

        More than it has now, or as many, but in this life and later: then the neighbour heard them of another life.
        """
        newer = self.counter - counter
        return newer < 0 or (newer < len(self.paid_in) and slot < self.paid_in[-1 - newer])

    def paid(self, slot: int) -> int:
        """One more sample; the new counter."""
        self.counter += 1
        self.paid_in.append(slot)
        return self.counter

    def unpaid(self) -> None:
        """The last sample was not paid for after all."""
        self.counter -= 1
        self.paid_in.pop()

    def confirm(self) -> None:
        """The operator has booked the loss: count on from what the neighbours remember."""
        self.counter = max(self.counter, self.lost_at or 0)
        self.lost_at = None
        self.vouched = True
        self.paid_in.clear()
