"""From the end of a slot's grace to its release, in a real node with ten neighbours that all send at that moment.

The neighbours are scripted, but their links are real: Zenoh sessions with TLS in this process, of which five dial the
node and five are dialled. Each sends a signed message with a record of all regions when the slot is sealed. The node,
another process, draws noise, pays and stores, sends, checks and fuses ten messages, stores the release, and publishes
it. What is measured ends when the last byte of the release has arrived at a reader of /v1/stream. It includes the
network's send_offset (25 ms, 75 ms with 1,000 regions), when the node's own message leaves: nothing is released before.

The default scheme samples in few slots, and the others pay for nothing and sign nothing but a header. So it is measured
twice: with that scheme (`adaptive`), its slots with and without a sample apart, and with one that samples in every
slot (`every-slot`), where each slot draws, pays, commits twice, signs its record and sends it to all ten.

Beside it: how long SQLite alone takes for one durable commit on the same disk.
"""

from __future__ import annotations

from harness import Target, print_table, print_targets, seconds_of  # isort: skip  # first: sets threads

import argparse
import asyncio
import http.client
import json
import re
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import live
import numpy as np

from dpcrowd.node.build import make_view
from dpcrowd.node.config import load_pair
from dpcrowd.node.transport.base import Peer
from dpcrowd.node.transport.zenoh import ZenohTransport
from dpcrowd.node.transport.zenoh_settings import TlsFiles
from dpcrowd.node.wire import VERSION, Body, encode, record_of
from dpcrowd.schemes.messages import InfoMessages

NODE = "node"
NEIGHBOURS = (*(f"a-{number}" for number in range(5)), *(f"z-{number}" for number in range(5)))  # the first one dials
POPULATION, VARIANCE = 1_000_000, 800.0
BOUNDS = {51: 50e-3, 1_000: 100e-3}
MODES = ("adaptive", "every-slot")
WARM_UP = 5
_EVENT = re.compile(rb"id: (\d+)\nevent: estimates")


@dataclass(frozen=True)
class Result:
    """Seconds from seal to release, a slot each; which had a sample of their own; what was missed, and refused."""

    seconds: np.ndarray
    sampled: np.ndarray
    missed: int
    refused: dict[str, int]
    commit: np.ndarray

    def parts(self) -> dict[str, np.ndarray]:
        """The seconds of the slots with a sample and of those without; of all, where there are both."""
        if self.sampled.all():
            return {"with": self.seconds}
        if not self.sampled.any():
            return {"without": self.seconds}
        return {"with": self.seconds[self.sampled], "without": self.seconds[~self.sampled], "all": self.seconds}


class Reader(threading.Thread):
    """Reads /v1/stream: when the last byte of each slot's release came, and whether it holds a sample."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(b"GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        self.came: dict[int, tuple[int, bool]] = {}

    def run(self) -> None:
        held = bytearray()
        while data := self._socket.recv(1 << 18):
            held += data
            if b"]\n\n" in data[-64:] or b"]\n\n" in held[-len(data) - 2 :]:
                now, event = time.time_ns(), _EVENT.search(held)
                if event is not None:
                    self.came[int(event[1])] = now, b'"sampled":true' in held
                held.clear()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)


class Neighbour:
    """One scripted server: its link, and what it says in a slot."""

    def __init__(self, config: Path, draw: np.random.Generator) -> None:
        self.node, self._network = load_pair(config)
        self._view = make_view(self.node, self._network)
        tls = TlsFiles(key=self.node.keys.key, certificate=self.node.keys.certificate, ca=self.node.keys.ca)
        self._transport = ZenohTransport(self._network.id, tls, self.node.listen.transport)
        self._draw = draw
        self.up = asyncio.Event()

    async def open(self) -> None:
        other = self._network.server(NODE)
        peer = Peer(other.name, other.endpoint, other.certificate_name, tuple(other.keys))
        await self._transport.open(
            self.node.server, [peer], lambda *_: None, lambda _, up: self.up.set() if up else self.up.clear()
        )

    async def close(self) -> None:
        await self._transport.close()

    def payload(self, slot: int) -> bytes:
        """A sample of its share of the crowd, signed."""
        view, size = self._view, len(self._network.regions)
        share, mean = self._network.server(self.node.server).share, POPULATION / size
        counts = share * mean + self._draw.normal(0.0, np.sqrt(VARIANCE), (1, size))
        said = InfoMessages(
            np.ones(1, dtype=np.bool_),
            share * counts / VARIANCE,
            np.full((1, size), share**2 / VARIANCE),
            np.full((1, size), mean),
            np.ones((1, size), dtype=np.bool_),
        )
        record = record_of(said, digest=view.digest, origin=view.me, slot=slot, sign=view.sign)
        prior, known = said.prior[0].tobytes(), bytes([1]) * size
        return encode(Body(VERSION, view.digest, view.me, slot, 1, slot + 1, {}, prior, known, (record,)), view.sign)

    async def send(self, payload: bytes) -> None:
        await self._transport.send(payload, [NODE])


async def speak(
    network: live.LiveNetwork, neighbours: Sequence[Neighbour], slots: int, give: Callable[[int], None]
) -> int:
    """For so many slots: counts for the node while a slot is open, and ten messages when it is sealed. The first."""
    for one in neighbours:
        await one.open()
    await asyncio.wait_for(asyncio.gather(*(one.up.wait() for one in neighbours)), 60)
    first = network.clock.slot_of(time.time_ns()) + 1
    for slot in range(first, first + slots):
        while (left := network.clock.opens(slot) + 150_000_000 - time.time_ns()) > 0:
            await asyncio.sleep(left / 1e9)
        await asyncio.to_thread(give, slot)
        payloads = [one.payload(slot) for one in neighbours]
        while (left := network.seals(slot) - time.time_ns()) > 0:
            await asyncio.sleep(left / 1e9)
        for one, payload in zip(neighbours, payloads, strict=True):
            await one.send(payload)
    await asyncio.sleep(1.5)
    await asyncio.gather(*(one.close() for one in neighbours))
    return first


def commits(folder: Path, number: int = 100) -> np.ndarray:
    """Seconds of a durable commit of 10 kB, by SQLite alone."""
    with closing(sqlite3.connect(folder / "bare.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE t (value BLOB)")
        return np.array(
            [seconds_of(lambda: database.execute("INSERT INTO t VALUES (?)", (bytes(10_000),))) for _ in range(number)]
        )


def measure(regions: int, slots: int, window: int, *, every_slot: bool) -> Result:
    """One network with so many regions."""
    draw = np.random.default_rng(regions)
    with live.temporary() as folder, ExitStack() as stack:
        links = [(NODE, name) for name in NEIGHBOURS]
        names = [NODE, *NEIGHBOURS]
        network = live.make_live(
            folder, names, regions, links, population=POPULATION, window=window, every_slot=every_slot
        )
        bare = commits(folder)
        node_toml = network.nodes[0].config
        node_toml.write_text(node_toml.read_text(encoding="utf-8") + 'accepts = "counts"\n', encoding="utf-8")
        stack.enter_context(live.started(network.nodes[:1]))
        port = network.nodes[0].port
        reader = Reader(port)
        reader.start()
        stack.callback(reader.close)
        door = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        stack.callback(door.close)

        def ask(method: str, path: str, body: bytes | None = None) -> bytes:
            headers = {"Authorization": f"Bearer {live.TOKEN}", "Content-Type": "application/json"}
            door.request(method, path, body, headers)
            answer = door.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{path}: {answer.status} {text[:300]!r}")
            return text

        def give(slot: int) -> None:
            counts = draw.poisson(POPULATION / regions / (1 + len(NEIGHBOURS)), regions).tolist()
            body = {"slot": slot, "counts": dict(zip(network.regions, counts, strict=True))}
            ask("POST", "/v1/counts", json.dumps(body).encode())

        neighbours = [Neighbour(node.config, draw) for node in network.nodes[1:]]
        first = asyncio.run(speak(network, neighbours, WARM_UP + slots, give))
        refused = json.loads(ask("GET", "/v1/network"))["refused_messages"]
    kept = [slot for slot in range(first + WARM_UP, first + WARM_UP + slots) if slot in reader.came]
    late = np.array([(reader.came[slot][0] - network.seals(slot)) / 1e9 for slot in kept])
    sampled = np.array([reader.came[slot][1] for slot in kept], dtype=np.bool_)
    return Result(late, sampled, slots - len(kept), refused, bare)


def milliseconds(*seconds: float) -> str:
    return " / ".join(f"{value * 1e3:.1f}" for value in seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=100, help="of a second each, for each number of regions and mode")
    parser.add_argument("--window", type=int, default=100, help="slots of the guarantee")
    parser.add_argument("--mode", choices=(*MODES, "both"), default="both", help="when the node samples")
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    given = parser.parse_args()
    rows, targets, machine = [], [], live.state_of_machine()
    for mode in MODES if given.mode == "both" else (given.mode,):
        for regions, bound in BOUNDS.items():
            result = measure(regions, given.slots, given.window, every_slot=mode == "every-slot")
            if not result.seconds.size:
                raise RuntimeError(f"{mode}, {regions:,} regions: no release of any slot was read.")
            commit = np.percentile(result.commit, [50, 99])
            for name, part in result.parts().items():
                middle, high = np.percentile(part, [50, 99])
                rows.append(
                    (
                        mode,
                        f"{regions:,}",
                        name,
                        part.size,
                        milliseconds(middle, high, part.max()),
                        f"{commit[0] * 1e3:.2f} / {commit[1] * 1e3:.2f}",
                        f"{middle / commit[0]:.1f}",
                        sum(result.refused.values()),
                    )
                )
                what = f"{mode}, {regions:,} regions, p99 {name}" + (" slots" if name == "all" else " a sample")
                targets.append(Target(what, high, bound, " s", at_least=False))
            # A slot without a release is not in any percentile: it has to be missed aloud.
            targets.append(Target(f"{mode}, {regions:,} regions, slots missed", result.missed, 0, at_least=False))
    print_table(
        f"Seal to release, {len(NEIGHBOURS)} neighbours over Zenoh with TLS, durable; times in ms",
        ("sampling", "regions", "sample", "slots", "p50 / p99 / slowest", "a commit", "p50 / commit", "refused"),
        rows,
        f"a commit: p50 / p99 of SQLite alone. {machine}",
    )
    print_targets(targets)


if __name__ == "__main__":
    main()
