"""Streams: events from bytes however they are cut, and connections that break."""

from __future__ import annotations

import asyncio
import time

import pytest

import dpcrowd
from client_support import SECONDS, serving
from dpcrowd.client.errors import NodeFailed, NodeUnreachable, NotAllowed
from dpcrowd.client.steps import Reply, Silence
from dpcrowd.client.stream import StreamState, Watch
from dpcrowd.node.api.broadcast import Broadcast, Lost
from dpcrowd.node.api.stream import _event
from node_support_api import READ, FakeService, estimates_of

BYTES = (
    b": dpcrowd\n\n"
    + _event(estimates_of(3))
    + _event(Lost(2))
    + b":\n\n"
    + _event(estimates_of(6))
    + _event(estimates_of(7))
)


@pytest.mark.parametrize("size", [1, 2, 7, 100, 10_000])
def test_events_however_they_are_cut(size: int) -> None:
    """Chunks of a network end anywhere, also inside a character."""
    events = StreamState(None)
    found = [one for at in range(0, len(BYTES), size) for one in events.feed(BYTES[at : at + size])]
    assert [(int(one.slot[0]), one.lost, len(one)) for one in found] == [(3, 0, 3), (6, 2, 3), (7, 0, 3)]
    assert events.headers["last-event-id"] == "7"


def test_half_an_event_of_a_broken_connection_is_forgotten() -> None:
    """It would otherwise be glued to the first event of the next one."""
    whole = b": dpcrowd\n\n" + _event(estimates_of(3))
    for most in range(1, len(whole)):
        watch = Watch(2, None, None, time.monotonic)
        assert list(watch.receive(whole[:most])) == []
        watch.connected()
        assert [one.slot[0] for one in watch.receive(whole)] == [3]  # once


@pytest.mark.parametrize(
    "data",
    [b"id: x\nevent: estimates\ndata: []", b"id: 1\nevent: estimates\ndata: {", b"event: lost\ndata: 5"],
)
def test_what_is_not_a_stream_of_a_node(data: bytes) -> None:
    """Said in one line."""
    with pytest.raises(NodeFailed):
        list(StreamState(None).feed(data + b"\n\n"))


def test_when_to_give_up() -> None:
    """A node may be away for a while, not for ever; what will not pass is raised at once."""
    now = [0.0]
    watch = Watch(None, None, 3.0, lambda: now[0])
    for wanted in (0.2, 0.4, 0.8, 1.6):
        assert watch.wait(Silence("ConnectError")) == wanted
        now[0] += wanted
    with pytest.raises(NodeUnreachable):  # 3.2 more would be beyond 3 seconds
        watch.wait(Silence("ConnectError"))
    now[0] = 1000.0
    list(watch.receive(b":\n\n"))
    assert watch.wait(Silence("ReadError")) == 0.2  # it was there again: patience begins anew
    with pytest.raises(NotAllowed):
        watch.wait(Reply(401, b'{"error":{"reason":"no-token","text":"no."}}'))


@pytest.mark.slow
def test_a_stream_over_a_restart() -> None:
    """The node stops and starts; the reader goes on after the slot that it saw last, and misses nothing."""
    service = FakeService(slots=[1])
    with serving(service) as served, dpcrowd.Client(served.url, READ) as client:
        stream = client.stream("south", seconds=SECONDS)
        assert next(stream).slot.tolist() == [1]
        served.publish(estimates_of(2))
        assert next(stream).slot.tolist() == [2]
        served.stop()
        service.stored += [estimates_of(3), estimates_of(4)]
        service.broadcast = Broadcast()
        served.start()
        assert [int(next(stream).slot[0]) for _ in range(2)] == [3, 4]
        stream.close()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_stream_ends_in_time() -> None:
    """A read that waits for the next release would otherwise hold its thread until something comes."""
    with serving(FakeService(slots=[1])) as served, dpcrowd.Client(served.url, READ) as client:
        began = time.monotonic()
        assert len(list(client.stream(seconds=0.5))) == 1
        assert 0.4 < time.monotonic() - began < 10
        with pytest.raises(NotAllowed), dpcrowd.Client(served.url) as stranger:
            next(iter(stranger.stream()))


@pytest.mark.slow
def test_streams_of_asyncio() -> None:
    """The same over a restart, and an end in time."""
    service = FakeService(slots=[1])

    async def run(url: str) -> list[int]:
        async with dpcrowd.AsyncClient(url, READ) as client:
            first = [int(release.slot[0]) async for release in client.stream(seconds=0.5)]
            more = [int(release.slot[0]) async for release in client.stream(after=0, seconds=0.3)]
            return first + more

    with serving(service) as served:
        assert asyncio.run(asyncio.wait_for(run(served.url), SECONDS)) == [1, 1]

    async def away(url: str) -> None:
        async with dpcrowd.AsyncClient(url, READ) as client:
            async for _ in client.stream(patience=0.3):
                raise AssertionError

    with pytest.raises(NodeUnreachable):
        asyncio.run(asyncio.wait_for(away(served.url), SECONDS))
