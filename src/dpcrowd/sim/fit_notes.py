"""What speaks against using a fitted model as it is, for whoever fits it: on a screen, in JSON and in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters import ProcessModel
from dpcrowd.models.estimate import LEAST_SCORED
from dpcrowd.models.model import Model
from dpcrowd.models.season import SeasonKind
from dpcrowd.models.steps import LevelStep
from dpcrowd.models.trend import trend_of

__all__ = ["FEWEST_INTERVALS", "LEAST_COVERAGE", "MOST_COVERAGE", "count_notes", "step_note", "with_remarks"]

LEAST_COVERAGE = 0.9
"""Coverage of 95% intervals below which a result, or a fit, says that they are too narrow."""
MOST_COVERAGE = 0.995
"""Likewise, above which it says that they are wider than they need to be."""
FEWEST_INTERVALS = 1000
"""To say so: among fewer, all may contain the truth by chance."""
_CLOSE_TO_THE_MEAN = 0.9
"""A model that expects less than this part of the mean count is said to."""
_HALF_THE_MEAN, _FEW_PEOPLE, _MOST_NAMED = 0.5, 5.0, 3  # of single regions that have at least so many people on average
_STEPS, _FEWEST_STEPS = 8, 5
"""Over how many slots deviations are looked at, and how many times as many there have to be."""
_ONWARD, _MOST_SQUARED = 2.5, 25.0
"""By how much their squares exceed those of independent steps, to be said, and the most of a single one."""


def with_remarks(model: Model, season: SeasonKind, *, releases: bool = False, made_with: bool = False) -> Model:
    """Return the model with remarks on how well it is known, after the notes that it has.

    season     what was asked for
    releases   whether it was fitted on releases
    made_with  whether it is known what the filters that made them knew
    """
    notes = list(model.notes)
    if not model.scores.slots:
        notes.append(_unknown_scores(model, releases))
    elif np.isnan(model.scores.error):
        notes.append(
            "nobody was counted in the slots that were held out: errors, which are parts of the counts, are unknown, "
            "and the coverage is that of intervals around nobody, which says nothing about a crowd."
        )
    if model.begins is None and season == "auto":
        tried = "only a constant level"
        if made_with:
            tried = "beside a constant level, only the season of the model of --made-with"
        notes.append(
            "these data have no times: beside a constant level, only seasons that repeat clearly in the counts "
            "(by their autocorrelation) were tried; --season N tries a season of N slots, and slots that are labelled "
            "with times let fit try days, weeks and years."
            if not releases
            else f"these releases have no times: {tried} was tried; --season N tries a season of N slots, and a "
            "column 'start' lets fit find one."
        )
    if model.season_lacks_times:
        notes.append(
            f"the season of {model.season} slots is counted from slot 0 of '{model.data_name}', which has no times. "
            "Simulated data are taken to begin there, and live networks at their epoch; label the slots with times "
            "if they may begin elsewhere."
        )
    if model.scores.coverage < LEAST_COVERAGE:
        notes.append(
            f"only {model.scores.coverage:.0%} of the 95% intervals contained the "
            f"{'measurements' if releases else 'counts'} that were held out. "
            "These were predicted from shorter parts of the span than the model has seen, so a season that occurs only "
            "a few times in it may be the reason; otherwise this model does not fit these data. 'dpcrowd simulate "
            "--model' with later data shows which."
        )
    return replace(model, notes=tuple(notes))


def _unknown_scores(model: Model, releases: bool) -> str:
    """Return why nobody knows how well a model predicts."""
    unknown = "so nobody knows how well this model predicts, or whether its intervals are wide enough"
    if releases and model.slots >= LEAST_SCORED:
        return (
            f"in the slots that were held out, these releases have no measurement of any region, {unknown}; give "
            "releases of a longer time."
        )
    return f"{model.slots} slots are too few to hold some of them out, {unknown}; give {LEAST_SCORED} slots or more."


def count_notes(counts: Floats, regions: Sequence[str], process: ProcessModel) -> list[str]:
    """Return what the counts (T, d) that a model was fitted on say against it."""
    course = process.course
    assert course is not None
    expected = np.stack([course.mean(slot) for slot in range(len(counts))])
    trend = trend_of(counts, expected)
    if trend is not None:
        return [trend.note]
    notes = _low_levels_note(counts, expected, regions), _onward_note(counts - expected, process)
    return [note for note in notes if note is not None]


def step_note(step: LevelStep) -> str:
    """Return what was done about counts that have stepped to another level."""
    return (
        f"{step.text}: the model is fitted on the slots from {step.begin} on, since those before it say nothing of the "
        "level that is left. Give --span if you know better where it begins."
    )


def _onward_note(off: Floats, process: ProcessModel) -> str | None:
    """Return a note on deviations (T, d) that go on in the direction in which they began; None: they do not.

    The model has the variance of one step, and steps that are independent; over several slots, such deviations go
    farther than it says, and a filter that hears a record every few slots is too sure of itself.
    """
    course, a = process.course, process.diagonal_transition
    assert course is not None
    if len(off) < _FEWEST_STEPS * _STEPS:
        return None
    slots = range(_STEPS, len(off))
    left = np.stack([off[slot] - course.carried(a, slot, _STEPS) * off[slot - _STEPS] for slot in slots])
    var = np.stack([course.added_var(slot, _STEPS, a) for slot in slots])
    known = var > 0.0
    ratio = np.minimum(np.square(left[known]) / var[known], _MOST_SQUARED)  # single slots do not decide
    if not len(ratio) or ratio.mean() < _ONWARD:
        return None
    return (
        f"deviations go on in the direction in which they began: after {_STEPS} slots they are "
        f"{np.sqrt(ratio.mean()):.1f} times as far off as this model says, whose steps are independent. Intervals are "
        "too narrow where a region is measured every few slots; take more samples, or leave the model out (--learn)."
    )


def _low_levels_note(counts: Floats, expected: Floats, regions: Sequence[str]) -> str | None:
    """Return a note on a model that expects clearly fewer people than there were, (T, d) each, of all regions together
    or of single ones; None: it does not.

    Rare bursts count less in a level, and the estimates of a filter are as far below the mean as the model is.
    """
    people, model = (values.mean(axis=0) for values in (counts, expected))
    if model.sum() >= _CLOSE_TO_THE_MEAN * people.sum():
        low = np.flatnonzero((people >= _FEW_PEOPLE) & (model < _HALF_THE_MEAN * people))
        return _regions_note([(regions[k], model[k], people[k]) for k in low.tolist()]) if len(low) else None
    return (
        f"the model expects {model.sum():.4g} people per slot, of all regions together, where the span had "
        f"{people.sum():.4g} on average: its levels are those of usual slots, in which rare bursts count less. "
        "Absolute errors are smaller for it, but where records say little, sums and averages of estimates are too "
        "small by as much. If these matter most, leave the model out (--learn)."
    )


def _regions_note(low: list[tuple[str, float, float]]) -> str:
    """Return a note on regions, given with what the model expects of them and what they had on average."""
    named = ", ".join(f"'{name}' {model:.3g} instead of {people:.3g}" for name, model, people in low[:_MOST_NAMED])
    more = f", and {len(low) - _MOST_NAMED} more" if len(low) > _MOST_NAMED else ""
    return (
        f"of {len(low)} region{'s' if len(low) > 1 else ''} the model expects less than half as many people as the "
        f"span had on average ({named}{more}): it takes slots in which many came for exceptions. If such a region has "
        "opened at the end of the span, fit on the slots since then (--span)."
    )
