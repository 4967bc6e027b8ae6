"""A world for `node_support_noninterference`: a live node, its neighbour, their clocks, and everybody who watches."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from dpcrowd.node.api.places import Places
from dpcrowd.node.config import load_pair
from dpcrowd.node.live import node as live_module
from dpcrowd.node.live.logs import JsonLines
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.memory import Faults, MemoryHub, MemoryTransport
from node_support_live import TOKENS
from node_support_outside import Asgi, ask, files_in, listen
from node_support_stories import DEADLINE, GRACE, LENGTH, Body, Counts, Event, Freeze, Jump, Restart, Send, Story
from node_support_virtual import SECOND, SetClock, VirtualLoop, repeatable_bytes, wait_until

__all__ = ["EPOCH", "HERE", "READER", "RECORDING", "THERE", "Draw", "Entry", "Record", "WatchedTransport", "World"]

EPOCH = 1_800_000_000 * SECOND
HERE, THERE = "here", "there"
"""The node and its neighbour."""
RECORDING = f"data-{HERE}/recording.jsonl"
"""What the node writes down of its state machine."""
READER = "token-of-all-readers"
_LENGTH_NS = round(LENGTH * SECOND)
_WARM_UP = 2
"""Slots before the story: a node does not sample until its neighbour has vouched for its ledger."""
_SETTLED = GRACE + DEADLINE + 1.0
"""Seconds after the end of a slot, or after some trouble: by then the slot is released and its check-ins are gone."""
_LOOK = _SETTLED + 1.0
"""The second of a slot at which everybody looks."""
_SMOOTHED = "/v1/estimates?smoothed=true&measurements=true"
_PATHS = (
    *("/readyz", "/healthz", "/v1/network", "/v1/budget", "/v1/quality", "/metrics"),
    *("/v1/estimates/latest", "/v1/estimates", _SMOOTHED, "/v1/estimates?view=nonnegative"),
    *("/v1/estimates?view=median", "/v1/history?view=median"),
    *("/v1/history?view=nonnegative", "/v1/neighbours", "/v1/topology", "/v1/readiness", "/page.json"),
)

# Everybody acts in a part of its own of each hundredth of a second. If two independent things happened at one moment,
# which one comes first would be a matter of how many steps the other one takes: a false alarm.
_TICK, _TICK_OF, _LATENCY = 0.01, {HERE: 0.0, THERE: 0.006}, 0.002
_TICK_OF_STORY, _TICK_OF_LOOKS = 0.003, 0.005

Draw = tuple[int, int, tuple[int, ...]]
"""Of one sample: the slot, which read of the slot it is, and the raw counts."""


class Entry(NamedTuple):
    """One thing that can be seen: when, which kind of thing it is, and what it says."""

    at: str
    kind: str
    content: object


@dataclass
class Record:
    """Of one world: everything that an outsider sees, in its order, and the raw counts, which nobody sees."""

    entries: list[Entry] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)

    def of(self, kind: str) -> list[Entry]:
        """All entries of one kind."""
        return [entry for entry in self.entries if entry.kind == kind]


# ------------------------------------------------------------------------------------------------------ the doubles


class AgreedNoise:
    """Noisy values that were agreed before the counts were known. It keeps the counts, to judge what it had to hide."""

    private = False

    def __init__(self, draws: list[Draw]) -> None:
        self._draws = draws

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        self._draws.append((slot, read, tuple(int(count) for count in np.asarray(counts).ravel())))
        agreed = 40.0 + (7 * slot + 3 * read + 13 * np.arange(np.size(counts))) % 11
        return np.where(where, agreed.reshape(np.shape(counts)), 0.0)


class WatchedTransport(MemoryTransport):
    """Notes what leaves the node."""

    def __init__(self, hub: MemoryHub, note: Callable[[str, object], None]) -> None:
        super().__init__(hub)
        self._note = note

    async def send(self, payload: bytes, to: Sequence[str]) -> None:
        self._note("message", (tuple(to), len(payload), payload.hex()))
        await super().send(payload, to)


class NoSockets:
    """Stands in for the HTTP server: the application is called by the world itself."""

    def __init__(self, app: Asgi) -> None:
        self.app = app
        self.places = Places(16)
        self._exit = asyncio.Event()

    @property
    def should_exit(self) -> bool:
        return self._exit.is_set()

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        (self._exit.set if value else self._exit.clear)()

    async def serve(self) -> None:
        await self._exit.wait()


class WatchedLog(logging.Handler):
    """Notes every line as the operator gets it, at the world's time."""

    def __init__(self, note: Callable[[str, object], None], now: Callable[[], int]) -> None:
        super().__init__(logging.DEBUG)
        self._note, self._now = note, now
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        record.created = self._now() / SECOND
        self._note("log", self.format(record))


@contextmanager
def _logging_to(handler: logging.Handler) -> Iterator[None]:
    """Our own lines go to this handler only: the report of a failure would drown in them."""
    root, own = logging.getLogger(), logging.getLogger("dpcrowd")
    level, propagate = own.level, own.propagate
    for logger in (root, own):
        logger.addHandler(handler)
    own.setLevel(logging.DEBUG)
    own.propagate = False
    try:
        yield
    finally:
        own.propagate = propagate
        own.setLevel(level)
        for logger in (root, own):
            logger.removeHandler(handler)


# -------------------------------------------------------------------------------------------------------- the world


@dataclass
class NodeRun:
    """One server from a start to its end."""

    stop: asyncio.Event
    task: asyncio.Task[None]
    app: Asgi
    resources: ExitStack


class World:
    """A live node, its neighbour, and time. The story is told with user x, or without.

    _quiet_ns    by the node's clock: from then on no check-in of x is on the disk
    _settled_at  by the loop's time: from then on the node has dealt with the last trouble
    """

    def __init__(self, folder: Path, loop: VirtualLoop, *, x: bool) -> None:
        self.folder, self.loop, self.x = folder, loop, x
        self.record = Record()
        begin_ns = EPOCH + SECOND // 10
        self.clocks = {name: SetClock(loop, begin_ns - round(tick * SECOND)) for name, tick in _TICK_OF.items()}
        self.hub = MemoryHub(np.random.default_rng(0), faults=Faults(delay=(_LATENCY, _LATENCY)))
        self.runs: dict[str, NodeRun] = {}
        self._muted = False
        self._quiet_ns, self._settled_at = 0, 0.0
        self._recorded = 0
        self._resources = ExitStack()

    def __enter__(self) -> World:
        self._resources.enter_context(repeatable_bytes(self.clocks[THERE].now))
        self._resources.enter_context(_logging_to(WatchedLog(self.note, self.clocks[THERE].now)))
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def note(self, kind: str, content: object) -> None:
        """Keep something that can be seen, by whomever."""
        if not self._muted:
            self.record.entries.append(Entry(f"{self.loop.time():.6f}", kind, content))

    # ------------------------------------------------------------------------------------------------- the story

    async def tell(self, story: Story) -> None:
        names = [HERE] if story.alone else [THERE, HERE]
        for name in names:
            await self._start(name)
        for number, slot in enumerate(story.slots):
            begin = (_WARM_UP + number) * LENGTH
            for at, event in sorted([*slot, (_LOOK, None)], key=lambda timed: timed[0]):
                await self._sleep_until(begin + at, _TICK_OF_LOOKS if event is None else _TICK_OF_STORY)
                await (self._look() if event is None else self._happen(event))
            await self._sleep_until(begin + LENGTH, _TICK_OF_STORY)
        left = max((self._quiet_ns - self.clocks[HERE].now()) / SECOND, self._settled_at - self.loop.time(), 0.0)
        await self._sleep_until(self.loop.time() + left + LENGTH, _TICK_OF_LOOKS)
        await self._look()
        for name in reversed(names):
            await self._end(name)
        self._look_at_files()
        self._look_at_recording()

    async def _happen(self, event: Event) -> None:
        match event:
            case Send(bodies):
                await self._send(bodies)
                return
            case Jump(seconds):
                self.clocks[HERE].ahead_ns += round(seconds * SECOND)
            case Freeze(seconds):
                self.loop.skip(seconds)
            case Restart(abrupt, seconds):
                await (self._kill(HERE) if abrupt else self._end(HERE))
                await asyncio.sleep(seconds)
                await self._start(HERE)
        self._settled_at = self.loop.time() + _SETTLED

    async def _send(self, bodies: Sequence[Body | Counts]) -> None:
        now = self.clocks[HERE].now()
        for at_ns in itertools.chain.from_iterable(body.times_of_x(now, _LENGTH_NS) for body in bodies):
            if at_ns <= now + _LENGTH_NS:  # a later one is never taken
                closes_ns = at_ns - (at_ns - EPOCH) % _LENGTH_NS + _LENGTH_NS
                self._quiet_ns = max(self._quiet_ns, closes_ns + round(_SETTLED * SECOND))
        remaining = [(body if self.x else body.without_x(), body.has_x) for body in bodies]
        requests = [(body, has_x) for body, has_x in remaining if body is not None]
        answers = await asyncio.gather(*(self._post(body) for body, _ in requests))
        # In the order of the bodies: which of them is done first is a matter of the time that work takes.
        for answer, (_, has_x) in zip(answers, requests, strict=True):
            if not has_x:
                self.note("answer to a POST", answer)

    async def _post(self, body: Body | Counts) -> tuple[object, ...]:
        now = self.clocks[HERE].now()
        content_type, content = body.content(now, (now - EPOCH) // _LENGTH_NS)
        token = TOKENS["checkin"] if body.token else "a token of nobody"
        headers = {
            "content-type": content_type,
            "content-length": str(len(content)),
            "authorization": f"Bearer {token}",
        }
        return await ask(self.runs[HERE].app, "POST", body.path, headers, content, parts=body.parts)

    # ---------------------------------------------------------------------------------------------- those who look

    async def _look(self) -> None:
        """At every path, and at the disk unless check-ins of x may be on it."""
        for path in _PATHS:
            answer = await ask(self.runs[HERE].app, "GET", path, {"authorization": f"Bearer {READER}"})
            refused = 400 if path == _SMOOTHED else 503  # by a network that keeps no records, or by one that waits
            assert answer[0] in (200, refused), "a reader who is turned away sees nothing, and would notice nothing"
            self.note(f"answer to GET {path}", answer)
        self._look_at_recording()
        if self.clocks[HERE].now() >= self._quiet_ns and self.loop.time() >= self._settled_at:
            self._look_at_files()

    def _look_at_recording(self) -> None:
        """At what was written since the last time, whoever is on the disk."""
        with (self.folder / RECORDING).open("rb") as file:
            file.seek(self._recorded)
            written = file.read()
        self._recorded += len(written)
        self.note("recording", written.decode())

    def _look_at_files(self) -> None:
        for name, content in files_in(self.folder / f"data-{HERE}"):
            self.note(f"file {name}", content)

    # --------------------------------------------------------------------------------------------- starts and ends

    async def _start(self, name: str) -> None:
        await self._sleep_until(self.loop.time(), _TICK_OF[name])
        node, network = load_pair(self.folder / f"{name}.toml")
        resources, stop = ExitStack(), asyncio.Event()
        storage = resources.enter_context(Storage.open(node.data, network_id=network.id))
        watched = name == HERE
        transport = WatchedTransport(self.hub, self.note) if watched else MemoryTransport(self.hub)
        noise = AgreedNoise(self.record.draws if watched else [])
        clock = self.clocks[name]
        live = LiveNode(node, network, storage, transport, noise, clock, allow_simulated_noise=True)
        servers: list[NoSockets] = []

        def make_server(app: Asgi, *_: object, **__: object) -> NoSockets:
            servers.append(NoSockets(app))
            return servers[-1]

        with mock.patch.object(live_module, "make_server", make_server):
            task = asyncio.create_task(live.run(stop))
            await wait_until(lambda: bool(servers) or task.done())
        if not servers:
            await task  # raises why the node could not start
        self.runs[name] = NodeRun(stop, task, servers[0].app, resources)
        if watched:
            reader = listen(servers[0].app, "/v1/stream", READER, lambda content: self.note("event stream", content))
            resources.callback(asyncio.create_task(reader).cancel)

    async def _end(self, name: str) -> None:
        """Cleanly, as by a signal."""
        node_run = self.runs.pop(name)
        node_run.stop.set()
        await node_run.task
        node_run.resources.close()

    async def _kill(self, name: str) -> None:
        """As by `kill -9`: what is on the disk now is all that the next run finds.

        The old node_run is ended behind a curtain: nobody hears it, and what it still writes is thrown away.
        """
        data, copy = self.folder / f"data-{name}", self.folder / "copy"
        shutil.copytree(data, copy)
        self.hub.kill(name)
        self._muted = True
        await self._end(name)
        self._muted = False
        shutil.rmtree(data)
        copy.rename(data)

    async def _sleep_until(self, at: float, tick: float) -> None:
        """Until a time, or now if that is past; and then until the next moment of those who act at `tick`."""
        at = max(at, self.loop.time())
        await asyncio.sleep(math.ceil((at - tick) / _TICK + 1e-6) * _TICK + tick - self.loop.time())
