"""Messages that came before the own seal of their slot: a neighbour whose clock is a little ahead seals first.

They wait, at most one a neighbour. One of another revision waits apart: it may be of the next one, which this node will
have taken by then, and no message of the present one has to give way to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpcrowd.node.wire import Refused, same_words

__all__ = ["Early"]


@dataclass
class Early:
    """By the neighbours' numbers: slot and payload."""

    read: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    unread: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    def keep(self, number: int, name: str, slot: int, payload: bytes, *, read: bool) -> None:
        """read: it is of the present revision, and was checked."""
        if not read:
            self.unread[number] = slot, payload
            return
        before = self.read.get(number)
        if before is not None and before[0] == slot and not same_words(before[1], payload):
            raise Refused("replay", f"{name} sent two different messages for slot {slot}.")
        if before is None or before[0] < slot:
            self.read[number] = slot, payload

    def take(self, slot: int) -> list[tuple[int, bytes]]:
        """What waited for this slot; what waited for one before it is gone."""
        waited = [*self.read.items(), *self.unread.items()]
        self.read = {number: kept for number, kept in self.read.items() if kept[0] > slot}
        self.unread = {number: kept for number, kept in self.unread.items() if kept[0] > slot}
        return [(number, payload) for number, (said, payload) in waited if said == slot]

    def again(self, slot: int, payloads: Mapping[int, bytes]) -> None:
        """These were heard already, and are to be heard once more."""
        self.read |= {number: (slot, payload) for number, payload in payloads.items()}

    def follow(self, before: Early, renumbered: Mapping[int, int | None]) -> None:
        """Take over from the revision before, in which the neighbours had other numbers; all is to be checked anew."""
        for number, kept in (before.read | before.unread).items():
            if (new := renumbered[number]) is not None:
                self.unread[new] = kept
