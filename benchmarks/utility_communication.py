"""Communication of relay and of all other schemes: tables of the frontier, and the figure of error against bytes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dpcrowd.experiments.relay_table import Ratio

__all__ = ["FLOODING", "communication_tables", "draw_communication", "undominated"]

Row = dict[str, Any]
FLOODING = ("dfast", "drescuedp", "dbd", "dba", "dpegasus", "duniform", "dsample")
_STAGGERED = "dpcrowd-w, staggered"
_REACHES = (("1", "C2"), ("2", "C1"), ("3", "C4"), ("all", "C0"))


def cells_of(rows: Iterable[Row]) -> list[tuple[str, float]]:
    """Return data set and budget of every cell, in the order of the rows."""
    return list(dict.fromkeys((row["data"], row["epsilon"]) for row in rows))


def undominated(rows: Iterable[Row], cost: str = "bytes") -> list[Row]:
    """Return the rows below whose error none goes that sends as much or less, from the cheapest on."""
    best: list[Row] = []
    for row in sorted(rows, key=lambda row: (row[cost], row["are"])):
        if row[cost] > 0 and (not best or row["are"] < best[-1]["are"]):
            best.append(row)
    return best


def _in_cell(rows: list[Row], data: str, epsilon: float) -> list[Row]:
    return [row for row in rows if row["data"] == data and row["epsilon"] == epsilon and row["packets"] > 0]


def _within(row: Row, cost: str) -> str:
    """Return the best relay that costs no more: ratio of errors and setting."""
    best = row.get(f"relay within {cost}")
    return "none" if best is None else f"{Ratio(*best[1:])} {best[0].removeprefix('relay, ')}"


def communication_tables(rows: list[Row]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return (title, heads, rows) of the tables: flooding schemes, the others that send, and the frontier."""
    flooding, others, frontier = [], [], []
    for data, epsilon in cells_of(rows):
        cell, where = _in_cell(rows, data, epsilon), f"{data}, ε={epsilon:g}"
        flooded = [row for row in cell if row["scheme"] in FLOODING]
        if flooded:
            nearest = max(flooded, key=lambda row: row.get("relay within bytes", ["", float("inf")])[1])
            least = min(row["are"] for row in flooded)
            cheaper = [row for row in cell if row["scheme"].startswith("relay") and row["are"] < least]
            cheapest = min(cheaper, key=lambda row: row["bytes"], default=None)
            flooding.append(
                [
                    where,
                    f"{nearest['bytes']:,.0f}",
                    nearest["scheme"],
                    _within(nearest, "bytes"),
                    "none"
                    if cheapest is None
                    else f"{cheapest['scheme'].removeprefix('relay, ')}: {cheapest['bytes']:,.0f} bytes, "
                    f"{cheapest['are'] / least:.2f} of the error",
                ]
            )
        for row in cell:
            if row["scheme"] not in FLOODING and not row["scheme"].startswith("relay"):
                numbers = [f"{row['are']:.4g}", f"{row['packets']:,.1f}", f"{row['bytes']:,.0f}"]
                others.append([where, row["scheme"], *numbers, _within(row, "packets"), _within(row, "bytes")])
        for row in undominated(cell):
            numbers = [f"{row['bytes']:,.0f}", f"{row['packets']:,.1f}", f"{row['are']:.4g}"]
            frontier.append([where, row["scheme"], *numbers])
    return [
        (
            "Communication: flooding schemes",
            [
                "cell",
                "bytes per slot",
                "closest flooding scheme",
                "best relay within its bytes",
                "cheapest relay below all",
            ],
            flooding,
        ),
        (
            "Communication: other schemes that send",
            [
                "cell",
                "scheme",
                "ARE",
                "packets",
                "bytes",
                "best relay within the packets",
                "best relay within the bytes",
            ],
            others,
        ),
        (
            "Communication: the frontier (nothing has less error with as many bytes or fewer)",
            ["cell", "scheme", "bytes", "packets", "ARE"],
            frontier,
        ),
    ]


def draw_communication(rows: list[Row], path: Path) -> None:
    """Draw error against bytes and against packets, one column per data set, one row per budget and cost."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "dpcrowd", "svg.fonttype": "none"})
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(row["data"] for row in rows))
    epsilons = list(dict.fromkeys(row["epsilon"] for row in rows))
    kinds = [(cost, epsilon) for cost in ("bytes", "packets") for epsilon in epsilons]
    size = (4.2 * len(names), 3.4 * len(kinds) + 0.7)
    figure, axes = plt.subplots(len(kinds), len(names), figsize=size, squeeze=False)
    for line, (cost, epsilon) in enumerate(kinds):
        for column, data in enumerate(names):
            axis = axes[line][column]
            _draw_cell(axis, _in_cell(rows, data, epsilon), cost)
            axis.set_title(f"{data}, ε = {epsilon:g}", fontsize=10)
            axis.set_xlabel(f"{cost} per slot, all servers", fontsize=9)
            axis.set_ylabel("ARE" if column == 0 else "", fontsize=9)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=6, fontsize=9)
    figure.tight_layout(rect=(0, 0.7 / size[1], 1, 1))
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _draw_cell(axis: Any, rows: list[Row], cost: str) -> None:
    from matplotlib.ticker import LogLocator

    for reach, colour in _REACHES:
        for hops, style in ((1, "o-"), (3, "s--")):
            line = [row for row in rows if row["scheme"].startswith(f"relay, reach {reach}, K={hops},")]
            _plot(axis, line, cost, style, colour, f"relay, reach {reach}, K={hops}")
    _plot(axis, [r for r in rows if r["scheme"].startswith(_STAGGERED)], cost, "v:", "C3", "DPCrowd_w, staggered")
    one_hop = [row for row in rows if row["scheme"] in ("dpcrowd", "dpcrowd-w", "dpcrowd-plus")]
    for row, mark in zip(one_hop, "*PX", strict=False):
        name = {"dpcrowd": "DPCrowd", "dpcrowd-w": "DPCrowd_w", "dpcrowd-plus": "DPCrowd+"}[row["scheme"]]
        axis.plot(row[cost], row["are"], mark, color="k", markersize=8, label=name)
    _plot(axis, [row for row in rows if row["scheme"] in FLOODING], cost, "x", "0.5", "flooding schemes")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.minorticks_off()  # they would be most of the file
    axis.tick_params(labelsize=8)


def _plot(axis: Any, rows: list[Row], cost: str, style: str, colour: str, label: str) -> None:
    if rows:
        line = sorted(rows, key=lambda row: row[cost])
        x, y = [row[cost] for row in line], [row["are"] for row in line]
        axis.plot(x, y, style, color=colour, markersize=4, linewidth=1, label=label)
