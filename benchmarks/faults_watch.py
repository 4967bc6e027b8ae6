"""What the trial of faults watches all the time: feed, answers, ledgers, estimates; and what must hold of them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec
import numpy as np
from faults_servers import Server, Trial

from dpcrowd.demo.crowd import SyntheticCrowd, pin_to_servers

__all__ = ["Draw", "Feed", "Watch", "double_draws", "overspent", "overspent_in_time"]

_SAMPLES = "SELECT slot, nano, noisy FROM ledger JOIN noisy USING (counter) WHERE kind = 'sample'"
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class Draw:
    """One sample of one server, as its ledger had it: `values` stands for the noisy values, `seen` is when."""

    server: str
    slot: int
    nano: int
    values: str
    seen: float


def double_draws(draws: Sequence[Draw]) -> list[tuple[str, int]]:
    """Servers and slots with two samples, in whichever of a server's lives."""
    kept: dict[tuple[str, int], set[str]] = defaultdict(set)
    for draw in draws:
        kept[draw.server, draw.slot].add(draw.values)
    return sorted(place for place, values in kept.items() if len(values) > 1)


def overspent(draws: Sequence[Draw], epsilon_nano: int, window: int) -> list[tuple[str, int]]:
    """Servers and slots at which the last `window` slots cost more than was promised, over all lives together."""
    found = []
    for server in sorted({draw.server for draw in draws}):
        paid: dict[int, int] = defaultdict(int)
        for draw in draws:
            if draw.server == server:
                paid[draw.slot] += draw.nano
        for last in paid:
            if sum(nano for slot, nano in paid.items() if last - window < slot <= last) > epsilon_nano:
                found.append((server, last))
    return sorted(found)


def overspent_in_time(draws: Sequence[Draw], epsilon_nano: int, seconds: float) -> list[tuple[str, int]]:
    """The same by the time at which samples were seen, whatever numbers a wrong clock gave their slots."""
    found = []
    for server in sorted({draw.server for draw in draws}):
        own = [draw for draw in draws if draw.server == server]
        for last in own:
            spent = sum(draw.nano for draw in own if last.seen - seconds < draw.seen <= last.seen)
            if spent > epsilon_nano:
                found.append((server, last.slot))
    return sorted(found)


class Feed:
    """A crowd with a daily wave, whose day has 96 slots; each person is at the same server all the time.

    truth      slot -> people in each region
    delivered  (server, slot) for which the check-ins were acknowledged
    """

    def __init__(self, trial: Trial, crowd: SyntheticCrowd, seed: int) -> None:
        self._trial, self._crowd = trial, crowd
        self.regions = crowd.regions
        self._server_of = pin_to_servers(crowd.people, len(trial.servers), np.random.default_rng(seed))
        self.truth: dict[int, np.ndarray] = {}
        self.delivered: set[tuple[str, int]] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        clock, regions = self._trial.network.clock(), self._crowd.regions
        slot = max(self._trial.slot() + 1, 0)
        with ThreadPoolExecutor(len(self._trial.servers)) as pool:
            for present in self._crowd.slots():
                bodies = []
                at_ms = clock.opens(slot) // 1_000_000 + 1
                for number in range(len(self._trial.servers)):
                    mine = self._server_of[present.people] == number
                    pairs = zip(present.people[mine].tolist(), present.regions[mine].tolist(), strict=True)
                    rows = [{"user": who, "region": regions[where], "time": at_ms} for who, where in pairs]
                    bodies.append(msgspec.msgpack.encode(rows))
                self.truth[slot] = np.bincount(present.regions, minlength=len(regions))
                if self._stop.wait(max(0.0, (clock.opens(slot) - time.time_ns()) / _SECOND + 0.05)):
                    return
                end_ns = clock.closes(slot)  # the grace is for a request that is on its way
                pairs_of = zip(self._trial.servers, bodies, strict=True)
                list(pool.map(lambda pair, s=slot, e=end_ns: self._deliver(*pair, s, e), pairs_of))
                slot += 1

    def _deliver(self, server: Server, body: bytes, slot: int, end_ns: int) -> None:
        """Again and again until the slot ends: a feed whose server is away does the same."""
        while (left := (end_ns - time.time_ns()) / _SECOND) > 0 and not self._stop.is_set():
            with contextlib.suppress(OSError):
                status, _ = server.ask("/v1/checkins", body, seconds=max(min(left, 1.0), 0.05))
                if status in (202, 207):
                    self.delivered.add((server.name, slot))
                    return
                if status == 409:
                    return  # its clock is ahead: the slot is over there
            self._stop.wait(0.1)


@dataclass
class Watch:
    """Asks every server twice per second whether it answers, and looks into the ledgers as often.

    silent  (when, server): the API of a server that should have answered did not within two seconds
    """

    trial: Trial
    draws: dict[tuple[str, int, str], Draw] = field(default_factory=dict)
    estimates: dict[tuple[str, int, str], tuple[float, float]] = field(default_factory=dict)
    silent: list[tuple[float, str]] = field(default_factory=list)
    asked: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Watch:
        for server in self.trial.servers:
            self._threads.append(threading.Thread(target=self._probe, args=(server,), daemon=True))
        for work in (self._read_ledgers, self._read_estimates):
            self._threads.append(threading.Thread(target=work, daemon=True))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10)

    def _probe(self, server: Server) -> None:
        while not self._stop.wait(0.5):
            before = server.expected
            if before[0]:
                self.asked += 1
                if not server.healthy() and server.expected == before:
                    self.silent.append((time.monotonic(), server.name))

    def _read_ledgers(self) -> None:
        while not self._stop.wait(0.5):
            for server in self.trial.servers:
                self.collect(server)

    def collect(self, server: Server) -> None:
        """What the ledger has now; nothing if it cannot be read at this moment."""
        path = server.data / "dpcrowd.db"
        if not path.exists():
            return
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1)) as connection,
        ):
            for slot, nano, noisy in connection.execute(_SAMPLES).fetchall():
                values = hashlib.sha256(noisy).hexdigest()[:16]
                key = server.name, slot, values
                if key not in self.draws:
                    self.draws[key] = Draw(server.name, slot, nano, values, time.monotonic())

    def _read_estimates(self) -> None:
        """The last slots, again and again: a folder that is put back forgets them."""
        while not self._stop.wait(2.0):
            for server in self.trial.servers:
                with contextlib.suppress(OSError, ValueError):
                    status, text = server.ask(f"/v1/estimates?from={max(self.trial.slot() - 20, 0)}")
                    for row in json.loads(text) if status == 200 else ():
                        if row["low"] is not None:
                            key = server.name, row["slot"], row["region"]
                            self.estimates.setdefault(key, (row["low"], row["high"]))

    # ------------------------------------------------------------------------------------------------ what must hold

    def all_draws(self) -> list[Draw]:
        return list(self.draws.copy().values())

    def covered(
        self, truth: Mapping[int, np.ndarray], regions: Sequence[str], slots: range | None = None
    ) -> tuple[int, int]:
        """(estimates whose interval holds the truth, all estimates), of some slots."""
        number = {region: place for place, region in enumerate(regions)}
        hits = [
            low <= truth[slot][number[region]] <= high
            for (_, slot, region), (low, high) in self.estimates.copy().items()
            if slot in truth and (slots is None or slot in slots)
        ]
        return sum(hits), len(hits)

    def unsampled(self, slots: range) -> Iterator[tuple[str, int]]:
        """Servers and slots without a sample."""
        drawn = {(draw.server, draw.slot) for draw in self.all_draws()}
        for server in self.trial.servers:
            yield from ((server.name, slot) for slot in slots if (server.name, slot) not in drawn)
