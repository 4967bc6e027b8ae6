"""The open Zenoh sessions of a server, from `open` to `close`: callbacks in, puts out, threads kept apart.

Zenoh has no asyncio of its own. Its callbacks run in its threads and only pass on to the event loop; what may block
(opening, putting, closing) runs in threads of ours.

A second handshake. Zenoh closes a link when the certificate of the other side expires, and dials again at once. TLS
still accepts a certificate in the second in which it expires, and the watch on a link that is made after the expiry
often ends before the link is there to be closed (Zenoh 1.10): that link would stay for good. So a link that is dialled
and comes back within a second is made once more a second later, when an expired certificate is refused.
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

__all__ = ["Lane", "Links"]

_UNREAD = 256  # messages of one neighbour that the event loop has not taken yet; a flood beyond that is dropped
_MOST_A_SECOND = 256  # of one neighbour, which has one thing to say in a slot, and says it again when it comes up
_FAREWELL = 1.0  # seconds that `close` waits for neighbours that do not read: once to hand over, once to part
_LAST_SECOND = 1.0  # in which an expired certificate is still accepted
_REFUSED_AFTER = 1.2  # seconds after which it is not, whatever the clocks' last digits


class Lane:
    """Hands payloads over to one neighbour. Lives in the event loop's thread; only `put` runs elsewhere."""

    def __init__(self, put: Callable[[bytes], None], pool: Executor, *, depth: int = 16) -> None:
        self._put = put
        self._pool = pool
        self._waiting: deque[bytes] = deque(maxlen=depth)
        self._under_way: asyncio.Task[None] | None = None
        self.dropped = 0
        """Messages that made room for newer ones, or that the transport refused."""

    def offer(self, payload: bytes) -> None:
        """Queue a message and return at once."""
        self.dropped += len(self._waiting) == self._waiting.maxlen
        self._waiting.append(payload)
        if self._under_way is None:
            self._under_way = asyncio.get_running_loop().create_task(self._run())

    async def drain(self) -> None:
        """Wait until everything queued has been handed over."""
        if self._under_way is not None:
            await asyncio.shield(self._under_way)

    def abandon(self) -> None:
        """Forget what is queued; a put that is under way in its thread ends by itself."""
        self._waiting.clear()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                try:
                    await loop.run_in_executor(self._pool, self._put, self._waiting.popleft())
                except Exception:
                    # A session that is being closed refuses puts; a message that does not leave is a lost message,
                    # which the protocol allows, and the lane must live on for the next.
                    self.dropped += 1
        finally:
            self._under_way = None


class Links:
    """The open sessions, from `open` to `close`. Made anew each time, so that no callback outlives its session."""

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
        self._dialled: dict[str, tuple[Any, dict[str, str]]] = {}  # a session for each neighbour that is dialled
        self._declared: dict[str, list[Any]] = {}  # Zenoh undeclares what nobody holds
        self._publishers: dict[str, Any] = {}
        self._watches: dict[str, object] = {}  # of the session in use: what an older one says is over
        self._ended: dict[str, float] = {}  # when a link was lost, by the loop's clock
        self._repeats: dict[str, asyncio.Task[None]] = {}
        self._closing = asyncio.Event()
        self._unread: dict[str, deque[bytes]] = {name: deque() for name in names}
        self._present: dict[str, bool] = dict.fromkeys(names, False)
        self._closed = False
        self.flood: dict[str, int] = dict.fromkeys(names, 0)
        self.lanes = {name: Lane(self._putter(name), self._pool) for name in names}

    def add(self, settings: dict[str, str], name: str) -> None:
        """Open a session and declare what a neighbour needs. Blocks; runs in a thread."""
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
            key_of_pair(self._network, name, self._me), self._hearer(name), allowed_origin=zenoh.Locality.REMOTE
        )
        publisher = session.declare_publisher(
            key_of_pair(self._network, self._me, name),
            congestion_control=zenoh.CongestionControl.BLOCK,
            express=True,
            allowed_destination=zenoh.Locality.REMOTE,
        )
        self._publishers[name] = publisher
        watch = publisher.declare_matching_listener(self._watcher(name))
        self._declared[name] = [subscriber, publisher, watch]

    def certificates(self) -> tuple[str, ...]:
        """Names at the other ends of the links that this server has dialled; those who call, only the front knows."""
        links = [link for session in self._sessions for link in session.info.links()]
        return tuple(sorted(link.auth_identifier for link in links if link.auth_identifier is not None))

    async def close(self) -> None:
        self._closed = True
        self._closing.set()
        if self._repeats:  # one that is just being opened has to be there to be closed
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

    # The three below are called by Zenoh's threads, or by the pool's; they only pass on.

    def _putter(self, name: str) -> Callable[[bytes], None]:
        def put(payload: bytes) -> None:
            self._publishers[name].put(payload)

        return put

    def _hearer(self, name: str) -> Callable[[Any], None]:
        unread = self._unread[name]
        second, heard = 0.0, 0

        def hear(sample: Any) -> None:
            nonlocal second, heard
            now = time.monotonic()
            if now - second >= 1.0:
                second, heard = now, 0
            heard += 1
            payload = sample.payload
            if heard > _MOST_A_SECOND or len(unread) >= _UNREAD or len(payload) > self._most_bytes:
                self.flood[name] += 1
                return
            unread.append(payload.to_bytes())
            self._call(self._take, name)

        return hear

    def _watcher(self, name: str) -> Callable[[Any], None]:
        watch = self._watches[name] = object()

        def pass_on(status: Any) -> None:
            self._call(lambda: self._see(name, bool(status.matching)) if self._watches[name] is watch else None)

        return pass_on

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed without `close`: there is nobody left to tell
            self._loop.call_soon_threadsafe(function, *arguments)

    # The three below run in the event loop's thread.

    def _take(self, name: str) -> None:
        payload = self._unread[name].popleft()
        if not self._closed:
            self._on_message(name, payload)

    def _see(self, name: str, present: bool) -> None:
        if not self._closed and present != self._present[name]:
            self._present[name] = present
            self._on_presence(name, present)
            now = self._loop.time()
            if not present:
                self._ended[name] = now
            elif now - self._ended.pop(name, -math.inf) < _LAST_SECOND and name in self._dialled.keys() - self._repeats:
                self._repeats[name] = self._loop.create_task(self._dial_again(name))

    async def _dial_again(self, name: str) -> None:
        """Another handshake with a neighbour, in a session of its own as before; until it works, or `close`."""
        try:
            while not await self._closes_within(_REFUSED_AFTER):
                session, settings = self._dialled[name]
                if session in self._sessions:
                    self._sessions.remove(session)
                    await asyncio.wait([_close_in_thread(self._loop, session)], timeout=_FAREWELL)
                    self._see(name, False)
                    self._ended.pop(name, None)  # lost by ourselves
                with contextlib.suppress(Exception):  # whatever it is, a neighbour must not be given up for good
                    await asyncio.to_thread(self.add, settings, name)
                    return
        finally:
            del self._repeats[name]

    async def _closes_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)
        return self._closed


def _close_in_thread(loop: asyncio.AbstractEventLoop, session: Any) -> asyncio.Future[None]:
    """Close a session without waiting for it: a frozen neighbour whose buffers are full can hold it for ten seconds.

    Not a daemon thread: Python would tear it out of Zenoh's code at the exit of the process, which aborts it.
    """
    done: asyncio.Future[None] = loop.create_future()

    def close() -> None:
        with contextlib.suppress(Exception):  # it gave up waiting for a neighbour; the system closes its sockets
            session.close()
        with contextlib.suppress(RuntimeError):  # the loop may have ended meanwhile
            loop.call_soon_threadsafe(done.set_result, None)

    threading.Thread(target=close, name="dpcrowd-close").start()
    return done


def _zenoh() -> Any:
    try:
        import zenoh
    except ImportError:
        raise MissingExtra("eclipse-zenoh", "node", "A live node") from None
    return zenoh


def _reason(error: Exception, settings: dict[str, str]) -> str:
    """Zenoh's reason in one line, without the lines of its own source."""
    text = str(error).split(" at /")[0].strip().rstrip(".")
    where = [*json.loads(settings["listen/endpoints"]), *json.loads(settings["connect/endpoints"])]
    return f"cannot open the transport for {', '.join(where)}: {text}."
