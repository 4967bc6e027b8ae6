"""Crowds that leave their past, or stay: what filters that learn reach around a model of the first half.

    python benchmarks/leaving.py [SERIES ...] [--runs 4] [--seeds 2] [--out leaving.json] [--markdown]

Every series is drawn: regions deviate from their levels by a tenth to a third (AR(1)), and counts are Poisson. In the
second half something happens that no model of the first half knows. 400 slots, the first 200 public, the others scored;
20 servers, users partitioned, w = 40. Relay with the model, with groups as well, and without a model but with
`--learn`; the error of the model alone is the unit.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from real import table

import dpcrowd
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.span import cut

SLOTS, PUBLIC, SERVERS, WINDOW, EPSILONS = 400, 200, 20, 40, (0.1, 1.0)
Floats = NDArray[np.float64]
Row = dict[str, Any]


def crowd(rng: np.random.Generator, levels: Floats, lasting: float, part: float, common: float = 0.0) -> Floats:
    """Return expected counts (slots, d) that deviate from levels (d,) by a part of them.

    lasting  which part of a deviation is left after a slot
    common   correlation of two regions
    """
    deviation, values = np.zeros(len(levels)), []
    step = part * np.sqrt(1.0 - lasting**2)
    for _ in range(SLOTS):
        own, shared = rng.normal(size=len(levels)), rng.normal()
        deviation = lasting * deviation + step * (np.sqrt(1.0 - common) * own + np.sqrt(common) * shared)
        values.append(levels * np.maximum(1.0 + deviation, 0.0))
    return np.array(values)


def stays(rng: np.random.Generator) -> Floats:
    """Eight regions that do what the model expects."""
    return crowd(rng, rng.uniform(50, 600, 8), 0.5, 0.15)


def fills(rng: np.random.Generator) -> Floats:
    """One of eight regions empties, and one fills."""
    values = stays(rng)
    values[PUBLIC:, 0] *= 0.05
    values[PUBLIC:, 1] += 300.0
    return values


def rises(rng: np.random.Generator) -> Floats:
    """Ten regions that all rise by 40% at once, 20 slots after the first half."""
    values = crowd(rng, rng.uniform(50, 400, 10), 0.5, 0.15)
    values[PUBLIC + 20 :] *= 1.4
    return values


def grows(rng: np.random.Generator) -> Floats:
    """Six regions that grow by 0.6% per slot."""
    values = crowd(rng, rng.uniform(50, 400, 6), 0.5, 0.15)
    values[PUBLIC:] *= 1.006 ** np.arange(SLOTS - PUBLIC)[:, None]
    return values


def shrinks(rng: np.random.Generator) -> Floats:
    """Ten regions that shrink by 0.5% per slot."""
    values = crowd(rng, rng.uniform(50, 400, 10), 0.5, 0.15)
    values[PUBLIC:] *= 0.995 ** np.arange(SLOTS - PUBLIC)[:, None]
    return values


def shifts(rng: np.random.Generator) -> Floats:
    """Twenty regions, each of which moves to another level, typically by a fifth."""
    values = crowd(rng, rng.uniform(5, 200, 20), 0.3, 0.1)
    values[PUBLIC:] *= np.exp(0.2 * rng.normal(size=20))
    return values


def small(rng: np.random.Generator) -> Floats:
    """Thirty small regions that do what the model expects; most have fewer than two people."""
    return crowd(rng, rng.gamma(0.4, 3.0, 30), 0.3, 0.3)


def small_grow(rng: np.random.Generator) -> Floats:
    """The same, and the crowd becomes three times as large."""
    values = small(rng)
    values[PUBLIC:] *= np.linspace(1.0, 3.0, SLOTS - PUBLIC)[:, None]
    return values


def alike(rng: np.random.Generator) -> Floats:
    """Forty regions that rise and fall together, with a correlation of 0.5."""
    return crowd(rng, rng.uniform(2, 30, 40), 0.5, 0.25, 0.5)


def alike_fill(rng: np.random.Generator) -> Floats:
    """The same, and three of them become six times as large and two empty."""
    values = alike(rng)
    values[PUBLIC:, :3] *= 6.0
    values[PUBLIC:, 3:5] *= 0.05
    return values


def explode(rng: np.random.Generator, levels: Floats) -> Floats:
    """Regions grow by 4 to 12% per slot, from some slot of the second half on, up to 100 to 400 times, then fall."""
    values = crowd(rng, levels, 0.5, 0.15)
    slots = np.arange(SLOTS)
    for region in range(len(levels)):
        rate, most = rng.uniform(0.04, 0.12), rng.uniform(100.0, 400.0)
        since = np.maximum(slots - PUBLIC - rng.integers(5, 60), 0)
        top = np.log(most) / rate
        values[:, region] *= np.exp(np.where(since < top, rate * since, rate * (top - 0.3 * (since - top))))
    return values


def epidemic(rng: np.random.Generator) -> Floats:
    """Ten regions of a few people each, and an epidemic."""
    return explode(rng, rng.gamma(2.0, 2.0, 10))


def epidemic_half(rng: np.random.Generator) -> Floats:
    """Ten regions of dozens of people, and an epidemic in five of them."""
    levels = rng.uniform(20, 100, 10)
    return np.concatenate([explode(rng, levels[:5]), crowd(rng, levels[5:], 0.5, 0.15)], axis=1)


def day(rng: np.random.Generator, later: Floats) -> Floats:
    """Five regions with a day of 24 slots; `later`: what the day of the second half is, around 0, by slot."""
    values, slots = crowd(rng, rng.uniform(50, 400, 5), 0.5, 0.1), np.arange(SLOTS)
    swing = np.where(slots < PUBLIC, np.sin(2.0 * np.pi * slots / 24.0), later)
    return values * (1.0 + 0.8 * swing)[:, None]


def day_moves(rng: np.random.Generator) -> Floats:
    """The day comes six slots earlier."""
    return day(rng, np.sin(2.0 * np.pi * (np.arange(SLOTS) + 6.0) / 24.0))


def day_goes(rng: np.random.Generator) -> Floats:
    """The crowd is the same at all hours."""
    return day(rng, np.zeros(SLOTS))


def day_stays(rng: np.random.Generator) -> Floats:
    """Nothing happens."""
    return day(rng, np.sin(2.0 * np.pi * np.arange(SLOTS) / 24.0))


SERIES: dict[str, Callable[[np.random.Generator], Floats]] = {
    "stays": stays,
    "fills": fills,
    "rises": rises,
    "grows": grows,
    "shrinks": shrinks,
    "shifts": shifts,
    "small": small,
    "small-grow": small_grow,
    "alike": alike,
    "alike-fill": alike_fill,
    "epidemic": epidemic,
    "epidemic-half": epidemic_half,
    "day-stays": day_stays,
    "day-moves": day_moves,
    "day-goes": day_goes,
}


def load(name: str, seed: int, folder: Path) -> DataSet:
    """Return a series that is drawn with a seed."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(SERIES[name](rng))
    path = folder / f"{name}-{seed}.csv"
    header = ",".join(f"r{k}" for k in range(counts.shape[1]))
    np.savetxt(path, counts, fmt="%d", delimiter=",", header=header, comments="")
    return dpcrowd.load_data(path)


def measure(name: str, seed: int, runs: int, folder: Path) -> Iterator[Row]:
    """Yield one row per epsilon and kind of knowledge: total error over that of the model alone, and coverage."""
    data = load(name, seed, folder)
    scored = cut(data, PUBLIC, SLOTS)
    model = dpcrowd.fit(cut(data, 0, PUBLIC), source="drawn")
    for epsilon in EPSILONS:
        settings: dict[str, Any] = {
            "servers": SERVERS,
            "window": WINDOW,
            "epsilon": epsilon,
            "runs": runs,
            "shares": "partition",
            "observation": "binomial",
            "hops_per_slot": "all",
            "jobs": 1,
        }
        past: Any = None
        kinds: dict[str, Row] = {
            "groups": {"model": model, "groups": "auto"},
            "model": {"model": model},
            "learn": {"learn": True},
        }
        for kind, knowledge in kinds.items():
            schemes = ["relay", "past"] if past is None else ["relay"]
            records = dpcrowd.simulate(schemes, scored, **knowledge, **settings).records
            record, past = records["relay"], records.get("past", past)
            yield {
                "series": name,
                "seed": seed,
                "epsilon": epsilon,
                "kind": kind,
                "ratio": float(np.exp(np.log(record.total_error / past.total_error).mean())),
                "coverage": float(np.nanmean(record.coverage95)),
                "past": float(past.total_error.mean()),
                "past_coverage": float(np.nanmean(past.coverage95)),
            }


def report(rows: list[Row], *, markdown: bool) -> str:
    """Return a table with a row per series and epsilon: geometric means of ratios, and means of coverage."""
    lines = []
    for name, epsilon in dict.fromkeys((row["series"], row["epsilon"]) for row in rows):
        here = [row for row in rows if (row["series"], row["epsilon"]) == (name, epsilon)]
        cells: list[Any] = [name, epsilon]
        for kind in ("groups", "model", "learn"):
            of_kind = [row for row in here if row["kind"] == kind]
            ratio = float(np.exp(np.mean([np.log(row["ratio"]) for row in of_kind])))
            cells.append(f"{ratio:.3f} ({np.mean([row['coverage'] for row in of_kind]):.2f})")
        past, covered = (float(np.mean([row[key] for row in here])) for key in ("past", "past_coverage"))
        lines.append([*cells, f"{past:.3f} ({covered:.2f})"])
    header = ["series", "ε", "model and groups", "model", "no model, --learn", "error of the model alone"]
    return table(header, lines, markdown=markdown)


def main() -> None:
    """Measure, print the table, and write JSON, if asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("series", nargs="*", default=list(SERIES), metavar="SERIES", help=", ".join(SERIES))
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=2, help="how many series of each kind are drawn")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    if unknown := [name for name in options.series if name not in SERIES]:
        parser.error(f"unknown series '{unknown[0]}'; allowed: {', '.join(SERIES)}.")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.series:
            for seed in range(options.seeds):
                rows += measure(name, 100 + seed, options.runs, Path(folder))
            print(f"{name}: measured", flush=True)
            if options.out is not None:
                options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(report(rows, markdown=options.markdown))


if __name__ == "__main__":
    main()
