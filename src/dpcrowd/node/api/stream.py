"""/v1/stream: every release as it is published, as server-sent events (GET) or over a WebSocket.

A reader gets the latest release first, then each new one. A reader that names the slot which it received last
(Last-Event-ID, which browsers send, or the parameter `after`) gets those since. A reader that is too slow loses the
oldest releases and learns how many.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from dpcrowd.node.api.answers import refusal
from dpcrowd.node.api.broadcast import Lost
from dpcrowd.node.api.estimates import QueryRefused, check_names, chosen_regions, chosen_view, slot_number
from dpcrowd.node.api.history import history_of
from dpcrowd.node.api.rights import CHALLENGE, denied
from dpcrowd.node.api.rows import View, of_release, rows_of, select, to_json
from dpcrowd.node.api.service import Context, Process
from dpcrowd.node.release import SlotRelease

__all__ = ["pump", "releases", "routes"]

Item = SlotRelease | Lost
_PAGE = 100
_IDLE_SECONDS = 15.0
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class _Query:
    """What a reader asks for.

    regions  only these; None: all
    after    the slot that the reader received last; None: it has none
    columns  as columns (`History`), not as rows
    view     with this view beside the estimates; None: with none
    """

    regions: list[str] | None = None
    after: int | None = None
    columns: bool = False
    view: View | None = None


_DEFAULT = _Query()


class EventStream:
    """GET /v1/stream: server-sent events, as an ASGI application that notices when its reader disconnects."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        query = _read_query(self._context, request.headers, request.query_params)
        if scope["method"] != "GET":
            query = refusal(405, "method", "this path takes GET, and WebSockets.", {"allow": "GET"})
        if isinstance(query, Response):
            await query(scope, receive, send)
            return
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

        async def write(chunk: bytes) -> None:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

        async def deliver(item: Item) -> None:
            await write(_event(item, query, self._context.service.process))

        await write(b": dpcrowd\n\n")  # so that the reader knows at once that it is connected
        async with aclosing(releases(self._context, query.after)) as source:
            await pump(source, _http_disconnect(receive), deliver, lambda: write(b":\n\n"))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def routes(context: Context) -> list[BaseRoute]:
    """Return the two routes of the path, for GET and for WebSockets."""

    async def socket(websocket: WebSocket) -> None:
        query = _read_query(context, websocket.headers, websocket.query_params)
        if isinstance(query, Response):
            await websocket.send_denial_response(query)
            return
        await websocket.accept()

        async def do_nothing() -> None:
            """The server's own pings keep the connection open."""

        try:
            async with aclosing(releases(context, query.after)) as source:
                await pump(
                    source,
                    _websocket_disconnect(websocket),
                    lambda item: websocket.send_text(_message(item, query)),
                    do_nothing,
                )
            await websocket.close(1001)
        except (WebSocketDisconnect, RuntimeError):
            pass  # the reader disconnected while something was being sent

    return [Route("/v1/stream", EventStream(context)), WebSocketRoute("/v1/stream", socket)]


async def releases(context: Context, after: int | None) -> AsyncGenerator[Item]:
    """Yield the releases after a slot, or the latest one, and then each new one; no slot twice."""
    service = context.service
    delivered: set[int] = set()
    async with service.subscribe() as live:
        if after is None:
            latest = await service.latest()
            old = [] if latest is None else [latest]
        else:
            old = list(await service.estimates(after + 1, None, None, _PAGE))
        while old:
            for item in old:
                delivered.add(item.slot)
                yield item
            old = [] if after is None else list(await service.estimates(old[-1].slot + 1, None, None, _PAGE))
        async for news in live:
            if isinstance(news, Lost) or news.slot not in delivered:
                yield news


async def pump(
    source: AsyncIterator[Item],
    disconnect: Coroutine[Any, Any, None],
    deliver: Callable[[Item], Awaitable[None]],
    idle: Callable[[], Awaitable[None]],
    idle_seconds: float = _IDLE_SECONDS,
) -> None:
    """Deliver until the source ends or the reader disconnects; call `idle` whenever nothing came for a while."""
    leaving: asyncio.Future[Any] = asyncio.ensure_future(disconnect)
    coming: asyncio.Future[Any] | None = None
    try:
        while True:
            if coming is None:
                coming = asyncio.ensure_future(_next(source))
            finished, _ = await asyncio.wait(
                {coming, leaving}, timeout=idle_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if leaving in finished:
                return
            if coming in finished:
                item, coming = coming.result(), None
                await deliver(item)
            else:
                await idle()
    except (StopAsyncIteration, OSError):
        return  # the source has ended, or the connection has
    finally:
        tasks = [task for task in (coming, leaving) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _next(source: AsyncIterator[Item]) -> Item:
    return await anext(source)


def _read_query(context: Context, headers: Headers, query: QueryParams) -> _Query | Response:
    """Return what the reader asks for, or a refusal."""
    denial = denied(context.tokens, "read", headers.raw)
    if denial is not None:
        return refusal(denial.status, denial.reason, denial.text, CHALLENGE if denial.status == 401 else None)
    try:
        check_names(query, {"region", "after", "columns", "view"})
        if query.get("columns", "false") not in ("true", "false"):
            raise QueryRefused("columns: allowed: true or false.")
        text = headers.get("last-event-id") or query.get("after")
        after = None if text is None else slot_number(context, "after", text)
        if text is not None and after is None:
            raise QueryRefused("after: this is not a slot; allowed: a whole number >= 0.")
        return _Query(chosen_regions(context, query), after, query.get("columns") == "true", chosen_view(query))
    except QueryRefused as error:
        return refusal(400, "query", str(error))


def _event(item: Item, query: _Query = _DEFAULT, process: Process | None = None) -> bytes:
    """Return a server-sent event; columns are a `History` of one slot, which is a third as long as rows."""
    if isinstance(item, Lost):
        return b"event: lost\ndata: " + _encode({"slots": item.slots}) + b"\n\n"
    if query.columns:
        data = _encode(history_of([item], query.regions or item.regions, view=query.view, process=process))
    else:
        data = to_json(*select([item], query.regions, view=query.view))
    return b"id: %d\nevent: estimates\ndata: %b\n\n" % (item.slot, data)


def _message(item: Item, query: _Query) -> str:
    """Return a message of a WebSocket."""
    if isinstance(item, Lost):
        return _encode({"event": "lost", "slots": item.slots}).decode()
    (release,), more = select([item], query.regions, view=query.view)
    rows = rows_of(release, of_release(more, 0))
    return _encode({"event": "estimates", "slot": item.slot, "rows": rows}).decode()


async def _http_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _websocket_disconnect(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass  # messages of a reader are ignored
