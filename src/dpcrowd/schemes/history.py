"""Posteriors of past slots of a server that keeps records: with the records that have arrived since, and smoothed.

The posterior of a slot changes while records of the slot may still arrive, for L slots. A server on its own keeps the
last L slots and smooths these (`Server.smoothed`). A simulation collects the posteriors of all slots as they become
final (`PosteriorHistory`), if the user asks for it, and smooths them once at the end.

Beside the posteriors stand the *measurements* of the slots: what the records of one slot say by themselves, z = y/Y
with the variance 1/Y, as the filters have taken them in. They do not depend on what the filters believed, so a process
model can be fitted on them, whether the filters have learned or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats
from dpcrowd.filters.bank_estimate import step_ahead
from dpcrowd.filters.records import Reference, single_sums
from dpcrowd.filters.smoothing import smooth, smooth_matrix, smooth_steps
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.relay import Relay
from dpcrowd.schemes.relay_deviations import equivalent_sums
from dpcrowd.schemes.relay_filter import LIMIT, OFF, prior_of, with_bursts
from dpcrowd.schemes.relay_level import crowd_level
from dpcrowd.schemes.relay_state import RelayState

__all__ = ["PosteriorHistory", "Posteriors", "recent_posteriors"]

_LEAST_GAIN = 1e-9  # information of a slot, relative to the prior's, below which it is the rounding of a difference


@dataclass(frozen=True)
class Posteriors:
    """Posteriors of T slots in succession, with all records that have arrived by now.

    slots   (T,)
    mean    (T, N, d)
    var     (T, N, d), infinite where nothing is known; or covariances (T, N, d, d)
    known   (T, N)
    doubt   (T, N) factors by which the variance of the prior was multiplied
    steps   (T, 3, N, d) of filters that learn: see `filters.smoothing.smooth_steps`
    measurement, measurement_var  (T, N, d) what the records of each slot say by themselves; NaN and infinite where they
            say nothing, or only the sum of several regions
    """

    slots: NDArray[np.int64]
    mean: Floats
    var: Floats
    known: NDArray[np.bool_]
    doubt: Floats
    measurement: Floats
    measurement_var: Floats
    steps: Floats | None = None

    def parts(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by their names, one entry per slot each."""
        return {part.name: array for part in fields(self) if (array := getattr(self, part.name)) is not None}

    def smoothed(self, setting: Setting) -> tuple[Floats, Floats]:
        """Return estimates (T, N, d), NaN where nothing is known, and their variances, infinite there."""
        first = int(self.slots[0]) if len(self.slots) else 0
        if self.steps is not None:
            mean, var = smooth_steps(self.mean, self.var, self.doubt, self.steps)
        elif setting.form == "matrix":
            mean, cov, known = smooth_matrix(self.mean, self.var, self.known, self.doubt, setting.model, first)
            var = np.where(known[..., None], np.einsum("tnkk->tnk", cov), np.inf)
        else:
            mean, var = smooth(self.mean, self.var, self.doubt, setting.model, first)
        return np.where(np.isfinite(var), mean, np.nan), var


def recent_posteriors(
    scheme: Relay, state: RelayState, first: int | None = None, number: int | None = None
) -> Posteriors:
    """Return the posteriors of the last L slots, or of those from slot `first` on; at most this `number` of them."""
    last = int(state.last)
    slots = np.arange(max(0, last - scheme.lag + 1, 0 if first is None else first), last + 1)[:number]
    place = slots % scheme.lag
    doubt = np.where(state.scale[place] > OFF, state.scale[place], 1.0)
    steps = None
    if state.bank is not None and len(slots):
        model, beliefs = state.setting.model, state.beliefs
        pairs = zip(place.tolist(), slots.tolist(), strict=True)
        steps = np.stack([step_ahead(state.bank.at(at), model, beliefs, slot + 1) for at, slot in pairs])
    measured = _measurements(state, slots.tolist(), guard=scheme.guard)
    return Posteriors(slots, state.mean[place], state.mean_var[place], state.known[place], doubt, *measured, steps)


def _measurements(state: RelayState, slots: Sequence[int], *, guard: bool) -> tuple[Floats, Floats]:
    """Return the measurements of slots and their variances, (T, N, d) each.

    A record that joins a region with others says nothing of it alone: the sum is divided by what was expected of the
    members, which is no measurement of a member. So a region that some record of a slot has joined is measured by the
    other records of the slot, if any reads it by itself. The matrix form, in which regions are measured together, has
    no measurements.
    """
    value = np.full((len(slots), state.setting.servers, state.setting.regions), np.nan)
    variance = np.full(value.shape, np.inf)
    if state.setting.form == "matrix":
        return value, variance
    for row, slot in enumerate(slots):
        y, info = _information(state, slot)
        joined = _joined(state, slot)
        if joined.any():
            single = _single_records(state, slot, guard=guard)
            y, info = np.where(joined, single[0], y), np.where(joined, single[1], info)
        measured = info > 0.0
        value[row] = np.where(measured, y / np.where(measured, info, 1.0), np.nan)
        variance[row] = np.where(measured, 1.0 / np.where(measured, info, 1.0), np.inf)
    return value, variance


def _single_records(state: RelayState, slot: int, *, guard: bool) -> tuple[Floats, Floats]:
    """Return the sums y and Y of a slot's records that read a region by itself, (N, d) each.

    Deviations of servers from their shares count as fresh, as in the filter of regions that are joined.
    """
    place, setting = slot % state.lag, state.setting
    prior, prior_var = prior_of(state, slot)
    level = crowd_level(state, slot, prior, prior_var)
    reference = Reference(*level)
    if guard:
        penalised = state.suspicious[place]
        reference = Reference(
            *level,
            prior,
            with_bursts(state, prior_var),
            state.penalty[place] if penalised.any() else None,
            LIMIT,
            penalised=penalised,
        )
    held = state.holdings(slot, "numpy")
    return single_sums(
        held.indptr, held.indices, state.table(slot), reference, setting.observation, setting.model.one_step_var,
        state.servers, state.scale[place],
    )  # fmt: skip


def _information(state: RelayState, slot: int) -> tuple[Floats, Floats]:
    """Return the sums y and Y of a slot's records, (N, d) each."""
    place = slot % state.lag
    if state.bank is not None:
        return state.y[place], state.info[place]
    prior, prior_var = prior_of(state, slot)
    doubt = np.where(state.scale[place] > OFF, state.scale[place], 1.0)[:, None]
    y, info = equivalent_sums((prior, prior_var * doubt), (state.mean[place], state.mean_var[place]))
    with np.errstate(divide="ignore"):
        return y, np.where(info > _LEAST_GAIN / prior_var, info, 0.0)


def _joined(state: RelayState, slot: int) -> Bools:
    """Return which regions, (N, d), some record of a slot in the run of each receiver has joined with others."""
    receivers, runs, table = state.setting.servers, state.setting.runs, state.table(slot)
    if table.groups is None:
        return np.zeros((receivers, state.setting.regions), dtype=np.bool_)
    joined = (table.var > 0.0)[:, None] & table.joined(np.arange(len(table.var)))
    by_run = joined.reshape(runs, -1, state.setting.regions).any(axis=1)
    return np.asarray(np.repeat(by_run, receivers // runs, axis=0))


class PosteriorHistory:
    """The final posteriors of all slots of a simulation."""

    def __init__(self, scheme: Relay, state: RelayState) -> None:
        self._scheme, self._state = scheme, state
        self._final: list[Posteriors] = []

    def add(self, slot: int) -> None:
        """Add the oldest slot in memory after `slot` is over: it takes no more records."""
        if slot >= self._scheme.lag - 1:
            oldest = recent_posteriors(self._scheme, self._state, number=1)
            self._final.append(replace(oldest, **{name: part.copy() for name, part in oldest.parts().items()}))

    def smoothed(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return estimates of all slots from the records of all slots, measurements of all slots, and their variances.

        In the order estimates, their variances, measurements, their variances; (T, N, d) each.
        """
        first = int(self._final[-1].slots[0]) + 1 if self._final else 0
        parts = [*self._final, recent_posteriors(self._scheme, self._state, first)]
        joined = {name: np.concatenate([part.parts()[name] for part in parts]) for name in parts[0].parts()}
        posteriors = replace(parts[0], **joined)
        return *posteriors.smoothed(self._state.setting), posteriors.measurement, posteriors.measurement_var
