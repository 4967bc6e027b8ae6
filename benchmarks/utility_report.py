"""Tables and the figure of `utility.py`, and its targets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness import Target
from utility_communication import FLOODING, communication_tables

from dpcrowd.experiments.relay_table import Ratio

__all__ = ["draw", "targets", "write_report"]

Row = dict[str, Any]
Results = dict[str, list[Row]]

# Data: K=1 and K=3 for epsilon 0.1 and 1, as ratios to DPCrowd (many regions: DPCrowd+).
BOUNDS = {
    "linear": ((0.36, 0.55), (0.27, 0.31)),
    "flu": ((0.60, 0.68), (0.44, 0.42)),
    "multi-linear": ((0.43, 0.40), (0.33, 0.23)),
    "multi-flu": ((0.51, 0.55), (0.49, 0.45)),
}
AT_ONCE = 1.12
PREDICTED = {"linear": 0.10, "multi-linear": 0.10, "flu": 0.25, "multi-flu": 0.25}


def _find(rows: Iterable[Row], **values: Any) -> list[Row]:
    return [row for row in rows if all(row.get(key) == value for key, value in values.items())]


def _cells(rows: list[Row], *keys: str) -> list[tuple[Any, ...]]:
    return list(dict.fromkeys(tuple(row.get(key) for key in keys) for row in rows))


def _ratio(value: list[Any] | None) -> str:
    return "" if value is None or value[0] is None else str(Ratio(*value))


def targets(results: Results) -> list[Target]:
    """Return every target whose value was measured."""
    goals: list[Target] = []
    for row in results.get("table", []):
        goals += _of_table(row)
    for row in results.get("staggered", []):
        goals += _of_staggered(row)
    for row in results.get("frontier", []):
        goals += _of_frontier(row)
    for row in results.get("coverage", []):
        goals += _of_coverage(row)
    for row in results.get("ledger", []):
        if row["scheme"] == "relay, K=3" and row["data"] == "multi-flu" and row["epsilon"] == 1.0:
            where = f"{row['data']} ε=1 {row['links']}: K=3 / DPCrowd+ on a ledger per region"
            goals.append(Target(where, row["ratio"][0], 1.0, at_least=False))
    for row in [*results.get("promise", []), *results.get("starts", [])]:
        if "schedule" in row:
            where = f"{row['data']} ε={row['epsilon']:g}: one promise for the network, relay K=3 / {row['scheme']}"
            goals.append(Target(where, row["relay"][0], 0.8 if row["schedule"] == "public" else 0.5, at_least=False))
    for row in results.get("plan", []):
        goals += _of_plan(row)
    for row in results.get("speed", []):
        bound = {"relay, reach 1": 2.0, "relay, K=1": 8.0, "relay, K=3": 8.0}.get(row["scheme"])
        if bound is not None and row["servers"] == 50:
            where = f"cost per server and slot, {row['scheme']} / dpcrowd, 50 servers, {row['links']}"
            goals.append(Target(where, row["ratio"], bound, "x", at_least=False))
    return goals


def _of_frontier(row: Row) -> list[Target]:
    if row["scheme"] not in FLOODING:
        return []
    within = row.get("relay within bytes")
    where = f"{row['data']} ε={row['epsilon']:g}: best relay within the bytes of {row['scheme']}"
    return [Target(where, within[1] if within else float("inf"), 1.0, at_least=False)]


def _of_plan(row: Row) -> list[Target]:
    found = []
    for key, levels in (("predicted", "as planned"), ("predicted_runs", "on the levels of these runs")):
        where = f"{row['data']} ε={row['epsilon']:g} K={row['hops']}: predicted / simulated error - 1, {levels}"
        found.append(Target(where, _distance(row, key), PREDICTED[row["data"]], at_least=False))
    return found


def _distance(row: Row, key: str) -> float:
    return abs(float(row[key]) / float(row["are"]) - 1.0)


def _of_table(row: Row) -> list[Target]:
    cell = f"{row['data']} ε={row['epsilon']:g} {row['links']}"
    scheme = row["scheme"]
    found = []
    place = {0.1: 0, 1.0: 1}.get(row["epsilon"])
    for number, label in enumerate(("relay, K=1", "relay, K=3")):
        if scheme == label and place is not None:
            bound = BOUNDS[row["data"]][number][place]
            found.append(Target(f"{cell}: {label} / DPCrowd", row["ratio"][0], bound, at_least=False))
    if scheme == "relay, K=3":
        found.append(Target(f"{cell}: K=3 / everything at once", row["to_all"][0], AT_ONCE, at_least=False))
        found.append(Target(f"{cell}: K=3 / {row['best_other']}", row["to_best_other"][0], 1.0, at_least=False))
    narrow = row["data"] == "linear" or scheme.endswith(", matrix")
    if scheme.startswith("relay") and (narrow or "flu" in row["data"]):
        found += _coverage_targets(cell, row, narrow)
    return found


def _of_coverage(row: Row) -> list[Target]:
    return _coverage_targets(f"{row['data']} ε={row['epsilon']:g}", row, "flu" not in row["data"])


def _coverage_targets(cell: str, row: Row, narrow: bool) -> list[Target]:
    """Return the bounds of a coverage: 93% to 97% where the model is the truth (`narrow`), else at least 90%."""
    what = f"{cell}: coverage of {row['scheme']}"
    lower = Target(what, row["coverage"], 0.93 if narrow else 0.90)
    return [lower, Target(what, row["coverage"], 0.97, at_least=False)] if narrow else [lower]


def _of_staggered(row: Row) -> list[Target]:
    bounds = {"relay, reach 1": 1.05}
    if row["data"] == "linear":
        bounds.update({"relay, K=3": 0.55, "relay, K=1": 0.90})
    if row["scheme"] not in bounds:
        return []
    cell = f"{row['data']} ε={row['epsilon']:g} {row['links']}"
    return [
        Target(
            f"{cell}: {row['scheme']} / {key.removeprefix('to ')}", row[key][0], bounds[row["scheme"]], at_least=False
        )
        for key in row
        if key.startswith("to ")
    ]


# ------------------------------------------------------------------------------------------------------------- tables


def write_report(results: Results, path: Path) -> None:
    parts = [
        *_main_tables(results.get("table", [])),
        *_staggered_table(results.get("staggered", [])),
        *_frontier_tables(results.get("frontier", [])),
        *_coverage_table(results.get("coverage", [])),
        *_ledger_table(results.get("ledger", [])),
        *_promise_table([*results.get("promise", []), *results.get("starts", [])]),
        *_plan_table(results.get("plan", [])),
        *_speed_table(results.get("speed", [])),
        *_target_table(targets(results)),
    ]
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def _table(title: str, heads: list[str], rows: Iterable[list[object]]) -> list[str]:
    lines = ["", f"### {title}", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return [*lines, *(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)]


def _main_tables(rows: list[Row]) -> list[str]:
    lines: list[str] = []
    if rows:
        heads = ["cell", "n (K=1; K=3)", "relay, K=1", "relay, K=3", "K=3 / at once", "reach 1", "K=3 / best other"]
        summary = []
        for data, epsilon, links in _cells(rows, "data", "epsilon", "links"):
            cell = {row["scheme"]: row for row in _find(rows, data=data, epsilon=epsilon, links=links)}
            one, three = cell["relay, K=1"], cell["relay, K=3"]
            summary.append(
                [
                    f"{data}, ε={epsilon:g}, {links}",
                    f"{one['samples']}; {three['samples']}",
                    _ratio(one["ratio"]),
                    _ratio(three["ratio"]),
                    _ratio(three["to_all"]),
                    _ratio(cell["relay, reach 1"]["ratio"]),
                    f"{_ratio(three['to_best_other'])} {three['best_other']}",
                ]
            )
        lines += _table("Ratios to DPCrowd (many regions: DPCrowd+, sound account)", heads, summary)
    for data, epsilon, links in _cells(rows, "data", "epsilon", "links"):
        heads = ["scheme", "ARE", "ratio", "coverage", "NEES", "samples per slot", "packets", "bytes", "ε moving"]
        body = [
            [
                row["scheme"],
                f"{row['are']:.4g}",
                _ratio(row["ratio"]),
                f"{row['coverage']:.3f}",
                f"{row['nees']:.2f}",
                f"{row['frequency']:.3g}",
                f"{row['packets']:,.0f}",
                f"{row['bytes']:,.0f}",
                f"{row['paid']:.3g}",
            ]
            for row in sorted(_find(rows, data=data, epsilon=epsilon, links=links), key=lambda row: row["ratio"][0])
        ]
        lines += _table(f"{data}, ε = {epsilon:g}, {links}", heads, body)
    return lines


def _staggered_table(rows: list[Row]) -> list[str]:
    keys = ["to dpcrowd, staggered", "to dpcrowd-w, staggered"]
    body = []
    for row in rows:
        if row["scheme"].startswith("relay"):
            mates = _find(rows, data=row["data"], epsilon=row["epsilon"], links=row["links"])
            intervals = [mate["interval"] for mate in mates if "interval" in mate]
            where = f"{row['data']}, ε={row['epsilon']:g}, {row['links']}"
            shown = [f"{_ratio(row[key])} (I={i})" for key, i in zip(keys, intervals, strict=True)]
            body.append([where, row["scheme"], *shown])
    heads = ["cell", "scheme", "/ DPCrowd, staggered", "/ DPCrowd_w, staggered"]
    return _table("Against staggered sampling at its best interval", heads, body) if body else []


def _frontier_tables(rows: list[Row]) -> list[str]:
    return [line for table in communication_tables(rows) if table[2] for line in _table(*table)]


def _coverage_table(rows: list[Row]) -> list[str]:
    cells = _cells(rows, "data", "epsilon")
    schemes = list(dict.fromkeys(row["scheme"] for row in rows))
    body = []
    for data, epsilon in cells:
        by_scheme = {row["scheme"]: row for row in _find(rows, data=data, epsilon=epsilon)}
        form = " (matrix)" if data == "multi-linear" else ""
        body.append([f"{data}{form}, ε={epsilon:g}", *(f"{by_scheme[scheme]['coverage']:.3f}" for scheme in schemes)])
    heads = ["cell", *(scheme.removeprefix("relay, ") for scheme in schemes)]
    return _table("Coverage of relay's 95% intervals", heads, body) if body else []


def _ledger_table(rows: list[Row]) -> list[str]:
    schemes = [scheme for scheme in dict.fromkeys(row["scheme"] for row in rows) if scheme.startswith("relay")]
    body = []
    for data, epsilon, links in _cells(rows, "data", "epsilon", "links"):
        by_scheme = {row["scheme"]: row for row in _find(rows, data=data, epsilon=epsilon, links=links)}
        paid = by_scheme["dpcrowd-plus, ledger per region"]["paid"] / epsilon
        ratios = [_ratio(by_scheme[scheme]["ratio"]) for scheme in schemes]
        body.append([f"{data}, ε={epsilon:g}, {links}", f"{paid:.1f} ε", *ratios])
    heads = ["cell", "DPCrowd+ pays", *schemes]
    return _table("Ratios to DPCrowd+ on a ledger per region", heads, body) if body else []


def _promise_table(rows: list[Row]) -> list[str]:
    body = [
        [
            f"{row['data']}, ε={row['epsilon']:g}",
            row["scheme"],
            f"{row['are']:.4g}",
            row.get("interval", ""),
            _ratio(row.get("relay")),
            _ratio(row.get("relay, K=1")),
        ]
        for row in rows
    ]
    heads = ["cell", "scheme", "ARE", "I", "relay K=3 / it", "relay K=1 / it"]
    return _table("One promise for the complete network", heads, body) if body else []


def _plan_table(rows: list[Row]) -> list[str]:
    body = [
        [
            f"{row['data']}, ε={row['epsilon']:g}, K={row['hops']}",
            f"{row['samples']}; {row['reach']}",
            f"{row['are']:.4g}",
            *(f"{row[key]:.4g} ({row[key] / row['are'] - 1.0:+.1%})" for key in ("predicted", "predicted_runs")),
            *(f"{row[key]:.4g} ({row[f'predicted_{key}'] / row[key] - 1.0:+.1%})" for key in ("mae", "rmse")),
            f"{row['predicted_claim'] / row['claimed_rmse'] - 1.0:+.1%}",
            f"{row['traffic']['bytes_per_slot'] / row['bytes'] - 1.0:+.0%}",
            _ratio(row["to_all"]),
            f"{row['bytes_to_all']:.2f}",
        ]
        for row in rows
    ]
    heads = [
        "cell",
        "n; reach",
        "ARE",
        "predicted",
        "levels of these runs",
        "MAE",
        "RMSE",
        "claimed",
        "bytes",
        "error / reach all",
        "bytes / all",
    ]
    return _table("What `dpcrowd plan` predicts, beside simulations", heads, body) if body else []


def _speed_table(rows: list[Row]) -> list[str]:
    body = [
        [f"{row['servers']:,}", row["links"], row["scheme"], f"{row['nanoseconds']:.0f}", f"{row['ratio']:.1f}"]
        for row in rows
    ]
    return _table("Speed", ["servers", "links", "scheme", "ns per server and slot", "/ DPCrowd"], body) if body else []


def _target_table(found: list[Target]) -> list[str]:
    missed = [target for target in found if not target.reached]
    body = [
        [target.what, f"{target.value:.3f}", f"{'≥' if target.at_least else '≤'} {target.bound:g}"] for target in missed
    ]
    if not found:
        return []
    if not missed:
        return ["", f"### Targets: all {len(found)} reached"]
    title = f"Targets: {len(found) - len(missed)} of {len(found)} reached; these are missed"
    return _table(title, ["what", "measured", "target"], body)


# ------------------------------------------------------------------------------------------------------------- figure


def draw(results: Results, path: Path) -> None:
    """Draw ratios to DPCrowd in every cell."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "dpcrowd"
    from matplotlib import pyplot as plt

    rows = results["table"]
    figure, axis = plt.subplots(figsize=(8, 7))
    cells = _cells(rows, "data", "epsilon", "links")
    highlighted = {
        "relay, K=1": ("C0", "o"),
        "relay, K=3": ("C3", "s"),
        "relay, reach 1": ("C2", "^"),
        "everything at once": ("k", "|"),
    }
    for number, (data, epsilon, links) in enumerate(cells):
        for row in _find(rows, data=data, epsilon=epsilon, links=links):
            colour, mark = highlighted.get(row["scheme"], ("0.75", "x"))
            if row["scheme"] not in highlighted and (row["scheme"].startswith("relay") or "matrix" in row["scheme"]):
                continue
            ratio, low, high = row["ratio"]
            if low is not None and row["scheme"] in highlighted:
                axis.plot([low, high], [number, number], color=colour, linewidth=1)
            axis.plot(ratio, number, mark, color=colour, zorder=3 if row["scheme"] in highlighted else 1)
    for label, (colour, mark) in {**highlighted, "other schemes": ("0.75", "x")}.items():
        axis.plot([], [], mark, color=colour, label=label)
    axis.set_yticks(range(len(cells)), [f"{data}, ε={epsilon:g}, {links}" for data, epsilon, links in cells])
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.axvline(1.0, color="0.5", linewidth=0.5)
    axis.set_xlabel("error relative to DPCrowd (DPCrowd+ where there are many regions)")
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
