"""What readers are answered about releases on disk, held against answers that were kept: not a byte may differ.

The answers under `tests/fixtures/v0.1.0/answers` are about the data folder beside them.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.node.api.app import make_app
from dpcrowd.node.config import load_pair
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.live.timing import WallClock
from dpcrowd.node.slots import SECOND
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.memory import MemoryHub, MemoryTransport
from dpcrowd.privacy import SecureNoise
from node_support_api import READ, TOKENS, Caller, Client, bearer
from project_support import TESTS

FOLDER = TESTS / "fixtures" / "v0.1.0"
FIRST, LAST = 35233, 35245
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"


class StoppedClock(WallClock):
    """It is always the same time."""

    def __init__(self, at_ns: int) -> None:
        self._at_ns = at_ns

    def now(self) -> int:
        return self._at_ns


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Any]:
    """The API of a node on a copy of the folder, a moment after its last release; nothing else of the node runs."""
    copy = Path(shutil.copytree(FOLDER, tmp_path / "v0.1.0"))
    node, network = load_pair(copy / "server-1" / "node.toml")
    clock = StoppedClock(network.clock().opens(LAST + 2) + SECOND)
    with Storage.open(node.data, network_id=network.id) as storage:
        transport = MemoryTransport(MemoryHub(np.random.default_rng(0)))
        live = LiveNode(node, network, storage, transport, SecureNoise(), clock)
        yield make_app(live, TOKENS, max_body=1000, now=clock.now, requests_per_second=0.0)
        live.executor.close()


def kept(name: str) -> bytes:
    return (FOLDER / "answers" / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "path", "accept"),
    [
        ("latest.json", "/v1/estimates/latest", "application/json"),
        ("chosen.json", f"/v1/estimates?from={FIRST}&to={LAST - 1}&region=west&region=north", "application/json"),
        ("estimates.csv", f"/v1/estimates?from={FIRST}", "text/csv"),
    ],
)
def test_answers_are_the_same_byte_for_byte(app: Any, name: str, path: str, accept: str) -> None:
    """Readers parse, compare and archive these answers: another digit or another order would be another release."""
    response = Client(app).get(path, headers={**bearer(READ), "Accept": accept})
    assert response.status_code == 200
    assert response.content == kept(name)


@pytest.mark.slow
def test_the_stream_is_the_same_byte_for_byte(app: Any) -> None:
    """Whoever comes back to the stream gets releases from disk, as they were sent when they were new."""

    async def read() -> bytes:
        caller = Caller("/v1/stream", query=f"after={LAST - 3}", headers=bearer(READ))
        task = asyncio.create_task(app(caller.scope, caller.receive, caller.send))
        await caller.body()  # the head
        content = b"".join([await caller.body() for _ in range(4)])
        caller.leave()
        await asyncio.wait_for(task, 10)
        return content

    assert asyncio.run(read()) == kept("stream.txt")


@pytest.mark.parametrize("kind", [ARROW, PARQUET])
def test_columns_hold_the_same_numbers(app: Any, kind: str) -> None:
    """The bytes are those of the installed pyarrow, but what is in them is what the kept CSV says, to the last bit."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    body = Client(app).get(f"/v1/estimates?from={FIRST}", headers={**bearer(READ), "Accept": kind}).content
    source = pyarrow.BufferReader(body)
    table = parquet.read_table(source) if kind == PARQUET else pyarrow.ipc.open_stream(source).read_all()
    head, *lines = kept("estimates.csv").decode().splitlines()
    assert table.column_names == head.split(",")
    columns = table.drop_columns("start").to_pydict()
    rows = [",".join(_text(value) for value in row) for row in zip(*columns.values(), strict=True)]
    assert rows == [",".join([*line.split(",")[:1], *line.split(",")[2:]]) for line in lines]


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
