"""Crowds drawn at random, which nobody has tuned for: what relay reaches with a model of the first half.

    python benchmarks/drawn.py [--crowds 40] [--first 0] [--runs 2] [--schemes relay,dpcrowd-plus] [--out drawn.json]
    python benchmarks/drawn.py --learned [--crowds 20]           # shares that are learned, beside public and right ones
    python benchmarks/drawn.py --from drawn.json [--markdown]    # the tables of results that were measured before

A number draws a crowd: 1 to 50 regions of a few to thousands of people, a day, a week or no season, deviations that
last or do not, alone or in common, Poisson counts or livelier ones, closed days or bursts in one of four. Two thirds
go on in the second half as before; the others leave their past: they drift, grow, or some regions move to another
level. 400 slots, of which the first 200 are public. Settings and aims are those of `benchmarks/real.py`; new numbers
(`--first 1000`) are new crowds, so whoever doubts the tables draws others.

With `--learned` users are partitioned, public shares are right (composition none) or differ by region from the true
ones (5, 0.5), and relay filters with public shares, learned ones (share width 0.1) and right ones. The aims: learning
costs at most 1.15 times the error where public shares are right, and intervals cover 90% elsewhere, if they do with
right shares.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from real import EPSILONS, SERVERS, WINDOW, aims, cells, compare, coverage_by_scheme, measure, table
from shares import COMPOSITIONS, WIDTH, right_shares

import dpcrowd
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.span import cut

SLOTS, PUBLIC, BURN_IN = 400, 200, 20
SEASONS = {"none": 1, "day": 24, "week": 7}
COURSES = ("stays", "drifts", "grows", "moves")
COST, LEAST_COVERAGE = 1.15, 0.90

Floats = NDArray[np.float64]
Row = dict[str, Any]


def profile(rng: np.random.Generator, season: str, regions: int) -> Floats:
    """Return the part of its level that is expected in each slot of each region, (slots, d)."""
    length = SEASONS[season]
    if length == 1:
        return np.ones((SLOTS, regions))
    swing = rng.uniform(0.1, 0.9)
    if season == "day":
        hours = 2.0 * np.pi * (np.arange(length)[:, None] + rng.normal(0.0, rng.uniform(0.0, 3.0), regions)) / length
        shape = 1.0 + swing * np.sin(hours)
    else:
        shared = rng.uniform(-1.0, 1.0, (length, 1))
        shape = 1.0 + swing * (0.8 * shared + 0.2 * rng.uniform(-1.0, 1.0, (length, regions)))
    return np.asarray(shape[np.arange(SLOTS) % length])


def deviation(rng: np.random.Generator, regions: int) -> Floats:
    """Return by which factor each slot of each region deviates from what is expected of it, (slots, d)."""
    part, lasting = rng.uniform(0.03, 0.4), rng.uniform(0.0, 0.95)
    common = rng.uniform(0.0, 0.8) if rng.random() < 0.5 else 0.0
    step, state, values = part * np.sqrt(1.0 - lasting**2), np.zeros(regions), []
    for _ in range(SLOTS):
        change = np.sqrt(1.0 - common) * rng.normal(size=regions) + np.sqrt(common) * rng.normal()
        state = lasting * state + step * change
        values.append(state)
    return np.exp(np.array(values) - part**2 / 2.0)


def events(rng: np.random.Generator, regions: int) -> Floats:
    """Return factors of closed days or bursts, in all regions or in single ones, (slots, d); mostly 1."""
    factors = np.ones((SLOTS, regions))
    kind = rng.choice(["none", "closed", "burst"], p=[0.75, 0.125, 0.125])
    if kind != "none":
        shape = (SLOTS, 1) if rng.random() < 0.5 else (SLOTS, regions)
        happens = np.broadcast_to(rng.random(shape) < rng.uniform(0.01, 0.05), factors.shape)
        factors[happens] = 0.1 if kind == "closed" else rng.uniform(2.0, 5.0)
    return factors


def course(rng: np.random.Generator, kind: str, regions: int) -> Floats:
    """Return by which factor each slot of each region leaves its past, (slots, d)."""
    factors = np.ones((SLOTS, regions))
    later = np.arange(SLOTS - PUBLIC)[:, None]
    if kind == "drifts":
        steps = rng.normal(0.0, rng.uniform(0.005, 0.03), (SLOTS - PUBLIC, regions))
        factors[PUBLIC:] = np.exp(np.cumsum(steps, axis=0))
    elif kind == "grows":
        factors[PUBLIC:] = np.exp(rng.uniform(-0.006, 0.006) * later)
    elif kind == "moves":
        moved = rng.random(regions) < rng.uniform(0.1, 1.0)
        factors[PUBLIC + rng.integers(0, 60) :, moved] *= np.exp(rng.normal(0.0, 0.5, int(moved.sum())))
    return factors


def draw(number: int) -> tuple[str, str, NDArray[np.int64]]:
    """Return season, course and counts (slots, d) of a crowd."""
    rng = np.random.default_rng([number, 20])
    regions = int(rng.choice([1, 3, 8, 20, 50], p=[0.15, 0.2, 0.3, 0.2, 0.15]))
    season = str(rng.choice(list(SEASONS), p=[0.4, 0.3, 0.3]))
    kind = str(rng.choice(COURSES, p=[0.67, 0.11, 0.11, 0.11]))
    levels = np.exp(rng.uniform(np.log(2.0), np.log(3000.0)) + rng.uniform(0.2, 1.5) * rng.normal(size=regions))
    expected = levels * profile(rng, season, regions) * deviation(rng, regions) * events(rng, regions)
    expected = expected * course(rng, kind, regions)
    if rng.random() < 0.3:
        size = rng.uniform(3.0, 30.0)
        expected = expected * rng.gamma(size, 1.0 / size, expected.shape)
    return season, kind, rng.poisson(expected)


def load(number: int, folder: Path) -> tuple[str, str, DataSet]:
    """Return season, course and data of a crowd; slots are hours or days."""
    season, kind, counts = draw(number)
    step = timedelta(hours=1) if season == "day" else timedelta(days=1)
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    path = folder / f"crowd-{number}.csv"
    lines = [",".join(["slot", *(f"r{k}" for k in range(counts.shape[1]))])]
    for slot, row in enumerate(counts):
        lines.append(",".join([f"{begin + slot * step:%Y-%m-%dT%H:%M:%SZ}", *map(str, row)]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return season, kind, dpcrowd.load_data(path)


def measure_crowd(number: int, schemes: str, runs: int, folder: Path) -> Iterator[Row]:
    """Yield the rows of `benchmarks/real.py` of a crowd."""
    season, kind, data = load(number, folder)
    for row in measure(f"crowd {number}", data, schemes, runs):
        yield {**row, "drawn_season": season, "course": kind}


def measure_shares(number: int, runs: int, folder: Path) -> Iterator[Row]:
    """Yield one row per epsilon and composition: the errors of learned and public shares over that of right ones."""
    season, kind, data = load(number, folder)
    scored = cut(data, PUBLIC, SLOTS)
    truth = scored.truth(np.random.default_rng(0))
    model = dpcrowd.fit(cut(data, 0, PUBLIC), source="drawn")
    for epsilon in EPSILONS:
        for composition in COMPOSITIONS:
            ways: dict[str, list[tuple[float, float]]] = {"public": [], "learned": [], "right": []}
            for seed in range(runs):
                for way, results in ways.items():
                    more: dict[str, Any] = {"shares": "partition", "composition": composition}
                    if way == "right" and composition is not None:
                        more = {"shares": right_shares(truth, composition, seed)}
                    if way == "learned":
                        more["share_width"] = WIDTH
                    record = dpcrowd.simulate(
                        "relay", scored, model=model, servers=SERVERS, window=WINDOW, epsilon=epsilon, runs=1,
                        seed=seed, burn_in=BURN_IN, observation="binomial", hops_per_slot="all", density=0.3, jobs=1,
                        **more,
                    ).records["relay"]  # fmt: skip
                    results.append((float(record.total_error.mean()), float(np.nanmean(record.coverage95))))
            means = {way: np.array(results) for way, results in ways.items()}
            yield {
                "series": f"crowd {number}", "regions": len(data.regions), "drawn_season": season, "course": kind,
                "epsilon": epsilon, "composition": composition,
                **{f"{way}_error": float(value[:, 0].mean()) for way, value in means.items()},
                **{f"{way}_coverage": float(value[:, 1].mean()) for way, value in means.items()},
                "learned_ratio": float(np.exp(np.log(means["learned"][:, 0] / means["right"][:, 0]).mean())),
                "public_ratio": float(np.exp(np.log(means["public"][:, 0] / means["right"][:, 0]).mean())),
            }  # fmt: skip


def quantiles(values: Iterable[float]) -> list[float]:
    """Return the least value, the 5% quantile, the median, the 95% quantile and the largest value."""
    return [float(value) for value in np.quantile(np.array(list(values)), [0.0, 0.05, 0.5, 0.95, 1.0])]


QUANTILES = ["least", "5%", "median", "95%", "most"]


def report(rows: list[Row], *, markdown: bool) -> str:
    """Return the aims, and quantiles of ratios and of coverage, of crowds that stay and of those that leave."""
    by_cell = cells(rows)
    facts = {found[0]["series"]: found[0] for found in by_cell.values()}
    compared = [one for one in (compare(found) for found in by_cell.values()) if one is not None]
    groups = {
        "stay": [row for row in compared if facts[row["series"]]["course"] == "stays"],
        "leave their past": [row for row in compared if facts[row["series"]]["course"] != "stays"],
    }
    parts = []
    for name, found in groups.items():
        if not found:
            continue
        crowds = len({row["series"] for row in found})
        lines = []
        for kind in dict.fromkeys(row["shares"] for row in found):
            for epsilon in EPSILONS:
                here = [row for row in found if (row["shares"], row["epsilon"]) == (kind, epsilon)]
                lines.append([kind, epsilon, "error / model alone", *quantiles(row["to_past"] for row in here)])
                if all(row["to_best"] is not None for row in here):
                    lines.append([kind, epsilon, "error / best other", *quantiles(row["to_best"] for row in here)])
                lines.append([kind, epsilon, "coverage", *quantiles(row["coverage"] for row in here)])
        parts += [
            f"{crowds} crowds that {name}",
            table(["users", "ε", "", *QUANTILES], lines, markdown=markdown),
            "\n".join(f"- {line}" for line in aims(found)),
        ]
    columns = ("series", "course", "shares", "epsilon", "total_error", "to_past", "to_past_error", "coverage")
    misses = [
        [{**row, "course": facts[row["series"]]["course"]}[key] for key in columns]
        for row in compared
        if row["to_past"] >= 1.005 or not 0.90 <= row["coverage"] <= 0.99
    ]
    parts.append("above 1.005 times the model alone, or coverage outside 90% to 99%")
    parts.append(
        table(["series", "course", "users", "ε", "error", "/ past", "±", "coverage"], misses, markdown=markdown)
    )
    schemes = [
        [row[key] for key in ("scheme", "model", "least", "most", "inside", "low", "cells")]
        for row in coverage_by_scheme(rows)
    ]
    parts.append(table(["scheme", "model", "least", "most", "90-99%", "below", "cells"], schemes, markdown=markdown))
    return "\n\n".join(parts)


def report_shares(rows: list[Row], *, markdown: bool) -> str:
    """Return quantiles of what learned and public shares cost, by composition, and in how many cells aims are kept."""
    lines, counted = [], []
    for composition in COMPOSITIONS:
        here = [row for row in rows if row["composition"] == composition]
        fair = [row for row in here if row["right_coverage"] >= LEAST_COVERAGE]
        if not here:
            continue
        text = "none" if composition is None else f"{composition:g}"
        lines.append([text, "learned / right", *quantiles(row["learned_ratio"] for row in here)])
        lines.append([text, "public / right", *quantiles(row["public_ratio"] for row in here)])
        lines.append([text, "coverage, learned", *quantiles(row["learned_coverage"] for row in here)])
        lines.append([text, "coverage, public", *quantiles(row["public_coverage"] for row in here)])
        cheap = sum(row["learned_ratio"] <= COST for row in here)
        covered = sum(row["learned_coverage"] >= LEAST_COVERAGE for row in fair)
        counted.append(
            f"- composition {text}: at most {COST} times the error of right shares in {cheap} of {len(here)} cells;"
            f" {covered} of {len(fair)} cover 90%, of those in which right shares do"
        )
    columns = ("series", "regions", "course", "epsilon", "composition")
    columns += ("right_error", "learned_ratio", "public_ratio", "learned_coverage", "right_coverage")
    every = [[row[key] for key in columns] for row in rows]
    header = ["series", "regions", "course", "ε", "composition", "error, right", "learned / right", "public / right"]
    return "\n\n".join(
        [
            table([*header, "coverage, learned", "right"], every, markdown=markdown),
            table(["composition", "", *QUANTILES], lines, markdown=markdown),
            "\n".join(counted),
        ]
    )


def main() -> None:
    """Measure, print the tables, and write JSON, if asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--crowds", type=int, default=40, help="how many crowds are drawn  [default: 40]")
    parser.add_argument("--first", type=int, default=0, help="number of the first crowd  [default: 0]")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument(
        "--schemes", default="relay", help="schemes to measure beside the model alone  [default: relay]"
    )
    parser.add_argument("--learned", action="store_true", help="measure shares that are learned")
    parser.add_argument("--out", type=Path, help="write all rows into a JSON file, after every crowd")
    parser.add_argument("--from", dest="stored", type=Path, nargs="+", help="print the tables of these JSON files")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    rows: list[Row] = []
    if options.stored:
        rows = [row for path in options.stored for row in json.loads(path.read_text(encoding="utf-8"))]
        options.learned = "composition" in rows[0]
    else:
        with tempfile.TemporaryDirectory() as name:
            for number in range(options.first, options.first + options.crowds):
                start, folder = time.monotonic(), Path(name)
                if options.learned:
                    rows += measure_shares(number, options.runs, folder)
                else:
                    rows += measure_crowd(number, options.schemes, options.runs, folder)
                print(f"crowd {number}: {time.monotonic() - start:.0f} s", flush=True)
                if options.out is not None:
                    options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print((report_shares if options.learned else report)(rows, markdown=options.markdown))


if __name__ == "__main__":
    main()
