"""/v1/stream as server-sent events, and what stands behind both kinds of stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from dpcrowd.node.api.broadcast import Broadcast, Lost
from dpcrowd.node.api.rows import VIEWS
from dpcrowd.node.api.stream import pump
from dpcrowd.node.release import SlotRelease
from node_support_api import READ, Caller, Client, FakeService, app_of, bearer, estimates_of

Item = SlotRelease | Lost


def numbers(items: list[Item]) -> list[int | Lost]:
    return [item if isinstance(item, Lost) else item.slot for item in items]


def streaming(
    service: FakeService,
    follow: Callable[[Caller], Awaitable[None]],
    *,
    query: str = "",
    headers: dict[str, str] | None = None,
) -> None:
    """Open a stream, do something with it, go away; the application must then end and have no reader left."""

    async def run() -> None:
        caller = Caller("/v1/stream", query=query, headers={**bearer(READ), **(headers or {})})
        app = asyncio.ensure_future(app_of(service)(caller.scope, caller.receive, caller.send))
        start = await asyncio.wait_for(caller.heard.get(), 10)
        assert start["status"] == 200
        assert dict(start["headers"])[b"content-type"].startswith(b"text/event-stream")
        assert (await caller.body()).startswith(b":")
        await follow(caller)
        caller.leave()
        await asyncio.wait_for(app, 10)
        assert service.broadcast.readers == 0

    asyncio.run(run())


def event(raw: bytes) -> tuple[dict[str, str], object]:
    assert raw.endswith(b"\n\n")
    fields = dict(line.split(": ", 1) for line in raw.decode().strip().split("\n"))
    return fields, json.loads(fields["data"])


def test_the_latest_and_then_each_new_release() -> None:
    """A page that opens shows something at once, and then every release, none twice."""
    service = FakeService(slots=[4, 5])

    async def follow(caller: Caller) -> None:
        fields, rows = event(await caller.body())
        assert (fields["id"], fields["event"]) == ("5", "estimates")
        assert isinstance(rows, list)
        assert rows[1]["region"] == "south"
        service.broadcast.publish(estimates_of(5))
        service.broadcast.publish(estimates_of(6))
        assert event(await caller.body())[0]["id"] == "6"

    streaming(service, follow)


@pytest.mark.parametrize("how", ["header", "query"])
def test_what_was_missed_comes_first(how: str) -> None:
    """A reader whose connection broke goes on where it was."""
    service = FakeService(slots=range(5, 115))

    async def follow(caller: Caller) -> None:
        seen = [int(event(await caller.body())[0]["id"]) for _ in range(108)]
        assert seen == list(range(7, 115))
        service.broadcast.publish(estimates_of(115))
        assert event(await caller.body())[0]["id"] == "115"

    if how == "header":
        streaming(service, follow, headers={"Last-Event-ID": "6"})
    else:
        streaming(service, follow, query="after=6")


def test_only_some_regions() -> None:
    """The filter holds for old and new releases."""
    service = FakeService(slots=[4])

    async def follow(caller: Caller) -> None:
        service.broadcast.publish(estimates_of(5))
        for _ in range(2):
            rows = event(await caller.body())[1]
            assert isinstance(rows, list)
            assert [row["region"] for row in rows] == ["south"]

    streaming(service, follow, query="region=south")


@pytest.mark.parametrize("view", list(VIEWS))
def test_a_stream_with_a_view(view: str) -> None:
    """A map that follows the stream would show negative people; the view is that of all regions, as elsewhere."""
    service = FakeService(slots=[3])
    path = f"/v1/estimates?view={view}&region=north"
    expected = Client(app_of(service)).get(path, headers=bearer(READ)).json()

    async def follow(caller: Caller) -> None:
        assert event(await caller.body())[1] == expected

    streaming(service, follow, query=f"view={view}&region=north")


def test_the_stream_ends_with_the_node() -> None:
    """A node that stops must not wait for readers who never go."""
    service = FakeService()

    async def run() -> None:
        caller = Caller("/v1/stream", headers=bearer(READ))
        app = asyncio.ensure_future(app_of(service)(caller.scope, caller.receive, caller.send))
        await asyncio.wait_for(caller.heard.get(), 10)
        await caller.body()
        service.broadcast.close()
        await asyncio.wait_for(app, 10)
        assert await asyncio.wait_for(caller.heard.get(), 10) == {
            "type": "http.response.body", "body": b"", "more_body": False
        }  # fmt: skip

    asyncio.run(run())


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("after=x", {}, 400),
        ("after=-1", {}, 400),
        ("after=123456789012345", {}, 400),
        ("region=west", {}, 400),
        ("regoin=north", {}, 400),
        ("view=smooth", {}, 400),
        ("", {"Last-Event-ID": "²"}, 400),
        ("", {"Authorization": "Bearer wrong"}, 401),
    ],
)
def test_streams_that_are_refused(query: str, headers: dict[str, str], status: int) -> None:
    """A refusal comes before the stream begins."""
    caller = Caller("/v1/stream", query=query, headers={**bearer(READ), **headers})
    asyncio.run(app_of(FakeService())(caller.scope, caller.receive, caller.send))
    assert caller.heard.get_nowait()["status"] == status


def test_a_slow_reader_loses_the_oldest_and_is_told() -> None:
    """Memory for a reader that does not read is bounded, and others are not held up."""

    async def run() -> None:
        broadcast = Broadcast(size=3)
        async with broadcast.subscribe() as slow, broadcast.subscribe() as quick:
            first = asyncio.ensure_future(_take(quick, 1))
            await asyncio.sleep(0)
            for slot in range(5):
                broadcast.publish(estimates_of(slot))
                await asyncio.sleep(0)
            assert numbers(await first) == [0]
            broadcast.close()
            assert numbers([item async for item in slow]) == [Lost(2), 2, 3, 4]
            assert broadcast.readers == 2
        assert broadcast.readers == 0
        async with broadcast.subscribe() as late:
            assert [item async for item in late] == []

    asyncio.run(run())


def test_a_quiet_stream_says_that_it_lives() -> None:
    """Proxies cut connections on which nothing is heard for long; and the source is not disturbed by the wait."""

    async def run() -> None:
        broadcast, got, idle = Broadcast(), [], 0

        async def deliver(item: Item) -> None:
            got.append(item)
            broadcast.close()

        async def say() -> None:
            nonlocal idle
            idle += 1
            if idle == 3:
                broadcast.publish(estimates_of(1))

        async with broadcast.subscribe() as source:
            await asyncio.wait_for(pump(source, asyncio.sleep(3600), deliver, say, idle_seconds=0.01), 10)
        assert numbers(got) == [1]
        assert idle >= 3

    asyncio.run(run())


def test_a_connection_that_breaks_while_something_is_sent() -> None:
    """Not an error of the node: the stream just ends."""

    async def run() -> None:
        async def source() -> AsyncIterator[Item]:
            yield estimates_of(1)
            raise AssertionError("asked for more after the end")

        async def broken(_: Item) -> None:
            raise ConnectionResetError

        async def nothing() -> None:
            pass

        await asyncio.wait_for(pump(source(), asyncio.sleep(3600), broken, nothing), 10)

    asyncio.run(run())


async def _take(source: AsyncIterator[Item], many: int) -> list[Item]:
    return [await anext(source) for _ in range(many)]
