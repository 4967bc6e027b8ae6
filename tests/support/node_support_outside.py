"""What an outsider can get of a node: answers to HTTP requests, without sockets, and the files that it leaves."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["Asgi", "ask", "files_in", "listen"]

Asgi = Callable[..., Any]
"""An ASGI application."""


async def ask(
    app: Asgi, method: str, path: str, headers: dict[str, str], content: bytes = b"", *, parts: int = 1
) -> tuple[object, ...]:
    """One request, whose body arrives in some parts; status, headers and bytes of the answer."""
    size = -(-len(content) // parts) or 1
    pieces = [content[at : at + size] for at in range(0, len(content), size)] or [b""]
    inbox = [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces) - 1}
        for number, piece in enumerate(pieces)
    ]
    answer: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return inbox.pop(0) if inbox else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        answer.append(message)

    await app(_scope(method, path, headers), receive, send)
    return answer[0]["status"], tuple(answer[0]["headers"]), b"".join(message.get("body", b"") for message in answer)


async def listen(app: Asgi, path: str, token: str, note: Callable[[object], None]) -> None:
    """A reader of an event stream, who never goes: every piece that it gets is noted."""

    async def receive() -> dict[str, Any]:
        forever: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        return await forever

    async def send(message: dict[str, Any]) -> None:
        assert message.get("status", 200) == 200, "a reader who is turned away sees nothing, and would notice nothing"
        note(message.get("body", message.get("headers")))

    await app(_scope("GET", path, {"authorization": f"Bearer {token}"}), receive, send)


def _scope(method: str, path: str, headers: dict[str, str]) -> dict[str, Any]:
    path, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8080),
    }


def files_in(folder: Path) -> Iterator[tuple[str, object]]:
    """All files of a folder, sorted by name, with all of their content that can be compared."""
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if file.is_dir():
            yield name, "folder"
        elif name.endswith("-shm"):
            yield name, file.stat().st_size
        else:
            content = file.read_bytes()
            compared = b"".join(_pages_of_log(content)) if name.endswith("-wal") else content
            yield name, (len(content), hashlib.sha256(compared).hexdigest())


def _pages_of_log(log: bytes) -> Iterator[bytes]:
    """SQLite's write-ahead log without its salt and checksums: numbers and contents of all pages, old ones included."""
    if not log:
        return
    (page,) = struct.unpack(">I", log[8:12])
    yield log[:16]
    for at in range(32, len(log), 24 + page):
        yield log[at : at + 8] + log[at + 24 : at + 24 + page]
