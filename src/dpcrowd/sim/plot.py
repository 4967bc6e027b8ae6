"""A plot of the errors over time, with matplotlib's classes: without global state, and without a display."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.sim.export import check_writable, refuse_failed_write
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.result import SimulationResult, exhaustion
from dpcrowd.sim.statistics import means_with_halves

__all__ = ["check_plot_path", "plot_errors"]

_ENDINGS = (".png", ".svg", ".pdf")
_PANELS = {
    "total_error_by_slot": "total error: sum of |error| / sum of people",
    "are_by_slot": "average relative error",
    "ace_by_slot": "average consensus error",
}
_LINES = ("-", "--", "-.", ":")


def check_plot_path(path: Path) -> None:
    """Refuse, before any work is done, a path to which nothing can be drawn."""
    if path.suffix.lower() not in _ENDINGS:
        raise BadInput(f"cannot draw to '{path.name}'; allowed endings: {', '.join(_ENDINGS)}.")
    check_writable(path)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("matplotlib", "plot", "drawing") from None


def plot_errors(result: SimulationResult, path: Path) -> None:
    """Plot total error, ARE and ACE of each slot: the mean over the runs, and a band for its 95% interval.

    Slots that are not scored (burn-in) are shaded. A cross marks the slot in which the budget of a finite scheme was
    exhausted, where that happened, and the legend says at which part of the servers; another one marks the end of a
    horizon that ends before the data. The legend has the total error and the
    coverage of each scheme, too, over all scored slots. Results that were stored have no total error by slot.
    """
    check_plot_path(path)
    from matplotlib.figure import Figure

    names = dict(_PANELS)
    if any(record.total_error_by_slot is None for record in result.records.values()):
        del names["total_error_by_slot"]
    figure = Figure(figsize=(4 * len(names) + 3, 4), layout="constrained")
    panels = figure.subplots(1, len(names))
    burn_in = max((setup.get("burn_in", 0) for setup in result.setup.values()), default=0)
    labels = {row["scheme"]: _label(row) for row in result.summary()}
    for panel, (field, title) in zip(panels, names.items(), strict=True):
        for number, record in enumerate(result.records.values()):
            mean, half = means_with_halves(getattr(record, field))
            half = np.where(np.isnan(half), 0.0, half)  # one run has no interval
            slots = np.arange(len(mean))
            style = _LINES[number // 10 % len(_LINES)]  # matplotlib's colours repeat after ten
            (line,) = panel.plot(slots, mean, label=labels[record.label], linewidth=1.2, linestyle=style)
            # A band that reached 0 would run down to the bottom of a logarithmic axis.
            low = np.maximum(mean - half, mean / 10)
            panel.fill_between(slots, low, mean + half, color=line.get_color(), alpha=0.2, linewidth=0)
        for line, record in zip(panel.get_lines(), result.records.values(), strict=True):
            for slot, text in _ends(record):
                # Above all lines and with an edge: among lines that rise and fall a cross of their colours is lost.
                cross = {"marker": "X", "s": 70, "color": line.get_color(), "edgecolors": "black", "zorder": 5}
                label = f"{record.label}: {text}"
                panel.scatter([slot], line.get_ydata()[slot], linewidths=0.8, label=label, **cross)
        if burn_in > 0:
            text = f"not scored: slot{'s 0 to' if burn_in > 1 else ''} {burn_in - 1} (burn-in)"
            panel.axvspan(-0.5, burn_in - 0.5, color="0.88", zorder=0, linewidth=0, label=text)
        panel.set_xlabel("slot")
        panel.set_ylabel(title)
        # Flooding agrees up to rounding: a logarithmic axis down to 1e-13 would show nothing else.
        logarithmic = field != "ace_by_slot" and any((line.get_ydata() > 0).any() for line in panel.lines)
        panel.set_yscale("log" if logarithmic else "symlog")
        panel.grid(alpha=0.3)
    runs = max(len(record.runs) for record in result.records.values())
    band = "; bands: 95% interval" if runs > 1 else ""
    figure.suptitle(f"mean of {runs} run{'s' if runs > 1 else ''}{band}", fontsize="medium")
    handles = panels[0].get_legend_handles_labels()
    title = "scheme: total error; coverage"
    figure.legend(*handles, loc="outside right upper", fontsize="small", title=title, title_fontsize="small")
    with refuse_failed_write(path):
        figure.savefig(path)


def _ends(record: RunRecords) -> Iterator[tuple[int, str]]:
    """Yield the slots in which a budget and a horizon ended before the data, and what that means in words."""
    budget = exhaustion(record)
    slot, end = budget["exhausted_at"], budget["horizon_over_at"]
    if slot is not None:
        yield slot, f"budget exhausted at slot {slot}\n({budget['exhausted_servers']:.0%} of the servers)"
    if end is not None and budget["exhausted_servers"] < 1.0:
        yield end, f"horizon over at slot {end},\nno samples since"


def _label(row: dict[str, Any]) -> str:
    """Return a scheme with its total error and the coverage of its intervals, if it has any."""
    error, coverage = row["total_error"]["mean"], row["coverage95"]
    shown = ["–" if error is None else f"{error:.3g}", "no intervals" if coverage is None else f"{coverage:.1%}"]
    return f"{row['scheme']}: {'; '.join(shown)}"
