"""What a node needs of a transport: bytes to and from its one-hop neighbours, and which of them are connected.

A transport guarantees that a message is complete, comes from the neighbour whose name it carries, arrives in the order
in which that neighbour sent its messages, and reaches nobody but neighbours. It may lose messages (to a neighbour that
is down, frozen or starting) and may deliver one twice; the state machine sends again when a neighbour appears and
ignores messages that it has. The name is that of the certificate; whether the *key* is the pinned one is decided by the
signatures inside the message, see `zenoh`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dpcrowd.errors import BadInput, DpcrowdError, unknown_name

__all__ = ["OnMessage", "OnPresence", "Peer", "Transport", "TransportFailed", "check_neighbours", "check_recipients"]

OnMessage = Callable[[str, bytes], None]
"""(neighbour, payload); called in the event loop's thread."""
OnPresence = Callable[[str, bool], None]
"""(neighbour, whether it receives messages of this server now); called in the event loop's thread, on changes only."""


@dataclass(frozen=True)
class Peer:
    """A one-hop neighbour, as `network.toml` describes it."""

    name: str
    endpoint: str
    """Where it listens, `tls/host:port`."""
    certificate_name: str
    """The common name of its certificate."""
    keys: tuple[str, ...] = ()
    """Its pinned public keys, as in `network.toml`. The signatures in messages are checked against them."""


class TransportFailed(DpcrowdError):
    """The transport cannot be opened as configured; the message says why and what to do."""


class Transport(Protocol):
    """Bytes between a server and its neighbours. After `close`, `open` may be called again, any number of times.

    most_bytes  upper bound on the size of a message, in bytes; set before `open`. Larger messages are dropped.
    """

    most_bytes: int

    async def open(self, me: str, neighbours: Sequence[Peer], on_message: OnMessage, on_presence: OnPresence) -> None:
        """Begin to listen and to connect to neighbours; return at once, since neighbours are connected later."""
        ...

    async def send(self, payload: bytes, to: Sequence[str]) -> None:
        """Queue a message for these neighbours without waiting; it is lost for a neighbour that is not connected."""
        ...

    async def strangers(self) -> Sequence[str]:
        """Return the certificate names of callers that are not neighbours, since the last call of this method."""
        ...

    def refused_connections(self) -> Mapping[str, int]:
        """Return the number of connections since the start that did not become a link to a neighbour, by reason."""
        ...

    async def check_alive(self) -> None:
        """Return if the transport works, with or without neighbours; raise or block if it does not."""
        ...

    def dropped(self) -> Mapping[str, int]:
        """Return the number of messages since `open` that came too fast or were too large, by neighbour."""
        ...

    async def close(self) -> None:
        """Send the queued messages, as far as neighbours accept them, and stop. No callback runs after this."""
        ...


def check_neighbours(me: str, neighbours: Sequence[Peer]) -> None:
    """Refuse a list of neighbours whose names are not unique."""
    names: set[str] = set()
    certificates: dict[str, str] = {}
    for peer in neighbours:
        if peer.name == me:
            raise BadInput(f"server '{me}' is its own neighbour; remove that link.")
        if peer.name in names:
            raise BadInput(f"neighbour '{peer.name}' is named twice; name each neighbour once.")
        other = certificates.setdefault(peer.certificate_name, peer.name)
        if other != peer.name:
            raise BadInput(
                f"neighbours '{other}' and '{peer.name}' have the same certificate name '{peer.certificate_name}'; "
                "each server needs its own."
            )
        names.add(peer.name)


def check_recipients(to: Iterable[str], neighbours: Iterable[str]) -> None:
    """Refuse to send to anybody who is not a neighbour."""
    allowed = set(neighbours)
    for name in to:
        if name not in allowed:
            raise unknown_name("neighbour", name, allowed)
