"""The API on a socket: uvicorn without an access log, whose lines would count check-ins, and without signal handlers.

The node decides when it stops: it closes its `Broadcast`, so that streams end, and then sets `should_exit`. Connections
are accepted here and not by uvicorn, and each needs a place (see `Places`).

uvicorn waits for ever for the header of a request, whatever its size, and for a client to read its answer. The
protocols here, for HTTP and WebSocket, report to `Places` what a connection does, and `Places` ends those that take too
long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE, Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from dpcrowd.node.api.answers import refusal
from dpcrowd.node.api.places import CLOSE_SECONDS, READ_SECONDS, REQUEST_SECONDS, Places
from dpcrowd.node.connections.listener import Listener, bind

__all__ = ["ApiServer", "LimitedHttp", "LimitedWebSocket", "make_server"]

_MOST_HEADER = 64 << 10
_STREAM = b"/v1/stream"  # see `dpcrowd.node.api.stream`
_SECONDS_TO_STOP = 3
_SECONDS_OF_TLS = 5.0
_TICKS = 5
_MOST_CONNECTIONS = 512


class ClientConnection:
    """One connection to the API, whether it speaks HTTP or WebSocket."""

    def __init__(self, places: Places, address: str) -> None:
        self.places, self.address = places, address
        self.transport: asyncio.Transport | None = None
        self.opening: asyncio.Task[None] | None = None
        """The TLS handshake, until there is a transport."""
        self.request_since: float | None = None
        """When the current request began, by the monotonic clock; None between requests."""
        self.unread_since: float | None = None
        """When the other side stopped reading, by the monotonic clock; None if it reads."""
        self._closing_since: float | None = None

    def end(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def lost(self) -> None:
        """Free the place: the connection has ended."""
        self.transport = None  # a closed transport of asyncio cannot be aborted
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
    """An HTTP connection that reports to `Places`."""

    def __init__(self, config: Config, server_state: ServerState, client: ClientConnection) -> None:
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
        if self._header == before != -1 and not self.transport.is_closing():  # the header is not complete yet
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
        """Answer without the application, and close the connection."""
        self.transport.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)
        self.transport.close()


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket connection that reports to `Places`, after an upgrade from HTTP."""

    client_of_api: ClientConnection | None = None

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
    """Answer a request for which there is no place."""
    text = "too many connections are open; try again in a few seconds, with fewer connections."
    headers = {"retry-after": "5", "connection": "close"}
    await refusal(503, "connections", text, headers)(scope, receive, send)


class ApiServer(uvicorn.Server):
    """The server; `await server.serve()` runs it until `should_exit`."""

    def __init__(self, config: uvicorn.Config, places: Places) -> None:
        super().__init__(config)
        self.places = places
        self._opening: set[asyncio.Task[None]] = set()

    def renew(self, context: ssl.SSLContext) -> None:
        """Use the certificate of another context for new connections; open connections keep theirs.

        The listening socket keeps its own context, which passes each handshake to the new one: no part of it is
        replaced, so that it cannot be replaced in part.
        """
        if self.config.ssl is not None:
            self.config.ssl.sni_callback = lambda link, *_: setattr(link, "context", context)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, as uvicorn does for a host and a port; there is no lifespan."""
        try:
            sockets = sockets or bind(self.config.host, self.config.port)
        except OSError as error:
            logging.getLogger("uvicorn.error").error(error)
            sys.exit(STARTUP_FAILURE)
        listener = Listener(sockets, self._accepted, places=self.places.most_waiting)
        self.servers = [cast(asyncio.Server, listener)]
        listener.start()
        self.started = True

    async def main_loop(self) -> None:
        try:
            await super().main_loop()
        finally:
            for task in self._opening:
                task.cancel()

    async def on_tick(self, counter: int) -> bool:
        """Sweep the places; uvicorn calls this every tenth of a second."""
        if counter % _TICKS == 0:
            self.places.sweep()
        return await super().on_tick(counter)

    def _accepted(self, connection: socket.socket, address: str) -> None:
        client = ClientConnection(self.places, address)
        self.places.wait(client)
        client.opening = asyncio.get_running_loop().create_task(self._open(client, connection))
        self._opening.add(client.opening)
        client.opening.add_done_callback(self._opening.discard)

    async def _open(self, client: ClientConnection, connection: socket.socket) -> None:
        """Connect a socket with its protocol, after the TLS handshake of HTTPS."""
        context = self.config.ssl
        limits = (
            {} if context is None else dict.fromkeys(("ssl_handshake_timeout", "ssl_shutdown_timeout"), _SECONDS_OF_TLS)
        )
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: LimitedHttp(self.config, self.server_state, client), connection, ssl=context, **limits
            )
        except (OSError, asyncio.CancelledError):  # it disconnected, did not speak TLS, or was displaced
            self.places.leave(client)
            connection.close()


def make_server(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    most_connections: int = _MOST_CONNECTIONS,
) -> ApiServer:
    """Return a server for a running event loop; with port 0 the system chooses a port."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=LimitedHttp,
        ws=LimitedWebSocket,
        lifespan="off",
        access_log=False,
        log_config=None,  # the node has set up logging
        server_header=False,
        proxy_headers=False,
        ws_max_size=1 << 16,  # readers send nothing
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=_SECONDS_TO_STOP,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    return ApiServer(config, Places(most_connections))
