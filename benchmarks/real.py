"""Real series: the first half is public, the second half is scored; every scheme with and without a model, paired.

    python benchmarks/real.py [SERIES ...] [--schemes relay,dsample] [--runs 2] [--out real.json] [--markdown]
    python benchmarks/real.py --from real.json [--markdown]       # the tables of results that were measured before

Every series of `dpcrowd data` that is not synthetic is split over 20 servers, with users partitioned among them or
independent (check-ins: always partitioned), at epsilon 0.1 and 1 in any window of 40 slots; finite schemes promise it
for the scored half. The model is fitted on the first half alone, and so is the Q of filters without a model. `past` is
the model alone: what anybody could have guessed. A cell is a series, a kind of shares and an epsilon; all schemes of a
cell see the same runs.

The aims are those of relay with a model and groups of small regions where they are expected to help (`--groups auto`),
which is what dpcrowd recommends: at most 1.02 times the total error of `past` in every cell, below it in all but one,
below every other private scheme (with or without a model, whichever is better) in all but one, and 95% intervals that
cover 90% to 99%. If no other was measured, nothing is said of others. Relay without a model is not one of the others;
a line of its own says in how many cells the model and the groups pay. `central` needs one place that everybody
trusts: it is listed, but not among those that relay is compared with. Flooding reaches every server within a slot; so
do relay's records here (`hops_per_slot="all"`), as on live servers, which forward them at once. The first table has
total error, ARE, MAE and coverage of every scheme, with and without a model, in every cell; the others are about relay,
with the standard error (±) of each ratio over the runs: two runs do not decide ratios that are within 1% of 1.

Names are those of `dpcrowd data`; gowalla-days and gowalla-6h are its set `gowalla` in slots of a day and of 6 hours
(`--data gowalla --slot-length 6h` of `dpcrowd simulate`).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dpcrowd
from dpcrowd.schemes.registry import SCHEMES
from dpcrowd.sim.data.checkins import CheckIns
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.series import one_step_var
from dpcrowd.sim.data.span import cut

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
SERVERS, WINDOW, EPSILONS = 20, 40, (0.1, 1.0)
SHARES = {"partition": {"shares": "partition"}, "independent": {"shares": "uniform"}}
SERIES: dict[str, dict[str, str]] = {
    "flu": {"data": "flu"},
    "multi-flu": {"data": "multi-flu"},
    "flights": {"data": "flights"},
    "flights-airlines": {"data": "flights-airlines"},
    "flights-hourly": {"data": "flights-hourly"},
    "employment": {"data": "employment"},
    "gowalla-days": {"data": "gowalla", "slot_length": "1d"},
    "gowalla-6h": {"data": "gowalla", "slot_length": "6h"},
}
RECOMMENDED = "relay"
WITH_GROUPS = "model, groups"
NOT_COMPARED = ("non-private", "central", "past", RECOMMENDED)
MOST_OF_PAST, LEAST_COVERAGE, MOST_COVERAGE = 1.02, 0.90, 0.99

Row = dict[str, Any]


def load_series(name: str, folder: Path = SHARED) -> DataSet:
    """Return a real series by its name in this benchmark."""
    options: dict[str, Any] = dict(SERIES[name])
    return dpcrowd.load_data(options.pop("data"), data_dir=folder, **options)


def measure(name: str, data: DataSet, schemes: str, runs: int, shares: Iterable[str] = SHARES) -> Iterator[Row]:
    """Yield one row per kind of shares, epsilon, scheme and knowledge."""
    half = data.slots // 2
    public, scored = cut(data, 0, half), cut(data, half, data.slots)
    model = dpcrowd.fit(public, source="first half of a published series")
    walk = one_step_var(public.truth(np.random.default_rng(0)))
    # Q of the public half is a guess like that of all steps, so filters that learn it by default do so here.
    without = replace(scored, model=dpcrowd.ProcessModel.of(1.0, walk), change_var=walk)
    names = schemes.split(",")
    by_knowledge = {
        "none": (without, [name for name in names if not SCHEMES[name].needs_model]),
        "model": (scored, list(dict.fromkeys([*names, "past"]))),
        WITH_GROUPS: (scored, [name for name in names if name == RECOMMENDED]),
    }
    if isinstance(data, CheckIns):  # each person checks in at one server: users are always partitioned
        shares = [kind for kind in shares if kind == "partition"]
    facts = {"series": name, "regions": len(data.regions), "slots": scored.slots, "season": model.season}
    for kind in shares:
        for epsilon in EPSILONS:
            settings: dict[str, Any] = {
                "servers": SERVERS,
                "window": WINDOW,
                "epsilon": epsilon,
                "runs": runs,
                "observation": "binomial",
                "jobs": 1,
                **SHARES[kind],
            }
            for knowledge, (half_of_data, entrants) in by_knowledge.items():
                options: dict[str, Any] = {"model": None if knowledge == "none" else model}
                if knowledge == WITH_GROUPS:
                    options["groups"] = "auto"
                for scheme, record in _simulate(entrants, half_of_data, **options, **settings):
                    cell = {"shares": kind, "epsilon": epsilon, "scheme": scheme, "model": knowledge}
                    yield {**facts, **cell, **_scores(record)}


def _simulate(schemes: list[str], data: DataSet, *, window: int, **settings: Any) -> Iterator[tuple[str, Any]]:
    """Yield the records of each scheme; those that know no window promise the same epsilon for all scored slots."""
    finite = [scheme for scheme in schemes if SCHEMES[scheme].kinds == frozenset({"finite"})]
    others = [scheme for scheme in schemes if scheme not in finite]
    for names, length in ((others, window), (finite, None)):
        if names:
            # Live servers forward a record at once, and flooding takes no time either.
            hops = "all" if RECOMMENDED in names else None
            result = dpcrowd.simulate(names, data, window=length, hops_per_slot=hops, **settings)
            yield from result.records.items()


def _scores(record: Any) -> Row:
    coverage = record.coverage95[np.isfinite(record.coverage95)]
    return {
        "total_error": float(record.total_error.mean()),
        "total_errors": record.total_error.tolist(),
        "are": float(record.are.mean()),
        "mae": float(record.mae.mean()),
        "coverage": float(coverage.mean()) if coverage.size else None,
        "runs": len(record.runs),
    }


def cells(rows: Iterable[Row]) -> dict[tuple[str, str, float], list[Row]]:
    """Return the rows of each cell."""
    found: dict[tuple[str, str, float], list[Row]] = {}
    for row in rows:
        found.setdefault((row["series"], row["shares"], row["epsilon"]), []).append(row)
    return found


def paired_ratio(first: Row, second: Row) -> float:
    """Return the geometric mean over the runs of the ratios of total errors."""
    return math.exp(float(np.mean(np.log(np.array(first["total_errors"]) / np.array(second["total_errors"])))))


def ratio_error(first: Row, second: Row) -> float | None:
    """Return the standard error of the paired ratio over the runs; None: of a single run it is unknown."""
    logarithms = np.log(np.array(first["total_errors"]) / np.array(second["total_errors"]))
    if logarithms.size < 2:
        return None
    return paired_ratio(first, second) * float(logarithms.std(ddof=1)) / math.sqrt(logarithms.size)


def compare(rows: list[Row]) -> Row | None:
    """Return the ratios of the recommended scheme of one cell; None: it was not measured there."""
    by_scheme = {(row["scheme"], row["model"]): row for row in rows}
    ours, past = by_scheme.get((RECOMMENDED, WITH_GROUPS)), by_scheme.get(("past", "model"))
    if ours is None or past is None:
        return None
    others = [row for row in rows if row["scheme"] not in NOT_COMPARED and math.isfinite(row["total_error"])]
    best = min(others, key=lambda row: row["total_error"], default=None)
    plain, alone = by_scheme.get((RECOMMENDED, "none")), by_scheme.get((RECOMMENDED, "model"))
    return {
        **{key: ours[key] for key in ("series", "shares", "epsilon", "total_error", "are", "mae", "coverage")},
        "without_model": None if plain is None else plain["total_error"],
        "without_groups": None if alone is None else alone["total_error"],
        "to_without_model": None if plain is None else paired_ratio(ours, plain),
        "past": past["total_error"],
        "past_coverage": past["coverage"],
        "to_past": paired_ratio(ours, past),
        "to_past_error": ratio_error(ours, past),
        "best": None if best is None else f"{best['scheme']}{' + model' if best['model'] == 'model' else ''}",
        "to_best": None if best is None else paired_ratio(ours, best),
        "to_best_error": None if best is None else ratio_error(ours, best),
    }


def aims(compared: list[Row]) -> list[str]:
    """Return one line per aim: in how many cells it holds, and in which it does not."""

    def line(text: str, holds: dict[str, bool]) -> str:
        missing = [name for name, kept in holds.items() if not kept]
        return f"{text}: {sum(holds.values())} of {len(holds)} cells" + (
            f"; not {', '.join(missing)}" if missing else ""
        )

    cell = {f"{row['series']} {row['shares']} {row['epsilon']:g}": row for row in compared}
    beside = {name: row for name, row in cell.items() if row["to_best"] is not None}
    inside = {name: LEAST_COVERAGE <= row["coverage"] <= MOST_COVERAGE for name, row in cell.items()}
    lines = [
        line(f"at most {MOST_OF_PAST} times past", {n: row["to_past"] <= MOST_OF_PAST for n, row in cell.items()}),
        line("below past", {name: row["to_past"] < 1.0 for name, row in cell.items()}),
        line("coverage from 90% to 99%", inside),
    ]
    if beside:
        below = {name: row["to_best"] < 1.0 for name, row in beside.items()}
        lines.insert(2, line("below every other private scheme", below))
    unaided = {name: row["to_without_model"] < 1.0 for name, row in cell.items() if row["to_without_model"] is not None}
    if unaided:
        lines.append(line(f"below {RECOMMENDED} without a model", unaided))
    return lines


def coverage_by_scheme(rows: Iterable[Row]) -> list[Row]:
    """Return, per scheme and knowledge, the range of coverage over all cells, and how many are within 90% to 99%."""
    values: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["coverage"] is not None:
            values.setdefault((row["scheme"], row["model"]), []).append(row["coverage"])
    return [
        {
            "scheme": scheme,
            "model": model,
            "least": min(found),
            "most": max(found),
            "inside": sum(LEAST_COVERAGE <= value <= MOST_COVERAGE for value in found),
            "low": sum(value < LEAST_COVERAGE for value in found),
            "cells": len(found),
        }
        for (scheme, model), found in values.items()
    ]


def every_scheme(rows: Iterable[Row]) -> list[list[Any]]:
    """Return a line per cell, scheme and knowledge, least total error first; undefined errors are last."""
    keys = ("series", "shares", "epsilon", "scheme", "model", "total_error", "are", "mae", "coverage")
    return [
        [row[key] for key in keys]
        for found in cells(rows).values()
        for row in sorted(found, key=lambda row: (not math.isfinite(row["total_error"]), row["total_error"]))
    ]


def _number(value: float) -> str:
    """Return a number with three digits; with four behind the point where it is a ratio that could be taken for 1."""
    return f"{value:.4f}" if 0.99 < value < 1.01 and value != 1.0 else f"{value:.3g}"


def table(header: list[str], rows: list[list[Any]], *, markdown: bool) -> str:
    """Return a table as text or as Markdown."""
    texts = [
        ["" if cell is None else _number(cell) if isinstance(cell, float) else str(cell) for cell in r] for r in rows
    ]
    if markdown:
        return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *texts])
    widths = [max(len(row[k]) for row in [header, *texts]) for k in range(len(header))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in [header, *texts])


def report(rows: list[Row], *, markdown: bool) -> str:
    """Return the tables of all schemes, of ratios and of coverage, and the aims; the longest one comes first."""
    by_cell = cells(rows)
    compared = [one for one in (compare(found) for found in by_cell.values()) if one is not None]
    columns = {"series": "series", "users": "shares", "ε": "epsilon", "without": "without_model"}
    columns |= {
        "with model": "without_groups",
        "with groups": "total_error",
        "past": "past",
        "/ past": "to_past",
        "±": "to_past_error",
    }
    if any(row["best"] is not None for row in compared):
        columns |= {"best other": "best", "/ best": "to_best", " ±": "to_best_error"}
    columns |= {"ARE": "are", "MAE": "mae", "coverage": "coverage", "of past": "past_coverage"}
    ratios = [[row[key] for key in columns.values()] for row in compared]
    by_scheme = coverage_by_scheme(rows)
    coverage = [
        [row[key] for key in ("scheme", "model", "least", "most", "inside", "low", "cells")] for row in by_scheme
    ]
    schemes = ["series", "users", "ε", "scheme", "model", "total error", "ARE", "MAE", "coverage"]
    parts = [
        table(schemes, every_scheme(rows), markdown=markdown),
        table(list(columns), ratios, markdown=markdown),
        "\n".join(f"- {line}" for line in aims(compared)),
        table(["scheme", "model", "least", "most", "90-99%", "below 90%", "cells"], coverage, markdown=markdown),
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Measure, print the tables, and write JSON, if asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("series", nargs="*", default=list(SERIES), metavar="SERIES", help=", ".join(SERIES))
    parser.add_argument("--schemes", default=",".join(SCHEMES), help="schemes to measure  [default: all]")
    parser.add_argument("--shares", default=",".join(SHARES), help="partition, independent or both  [default: both]")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write all rows into a JSON file, after every series")
    parser.add_argument("--from", dest="stored", type=Path, nargs="+", help="print the tables of these JSON files")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    unknown = [name for name in options.series if name not in SERIES]
    if unknown:
        parser.error(f"unknown series '{unknown[0]}'; allowed: {', '.join(SERIES)}.")
    if options.stored:
        rows = [row for path in options.stored for row in json.loads(path.read_text(encoding="utf-8"))]
        print(report(rows, markdown=options.markdown))
        return
    rows = []
    for name in options.series:
        start = time.monotonic()
        rows += measure(name, load_series(name), options.schemes, options.runs, options.shares.split(","))
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(report(rows, markdown=options.markdown))


if __name__ == "__main__":
    main()
