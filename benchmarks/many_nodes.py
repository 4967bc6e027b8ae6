"""Fifty live nodes on one machine with slots of a second and 64 regions: does any miss a slot, and what do they need?

Real processes with TLS, in a ring, or with `--links 2` to the second next as well. A crowd of 20,000 checks in at the
beginning of every slot, 400 people a node. A slot is missed if a node has no release of it; a message is late if it
reached a neighbour after that had gone on without it.

Not part of `make bench`, since it takes minutes: `python benchmarks/many_nodes.py --minutes 5`. Linux only.
"""

from __future__ import annotations

from harness import Target, print_table, print_targets  # isort: skip  # first: sets threads

import argparse
import http.client
import json
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import live
import msgspec
import numpy as np

from dpcrowd.demo.files import DemoNode

REGIONS, PEOPLE = 64, 20_000
KIND = "application/msgpack"


class Door:
    """A connection to one node."""

    def __init__(self, node: DemoNode, body: bytes) -> None:
        self.node, self._body = node, body
        self._connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=10)
        self._headers = {"Authorization": f"Bearer {live.TOKEN}", "Content-Type": KIND}

    def ask(self, path: str, body: bytes | None = None) -> bytes:
        for last in (False, True):
            try:
                self._connection.request("GET" if body is None else "POST", path, body, self._headers)
                answer = self._connection.getresponse()
                text = answer.read()
                break
            except (OSError, http.client.HTTPException):
                self._connection.close()  # a node closes connections that rest; the next request opens it anew
                if last:
                    raise
        if answer.status >= 300:
            raise RuntimeError(f"{self.node.name}: {path}: {answer.status} {text[:300]!r}")
        return text

    def check_in(self) -> bool:
        """Whether the node took them; one that is far behind refuses, and the run goes on."""
        try:
            self.ask("/v1/checkins", self._body)
        except (RuntimeError, OSError, http.client.HTTPException):
            return False
        return True

    def slots(self, first: int, last: int) -> set[int]:
        rows = json.loads(self.ask(f"/v1/estimates?from={first}&to={last}&region=region-0"))
        return {row["slot"] for row in rows}

    def refused(self) -> Counter[str]:
        return Counter(json.loads(self.ask("/v1/network"))["refused_messages"])


def crowd(regions: tuple[str, ...], people: range) -> bytes:
    """Where some people are."""
    draw = random.Random(people.start)
    return msgspec.msgpack.encode([{"user": who, "region": draw.choice(regions)} for who in people])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--links", type=int, default=1, help="to how many of the next ones each node is linked")
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    given = parser.parse_args()
    machine, number = live.state_of_machine(), max(1, len(live.cores()))
    names = [f"server-{place + 1}" for place in range(given.nodes)]
    links = [
        (names[i], names[(i + step) % len(names)]) for step in range(1, given.links + 1) for i in range(len(names))
    ]
    each = PEOPLE // given.nodes
    with live.temporary() as folder:
        network = live.make_live(folder, names, REGIONS, links, grace="200ms", deadline="500ms", population=PEOPLE)
        began = time.monotonic()
        with live.started(network.nodes) as processes, ThreadPoolExecutor(4) as pool:
            starting = time.monotonic() - began
            doors = [
                Door(node, crowd(network.regions, range(place * each, (place + 1) * each)))
                for place, node in enumerate(network.nodes)
            ]
            time.sleep(10)  # neighbours find one another
            clock, pids = network.clock, processes.pids.values()
            before = [live.usage(pid) for pid in pids]
            refused_before = sum((door.refused() for door in doors), Counter())
            own, wall, untaken = time.process_time(), time.monotonic(), 0
            first = clock.slot_of(time.time_ns()) + 1
            last = first + round(given.minutes * 60) - 1
            for slot in range(first, last + 1):
                time.sleep(max(0.0, (clock.opens(slot) + 5_000_000 - time.time_ns()) / 1e9))
                untaken += sum(not taken for taken in pool.map(Door.check_in, doors))
                processes.check()
            time.sleep(max(0.0, (network.seals(last) - time.time_ns()) / 1e9))
            seconds, own = time.monotonic() - wall, time.process_time() - own
            after = [live.usage(pid) for pid in pids]
            time.sleep(3)
            there = [door.slots(first, last) for door in doors]
            refused = sum((door.refused() for door in doors), Counter()) - refused_before
    asked = last - first + 1
    missed = np.array([asked - len(slots) for slots in there])
    busy = sum(b.seconds - a.seconds for a, b in zip(before, after, strict=True)) / seconds / number
    resident = np.array([one.resident for one in after])
    alone = np.array([one.own for one in after])
    messages = asked * 2 * len(links)
    print_table(
        f"{given.nodes} nodes, {len(links)} links, {REGIONS} regions, slots of 1 s, {asked} slots",
        ("", "figure"),
        [
            ("node-slots missed", f"{missed.sum()} of {asked * given.nodes}, at {(missed > 0).sum()} nodes"),
            ("requests with check-ins not taken", f"{untaken} of {asked * given.nodes}"),
            ("messages not used, by reason", f"{dict(refused) or 0} of {messages}"),
            ("memory a node, resident: median, largest", f"{np.median(resident):.0f}, {resident.max():.0f} MB"),
            ("memory a node, its own alone: median, largest", f"{np.median(alone):.0f}, {alone.max():.0f} MB"),
            (f"processor time of all nodes, of {number} cores", f"{busy:.0%}"),
            ("processor time of one node in a slot", f"{busy * number * 1e3 / given.nodes:.1f} ms"),
            ("processor time of this script, which sends the check-ins", f"{own / seconds / number:.1%}"),
            ("start of all processes", f"{starting:.0f} s"),
        ],
        machine,
    )
    print_targets(
        [
            Target("node-slots missed", float(missed.sum()), 0.0, at_least=False),
            Target("memory of the largest node", float(resident.max()), 150.0, " MB", at_least=False),
            Target(f"of {number} cores", 100 * busy, 60.0, "%", at_least=False),
        ]
    )


if __name__ == "__main__":
    main()
