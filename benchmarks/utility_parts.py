"""The simulations of `utility.py`: every part yields rows, one per scheme and setting, as plain dictionaries.

All schemes of a setting see the same runs, so ratios are paired: the geometric mean of the ratios of each run.
Intervals that a baseline is granted are found on runs with another seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpcrowd.experiments.points.point import scheme_of
from dpcrowd.experiments.relay_table import VARIANTS, error_ratio, reference_of, summarise
from dpcrowd.schemes.base import Scheme
from dpcrowd.schemes.dpcrowd import DPCrowd
from dpcrowd.schemes.dpcrowd_plus import DPCrowdPlus
from dpcrowd.schemes.dpcrowd_w import DPCrowdW
from dpcrowd.schemes.fast import FAST
from dpcrowd.schemes.flooding import DFAST
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data import load
from dpcrowd.sim.data.dataset import DataSet, FixedData
from dpcrowd.sim.engine import run_batch
from dpcrowd.sim.planner.predict import predict
from dpcrowd.sim.planner.request import PlanRequest, read_levels
from dpcrowd.sim.planner.traffic import planned_traffic
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.result import merge_records
from dpcrowd.sim.simulate import batches

__all__ = ["FULL", "PARTS", "QUICK", "Size"]

Row = dict[str, Any]
OTHER_SEED = 1000
FINITE = ("fast", "dfast", "dpcrowd")
WINDOW = (
    *("dpcrowd-w", "dpcrowd-plus", "rescuedp", "drescuedp", "bd", "ba", "dbd", "dba", "pegasus", "dpegasus"),
    *("uniform", "sample", "duniform", "dsample"),
)
REACHES: tuple[tuple[int | str, int | str], ...] = (
    *((1, 1), (2, 1), (2, 3), (3, 1), (3, 3), ("all", 1), ("all", 3)),
    ("all", "all"),
)
"""Reach and K, where a larger K makes a difference; last: everything at once."""
INTERVALS = (1, 2, 3, 5, 7, 10, 14, 20, 30, 50, 70, 100, 140, 200, 300)


@dataclass(frozen=True)
class Size:
    """How much is simulated: runs by data set, slots (None: all), servers, and w of sets with many regions.

    first_slots  in how many of its slots a real series begins in turn (part "starts")
    """

    runs: Mapping[str, int]
    slots: int | None
    servers: int
    window: int
    epsilons: tuple[float, ...] = (0.1, 1.0)
    intervals: tuple[int, ...] = INTERVALS
    parts_of_samples: tuple[float, ...] = (0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
    staggered_intervals: tuple[int, ...] = (1, 2, 5, 10, 20, 50)
    first_slots: int = 16

    def few(self, data: str) -> int:
        """Runs with the other seed, to find an interval."""
        return max(2, self.runs[data] // 3)


FULL = Size({"linear": 30, "flu": 30, "multi-linear": 12, "multi-flu": 4}, None, 50, 100)
QUICK = Size({"linear": 2, "multi-linear": 2}, 24, 8, 10, (1.0,), (5, 10), (0.5, 1.0), (10,))


def relays() -> dict[str, Scheme]:
    return {
        **{name: scheme_of(entry) for name, entry in VARIANTS.items()},
        "relay, reach 1": Relay(reach=1),
        "relay, reach 2": Relay(reach=2),
    }


def simulated(size: Size, schemes: Mapping[str, Scheme], data: str | DataSet, **settings: Any) -> tuple[Row, ...]:
    """Simulate schemes on the same runs; return one row per scheme, with its records under "records"."""
    burn_in = settings.pop("burn_in", 20)
    series = load(data, slots=size.slots) if isinstance(data, str) else data
    config: SimulationConfig = configure(dict(schemes), series, servers=size.servers, burn_in=burn_in, **settings)
    parts = [run_batch(config, runs) for runs in batches(config, range(config.runs), 1)]
    merged = [merge_records(records) for records in zip(*parts, strict=True)]
    return tuple(
        {"scheme": entrant.label, "samples": entrant.samples, **summarise(record), "records": record}
        for entrant, record in zip(config.entrants, merged, strict=True)
    )


def paired(first: Row, second: Row) -> list[float | None]:
    """[ratio, low, high] of the first's ARE to the second's."""
    ratio = error_ratio(first["records"], second["records"])
    return [float("nan"), None, None] if ratio is None else [ratio.value, ratio.low, ratio.high]


def finished(rows: list[Row], reference: Row, name: str = "ratio", **more: Any) -> None:
    for row in rows:
        row[name] = paired(row, reference)
        row.update(more)


def bare(rows: list[Row]) -> list[Row]:
    """Return the rows without their records."""
    return [{key: value for key, value in row.items() if key != "records"} for row in rows]


def named(names: tuple[str, ...]) -> dict[str, Scheme]:
    return {name: make_scheme(name) for name in names}


def slots_of(size: Size, data: str) -> int:
    return load(data, slots=size.slots).slots


# ---------------------------------------------------------------------------------------------------------- the table


def table(size: Size) -> Iterator[list[Row]]:
    """Simulate every scheme in every cell; ratios are to DPCrowd, with many regions to DPCrowd+ (sound account)."""
    for data, runs in size.runs.items():
        for epsilon in size.epsilons:
            for dynamic in (True, False):
                common = {"epsilon": epsilon, "dynamic": dynamic, "runs": runs}
                yield _cell(size, data, common)


def _cell(size: Size, data: str, common: dict[str, Any]) -> list[Row]:
    if data.startswith("multi"):
        rows = list(simulated(size, {**named(WINDOW), **relays()}, data, window=size.window, **common))
        reference = next(row for row in rows if row["scheme"] == reference_of(data))
        extra = {"dpcrowd-plus, ledger per region": DPCrowdPlus()}
        rows += simulated(size, extra, data, window=size.window, accounting="per-region", **common)
        if data == "multi-linear":
            shown = ("relay, K=1", "relay, K=3", "relay, reach 1")
            forms = {f"{label}, matrix": relays()[label] for label in shown}
            rows += simulated(size, forms, data, window=size.window, form="matrix", **common)
    else:
        horizon = slots_of(size, data)
        rows = list(simulated(size, {**named(FINITE), **relays()}, data, **common))
        rows += simulated(size, named(WINDOW), data, window=horizon, **common)
        reference = next(row for row in rows if row["scheme"] == reference_of(data))
    at_once = next(row for row in rows if row["scheme"] == "everything at once")
    finished(rows, reference, data=data, epsilon=common["epsilon"], links="dynamic" if common["dynamic"] else "static")
    finished(rows, at_once, "to_all")
    best = min((row for row in rows if _is_peer(row["scheme"])), key=lambda row: _log_mean(row["records"]))
    for row in rows:
        if row["scheme"] == "relay, K=3":
            row["best_other"], row["to_best_other"] = best["scheme"], paired(row, best)
    return bare(rows)


def _is_peer(label: str) -> bool:
    return label in FINITE or label in WINDOW


def _log_mean(record: RunRecords) -> float:
    return float(np.mean(np.log(np.maximum(record.are, 1e-12))))


# --------------------------------------------------------------------------------------------- staggered baselines


def staggered(size: Size) -> Iterator[list[Row]]:
    """Compare relay with DPCrowd and DPCrowd_w, staggered at the interval that is best on other runs."""
    for data in (name for name in size.runs if not name.startswith("multi")):
        for epsilon in size.epsilons:
            for dynamic in (True, False):
                common = {"epsilon": epsilon, "dynamic": dynamic}
                yield _staggered_cell(size, data, common)


def _staggered_cell(size: Size, data: str, common: dict[str, Any]) -> list[Row]:
    horizon, runs = slots_of(size, data), size.runs[data]
    rows = list(simulated(size, relays(), data, runs=runs, **common))
    for name, kind, more in (("dpcrowd", DPCrowd, {}), ("dpcrowd-w", DPCrowdW, {"window": horizon})):
        interval = best_interval(size, data, lambda i, kind=kind: kind("staggered", i), **common, **more)
        label = f"{name}, staggered"
        baseline = simulated(size, {label: kind("staggered", interval)}, data, runs=runs, **common, **more)[0]
        baseline["interval"] = interval
        for row in rows:
            row[f"to {label}"] = paired(row, baseline)
        rows.append(baseline)
    for row in rows:
        row.update(data=data, epsilon=common["epsilon"], links="dynamic" if common["dynamic"] else "static")
    return bare(rows)


def best_interval(size: Size, data: str, make: Callable[[int], Scheme], **settings: Any) -> int:
    """Return the interval with the least error on runs with another seed."""
    schemes = {str(interval): make(interval) for interval in size.intervals}
    rows = simulated(size, schemes, data, runs=size.few(data), seed=OTHER_SEED, **settings)
    return int(min(rows, key=lambda row: _log_mean(row["records"]))["scheme"])


# -------------------------------------------------------------------------------------------------- communication


def frontier(size: Size) -> Iterator[list[Row]]:
    """Hold error against packets and bytes per slot: relay at several reaches and numbers of samples, and the rest.

    Among the rest is DPCrowd_w with staggered sampling at several intervals, the baseline that sends about as much as
    relay with reach 1.
    """
    for data in size.runs:
        for epsilon in size.epsilons:
            yield _frontier(size, data, epsilon)


def _frontier(size: Size, data: str, epsilon: float) -> list[Row]:
    runs = min(size.runs[data], max(4, size.runs[data] // 3))
    many = data.startswith("multi")
    length = size.window if many else slots_of(size, data)
    schemes: dict[str, Scheme] = {}
    for reach, hops in REACHES[:-1]:
        for part in size.parts_of_samples:
            samples = max(1, round(part * length))
            label = f"relay, reach {reach}, K={hops}, n={samples}"
            schemes[label] = Relay(samples=samples, reach=reach, hops_per_slot=hops)  # type: ignore[arg-type]
    window = {"window": size.window} if many else {}
    rows = list(simulated(size, schemes, data, epsilon=epsilon, runs=runs, **window))
    others = named(WINDOW)
    others |= {f"dpcrowd-w, staggered, I={i}": DPCrowdW("staggered", i) for i in size.staggered_intervals}
    rows += simulated(size, others, data, epsilon=epsilon, runs=runs, window=length)
    if not many:
        rows += simulated(size, named(FINITE), data, epsilon=epsilon, runs=runs)
    ours = [row for row in rows if row["scheme"].startswith("relay")]
    for row in rows:
        row.update(data=data, epsilon=epsilon)
        if row in ours or row["packets"] == 0:
            continue
        for what in ("packets", "bytes"):
            within = [one for one in ours if one[what] <= row[what]]
            if within:
                best = min(within, key=lambda one: _log_mean(one["records"]))
                row[f"relay within {what}"] = [best["scheme"], *paired(best, row)]
    return bare(rows)


# ------------------------------------------------------------------------------------------- coverage and the ledger


def coverage(size: Size) -> Iterator[list[Row]]:
    """Measure the coverage of relay's intervals at every reach and K; Multi-Linear in matrix form."""
    for data, runs in size.runs.items():
        many = data.startswith("multi")
        settings: dict[str, Any] = {"window": size.window} if many else {}
        if data == "multi-linear":
            settings["form"] = "matrix"
        schemes: dict[str, Scheme] = {
            f"relay, reach {reach}, K={hops}": Relay(reach=reach, hops_per_slot=hops)  # type: ignore[arg-type]
            for reach, hops in REACHES
        }
        for epsilon in size.epsilons:
            rows = list(simulated(size, schemes, data, epsilon=epsilon, runs=runs, **settings))
            for row in rows:
                row.update(data=data, epsilon=epsilon)
            yield bare(rows)


def ledger(size: Size) -> Iterator[list[Row]]:
    """Compare relay with DPCrowd+ on the paper's ledger per region, where a user who moves pays several times ε."""
    schemes = {name: relay for name, relay in relays().items() if name != "everything at once"}
    for data, runs in size.runs.items():
        if not data.startswith("multi"):
            continue
        for epsilon in size.epsilons:
            for dynamic in (True, False):
                common: dict[str, Any] = {"epsilon": epsilon, "dynamic": dynamic, "runs": runs, "window": size.window}
                rows = list(simulated(size, schemes, data, **common))
                plus = {"dpcrowd-plus, ledger per region": DPCrowdPlus()}
                rows += simulated(size, plus, data, accounting="per-region", **common)
                links = "dynamic" if dynamic else "static"
                finished(rows, rows[-1], data=data, epsilon=epsilon, links=links)
                yield bare(rows)


# ------------------------------------------------------------------------------------------ a promise of the network


def promise(size: Size) -> Iterator[list[Row]]:
    """Users roam and the shares sum to 1: one promise for all servers together. Ratios of relay to every other scheme.

    With many regions the promise is one for windows, so the schemes with a finite horizon are left out.
    """
    for data in (name for name in size.runs if name != "multi-flu"):
        for epsilon in size.epsilons:
            yield _promise(size, data, epsilon)


def _promise(size: Size, data: str, epsilon: float) -> list[Row]:
    common: dict[str, Any] = {"epsilon": epsilon, "users": "roaming", "shares": "partition"}
    runs, many = size.runs[data], data.startswith("multi")
    window = {"window": size.window if many else slots_of(size, data)}
    makers: dict[str, tuple[Callable[[int], Scheme], dict[str, Any]]] = {
        "fast": (lambda i: FAST("lockstep", i), {}),
        "dfast": (lambda i: DFAST(sampling="lockstep", interval=i), {}),
        "dpcrowd": (lambda i: DPCrowd("lockstep", i), {}),
        "dpcrowd-w": (lambda i: DPCrowdW("lockstep", i), window),
    }
    if many:
        makers = {"dpcrowd-w": makers["dpcrowd-w"]}
    rows: list[Row] = []
    for name, (make, more) in makers.items():
        interval = best_interval(size, data, make, **common, **more)
        some = simulated(size, {f"{name}, lockstep": make(interval)}, data, runs=runs, **common, **more)
        rows += [{**row, "interval": interval, "schedule": "public"} for row in some]
    public = ("uniform", "duniform", "sample", "dsample")
    for name in WINDOW if many else (*FINITE, *WINDOW):
        more = window if name in WINDOW else {}
        row = simulated(size, {name: make_scheme(name)}, data, runs=runs, **common, **more)[0]
        rows.append({**row, "schedule": "public" if name in public else "its own"})
    own = simulated(size, relays(), data, runs=runs, **common, **(window if many else {}))
    for row in rows:
        row["relay"] = paired(own[1], row)
        row["relay, K=1"] = paired(own[0], row)
    rows += own
    for row in rows:
        row.update(data=data, epsilon=epsilon)
    return bare(rows)


def starts(size: Size) -> Iterator[list[Row]]:
    """The same promise on Flu, which begins in another of its weeks in every run and goes on from its end to its start.

    A real series is the same in every run, so with few samples it decides a lot which weeks they fall into: a scheme
    that samples once keeps whatever the first week was. Here the first weeks are spread over the series. Public
    schedules are granted the interval that is best on these very runs.
    """
    for data in (name for name in size.runs if name == "flu"):
        for epsilon in size.epsilons:
            yield _starts(size, data, epsilon)


def _starts(size: Size, data: str, epsilon: float) -> list[Row]:
    series = load(data, slots=size.slots)
    assert isinstance(series, FixedData)
    common: dict[str, Any] = {"epsilon": epsilon, "users": "roaming", "shares": "partition", "runs": 1}
    finite: dict[str, Scheme] = {"relay, K=1": Relay(), "relay, K=3": Relay(hops_per_slot=3)}
    finite |= {f"dfast, lockstep, I={i}": DFAST(sampling="lockstep", interval=i) for i in size.intervals}
    window: dict[str, Scheme] = named(("sample", "dsample"))
    window |= {f"dpcrowd-w, lockstep, I={i}": DPCrowdW("lockstep", i) for i in size.intervals}
    parts: dict[str, list[Row]] = {}
    for number in range(size.first_slots):
        first = round(number * series.slots / size.first_slots)
        rotated = replace(series, counts=np.roll(series.counts, -first, axis=0))
        rows = list(simulated(size, finite, rotated, seed=number, **common))
        rows += simulated(size, window, rotated, seed=number, window=series.slots, **common)
        for row in rows:
            parts.setdefault(row["scheme"], []).append(row)
    rows = []
    for label, some in parts.items():
        records = merge_records([row["records"] for row in some])
        rows.append({"scheme": label, "samples": some[0]["samples"], **summarise(records), "records": records})
    own = [row for row in rows if row["scheme"].startswith("relay")]
    others = []
    for name in ("dfast", "dpcrowd-w", "sample", "dsample"):
        mates = [row for row in rows if row["scheme"].split(",")[0] == name]
        others.append(min(mates, key=lambda row: _log_mean(row["records"])))
    for row in others:
        row["schedule"] = "public"
        row["relay"], row["relay, K=1"] = paired(own[1], row), paired(own[0], row)
    for row in (*others, *own):
        row.update(data=f"{data}, {size.first_slots} first slots", epsilon=epsilon)
    return bare([*others, *own])


# ------------------------------------------------------------------------------------------------------- the planner


def plan(size: Size) -> Iterator[list[Row]]:
    """Compare the error that `dpcrowd plan` predicts with the simulated one, at the reach and samples it recommends."""
    for data, runs in size.runs.items():
        for epsilon in size.epsilons:
            for hops in (1, 3):
                yield [_planned(size, data, runs, epsilon, hops)]


def _planned(size: Size, data: str, runs: int, epsilon: float, hops: int) -> Row:
    """Return predicted and simulated errors of one cell.

    predicted       the expected relative error; a synthetic process is drawn as often as the planner does by default
    predicted_runs  the same for the levels of these very runs (a series from a file has one run, so both are equal)
    people          MAE and RMSE in people: simulated, predicted for these runs
    """
    series = load(data, slots=size.slots)
    span = {"window": size.window} if data.startswith("multi") else {"horizon": series.slots}
    levels = read_levels(data=series, runs=runs)
    request = PlanRequest(levels=levels, epsilon=epsilon, servers=size.servers, hops_per_slot=hops, **span)
    prediction = predict(request)
    usual = predict(replace(request, levels=read_levels(data=series)), prediction.reach, prediction.samples)
    schemes: dict[str, Scheme] = {
        "relay": Relay(prediction.samples, reach=prediction.reach, hops_per_slot=hops),
        "relay, reach all": Relay(predict(request, "all").samples, hops_per_slot=hops),
    }
    row, everything = simulated(size, schemes, series, epsilon=epsilon, runs=runs, keep_estimates=True, **span)
    assert levels.series is not None
    assert prediction.on_series is not None
    errors = row["records"].estimates[:, 20:] - levels.series.levels[:, 20:, None, :]
    return {
        **bare([row])[0],
        "data": data,
        "epsilon": epsilon,
        "hops": hops,
        "reach": prediction.reach,
        "predicted": usual.error,
        "predicted_runs": prediction.error,
        "mae": float(np.nanmean(np.abs(errors))),
        "predicted_mae": float(np.mean(prediction.on_series.absolute)),
        "rmse": float(np.sqrt(row["records"].mse.mean())),
        "predicted_rmse": float(np.sqrt(np.mean(prediction.on_series.mean_square))),
        "claimed_rmse": float(np.sqrt(row["records"].claimed_mse.mean())),
        "predicted_claim": float(np.sqrt(np.square(prediction.deviation).mean())),
        "traffic": vars(planned_traffic(request, prediction)),
        "to_all": paired(row, everything),
        "bytes_to_all": row["bytes"] / everything["bytes"],
    }


PARTS: dict[str, Callable[[Size], Iterator[list[Row]]]] = {
    "table": table,
    "staggered": staggered,
    "frontier": frontier,
    "coverage": coverage,
    "ledger": ledger,
    "promise": promise,
    "starts": starts,
    "plan": plan,
}
