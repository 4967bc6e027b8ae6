"""The result of a simulation: arrays, a summary, a tidy table, and paired comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.arrays import Floats, PerRun
from dpcrowd.errors import counted, unknown_name
from dpcrowd.sim.export import write_table
from dpcrowd.sim.group_notes import draw_means
from dpcrowd.sim.metrics import SIZES, nan_mean
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.smoothed import Smoothed, merge_smoothed
from dpcrowd.sim.statistics import Comparison, compare_paired, mean_with_interval

__all__ = [
    "METRICS",
    "NO_PROMISE",
    "Attribution",
    "Errors",
    "ObservationNoise",
    "SimulationResult",
    "errors_by_size",
    "exhaustion",
    "merge_records",
]

NO_PROMISE = "none, exact counts are shared."
"""What is printed as the promise of a scheme without privacy."""

METRICS = (
    "are",
    "ace",
    "frequency",
    "packets_per_slot",
    "heartbeats_per_slot",
    "bytes_per_slot",
    "latency_ms",
    "coverage95",
    "mse",
    "claimed_mse",
    "total_error",
    "mae",
    "rmse",
)
_ERRORS = ("are", "ace", "total_error", "mae", "rmse")
_VIEWS = ("nonnegative", "median")
_OF_VIEWS = ("total_error", "mae")
_PAID = ("epsilon_paid_server", "epsilon_paid_moving", "epsilon_paid_roaming")


@dataclass(frozen=True)
class Errors:
    """Mean errors over some runs; None where they are not defined."""

    are: float | None
    total_error: float | None

    @classmethod
    def of(cls, are: PerRun, total_error: PerRun) -> Errors:
        """Return the means of errors (runs,)."""
        return cls(mean_with_interval(are).mean, mean_with_interval(total_error).mean)


@dataclass(frozen=True)
class ObservationNoise:
    """What the observation noise alone costs: an error without privacy, with the same shares and counts.

    are, total_error  the errors of the better one, by total error, of the two estimates below
    runs              of how many runs these are the means
    together          all servers' exact counts put together, without noise or filter (`dpcrowd.sim.together`)
    non_private       the scheme `non-private`: a filter with the same model, which hears its neighbours' exact counts
    """

    are: float | None
    total_error: float | None
    runs: int
    together: Errors
    non_private: Errors

    @classmethod
    def of(cls, together: Errors, non_private: Errors, runs: int) -> ObservationNoise:
        """Return the errors of the better estimate."""
        best = non_private if _worth(non_private) < _worth(together) else together
        return cls(best.are, best.total_error, runs, together, non_private)


def _worth(errors: Errors) -> float:
    """Return what estimates are compared by: the total error, or the ARE where nobody is there."""
    known = [error for error in (errors.total_error, errors.are) if error is not None]
    return known[0] if known else float("inf")


@dataclass(frozen=True)
class Attribution:
    """Who answers for the promise of a scheme.

    claimed_by     the package whose claim it is; None for dpcrowd's own schemes, and for schemes that promise nothing
    passes_checks  whether the scheme passes the checks of `dpcrowd.testing`, which are made for claims of packages only
    """

    claimed_by: str | None = None
    passes_checks: bool | None = None


@dataclass(frozen=True, eq=False, repr=False)
class SimulationResult:
    """Results by scheme, in the order in which the schemes were given.

    records     one `RunRecords` per scheme: arrays with the runs first
    guarantees  the promise of each scheme in words; None for a scheme without privacy
    notes       what a reader should know: where Q comes from, what the shares sum to, ...
    warnings    those of the notes without which figures are misread
    first_notes the warnings and what the observation noise alone costs, which are printed first
    details     those of the notes that repeat a default or what a scheme is; the command prints them with --wide
    setup       the settings of each scheme: data, servers, epsilon, ...; `write` repeats them in every row
    observation_noise   what the observation noise alone costs: errors without privacy, on the first runs
    attributions        who answers for the promise of each scheme: dpcrowd, or another package

    >>> import dpcrowd
    >>> result = dpcrowd.simulate("uniform", servers=4, density=1.0, slots=40, window=10, runs=2, jobs=1)
    >>> result
    SimulationResult of 2 runs
      uniform: total error ..., coverage ..., ARE ..., MAE ..., frequency 1
    >>> result.summary()[0]["epsilon_paid"]
    {'server': 1.0, 'moving': 1.0, 'roaming': 1.0}
    """

    records: dict[str, RunRecords]
    guarantees: dict[str, str | None]
    notes: tuple[str, ...]
    setup: dict[str, dict[str, Any]] = field(default_factory=dict)
    observation_noise: ObservationNoise | None = None
    attributions: dict[str, Attribution] = field(default_factory=dict)
    first_notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    details: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return what the command's table begins with, one line per scheme; the arrays would fill many pages."""
        runs = max((len(record.runs) for record in self.records.values()), default=0)
        lines = [f"SimulationResult of {counted(runs, 'run')}"]
        for row in self.summary():
            coverage = row["coverage95"]
            values = [
                f"total error {_format_metric(row['total_error'])}",
                f"coverage {'undefined' if coverage is None else f'{coverage:.3g}'}",
                *(f"{name.upper()} {_format_metric(row[name])}" for name in ("are", "mae")),
                f"frequency {row['frequency']:.3g}",
            ]
            lines.append(f"  {row['scheme']}: {', '.join(values)}")
        return "\n".join(lines)

    def __getitem__(self, scheme: str) -> RunRecords:
        if scheme not in self.records:
            raise unknown_name("scheme of this result", scheme, self.records)
        return self.records[scheme]

    @property
    def smoothed(self) -> dict[str, Smoothed]:
        """The smoothed history of each scheme that has one, if it was asked for: `simulate(..., smoothed=True)`."""
        return {label: record.smoothed for label, record in self.records.items() if record.smoothed is not None}

    def summary(self) -> list[dict[str, Any]]:
        """Return one dictionary per scheme, as `dpcrowd simulate --json` prints them; None where undefined."""
        return [
            {
                **_summary(record),
                **self._scoring(record.label),
                **self._crowd_settings(record.label),
                **self._relay_settings(record.label),
                **self._model_settings(record.label),
                "promise": self.guarantees.get(record.label) or NO_PROMISE,
                **asdict(self.attribution(record.label)),
            }
            for record in self.records.values()
        ]

    def attribution(self, scheme: str) -> Attribution:
        """Return who answers for the promise of a scheme."""
        return self.attributions.get(scheme, Attribution())

    def _scoring(self, label: str) -> dict[str, Any]:
        """Return which slots are scored; nothing if the result does not say."""
        setup = self.setup.get(label, {})
        return {"burn_in": setup["burn_in"]} if "burn_in" in setup else {}

    def _crowd_settings(self, label: str) -> dict[str, Any]:
        """Return how people are spread over the servers, None where that does not apply; nothing if it is not said."""
        setup = self.setup.get(label, {})
        if "shares" not in setup:
            return {}
        of_relay = setup.get("reach") is not None
        return {
            "turnover": None if setup["observation"] == "paper" else setup["turnover"],
            "shares": setup["shares"],
            "composition": setup.get("composition"),
            "share_width": setup.get("share_width", 0.0) if of_relay else None,
        }

    def _model_settings(self, label: str) -> dict[str, Any]:
        """Return which process model the filters know, whether they learn, and how many scored slots it was fitted on;
        nothing without both.
        """
        setup = self.setup.get(label, {})
        names = (
            "model",
            "learn",
            "in_sample_slots",
            "model_source",
            "model_earlier_sources",
            "model_span",
            "model_season",
        )
        return {name: setup[name] for name in names if name in setup}

    def _relay_settings(self, label: str) -> dict[str, Any]:
        """Return the settings of a scheme that passes records on; nothing for other schemes."""
        setup = self.setup.get(label, {})
        if setup.get("samples") is None:
            return {}
        return {
            "samples": int(setup["samples"]),
            "reach": setup["reach"],
            "hops_per_slot": setup["hops_per_slot"],
            "lag": int(setup["lag"]),
            "groups": setup.get("groups", "off"),
            "meetings": bool(setup.get("meetings", False)),
        }

    def table(self) -> dict[str, list[Any]]:
        """Return a tidy table as columns, with one row per scheme and run."""
        rows: dict[str, list[Any]] = {name: [] for name in ("scheme", "run", *METRICS, *_PAID)}
        for record in self.records.values():
            rows["scheme"] += [record.label] * len(record.runs)
            rows["run"] += record.runs.tolist()
            for metric in METRICS:
                rows[metric] += _as_list(getattr(record, metric))
            payments = [p.epsilons() for p in record.paid] or [{}] * len(record.runs)
            for name in _PAID:
                rows[name] += [p.get(name.removeprefix("epsilon_paid_")) for p in payments]
        if self.smoothed:
            for metric in ("are", "coverage95"):
                rows[f"smoothed_{metric}"] = [
                    value for record in self.records.values() for value in _smoothed_column(record, metric)
                ]
        for name in (f"{view}_{metric}" for view in _VIEWS for metric in _OF_VIEWS):
            columns = [getattr(record, name) for record in self.records.values()]
            if all(column is not None for column in columns):
                rows[name] = [value for column in columns for value in _as_list(column)]
        return rows

    def series(self) -> dict[str, list[Any]]:
        """Return a tidy table as columns: mean ARE and ACE over the runs, with one row per scheme and slot."""
        rows: dict[str, list[Any]] = {"scheme": [], "slot": [], "are": [], "ace": []}
        for record in self.records.values():
            slots = record.are_by_slot.shape[1]
            rows["scheme"] += [record.label] * slots
            rows["slot"] += range(slots)
            rows["are"] += _as_list(nan_mean(record.are_by_slot, (0,)))
            rows["ace"] += _as_list(nan_mean(record.ace_by_slot, (0,)))
        return rows

    def compare(self, first: str, second: str, metric: str = "are") -> Comparison:
        """Compare two schemes in a metric, paired run by run."""
        if metric not in METRICS:
            raise unknown_name("metric", metric, METRICS)
        return compare_paired(first, second, metric, getattr(self[first], metric), getattr(self[second], metric))

    def write(self, path: str | Path) -> Path:
        """Write `table()` to .csv or .parquet, with further columns: the setup of each scheme, and what follows.

        claimed_by                       whose promise it is
        shares                           how they are drawn, or "given"
        exhausted_at, exhausted_servers  of each run: when the budget ran out, and at which share of the servers
        mae_of_0_to_5, share_of_0_to_5, ...  of each run: the errors by size of region, and the share of such estimates
        """
        columns = self.table()
        names = dict.fromkeys(name for setup in self.setup.values() for name in setup if name != "shares")
        more = {name: [self.setup.get(scheme, {}).get(name) for scheme in columns["scheme"]] for name in names}
        more["claimed_by"] = [self.attribution(scheme).claimed_by for scheme in columns["scheme"]]
        # After the columns of earlier versions, whose readers may count them.
        more["shares"] = [self.setup.get(scheme, {}).get("shares") for scheme in columns["scheme"]]
        exhausted = [entry for record in self.records.values() for entry in _exhausted_by_run(record)]
        more |= {name: [entry[name] for entry in exhausted] for name in ("exhausted_at", "exhausted_servers")}
        return write_table({**columns, **more, **self._size_columns()}, Path(path))

    def _size_columns(self) -> dict[str, list[float | None]]:
        """Return the errors by size of region, one column per class and score, with one row per scheme and run."""
        entries = [
            [None] * len(SIZES) if by_size is None else errors_by_size(by_size[None])
            for record in self.records.values()
            for by_size in ([None] * len(record.runs) if record.by_size is None else record.by_size)
        ]
        columns: dict[str, list[float | None]] = {}
        for number, (least, most) in enumerate(SIZES):
            size = f"{least}_to_{most}" if most is not None else f"{least}_or_more"
            for score in ("mae", "share"):
                classes = (entry[number] for entry in entries)
                columns[f"{score}_of_{size}"] = [None if one is None else one[score] for one in classes]
        return columns


def _format_metric(metric: dict[str, Any]) -> str:
    if metric["mean"] is None:
        return "undefined"
    half = "" if metric["ci95"] is None else f" ± {_digits((metric['ci95'][1] - metric['ci95'][0]) / 2, 2)}"
    return f"{_digits(metric['mean'], 4)}{half}"


def _digits(value: float, digits: int) -> str:
    """Return a number with so many digits; a larger one is rounded to a whole number, and has no exponent."""
    rounded = float(f"{value:.{digits}g}")
    return f"{value:,.0f}" if abs(rounded) >= 10**digits else f"{value:.{digits}g}"


def _as_list(values: Floats) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _smoothed_column(record: RunRecords, metric: str) -> list[float | None]:
    smoothed = record.smoothed
    return [None] * len(record.runs) if smoothed is None else _as_list(getattr(smoothed, metric))


def _mean(values: Floats) -> dict[str, Any]:
    mean = mean_with_interval(values)
    return {"mean": mean.mean, "ci95": None if mean.ci95 is None else list(mean.ci95)}


def _summary(record: RunRecords) -> dict[str, Any]:
    entry: dict[str, Any] = {"scheme": record.label}
    for metric in _ERRORS:
        entry[metric] = _mean(getattr(record, metric))
    for metric in ("frequency", "packets_per_slot", "heartbeats_per_slot", "bytes_per_slot", "latency_ms"):
        entry[metric] = mean_with_interval(getattr(record, metric)).mean
    payments = [p.epsilons() for p in record.paid]
    entry["epsilon_paid"] = {
        who: max(p[who] for p in payments) if payments else None for who in ("server", "moving", "roaming")
    }
    entry["coverage95"] = mean_with_interval(record.coverage95).mean
    if record.by_size is not None:
        entry["by_size"] = errors_by_size(record.by_size)
    entry |= exhaustion(record)
    entry |= draw_means(record)
    if record.smoothed is not None:
        mean = mean_with_interval(record.smoothed.are)
        interval = None if mean.ci95 is None else list(mean.ci95)
        coverage = mean_with_interval(record.smoothed.coverage95).mean
        entry["smoothed"] = {"are": {"mean": mean.mean, "ci95": interval}, "coverage95": coverage}
    for view in _VIEWS:
        scores = {metric: getattr(record, f"{view}_{metric}") for metric in _OF_VIEWS}
        if all(score is not None for score in scores.values()):
            entry[view] = {metric: _mean(score) for metric, score in scores.items()}
    entry["server_slots_per_second"] = record.server_slots / record.seconds if record.seconds > 0 else None
    return entry


def errors_by_size(by_size: Floats) -> list[dict[str, Any]]:
    """Return one entry per class of `SIZES`: the cells with a truth between `least` and `most`, over all runs.

    share        of all estimates that are scored
    mae          mean absolute error, in people
    total_error  sum of absolute errors / sum of the truth
    """
    table = by_size.sum(axis=0)
    entries = []
    for (least, most), (error, people, estimates) in zip(SIZES, table.tolist(), strict=True):
        entries.append(
            {
                "least": least,
                "most": most,
                "share": float(estimates / table[:, 2].sum()) if table[:, 2].any() else None,
                "mae": error / estimates if estimates and np.isfinite(error) else None,
                "total_error": error / people if people and np.isfinite(error) else None,
            }
        )
    return entries


def exhaustion(record: RunRecords) -> dict[str, Any]:
    """Return when a finite budget ran out: the median slot of the servers of all runs, and which share of them.

    With it comes the slot in which the horizon was over, if it ends before the data.
    """
    horizon = {"horizon_over_at": record.horizon_over_at}
    if record.exhausted_at is None or np.isnan(record.exhausted_at).all():
        return {"exhausted_at": None, "exhausted_servers": 0.0, **horizon}
    slots = record.exhausted_at[~np.isnan(record.exhausted_at)]
    return {
        "exhausted_at": int(np.median(slots)),
        "exhausted_servers": slots.size / record.exhausted_at.size,
        **horizon,
    }


def _exhausted_by_run(record: RunRecords) -> list[dict[str, Any]]:
    """Return `exhaustion` of each run; slots are floats, since they may be absent."""
    if record.exhausted_at is None:
        return [{"exhausted_at": None, "exhausted_servers": 0.0}] * len(record.runs)
    entries = [exhaustion(replace(record, exhausted_at=slots[None])) for slots in record.exhausted_at]
    slot = "exhausted_at"
    return [entry if entry[slot] is None else {**entry, slot: float(entry[slot])} for entry in entries]


def merge_records(parts: Sequence[RunRecords]) -> RunRecords:
    """Merge the records of several batches, in ascending order of the runs."""
    order = np.argsort(np.concatenate([part.runs for part in parts]), kind="stable")
    values: dict[str, Any] = {"label": parts[0].label}
    for f in fields(RunRecords):
        pieces = [getattr(part, f.name) for part in parts]
        if isinstance(pieces[0], np.ndarray):
            values[f.name] = np.concatenate(pieces)[order]
        elif f.name == "paid":
            joined = [paid for piece in pieces for paid in piece]
            values[f.name] = tuple(joined[i] for i in order) if joined else ()
        elif f.name == "smoothed" and pieces[0] is not None:
            values[f.name] = merge_smoothed(pieces, order)
        elif f.name == "horizon_over_at":
            values[f.name] = pieces[0]
        elif f.name in ("seconds", "server_slots"):
            values[f.name] = sum(pieces)
    return RunRecords(**values)
