"""Links to neighbours, as the machine instructs: the transport is opened for them, and for nobody else.

Access control cannot change in an open session: when the neighbours change, it is opened anew. Nobody is linked with
once the own certificate has expired: TLS checks it when a link is made, and never again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from dpcrowd.node.config import NetworkConfig
from dpcrowd.node.live.certificates import Certificates
from dpcrowd.node.live.timing import WallClock
from dpcrowd.node.machine import NetworkView
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.instructions import Link
from dpcrowd.node.transport.base import OnMessage, Peer, Transport, TransportFailed

__all__ = ["LinkState"]

log = logging.getLogger("dpcrowd.node")

HandBack = Callable[[on.Stimulus], Awaitable[None]]


class LinkState:
    """Opens and closes the links of one node.

    on_presence  called with the number of the session, a neighbour, and whether it hears this server now
    on_closed    called when this server has closed all links; `reopen`: they are to be asked for again, a little later
    opened_for   whom the transport is open for, and how long messages may be; None: it is closed
    """

    def __init__(
        self,
        server: str,
        transport: Transport,
        certificates: Certificates,
        wall: WallClock,
        on_message: OnMessage,
        on_presence: Callable[[int, str, bool], None],
        on_closed: Callable[..., None],
    ) -> None:
        self._server, self._transport, self._certificates, self._wall = server, transport, certificates, wall
        self._on_message, self._on_presence, self._on_closed = on_message, on_presence, on_closed
        self._session = 0
        self.opened_for: tuple[list[Peer], int] | None = None

    async def carry_out(
        self, asked: Link, network: NetworkConfig, view: NetworkView, at_ns: int, hand_back: HandBack
    ) -> None:
        """Open the links of an instruction; a port that is not free ends the node only where they are `required`."""
        try:
            await self._open(asked, network, view, at_ns, hand_back)
        except TransportFailed as failure:
            if asked.required:
                raise
            text = "the links to neighbours could not be opened; they are tried again with the next slot: %s"
            log.error(text, failure, extra={"event": "links-failed"})

    async def _open(
        self, asked: Link, network: NetworkConfig, view: NetworkView, at_ns: int, hand_back: HandBack
    ) -> None:
        named = [network.server(name) for name in network.neighbours(self._server, asked.slot)]
        peers = [Peer(one.name, one.endpoint, one.certificate_name, tuple(one.keys)) for one in named]
        over = self._certificates.links_over(self._wall.now())
        if (peers, view.most_bytes) == self.opened_for and not over and not asked.anew:
            return
        were_open, self.opened_for = self.opened_for is not None, None
        await hand_back(on.LinksClosed(at_ns))  # first: a message may be about to leave
        await self._transport.close()
        # Slots go on while links rest; a seal that comes in between has them opened.
        rest = asked.rest and were_open and not over
        self._on_closed(reopen=rest)
        if over or rest:
            return
        self._transport.most_bytes = view.most_bytes
        self._session += 1
        presence = partial(self._on_presence, self._session)
        await self._transport.open(self._server, peers, self._on_message, presence)
        self.opened_for = peers, view.most_bytes
        await hand_back(on.LinksOpened(at_ns, tuple(peer.name for peer in peers), self._session))
