"""Many regions: DPCrowd+ on Multi-Flu, 51 regions, 441 slots, 50 servers, static graph, one core.

Timed is what `server_slots_per_second` of every result counts: the five steps of the scheme, grouping included, and
the noise. Seven runs make one batch, as the simulator cuts them. Where the public series is not at hand, a made-up one
of the same shape stands in for it, and the title says so. The full-matrix form handles 51 x 51 covariances and is
timed on fewer slots.
"""

from __future__ import annotations

from harness import Target, alternate, per_second, print_table, print_targets  # isort: skip  # first: sets threads

from collections.abc import Callable
from typing import Any

import numpy as np

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data import DataSet, FixedData, load
from dpcrowd.sim.engine import run_batch

SERVERS, RUNS = 50, 7
MATRIX_SLOTS, MATRIX_RUNS = 110, 1
CASES: dict[str, dict[str, Any]] = {
    "DPCrowd+, diagonal, sound ledger": {},
    "DPCrowd+, diagonal, without grouping": {"grouping": "none"},
    "DPCrowd+, diagonal, per-region ledger (the paper's)": {"accounting": "per-region"},
    "DPCrowd+, full matrix": {"form": "matrix"},
}
FIRST, *_, MATRIX = CASES


def series(slots: int | None = None) -> DataSet:
    """Multi-Flu, or weekly seasonal counts of its shape and size."""
    try:
        return load("multi-flu", slots=slots)
    except BadInput:
        rng = np.random.default_rng(0)
        level = np.exp(rng.normal(3.5, 1.0, 51))
        season = 1.0 + 0.4 * np.cos(2 * np.pi * np.arange(441)[:, None] / 52)
        counts = rng.poisson(level * season)[:slots]
        change = np.diff(counts, axis=0).var(axis=0)
        return FixedData(
            name="made-up series of the shape of Multi-Flu",
            regions=tuple(f"region-{k}" for k in range(51)),
            slots=len(counts),
            model=ProcessModel.of(1.0, change),
            tuning=Tuning(rescue_theta=3.0),
            notes=(),
            change_var=change,
            counts=counts,
        )


def config(data: DataSet, runs: int, more: dict[str, Any]) -> SimulationConfig:
    return configure("dpcrowd-plus", data, servers=SERVERS, density=0.1, runs=runs, dynamic=False, **more)


def main() -> None:
    whole, short = series(), series(MATRIX_SLOTS)
    setups = {
        name: config(short, MATRIX_RUNS, more) if name == MATRIX else config(whole, RUNS, more)
        for name, more in CASES.items()
    }
    for setup in setups.values():
        run_batch(setup, [0])  # compiles what is compiled
    best = alternate({name: _timed(setup) for name, setup in setups.items()})
    rates = {name: setup.runs * SERVERS * setup.data.slots / best[name] for name, setup in setups.items()}
    print_table(
        f"{whole.name}: {len(whole.regions)} regions, {SERVERS} servers, static graph, one core, noise included",
        ("", "slots", "runs", "best of 5", "server-slots", "per region"),
        [
            (
                name,
                setup.data.slots,
                setup.runs,
                f"{best[name]:.3f} s",
                per_second(rates[name], 1),
                f"{1e9 / rates[name] / len(whole.regions):,.0f} ns",
            )
            for name, setup in setups.items()
        ],
    )
    print_targets([Target("server-slots/s of DPCrowd+, diagonal", rates[FIRST], 1e5, "/s")])


def _timed(setup: SimulationConfig) -> Callable[[], float]:
    return lambda: run_batch(setup, range(setup.runs))[0].seconds


if __name__ == "__main__":
    main()
