"""HTTP and WebSockets as uvicorn speaks them, with limits that it does not have.

uvicorn waits for ever for the header of a request, whatever its size, and for a client to read its answer. These
protocols tell `Places` what a connection is doing, and are ended by it.
"""

from __future__ import annotations

import asyncio
import time

from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from dpcrowd.node.api.answers import refusal
from dpcrowd.node.api.places import CLOSE_SECONDS, READ_SECONDS, REQUEST_SECONDS, Places

__all__ = ["LimitedHttp", "LimitedWebSocket"]

_MOST_HEADER = 64 << 10
_STREAM = b"/v1/stream"  # see `dpcrowd.node.api.stream`


class Client:
    """One connection to the API, whatever is spoken on it."""

    def __init__(self, places: Places, address: str) -> None:
        self.places, self.address = places, address
        self.transport: asyncio.Transport | None = None
        self.opening: asyncio.Task[None] | None = None
        """The handshake of HTTPS, as long as there is no transport."""
        self.request_since: float | None = None
        """Since when a request is being received."""
        self.unread_since: float | None = None
        """Since when the other side has not read what was sent."""
        self._closing_since: float | None = None

    def end(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def lost(self) -> None:
        """The connection has ended."""
        self.transport = None  # an asyncio transport that is closed cannot even be aborted
        self.places.leave(self)

    def stuck(self, now: float) -> bool:
        if self.transport is None:
            return False
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
        limits = (
            (self.request_since, REQUEST_SECONDS),
            (self.unread_since, READ_SECONDS),
            (self._closing_since, CLOSE_SECONDS),
        )
        return any(since is not None and now - since > seconds for since, seconds in limits)


class LimitedHttp(HttpToolsProtocol):
    """A connection that speaks HTTP."""

    def __init__(self, config: Config, server_state: ServerState, client: Client) -> None:
        super().__init__(config, server_state, {})
        self._client = client
        self._header = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._client.transport = transport
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._client.lost()

    def data_received(self, data: bytes) -> None:
        before = self._header
        super().data_received(data)
        if self._header == before != -1 and not self.transport.is_closing():  # the header has not ended yet
            self._header += len(data)
            if self._header > _MOST_HEADER:
                self._refuse(b"431 Request Header Fields Too Large")

    def on_headers_complete(self) -> None:
        self._header = -1
        self._client.request_since = time.monotonic()
        stream = self.url.partition(b"?")[0] == _STREAM
        if not self._client.places.work(self._client, stream=stream):
            self.app = _unavailable
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._client.request_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._header = 0
        if not self.pipeline and not self.transport.is_closing():
            self._client.request_since = None
            self._client.places.wait(self._client)
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._client.unread_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._client.unread_since = None
        super().resume_writing()

    def handle_websocket_upgrade(self) -> None:
        if self.app is _unavailable:
            self._refuse(b"503 Service Unavailable")
            return
        self._client.request_since = None
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        if isinstance(protocol, LimitedWebSocket):
            protocol.client_of_api = self._client

    def _refuse(self, status: bytes) -> None:
        """Answer without the application, and end the connection."""
        self.transport.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)
        self.transport.close()


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """A connection that speaks WebSocket, after the same connection has asked for it by HTTP."""

    client_of_api: Client | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.client_of_api is not None:
            self.client_of_api.lost()

    def pause_writing(self) -> None:
        if self.client_of_api is not None:
            self.client_of_api.unread_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        if self.client_of_api is not None:
            self.client_of_api.unread_since = None
        super().resume_writing()


async def _unavailable(scope: Scope, receive: Receive, send: Send) -> None:
    """Told to whoever comes when all places are taken."""
    text = "too many connections are open; try again after a moment, and use fewer at once."
    headers = {"retry-after": "5", "connection": "close"}
    await refusal(503, "connections", text, headers)(scope, receive, send)
