"""A demo from its first file to its last process: set up, feed, read what every server published, slot by slot."""

from __future__ import annotations

import contextlib
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpcrowd.demo.crowd import Present, Source, SyntheticCrowd, pin_to_servers
from dpcrowd.demo.files import DemoNetwork, make_network, slot_length
from dpcrowd.demo.node_client import ApiFailed, NodeClient, Total
from dpcrowd.demo.processes import NodeFailed, Processes, last_lines
from dpcrowd.demo.replay import find_source
from dpcrowd.errors import BadInput
from dpcrowd.node.slots import SECOND, SlotClock

__all__ = ["Demo", "Fed", "Feeder", "ServerRow", "SlotRow", "checkins_of", "make_source", "open_demo"]

_AFTER_OPENING_NS = 5_000_000
_SECONDS_TO_START = 60.0
_MOST_SERVERS = 50
_MOST_PEOPLE = 1_000_000
_POLL = 0.05


@dataclass(frozen=True)
class Fed:
    """A slot that was fed; truth is None if some check-ins came too late, `seconds` how long sending took."""

    slot: int
    truth: int | None
    seconds: float


def checkins_of(
    present: Present, server: int, server_of: NDArray[np.int64], regions: Sequence[str]
) -> tuple[list[int], list[str]]:
    """Users and regions of the check-ins of one server in one slot."""
    mine = server_of[present.people] == server
    return present.people[mine].tolist(), [regions[where] for where in present.regions[mine].tolist()]


class Feeder:
    """A thread that feeds; `fed` gives each slot once it has been sent, then None at the end of the source.

    An error of the thread comes out of `fed` as well.
    """

    def __init__(
        self, source: Source, clients: Sequence[NodeClient], server_of: NDArray[np.int64], clock: SlotClock
    ) -> None:
        self._source, self._clients, self._server_of, self._clock = source, tuple(clients), server_of, clock
        self._stop = threading.Event()
        self._queue: queue.Queue[Fed | Exception | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()  # every request has a time limit, so this ends

    def fed(self, timeout: float) -> Fed | None:
        """The next slot; raises queue.Empty if there was none for so many seconds."""
        item = self._queue.get(timeout=timeout)
        if isinstance(item, Exception):
            raise item
        return item

    def _run(self) -> None:
        try:
            with ThreadPoolExecutor(len(self._clients)) as pool:
                for item in self._feed(pool):
                    self._queue.put(item)
            self._queue.put(None)
        except Exception as error:  # raised again where somebody can see it
            self._queue.put(error)

    def _feed(self, pool: ThreadPoolExecutor) -> Iterator[Fed]:
        clock, numbers = self._clock, range(len(self._clients))
        following = max(clock.slot_of(time.time_ns()) + 1, 0)
        for present in self._source.slots():
            ready = [checkins_of(present, number, self._server_of, self._source.regions) for number in numbers]
            slot = max(following, clock.slot_of(time.time_ns()) + 1)
            if not self._wait_until(clock.opens(slot) + _AFTER_OPENING_NS):
                return
            began = time.monotonic()
            list(pool.map(lambda client, rows: client.send(*rows), self._clients, ready))
            in_time = time.time_ns() < clock.closes(slot)
            yield from (Fed(missed, None, 0.0) for missed in range(following, slot))
            yield Fed(slot, present.total if in_time else None, time.monotonic() - began)
            following = slot + 1

    def _wait_until(self, at_ns: int) -> bool:
        """False if the feeder was stopped meanwhile."""
        while (left := at_ns - time.time_ns()) > 0:
            if self._stop.wait(min(left / SECOND, 0.5)):
                return False
        return not self._stop.is_set()


@dataclass(frozen=True)
class ServerRow:
    """One server in one slot: its estimate of all people, epsilon spent in the window, messages since the start."""

    server: str
    total: Total
    epsilon_spent: float
    messages: int


@dataclass(frozen=True)
class SlotRow:
    """One slot; the truth is known only to the demo, and to nobody if feeding took longer than the slot."""

    slot: int
    truth: int | None
    servers: tuple[ServerRow, ...]


def make_source(people: int, data: str | None, length: str, seed: int) -> Source:
    """The crowd that `--data`, or `--people` and `--seed`, ask for."""
    if data is not None:
        return find_source(data, length)
    if not 1 <= people <= _MOST_PEOPLE:
        raise BadInput(f"a crowd of {people:,} people; allowed: 1 to {_MOST_PEOPLE:,}.")
    moves, public = (np.random.default_rng([_checked_seed(seed), part]) for part in range(2))
    return SyntheticCrowd(people, moves, public)


class Demo:
    """A running demo."""

    def __init__(
        self, network: DemoNetwork, source: Source, processes: Processes, clients: Sequence[NodeClient], feeder: Feeder
    ) -> None:
        self.network, self.source, self.processes = network, source, processes
        self._clients, self._feeder = tuple(clients), feeder
        self._over = threading.Event()

    def rows(self, seconds: float | None) -> Iterator[SlotRow]:
        """Slot by slot, as they are released, for so many seconds or until the source ends."""
        end = None if seconds is None else time.monotonic() + seconds
        patience = 4 * self.network.clock.length_ns / SECOND + 30
        silent_since = time.monotonic()
        with ThreadPoolExecutor(len(self._clients)) as pool, _set_at_the_end(self._over):
            while end is None or time.monotonic() < end:
                self.processes.check()
                try:
                    fed = self._feeder.fed(0.2 if end is None else min(0.2, max(0.0, end - time.monotonic())))
                except queue.Empty:
                    if time.monotonic() - silent_since > patience:
                        raise ApiFailed(f"no slot could be fed for {patience:.0f} s.") from None
                    continue
                except ApiFailed:
                    self.processes.check(1.0)  # a process that has ended is the better explanation
                    raise
                if fed is None:
                    return
                row = self._read(fed, end, pool)
                if row is None:
                    return
                silent_since = time.monotonic()
                yield row

    def seconds_to_the_first_slot(self) -> float:
        """Until it is released, from now on: its rest, grace and deadline, and a second for a busy machine."""
        clock = self.network.clock
        slot = max(clock.slot_of(time.time_ns()) + 1, 0)
        return (clock.closes(slot) + clock.length_ns - time.time_ns()) / SECOND + 1

    def _read(self, fed: Fed, end: float | None, pool: ThreadPoolExecutor) -> SlotRow | None:
        """What all servers published; None if the demo's time is over before."""
        closes = self.network.clock.closes(fed.slot)
        while (left := (closes - time.time_ns()) / SECOND) > 0:
            if end is not None and time.monotonic() >= end:
                return None
            self.processes.check()
            time.sleep(min(left, 0.2))
        last = time.monotonic() + 2 * self.network.clock.length_ns / SECOND + 10
        try:
            servers = tuple(
                pool.map(lambda client: _ask(client, fed.slot, min(last, end or last), self._over), self._clients)
            )
        except ApiFailed:
            self.processes.check(1.0)
            raise
        if end is not None and time.monotonic() >= end and any(one.total.estimate is None for one in servers):
            return None
        return SlotRow(fed.slot, fed.truth, servers)


@contextmanager
def open_demo(
    source: Source, servers: int, slot: str, seed: int, keep: Path | None, tell: Callable[[str], None]
) -> Iterator[Demo]:
    """Make files, start processes, wait until all answer, feed; at the end stop and remove everything."""
    if not 2 <= servers <= _MOST_SERVERS:
        raise BadInput(
            f"{servers} server{'' if servers == 1 else 's'}; a demo on one machine has 2 to {_MOST_SERVERS}."
        )
    length_ns, pins = slot_length(slot), np.random.default_rng([_checked_seed(seed), 2])
    with ExitStack() as stack:
        folder = stack.enter_context(_folder(keep))
        tell(f"making keys and files for {servers} servers")
        network = make_network(folder, source, servers, length_ns, datetime.now(UTC))
        processes = stack.enter_context(Processes(network.nodes))
        tell(f"starting {servers} node processes")
        clients = [NodeClient(node, network.token) for node in network.nodes]
        for client in clients:
            stack.callback(client.close)
        _wait_for_all(processes, clients)
        server_of = pin_to_servers(source.people, servers, pins)
        feeder = stack.enter_context(Feeder(source, clients, server_of, network.clock))
        yield Demo(network, source, processes, clients, feeder)


def _wait_for_all(processes: Processes, clients: Sequence[NodeClient]) -> None:
    end = time.monotonic() + _SECONDS_TO_START
    for client in clients:
        while not client.healthy():
            processes.check()
            if time.monotonic() > end:
                text = f"{client.node.name} did not answer within {_SECONDS_TO_START:.0f} s of its start."
                raise NodeFailed(text, last_lines(client.node.log))
            time.sleep(_POLL)


def _ask(client: NodeClient, slot: int, last: float, over: threading.Event) -> ServerRow:
    """Wait for a server's release of a slot."""
    while (total := client.total(slot)) is None:
        if time.monotonic() > last or over.wait(_POLL):
            total = Total(None, None, None)  # this server missed the slot; the others' rows still count
            break
    return ServerRow(client.node.name, total, *client.counters())


@contextmanager
def _set_at_the_end(over: threading.Event) -> Iterator[None]:
    """Threads that wait for a release stop waiting when the demo is interrupted."""
    try:
        yield
    finally:
        over.set()


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        made = Path(tempfile.mkdtemp(prefix="dpcrowd-demo-"))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if any(keep.iterdir()):
            raise BadInput(f"the folder '{keep}' is not empty; give one that is, or that is not there yet.")
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"the folder '{keep}' cannot be made ({error.strerror}).") from None
    yield keep.resolve()


def _checked_seed(seed: int) -> int:
    if seed < 0:
        raise BadInput(f"seed {seed}; allowed: 0 or more.")
    return seed
