"""Server-sent events of /v1/stream, without I/O: bytes in, releases out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from dpcrowd.client.errors import NodeFailed
from dpcrowd.client.tables import Estimates, from_json

__all__ = ["Events"]

_MOST_LINE = 256 << 20


class Events:
    """The state of a stream over all its connections.

    last  the slot that was seen last; a new connection goes on after it
    """

    def __init__(self, after: int | None) -> None:
        self.last = after
        self._lost = 0
        self.begin()

    def begin(self) -> None:
        """A new connection: half an event of the old one is forgotten, and will be sent again."""
        self._parts: list[bytes] = []
        self._held = 0
        self._fields: dict[str, str] = {}

    @property
    def headers(self) -> dict[str, str]:
        after = {} if self.last is None else {"last-event-id": str(self.last)}
        return {"accept": "text/event-stream", **after}

    def feed(self, chunk: bytes) -> Iterator[Estimates]:
        """Releases that are complete with this chunk."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            whole = b"".join([*self._parts, line])
            self._parts, self._held = [], 0
            yield from self._line(whole.rstrip(b"\r"))
        self._parts.append(rest)
        self._held += len(rest)
        if self._held > _MOST_LINE:
            raise _not_a_node()

    def _line(self, line: bytes) -> Sequence[Estimates]:
        if line:
            name, _, value = line.decode("utf-8", "replace").partition(":")
            self._fields[name] = value.removeprefix(" ")
            return ()
        fields, self._fields = self._fields, {}
        if fields.get("event") == "lost":
            self._lost += _decoded(fields.get("data", ""))
        elif fields.get("event") == "estimates":
            return (self._release(fields),)
        return ()  # a comment that keeps the connection, or an event of a newer node

    def _release(self, fields: dict[str, str]) -> Estimates:
        number = fields.get("id", "")
        release = None
        if number.isascii() and number.isdecimal() and len(number) < 16:
            with suppress(ValueError, OverflowError):
                release = from_json(fields.get("data", ""), self._lost)
        if release is None:
            raise _not_a_node()
        self.last, self._lost = int(number), 0
        return release


class _Lost(msgspec.Struct):
    slots: int


def _decoded(data: str) -> int:
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(data, type=_Lost).slots
    raise _not_a_node()


def _not_a_node() -> NodeFailed:
    text = "the stream is not one of a dpcrowd node of this version."
    return NodeFailed(text, status=200, reason="not-a-node", text=text)
