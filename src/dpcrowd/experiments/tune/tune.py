"""`dpcrowd.tune`: Q, A, theta, xi and T_s for one scheme, from public data, or counts of people outside the promise.

A finite stream is tuned on a part of itself, with that part of epsilon: a sample then costs the same as in the complete
stream, and T_s/T means the same. The runs have seeds that no simulation uses by default (`SEED_OFFSET`).

A process model of `dpcrowd fit` takes the place of A and Q in the filters; sampling is then searched for filters that
know it. The file still has the A and Q of the data, for simulations without a model.

Both methods read counts that no epsilon covers. Likelihood sees noisy samples only, but these are drawn from the counts
for the search, as many as there are runs and servers, with noise that a seed repeats: they are not releases.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.__about__ import __version__
from dpcrowd.arrays import Truth
from dpcrowd.errors import BadInput, counted, unknown_name, whole_number
from dpcrowd.experiments.tune.likelihood import collect_samples, most_likely_var
from dpcrowd.experiments.tune.search import (
    OBJECTIVES,
    TunedParameters,
    evaluate,
    evolve,
    population,
    with_parameters,
)
from dpcrowd.experiments.tune.transition import residual_var, transition_from_checkins, transition_from_counts
from dpcrowd.experiments.tune.write import write_tuned
from dpcrowd.filters import ProcessModel
from dpcrowd.models.file import model_digest
from dpcrowd.plugins import find_plugin, scheme_class
from dpcrowd.schemes.registry import SCHEMES, groups_regions, make_scheme
from dpcrowd.sim.adopted import NO_MODEL
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.configure import Data, configure
from dpcrowd.sim.data import NAMES, CheckIns, DataSet
from dpcrowd.sim.data.seeds import Purpose, generator
from dpcrowd.sim.data.series import OneSlot
from dpcrowd.sim.data.span import Span, cut, fraction_hint, is_drawn_anew, notes_beside_variance, read_span
from dpcrowd.sim.export import check_toml_path, checked_path
from dpcrowd.sim.fitted import apply_model, in_sample_note, model_note, timing_notes
from dpcrowd.sim.tuned import METHODS, Tuned, counts_digest

__all__ = ["EVALUATIONS", "METHODS", "OBJECTIVES", "SEED_OFFSET", "TRANSITIONS", "TUNABLE", "tune"]

TRANSITIONS = ("identity", "frequencies")
EVALUATIONS = 240
_LONGEST_BURN_IN = 20
_FEWEST_SLOTS, _FEW_SLOTS = 10, 50
SEED_OFFSET = 1_000_000_000_000
"""Added to the seed, so that a simulation with the same seed has other runs."""

Progress = Callable[[int, int], None]

_SAMPLED = ("process_var", "theta", "xi", "sample_fraction")
_RESCUE = ("process_var", "rescue_theta")

TUNABLE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("central", "fast", "dfast", "dpcrowd", "dpcrowd-w"), _SAMPLED),
    **dict.fromkeys(("dpcrowd-plus", "rescuedp", "drescuedp"), _RESCUE),
}
"""Schemes by name, and their parameters; the central filter's are those of a finite stream."""


_FIXED = "tuning is for adaptive sampling of a complete stream."
_OF_MODEL = "A and Q are those of the process model; leave it out, or leave the model out."


def tune(
    scheme: str,
    data: Data = "linear",
    *,
    method: str = "evolution",
    objective: str = "crps",
    search_variance: bool = False,
    transition: str | None = None,
    span: Span | None = None,
    epsilon: float = 1.0,
    window: int | None = None,
    runs: int = 4,
    seed: int = 0,
    evaluations: int = EVALUATIONS,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    burn_in: int | None = None,
    allow_exhausted: bool = False,
    **settings: Any,
) -> Tuned:
    """Find the parameters of one scheme on public data, and write them to `out`.

    Counts of people whom the promise does not cover will do as well; past releases are for `dpcrowd.fit_releases`.

    method       "evolution": theta, xi, T_s/T (or RescueDP's theta) with the smallest score on the runs;
                 "likelihood": Q alone, from noisy samples that are simulated from the counts. No ledger pays for
                 them, so that the counts have to be public, too
    objective    of evolution: "crps" scores estimates with their intervals; "are" is the mean relative error alone
    search_variance  let evolution search Q, too, with the objective "crps" only. Intervals may then be too narrow on
                 other slots than those that it was tuned on; `dpcrowd fit` and "likelihood" are better at finding Q.
    transition   A: "identity", or "frequencies" of moves; without: the data set's own
    span         "0:395", "0:0.5" or a pair; without: the first half of a series, complete runs of a synthetic set
    epsilon      for the complete stream or a window; the span of a finite stream gets its part
    evaluations  how many sets of parameters evolution may evaluate
    jobs         number of processes; None: as many as are worth starting. The result does not depend on it.
    progress     called with (finished work, total work)
    burn_in      slots at the beginning that are not scored; default: a tenth of the slots that are tuned on, at most 20
    allow_exhausted  let evolution choose parameters whose budget is exhausted before the end of the slots that are
                 tuned on; without it, it chooses such parameters only if all are so that it has tried and that score
                 no worse than the parameters before
    settings     servers, density, accounting, form, slots, model, ... of `dpcrowd.sim.configure.configure`. With a
                 process model, evolution searches the sampling for filters that know it; A and Q are then the model's
    """
    _check_choices(method, objective, transition, search_variance=search_variance)
    for name in ("horizon", "interval", "sampling", "keep_estimates"):
        if settings.get(name) is not None:
            raise BadInput(f"'{name}' cannot be set here: {_FIXED}")
    if jobs is not None:
        whole_number("jobs", jobs, 1, None, "; leave it out for as many processes as are worth starting")
    if out is not None:
        check_toml_path(checked_path("out", out), "parameters")
    whole_number("seed", seed, 0)
    axes = tuned_names(scheme, window, settings.get("users", "pinned"), variance=search_variance)
    whole_number("evaluations", evaluations, population(axes), None, f" for the {len(axes)} parameters of {scheme}")
    settings |= {"epsilon": epsilon, "window": window, "runs": runs, "seed": SEED_OFFSET + seed}
    try:
        requested = configure(scheme, data, burn_in=burn_in or 0, **settings)
    except OneSlot as error:  # its remedy, a variance that is given, is none for tuning
        raise BadInput(f"{error.name} has one slot; {_enough_slots(_FEWEST_SLOTS)}.") from None
    if requested.fitted is None and not requested.learning_chosen:
        requested = replace(requested, learn=False)  # the Q that is found here is the one to be used
    fitted, learn = requested.fitted, requested.learn
    if fitted is not None:
        _check_with_model(method, transition, search_variance=search_variance)
        # Without the model, the data have the A and Q that are written to the file.
        requested = configure(scheme, data, burn_in=burn_in or 0, **{**settings, "model": NO_MODEL})
    requested = _without_overrides(requested)
    first, last = _check_span(requested, span)
    config = _on_span(requested, first, last)
    config = replace(config, burn_in=min(_LONGEST_BURN_IN, (last - first) // 10) if burn_in is None else burn_in)
    truths = _truths(config)
    own_process = config.data.model
    if fitted is not None:
        config = replace(config, data=apply_model(fitted, config.data), fitted=fitted, learn=learn)
    start = with_parameters(config, _process(config, transition, truths), {})
    before = evaluate(config)
    if method == "likelihood":
        best = _by_likelihood(start, progress)
    else:
        best = evolve(
            start,
            axes,
            evaluations=evaluations,
            seed=seed,
            jobs=jobs,
            progress=progress,
            objective=objective,
            must_last=not allow_exhausted,
        )
    guarantee, scores = requested.entrants[0].guarantee, best.scores
    assert guarantee is not None
    tuned = Tuned(
        version=__version__,
        scheme=scheme,
        data=requested.data.name,
        regions=requested.data.regions,
        first=requested.data.first + first,
        last=requested.data.first + last,
        slots=requested.data.first + requested.data.slots,
        method=method,
        on=_describe(config, requested.data, method, transition),
        epsilon=float(epsilon),
        guarantee=guarantee.kind,
        length=guarantee.length,
        servers=config.servers,
        runs=runs,
        seed=seed,
        are_before=before.are,
        are_after=best.scores.are,
        objective=objective if method == "evolution" else "",
        crps_before=before.crps,
        crps_after=best.scores.crps,
        coverage_before=before.coverage,
        coverage_after=best.scores.coverage,
        burn_in=config.burn_in,
        exhausted_at=None if scores.exhausted_at is None else config.data.first + scores.exhausted_at,
        exhausted_servers=scores.exhausted_servers,
        sha256=counts_digest(np.concatenate(truths)),
        **_facts_of_model(config),
        model=best.model if fitted is None else own_process,
        tuning=best.tuning,
        file="these parameters" if out is None else Path(out).name,
        notes=_notes(config),
    )
    if out is not None:
        write_tuned(tuned, Path(out))
    return tuned


def _check_choices(method: str, objective: str, transition: str | None, *, search_variance: bool) -> None:
    """Refuse names that do not exist, and choices that exclude each other."""
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if objective not in OBJECTIVES:
        raise unknown_name("objective", objective, OBJECTIVES)
    if method == "likelihood" and search_variance:
        raise BadInput("method 'likelihood' finds Q, and Q alone; leave search_variance (--search-variance) out.")
    if method == "likelihood" and objective != "crps":
        raise BadInput(f"objective '{objective}' is for method 'evolution'; likelihood has none. Leave it out.")
    if search_variance and objective != "crps":
        raise BadInput(
            f"Q is searched with objective 'crps' only; given objective '{objective}'. The relative error does not "
            "look at intervals, and a Q found by it makes them too narrow."
        )
    if transition is not None and transition not in TRANSITIONS:
        raise unknown_name("transition", transition, TRANSITIONS)
    if method == "likelihood" and transition == "frequencies":
        raise BadInput(
            "transition frequencies need counts, but maximum likelihood uses noisy samples; choose one of them."
        )


def _check_with_model(method: str, transition: str | None, *, search_variance: bool) -> None:
    """Refuse a search for A or Q where a process model has them."""
    if method == "likelihood":
        raise BadInput(f"method 'likelihood' finds Q alone, but {_OF_MODEL}")
    if search_variance:
        raise BadInput(f"a search of Q was asked for (search_variance), but {_OF_MODEL}")
    if transition is not None:
        raise BadInput(f"transition '{transition}' was given, but {_OF_MODEL}")


def _facts_of_model(config: SimulationConfig) -> dict[str, Any]:
    """Return the fields of `Tuned` that say with which process model it was tuned; nothing without one."""
    fitted = config.fitted
    if fitted is None:
        return {}
    return {
        "process_model": fitted.file,
        "process_model_source": "\n".join(fitted.sources),
        "process_model_span": fitted.span,
        "process_model_sha256": model_digest(fitted),
        "in_sample_slots": config.in_sample,
    }


def _notes(config: SimulationConfig) -> tuple[str, ...]:
    """Return remarks on few slots, on the process model and on a user's own data, as `dpcrowd simulate` has them."""
    notes: tuple[str, ...] = ()
    own = () if config.data.name in NAMES else notes_beside_variance(config.data)
    if config.data.slots < _FEW_SLOTS:
        notes = (
            f"these parameters were tuned on {counted(config.data.slots, 'slot')}, too few to tell good parameters "
            f"from chance; {_FEW_SLOTS} or more are better.",
        )
    if config.fitted is None:
        return (*notes, *own)
    in_sample = in_sample_note(config.fitted, config.in_sample)
    notes = (*notes, model_note(config.fitted), *timing_notes(config.fitted, config.data))
    return (*notes, *(() if in_sample is None else (in_sample,)), *own)


def _without_overrides(config: SimulationConfig) -> SimulationConfig:
    """Return the same simulation of one scheme with its own parameters, from a tuned file, as those of the data."""
    (entrant,) = config.entrants
    data = replace(config.data, model=config.model_of(entrant))
    entrants = (replace(entrant, model=None, tuning=None),)
    return replace(config, data=data, tuning=config.tuning_of(entrant), entrants=entrants)


def _on_span(requested: SimulationConfig, first: int, last: int) -> SimulationConfig:
    """Return the same simulation on some of the slots, with their part of a finite stream's epsilon."""
    entrant, shares = requested.entrants[0], requested.shares
    guarantee = entrant.guarantee
    assert guarantee is not None
    if guarantee.kind == "finite" and last - first < guarantee.length:
        part = float(guarantee.epsilon) * (last - first) / guarantee.length
        entrant = replace(entrant, guarantee=replace(guarantee, length=last - first, epsilon=part))
    if not isinstance(shares, str) and shares.ndim == 2:
        shares = shares[first:last]
    return replace(requested, data=cut(requested.data, first, last), entrants=(entrant,), shares=shares)


def _truths(config: SimulationConfig) -> list[Truth]:
    """Return the counts that are tuned on: of every run if each run draws its own, otherwise once."""
    runs = config.runs if is_drawn_anew(config.data) else 1
    return [config.data.truth(generator(config.seed, run, Purpose.TRUTH)) for run in range(runs)]


def _process(config: SimulationConfig, transition: str | None, truths: list[Truth]) -> ProcessModel:
    """Return the A and Q from which tuning starts."""
    model, data = config.data.model, config.data
    if transition is None:
        return model
    if transition == "identity":
        return ProcessModel.of(1.0, model.diagonal_var)
    if len(data.regions) == 1:
        raise BadInput(f"'{data.name}' has one region, so nobody moves between regions; leave the transition out.")
    a = transition_from_checkins(data) if isinstance(data, CheckIns) else transition_from_counts(truths)
    return ProcessModel.of(a, residual_var(a, truths))


def _by_likelihood(config: SimulationConfig, progress: Progress | None) -> TunedParameters:
    """Tune each region alone: A = 1 replaces a full A, and a region without samples keeps its Q."""
    model = config.data.model
    entrant = config.entrants[0]
    ungrouped = config
    if groups_regions(entrant.scheme):  # one draw for several regions is not a sample of any of them
        alone = make_scheme(entrant.scheme.name, grouping="none")
        ungrouped = replace(config, entrants=(replace(entrant, scheme=alone),))
    likely = most_likely_var(
        collect_samples(ungrouped), config.observation, model.diagonal_transition, progress=progress
    )
    process = ProcessModel.of(model.diagonal_transition, np.where(np.isnan(likely), model.diagonal_var, likely))
    rounded = replace(process, process_var=np.array([float(f"{q:.6g}") for q in process.process_var]))
    return TunedParameters(rounded, {}, evaluate(with_parameters(config, rounded, {})))


def tuned_names(
    scheme: str, window: int | None = None, users: str = "pinned", *, variance: bool = False
) -> tuple[str, ...]:
    """Return the parameters of a scheme that evolution tunes, Q first if it is searched."""
    if not isinstance(scheme, str) or (scheme not in SCHEMES and find_plugin("scheme", scheme) is None):
        raise unknown_name("scheme", str(scheme), TUNABLE)
    if scheme not in SCHEMES:
        scheme_class(scheme)  # a plug-in that cannot be imported is refused as such
        raise BadInput(
            f"scheme '{scheme}' cannot be tuned: only the parameters of dpcrowd's own schemes can be searched, and "
            f"these are given by their names; allowed: {', '.join(TUNABLE)}."
        )
    if scheme not in TUNABLE:
        raise BadInput(f"scheme '{scheme}' has no parameters to tune; allowed: {', '.join(TUNABLE)}.")
    names = _RESCUE if scheme == "central" and window is not None else TUNABLE[scheme]
    # Roaming users pay the same for every slot, so there is no T_s.
    names = tuple(name for name in names if name != "sample_fraction" or users != "roaming")
    return names if variance else tuple(name for name in names if name != "process_var")


def _check_span(config: SimulationConfig, span: Span | None) -> tuple[int, int]:
    """Return (first, last) of the slots to tune on: the requested span, otherwise the first half of a series."""
    data = config.data
    if is_drawn_anew(data):
        if span is not None:
            raise BadInput(
                f"a span was given, but '{data.name}' is drawn anew in each run and has no past; leave it out to tune "
                "on complete runs with other seeds."
            )
        span = (0, data.slots)
    first, last = read_span((0, max(1, data.slots // 2)) if span is None else span, data.slots)
    length = last - first
    least = max(_FEWEST_SLOTS, config.burn_in + 2)
    if length < least:
        burn_in = f", since errors count from slot {config.burn_in} on (burn-in)" if least > _FEWEST_SLOTS else ""
        raise BadInput(
            f"slots {first}:{last} are {length}; {_enough_slots(least, burn_in)}."
            f"{fraction_hint(first, last) if span is not None else ''}"
        )
    guarantee = config.entrants[0].guarantee
    if guarantee is not None and guarantee.kind == "window" and guarantee.length > length:
        raise BadInput(
            f"the window of {guarantee.length} slots is longer than slots {first}:{last} that are tuned on; choose a "
            f"window of at most {counted(length, 'slot')}, or a longer span."
        )
    return first, last


def _enough_slots(least: int, why: str = "") -> str:
    """Return how many slots tuning needs, as the end of a sentence."""
    return f"tuning needs at least {least}{why}, and {_FEW_SLOTS} or more to tell good parameters from chance"


def _describe(config: SimulationConfig, complete: DataSet, method: str, transition: str | None) -> str:
    """Return the sentence that says on which data it was tuned; `config` is the simulation on the span."""
    data = config.data
    what = "simulated noisy samples of " if method == "likelihood" else ""
    source_of_a = ""
    if transition == "frequencies":
        source_of_a = "; A from " + (
            "the moves of users" if isinstance(data, CheckIns) else "consecutive counts (macro data)"
        )
    if is_drawn_anew(data):
        return (
            f"{what}{config.runs} simulated runs of '{data.name}' with seeds of their own; nobody's data{source_of_a}"
        )
    labels = "" if data.slot_labels is None else f" ({data.slot_labels[0]} to {data.slot_labels[-1]})"
    if data.name in NAMES:
        origin = "public data"
    else:  # samples of likelihood are no exception: no ledger pays for them, and their noise can be drawn again
        origin = (
            "data of your own; the parameters depend on them, and no epsilon pays for that, so they have to be public, "
            "or of people outside the promise"
        )
    slots = f"{what}slots {data.first} to {data.first + data.slots - 1} of the {complete.first + complete.slots} of "
    return f"{slots}'{data.name}'{labels}; {origin}{source_of_a}"
