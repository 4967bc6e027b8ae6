"""The API behind a real server on loopback: what only sockets show."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from dpcrowd.node.api.serve import make_server
from node_support_api import CHECKIN, READ, FakeService, app_of, bearer, estimates_of

SECONDS = 20
CHECKINS = {"Content-Type": "application/json", **bearer(CHECKIN)}


def serving(service: FakeService, use: Callable[[str], Awaitable[None]], *, max_body: int = 100_000) -> None:
    """Serve, use it by "host:port", stop as a node does, and see that everything ends."""

    async def run() -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            server = make_server(app_of(service, max_body=max_body), "127.0.0.1", 0)
            running = asyncio.ensure_future(server.serve([listener]))
            try:
                while not server.started:
                    await asyncio.sleep(0.01)
                await use(f"127.0.0.1:{listener.getsockname()[1]}")
            finally:
                service.broadcast.close()
                server.should_exit = True
                await asyncio.wait_for(running, SECONDS)

    asyncio.run(asyncio.wait_for(run(), 3 * SECONDS))


def test_check_ins_over_a_kept_connection(caplog: pytest.LogCaptureFixture) -> None:
    """Refusals in between do not break the connection for good, and nothing is logged of who sent what."""
    service = FakeService()

    async def use(address: str) -> None:
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
            for size, status in ((1, 202), (200_000, 413), (1, 202)):
                body = json.dumps([{"user": "ann" * size, "region": "north"}])
                response = await client.post("/v1/checkins", content=body, headers=CHECKINS)
                assert response.status_code == status
            assert "server" not in response.headers

    with caplog.at_level(logging.DEBUG, logger="uvicorn"):
        serving(service, use)
    assert len(service.batches) == 2
    assert service.refusals == ["too-large"]
    assert "checkins" not in "".join(record.getMessage() for record in caplog.records if "uvicorn" in record.name)


def test_server_sent_events() -> None:
    """A stream reaches its reader as releases come, and ends when the reader goes or the node stops."""
    service = FakeService(slots=[7])

    async def use(address: str) -> None:
        seen = []
        async with (
            httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=SECONDS) as client,
            client.stream("GET", "/v1/stream", headers=bearer(READ)) as response,
        ):
            async for line in response.aiter_lines():
                if line.startswith("id: "):
                    seen.append(line)
                    if len(seen) == 2:
                        break
                    service.broadcast.publish(estimates_of(8))
        assert seen == ["id: 7", "id: 8"]
        while service.broadcast.readers:
            await asyncio.sleep(0.01)

    serving(service, use)


def test_websocket() -> None:
    """The same over a WebSocket, which tells an operator's page of releases; without a token it is refused."""
    service = FakeService(slots=[7])

    async def use(address: str) -> None:
        async with connect(
            f"ws://{address}/v1/stream?region=south", additional_headers=bearer(READ), proxy=None
        ) as reader:
            first = json.loads(await reader.recv())
            assert (first["event"], first["slot"], len(first["rows"])) == ("estimates", 7, 1)
            await reader.send("ignored")
            service.broadcast.publish(estimates_of(8))
            assert json.loads(await reader.recv())["slot"] == 8
        while service.broadcast.readers:
            await asyncio.sleep(0.01)
        for headers, status in (({}, 401), (bearer(CHECKIN), 403)):
            with pytest.raises(InvalidStatus) as caught:
                await connect(f"ws://{address}/v1/stream", additional_headers=headers, proxy=None)
            assert caught.value.response.status_code == status

    serving(service, use)


def test_a_stop_ends_open_streams() -> None:
    """SIGTERM inside a slot must not wait for readers."""
    service = FakeService(slots=[7])
    closed = []

    async def use(address: str) -> None:
        reader = await connect(f"ws://{address}/v1/stream", additional_headers=bearer(READ), proxy=None)
        await reader.recv()
        service.broadcast.close()
        await asyncio.wait_for(reader.wait_closed(), SECONDS)
        closed.append(reader.close_code)

    serving(service, use)
    assert closed == [1001]
