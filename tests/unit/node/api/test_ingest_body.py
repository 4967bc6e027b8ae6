"""How the body of a POST is read: in pieces, packed, too long, too slow, and not at all."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest

from dpcrowd.node.api import ingest as api_ingest
from dpcrowd.node.config.kinds import Size
from node_support_api import (
    CHECKIN,
    Caller,
    FakeService,
    app_of,
    bearer,
    client_of,
    reason_of,
)

JSON = {"Content-Type": "application/json", **bearer(CHECKIN)}
ONE = b'[{"user":"ann","region":"north"}]'


def test_a_body_in_pieces() -> None:
    """Clients stream bodies without telling their length."""
    service = FakeService()

    async def pieces() -> AsyncIterator[bytes]:
        for part in (ONE[:5], ONE[5:20], ONE[20:]):
            yield part

    assert client_of(service).post("/v1/checkins", content=pieces(), headers=JSON).status_code == 202
    assert service.batches[0].users == [b"ann"]


def test_a_long_body_without_its_length_is_cut_off() -> None:
    """Content-Length may be missing or wrong: what is read is counted, and never held beyond the limit."""
    service = FakeService()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b" " * 1_000

    response = client_of(service).post("/v1/checkins", content=pieces(), headers=JSON)
    assert (response.status_code, reason_of(response)) == (413, "too-large")
    assert "connection" not in response.headers


def test_the_largest_body_is_told_in_bytes() -> None:
    """node.toml's "8MiB" prints as that: "8MiB bytes" would be said."""
    response = client_of(FakeService(), max_body=Size(1 << 10)).post("/v1/checkins", content=bytes(2000), headers=JSON)
    assert "allowed: 1024 bytes." in response.json()["error"]["text"]


def test_a_client_that_asks_first_is_answered_first() -> None:
    """`Expect: 100-continue` waits for the answer: reading the body that is refused would make the client send it."""
    caller = Caller("/v1/checkins", headers={**JSON, "Content-Length": "100001", "Expect": "100-continue"})
    caller.scope["method"] = "POST"
    caller.said.get_nowait()
    asyncio.run(app_of(FakeService())(caller.scope, caller.receive, caller.send))
    start = caller.heard.get_nowait()
    assert (start["status"], dict(start["headers"])[b"connection"]) == (413, b"close")


def test_an_endless_body_is_not_read_to_its_end() -> None:
    """Somebody without a token must not keep the node reading."""
    service = FakeService()
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1 << 20
            yield bytes(1 << 20)

    response = client_of(service).post("/v1/checkins", content=pieces(), headers={"Content-Type": "application/json"})
    assert (response.status_code, response.headers["connection"]) == (401, "close")
    assert sent < 20 << 20


def test_a_client_that_goes_away_leaves_nothing() -> None:
    """Half a body is not a batch."""
    service = FakeService()
    caller = Caller("/v1/checkins", headers={**JSON})
    caller.scope["method"] = "POST"
    caller.said.get_nowait()
    caller.said.put_nowait({"type": "http.request", "body": ONE, "more_body": True})
    caller.leave()
    asyncio.run(app_of(service)(caller.scope, caller.receive, caller.send))
    assert caller.heard.empty()
    assert not service.batches
    assert not service.refusals


def test_a_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that send a byte and wait would pile up until no file can be opened any more."""
    monkeypatch.setattr(api_ingest, "SECONDS_TO_SEND", 0.05)
    monkeypatch.setattr(api_ingest, "_SECONDS_TO_DISCARD", 0.05)
    service = FakeService()
    caller = Caller("/v1/checkins", headers=JSON)
    caller.scope["method"] = "POST"
    caller.said.get_nowait()
    caller.said.put_nowait({"type": "http.request", "body": b"[", "more_body": True})
    asyncio.run(asyncio.wait_for(app_of(service)(caller.scope, caller.receive, caller.send), 20))
    start = caller.heard.get_nowait()
    assert (start["status"], dict(start["headers"])[b"connection"]) == (408, b"close")
    assert service.refusals == ["too-slow"]
    assert not service.batches


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZip"])
@pytest.mark.parametrize("pieces", [1, 3, 1_000])
def test_gzip_is_unpacked(coding: str, pieces: int) -> None:
    """A feed over a narrow line sends a tenth; in pieces of any size, and in several members (`cat a.gz b.gz`)."""
    service = FakeService()
    rows = b"".join(b'{"user": %d, "region": "north"}\n' % number for number in range(50))
    body = gzip.compress(rows[:700]) + gzip.compress(rows[700:])
    size = -(-len(body) // pieces)

    async def sent() -> AsyncIterator[bytes]:
        for first in range(0, len(body), size):
            yield body[first : first + size]

    headers = {**JSON, "Content-Type": "application/x-ndjson", "Content-Encoding": coding}
    response = client_of(service).post("/v1/checkins", content=sent(), headers=headers)
    assert (response.status_code, response.json()["accepted"]) == (202, 50)
    counts = gzip.compress(b'{"slot": 101, "counts": {"south": 7}}')
    headers = {**JSON, "Content-Encoding": coding}
    assert client_of(service).post("/v1/counts", content=counts, headers=headers).status_code == 202
    assert service.counted(101)[1] == 7


@pytest.mark.slow
@pytest.mark.parametrize("more", [b"", b" " * 50_000])
def test_what_gzip_unpacks_to_counts_against_the_limit(more: bytes) -> None:
    """A kilobyte may unpack to a megabyte: it is unpacked piece by piece, and no further than is allowed."""
    body = gzip.compress(more + bytes(64 << 20))
    assert len(body) < 100_000, "packed, it is within the limit"
    headers = {**JSON, "Content-Encoding": "gzip"}
    tracemalloc.start()
    try:
        response = client_of(FakeService(), max_body=100_000).post("/v1/checkins", content=body, headers=headers)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (response.status_code, reason_of(response)) == (413, "too-large")
    assert "unpacked" in response.json()["error"]["text"]
    assert peak < 4 << 20


@pytest.mark.parametrize(
    "body",
    [
        b"",
        ONE,
        gzip.compress(ONE)[:-1],
        gzip.compress(ONE)[:-9],
        gzip.compress(ONE) + b"and more",
        gzip.compress(ONE)[:-8] + bytes(8),
        gzip.compress(b"") * 2_000,
        zlib.compress(ONE),
    ],
    ids=["nothing", "not packed", "cut", "cut in the data", "more behind it", "checksum", "many members", "deflate"],
)
def test_what_is_not_gzip_is_refused(body: bytes) -> None:
    """A body that was cut off on its way must not be taken for a shorter one."""
    service = FakeService()
    headers = {**JSON, "Content-Encoding": "gzip"}
    response = client_of(service).post("/v1/checkins", content=body, headers=headers)
    assert (response.status_code, reason_of(response)) == (400, "malformed")
    assert not service.batches


@pytest.mark.parametrize("coding", ["br", "deflate", "zstd", "gzip, gzip"])
def test_other_encodings_are_refused(coding: str) -> None:
    """The answer says which one is taken, in words and as programs read it."""
    headers = {**JSON, "Content-Encoding": coding}
    response = client_of(FakeService()).post("/v1/checkins", content=gzip.compress(ONE), headers=headers)
    assert (response.status_code, reason_of(response)) == (415, "content-encoding")
    assert response.headers["accept-encoding"] == "gzip"
    assert "gzip" in response.json()["error"]["text"]
