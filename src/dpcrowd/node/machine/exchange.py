"""One slot's exchange with the neighbours: who is expected, who has spoken, and what was said too early."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpcrowd.node.wire import Heard
from dpcrowd.schemes.messages import InfoMessages

__all__ = ["Exchange"]


@dataclass
class Exchange:
    """Of a sealed slot.

    payload   the own message, to be sent again to a neighbour that comes up
    expected  numbers of the neighbours in this slot
    sent      whether the own message has left; it waits for its time
    heard     their messages; None is a heartbeat
    """

    slot: int
    payload: bytes
    expected: frozenset[int]
    sent: bool = True
    heard: dict[int, InfoMessages | None] = field(default_factory=dict)
    payloads: dict[int, bytes] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether nobody is waited for. A release right after the seal would tell how long storing a sample took."""
        return self.sent and self.expected <= self.heard.keys()

    def take(self, heard: Heard, payload: bytes) -> None:
        number = heard.body.server
        self.heard[number] = heard.message
        self.payloads[number] = payload

    def messages(self) -> dict[int, InfoMessages]:
        """Those that have data, for the scheme."""
        return {number: message for number, message in self.heard.items() if message is not None}
