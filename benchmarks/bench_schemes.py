"""Every scheme side by side: server-slots/s in one small setting, and the slots/s of single streams.

The first table has all schemes on the same runs, on Linear and Multi-Linear; what is timed is what
`server_slots_per_second` of every result counts. The second has schemes that talk to nobody, next to published figures
of a Java benchmark (streamdp-benchmark), as context only: another machine and language, and noise from a ready pool.
There a stream runs alone. Here streams run side by side as one array, which is how the simulator works, and noise is
drawn; a stream that runs alone pays for every array operation by itself.
"""

from __future__ import annotations

from harness import alternate, print_table, si  # isort: skip  # first: sets threads

import numpy as np
from drive import Drive

from dpcrowd.filters import ProcessModel
from dpcrowd.network.hearing import Hearing
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import Scheme
from dpcrowd.schemes.registry import SCHEMES, make_scheme
from dpcrowd.sim.configure import configure
from dpcrowd.sim.engine import run_batch

SERVERS, RUNS, SLOTS, STREAMS = 50, 20, 300, 4096
JAVA = {
    "uniform": ("50 M", "5.6 M"),
    "ba": ("36.5 M", "-"),
    "fast": ("9.3 M", "163 k"),
    "pegasus": ("7.7 M", "195 k"),
    "rescuedp": ("-", "223 k"),
}


def side_by_side(data: str, rounds: int = 3) -> dict[str, float]:
    """Server-slots/s of every scheme; all run in one batch on the same data, graph and noise."""
    setup = configure(
        list(SCHEMES), data, servers=SERVERS, density=0.1, runs=RUNS, slots=SLOTS, window=None, dynamic=False
    )
    run_batch(setup, range(2))  # compiles what is compiled
    batches = [run_batch(setup, range(RUNS)) for _ in range(rounds)]
    return {
        records[0].label: records[0].server_slots / min(record.seconds for record in records)
        for records in zip(*batches, strict=True)
    }


def stream(scheme: Scheme, streams: int, regions: int, slots: int) -> Drive:
    """Streams of period 80 that nobody else hears, w = 120, epsilon = 1."""
    rng = np.random.default_rng(0)
    wave = 1000.0 * (1.0 + np.sin(2 * np.pi * np.arange(slots)[:, None, None] / 80 + rng.uniform(0, 6, (streams, 1))))
    counts = rng.poisson(np.broadcast_to(wave, (slots, streams, regions))).astype(np.int64)
    guarantee = Guarantee.finite(slots, 1.0) if "finite" in scheme.kinds else Guarantee.window(120, 1.0)
    shares = np.ones((streams, 1))
    return Drive(scheme, guarantee, ProcessModel.of(1.0, np.full(regions, 6000.0)), shares, counts, Hearing())


def stream_rates() -> list[tuple[str, ...]]:
    """A row for each scheme: ours and the published figures, one region and 64."""
    shapes = {(1, 1): 1000, (STREAMS, 1): 240, (1, 64): 1000, (STREAMS // 64, 64): 240}
    rows: list[tuple[str, ...]] = []
    for name, (java_one, java_many) in JAVA.items():
        drives = {shape: stream(make_scheme(name), *shape, slots) for shape, slots in shapes.items()}
        for drive in drives.values():
            drive.seconds()  # compiles what is compiled
        best = alternate({str(shape): drive.seconds for shape, drive in drives.items()}, 3)
        ours = {shape: si(shape[0] * slots / best[str(shape)]) for shape, slots in shapes.items()}
        rows.append((name, ours[1, 1], ours[STREAMS, 1], java_one, ours[1, 64], ours[STREAMS // 64, 64], java_many))
    return rows


def main() -> None:
    one, six = side_by_side("linear"), side_by_side("multi-linear")
    print_table(
        f"Server-slots/s: {SERVERS} servers, {SLOTS} slots, {RUNS} runs, static graph, one core, noise included",
        ("scheme", "Linear (1 region)", "Multi-Linear (6 regions)"),
        [(name, si(one[name]), si(six[name])) for name in one],
        "Best of 3.",
    )
    print_table(
        "Slots/s of schemes that talk to nobody, and published figures of Java code, as context",
        ("", "1-D: one", f"{STREAMS:,}", "Java", "64-D: one", f"{STREAMS // 64}", "Java"),
        stream_rates(),
        "'one': a single stream, slot by slot. Best of 3, one core.",
    )


if __name__ == "__main__":
    main()
