"""Clients of an application without a socket, and a real server in a thread, for tests of `dpcrowd.client`.

`NewNode` and `OldNode` answer check-ins as a node of this version and one of 0.1.0 do, in a few lines that do not
change with the node's own code: a client has to work with both.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

import dpcrowd
from dpcrowd.client.steps import Patience, Reply, Silence, Steps, Wait
from dpcrowd.node.api.serve import make_server
from node_support_api import FakeService, app_of

SECONDS = 20
LATE, FUTURE = 5, 9_000_000_000_000
"""Times, in milliseconds, of rows that a fake node refuses."""
NAMED = 1000

Judge = Callable[[Any], str | None]


@cache
def _nothing_to_verify() -> ssl.SSLContext:
    """A context made once: httpx would read all authorities of the system for each client, which takes 20 ms."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def inside(app: Any, token: str | None = None, **settings: Any) -> dpcrowd.AsyncClient:
    """An `AsyncClient` whose requests go straight to an ASGI application, or a function of requests."""
    client = dpcrowd.AsyncClient("http://node", token, **{"ca": _nothing_to_verify(), **settings})
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


def reason_of(row: Any) -> str | None:
    """Why a node refuses a row; None: it takes it."""
    if not isinstance(row, dict) or not {"user", "region"} <= row.keys() <= {"user", "region", "time"}:
        return "malformed"
    if not isinstance(row["user"], (str, int)) or row["user"] == "":
        return "user"
    if not isinstance(row["region"], str):
        return "region"
    if row["region"] not in ("north", "south"):
        return "unknown-region"
    if isinstance(row.get("time"), str) and not row["time"][:1].isdigit():
        return "time"
    reasons: dict[Any, str] = {LATE: "late", FUTURE: "future"}
    return reasons.get(row.get("time"))


class NewNode:
    """Takes the rows that can be taken, and names the others with their reasons.

    taken     users, in the order in which they were taken
    sizes     rows of each request
    failures  answers (status, headers) to give before anything else is looked at; None: an ordinary answer
    most      rows that one body may have
    network   the answer to /v1/network; None: the token may not read it
    """

    def __init__(self, judge: Judge = reason_of) -> None:
        self.judge = judge
        self.taken: list[Any] = []
        self.sizes: list[int] = []
        self.failures: list[tuple[int, dict[str, str]] | None] = []
        self.most = 1_000_000
        self.network: dict[str, Any] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        if request.url.path == "/v1/network":
            answer = self.refusal(403, "wrong-right") if self.network is None else JSONResponse(self.network)
        else:
            kind = request.headers["content-type"]
            answer = self.answer((msgspec.msgpack if kind.endswith("msgpack") else msgspec.json).decode(body))
        await answer(scope, receive, send)

    def answer(self, rows: list[Any]) -> JSONResponse:
        self.sizes.append(len(rows))
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            return self.refusal(failure[0], "busy", headers=failure[1])
        if len(rows) > self.most:
            return self.refusal(413, "too-large")
        return self.judged(rows) if rows else JSONResponse({"taken": True, "accepted": 0, "seconds_left": 30.0}, 202)

    def judged(self, rows: list[Any]) -> JSONResponse:
        reasons = [self.judge(row) for row in rows]
        self.taken += [row["user"] for row, reason in zip(rows, reasons, strict=True) if reason is None]
        refused = [{"row": row, "reason": reason} for row, reason in enumerate(reasons) if reason is not None]
        told: dict[str, Any] = {"refused": refused[:NAMED], "refused_count": len(refused)}
        if not refused:
            return JSONResponse({"taken": True, "accepted": len(rows)}, 202)
        if len(refused) < len(rows):
            return JSONResponse({"taken": True, "accepted": len(rows) - len(refused), **told}, 207)
        reason = str(reasons[0])
        named = [row for row, other in enumerate(reasons) if other == reason]
        return self.refusal(409 if reason == "late" else 400, reason, rows=named[:NAMED], **told)

    def refusal(self, status: int, reason: str, headers: dict[str, str] | None = None, **more: Any) -> JSONResponse:
        return JSONResponse({"error": {"reason": reason, "text": "row 0: no.", **more}}, status, headers)


class OldNode(NewNode):
    """Of 0.1.0: takes a body or refuses it, and names the rows of one kind of refusal at a time, or none (`names`)."""

    def __init__(self, judge: Judge = reason_of, names: int = NAMED) -> None:
        super().__init__(judge)
        self.names = names

    def judged(self, rows: list[Any]) -> JSONResponse:
        reasons = ["field" if (one := self.judge(row)) in ("user", "region", "time") else one for row in rows]
        for reason, status in (("field", 400), ("unknown-region", 400), ("future", 400), ("late", 409), ("mixed", 409)):
            wrong = [row for row, other in enumerate(reasons) if other == reason]
            if wrong:
                field = f"{self.judge(rows[wrong[0]])}: " if reason == "field" else ""
                detail = {"reason": reason, "text": f"row {wrong[0]}: {field}no; nothing of the body was taken."}
                named = {} if reason == "mixed" or not self.names else {"rows": wrong[: self.names]}
                return JSONResponse({"error": {**detail, **named}}, status)
        self.taken += [row["user"] for row in rows]
        return JSONResponse({"taken": True}, 202)


class Served:
    """A node's API on loopback, which can be stopped and started again at the same port."""

    def __init__(
        self, service: FakeService | ASGIApp, certificate: Path | None = None, key: Path | None = None
    ) -> None:
        self._tls: dict[str, Any] = {"certificate": certificate, "key": key}
        self.service: Any = service
        self._app = app_of(service) if isinstance(service, FakeService) else service
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
            self.server = make_server(self._app, "127.0.0.1", 0, **self._tls)
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
        if isinstance(self.service, FakeService):
            self.loop.call_soon_threadsafe(self.service.broadcast.close)
        self.server.should_exit = True
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        self._listener.close()
        self.loop = None


@contextmanager
def serving(
    service: FakeService | ASGIApp, certificate: Path | None = None, key: Path | None = None
) -> Iterator[Served]:
    served = Served(service, certificate, key)
    served.start()
    try:
        yield served
    finally:
        served.stop()
        served._listener.close()
