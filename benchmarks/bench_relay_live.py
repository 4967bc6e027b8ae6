"""Relay on live servers: how fast records spread, and how soon a node that was away has the others' estimate.

    ring    five nodes in a ring, slots of a second, 51 regions: seconds from the moment at which the message of a slot
            leaves to the arrival of each record at each node. By the nodes' own metric `dpcrowd_record_delay_seconds`
    return  in the same ring: one node is killed and started again at once; is away for 10 slots, less than the lag; is
            away for longer than the lag; and starts with a new, empty folder. How many slots pass from its start until
            it releases what the others do, and in how many slots after that they differ
    many    fifty nodes in a ring on this machine: node-slots that were missed, at slots of 1 s, 2 s, ... until none is

Real processes with TLS. Not part of `make bench`, since it takes minutes. `python benchmarks/bench_relay_live.py ring
return many`; without names, the first two. Linux only.
"""

from __future__ import annotations

from harness import Target, print_table, print_targets  # isort: skip  # first: sets threads

import argparse
import contextlib
import json
import os
import shutil
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import live
import msgspec
import numpy as np

from dpcrowd.demo.files import DemoNode
from dpcrowd.demo.processes import Processes

REGIONS, PEOPLE, WINDOW, SAMPLES, LAG = 51, 20_000, 24, 6, 16
DELAY, WITHIN = "dpcrowd_record_delay_seconds_bucket", 0.05


class Ring:
    """Nodes in a ring, each with a process of its own, and a crowd that checks in at the beginning of every slot."""

    def __init__(self, folder: Path, nodes: int, slot: str, seconds: float, stack: ExitStack) -> None:
        self.folder, self.seconds = folder, seconds
        self.names = [f"server-{number + 1}" for number in range(nodes)]
        links = [(self.names[number], self.names[(number + 1) % nodes]) for number in range(nodes)]
        grace, deadline = f"{round(200 * seconds)}ms", f"{round(500 * seconds)}ms"
        self.network = live.make_live(
            folder, self.names, REGIONS, links, slot=slot, grace=grace, deadline=deadline, population=PEOPLE,
            window=WINDOW, relay=SAMPLES,
        )  # fmt: skip
        self.nodes: dict[str, DemoNode] = {node.name: node for node in self.network.nodes}
        self._each = PEOPLE // nodes
        self._stack, self._running = stack, dict[str, tuple[ExitStack, Processes]]()
        self._pool = stack.enter_context(ThreadPoolExecutor(8))

    def start(self, names: Sequence[str]) -> None:
        for name in names:
            own = self._stack.enter_context(ExitStack())
            self._running[name] = own, own.enter_context(Processes([self.nodes[name]]))
        for name in names:
            while not self._answers(name):
                self._running[name][1].check()
                time.sleep(0.1)

    def _answers(self, name: str) -> bool:
        try:
            self.get(name, "/healthz")
        except OSError:
            return False
        return True

    def stop(self, name: str, *, kill: bool = False) -> None:
        own, processes = self._running.pop(name)
        if kill:
            os.kill(processes.pids[name], signal.SIGKILL)
        own.close()

    def pid(self, name: str) -> int:
        return self._running[name][1].pids[name]

    def get(self, name: str, path: str) -> str:
        request = urllib.request.Request(
            f"{self.nodes[name].address}{path}", headers={"Authorization": f"Bearer {live.TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())

    def slot(self) -> int:
        return self.network.clock.slot_of(time.time_ns())

    def run_until(self, last: int) -> None:
        """Let the crowd check in, in every slot up to one, and wait until that has been released."""
        for slot in range(self.slot() + 1, last + 1):
            time.sleep(max(0.0, (self.network.clock.opens(slot) + 5_000_000 - time.time_ns()) / 1e9))
            list(self._pool.map(self._check_in, [name for name in self.names if name in self._running]))
        time.sleep(max(0.0, (self.network.seals(last) - time.time_ns()) / 1e9) + 0.9 * self.seconds)

    def _check_in(self, name: str) -> None:
        first, rng = self.names.index(name) * self._each, np.random.default_rng(self.slot())
        places = rng.integers(0, REGIONS, self._each)
        rows = [{"user": first + who, "region": f"region-{place}"} for who, place in enumerate(places.tolist())]
        request = urllib.request.Request(
            f"{self.nodes[name].address}/v1/checkins",
            msgspec.msgpack.encode(rows),
            {"Authorization": f"Bearer {live.TOKEN}", "Content-Type": "application/msgpack"},
        )
        with contextlib.suppress(OSError):  # a node that has just started does not take everything
            urllib.request.urlopen(request, timeout=10).close()

    def estimates(self, name: str, first: int, last: int) -> dict[int, tuple[float, ...]]:
        """Released estimates of all regions, by slot."""
        rows = json.loads(self.get(name, f"/v1/estimates?from={first}&to={last}&limit=100000"))
        found: dict[int, list[float]] = {}
        for row in rows:
            found.setdefault(row["slot"], []).append(row["estimate"])
        return {slot: tuple(values) for slot, values in found.items()}

    def delays(self) -> Counter[float]:
        """Number of records that have arrived at any node within so many seconds."""
        total: Counter[float] = Counter()
        for name in self._running:
            for line in self.get(name, "/metrics").splitlines():
                if line.startswith(DELAY):
                    total[float(line.partition('le="')[2].partition('"')[0])] += int(float(line.rpartition(" ")[2]))
        return total


@contextmanager
def ring(nodes: int, slot: str = "1s", seconds: float = 1.0) -> Iterator[Ring]:
    with live.temporary() as folder, ExitStack() as stack:
        made = Ring(folder, nodes, slot, seconds, stack)
        made.start(made.names)
        made.run_until(made.slot() + 5)  # neighbours find one another, and vouch for each other
        yield made


def measure_delays(slots: int) -> list[Target]:
    """Print how soon the records of a slot are everywhere."""
    with ring(5) as network:
        before = network.delays()
        network.run_until(network.slot() + slots)
        delays = network.delays() - before
    total = delays[float("inf")]
    rows = [(f"within {bound * 1e3:.0f} ms", f"{count / total:.2%}") for bound, count in sorted(delays.items())[:-1]]
    print_table(
        f"Arrival of records at 5 nodes in a ring, slots of 1 s, {REGIONS} regions, {total} arrivals in {slots} slots",
        ("after the moment of sending", "of all arrivals"),
        rows,
    )
    return [Target(f"records that arrive within {WITHIN * 1e3:.0f} ms", delays[WITHIN] / total, 0.99)]


def measure_returns(after: int) -> list[Target]:
    """Print how soon a node that comes back releases what the others do."""
    rows, targets = [], []
    with ring(5) as network:
        name, other = network.names[2], network.names[0]
        network.run_until(network.slot() + LAG + 2)
        for what, away, kill, empty in (
            ("killed, and started at once", 0, True, False),
            ("away for 10 slots", 10, False, False),
            (f"away for {LAG + 4} slots, more than the lag", LAG + 4, False, False),
            ("a new, empty folder", 1, False, True),
        ):
            network.stop(name, kill=kill)
            if empty:
                shutil.rmtree(network.folder / name / "data")
            if away:
                network.run_until(network.slot() + away)
            back = network.slot()
            network.start([name])
            network.run_until(back + after)
            mine, theirs = (network.estimates(one, back, back + after - 1) for one in (name, other))
            both = sorted(mine.keys() & theirs.keys())
            same = [slot for slot in both if mine[slot] == theirs[slot]]
            first = same[0] - back if same else after
            later = [slot for slot in both if same and slot > same[0]]
            joined = json.loads(network.get(name, "/v1/network"))["joined_from"]
            differs = sum(slot not in same for slot in later)
            rows.append((what, str(first), f"{differs} of {len(later)}", ", ".join(joined) or "nobody"))
            if not away:
                targets.append(Target("slots until a killed node has the others' estimate", first, 2, at_least=False))
    print_table(
        f"A node of five comes back, lag {LAG}, slots of 1 s",
        ("", "slots until the same bits", "later slots that differ", "joined with the word of"),
        rows,
    )
    return targets


def measure_many(nodes: int, slots: int, lengths: Sequence[float]) -> list[Target]:
    """Print what many nodes on this machine need, at the first length of slots at which none misses one."""
    rows, missed = [], 0
    for seconds in lengths:
        with ring(nodes, f"{seconds:g}s", seconds) as network:
            pids = [network.pid(name) for name in network.names]
            before, wall = [live.usage(pid) for pid in pids], time.monotonic()
            first = network.slot() + 1
            network.run_until(first + slots - 1)
            after, took = [live.usage(pid) for pid in pids], time.monotonic() - wall
            time.sleep(seconds)
            there = sum(len(network.estimates(name, first, first + slots - 1)) for name in network.names)
            delays = network.delays()
        busy = sum(b.seconds - a.seconds for a, b in zip(before, after, strict=True)) / took / len(live.cores())
        resident, missed = max(one.resident for one in after), nodes * slots - there
        share = f"{delays[0.5] / delays[float('inf')]:.1%}"
        rows.append((f"{seconds:g} s", f"{missed} of {nodes * slots}", share, f"{resident:.0f} MB", f"{busy:.0%}"))
        if not missed:
            break
    print_table(
        f"{nodes} nodes in a ring on one machine, {REGIONS} regions, {slots} slots",
        ("slot", "node-slots missed", "records within 0.5 s", "memory of a node, largest", "processor, of all cores"),
        rows,
    )
    return [Target(f"node-slots missed by {nodes} nodes", missed, 0, at_least=False)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], "ring", "return", "many"], default=[])
    parser.add_argument("--slots", type=int, default=120, help="how many slots are measured")
    parser.add_argument("--after", type=int, default=8, help="slots after each return")
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--lengths", type=float, nargs="*", default=[1, 2, 5, 10], help="of slots, in seconds")
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    chosen = parser.parse_args()
    print(live.state_of_machine())
    targets: list[Target] = []
    for part in chosen.parts or ["ring", "return"]:
        if part == "ring":
            targets += measure_delays(chosen.slots)
        elif part == "return":
            targets += measure_returns(chosen.after)
        else:
            targets += measure_many(chosen.nodes, chosen.slots, chosen.lengths)
    print_targets(targets)


if __name__ == "__main__":
    main()
