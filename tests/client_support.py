"""Clients of an application without a socket, and a real server in a thread, for tests of `dpcrowd.client`."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

import dpcrowd
from dpcrowd.client.steps import Patience, Reply, Silence, Steps, Wait
from dpcrowd.node.api.serve import make_server
from node_support_api import FakeService, app_of

SECONDS = 20


def inside(app: Any, token: str | None = None, **settings: Any) -> dpcrowd.AsyncClient:
    """An `AsyncClient` whose requests go straight to an ASGI application, or a function of requests."""
    client = dpcrowd.AsyncClient("http://node", token, **settings)
    kept = {name: value for name, value in client._settings.options.items() if name not in ("proxy", "verify")}
    if isinstance(app, httpx.AsyncBaseTransport):
        transport: httpx.AsyncBaseTransport = app
    else:
        transport = httpx.ASGITransport(app=app)
    client._http = httpx.AsyncClient(transport=transport, **kept)
    return client


def patience(retries: int = 4, seconds: float = 30.0) -> Patience:
    return Patience(retries, seconds, lambda: 1.0)


def drive(steps: Steps[Any], replies: list[Reply | Silence]) -> tuple[Any, list[Any]]:
    """Give replies in their order; (the value or the error, everything that was asked for)."""
    said: list[Any] = []
    waiting = list(replies)
    reply: Reply | Silence | None = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return end.value, said
        except dpcrowd.DpcrowdError as error:
            return error, said
        said.append(step)
        reply = None if isinstance(step, Wait) else waiting.pop(0)


class Served:
    """A node's API on loopback, which can be stopped and started again at the same port."""

    def __init__(self, service: FakeService, certificate: Path | None = None, key: Path | None = None) -> None:
        self.service, self._tls = service, {"certificate": certificate, "key": key}
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}" if key is None else f"https://localhost:{self.port}"
        self.loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Serve in a thread."""
        ready = threading.Event()
        if self._listener.fileno() < 0:
            self._listener = socket.socket()
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(("127.0.0.1", self.port))

        async def serve() -> None:
            self.loop = asyncio.get_running_loop()
            self.server = make_server(app_of(self.service), "127.0.0.1", 0, **self._tls)
            running = asyncio.ensure_future(self.server.serve([self._listener]))
            while not self.server.started:
                await asyncio.sleep(0.005)
            ready.set()
            await running

        self._thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        self._thread.start()
        assert ready.wait(SECONDS)

    def publish(self, *releases: Any) -> None:
        assert self.loop is not None
        for release in releases:
            self.service.stored.append(release)
            self.loop.call_soon_threadsafe(self.service.broadcast.publish, release)

    def stop(self) -> None:
        if self.loop is None:
            return
        self.loop.call_soon_threadsafe(self.service.broadcast.close)
        self.server.should_exit = True
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        self._listener.close()
        self.loop = None


@contextmanager
def serving(service: FakeService, certificate: Path | None = None, key: Path | None = None) -> Iterator[Served]:
    served = Served(service, certificate, key)
    served.start()
    try:
        yield served
    finally:
        served.stop()
        served._listener.close()
