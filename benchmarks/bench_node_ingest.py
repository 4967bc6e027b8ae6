"""Check-ins through a real node: HTTP, decoding, hashing, distinct counting, and on disk before the answer.

The node has one core to itself, with all its threads; the client has another. Its requests are ready bytes on
connections that stay open, each with one request under way, so that it has next to nothing to do: its share of a core
is printed. Formats take turns in rounds of one slot each, so that every round has one seal and one emptied journal.

The ratio compares with `decode_checkins` of the same body in this process, on the client's core while the node rests.
"""

from __future__ import annotations

from harness import Target, per_second, print_table, print_targets, seconds_of  # isort: skip  # first: sets threads

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import live
import msgspec

from dpcrowd.node.ingest.bodies import decode_checkins

ROWS, BODIES, REGIONS, SLOT = 1_000, 300, 51, 8
_ALL_TAKEN = f'{{"taken":true,"accepted":{ROWS}}}'.encode()
KINDS = {
    "JSON": "application/json",
    "MessagePack": "application/msgpack",
    "Arrow": "application/vnd.apache.arrow.stream",
}


@dataclass(frozen=True)
class Round:
    """One format for some seconds: requests that were answered, and processor time."""

    requests: int
    seconds: float
    node: float
    client: float
    slowest: float

    @property
    def rate(self) -> float:
        return ROWS * self.requests / self.seconds


def make_bodies(regions: tuple[str, ...]) -> dict[str, list[bytes]]:
    """The same check-ins of BODIES * ROWS different people in every format."""
    import pyarrow

    draw = random.Random(0)
    made: dict[str, list[bytes]] = {name: [] for name in KINDS}
    for number in range(BODIES):
        users = [f"u{number * ROWS + row:09d}" for row in range(ROWS)]
        places = draw.choices(regions, k=ROWS)
        rows = [{"user": user, "region": place} for user, place in zip(users, places, strict=True)]
        made["JSON"].append(json.dumps(rows).encode())
        made["MessagePack"].append(msgspec.msgpack.encode(rows))
        table = pyarrow.table({"user": users, "region": pyarrow.array(places).dictionary_encode()})
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        made["Arrow"].append(bytes(sink.getvalue()))
    return made


class Connection(asyncio.Protocol):
    """Sends the next request as soon as the last one is answered, until `until`."""

    def __init__(self, following: Callable[[], bytes], until: float) -> None:
        self._following, self._until = following, until
        self._transport: Any = None
        self._held, self._sent = b"", 0.0
        self.requests, self.slowest = 0, 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._following())

    def data_received(self, data: bytes) -> None:
        self._held += data
        if not self._held.startswith(b"HTTP/1.1 202"[: len(self._held)]):
            self.done.set_exception(RuntimeError(f"refused: {self._held[:300]!r}"))
            self._transport.close()
        elif self._held.endswith(_ALL_TAKEN):
            now = time.perf_counter()
            self._held = b""
            self.requests += 1
            self.slowest = max(self.slowest, now - self._sent)
            if now < self._until:
                self._send()
            else:
                self._transport.close()
                self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError("the node closed the connection"))


def send(port: int, pid: int, requests: list[bytes], connections: int, seconds: float) -> Round:
    """One round."""
    source = cycle(requests)

    async def all_of_them() -> Round:
        loop = asyncio.get_running_loop()
        before, own, began = live.usage(pid).seconds, time.process_time(), time.perf_counter()
        made = [
            (await loop.create_connection(lambda: Connection(source.__next__, began + seconds), "127.0.0.1", port))[1]
            for _ in range(connections)
        ]
        await asyncio.gather(*(one.done for one in made))
        took = time.perf_counter() - began
        return Round(
            sum(one.requests for one in made),
            took,
            live.usage(pid).seconds - before,
            time.process_time() - own,
            max(one.slowest for one in made),
        )

    return run(all_of_them())


def run(work: Coroutine[Any, Any, Round]) -> Round:
    """On uvloop where it is installed: the client must not be what is measured."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def decoding(kind: str, bodies: list[bytes], regions: dict[str, int]) -> float:
    """Seconds to decode one body, as often as there are bodies."""
    return seconds_of(lambda: [decode_checkins(kind, body, regions) for body in bodies]) / len(bodies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each format")
    parser.add_argument("--seconds", type=float, default=SLOT, help="of a round")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    given = parser.parse_args()
    machine, found = live.state_of_machine(), live.cores()
    first, second = (found[0], found[1]) if len(found) > 1 else (None, None)
    with live.temporary() as folder:
        network = live.make_live(folder, ["alone"], REGIONS, [], slot=f"{SLOT}s", population=1_000_000)
        bodies = make_bodies(network.regions)
        numbers = {name: number for number, name in enumerate(network.regions)}
        rounds: dict[str, list[Round]] = {name: [] for name in KINDS}
        decoded: dict[str, list[float]] = {name: [] for name in KINDS}
        requests = {name: [live.post("/v1/checkins", KINDS[name], body) for body in bodies[name]] for name in KINDS}
        with ExitStack() as stack:
            with live.pinned(first):
                pid = stack.enter_context(live.started(network.nodes)).pids["alone"]
            stack.enter_context(live.pinned(second))
            port = network.nodes[0].port
            for name in KINDS:  # the node loads what it needs
                send(port, pid, requests[name][:1], 1, 0.5)
            for _ in range(given.rounds):
                for name, kind in KINDS.items():
                    decoded[name].append(decoding(kind, bodies[name], numbers))
                    rounds[name].append(send(port, pid, requests[name], given.connections, given.seconds))
                    time.sleep(0.5)  # a journal may still be on its way out
    rows = []
    for name in KINDS:
        best, decode = max(rounds[name], key=lambda one: one.rate), min(decoded[name])
        each = best.seconds / best.requests
        rows.append(
            (
                name,
                per_second(ROWS * best.requests, best.seconds),
                per_second(ROWS * sum(r.requests for r in rounds[name]), sum(r.seconds for r in rounds[name])),
                f"{each * 1e3:.2f} ms",
                f"{decode * 1e3:.2f} ms",
                f"{each / decode:.1f}",
                f"{best.node / best.seconds:.0%}",
                f"{best.client / best.seconds:.0%}",
                f"{max(r.slowest for r in rounds[name]) * 1e3:.0f} ms",
            )
        )
    as_json = max(one.rate for one in rounds["JSON"])
    compact = max(one.rate for name in ("MessagePack", "Arrow") for one in rounds[name])
    print_table(
        f"One node on one core, batches of {ROWS:,}, {given.connections} connections, {REGIONS} regions, durable",
        ("", "best round", "all rounds", "a batch", "decoding it", "ratio", "node", "client", "slowest"),
        rows,
        machine + ("" if second is not None else "; node and client share a core: there is only one"),
    )
    print_targets(
        [
            Target("JSON, check-ins", as_json, 150e3, "/s"),
            Target("MessagePack or Arrow, check-ins", compact, 250e3, "/s"),
        ]
    )


if __name__ == "__main__":
    main()
