"""A process model in a few lines: what `dpcrowd fit` prints as a table, and `print` in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpcrowd.models.model import Model

__all__ = ["model_rows", "model_text", "range_text"]

_VISIBLE = 5e-4
"""Smaller parts of a deviation are 0 to anybody who reads a table."""


def model_rows(model: Model) -> list[tuple[str, str]]:
    """Return what a model says, as names and values."""
    scores = model.scores
    return [
        ("regions", str(len(model.regions))),
        ("season", str(model.season)),
        ("level", range_text([region.level for region in model.regions])),
        ("a (deviation left after a slot)", _persistence([region.transition for region in model.regions])),
        (f"variance ({model.variance})", range_text([region.variance for region in model.regions])),
        *_correlation_rows(model),
        ("expected error, one slot ahead", _score(scores.error)),
        ("expected error, model alone", _score(scores.past)),
        ("coverage of 95% intervals", f"{_score(scores.coverage)}, model alone {_score(scores.past_coverage)}"),
    ]


def model_text(model: Model) -> str:
    """Return the same as lines, with what the model was fitted on and why that costs no privacy budget."""
    rows = model_rows(model)
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {value}" for name, value in rows]
    return "\n".join([f"process model of {model.span}", *lines, f"  source: {model.quoted_sources}"])


def _correlation_rows(model: Model) -> list[tuple[str, str]]:
    """Return the rows of what regions have in common; none if it is unknown."""
    left = None if model.in_common is None else model.in_common.transition
    rows = [("correlation of two regions", model.region_correlation), ("what they share, left after a slot", left)]
    return [(name, _score(value)) for name, value in rows if value is not None]


def range_text(values: Sequence[float]) -> str:
    """Return the least and the largest number; one number where both are printed alike.

    >>> range_text([0.5, 2.0, 1.0]), range_text([0.00495, 0.004950001])
    ('0.5 to 2', '0.00495')
    """
    ends = (f"{min(values):.4g}", f"{max(values):.4g}")
    return " to ".join(dict.fromkeys(ends))


def _persistence(values: Sequence[float]) -> str:
    """Return the parts of deviations that are left after a slot; what would be printed as nothing is said in words."""
    visible = [value if value >= _VISIBLE else 0.0 for value in values]
    if not any(visible):
        return "0: deviations do not persist"
    return range_text(visible)


def _score(value: float) -> str:
    return "unknown" if value != value else f"{value:.4g}"  # noqa: PLR0124
