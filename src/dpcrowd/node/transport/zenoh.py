"""Neighbours over Eclipse Zenoh in peer mode, with mutual TLS, and nobody else.

Who dials. Of two neighbours the one whose name comes first dials the other, from a session that has this one link and
listens nowhere; all who dial this server share one listening session, which never dials. That is more than tidiness.
Zenoh lets a second link join a session's transport if it claims the same session id, counts only incoming links
against `max_links`, and judges both links by the names of either: in a session that dials and listens, a server
that knows a neighbour's session id could speak with that neighbour's name. A session id here is known to one server
only, or the link can only be an incoming one, of which there may be one.

Names and keys. Zenoh's access control sees the common name of a certificate, not its key. A certificate of the right
name but with another key, which only the authority can make, is therefore let in here; it is the signature inside
the message, checked against the pinned keys, that refuses it. Such an impostor hears what this server sends to the
neighbour whose name it bears, that is, noised values; it cannot make this server believe anything.

Presence is the state of a publisher's match: the neighbour has subscribed, so a message sent now arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dpcrowd.errors import BadInput
from dpcrowd.node.transport.base import (
    OnMessage,
    OnPresence,
    Peer,
    check_neighbours,
    check_recipients,
)
from dpcrowd.node.transport.zenoh_links import Links
from dpcrowd.node.transport.zenoh_settings import MAX_MESSAGE, TlsFiles, session_settings

__all__ = ["ZenohTransport"]


class ZenohTransport:
    """A server's links to its neighbours. `open` reads the certificates anew, so renewal is `close` and `open`."""

    def __init__(self, network: str, tls: TlsFiles, listen: Sequence[str]) -> None:
        self._network, self._tls, self._listen = network, tls, tuple(listen)
        self._links: Links | None = None
        self._known: set[str] = set()
        self.most_bytes = MAX_MESSAGE

    async def open(self, me: str, neighbours: Sequence[Peer], on_message: OnMessage, on_presence: OnPresence) -> None:
        if self._links is not None:
            raise BadInput("the transport is open already; close it before opening it with other links.")
        check_neighbours(me, neighbours)
        self._tls.check()
        self._known = {peer.certificate_name for peer in neighbours}
        plans = self._plans(me, neighbours)
        names = [peer.name for peer in neighbours]
        links = Links(self._network, me, names, on_message, on_presence, self.most_bytes)
        self._links = links
        try:
            for settings, peers in plans:
                await asyncio.to_thread(links.add, settings, [peer.name for peer in peers])
        except BaseException:
            await self.close()  # a session that stays open would hold its port, and the process at its end
            raise

    async def send(self, payload: bytes, to: Sequence[str]) -> None:
        if self._links is None:
            raise BadInput("the transport is closed; open it before sending.")
        if len(payload) > self.most_bytes:
            raise BadInput(f"a message of {len(payload)} bytes; neighbours take at most {self.most_bytes}.")
        check_recipients(to, self._links.lanes)
        for name in to:
            self._links.lanes[name].offer(payload)

    async def close(self) -> None:
        links, self._links = self._links, None
        if links is not None:
            await links.close()

    def dropped(self) -> dict[str, int]:
        """Messages since `open` that made room for newer ones, to or from each neighbour."""
        links = self._links
        return {} if links is None else {name: lane.dropped + links.flood[name] for name, lane in links.lanes.items()}

    async def certificates(self) -> tuple[str, ...]:
        """The certificate names at the other ends of the open links, strangers included: they may connect, no more."""
        return () if self._links is None else await asyncio.to_thread(self._links.certificates)

    async def strangers(self) -> Sequence[str]:
        return sorted(set(await self.certificates()) - self._known)

    def _settings(self, me: str, peers: Sequence[Peer], **where: Sequence[str]) -> dict[str, str]:
        return session_settings(self._network, me, peers, self._tls, most_bytes=self.most_bytes, **where)

    def _plans(self, me: str, neighbours: Sequence[Peer]) -> list[tuple[dict[str, str], list[Peer]]]:
        """The sessions to open: one for all who dial me, one for each whom I dial."""
        callers = [peer for peer in neighbours if peer.name < me]
        plans = []
        if callers:
            if not self._listen:
                raise BadInput(f"'{callers[0].name}' dials '{me}', which listens nowhere; set listen.transport.")
            plans.append((self._settings(me, callers, listen=self._listen), callers))
        for peer in neighbours:
            if peer.name > me:
                settings = self._settings(me, [peer], connect=[peer.endpoint])
                plans.append((settings, [peer]))
        return plans
