"""Links to neighbours, and to nobody else, over Eclipse Zenoh in peer mode with mutual TLS.

Who dials. Of two neighbours the one whose name comes first dials the other. Each neighbour has a Zenoh session of its
own here, with only the rights of this neighbour: one that dials it, or one that listens on a private Unix socket. All
callers connect to one port, which is not Zenoh's: the `Front` requires a certificate of a neighbour first and then
connects the caller with the session of that neighbour. This is necessary: Zenoh's own listener can be stopped by
anybody who connects to it often enough; and it lets a second link join the transport of a session if it claims the same
session id, and judges both links by the names of either: in a session with several neighbours, a server that knows a
neighbour's session id could speak in that neighbour's name.

Names and keys. The front and Zenoh's access control see the common name of a certificate, not its key. A certificate of
the right name but with another key, which only the authority can issue, is therefore accepted here; its messages are
refused by their signatures, which are checked against the pinned keys. Such an impostor receives what this server sends
to the neighbour of that name, that is, noisy values; it cannot make this server use anything.

Presence is the matching status of a publisher: the neighbour has subscribed, so a message sent now arrives.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpcrowd.errors import BadInput
from dpcrowd.node.connections.descriptors import limit, shares
from dpcrowd.node.connections.listener import bind
from dpcrowd.node.connections.tally import Tally
from dpcrowd.node.transport.base import (
    OnMessage,
    OnPresence,
    Peer,
    TransportFailed,
    check_neighbours,
    check_recipients,
)
from dpcrowd.node.transport.front import Front, report_failures, server_context
from dpcrowd.node.transport.known import KnownAddresses
from dpcrowd.node.transport.zenoh_links import ZenohLinks
from dpcrowd.node.transport.zenoh_settings import (
    MAX_MESSAGE,
    TlsFiles,
    check_endpoint,
    dialling_settings,
    listening_settings,
)

if TYPE_CHECKING:
    from dpcrowd.node.transport.folder import PrivateFolder

__all__ = ["ZenohTransport"]

_LEAST_RATE = 1 << 20  # bytes per second


class ZenohTransport:
    """The links of a server to its neighbours. `open` reads the certificates; to renew them, `close` and `open`."""

    def __init__(self, network: str, tls: TlsFiles, listen: Sequence[str]) -> None:
        self._network, self._tls, self._listen = network, tls, tuple(listen)
        self._links: ZenohLinks | None = None
        self._front: Front | None = None
        self._folder: PrivateFolder | None = None
        self._known_addresses = KnownAddresses()
        self._tally = Tally(report_failures)
        self.most_bytes = MAX_MESSAGE

    async def open(self, me: str, neighbours: Sequence[Peer], on_message: OnMessage, on_presence: OnPresence) -> None:
        if self._links is not None:
            raise BadInput("the transport is open already; close it before opening it with other links.")
        check_neighbours(me, neighbours)
        self._tls.check()
        callers = [peer for peer in neighbours if peer.name < me]
        if callers and not self._listen:
            raise BadInput(f"'{callers[0].name}' dials '{me}', which does not listen; set listen.transport.")
        names = [peer.name for peer in neighbours]
        self._links = links = ZenohLinks(self._network, me, names, on_message, on_presence, self.most_bytes)
        try:
            sockets = self._open_front(callers, neighbours) if callers else {}
            for peer in neighbours:
                await asyncio.to_thread(links.add, self._settings(me, peer, sockets.get(peer.name)), peer.name)
            if self._front is not None:
                self._front.start()
        except BaseException:
            await self.close()  # a session that stays open would keep its socket, and block the end of the process
            raise

    async def send(self, payload: bytes, to: Sequence[str]) -> None:
        if self._links is None:
            raise BadInput("the transport is closed; open it before sending.")
        if len(payload) > self.most_bytes:
            raise BadInput(f"a message has {len(payload)} bytes; neighbours take at most {self.most_bytes}.")
        check_recipients(to, self._links.lanes)
        for name in to:
            self._links.lanes[name].offer(payload)

    async def close(self) -> None:
        links, self._links = self._links, None
        front, self._front = self._front, None
        folder, self._folder = self._folder, None
        if front is not None:
            front.stop_listening()
        if links is not None:
            await links.close()
        if front is not None:
            await front.close()  # after the links: their last messages go through it
        if folder is not None:
            folder.close()

    def dropped(self) -> dict[str, int]:
        """Return the number of messages since `open` that were dropped, to or from each neighbour."""
        links = self._links
        return {} if links is None else {name: lane.dropped + links.flood[name] for name, lane in links.lanes.items()}

    def refused_connections(self) -> Mapping[str, int]:
        return self._tally.totals

    async def certificates(self) -> tuple[str, ...]:
        """Return the certificate names at the other ends of the open links."""
        links, front = self._links, self._front
        if links is None:
            return ()
        return tuple(sorted([*await asyncio.to_thread(links.certificates), *(front.names() if front else ())]))

    async def strangers(self) -> Sequence[str]:
        return () if self._front is None else self._front.strangers()

    async def check_alive(self) -> None:
        links, front = self._links, self._front
        if front is not None and not front.alive:
            raise TransportFailed("the port of the transport has stopped working; restart the node.")
        if links is not None:
            await asyncio.to_thread(links.certificates)

    def _settings(self, me: str, peer: Peer, socket: Path | None) -> dict[str, str]:
        if socket is None:
            return dialling_settings(self._network, me, peer, self._tls, most_bytes=self.most_bytes)
        return listening_settings(self._network, me, peer, socket, most_bytes=self.most_bytes)

    def _open_front(self, callers: Sequence[Peer], neighbours: Sequence[Peer]) -> dict[str, Path]:
        """Listen for callers; return the socket of the session of each, by name."""
        from dpcrowd.node.transport.folder import PrivateFolder  # not for Windows

        listening = self._bind()
        try:
            self._folder = PrivateFolder()
            sockets = {peer.name: self._folder.path / str(number) for number, peer in enumerate(callers)}
            self._front = Front(
                listening,
                server_context(self._tls),
                {peer.certificate_name: str(sockets[peer.name]) for peer in callers},
                {peer.certificate_name for peer in neighbours},
                waiting=shares(limit(), len(neighbours)).waiting,
                rate=2.0 * self.most_bytes + _LEAST_RATE,
                known=self._known_addresses,
                tally=self._tally,
            )
        except BaseException:
            for one in listening:
                one.close()
            raise
        self._known_addresses.look_up(callers)
        return sockets

    def _bind(self) -> list[socket.socket]:
        sockets: list[socket.socket] = []
        for endpoint in self._listen:
            host, _, port = check_endpoint(endpoint).partition("/")[2].rpartition(":")
            try:
                sockets += bind(host.strip("[]"), int(port), both_versions=True)
            except OSError as error:
                for one in sockets:
                    one.close()
                reason = (error.strerror or str(error)).lower()
                raise TransportFailed(
                    f"cannot open the transport on {endpoint}: {reason}; stop what listens there, or set another "
                    "listen.transport."
                ) from None
        return sockets
