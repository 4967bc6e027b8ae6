"""Whether the filters of a simulation learn how well their model fits, and what to say of it (`docs/learning.md`)."""

from __future__ import annotations

from dpcrowd.schemes.base import Scheme
from dpcrowd.schemes.direct import DirectScheme
from dpcrowd.schemes.flooding import Flooding
from dpcrowd.schemes.registry import has_learning_filters
from dpcrowd.sim.config import Entrant, SimulationConfig

__all__ = ["learning_notes", "learns", "notes_without_filters"]


def learns(config: SimulationConfig, entrant: Entrant) -> bool:
    """Whether the filters of a scheme learn from releases: those of the matrix form do not."""
    return config.learn_of(entrant) and config.form == "diagonal" and has_learning_filters(entrant.scheme)


def learning_notes(config: SimulationConfig) -> list[str]:
    """Return remarks on schemes without a filter, and on learning that is not, or without a model."""
    asked = config.learning_chosen or config.fitted is not None
    remarks = notes_without_filters(config) if asked and (config.learn or config.fitted is not None) else []
    if config.learn and asked and config.form == "matrix":
        remarks.append("filters of the matrix form do not learn how well their model fits (those of form=diagonal do).")
    learners = [entrant.label for entrant in config.entrants if learns(config, entrant)]
    if learners and config.fitted is None:
        off = "" if config.learning_chosen else "; learn=False switches that off"
        remarks.append(
            f"without a process model the filters of {', '.join(learners)} learn from records how large Q is, starting "
            f"from the one that they are given{off}; levels and seasons they do not know (model=FILE)."
        )
    return [*remarks, *_unused(config)]


def _unused(config: SimulationConfig) -> list[str]:
    """Return a remark if learning was asked for and no scheme can learn; with a model it is on by default.

    Without a model, `notes_without_filters` names schemes without a filter.
    """
    if not (config.learn and config.learning_chosen and config.form == "diagonal"):
        return []
    labels = [
        entrant.label
        for entrant in config.entrants
        if config.fitted is not None or not isinstance(_inner(entrant), DirectScheme)
    ]
    if not labels or any(learns(config, entrant) for entrant in config.entrants):
        return []
    return [f"learning (learn=True) has no effect on {', '.join(labels)}: no filter of these learns."]


def _inner(entrant: Entrant) -> Scheme:
    """Return the scheme without flooding."""
    return entrant.scheme.inner if isinstance(entrant.scheme, Flooding) else entrant.scheme


def notes_without_filters(config: SimulationConfig) -> list[str]:
    """Return a remark on schemes whose estimates are the same with and without a model, or learning."""
    labels = [entrant.label for entrant in config.entrants if isinstance(_inner(entrant), DirectScheme)]
    if not labels:
        return []
    if config.fitted is None:
        return [f"learning (learn=True) has no effect on schemes without a filter: {', '.join(labels)}."]
    return [f"schemes without a filter have the same estimates with and without the model: {', '.join(labels)}."]
