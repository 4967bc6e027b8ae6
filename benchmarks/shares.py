"""Shares that differ by region: public, learned and right ones, and a sum of filters that needs none.

    python benchmarks/shares.py [SERIES ...] [--runs 2] [--epsilons 1,0.1] [--turnovers 0.05,1] [--out shares.json]

20 servers, users partitioned among them, w = 40, all records in their own slot. The crowd's shares are the public ones
(composition none), or differ by region moderately (5) or strongly (0.5). Every row has the total error and the coverage
of relay with public shares, with learned ones (share width 0.1) and with the right ones per region, and the total error
of a sum of one filter per server, which needs no shares and does not learn from others' records. Relay chooses its
number of samples for itself, which with learned shares may be another one (servers have to meet); the sum takes that of
relay with public shares of the same seed, so that both spend their budgets alike. `--few` takes 4 samples per window.
`--silent` lets three of the 20 servers never sample, and all others 10 times per window; in the sum all are heard.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import dpcrowd
from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.privacy import noise_var
from dpcrowd.sampling.schedule import samples_due
from dpcrowd.schemes.relay import Relay, RelayState
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.data.draw import draw_run
from dpcrowd.sim.data.seeds import Purpose, generator
from dpcrowd.sim.data.series import one_step_var
from dpcrowd.sim.data.shares import draw_composition, draw_shares

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
SERVERS, WINDOW, SLOTS, BURN_IN, WIDTH = 20, 40, 240, 40, 0.1
SERIES = ("flights-airlines", "employment", "multi-flu", "gowalla", "multi-linear")
COMPOSITIONS = (None, 5.0, 0.5)
SILENT = (3, 9, 15)


class SilentRelay(Relay):
    """Relay in which some servers never sample."""

    def _scheduled(self, state: RelayState, slot: int, shift: Ints) -> Bools:
        due = np.broadcast_to(super()._scheduled(state, slot, shift), (state.setting.servers, 1)).copy()
        due[list(SILENT)] = False
        return due


def load(name: str) -> Ints:
    """Return the counts of a series, (slots, regions)."""
    data = dpcrowd.load_data(name, data_dir=SHARED)
    return data.truth(np.random.default_rng(0))[:SLOTS]


def right_shares(truth: Ints, composition: float, seed: int) -> Floats:
    """Return the shares by which the crowd of a seed chooses its servers, (1, servers, regions)."""
    public = draw_shares("partition", SERVERS, len(truth), generator(seed, 0, Purpose.SHARES))
    shares = draw_composition(public, composition, truth.shape[1], generator(seed, 0, Purpose.COMPOSITION))
    shares = np.maximum(shares, 1e-6)
    return (shares / shares.sum(axis=0))[None]


def relay(
    truth: Ints, composition: float | None, kind: str, seed: int, *, silent: bool, samples: int | None, **settings: Any
) -> tuple[float, float, int]:
    """Return total error, coverage and samples per window of one run of relay with a kind of shares.

    samples  None: as many as relay chooses
    """
    more: dict[str, Any] = {"shares": "partition", "composition": composition}
    if kind == "right" and composition is not None:
        more = {"shares": right_shares(truth, composition, seed)}
    if kind == "learned":
        more["share_width"] = WIDTH
    scheme: Any = "relay"
    if silent:
        scheme = SilentRelay(samples=samples, hops_per_slot="all")
    else:
        more |= {"reach": "all", "hops_per_slot": "all", "samples": samples}
    result = dpcrowd.simulate(
        scheme, truth.tolist(), servers=SERVERS, window=WINDOW, runs=1, seed=seed, density=0.3, burn_in=BURN_IN,
        observation="binomial", **settings, **more,
    )  # fmt: skip
    row = result.summary()[0]
    active = SERVERS - len(SILENT) if silent else SERVERS
    return row["total_error"]["mean"], row["coverage95"], round(row["frequency"] * WINDOW * SERVERS / active)


def sum_of_filters(truth: Ints, composition: float | None, seed: int, samples: int, **settings: Any) -> float:
    """Return the total error of a sum of one filter per server, each on its own records."""
    epsilon, turnover = settings["epsilon"], settings["turnover"]
    public = draw_shares("partition", SERVERS, len(truth), generator(seed, 0, Purpose.SHARES))
    counts = _counts(truth, composition, seed, turnover)
    rng = np.random.default_rng(seed)
    var = float(noise_var(np.array(int(1e9 * epsilon) // samples), 1))
    scale = np.sqrt(var / 2.0)
    process = one_step_var(truth)[None] * np.square(public[:, None])
    mean, spread = np.zeros(counts.shape[1:]), np.full(counts.shape[1:], 1e18)
    phases = np.arange(SERVERS) * WINDOW // SERVERS
    error, total = 0.0, 0.0
    for slot in range(len(truth)):
        crowd = np.maximum(mean, 1.0)
        spread = spread + process + 2.0 * turnover * crowd
        due = samples_due(slot, samples, WINDOW, phases)[:, None]
        noisy = counts[slot] + rng.laplace(0.0, scale, counts.shape[1:])
        gain = np.where(due, spread / (spread + var), 0.0)
        mean = mean + gain * (noisy - mean)
        spread = spread * (1.0 - gain)
        if slot >= BURN_IN:
            error += float(np.abs(mean.sum(axis=0) - truth[slot]).sum())
            total += float(truth[slot].sum())
    return error / total


def _counts(truth: Ints, composition: float | None, seed: int, turnover: float) -> Ints:
    data = counts_from_array(truth.tolist(), process_var=1.0)
    run = draw_run(
        data, seed=seed, run=0, servers=SERVERS, shares="partition", observation="binomial", turnover=turnover,
        composition=composition,
    )  # fmt: skip
    return run.counts


def measure(name: str, epsilon: float, turnover: float, runs: int, *, silent: bool, few: bool) -> list[dict[str, Any]]:
    """Return one row per composition."""
    truth, rows = load(name), []
    settings = {"epsilon": epsilon, "turnover": turnover}
    for composition in COMPOSITIONS:
        row: dict[str, Any] = {
            "series": name, "epsilon": epsilon, "turnover": turnover, "composition": composition, "silent": silent,
            "few": few,
        }  # fmt: skip
        samples = 4 if few else 10 if silent else None
        taken: list[int] = []
        for kind in ("public", "learned", "right"):
            values = [
                relay(truth, composition, kind, seed, silent=silent, samples=samples, **settings)
                for seed in range(runs)
            ]
            row[kind], row[f"{kind}_coverage"] = np.mean([value[:2] for value in values], axis=0).tolist()
            taken = taken or [value[2] for value in values]  # by public shares
        row["samples"] = taken
        row["sum"] = float(np.mean([sum_of_filters(truth, composition, s, n, **settings) for s, n in enumerate(taken)]))
        rows.append(row)
        print(_line(row), flush=True)
    return rows


def _line(row: dict[str, Any]) -> str:
    kinds = " | ".join(f"{row[kind]:.3g} ({row[f'{kind}_coverage']:.2f})" for kind in ("public", "learned", "right"))
    composition = "none" if row["composition"] is None else f"{row['composition']:g}"
    return (
        f"| {row['series']} | {row['epsilon']:g} | {row['turnover']:g} | {composition} | {kinds} | {row['sum']:.3g} |"
    )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", nargs="*", default=SERIES)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--epsilons", default="1,0.1")
    parser.add_argument("--turnovers", default="0.05")
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.series:
        for epsilon in (float(part) for part in options.epsilons.split(",")):
            for turnover in (float(part) for part in options.turnovers.split(",")):
                rows += measure(name, epsilon, turnover, options.runs, silent=options.silent, few=options.few)
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
