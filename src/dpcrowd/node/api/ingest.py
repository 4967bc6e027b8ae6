"""POST /v1/checkins and /v1/counts: the busiest endpoints, as plain ASGI functions.

Whatever happens here, neither the answer nor the log contains anything of the body: an unexpected error is logged only
by the name of its class, since its text and its traceback could quote a user.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import msgspec
from starlette.types import Message, Receive, Scope, Send

from dpcrowd.node.api.answers import named_rows, refusal_bytes
from dpcrowd.node.api.rights import CHALLENGE, bearer, denied
from dpcrowd.node.api.service import Context
from dpcrowd.node.api.views import Taken
from dpcrowd.node.collect import IntakeRefused
from dpcrowd.node.ingest.batch import ROW_REASONS, BodyRefused, RowRefusal, row_text
from dpcrowd.node.ingest.bodies import decode_checkins, decode_counts
from dpcrowd.node.ingest.gzipped import CODINGS, Unpacker
from dpcrowd.node.slots import SECOND

__all__ = ["Ingest", "take_checkins", "take_counts"]

Take = Callable[[Context, str | None, bytes], Awaitable[Taken]]

_log = logging.getLogger("dpcrowd.node.api")
_STATUS = {"late": 409, "future": 400, "unavailable": 503, "off": 403, "rate": 429}
_DISCARDED = 16 << 20
SECONDS_TO_SEND, _SECONDS_TO_DISCARD = 60.0, 5.0
_TAKEN = Taken(True)
_FIRST_CLIENT = "dpcrowd"  # the client of 0.1.0 repeats a request for ever if the answer is neither 202 nor a refusal
_encode = msgspec.json.Encoder().encode
_AT_ONCE = 64 << 10  # bytes of a body that is decoded in the event loop; larger ones would delay slots and requests
_decoders = ThreadPoolExecutor(1, thread_name_prefix="dpcrowd-decode")


class AllRowsRefused(BodyRefused):
    """A body of which no row can be taken; status and text are those of the first row."""

    def __init__(self, refused: Sequence[RowRefusal]) -> None:
        first = ROW_REASONS[refused[0][1]]
        super().__init__(first.status, first.request, row_text(refused[0]))
        self.refused = refused


async def take_checkins(context: Context, content_type: str | None, body: bytes) -> Taken:
    """Decode and take check-ins.

    A feed sends an empty list to report that it runs; the answer says when the next slot opens.
    """
    arrived_ns = context.now()
    decoding = partial(decode_checkins, content_type, body, dict(context.service.regions))
    large = len(body) > _AT_ONCE
    batch = await asyncio.get_running_loop().run_in_executor(_decoders, decoding) if large else decoding()
    rows = len(batch) + len(batch.refused)
    if rows and not len(batch):
        raise AllRowsRefused(batch.refused)
    refused = await context.service.take_checkins(batch, arrived_ns)
    if refused:
        if len(refused) == rows:
            raise AllRowsRefused(refused)
        for reason in {ROW_REASONS[reason].request for _, reason in refused}:
            context.service.refused(reason, arrived_ns)
        return Taken(True, rows - len(refused), named_rows(refused), len(refused))
    if rows:
        return Taken(True, rows)
    now, clock = context.now(), context.service.clock
    # Until the end of the slot that was fed: one that has opened since was not, and the feed would sleep through it.
    return Taken(True, 0, seconds_left=max(clock.closes(clock.slot_of(arrived_ns)) - now, 0) / SECOND)


async def take_counts(context: Context, content_type: str | None, body: bytes) -> Taken:
    """Decode and take counts."""
    arrived_ns = context.now()
    slot, counts = decode_counts(content_type, body, context.service.regions)
    await context.service.take_counts(slot, counts, arrived_ns)
    return _TAKEN


class Ingest:
    """The ASGI application of one path."""

    def __init__(self, context: Context, take: Take) -> None:
        self._context = context
        self._take = take

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_body = _RequestBody(receive)
        try:
            self._check(scope)
            packed = (_header(scope, b"content-encoding") or "").lower() in CODINGS
            body = await request_body.read(self._context.max_body, packed=packed)
            if body is None:
                return  # the client has disconnected
            answer = await self._take(self._context, _header(scope, b"content-type"), body)
        except (BodyRefused, IntakeRefused) as error:
            # A connection that is closed with unread bytes is reset, and the client may never see the answer.
            waits = _header(scope, b"expect") is not None  # the client waits for the answer before it sends the body
            await self._refuse(send, error, keep=not waits and await request_body.discard())
        except Exception as error:
            text = "a request to %s failed: %s"
            _log.error(text, scope["path"], type(error).__name__, extra={"event": "request-failed"})
            text = "the node could not handle this request; its log has the error."
            await _respond(send, 500, refusal_bytes("internal", text), {})
        else:
            old = _header(scope, b"user-agent") == _FIRST_CLIENT
            await _respond(send, 207 if answer.refused and not old else 202, _encode(answer), {})

    def _check(self, scope: Scope) -> None:
        """Refuse everything that can be refused before the body is read."""
        if scope["method"] != "POST":
            raise BodyRefused(405, "method", "this path takes POST only.")
        denial = denied(self._context.tokens, "checkin", scope["headers"])
        if denial is not None:
            raise BodyRefused(denial.status, denial.reason, denial.text)
        if not self._context.limit.take(bearer(scope["headers"]) or "", self._context.now()):
            raise IntakeRefused("rate", "this token sends too many requests; send fewer and larger batches.")
        if (_header(scope, b"content-encoding") or "identity").lower() not in ("identity", *CODINGS):
            raise BodyRefused(
                415, "content-encoding", "this Content-Encoding is not supported; allowed: gzip, or none."
            )
        length = _header(scope, b"content-length") or "0"
        if length.isdecimal() and int(length[:20]) > self._context.max_body:
            raise _too_large(self._context.max_body)

    async def _refuse(self, send: Send, error: BodyRefused | IntakeRefused, *, keep: bool) -> None:
        now = self._context.now()
        self._context.service.refused(error.reason, now)
        status = error.status if isinstance(error, BodyRefused) else _STATUS.get(error.reason, 409)
        headers = {} if keep else {"connection": "close"}
        if status in (429, 503):
            headers["retry-after"] = str(self._context.service.retry_after(now))
        elif error.reason == "content-encoding":
            headers["accept-encoding"] = CODINGS[0]
        elif status == 401:
            headers |= CHALLENGE
        elif status == 405:
            headers["allow"] = "POST"
        refused = error.refused if isinstance(error, AllRowsRefused) else ()
        await _respond(send, status, refusal_bytes(error.reason, str(error), refused), headers)


class _RequestBody:
    """The body of a request, of which no more is kept in memory than is allowed."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = False

    async def read(self, most: int, *, packed: bool = False) -> bytes | None:
        """Return the complete body; None if the client disconnected.

        packed  with gzip: the unpacked body must not be larger than `most` either
        """
        try:
            async with asyncio.timeout(SECONDS_TO_SEND):
                return await (self._all_unpacked(most) if packed else self._all(most))
        except TimeoutError:
            text = f"the body did not arrive within {SECONDS_TO_SEND:g} s; send smaller ones."
            raise BodyRefused(408, "too-slow", text) from None

    async def _all(self, most: int) -> bytes | None:
        parts: list[bytes] = []
        size = 0
        while not self._ended:
            part = await self._part()
            if part is None:
                return None
            size += len(part)
            if size > most:
                raise _too_large(most)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _all_unpacked(self, most: int) -> bytes | None:
        unpacker = Unpacker()
        parts: list[bytes] = []
        size = size_packed = 0
        while not self._ended:
            part = await self._part()
            if part is None:
                return None
            size_packed += len(part)
            for step in unpacker.unpack(part):
                size += len(step)
                if size > most:
                    break
                parts.append(step)
                await asyncio.sleep(0)  # a large body must not delay other requests
            if max(size, size_packed) > most:
                raise _too_large(most, ", packed and unpacked")
        unpacker.end()
        return b"".join(parts)

    async def discard(self) -> bool:
        """Read on without keeping anything; return whether the end was reached."""
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS_TO_DISCARD):
                while not self._ended and size <= _DISCARDED:
                    size += len(await self._part() or b"")
        return self._ended

    async def _part(self) -> bytes | None:
        message = await self._receive()
        disconnected = message["type"] == "http.disconnect"
        self._ended = disconnected or not message.get("more_body", False)
        return None if disconnected else message.get("body", b"")


def _too_large(most: int, how: str = "") -> BodyRefused:
    return BodyRefused(413, "too-large", f"the body is too large; allowed: {most:d} bytes{how}. Send several requests.")


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


async def _respond(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    for message in _messages(status, body, headers):
        await send(message)


def _messages(status: int, body: bytes, headers: dict[str, str]) -> tuple[Message, Message]:
    fields = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    raw = [(name.encode(), value.encode()) for name, value in fields.items()]
    start = {"type": "http.response.start", "status": status, "headers": raw}
    return start, {"type": "http.response.body", "body": body}
