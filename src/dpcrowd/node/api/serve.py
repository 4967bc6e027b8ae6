"""The API on a socket: uvicorn without an access log, whose lines would count check-ins, and without signal handlers.

The shell decides when the node stops: it closes its `Broadcast`, so that streams end, and then sets `should_exit`.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

__all__ = ["ApiServer", "make_server"]

_SECONDS_TO_STOP = 3


class ApiServer(uvicorn.Server):
    """`await server.serve()` until `should_exit`."""

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


def make_server(
    app: ASGIApp, host: str, port: int, *, certificate: Path | None = None, key: Path | None = None
) -> ApiServer:
    """Ready to serve inside a running event loop; port 0 lets the system choose one."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http="httptools",
        ws="websockets-sansio",
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
    return ApiServer(config)
