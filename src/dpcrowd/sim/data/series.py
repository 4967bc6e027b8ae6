"""A process model for a series that comes without one: A = 1 and Q from the one-step changes.

Q_k is the mean square of r_k(t+1) - r_k(t): the variance of the change about 0, since A = 1 expects no change. It
uses the complete series, future included. That is acceptable in a simulation, where Q is taken as public knowledge, and
wrong in a live network; the note of the data set says so.
"""

from __future__ import annotations

import hashlib

import numpy as np

from dpcrowd.arrays import Floats, PerRegion, Truth
from dpcrowd.errors import BadInput
from dpcrowd.filters.model import ProcessModel

__all__ = [
    "FROM_WHOLE_SERIES",
    "GIVEN_BY_HAND",
    "ROUNDING_VAR",
    "OneSlot",
    "believed",
    "is_var_of_steps",
    "one_step_var",
    "series_digest",
    "series_model",
]

# Counts are whole people: a variance below that of rounding itself says nothing, and Q = 0 would make H^2 Q = 0.
ROUNDING_VAR = 1.0 / 12.0

FROM_WHOLE_SERIES = (
    "the process variance Q is taken from the complete series, so it counts as public knowledge in this simulation "
    "only; for a live network give it by hand, tune it on public data, or fit a model on public data or past releases."
)
GIVEN_BY_HAND = "the process variance Q of the filters was given by hand; the data do not depend on it."


class OneSlot(BadInput):
    """A series of one slot, which does not show how the counts change; `name` is that of the data."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} has one slot, too few to see how the counts change; give more slots, or the variance of a change: "
            "--process-var (process_var in Python)."
        )
        self.name = name

    def __reduce__(self) -> tuple[type[OneSlot], tuple[str]]:
        return type(self), (self.name,)


def series_model(counts: Truth, process_var: object | None, name: str) -> tuple[ProcessModel, PerRegion, str]:
    """Return (model, change_var, note) of a series (T, d); `process_var` replaces Q in the model only."""
    slots, d = counts.shape
    if slots >= 2:
        change_var = one_step_var(counts)
    elif process_var is None:
        raise OneSlot(name)
    else:
        change_var = np.full(d, ROUNDING_VAR)
    if process_var is None:
        return ProcessModel.of(1.0, change_var), change_var, FROM_WHOLE_SERIES
    return believed(ProcessModel.of(1.0, change_var), process_var), change_var, GIVEN_BY_HAND


def one_step_var(counts: Truth) -> PerRegion:
    """Return the mean square (d,) of the changes of (T, d) counts from slot to slot, T >= 2."""
    change = np.diff(counts, axis=0).astype(np.float64)
    return np.asarray(np.maximum(np.square(change).mean(axis=0), ROUNDING_VAR))


def series_digest(counts: Floats) -> str:
    """Return the SHA-256 of counts (T, d) as 64-bit little-endian numbers, by which a fitted model knows its data."""
    return hashlib.sha256(np.ascontiguousarray(counts, dtype="<f8").tobytes()).hexdigest()


def is_var_of_steps(model: ProcessModel, change_var: PerRegion) -> bool:
    """Whether Q is a guess: the variance of all steps of a series, which says little where a crowd grows smoothly."""
    return model.course is None and bool(np.array_equal(model.process_var, change_var))


def believed(model: ProcessModel, process_var: object) -> ProcessModel:
    """Return the same A with another Q: one number for all regions, (d,) or (d, d)."""
    d = model.regions
    try:
        q = np.asarray(process_var, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"process variance must be numbers; given {process_var!r}.") from None
    if q.ndim == 0:
        q = np.full(d, float(q))
    if q.ndim == 1 and len(q) != d:
        raise BadInput(
            f"{len(q)} process variances were given for {d} region{'s' if d > 1 else ''}; allowed: one number for all "
            "regions, or one per region."
        )
    if q.shape not in ((d,), (d, d)):
        raise BadInput(f"process variance has shape {q.shape}; allowed: one number, ({d},) or ({d}, {d}).")
    return ProcessModel.of(model.transition, q)
