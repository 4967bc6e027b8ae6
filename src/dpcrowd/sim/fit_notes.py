"""What speaks against using a fitted model as it is, for whoever fits it: on a screen, in JSON and in Python."""

from __future__ import annotations

from dataclasses import replace

from dpcrowd.models.estimate import LEAST_SCORED
from dpcrowd.models.model import Model
from dpcrowd.models.season import SeasonKind

__all__ = ["LEAST_COVERAGE", "with_remarks"]

LEAST_COVERAGE = 0.9
"""Coverage of 95% intervals below which a result, or a fit, says that they are too narrow."""


def with_remarks(model: Model, season: SeasonKind, *, releases: bool = False, made_with: bool = False) -> Model:
    """Return the model with remarks on how well it is known, after the notes that it has.

    season     what was asked for
    releases   whether it was fitted on releases
    made_with  whether it is known what the filters that made them knew
    """
    notes = list(model.notes)
    if not model.scores.slots:
        notes.append(_unknown_scores(model, releases))
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
            f"the season of {model.season} slots is counted from slot 0 of '{model.data}', which has no times. "
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
