"""Small regions in groups: total error and coverage of relay with and without them, with and without a model.

    python benchmarks/groups.py [SERIES ...] [--runs 4] [--out groups.json]

Every series is split over 20 servers among whom users are partitioned, at epsilon 0.1 and 1 in any window of 40 slots.
The first half is public: the model, or Q of the random walk, is taken from it. The second half is scored, and so is
the non-negative view of the same estimates.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from real import SHARED

import dpcrowd
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.series import one_step_var
from dpcrowd.sim.data.span import cut

SERVERS, WINDOW, EPSILONS, BURN_IN = 20, 40, (0.1, 1.0), 20


def sparse_series(slots: int = 400, regions: int = 140) -> DataSet:
    """Return a series in which most counts are 0: levels of very different size that rise and fall together."""
    rng = np.random.default_rng(1)
    level, common = np.exp(rng.normal(-1.5, 1.6, regions)), np.zeros(slots)
    for slot in range(1, slots):
        common[slot] = 0.9 * common[slot - 1] + 0.15 * rng.normal()
    return counts_from_array(rng.poisson(level * np.exp(common)[:, None]))


def every_series() -> dict[str, Any]:
    """Return how to load each series, by name."""
    gowalla = SHARED / "gowalla_nyc_checkins.csv.gz"
    return {
        "sparse": sparse_series,
        "gowalla-days": lambda: dpcrowd.load_data(gowalla, slot_length="1d"),
        "gowalla-6h": lambda: dpcrowd.load_data(gowalla, slot_length="6h"),
        "flights": lambda: dpcrowd.load_data("flights"),
        "employment": lambda: dpcrowd.load_data("employment"),
        "multi-flu": lambda: dpcrowd.load_data("multi-flu", data_dir=SHARED),
    }


def measure(name: str, data: DataSet, runs: int) -> list[dict[str, Any]]:
    """Return one row per epsilon, knowledge and choice of groups."""
    half = data.slots // 2
    public, scored = cut(data, 0, half), cut(data, half, data.slots)
    model = dpcrowd.fit(public, source="first half of a published series")
    walk = dpcrowd.ProcessModel.of(1.0, one_step_var(public.truth(np.random.default_rng(0))))
    truth = scored.truth(np.random.default_rng(0)).astype(np.float64)
    rows = []
    for epsilon in EPSILONS:
        for knowledge in ("none", "model"):
            result = dpcrowd.simulate(
                {"off": dpcrowd.Relay(hops_per_slot=3), "auto": dpcrowd.Relay(hops_per_slot=3, groups="auto")},
                replace(scored, model=walk) if knowledge == "none" else scored,
                model=None if knowledge == "none" else model,
                servers=SERVERS,
                window=WINDOW,
                epsilon=epsilon,
                runs=runs,
                shares="partition",
                observation="binomial",
                burn_in=BURN_IN,
                keep_estimates=True,
                nonnegative=True,
            )
            for groups, record in result.records.items():
                rows.append(
                    {
                        "series": name,
                        "regions": len(data.regions),
                        "epsilon": epsilon,
                        "model": knowledge,
                        "groups": groups,
                        "total_error": float(record.total_error.mean()),
                        "nonnegative_total_error": float(record.nonnegative_total_error.mean()),  # type: ignore[union-attr]
                        "coverage": float(np.nanmean(record.coverage95)),
                        "sum_error": _sum_error(record.estimates, truth),
                    }
                )
    return rows


def _sum_error(estimates: Any, truth: Any) -> float:
    """Return the mean absolute error of the sum over all regions, divided by the mean sum."""
    errors = np.abs(np.nan_to_num(estimates[:, BURN_IN:]).sum(axis=3) - truth.sum(axis=1)[None, BURN_IN:, None])
    return float(errors.mean() / truth[BURN_IN:].sum(axis=1).mean())


def main() -> None:
    """Measure and print a table; write JSON, if asked for."""
    loaders = every_series()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("series", nargs="*", default=list(loaders))
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    print(f"{'series':14} {'ε':>4} {'model':6} {'groups':6} {'total':>8} {'non-neg.':>8} {'coverage':>9} {'sum':>8}")
    for name in options.series:
        for row in measure(name, loaders[name](), options.runs):
            rows.append(row)
            print(
                f"{row['series']:14} {row['epsilon']:4} {row['model']:6} {row['groups']:6} {row['total_error']:8.4f} "
                f"{row['nonnegative_total_error']:8.4f} "
                f"{row['coverage']:9.3f} {row['sum_error']:8.4f}"
            )
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
