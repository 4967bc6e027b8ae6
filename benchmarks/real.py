"""Real series: the first half is public, the second half is scored; total error and coverage with and without a model.

    python benchmarks/real.py [SERIES ...] [--schemes relay,dpcrowd-plus,dsample] [--runs 4] [--out real.json]

Every series is split over 20 servers, with users partitioned among them or independent, at epsilon 0.1 and 1 in any
window of 40 slots. The model is fitted on the first half alone. `past` is the model alone: what anybody could have
guessed. Without a model, filters get Q from the first half too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import dpcrowd
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.series import one_step_var
from dpcrowd.sim.data.span import cut

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
SERVERS, WINDOW, EPSILONS = 20, 40, (0.1, 1.0)
SHARES = {"partition": {"shares": "partition", "observation": "binomial"}, "uniform": {"observation": "binomial"}}


def every_series(folder: Path = SHARED) -> dict[str, Any]:
    """Return how to load each series, by name."""
    gowalla = folder / "gowalla_nyc_checkins.csv.gz"
    return {
        "flu": lambda: dpcrowd.load_data("flu", data_dir=folder),
        "multi-flu": lambda: dpcrowd.load_data("multi-flu", data_dir=folder),
        "gowalla-days": lambda: dpcrowd.load_data(gowalla, slot_length="1d"),
        "gowalla-6h": lambda: dpcrowd.load_data(gowalla, slot_length="6h"),
    }


def measure(name: str, data: DataSet, schemes: str, runs: int) -> list[dict[str, Any]]:
    """Return one row per kind of shares, epsilon, scheme and knowledge."""
    half = data.slots // 2
    public, scored = cut(data, 0, half), cut(data, half, data.slots)
    model = dpcrowd.fit(public, source="first half of a published series")
    truth = scored.truth(np.random.default_rng(0)).astype(np.float64)
    walk = one_step_var(public.truth(np.random.default_rng(0)))
    rows = []
    for shares, settings in SHARES.items():
        for epsilon in EPSILONS:
            common = {"servers": SERVERS, "window": WINDOW, "epsilon": epsilon, "runs": runs, "keep_estimates": True}
            plain = dpcrowd.simulate(schemes, _with_variance(scored, walk), **common, **settings)
            known = dpcrowd.simulate(f"{schemes},past", scored, model=model, **common, **settings)
            for knowledge, result in (("none", plain), ("model", known)):
                for scheme, record in result.records.items():
                    rows.append(
                        {
                            "series": name,
                            "regions": len(data.regions),
                            "season": model.season,
                            "shares": shares,
                            "epsilon": epsilon,
                            "scheme": scheme,
                            "model": knowledge,
                            **_scores(record, truth, 20),
                        }
                    )
    return rows


def _with_variance(data: DataSet, variance: Any) -> DataSet:
    from dataclasses import replace

    return replace(data, model=dpcrowd.ProcessModel.of(1.0, variance))


def _scores(record: Any, truth: Any, burn_in: int) -> dict[str, float]:
    errors = np.abs(record.estimates - truth[None, :, None, :])[:, burn_in:]
    people = np.broadcast_to(truth[None, :, None, :], record.estimates.shape)[:, burn_in:]
    seen = np.isfinite(errors)
    return {
        "total_error": float(errors[seen].sum() / max(people[seen].sum(), 1.0)),
        "mae": float(errors[seen].mean()),
        "are": float(record.are.mean()),
        "coverage": float(np.nanmean(record.coverage95)),
    }


def main() -> None:
    """Measure and print a table; write JSON, if asked for."""
    loaders = every_series()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("series", nargs="*", default=list(loaders))
    parser.add_argument("--schemes", default="relay")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    print(f"{'series':14} {'shares':10} {'ε':>4} {'scheme':14} {'model':6} {'total':>8} {'ARE':>8} {'coverage':>9}")
    for name in options.series:
        for row in measure(name, loaders[name](), options.schemes, options.runs):
            rows.append(row)
            print(
                f"{row['series']:14} {row['shares']:10} {row['epsilon']:4} {row['scheme']:14} {row['model']:6} "
                f"{row['total_error']:8.4f} {row['are']:8.4f} {row['coverage']:9.3f}"
            )
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
