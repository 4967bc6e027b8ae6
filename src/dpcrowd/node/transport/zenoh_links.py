"""The open Zenoh sessions of a server, from `open` to `close`, between Zenoh's threads and the event loop.

Zenoh has no asyncio interface. Its callbacks run in its threads and only schedule calls in the event loop; calls that
may block (open, put, close) run in threads of ours.

A lane per neighbour. With congestion control BLOCK (the default drops messages) a put waits up to five seconds while
the queue to a neighbour that does not read is full. So each neighbour has at most one put under way, in a thread, and a
short queue behind it; if that is full the oldest message is dropped, since in this protocol the newest slot matters
most.

A second handshake. Zenoh closes a link when the certificate of the other side expires, and dials again at once. TLS
still accepts a certificate in the second in which it expires, and the watch on a link that is opened after the expiry
often ends before the link exists and can be closed (Zenoh 1.10): that link would stay open. So a dialled link that
returns within a second is opened once more a second later, when an expired certificate is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from dpcrowd.errors import MissingExtra
from dpcrowd.node.transport.base import OnMessage, OnPresence, TransportFailed
from dpcrowd.node.transport.zenoh_settings import key_of_pair

__all__ = ["Lane", "ZenohLinks"]

_MOST_UNREAD = 256  # messages of one neighbour that the event loop has not taken yet; more are dropped
_MOST_PER_SECOND = 256  # messages of one neighbour, which sends one per slot, and again when a link comes up
_FAREWELL = 1.0  # seconds that `close` waits for neighbours that do not read: once to send, once to close
_LAST_SECOND = 1.0  # seconds in which an expired certificate is still accepted
_REFUSED_AFTER = 1.2  # seconds after which it is refused, allowing for clocks that differ a little


class Lane:
    """Sends payloads to one neighbour, in order. Used in the event loop's thread; only `put` runs elsewhere."""

    def __init__(self, put: Callable[[bytes], None], pool: Executor, *, depth: int = 16) -> None:
        self._put = put
        self._pool = pool
        self._waiting: deque[bytes] = deque(maxlen=depth)
        self._under_way: asyncio.Task[None] | None = None
        self.dropped = 0
        """Number of messages that were dropped for newer ones, or refused by the transport."""

    def offer(self, payload: bytes) -> None:
        """Queue a message and return at once."""
        self.dropped += len(self._waiting) == self._waiting.maxlen
        self._waiting.append(payload)
        if self._under_way is None:
            self._under_way = asyncio.get_running_loop().create_task(self._run())

    async def drain(self) -> None:
        """Wait until all queued messages have been sent."""
        if self._under_way is not None:
            await asyncio.shield(self._under_way)

    def abandon(self) -> None:
        """Drop the queued messages; a put that is under way in its thread ends by itself."""
        self._waiting.clear()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                try:
                    await loop.run_in_executor(self._pool, self._put, self._waiting.popleft())
                except Exception:
                    # A session that is being closed refuses puts; the protocol allows losses, and the lane goes on.
                    self.dropped += 1
        finally:
            self._under_way = None


class ZenohLinks:
    """The open sessions, from `open` to `close`. A new object each time, so that no callback outlives its session."""

    def __init__(
        self,
        network: str,
        me: str,
        names: Sequence[str],
        on_message: OnMessage,
        on_presence: OnPresence,
        most_bytes: int,
    ) -> None:
        self._network, self._me, self._most_bytes = network, me, most_bytes
        self._on_message, self._on_presence = on_message, on_presence
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(max(1, len(names)), thread_name_prefix="dpcrowd-put")
        self._sessions: list[Any] = []
        self._dialled: dict[str, tuple[Any, dict[str, str]]] = {}  # by neighbour that is dialled: session and settings
        self._declared: dict[str, list[Any]] = {}  # references, without which Zenoh undeclares
        self._publishers: dict[str, Any] = {}
        self._watches: dict[str, object] = {}  # of the session in use; callbacks of older ones are ignored
        self._ended: dict[str, float] = {}  # when a link was lost, by the clock of the event loop
        self._repeats: dict[str, asyncio.Task[None]] = {}
        self._closing = asyncio.Event()
        self._unread: dict[str, deque[bytes]] = {name: deque() for name in names}
        self._present: dict[str, bool] = dict.fromkeys(names, False)
        self._closed = False
        self.flood: dict[str, int] = dict.fromkeys(names, 0)
        self.lanes = {name: Lane(self._put_for(name), self._pool) for name in names}

    def add(self, settings: dict[str, str], name: str) -> None:
        """Open the session of a neighbour, with its subscriber and publisher. Blocks; runs in a thread."""
        zenoh = _zenoh()
        config = zenoh.Config()
        for path, value in settings.items():
            config.insert_json5(path, value)
        try:
            session = zenoh.open(config)
        except zenoh.ZError as error:
            raise TransportFailed(_reason(error, settings)) from None
        self._sessions.append(session)
        if json.loads(settings["connect/endpoints"]):
            self._dialled[name] = session, settings
        subscriber = session.declare_subscriber(
            key_of_pair(self._network, name, self._me), self._on_sample(name), allowed_origin=zenoh.Locality.REMOTE
        )
        publisher = session.declare_publisher(
            key_of_pair(self._network, self._me, name),
            congestion_control=zenoh.CongestionControl.BLOCK,
            express=True,
            allowed_destination=zenoh.Locality.REMOTE,
        )
        self._publishers[name] = publisher
        watch = publisher.declare_matching_listener(self._on_matching(name))
        self._declared[name] = [subscriber, publisher, watch]

    def certificates(self) -> tuple[str, ...]:
        """Return the certificate names of the links that this server has dialled; `Front` knows those of callers."""
        links = [link for session in self._sessions for link in session.info.links()]
        return tuple(sorted(link.auth_identifier for link in links if link.auth_identifier is not None))

    async def close(self) -> None:
        self._closed = True
        self._closing.set()
        if self._repeats:  # a session that is being opened has to exist before it can be closed
            await asyncio.wait(self._repeats.values(), timeout=2 * _FAREWELL)
        if self.lanes:
            await asyncio.wait(
                [self._loop.create_task(lane.drain()) for lane in self.lanes.values()], timeout=_FAREWELL
            )
        for lane in self.lanes.values():
            lane.abandon()
        self._pool.shutdown(wait=False)
        closing = [_close_in_thread(self._loop, session) for session in self._sessions]
        if closing:
            await asyncio.wait(closing, timeout=_FAREWELL)

    # The functions that these three return are called by Zenoh's threads, or by those of the pool.

    def _put_for(self, name: str) -> Callable[[bytes], None]:
        def put(payload: bytes) -> None:
            self._publishers[name].put(payload)

        return put

    def _on_sample(self, name: str) -> Callable[[Any], None]:
        unread = self._unread[name]
        second, received = 0.0, 0

        def receive(sample: Any) -> None:
            nonlocal second, received
            now = time.monotonic()
            if now - second >= 1.0:
                second, received = now, 0
            received += 1
            payload = sample.payload
            if received > _MOST_PER_SECOND or len(unread) >= _MOST_UNREAD or len(payload) > self._most_bytes:
                self.flood[name] += 1
                return
            unread.append(payload.to_bytes())
            self._call(self._take, name)

        return receive

    def _on_matching(self, name: str) -> Callable[[Any], None]:
        watch = self._watches[name] = object()

        def pass_on(status: Any) -> None:
            self._call(
                lambda: self._set_presence(name, bool(status.matching)) if self._watches[name] is watch else None
            )

        return pass_on

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed without `close`
            self._loop.call_soon_threadsafe(function, *arguments)

    # The three below run in the event loop's thread.

    def _take(self, name: str) -> None:
        payload = self._unread[name].popleft()
        if not self._closed:
            self._on_message(name, payload)

    def _set_presence(self, name: str, present: bool) -> None:
        if not self._closed and present != self._present[name]:
            self._present[name] = present
            self._on_presence(name, present)
            now = self._loop.time()
            if not present:
                self._ended[name] = now
            elif now - self._ended.pop(name, -math.inf) < _LAST_SECOND and name in self._dialled.keys() - self._repeats:
                self._repeats[name] = self._loop.create_task(self._dial_again(name))

    async def _dial_again(self, name: str) -> None:
        """Dial a neighbour again, in a new session; repeat until it works, or `close`."""
        try:
            while not await self._closes_within(_REFUSED_AFTER):
                session, settings = self._dialled[name]
                if session in self._sessions:
                    self._sessions.remove(session)
                    await asyncio.wait([_close_in_thread(self._loop, session)], timeout=_FAREWELL)
                    self._set_presence(name, False)
                    self._ended.pop(name, None)  # this server has closed it
                with contextlib.suppress(Exception):  # whatever the error, the neighbour is dialled again
                    await asyncio.to_thread(self.add, settings, name)
                    return
        finally:
            del self._repeats[name]

    async def _closes_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)
        return self._closed


def _close_in_thread(loop: asyncio.AbstractEventLoop, session: Any) -> asyncio.Future[None]:
    """Close a session without waiting for it: a frozen neighbour with full buffers can delay it for ten seconds.

    Not a daemon thread: Python would end it inside Zenoh's code at the exit of the process, which then aborts.
    """
    closed: asyncio.Future[None] = loop.create_future()

    def close() -> None:
        with contextlib.suppress(Exception):  # a timeout; the system closes its sockets
            session.close()
        with contextlib.suppress(RuntimeError):  # the loop may have ended meanwhile
            loop.call_soon_threadsafe(closed.set_result, None)

    threading.Thread(target=close, name="dpcrowd-close").start()
    return closed


def _zenoh() -> Any:
    try:
        import zenoh
    except ImportError:
        raise MissingExtra("eclipse-zenoh", "node", "A live node") from None
    return zenoh


def _reason(error: Exception, settings: dict[str, str]) -> str:
    """Return Zenoh's reason in one line, without the lines of its source code."""
    text = str(error).split(" at /")[0].strip().rstrip(".")
    where = [*json.loads(settings["listen/endpoints"]), *json.loads(settings["connect/endpoints"])]
    return f"cannot open the transport for {', '.join(where)}: {text}."
