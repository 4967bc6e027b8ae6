"""What a slot of relay costs per server: beside DPCrowd at 50 servers, and in large networks of mean degree 20.

    python benchmarks/utility.py --out FOLDER --part speed        50, 10,000 and 100,000 servers
    python benchmarks/utility_speed.py --servers 1000000          one large network, with its memory (3 GB, minutes)

Times are processor time of this process, so that other users of the machine disturb little.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dpcrowd.filters import default_gain
from dpcrowd.kernels.engine import best_engine
from dpcrowd.network.graph import Graph, union
from dpcrowd.network.hearing import one_hop_hearing
from dpcrowd.network.random_graph import RandomGraph
from dpcrowd.privacy import Guarantee, SeededNoise
from dpcrowd.schemes.base import Scheme, Setting, run_slot
from dpcrowd.schemes.dpcrowd import DPCrowd
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.data import draw_run, load

__all__ = ["speed"]

Row = dict[str, Any]
HORIZON, SAMPLES, DEGREE, DENSITY = 1000, 200, 20, 0.1


def seconds(
    scheme: Scheme, servers: int, runs: int, slots: int, graphs: list[Graph] | None, sample_slots: int = SAMPLES
) -> float:
    """Of all slots; without graphs one is drawn in each slot, and drawing counts."""
    data = load("linear", slots=slots)
    drawn = [draw_run(data, seed=0, run=run, servers=servers) for run in range(runs)]
    shares = np.concatenate([run.shares for run in drawn])[:, None]
    counts = np.concatenate([run.counts for run in drawn], axis=1)
    guarantee = Guarantee.finite(HORIZON, 1.0)
    phases = np.tile(np.arange(servers) % max(1, HORIZON // sample_slots), runs) * sample_slots
    setting = Setting(
        servers * runs, data.model, guarantee, engine=best_engine(), runs=runs, samples=sample_slots, phases=phases
    )
    state = scheme.start(setting)
    noise = SeededNoise([np.random.SeedSequence(run) for run in range(runs)], servers, 1, engine=best_engine())
    draw = RandomGraph(servers, DENSITY, latency=None) if graphs is None else None
    rngs = [np.random.default_rng(run) for run in range(runs)]
    hearing = None
    total = 0.0
    for slot in range(slots):
        began = time.process_time()
        if draw is not None or hearing is None:
            graph = graphs[0] if graphs else union([draw.draw(rng) for rng in rngs])  # type: ignore[union-attr]
            hearing = one_hop_hearing(graph, default_gain(graph.max_degree), best_engine())
            if graphs:
                began = time.process_time()
            hearing = replace(hearing, graph=graph, same_links=graphs is not None)
        noise.prepare(slot)
        run_slot(scheme, state, slot, shares, counts[slot], noise, hearing)
        total += time.process_time() - began
    return total


def speed(quick: bool) -> Iterator[list[Row]]:
    """Rows of nanoseconds per server and slot, and the ratio to DPCrowd on the same network."""
    runs, slots, rounds = (2, 20, 1) if quick else (50, 100, 3)
    schemes: dict[str, Scheme] = {
        "dpcrowd": DPCrowd(),
        "relay, reach 1": Relay(samples=SAMPLES, reach=1),
        "relay, reach 2": Relay(samples=SAMPLES, reach=2),
        "relay, K=1": Relay(samples=SAMPLES),
        "relay, K=3": Relay(samples=SAMPLES, hops_per_slot=3),
    }
    graph = union([RandomGraph(50, DENSITY, latency=None).draw(np.random.default_rng(run)) for run in range(runs)])
    for links, graphs in (("dynamic", None), ("static", [graph])):
        for scheme in schemes.values():
            seconds(scheme, 50, runs, 4, graphs)  # compiles the loops
        best = {
            label: min(seconds(scheme, 50, runs, slots, graphs) for _ in range(rounds))
            for label, scheme in schemes.items()
        }
        yield [
            {
                "servers": 50,
                "links": links,
                "scheme": label,
                "nanoseconds": 1e9 * spent / (50 * runs * slots),
                "ratio": spent / best["dpcrowd"],
            }
            for label, spent in best.items()
        ]
    sizes = (1_000, 10_000) if quick else (10_000, 100_000)
    for servers in sizes:
        yield _large(servers, 4 if quick else 20)


def _large(servers: int, slots: int) -> list[Row]:
    graph = RandomGraph(servers, DEGREE / (servers - 1), latency=None).draw(np.random.default_rng(0))
    schemes: dict[str, Scheme] = {"dpcrowd": DPCrowd(), "relay, reach 1": Relay(samples=SAMPLES, reach=1)}
    if servers <= 100_000:
        schemes["relay, reach 2"] = Relay(samples=20, reach=2)
    rows = []
    for label, scheme in schemes.items():
        samples = 20 if label == "relay, reach 2" else SAMPLES
        seconds(scheme, servers, 1, 3, [graph], samples)  # compiles the loops
        spent = seconds(scheme, servers, 1, slots, [graph], samples)
        rows.append(
            {"servers": servers, "links": "static", "scheme": label, "nanoseconds": 1e9 * spent / (servers * slots)}
        )
    for row in rows:
        row["ratio"] = row["nanoseconds"] / rows[0]["nanoseconds"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="What a slot costs per server in one large network of mean degree 20.")
    parser.add_argument("--servers", type=int, default=1_000_000, help="Number of servers (default: 1000000).")
    parser.add_argument("--slots", type=int, default=20, help="Slots to simulate (default: 20).")
    chosen = parser.parse_args()
    for row in _large(chosen.servers, chosen.slots):
        print(f"{row['scheme']}: {row['nanoseconds'] / 1e3:.2f} µs per server and slot ({row['ratio']:.1f} x DPCrowd)")
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB at most")


if __name__ == "__main__":
    main()
