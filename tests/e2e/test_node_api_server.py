"""The API behind a real server on loopback: what only sockets show."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from dpcrowd.node.api import places, serve
from dpcrowd.node.api.serve import make_server
from node_support_api import CHECKIN, READ, FakeService, app_of, bearer, estimates_of
from node_support_tls import Authority

SECONDS = 20
CHECKINS = {"Content-Type": "application/json", **bearer(CHECKIN)}


def serving(
    service: FakeService, use: Callable[[str], Awaitable[None]], *, max_body: int = 100_000, **settings: Any
) -> None:
    """Serve, use it by "host:port", stop as a node does, and see that everything ends."""

    async def run() -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            server = make_server(app_of(service, max_body=max_body), "127.0.0.1", 0, **settings)
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
            f"ws://{address}/v1/stream?region=south&view=nonnegative", additional_headers=bearer(READ), proxy=None
        ) as reader:
            first = json.loads(await reader.recv())
            assert (first["event"], first["slot"], len(first["rows"])) == ("estimates", 7, 1)
            assert first["rows"][0]["estimate_nonnegative"] == first["rows"][0]["estimate"]
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


async def _connect(address: str, first: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(first)
    return reader, writer


async def _end(reader: asyncio.StreamReader) -> bytes:
    """Return what still comes before the connection ends, also if it ends with a reset."""
    content = b""

    async def read() -> None:
        nonlocal content
        while piece := await reader.read(1 << 16):
            content += piece

    with contextlib.suppress(ConnectionResetError):
        await asyncio.wait_for(read(), SECONDS)
    return content


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: ",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /heal",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\nbody",
    ],
    ids=["silence", "half a header", "half a second header", "half a body that nobody reads"],
)
def test_a_request_that_does_not_go_on_is_not_waited_for(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn has a limit for silence between two requests alone; any byte switches that one off."""
    monkeypatch.setattr(places, "HEADER_SECONDS", 0.4)

    async def use(address: str) -> None:
        reader, writer = await _connect(address, first)

        async def trickle() -> None:
            while True:
                await asyncio.sleep(0.1)
                writer.write(b"x" if first else b"")

        trickling = asyncio.create_task(trickle())
        rest = await _end(reader)
        trickling.cancel()
        writer.close()
        assert rest.count(b"200 OK") == (b"\r\n\r\n" in first)

    serving(FakeService(), use)


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check-ins have a limit with an answer of its own; this is for whatever else takes a body."""
    monkeypatch.setattr(serve, "REQUEST_SECONDS", 0.4)

    async def use(address: str) -> None:
        head = f"POST /v1/checkins HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {CHECKIN}\r\n"
        reader, writer = await _connect(address, f"{head}Content-Length: 100\r\n\r\nhalf".encode())
        assert await _end(reader) == b""
        writer.close()

    serving(FakeService(), use)


def test_a_header_without_end_is_refused() -> None:
    """It would be kept in memory, as long as it comes fast enough."""

    async def use(address: str) -> None:
        reader, writer = await _connect(address, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 65_600)
        assert b" 431 " in await _end(reader)
        writer.close()
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
            long = {"X-Long": "a" * 30_000}
            assert (await client.get("/healthz", headers=long)).status_code == 200, "as long as it is of a usual size"

    serving(FakeService(), use)


def test_a_client_that_does_not_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer, and its file, would stay for ever."""
    monkeypatch.setattr(serve, "READ_SECONDS", 0.4)
    service = FakeService(slots=range(20_000))

    async def use(address: str) -> None:
        host, _, port = address.rpartition(":")
        with socket.socket() as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.connect((host, int(port)))
            for _ in range(40):
                plain.send(
                    f"GET /v1/estimates?limit=1000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {READ}\r\n\r\n".encode()
                )
            plain.settimeout(0.0)
            deadline = asyncio.get_running_loop().time() + SECONDS
            ended = False
            while not ended and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(0.2)
                try:
                    plain.send(b"\r\n")
                except BlockingIOError:
                    continue
                except OSError:
                    ended = True
            assert ended

    serving(service, use)


def test_too_many_streams_are_refused_with_a_reason_and_requests_go_on() -> None:
    """Each stream holds a file for days; without a limit they would take all of them."""

    async def use(address: str) -> None:
        ask = f"GET /v1/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {READ}\r\n\r\n".encode()
        streams = [await _connect(address, ask) for _ in range(12)]
        heads = [await asyncio.wait_for(reader.readline(), SECONDS) for reader, _ in streams]
        served = [b" 200 " in head for head in heads]
        assert 0 < sum(served) < 12
        refused = streams[served.index(False)][0]
        rest = await _end(refused)
        assert b"retry-after" in rest
        assert json.loads(rest.rpartition(b"\r\n\r\n")[2])["error"]["reason"] == "connections"
        with pytest.raises(InvalidStatus) as caught:
            async with connect(f"ws://{address}/v1/stream", additional_headers=bearer(READ)):
                pass
        assert caught.value.response.status_code == 503
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
            assert (await client.get("/healthz")).status_code == 200
        for _, writer in streams:
            writer.close()

    serving(FakeService(slots=[7]), use, most_connections=24)


def test_a_websocket_gives_its_place_back() -> None:
    """uvicorn hands the connection over to another protocol: its end has to be noticed there."""

    async def use(address: str) -> None:
        for _ in range(20):
            async with connect(f"ws://{address}/v1/stream", additional_headers=bearer(READ)) as reader:
                assert json.loads(await asyncio.wait_for(reader.recv(), SECONDS))["slot"] == 7

    serving(FakeService(slots=[7]), use, most_connections=16)


def test_https_handshakes_are_limited_as_requests_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event loop's own server waits a minute for each, before anybody is asked whether there is a place."""
    monkeypatch.setattr(serve, "_SECONDS_OF_TLS", 1.0)
    files = Authority(tmp_path).mint("api")
    context = ssl.create_default_context(cafile=str(files.ca))

    async def use(address: str) -> None:
        silent = [await _connect(address) for _ in range(30)]
        await asyncio.gather(*(_end(reader) for reader, _ in silent[:20]))  # they had to make room
        async with httpx.AsyncClient(base_url=f"https://{address}", verify=context, trust_env=False) as client:
            assert (await client.get("/healthz")).status_code == 200
        await asyncio.gather(*(_end(reader) for reader, _ in silent))  # and these were too slow
        for _, writer in silent:
            writer.close()

    serving(FakeService(), use, most_connections=24, certificate=files.certificate, key=files.key)
