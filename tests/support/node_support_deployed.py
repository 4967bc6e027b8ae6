"""Whole live nodes in virtual time, on real SQLite files, in a hostile world: disks that fail at any write, kills, old
copies of folders, clocks that are wrong, and operators who decide. What leaves a node is checked when it leaves.

Noise is never the same, so that a second draw for a slot shows. Everything that happens to a state machine is recorded,
and has to give the same instructions again (`replay_all`).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np

from dpcrowd.errors import DpcrowdError
from dpcrowd.node.collect import IntakeRefused
from dpcrowd.node.config import load_network, load_pair
from dpcrowd.node.live import node as live_module
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.live.revisions import current_revision, keep_current, keep_next
from dpcrowd.node.recording.replay import replay
from dpcrowd.node.storage import Storage, StorageError
from dpcrowd.node.transport.memory import Faults, MemoryHub, MemoryTransport
from node_support import FreshNoise, body_of
from node_support_live import write_network
from node_support_virtual import SECOND, SetClock, VirtualLoop, wait_until
from node_support_world import NoSockets

__all__ = ["EPSILON", "LENGTH", "NAMES", "RELAY", "WINDOW", "Fault", "World", "make_files"]

NAMES = ("a", "b", "c")
LENGTH = 2.0
WINDOW, EPSILON = 4, 2_000_000_000
EPOCH = 1_800_000_000 * SECOND
_BACK_AFTER = 1.3
"""Seconds after which a node that has ended is started again, as systemd would."""
Kind = Literal["full", "lying", "kill", "kill after"]


GREEDY: dict[str, Any] = {
    "name": "dpcrowd-plus",
    "process_var": 100.0,
    "tuning": {"phi": 9.0, "p_max": 0.9, "epsilon_max": 0.9},
}
RELAY: dict[str, Any] = {"name": "relay", "process_var": 100.0, "samples": 1, "lag": 4}


def make_files(
    folder: Path,
    names: Sequence[str] = NAMES,
    *,
    scheme: dict[str, Any] = GREEDY,
    links: Sequence[tuple[str, str]] | None = None,
) -> Path:
    """Servers that all hear each other, made once, since keys take time. Nearly the whole budget at once: whoever
    samples again too early has broken the promise."""
    folder.mkdir(parents=True)
    files = write_network(
        folder,
        dict.fromkeys(names, 0.3),
        list(itertools.combinations(names, 2) if links is None else links),
        epoch_ns=EPOCH,
        regions=["north", "south"],
        guarantee={"kind": "window", "length": WINDOW, "epsilon": "2"},
        scheme=scheme,
    )
    for name, path in files.items():
        debug = f'max_downtime = "1900ms"\n\n[debug]\nrecord = "data-{name}/recording.jsonl"\n'
        path.write_text(path.read_text(encoding="utf-8") + debug, encoding="utf-8")  # its last table is [ingest]
    return folder


@dataclass
class Fault:
    """Of a disk: after so many writes the next one is refused ("full", and all after it), is done and said to have
    failed ("lying"), or the process is killed before it or after it."""

    kind: Kind
    after: int
    struck: bool = False


@dataclass(eq=False)
class NodeRun:
    """A node from its start to its end. If it is `discarded`, it was killed, and what it still does has no effect."""

    storage: Storage
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    discarded: bool = False
    live: LiveNode = field(init=False)
    resources: ExitStack = field(init=False)
    task: asyncio.Task[None] = field(init=False)


class _Noise(FreshNoise):
    """Never the same, and small enough for the gate."""

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        return np.where(where, counts + self._rng.integers(-20, 20, counts.shape), 0.0)


class _NotedNoise:
    """The noise of one run, which notes in which slots it draws."""

    private = False

    def __init__(self, noise: _Noise, note: Callable[[int], None]) -> None:
        self._noise, self._note = noise, note

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        self._note(slot)
        return self._noise.noisy(slot, counts, charge, sensitivity, where, read)


class _Checked(MemoryTransport):
    """What leaves is looked at."""

    def __init__(self, hub: MemoryHub, look: Callable[[bytes], None]) -> None:
        super().__init__(hub)
        self._look = look

    async def send(self, payload: bytes, to: Sequence[str]) -> None:
        self._look(payload)
        await super().send(payload, to)


class World:
    """Servers, their folders and clocks, and everything that was ever told.

    refused reasons for which anybody refused a message
    told    by server and slot: the record
    drawn   by server and slot: the true slot in which it was drawn last; what a clock says is not what is true
    spent   by server and slot of what was told: the true slot in which it was drawn, and its price. A record that was
            stored and not sent may be told some slots later, which takes nothing from the budget of those slots
    writes  how often each server has written
    """

    def __init__(self, files: Path, loop: VirtualLoop, names: Sequence[str] = NAMES) -> None:
        shared = "/dev/shm"
        self._resources = ExitStack()
        place = tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None)
        self.folder = Path(self._resources.enter_context(place)) / "world"
        shutil.copytree(files, self.folder)
        self.loop, self.names = loop, tuple(names)
        self.clocks = {name: SetClock(loop, EPOCH + SECOND // 10) for name in names}
        self.hub = MemoryHub(np.random.default_rng(0), faults=Faults(delay=(0.002, 0.002)))
        self.runs: dict[str, NodeRun] = {}
        self.refused: set[str] = set()
        self.faults: dict[str, Fault] = {}
        self.writes = dict.fromkeys(names, 0)
        self.told: dict[tuple[str, int], bytes] = {}
        self.drawn: dict[str, dict[int, int]] = {name: {} for name in names}
        self.spent: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in names}
        self.copies: dict[str, list[Path]] = {name: [] for name in names}
        self.valid_from, self._revision = 0, 1
        self._noise = {name: _Noise(place) for place, name in enumerate(names)}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> World:
        for name in self.names:
            await self.start(name)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for name in list(self.runs):
            await self.end(name)
        self._resources.close()

    @property
    def slot(self) -> int:
        """That is open in truth."""
        return int((self.loop.time() + 0.1) // LENGTH)

    # --------------------------------------------------------------------------------------------- what happens

    async def sleep_until(self, slot: int, seconds: float) -> None:
        """Until some second of a slot; meanwhile check-ins come twice per slot."""
        while (left := slot * LENGTH + seconds - 0.1 - self.loop.time()) > 1e-9:
            await asyncio.sleep(min(left, LENGTH / 2))
            for name, node_run in list(self.runs.items()):
                with suppress(IntakeRefused, DpcrowdError):
                    now = self.clocks[name].now()
                    await node_run.live.take_counts(node_run.live.clock.slot_of(now), {0: 70, 1: 30}, now)

    async def start(self, name: str) -> None:
        """A run from what is on the disk; if it cannot begin, it is tried again later."""
        clock = self.clocks[name]
        try:
            node, network = load_pair(self.folder / f"{name}.toml")
            with ExitStack() as opened:
                storage = opened.enter_context(Storage.open(node.data, network_id=network.id))
                node_run = NodeRun(storage)
                self._make_faulty(name, storage, node_run)
                found = current_revision(node, network, clock.now())
                transport = _Checked(self.hub, lambda payload: self._look(name, node_run, payload))
                node_run.live = LiveNode(
                    node,
                    found.current,
                    storage,
                    transport,
                    _NotedNoise(self._noise[name], lambda slot: self._note_draw(name, node_run, slot)),
                    clock,
                    before=found.before,
                    following=found.following,
                    earlier=found.earlier,
                    path=self.folder / f"{name}.toml",
                    allow_simulated_noise=True,
                )
                keep_current(node, found.current)
                if found.following is not None:
                    keep_next(node, found.following)
                node_run.resources = opened.pop_all()
        except DpcrowdError:
            self._later(self._start_again(name))
            return
        servers: list[NoSockets] = []

        def make_server(app: Any, *_: object, **__: object) -> NoSockets:
            servers.append(NoSockets(app))
            return servers[-1]

        self.runs[name] = node_run
        with mock.patch.object(live_module, "make_server", make_server):
            node_run.task = asyncio.create_task(node_run.live.run(node_run.stop))
            await wait_until(lambda: bool(servers) or node_run.task.done())

    async def _start_again(self, name: str) -> None:
        await asyncio.sleep(_BACK_AFTER)
        if name not in self.runs:
            await self.start(name)

    async def end(self, name: str) -> None:
        """Cleanly, as by a signal."""
        node_run = self.runs.pop(name, None)
        if node_run is not None:
            node_run.stop.set()
            await asyncio.gather(node_run.task, return_exceptions=True)
            self.refused |= {reason for _, reason in node_run.live.executor.refused}
            node_run.resources.close()

    async def restart(self, name: str) -> None:
        await self.end(name)
        await self.start(name)

    def kill(self, name: str) -> None:
        """As by `kill -9`: what is on the disk now is all that the next run finds."""
        node_run = self.runs.pop(name, None)
        if node_run is not None:
            copy = self._copy_of(name)
            self.hub.kill(name)
            node_run.discarded = True
            self._later(self._discard(name, node_run, copy))

    async def _discard(self, name: str, node_run: NodeRun, copy: Path) -> None:
        """End the old run behind a curtain: nobody hears it, and what it still writes is thrown away."""
        node_run.stop.set()
        await asyncio.gather(node_run.task, return_exceptions=True)
        node_run.resources.close()
        self._put_back(name, copy)
        await self._start_again(name)

    def copy(self, name: str) -> None:
        """A backup of the folder, or a snapshot of the machine."""
        self.copies[name].append(self._copy_of(name))

    async def roll_back(self, name: str, which: int) -> None:
        """Somebody puts an old copy back."""
        if name not in self.runs or not self.copies[name]:
            return
        await self.end(name)
        self._put_back(name, self.copies[name][which % len(self.copies[name])])
        await self.start(name)

    def _copy_of(self, name: str) -> Path:
        copy = Path(tempfile.mkdtemp(dir=self.folder)) / "data"
        shutil.copytree(self.folder / f"data-{name}", copy)
        return copy

    def _put_back(self, name: str, copy: Path) -> None:
        data = self.folder / f"data-{name}"
        recording = data / "recording.jsonl"
        if copy.exists() and recording.exists():  # it is the test's own, and not part of what is put back
            shutil.copyfile(recording, copy / "recording.jsonl")
        shutil.rmtree(data)
        shutil.copytree(copy, data)

    async def revise(self) -> None:
        """The next revision of the network, from the slot after the next on: a region comes, or goes."""
        if self.slot < self.valid_from + 1:
            return
        self._revision, self.valid_from = self._revision + 1, self.slot + 2
        path = self.folder / "network.toml"
        kept = path.read_text(encoding="utf-8").splitlines()
        regions = '["north", "south", "west"]' if self._revision % 2 == 0 else '["south", "north"]'
        kept = [line for line in kept if not line.startswith(("revision =", "valid_from_slot =", "regions ="))]
        head = f"[network]\nrevision = {self._revision}\nvalid_from_slot = {self.valid_from}\nregions = {regions}"
        path.write_text("\n".join(kept).replace("[network]", head) + "\n", encoding="utf-8")
        assert load_network(path).revision == self._revision
        for node_run in list(self.runs.values()):
            with suppress(DpcrowdError, asyncio.CancelledError):
                await node_run.live.reload()

    async def decide(self, name: str, what: Literal["confirm", "accept"]) -> None:
        """The operator confirms a loss or accepts the clock, whether there is something to decide or not."""
        node_run = self.runs.get(name)
        if node_run is not None:
            with suppress(DpcrowdError, asyncio.CancelledError):
                await (node_run.live.confirm_loss() if what == "confirm" else node_run.live.accept_clock())

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------------------------------------- disks that fail

    def _make_faulty(self, name: str, storage: Storage, node_run: NodeRun) -> None:
        database = storage._database
        transaction, write = database.transaction, database.write

        @contextmanager
        def faulty() -> Iterator[Any]:
            self._strike(name, node_run, "full", "kill")
            with transaction() as connection:
                yield connection
            self._strike(name, node_run, "lying", "kill after")

        def faulty_write(*given: Any) -> int:
            self._strike(name, node_run, "full", "kill")
            changed = write(*given)
            self._strike(name, node_run, "lying", "kill after")
            return changed

        database.transaction, database.write = faulty, faulty_write  # type: ignore[method-assign, assignment]

    def _strike(self, name: str, node_run: NodeRun, *kinds: Kind) -> None:
        fault = self.faults.get(name)
        if node_run.discarded:
            return
        if kinds[0] == "full":
            self.writes[name] += 1
            if fault is not None:
                fault.after -= 1
        if fault is None or fault.kind not in kinds or fault.after >= 0:
            return
        fault.struck = True
        if fault.kind != "full":
            del self.faults[name]
        if fault.kind in ("kill", "kill after"):
            self.kill(name)
        raise StorageError("full", "the disk is full", "free some")

    # ------------------------------------------------------------------------------------------------ what is true

    def _note_draw(self, name: str, node_run: NodeRun, slot: int) -> None:
        if not node_run.discarded:
            self.drawn[name][slot] = self.slot

    def _look(self, name: str, node_run: NodeRun, payload: bytes) -> None:
        """A message leaves: it is paid for, what it echoes is on disk, and no slot was told otherwise before."""
        if node_run.discarded:
            return
        body = body_of(payload)
        clock, machine = node_run.live.clock, node_run.live.executor.machine
        for record in body.records:
            sample = node_run.storage.ledger.sample(clock.opens(body.slot))
            assert sample is not None, "sent before it was paid for"
            said = record.info_vec + record.info_mat
            assert self.told.setdefault((name, body.slot), said) == said, f"two draws of {name}, slot {body.slot}"
            self.spent[name].setdefault(body.slot, (self.drawn[name][body.slot], sample.nano))
        for relayed in body.relayed:
            if relayed.origin == machine.view.me:
                sample = node_run.storage.ledger.sample(clock.opens(relayed.slot))
                assert sample is not None, "sent before it was paid for"
                said = relayed.values
                assert self.told.setdefault((name, relayed.slot), said) == said, f"two draws of {name}"
                self.spent[name].setdefault(relayed.slot, (self.drawn[name][relayed.slot], sample.nano))
        on_disk = node_run.storage.memory.remembered()
        for number, (_, counter) in body.heard.items():
            assert on_disk[machine.view.names[number]][1] >= counter, "echoed before it was stored"
        self.check()

    def check(self) -> None:
        """Of no window of time has anybody told more than was promised, by all runs together."""
        for name, spent in self.spent.items():
            for first, _ in spent.values():
                within = sum(nano for at, nano in spent.values() if first <= at < first + WINDOW)
                assert within <= EPSILON, (name, spent)

    async def recover(self, slots: int) -> None:
        """Everything is put right, and time passes: all sample again, within so many slots.

        A window passes even if they do so at once: whoever has forgotten what it has spent would overspend in it.
        """
        self.faults.clear()
        self.hub.heal()
        slot = self.slot
        for name in self.names:
            self.clocks[name].ahead_ns = 0
        for later in range(slot + 1, slot + slots):
            await self.sleep_until(later, 0.4)
            for name in self.names:
                await self.decide(name, "accept")
                await self.decide(name, "confirm")
            if later > slot + WINDOW and all(self._samples_after(slot, name) for name in self.names):
                break
        for name in self.names:
            assert name in self.runs, f"{name} does not start"
            if self.runs[name].task.done():  # it has ended by itself, most likely by what `_look` has found
                self.runs[name].task.result()
            budget = await self.runs[name].live.budget()
            assert self._samples_after(slot, name), f"{name} never samples again: {budget.text}"

    def _samples_after(self, slot: int, name: str) -> bool:
        return any(at > slot for at, _ in self.spent[name].values())

    def replay_all(self, names: Sequence[str] | None = None) -> None:
        """What was recorded gives the same instructions again: of all servers, or of those that were disturbed."""
        for name in self.names if names is None else names:
            recording = self.folder / f"data-{name}" / "recording.jsonl"
            replayed = replay(recording)
            assert replayed.difference is None, f"{name}: {replayed.difference}"
            assert replayed.steps > 0
