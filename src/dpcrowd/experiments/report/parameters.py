"""The paper's parameter table with the values in use, and the values that are swept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dpcrowd.experiments.figures.figure import DATA_NAMES
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.filters import ProcessModel
from dpcrowd.sim.data import DataSet

__all__ = ["PageTable", "UsedValue", "parameter_table", "shares_label", "shares_note", "sweep_table"]

_ABSENT = "not given"
_SHARES = "The {label}, from U(0, 1)): a user counts at many servers, as in the paper; figure 8 is for a partition."
_LEAST_SHARE = 0.05

Used = Callable[[RunPlan, DataSet], str]
# Symbol, description, the paper's values for Linear, Flu, Multi-Linear and Multi-Flu, and the value in use.
_TABLE: tuple[tuple[str, str, tuple[str, str, str, str], Used], ...] = (
    ("ε", "privacy budget, where it is not swept", ("1", "1", "1", "1"), lambda plan, _: f"{plan.default_epsilon:g}"),
    ("d", "regions", ("1", "1", "6", "51"), lambda _, data: str(len(data.regions))),
    ("T", "slots", ("1000", "791", "1000", "441"), lambda _, data: str(data.slots)),
    ("(C_p, C_i, C_d)", "PID gains", ("(0.9, 0.1, 0)",) * 4, lambda _, data: _listed(data.tuning.gains)),
    ("T_i", "integral window", ("5",) * 4, lambda _, data: str(data.tuning.integral_window)),
    (
        "T_s",
        "most samples of FAST and DPCrowd",
        ("0.3 T", "0.4 T", "N/A", "N/A"),
        lambda _, data: f"{data.tuning.sample_fraction:g} T",
    ),
    (
        "(θ, ξ)",
        "interval adjustment of FAST and DPCrowd",
        ("(2.5, 0.05)", "(1, 0.6)", "N/A", "N/A"),
        lambda _, data: _listed((data.tuning.theta, data.tuning.xi)),
    ),
    (
        "θ",
        "interval adjustment of RescueDP and DPCrowd+",
        ("N/A", "N/A", "1", "3"),
        lambda _, data: f"{data.tuning.rescue_theta:g}",
    ),
    ("δ", "smallest denominator of a relative error", ("1",) * 4, lambda _, data: f"{data.tuning.floor:g}"),
    ("Q", "process variance", ("100,000", *(_ABSENT,) * 3), lambda _, data: _variances(data.model)),
    ("A", "transition", ("1", "1", *(_ABSENT,) * 2), lambda _, data: _transition(data.model)),
    ("α", "weight of the noise in R̂", (_ABSENT,) * 4, lambda _, data: f"{data.tuning.alpha:g}"),
    (
        "(φ, p_max, ε_max)",
        "budget allocation of RescueDP",
        (_ABSENT,) * 4,
        lambda _, data: _listed((data.tuning.phi, data.tuning.p_max, data.tuning.epsilon_max)),
    ),
    (
        "(τ₁, τ₂, τ₃, κ)",
        "dynamic grouping",
        (_ABSENT,) * 4,
        lambda _, data: _listed((data.tuning.tau1, data.tuning.tau2, data.tuning.tau3, data.tuning.history)),
    ),
)
_COLUMNS = tuple(DATA_NAMES)


@dataclass(frozen=True)
class UsedValue:
    """A value in use, and the value in the paper's table."""

    used: str
    paper: str


@dataclass(frozen=True)
class PageTable:
    """A table of the page; the first cell of a row is its name."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str | UsedValue]]


def shares_note(plan: RunPlan) -> str:
    """Return the sentence on the shares below the parameters."""
    return _SHARES.format(label=shares_label(plan.servers).removesuffix(")"))


def shares_label(servers: int) -> str:
    """Return what the shares of all servers sum to, here and in the paper."""
    ours, paper = 0.5 * (_LEAST_SHARE + 1.0) * servers, 0.5 * servers
    return f"shares sum to about {ours:.0f} (U({_LEAST_SHARE:g}, 1), {servers} servers; the paper's sum to {paper:.0f})"


def parameter_table(plan: RunPlan) -> PageTable:
    """Return the parameters; where the value in use differs from the paper's, the table has both."""
    present = [name for name in _COLUMNS if name in plan.data]
    rows: list[list[str | UsedValue]] = []
    for symbol, description, paper, used in _TABLE:
        stated = dict(zip(_COLUMNS, paper, strict=True))
        rows.append([symbol, description, *(UsedValue(used(plan, plan.data[name]), stated[name]) for name in present)])
    caption = "Parameters in use; in brackets the value of the paper's table, where it differs"
    return PageTable(caption, ["Symbol", "What it is", *(DATA_NAMES[name] for name in present)], rows)


def sweep_table(plan: RunPlan) -> PageTable:
    """Return the values of each setting that is swept, and its value while another one is swept."""
    rows = [
        ["density ρ", _plain(plan.densities), f"{plan.default_density:g}"],
        ["ε against density", _plain(plan.density_epsilons), "–"],
        ["sampling interval I", _plain(plan.intervals), "adaptive"],
        ["privacy budget ε", _plain(plan.epsilons), f"{plan.default_epsilon:g}"],
        ["window size w", _plain(plan.windows), str(plan.default_window)],
        ["servers m", "–", str(plan.servers)],
        ["runs per point", "–", f"{plan.runs} (matrix form: {min(plan.runs, plan.matrix_runs)})"],
    ]
    caption = (
        "Values that are swept, and the value of a setting while another is swept; the paper does not print its own"
    )
    return PageTable(caption, ["Setting", "Swept over", "Else"], rows)


def _plain(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _listed(values: Iterable[float]) -> str:
    return f"({_plain(values)})"


def _variances(model: ProcessModel) -> str:
    q = model.noise_var
    if len(q) == 1:
        return _number(q[0])
    return f"{_number(q.min())} to {_number(q.max())}, one per region"


def _number(value: float) -> str:
    """Return a number with three digits, without powers of ten."""
    return f"{value:.3g}" if value < 1000 else f"{float(f'{value:.3g}'):,.0f}"


def _transition(model: ProcessModel) -> str:
    if model.transition.ndim == 2:
        return "a full matrix (diagonal form: 1)"
    return "1" if (model.transition == 1.0).all() else f"{_plain(model.transition.ravel())}"
