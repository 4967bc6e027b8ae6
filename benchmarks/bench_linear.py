"""Cost grows linearly in servers, regions (diagonal), slots and runs.

Each is doubled several times where fixed costs no longer matter, the others held. Printed are the slope of the time in
a double logarithmic plot (1 is linear) and R^2 of a straight line through the times themselves. Timed are the steps of
the scheme and the noise, on one core.
"""

from __future__ import annotations

from harness import Target, alternate, print_table, print_targets, si  # isort: skip  # first: sets threads

from collections.abc import Callable

import numpy as np
from drive import Drive
from numpy.typing import NDArray

from dpcrowd.filters import ProcessModel, default_gain
from dpcrowd.network.hearing import one_hop_hearing
from dpcrowd.network.random_graph import RandomGraph
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import Scheme
from dpcrowd.schemes.dpcrowd import DPCrowd
from dpcrowd.schemes.dpcrowd_plus import DPCrowdPlus
from dpcrowd.sim.engine import fast_engine
from dpcrowd.sim.simulate import simulate

ROUNDS = 3
SLOPE = 1.2  # a little above 1, because large networks leave the caches one after the other
R2 = 0.98


def drive(scheme: Scheme, guarantee: Guarantee, servers: int, regions: int, slots: int) -> Callable[[], float]:
    """A random graph of mean degree 5 in which every region is a random walk."""
    rng = np.random.default_rng(0)
    graph = RandomGraph(servers, 5 / (servers - 1), latency=None).draw(rng)
    hearing = one_hop_hearing(graph, default_gain(graph.max_degree), fast_engine())
    shares = rng.uniform(0.05, 1.0, (servers, 1))
    truth = 1000.0 + np.cumsum(rng.normal(0.0, 10.0, (slots, 1, regions)), axis=0)
    counts = np.rint(shares * truth).astype(np.int64)
    ready = Drive(scheme, guarantee, ProcessModel.of(1.0, np.full(regions, 100.0)), shares, counts, hearing)
    return ready.seconds


def simulated(slots: int, runs: int) -> Callable[[], float]:
    """DPCrowd on Linear with 50 servers, as the simulator runs it."""

    def run() -> float:
        result = simulate(
            "dpcrowd", "linear", servers=50, density=0.1, dynamic=False, horizon=4000, slots=slots, runs=runs, jobs=1
        )
        return result["dpcrowd"].seconds

    return run


def fit(sizes: NDArray[np.float64], seconds: NDArray[np.float64]) -> tuple[float, float]:
    """Slope of log(seconds) over log(size), and R^2 of seconds = a + b size."""
    slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    return slope, float(np.corrcoef(sizes, seconds)[0, 1] ** 2)


def main() -> None:
    finite, window = Guarantee.finite(1000, 1.0), Guarantee.window(50, 1.0)
    sweeps: dict[str, dict[int, Callable[[], float]]] = {
        "servers": {n: drive(DPCrowd(), finite, n, 1, 10) for n in (250_000, 500_000, 1_000_000, 2_000_000)},
        "regions": {d: drive(DPCrowdPlus(), window, 100, d, 60) for d in (128, 256, 512, 1024)},
        "slots": {t: simulated(t, 50) for t in (500, 1000, 2000, 4000)},
        "runs": {b: simulated(200, b) for b in (350, 700, 1400, 2800)},
    }
    held = {
        "servers": "DPCrowd, 1 region, 10 slots",
        "regions": "DPCrowd+, 100 servers, 60 slots",
        "slots": "DPCrowd, 50 servers, 50 runs",
        "runs": "DPCrowd, 50 servers, 200 slots",
    }
    rows, targets = [], []
    for what, contestants in sweeps.items():
        next(iter(contestants.values()))()  # compiles what is compiled
        best = alternate({str(size): run for size, run in contestants.items()}, ROUNDS)
        seconds = np.array(list(best.values()))
        slope, straight = fit(np.array(list(contestants), dtype=np.float64), seconds)
        rows.append(
            (
                f"{what}; {held[what]}",
                " ".join(si(size).replace(" ", "") for size in contestants),
                " ".join(f"{second:.2f}" for second in seconds),
                f"{slope:.2f}",
                f"{straight:.4f}",
            )
        )
        targets += [
            Target(f"slope in {what}", slope, SLOPE, at_least=False),
            Target(f"R^2 in {what}", straight, R2),
        ]
    print_table(f"Growth, best of {ROUNDS}, one core", ("doubled; held", "sizes", "seconds", "slope", "R^2"), rows)
    print_targets(targets)


if __name__ == "__main__":
    main()
