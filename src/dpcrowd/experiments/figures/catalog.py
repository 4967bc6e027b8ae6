"""The catalogue of figures: seven of the paper, two that we add, and one for schemes of other packages.

Each entry defines its sweeps and the panels that show them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.experiments.figures.figure import (
    DATA_NAMES,
    ERRORS,
    METRIC_NAMES,
    Curve,
    Figure,
    Layout,
    Panel,
    Sweep,
    error_panels,
)
from dpcrowd.experiments.figures.plugins import plugin_panels, plugin_sweeps
from dpcrowd.experiments.figures.rosters import (
    ABOUT_CENTRAL,
    ABOUT_RELAY,
    AT_ONCE,
    RELAY,
    adaptive,
    fixed,
    regions,
    single,
    with_at_once,
)
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.points.point import Point, SchemeEntry
from dpcrowd.experiments.points.run import Results
from dpcrowd.privacy import Accounting

__all__ = ["ADDED", "FIGURES", "LEDGERS", "LEDGER_NAMES", "RELAY_TABLE", "find_figures"]

LEDGERS: tuple[Accounting, ...] = ("per-region", "sound")
LEDGER_NAMES = {"per-region": "the paper's ledger", "sound": "sound ledger"}
RELAY_TABLE = "relay"
"""The name of the report's table of relay beside DPCrowd, which is asked for like a figure."""

_INTERVAL = "sampling interval I (slots)"
_BUDGET = "privacy budget ε"


def _time_sweeps(plan: RunPlan) -> list[Sweep]:
    """Return sweeps of all schemes with the parameters of the paper's table, slot by slot."""

    def point(data: str) -> Point:
        roster = single("fast", "dfast", "dpcrowd")
        return Point(data, roster, epsilon=plan.default_epsilon, density=plan.default_density, by_slot=True)

    return [Sweep(data, "ε", with_at_once([(plan.default_epsilon, point(data))])) for data in plan.single]


def _density_sweeps(plan: RunPlan, sets: Iterable[str], epsilons: Iterable[float]) -> list[Sweep]:
    """Return sweeps of DPCrowd and DFAST over the densities of random networks."""
    roster = single("dfast", "dpcrowd")
    return [
        Sweep(
            data,
            "ρ",
            with_at_once(
                (density, Point(data, roster, epsilon=epsilon, density=density)) for density in plan.densities
            ),
            f"ε={epsilon:g}",
        )
        for data in sets
        for epsilon in epsilons
    ]


def _interval_sweeps(plan: RunPlan, *, with_adaptive: bool = True) -> list[Sweep]:
    """Return sweeps of DPCrowd over fixed intervals I; schemes without an interval have one point for every I."""

    def point(data: str, roster: tuple[SchemeEntry, ...]) -> Point:
        return Point(data, roster, epsilon=plan.default_epsilon, density=plan.default_density)

    def sweep(data: str) -> Sweep:
        level = [(float(i), point(data, adaptive())) for i in plan.intervals] if with_adaptive else []
        return Sweep(data, "I", with_at_once([*level, *((float(i), point(data, fixed(i))) for i in plan.intervals)]))

    return [sweep(data) for data in plan.single]


def _epsilon_sweeps(plan: RunPlan) -> list[Sweep]:
    """Return sweeps of all schemes for one region over the budgets."""
    roster = single("fast", "dfast", "dpcrowd", flooded=True)

    def point(data: str, epsilon: float) -> Point:
        return Point(data, roster, epsilon=epsilon, density=plan.default_density)

    return [Sweep(data, "ε", with_at_once((e, point(data, e)) for e in plan.epsilons)) for data in plan.single]


def _region_sweeps(plan: RunPlan, symbol: str, settings: Iterable[tuple[float, float, int]]) -> list[Sweep]:
    """Return sweeps of all schemes for many regions over (x, ε, w) under both ledgers.

    The matrix form of DPCrowd+ is added at the default setting; it is the last point of each sweep.
    """
    settings = list(settings)
    default = plan.default_epsilon if symbol == "ε" else float(plan.default_window)
    matrix = (SchemeEntry("dpcrowd-plus-matrix", "dpcrowd-plus"),)

    def point(data: str, ledger: Accounting, epsilon: float, window: int) -> Point:
        density = plan.default_density
        return Point(data, regions(), epsilon=epsilon, density=density, window=window, accounting=ledger)

    def matrix_point(data: str, ledger: Accounting) -> Point:
        return Point(
            data,
            matrix,
            epsilon=plan.default_epsilon,
            density=plan.default_density,
            window=plan.default_window,
            accounting=ledger,
            form="matrix",
            most_runs=plan.matrix_runs,
        )

    return [
        Sweep(
            data,
            symbol,
            (
                *with_at_once((x, point(data, ledger, e, w)) for x, e, w in settings),
                (default, matrix_point(data, ledger)),
            ),
            LEDGER_NAMES[ledger],
        )
        for data in plan.multi
        for ledger in LEDGERS
    ]


def _window_sweeps(plan: RunPlan) -> list[Sweep]:
    return _region_sweeps(plan, "w", ((float(w), plan.default_epsilon, w) for w in plan.windows))


def _region_epsilon_sweeps(plan: RunPlan) -> list[Sweep]:
    return _region_sweeps(plan, "ε", ((epsilon, epsilon, plan.default_window) for epsilon in plan.epsilons))


def _partition_sweeps(plan: RunPlan) -> list[Sweep]:
    """Return sweeps of all schemes over the least, the largest and, in a full plan, a middle budget.

    Every user is at one server: shares sum to 1, elsewhere to about 26. Counts are binomial draws of the population; a
    server sees 2% of it on average, so that noise weighs 25 times more than elsewhere.
    """
    between = () if plan.quick else (plan.epsilons[len(plan.epsilons) // 2],)
    budgets = (plan.epsilons[0], *between, plan.epsilons[-1])

    def point(data: str, epsilon: float) -> Point:
        many_regions = data in plan.multi
        roster = regions() if many_regions else single("fast", "dfast", "dpcrowd", flooded=True)
        window = plan.default_window if many_regions else None
        return Point(data, roster, epsilon=epsilon, density=plan.default_density, window=window, shares="partition")

    sets = (*plan.single, *plan.multi)
    return [Sweep(data, "ε", with_at_once((e, point(data, e)) for e in budgets), "partition") for data in sets]


def _time_panels(sweeps: Sequence[Sweep], results: Results) -> list[Panel]:
    return [
        Panel(
            f"{sweep.name}: {metric.upper()} over time",
            "slot",
            METRIC_NAMES[metric],
            tuple(sweep.over_time(results, label, metric) for label in sweep.labels),
            row=row,
        )
        for row, sweep in enumerate(sweeps)
        for metric in ERRORS
    ]


def _communication_panels(sweeps: Sequence[Sweep], results: Results) -> list[Panel]:
    density, *intervals = sweeps
    ours = (RELAY.label, AT_ONCE.label)
    costs = {"latency_ms": ("dfast", "dpcrowd", *ours), "packets_per_slot": ("dfast", "dpcrowd", "central", *ours)}
    frequency = METRIC_NAMES["frequency"]
    return [
        *(
            Panel(
                f"{METRIC_NAMES[metric]}, {DATA_NAMES[density.data]}",
                "density ρ",
                METRIC_NAMES[metric],
                tuple(density.curve(results, label, metric) for label in labels),
            )
            for metric, labels in costs.items()
        ),
        *(
            Panel(
                f"{sweep.name}: {frequency}",
                _INTERVAL,
                frequency,
                tuple(
                    sweep.curve(results, label, "frequency")
                    for label in ("dpcrowd-fixed", "dpcrowd-adaptive", "uniform", "sample", *ours)
                ),
                row=1,
                log_x=True,
            )
            for sweep in intervals
        ),
    ]


def _region_panels(x_label: str) -> Layout:
    """Return a layout with a row per data set and metric and a column per ledger; notes say what moving users pay."""

    def layout(sweeps: Sequence[Sweep], results: Results) -> list[Panel]:
        rows = [(data, metric) for data in dict.fromkeys(sweep.data for sweep in sweeps) for metric in ERRORS]
        return [
            Panel(
                f"{sweep.name}: {metric.upper()}",
                x_label,
                METRIC_NAMES[metric],
                tuple(sweep.curve(results, label, metric, _payment(sweep, results, label)) for label in sweep.labels),
                row=row,
            )
            for row, (data, metric) in enumerate(rows)
            for sweep in sweeps
            if sweep.data == data
        ]

    return layout


def _payment(sweep: Sweep, results: Results, label: str) -> str:
    """Return the note on what a moving user pays at most: at the default x and, in brackets, at any x.

    It is empty where that is never more than ε.
    """
    (default, _) = sweep.points[-1]  # the point of the matrix form
    payments = {
        x: max((p.epsilons()["moving"] for p in results[point][label].paid), default=0.0) / point.epsilon
        for x, point in sweep.of(label)
    }
    if sweep.points[0][1].accounting != "per-region" or max(payments.values()) <= 1.0:
        return ""
    most = f"{max(payments.values()):.3g}×ε"
    if default not in payments:
        return f"moving user pays at most: {most}"
    usual = f"{payments[default]:.3g}×ε"
    range_of_payments = usual + (f" ({most})" if most != usual else "")
    return f"moving user pays at {sweep.symbol} = {default:g} (at most): {range_of_payments}"


def _analysis_panels(sweeps: Sequence[Sweep], results: Results) -> list[Panel]:
    """Return panels of the measured error and of two predictions.

    The variance M of DPCrowd's filter includes the neighbours' information; that of FAST with the same samples is the
    printed form.
    """
    sources = {
        "measured": ("dpcrowd-fixed", "mse"),
        "predicted": ("dpcrowd-fixed", "claimed_mse"),
        "predicted-printed": ("fast-fixed", "claimed_mse"),
    }

    def curve(sweep: Sweep, name: str) -> Curve:
        label, metric = sources[name]
        scores = sweep.curve(results, label, metric)
        return Curve(name, scores.x, scores.points)

    return [
        Panel(
            f"{sweep.name}: mean squared error",
            _INTERVAL,
            "mean squared error (people²)",
            tuple(curve(sweep, name) for name in sources),
            log_x=True,
        )
        for sweep in sweeps
    ]


_ABOUT_LEDGERS = (
    "Left: the paper's accounting, one ledger per region; the legend says what a user who moves between regions really "
    "pays, at the default setting and, in brackets, at any that is drawn. Right: the sound accounting, one ledger per "
    "server, at the same ε. Relay is always on the sound ledger, so its lines are the same on both sides. The star is "
    "the matrix form of DPCrowd+ at one point; its bar may leave the panel. "
    f"{ABOUT_RELAY} {ABOUT_CENTRAL}"
)

FIGURES: tuple[Figure, ...] = (
    Figure(
        1,
        "time",
        "Error over time",
        "Fig. Error Convergence with Time",
        _time_sweeps,
        _time_panels,
        "Mean over servers and runs in each slot, including the start. DFAST's servers agree up to rounding in every "
        f"slot whose network is connected. {ABOUT_RELAY} {ABOUT_CENTRAL}",
    ),
    Figure(
        2,
        "density",
        "Error against network density",
        "Fig. Average Error vs. Network Density",
        lambda plan: _density_sweeps(plan, plan.single, plan.density_epsilons),
        error_panels("density ρ"),
        "ρ = 2·links/(m(m−1)); the network is drawn anew in each slot and isolates no server, but it need not be "
        f"connected: in a sparse slot flooding reaches only the servers of one part. {ABOUT_RELAY} {ABOUT_CENTRAL}",
    ),
    Figure(
        3,
        "interval",
        "Error against sampling interval",
        "Fig. Average Error vs. Sampling Interval",
        _interval_sweeps,
        error_panels(_INTERVAL, log_x=True, labels=tuple(entry.label for entry in (*fixed(1), *adaptive(), AT_ONCE))),
        "Fixed sampling divides ε by the number of its samples. Adaptive sampling, relay, Uniform, Sample and the "
        "central filter of the adaptive samples take no interval and are level lines; FAST-fixed and central-fixed "
        f"sample as DPCrowd-fixed does. {ABOUT_RELAY} {ABOUT_CENTRAL}",
    ),
    Figure(
        4,
        "epsilon",
        "Error against privacy budget, one region",
        "Fig. Average Error vs. Privacy",
        _epsilon_sweeps,
        error_panels(_BUDGET),
        "ε for all check-ins of a user at one server over the complete stream. DUniform and DSample are Uniform and "
        f"Sample whose values are flooded and averaged, as DFAST does with FAST's. {ABOUT_RELAY} {ABOUT_CENTRAL}",
    ),
    Figure(
        5,
        "communication",
        "Communication: latency, packets, frequency",
        "Fig. Communication Efficiency of DPCrowd",
        # These are sweeps of figures 2 and 3: no further simulation is needed.
        lambda plan: [*_density_sweeps(plan, ("linear",), (plan.default_epsilon,)), *_interval_sweeps(plan)],
        _communication_panels,
        "A packet is one message with data over one link; the heartbeats of live servers are not counted. Latency: the "
        "last arrival in a slot, links of 50 to 150 ms; flooding takes the fastest paths. The central filter has "
        "one packet per sample and no network; Uniform and Sample send nothing; their frequency, and that of relay, is "
        "how often they sample. Relay sends nothing back to where a record came from, and all records that "
        f"cross a link in one round are one packet. {ABOUT_RELAY}",
    ),
    Figure(
        6,
        "window",
        "Error against window size, many regions",
        "Fig. Average Error vs. Window Size",
        _window_sweeps,
        _region_panels("window size w (slots)"),
        _ABOUT_LEDGERS,
    ),
    Figure(
        7,
        "epsilon-regions",
        "Error against privacy budget, many regions",
        "Fig. Average Error vs. Privacy (DPCrowd+)",
        _region_epsilon_sweeps,
        _region_panels(_BUDGET),
        _ABOUT_LEDGERS,
    ),
    Figure(
        8,
        "partition",
        "The same against privacy budget, when every user is at one server",
        "not in the paper",
        _partition_sweeps,
        error_panels(_BUDGET),
        "Shares sum to 1; elsewhere, as in the paper, they sum to about half the number of servers, and a user counts "
        "at that many at once. Counts are binomial draws. Many regions under the sound ledger. ε holds for "
        "users who stay at one server. Servers do not sample in the same slots here, so a user who visits several of "
        "them pays more, up to ε times their number: epsilon_paid_roaming in the table of this figure says how much. "
        "One promise for the complete network, for users who roam, is measured in docs/relay-results.md. "
        f"{ABOUT_RELAY} {ABOUT_CENTRAL}",
    ),
    Figure(
        9,
        "error-analysis",
        "Predicted and measured error",
        "Eq. (error analysis), not drawn in the paper",
        # The fixed sampling of figure 3, as the analysis assumes.
        lambda plan: _interval_sweeps(plan, with_adaptive=False),
        _analysis_panels,
        "DPCrowd with fixed sampling. Predicted: the filter's own variance, with the neighbours' information; as "
        "printed: the recursion of the paper, which has only the server's own information. On Flu the model of the "
        "process is an assumption. Relay has no line here: the figure is about the recursion of DPCrowd's own filter.",
    ),
)


ADDED = Figure(
    10,
    "plugins",
    "Schemes, data and networks of other packages",
    "none: these were added to this report",
    plugin_sweeps,
    plugin_panels,
    "ε for all check-ins of a user at one server over the complete stream. A scheme of another package is named with "
    "that package, which answers for its promise: it is 'promised by' the package where the scheme passes dpcrowd's "
    f"checks, and 'claimed by' it where it does not. {ABOUT_RELAY}",
)
"""Drawn only if schemes, data or a network of other packages are added."""


def find_figures(names: tuple[str, ...], *, added: bool = False) -> tuple[Figure, ...]:
    """Return figures by number or name, in the order of their numbers; all of them if `names` is empty.

    If schemes, data or a network of other packages are added, their figure is always among them.
    `RELAY_TABLE` is an allowed name, but no figure: whoever asks for the table alone gets no figures.
    """
    figures = (*FIGURES, ADDED) if added else FIGURES
    by_name = {key: figure for figure in figures for key in (str(figure.number), figure.name)}
    for name in names:
        if name in (str(ADDED.number), ADDED.name) and not added:
            raise BadInput(
                f"figure {ADDED.number} ({ADDED.name}) compares schemes, data sets or a topology of other packages, "
                "and none was given; give --scheme, --data or --graph (in Python: schemes, data or graph)."
            )
        if name not in by_name and name != RELAY_TABLE:
            raise unknown_name("figure", name, [*by_name, RELAY_TABLE])
    numbers = {by_name[name].number for name in names if name in by_name}
    return tuple(figure for figure in figures if not names or figure is ADDED or figure.number in numbers)
