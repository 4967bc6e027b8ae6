"""`dpcrowd tune`: find the parameters of a scheme on public data, as a table, JSON or a TOML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dpcrowd.cli import options
from dpcrowd.cli.option_names import notes_with_options

__all__ = ["tune"]


@click.command()
@click.option(
    "--scheme",
    required=True,
    metavar="NAME",
    help="Scheme to tune: central, fast, dfast, dpcrowd, dpcrowd-w, dpcrowd-plus, rescuedp or drescuedp.",
)
@options.data
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Process model written by `dpcrowd fit`, which the filters know while evolution searches. It is public.",
)
@click.option(
    "--method",
    default="evolution",
    show_default=True,
    help="evolution (smallest score on the runs), or likelihood (Q only, from simulated noisy samples).",
)
@click.option(
    "--objective",
    default="crps",
    show_default=True,
    help="Score that evolution minimises: crps (of estimates with their intervals), or are (relative error alone).",
)
@click.option(
    "--search-variance",
    is_flag=True,
    help="Let evolution search Q, too, with objective crps; `dpcrowd fit` and --method likelihood are better at it.",
)
@click.option(
    "--transition",
    help="Transition matrix A: identity, or frequencies (of moves between regions).  [default: that of the data set]",
)
@click.option(
    "--span",
    metavar="FIRST:LAST",
    help="Tune on these slots only, such as 0:395 or 0:0.5.  [default: the first half; all slots of synthetic data]",
)
@options.epsilon
@options.window
@click.option("--servers", default=50, show_default=True, type=int, help="Number of servers.")
@click.option("--density", type=float, help="Density 2·links/(m(m−1)) of the network.  [default: 0.1 where possible]")
@click.option("--runs", default=4, show_default=True, type=int, help="Number of runs on which parameters are compared.")
@click.option(
    "--seed", default=0, show_default=True, type=int, help="Seed of the search; the same seed gives the same result."
)
@click.option(
    "--evaluations", type=int, help="Number of parameter sets that evolution tries.  [default: 240, about a minute]"
)
@options.accounting
@options.users
@options.observation
@options.shares
@options.form
@click.option(
    "--burn-in",
    type=int,
    help="First slot that is included in the error.  [default: a tenth of the slots that are tuned on, at most 20]",
)
@click.option(
    "--allow-exhausted",
    is_flag=True,
    help="Take the best score, even if the budget is exhausted before the end.  [default: a budget that lasts is "
    "preferred among parameters that are no worse than before]",
)
@options.slots
@options.regions
@options.slot_length
@options.round_counts
@options.gaps
@options.header
@options.data_dir
@click.option(
    "--jobs", type=int, help="Number of processes; it does not change the result.  [default: as many as save time]"
)
@options.as_json
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the parameters into a TOML file for `dpcrowd simulate --tuning FILE`.",
)
def tune(data: str, regions: str | None, evaluations: int | None, as_json: bool, **settings: Any) -> None:
    """Find a scheme's parameters on public data, or on counts of people outside the promise.

    It reads counts. Past releases of a network tell of the crowd, too: `dpcrowd fit --releases` fits a model on them.

    Evolution searches theta, xi and T_s/T (or RescueDP's theta) for the best estimates with their intervals. Q, which
    decides how wide these are, stays as it is: `dpcrowd fit` finds it.
    Likelihood finds Q alone, from noisy samples that it simulates from the counts. No ledger pays for them: it is for
    public data as well. Only what a network has really released costs nothing further; that is for `dpcrowd fit`.
    With a process model of `dpcrowd fit`, the sampling is searched for filters that know it; the file says which.
    """
    from dpcrowd.cli.console import progress_bar
    from dpcrowd.experiments.tune.tune import EVALUATIONS
    from dpcrowd.experiments.tune.tune import tune as run

    with progress_bar("tuning") as progress:
        tuned = run(
            settings.pop("scheme"),
            data,
            evaluations=EVALUATIONS if evaluations is None else evaluations,
            regions=None if regions is None else [name.strip() for name in regions.split(",")],
            progress=progress,
            **settings,
        )
    if as_json:
        click.echo(json.dumps({"tuned": _plain(tuned)}))
        return
    _print_table(tuned, settings["out"], allowed=settings["allow_exhausted"])


_WORSE = 1.02
"""By how much the relative error may grow before it is worth a note."""


def _is_unchanged(tuned: Any) -> bool:
    """Whether evolution has found nothing better than the parameters with which it began."""
    scores = _objective(tuned)
    return scores is not None and scores[0] == scores[1]


def _objective(tuned: Any) -> tuple[float, float] | None:
    """Return the score that evolution has minimised, before and after; None of another method."""
    scores = {"crps": (tuned.crps_before, tuned.crps_after), "are": (tuned.are_before, tuned.are_after)}
    return scores.get(tuned.objective)


def _plain(tuned: Any) -> dict[str, Any]:
    """Return the content of the file as one flat dictionary; an error that is not finite is None."""
    from dpcrowd.sim.tuned import SECTIONS

    origin = {key: getattr(tuned, "version" if key == "dpcrowd" else key) for key in SECTIONS["tuned"]}
    for key, value in origin.items():
        if isinstance(value, float) and not abs(value) < float("inf"):
            origin[key] = None
    process = {"process_var": tuned.model.process_var.tolist(), "transition": tuned.model.transition.tolist()}
    return {**origin, **process, **tuned.tuning}


def _exhaustion(tuned: Any, *, allowed: bool) -> str:
    """Return the warning that servers run out of budget with these parameters, and what to do."""
    text = (
        f"warning: budget exhausted at slot {tuned.exhausted_at}, of slots {tuned.first} to {tuned.last - 1} (median "
        f"of {tuned.exhausted_servers:.0%} of the servers); from there on they take no samples"
    )
    if tuned.method == "likelihood":
        return f"{text}. Likelihood does not change the sampling; --method evolution does."
    if allowed:
        return f"{text} (--allow-exhausted)."
    return (
        f"{text}. No parameters were found with which the budget lasts and the score is no worse than before; try more "
        "(--evaluations)."
    )


def _larger_errors(tuned: Any) -> list[str]:
    """Return the note that the relative error has grown although the score is better, if so."""
    if tuned.objective != "crps" or not tuned.are_after > _WORSE * tuned.are_before:
        return []
    return [
        "note: the score (CRPS) is better, but the relative error (ARE) has grown by "
        f"{tuned.are_after / tuned.are_before - 1.0:.0%}; '--objective are' searches for a small one."
    ]


def _percentages(before: float, after: float) -> str:
    """Return two parts as percentages, with as many decimals as show whether they differ, and whether one is all."""
    for decimals in range(3):
        texts = [f"{part:.{decimals}%}" for part in (before, after)]
        is_rounded_to_all = any(
            float(text[:-1]) == 100.0 and part < 1.0 for text, part in zip(texts, (before, after), strict=True)
        )
        if (before == after or texts[0] != texts[1]) and not is_rounded_to_all:
            break
    return " → ".join(texts)


def _coverage_warnings(tuned: Any) -> list[str]:
    """Return the warning that intervals contain the truth clearly too rarely or too often, if they do."""
    from dpcrowd.experiments.tune.search import MIN_COVERAGE
    from dpcrowd.sim.fit_notes import FEWEST_INTERVALS, MOST_COVERAGE

    if tuned.coverage_after < MIN_COVERAGE:
        remedy = "fit one on public counts or your own releases with 'dpcrowd fit'"
        if tuned.method != "likelihood":
            remedy += ", or find Q with --method likelihood"
        if tuned.process_model:
            remedy = "fit another one on public counts or your own releases, or leave --model out"
        return [
            f"warning: only {tuned.coverage_after:.1%} of the 95% intervals contain the truth; tuning does not repair "
            f"a model that does not fit: {remedy}."
        ]
    slots = tuned.last - tuned.first - (tuned.burn_in or 0)
    intervals = tuned.runs * tuned.servers * len(tuned.regions) * slots
    if tuned.coverage_after > MOST_COVERAGE and intervals >= FEWEST_INTERVALS:
        return [
            f"warning: more than {MOST_COVERAGE:.1%} of the 95% intervals contain the truth: they are wider than they "
            "need to be, and the estimates are better than they say."
        ]
    return []


def _print_table(tuned: Any, out: Path | None, *, allowed: bool) -> None:
    from dpcrowd.cli.console import console, print_columns
    from dpcrowd.models.text import range_text

    variances = tuned.model.process_var.tolist()
    rows = [("process model", tuned.process_model)] if tuned.process_model else []
    alone = ", without the model" if tuned.process_model else ""
    if len(variances) == 1:
        rows.append((f"Q{alone}", f"{variances[0]:.4g}"))
    else:
        rows.append((f"Q of {len(variances)} regions{alone}", range_text(variances)))
    if tuned.model.transition.ndim == 2:
        stay = tuned.model.transition.diagonal()
        rows.append(("A: share of people who stay", range_text(stay.tolist())))
    rows += [(name, f"{value:.4g}") for name, value in tuned.tuning.items()]
    rows.append(("ARE before → after", f"{tuned.are_before:.4g} → {tuned.are_after:.4g}"))
    rows.append(("CRPS before → after", f"{tuned.crps_before:.4g} → {tuned.crps_after:.4g}"))
    rows.append(("coverage of 95% intervals", _percentages(tuned.coverage_before, tuned.coverage_after)))
    if tuned.exhausted_at is not None:
        rows.append(
            ("budget exhausted", f"at slot {tuned.exhausted_at} ({tuned.exhausted_servers:.0%} of the servers)")
        )
    screen = console()
    print_columns(screen, {"parameter": [name for name, _ in rows], "value": [value for _, value in rows]})
    where = "not written; give --out FILE.toml to keep it" if out is None else f"written to {out}"
    texts = [f"tuned on: {tuned.on}.", f"errors count from slot {tuned.burn_in} of these on (--burn-in).", f"{where}."]
    if _is_unchanged(tuned):
        texts.insert(0, "nothing better was found: the parameters are those of before.")
    texts += _larger_errors(tuned)
    if tuned.exhausted_at is not None:
        texts.append(_exhaustion(tuned, allowed=allowed))
    texts += [f"note: {note}" for note in notes_with_options(tuned.notes)]
    texts += _coverage_warnings(tuned)
    for text in texts:
        screen.print(text, style="dim", soft_wrap=not screen.is_terminal, markup=False)
