"""What a node asks of a transport: bytes to and from its one-hop neighbours, and who of them can hear it now.

A transport promises little, so that it can keep it: a message that arrives came whole from the neighbour whose name it
carries, in the order in which that neighbour sent, and nothing reaches anybody who is not a neighbour. It may lose
messages (a neighbour that is down, frozen or just starting) and it may say a thing twice; the state machine re-sends
when a neighbour appears and ignores what it has seen. The name is that of the certificate; whether the *key* is the
pinned one is decided by the signatures inside the message, see `zenoh`.
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
"""(neighbour, whether it hears this server now); called in the event loop's thread, only when it changes."""


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
    """The transport cannot be opened as configured: one line that says why and what to do."""


class Transport(Protocol):
    """Bytes between a server and its neighbours. After `close`, `open` may be called again, any number of times.

    most_bytes  that a message may have; set before `open`. What is larger is dropped, whoever sent it.
    """

    most_bytes: int

    async def open(self, me: str, neighbours: Sequence[Peer], on_message: OnMessage, on_presence: OnPresence) -> None:
        """Start to listen, and to connect until every neighbour is reached. Returns at once: neighbours come later."""
        ...

    async def send(self, payload: bytes, to: Sequence[str]) -> None:
        """Hand a message over for these neighbours; never waits for one of them. Lost if a neighbour is not present."""
        ...

    async def strangers(self) -> Sequence[str]:
        """Names, by their certificates, of those who are no neighbours and have called since this was asked last."""
        ...

    def refused_connections(self) -> Mapping[str, int]:
        """Connections since the start that did not become a neighbour's, by reason."""
        ...

    async def check_alive(self) -> None:
        """Return if the transport works, whoever it reaches; raise, or do not return, if it does not."""
        ...

    def dropped(self) -> Mapping[str, int]:
        """Messages since `open` that came too fast, or were too large, by neighbour."""
        ...

    async def close(self) -> None:
        """Send what was handed over, as far as neighbours take it, and stop. No callback runs after this."""
        ...


def check_neighbours(me: str, neighbours: Sequence[Peer]) -> None:
    """Refuse a list of neighbours in which names do not tell servers apart."""
    seen: set[str] = set()
    certificates: dict[str, str] = {}
    for peer in neighbours:
        if peer.name == me:
            raise BadInput(f"server '{me}' is its own neighbour; remove that link.")
        if peer.name in seen:
            raise BadInput(f"neighbour '{peer.name}' is named twice; name each neighbour once.")
        other = certificates.setdefault(peer.certificate_name, peer.name)
        if other != peer.name:
            raise BadInput(
                f"neighbours '{other}' and '{peer.name}' have the same certificate name '{peer.certificate_name}'; "
                "each server needs its own."
            )
        seen.add(peer.name)


def check_recipients(to: Iterable[str], neighbours: Iterable[str]) -> None:
    """Refuse to send to anybody who is not a neighbour."""
    allowed = set(neighbours)
    for name in to:
        if name not in allowed:
            raise unknown_name("neighbour", name, allowed)
