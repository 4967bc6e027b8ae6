"""A million servers: what a slot of DPCrowd costs per server as the network grows, mean degree 20, static graph.

The same slots of the same stream are run at every size, from a fresh start; a network of a thousand servers is run
hundreds of times in a round, so that its short slots are timed as well as those of a million. Noise is included;
building the graph is not, and is printed beside it. Memory is the peak of the whole process, graphs and data included.
"""

from __future__ import annotations

from harness import ROUNDS, Target, print_table, print_targets  # isort: skip  # first: sets threads

import sys
import time

import numpy as np
from drive import Drive
from numpy.typing import NDArray

from dpcrowd.filters import default_gain
from dpcrowd.kernels.engine import best_engine
from dpcrowd.network.hearing import one_hop_hearing
from dpcrowd.network.random_graph import RandomGraph
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.dpcrowd import DPCrowd
from dpcrowd.sim.data import draw_run, load

SIZES = (1_000, 10_000, 100_000, 1_000_000)
DEGREE, SLOTS, HORIZON = 20, 30, 1000
GIB = 2**30


def network(servers: int) -> tuple[Drive, float]:
    """A network ready to run, and the seconds that its graph took."""
    data = load("linear", slots=SLOTS)
    run = draw_run(data, seed=0, run=0, servers=servers)
    began = time.perf_counter()
    graph = RandomGraph(servers, DEGREE / (servers - 1), latency=None).draw(np.random.default_rng(0))
    hearing = one_hop_hearing(graph, default_gain(graph.max_degree), best_engine())
    built = time.perf_counter() - began
    guarantee = Guarantee.finite(HORIZON, 1.0)
    return Drive(DPCrowd(), guarantee, data.model, run.shares[:, None], run.counts, hearing), built


def nanoseconds(drive: Drive) -> NDArray[np.float64]:
    """Per server, of each slot; small networks are run many times, and the quickest counts."""
    servers = drive.counts.shape[1]
    times = [drive.slot_seconds() for _ in range(max(1, SIZES[-1] // servers // 4))]
    return np.asarray(min(times, key=np.sum) / servers * 1e9)


def peak_memory() -> float:
    """Bytes, of this process so far; NaN where the system does not tell."""
    try:
        import resource
    except ImportError:
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)


def main() -> None:
    drives, built = {}, {}
    for size in SIZES:
        drives[size], built[size] = network(size)
    drives[SIZES[0]].slot_seconds()  # compiles what is compiled
    rounds = [{size: nanoseconds(drive) for size, drive in drives.items()} for _ in range(ROUNDS)]
    best = {size: min((times[size] for times in rounds), key=np.sum) for size in SIZES}
    memory = peak_memory()
    smallest = best[SIZES[0]]
    print_table(
        f"DPCrowd, mean degree {DEGREE}, static graph, slots 0 to {SLOTS - 1} of {HORIZON}, one core, noise included",
        ("servers", "graph", "a slot", "per server", "ratio", "dearest slot", "ratio"),
        [
            (
                f"{size:,}",
                f"{built[size]:.2f} s",
                f"{best[size].mean() * size / 1e6:,.3f} ms",
                f"{best[size].mean():.0f} ns",
                f"{best[size].mean() / smallest.mean():.2f}",
                f"{best[size].max():.0f} ns",
                f"{best[size].max() / smallest.max():.2f}",
            )
            for size in SIZES
        ],
        f"Best of {ROUNDS} rounds. Peak memory of the process: {memory / GIB:.2f} GiB.",
    )
    print_targets(
        [
            Target(
                f"cost per server, {SIZES[-1]:,} servers / {SIZES[0]:,} servers",
                best[SIZES[-1]].mean() / smallest.mean(),
                3,
                "x",
                at_least=False,
            ),
            Target("peak memory in GB", memory / 1e9, 8, "", at_least=False),
        ]
    )


if __name__ == "__main__":
    main()
