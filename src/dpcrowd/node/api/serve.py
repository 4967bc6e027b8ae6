"""The API on a socket: uvicorn without an access log, whose lines would count check-ins, and without signal handlers.

The shell decides when the node stops: it closes its `Broadcast`, so that streams end, and then sets `should_exit`.
Connections are accepted here and not by uvicorn, each only with a place (see `Places`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from dpcrowd.node.api.places import Places
from dpcrowd.node.api.protocol import Client, LimitedHttp, LimitedWebSocket
from dpcrowd.node.connections.listener import Listener, bind

__all__ = ["ApiServer", "make_server"]

_SECONDS_TO_STOP = 3
_SECONDS_OF_TLS = 5.0
_TICKS = 5
_MOST_CONNECTIONS = 512


class ApiServer(uvicorn.Server):
    """`await server.serve()` until `should_exit`."""

    def __init__(self, config: uvicorn.Config, places: Places) -> None:
        super().__init__(config)
        self.places = places
        self._opening: set[asyncio.Task[None]] = set()

    def renew(self, context: ssl.SSLContext) -> None:
        """Have new connections get the certificate of another context; those that are open keep theirs.

        The listening socket keeps its own context, which hands each handshake over: nothing of it is replaced, so that
        nothing of it can be left half replaced.
        """
        if self.config.ssl is not None:
            self.config.ssl.sni_callback = lambda link, *_: setattr(link, "context", context)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it for a host and a port; there is no lifespan."""
        try:
            found = sockets or bind(self.config.host, self.config.port)
        except OSError as error:
            logging.getLogger("uvicorn.error").error(error)
            sys.exit(STARTUP_FAILURE)
        listener = Listener(found, self._accepted, places=self.places.most_waiting)
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
        """Every tenth of a second."""
        if counter % _TICKS == 0:
            self.places.sweep()
        return await super().on_tick(counter)

    def _accepted(self, connection: socket.socket, address: str) -> None:
        client = Client(self.places, address)
        self.places.wait(client)
        client.opening = asyncio.get_running_loop().create_task(self._open(client, connection))
        self._opening.add(client.opening)
        client.opening.add_done_callback(self._opening.discard)

    async def _open(self, client: Client, connection: socket.socket) -> None:
        """From a socket to a protocol, with the handshake of HTTPS in between."""
        context = self.config.ssl
        limits = (
            {} if context is None else dict.fromkeys(("ssl_handshake_timeout", "ssl_shutdown_timeout"), _SECONDS_OF_TLS)
        )
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: LimitedHttp(self.config, self.server_state, client), connection, ssl=context, **limits
            )
        except (OSError, asyncio.CancelledError):  # it left, did not speak TLS, or had to make room
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
    """Ready to serve inside a running event loop; port 0 lets the system choose one."""
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
        ws_max_size=1 << 16,  # readers have nothing to say
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=_SECONDS_TO_STOP,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    return ApiServer(config, Places(most_connections))
