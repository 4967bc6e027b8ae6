"""Cost grows linearly in servers, regions (diagonal), slots and runs.

Each is doubled several times where fixed costs no longer matter, the others held. Printed are the slope of the time in
a double logarithmic plot (1 is linear) and R^2 of a straight line through the times themselves. Timed are the steps of
the scheme and the noise, on one core.

Servers are doubled on a grid, where neighbours lie close to each other in memory, and on a random graph, where they lie
anywhere: there every access leaves the caches once the network has outgrown them, which makes it dearer by a factor
that is bounded (bench_scale.py holds it to 3 up to a million servers), but bends the line on the way.
"""

from __future__ import annotations

from harness import Target, alternate, print_table, print_targets, si  # isort: skip  # first: sets threads

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from drive import Drive

from dpcrowd.filters import ProcessModel, default_gain
from dpcrowd.kernels.engine import best_engine
from dpcrowd.network.hearing import one_hop_hearing
from dpcrowd.network.topologies import build
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import Scheme
from dpcrowd.schemes.dpcrowd import DPCrowd
from dpcrowd.schemes.dpcrowd_plus import DPCrowdPlus
from dpcrowd.sim.simulate import simulate

ROUNDS = 5


@dataclass(frozen=True)
class Sweep:
    """What is doubled, what is held, and how to run one size; `judged`: whether the fit has to be linear."""

    what: str
    held: str
    sizes: Sequence[int]
    make: Callable[[int], Callable[[], float]]
    judged: bool = True


def drive(
    scheme: Scheme, guarantee: Guarantee, servers: int, regions: int, slots: int, graph: str = "random"
) -> Callable[[], float]:
    """A network of mean degree 5 (a grid: 4) in which every region is a random walk."""
    rng = np.random.default_rng(0)
    network = build(graph, servers, rng, 5 / (servers - 1), latency=None)
    hearing = one_hop_hearing(network, default_gain(network.max_degree), best_engine())
    shares = rng.uniform(0.05, 1.0, (servers, 1))
    truth = 1000.0 + np.cumsum(rng.normal(0.0, 10.0, (slots, 1, regions)), axis=0)
    counts = np.rint(shares * truth).astype(np.int64)
    return Drive(scheme, guarantee, ProcessModel.of(1.0, np.full(regions, 100.0)), shares, counts, hearing).seconds


def simulated(slots: int, runs: int) -> Callable[[], float]:
    """DPCrowd on Linear with 50 servers, as the simulator runs it."""

    def run() -> float:
        result = simulate(
            "dpcrowd", "linear", servers=50, density=0.1, dynamic=False, horizon=4000, slots=slots, runs=runs, jobs=1
        )
        return result["dpcrowd"].seconds

    return run


FINITE, WINDOW = Guarantee.finite(1000, 1.0), Guarantee.window(50, 1.0)
LARGE = (125_000, 250_000, 500_000, 1_000_000)
SWEEPS = (
    Sweep("servers, grid", "DPCrowd, 10 slots", LARGE, lambda n: drive(DPCrowd(), FINITE, n, 1, 10, "grid")),
    Sweep("servers, random", "DPCrowd, 10 slots", LARGE, lambda n: drive(DPCrowd(), FINITE, n, 1, 10), judged=False),
    Sweep(
        "regions",
        "DPCrowd+, 100 servers, 60 slots",
        (128, 256, 512, 1024),
        lambda d: drive(DPCrowdPlus(), WINDOW, 100, d, 60),
    ),
    Sweep("slots", "DPCrowd, 50 servers, 50 runs", (500, 1000, 2000, 4000), lambda t: simulated(t, 50)),
    Sweep("runs", "DPCrowd, 50 servers, 200 slots", (350, 700, 1400, 2800), lambda b: simulated(200, b)),
)


def measure(sweep: Sweep) -> tuple[list[float], float, float]:
    """Seconds of each size, slope of log(seconds) over log(size), and R^2 of seconds = a + b size."""
    ready = {size: sweep.make(size) for size in sweep.sizes}
    ready[sweep.sizes[0]]()  # compiles what is compiled
    best = alternate({str(size): run for size, run in ready.items()}, ROUNDS)
    seconds = np.array([best[str(size)] for size in sweep.sizes])
    sizes = np.array(sweep.sizes, dtype=np.float64)
    slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    return seconds.tolist(), slope, float(np.corrcoef(sizes, seconds)[0, 1] ** 2)


def main() -> None:
    rows, targets = [], []
    for sweep in SWEEPS:
        seconds, slope, straight = measure(sweep)
        sizes = " ".join(si(size).replace(" ", "") for size in sweep.sizes)
        times = " ".join(f"{second:.2f}" for second in seconds)
        rows.append((sweep.what, sweep.held, sizes, times, f"{slope:.2f}", f"{straight:.4f}"))
        if sweep.judged:
            targets.append(Target(f"distance of the slope from 1: {sweep.what}", abs(slope - 1), 0.2, at_least=False))
            targets.append(Target(f"R^2 of a straight line: {sweep.what}", straight, 0.98))
    columns = ("doubled", "held", "sizes", "seconds", "slope", "R^2")
    print_table(f"Growth, best of {ROUNDS}, one core", columns, rows)
    print_targets(targets)


if __name__ == "__main__":
    main()
