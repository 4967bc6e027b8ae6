"""A complete demo: set up the network, feed it, and read what every server published, slot by slot.

Each person's check-ins go to the server that the person is pinned to, at the start of each slot. Check-ins carry no
time, so that the time of arrival counts; a slot whose check-ins were not all on disk before it closed has no known
truth, since some may have been counted in the next one.
"""

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

from dpcrowd.demo.comparison import DemoComparison
from dpcrowd.demo.crowd import Present, Source, SyntheticCrowd, pin_to_servers
from dpcrowd.demo.files import DemoNetwork, make_network, slot_length
from dpcrowd.demo.node_client import ApiFailed, NodeClient, Total
from dpcrowd.demo.page import PageThread, make_page_app
from dpcrowd.demo.processes import NodeProcessFailed, Processes, last_lines
from dpcrowd.demo.replay import find_source
from dpcrowd.errors import BadInput
from dpcrowd.node.slots import SECOND, SlotClock

__all__ = ["Demo", "FedSlot", "Feeder", "ServerRow", "SlotRow", "checkins_of", "make_source", "open_demo"]

_AFTER_OPENING_NS = 5_000_000
_SECONDS_TO_START = 60.0
_MOST_SERVERS = 50
_MOST_PEOPLE = 1_000_000
_POLL = 0.05
_MOST_FAILED_SLOTS = 5  # in a row, of one server: then the demo ends with the reason


@dataclass(frozen=True)
class FedSlot:
    """A slot whose check-ins were sent.

    truth     None if some check-ins came too late, or were not taken
    seconds   how long sending took
    problems  why servers did not take their check-ins, one sentence per server
    """

    slot: int
    truth: int | None
    seconds: float
    problems: tuple[str, ...] = ()


def checkins_of(
    present: Present, server: int, server_of: NDArray[np.int64], regions: Sequence[str]
) -> tuple[list[int], list[str]]:
    """Return users and regions of the check-ins of one server in one slot."""
    own = server_of[present.people] == server
    return present.people[own].tolist(), [regions[where] for where in present.regions[own].tolist()]


class Feeder:
    """A thread that sends the check-ins; `next_slot` returns each slot once it has been sent, and raises its errors.

    A server that does not take its check-ins in some slots is named with the slot, and feeding goes on; if it takes
    none in several slots in a row, its reason is the feeder's error.

    note  gets each slot with its people, and whether all of their check-ins were in time
    """

    def __init__(
        self,
        source: Source,
        clients: Sequence[NodeClient],
        server_of: NDArray[np.int64],
        clock: SlotClock,
        note: Callable[[int, Present, bool], None] = lambda *_: None,
    ) -> None:
        self._source, self._clients, self._server_of, self._clock = source, tuple(clients), server_of, clock
        self._note = note
        self._stop = threading.Event()
        self._queue: queue.Queue[FedSlot | Exception | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()  # every request has a deadline, so this ends

    def next_slot(self, timeout: float) -> FedSlot | None:
        """Return the next slot, None at the end; raise `queue.Empty` if there is none within this many seconds."""
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
        except Exception as error:  # raised again by `next_slot`
            self._queue.put(error)

    def _feed(self, pool: ThreadPoolExecutor) -> Iterator[FedSlot]:
        clock, numbers = self._clock, range(len(self._clients))
        following, failed_slots = max(clock.slot_of(time.time_ns()) + 1, 0), [0] * len(self._clients)
        for present in self._source.slots():
            rows = [checkins_of(present, number, self._server_of, self._source.regions) for number in numbers]
            slot = max(following, clock.slot_of(time.time_ns()) + 1)
            if not self._wait_until(clock.opens(slot) + _AFTER_OPENING_NS):
                return
            start = time.monotonic()
            failures = list(pool.map(_send, self._clients, rows))
            for number, failure in enumerate(failures):
                failed_slots[number] = 0 if failure is None else failed_slots[number] + 1
                if failure is not None and failed_slots[number] == _MOST_FAILED_SLOTS:
                    raise failure
            problems = tuple(f"slot {slot}: {failure}" for failure in failures if failure is not None)
            in_time = not problems and time.time_ns() < clock.closes(slot)
            yield from (FedSlot(skipped, None, 0.0) for skipped in range(following, slot))
            self._note(slot, present, in_time)
            yield FedSlot(slot, present.total if in_time else None, time.monotonic() - start, problems)
            following = slot + 1

    def _wait_until(self, at_ns: int) -> bool:
        """Wait; return False if the feeder was stopped meanwhile."""
        while (remaining := at_ns - time.time_ns()) > 0:
            if self._stop.wait(min(remaining / SECOND, 0.5)):
                return False
        return not self._stop.is_set()


def _send(client: NodeClient, columns: tuple[list[int], list[str]]) -> ApiFailed | None:
    """Send the check-ins of one server in one slot; return why it did not take them."""
    try:
        client.send(*columns)
    except ApiFailed as failure:
        return failure
    return None


@dataclass(frozen=True)
class ServerRow:
    """One server in one slot: its estimate of all people, epsilon spent in the window, messages since the start."""

    server: str
    total: Total
    epsilon_spent: float
    messages: int


@dataclass(frozen=True)
class SlotRow:
    """One slot.

    truth     which only the demo knows; None if some check-ins came too late, or were not taken
    problems  why servers did not take their check-ins, one sentence per server
    """

    slot: int
    truth: int | None
    servers: tuple[ServerRow, ...]
    problems: tuple[str, ...] = ()


def make_source(people: int, data: str | None, length: str | None, seed: int) -> Source:
    """Return the people of `--data`, or a synthetic crowd of `--people` and `--seed`."""
    if data is not None:
        return find_source(data, length, _checked_seed(seed))
    if not 1 <= people <= _MOST_PEOPLE:
        raise BadInput(f"--people is {people:,}; allowed: 1 to {_MOST_PEOPLE:,}.")
    moves, public = (np.random.default_rng([_checked_seed(seed), part]) for part in range(2))
    return SyntheticCrowd(people, moves, public)


class Demo:
    """A running demo; `page` is the address of its live page."""

    def __init__(
        self,
        network: DemoNetwork,
        source: Source,
        processes: Processes,
        clients: Sequence[NodeClient],
        feeder: Feeder,
        page: str = "",
    ) -> None:
        self.network, self.source, self.processes, self.page = network, source, processes, page
        self._clients, self._feeder = tuple(clients), feeder
        self._over = threading.Event()

    def rows(self, seconds: float | None) -> Iterator[SlotRow]:
        """Yield the slots as they are released, for this many seconds or until the source ends."""
        end = None if seconds is None else time.monotonic() + seconds
        patience = 4 * self.network.clock.length_ns / SECOND + 30
        silent_since = time.monotonic()
        with ThreadPoolExecutor(len(self._clients)) as pool, _set_at_end(self._over):
            while end is None or time.monotonic() < end:
                self.processes.check()
                try:
                    fed = self._feeder.next_slot(0.2 if end is None else min(0.2, max(0.0, end - time.monotonic())))
                except queue.Empty:
                    if time.monotonic() - silent_since > patience:
                        raise ApiFailed(f"no check-ins could be sent for {patience:.0f} s.") from None
                    continue
                except ApiFailed:
                    self.processes.check(1.0)  # an ended process is the better explanation
                    raise
                if fed is None:
                    return
                row = self._read(fed, end, pool)
                if row is None:
                    return
                silent_since = time.monotonic()
                yield row

    def seconds_to_first_release(self) -> float:
        """Return the seconds until the first slot is released: its rest, grace and deadline, and a second more."""
        clock = self.network.clock
        slot = max(clock.slot_of(time.time_ns()) + 1, 0)
        return (clock.closes(slot) + clock.length_ns - time.time_ns()) / SECOND + 1

    def _read(self, fed: FedSlot, end: float | None, pool: ThreadPoolExecutor) -> SlotRow | None:
        """Read what all servers published; return None if the demo's time is over before."""
        closes = self.network.clock.closes(fed.slot)
        while (remaining := (closes - time.time_ns()) / SECOND) > 0:
            if end is not None and time.monotonic() >= end:
                return None
            self.processes.check()
            time.sleep(min(remaining, 0.2))
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
        return SlotRow(fed.slot, fed.truth, servers, fed.problems)


@contextmanager
def open_demo(
    source: Source, servers: int, slot: str, seed: int, keep: Path | None, report: Callable[[str], None]
) -> Iterator[Demo]:
    """Write files, start processes, wait until all answer, and feed; at the end stop and remove everything."""
    if not 2 <= servers <= _MOST_SERVERS:
        raise BadInput(f"--servers is {servers}; allowed: 2 to {_MOST_SERVERS} on one machine.")
    length_ns, pins = slot_length(slot), np.random.default_rng([_checked_seed(seed), 2])
    with ExitStack() as stack:
        folder = stack.enter_context(_folder(keep))
        report(f"writing keys and files for {servers} servers")
        network = make_network(folder, source, servers, length_ns, datetime.now(UTC))
        server_of = pin_to_servers(source.people, servers, pins)
        comparison = DemoComparison(folder / "network.toml", source.note, source.regions, server_of)
        # Before the nodes, so that it ends after them: their streams, which it passes on, have ended by then.
        page = stack.enter_context(PageThread(make_page_app(network.nodes, comparison)))
        processes = stack.enter_context(Processes(network.nodes))
        report(f"starting {servers} node processes")
        clients = [NodeClient(node, network.token) for node in network.nodes]
        for client in clients:
            stack.callback(client.close)
        comparison.warm_up()
        _wait_for_all(processes, clients)
        feeder = stack.enter_context(Feeder(source, clients, server_of, network.clock, comparison.add))
        yield Demo(network, source, processes, clients, feeder, page.address)


def _wait_for_all(processes: Processes, clients: Sequence[NodeClient]) -> None:
    end = time.monotonic() + _SECONDS_TO_START
    for client in clients:
        while not client.healthy():
            processes.check()
            if time.monotonic() > end:
                text = f"{client.node.name} did not answer within {_SECONDS_TO_START:.0f} s of its start."
                raise NodeProcessFailed(text, last_lines(client.node.log))
            time.sleep(_POLL)


def _ask(client: NodeClient, slot: int, last: float, over: threading.Event) -> ServerRow:
    """Wait for a server's release of a slot, and return its row."""
    while (total := client.total(slot)) is None:
        if time.monotonic() > last or over.wait(_POLL):
            total = Total(None, None, None)  # this server missed the slot; the others' rows still count
            break
    return ServerRow(client.node.name, total, *client.counters())


@contextmanager
def _set_at_end(over: threading.Event) -> Iterator[None]:
    """Set an event at the end: threads that wait for a release stop waiting when the demo is interrupted."""
    try:
        yield
    finally:
        over.set()


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix="dpcrowd-demo-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if any(keep.iterdir()):
            raise BadInput(f"--keep '{keep}' is not empty; choose an empty or a new folder.")
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--keep '{keep}' cannot be created: {error.strerror}; choose another folder.") from None
    yield keep.resolve()


def _checked_seed(seed: int) -> int:
    if seed < 0:
        raise BadInput(f"--seed is {seed}; allowed: a whole number of at least 0.")
    return seed
