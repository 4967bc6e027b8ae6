"""The live page of a demo: all nodes at once, and the truth beside them.

A page may ask no other host or port than its own (Content-Security-Policy), so this small server passes requests on to
the nodes, on this machine, for reading only. What the demo alone knows is at /demo/truth; no node serves it.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from dpcrowd.demo.comparison import DemoComparison
from dpcrowd.demo.files import HOST, DemoNode
from dpcrowd.node.api.answers import answer, refusal
from dpcrowd.node.api.page import PageDescription, PageServer, page_apps

__all__ = ["PageThread", "make_page_app"]

_SECONDS = 10.0
_PASSED_ON = ("content-type", "cache-control", "link")
_DATA = re.compile(r"v1/[a-z-]+(/[a-z-]+)*|metrics|healthz|readyz|openapi\.json", re.ASCII)
_TRUTH = "/demo/truth"


def make_page_app(nodes: Sequence[DemoNode], comparison: DemoComparison) -> Starlette:
    """Return the application: the page, the paths of every node below /nodes/NAME, and the comparison."""
    addresses = {node.name: node.address for node in nodes}
    description = PageDescription(
        token_needed=False, servers=tuple(PageServer(f"/nodes/{name}", name) for name in addresses), demo=_TRUTH
    )
    clients: list[httpx.AsyncClient] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        # A stream is silent for up to 15 s between two signs of life.
        timeout = httpx.Timeout(_SECONDS, read=60.0, pool=None)
        limits = httpx.Limits(max_connections=None, keepalive_expiry=3.0)
        async with httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False) as client:
            clients.append(client)
            yield

    async def describe(_: Request) -> Response:
        return answer(description)

    async def truth(request: Request) -> Response:
        text = request.query_params.get("after", "-1")
        if not text.removeprefix("-").isdecimal() or len(text) > 18:
            return refusal(400, "query", "after: allowed: the number of a slot.")
        return answer(comparison.after(int(text)))

    async def pass_on(request: Request) -> Response:
        address = addresses.get(request.path_params["name"])
        if address is None:
            return refusal(404, "not-found", "this demo has no such node; /page.json lists its nodes.")
        path = request.path_params["path"]
        if _DATA.fullmatch(path) is None:  # a node's own page would come without its Content-Security-Policy
            return refusal(404, "not-found", "the demo passes on data of its nodes only: /v1/…, /metrics, /readyz.")
        url = httpx.URL(f"{address}/{path}", query=request.url.query.encode())
        try:
            node = await clients[0].send(clients[0].build_request("GET", url), stream=True)
        except httpx.HTTPError:
            return refusal(502, "unreachable", "this node does not answer.")
        headers = {name: node.headers[name] for name in _PASSED_ON if name in node.headers}
        return StreamingResponse(_body(node), node.status_code, headers)

    routes: list[BaseRoute] = [
        *(Route(path, app) for path, app in page_apps().items()),
        Route("/page.json", describe, methods=["GET"]),
        Route(_TRUTH, truth, methods=["GET"]),
        Route("/nodes/{name}/{path:path}", pass_on, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def _body(node: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the body as it comes; a node that ends in the middle of it ends it here, too."""
    try:
        async for part in node.aiter_bytes():
            yield part
    except httpx.HTTPError:
        return
    finally:
        await node.aclose()


class PageThread:
    """The server of the page in a thread of its own, inside the with block."""

    def __init__(self, app: Starlette) -> None:
        self._socket = socket.socket()
        self._socket.bind((HOST, 0))
        # The address is printed at once: a browser that is faster than the thread waits instead of being refused.
        self._socket.listen()
        config = uvicorn.Config(
            app, access_log=False, log_config=None, server_header=False, timeout_graceful_shutdown=1, lifespan="on"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="page", daemon=True
        )

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self._socket.getsockname()[1]}/"

    def __enter__(self) -> PageThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(5)
        self._socket.close()
