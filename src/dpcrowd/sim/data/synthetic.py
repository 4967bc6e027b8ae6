"""Linear and Multi-Linear: streams that follow the process model exactly (Eqs. state and multistate).

    r(t+1) = | A r(t) + w(t) |,   w ~ N(0, Q)

The absolute value reflects at 0, since a crowd cannot be negative. The state stays unrounded; only what is released
as the truth is whole numbers, so that rounding does not feed back. The paper gives no r(0), A or Q for Multi-Linear
and no r(0) for Linear: the values below are ours, and public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpcrowd.arrays import PerRegion, RegionMatrix, Truth
from dpcrowd.errors import BadInput
from dpcrowd.filters.model import ProcessModel
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.data.dataset import DataSet, region_indexes

__all__ = ["SyntheticData", "linear", "markov_matrix", "multi_linear", "select_regions"]

SLOTS = 1000
MOST_SLOTS = 10_000_000
LINEAR_START = (20_000.0,)
LINEAR_VAR = 1e5
MULTI_START = (20_000.0, 8_000.0, 3_000.0, 1_000.0, 300.0, 100.0)
MULTI_MOVING = 0.06  # share of a region's people who may move in one slot
MULTI_SPREAD = 0.016  # standard deviation of the change in one slot, relative to r(0)
MARKOV_SEED = 6

LINEAR_TUNING = Tuning(theta=2.5, xi=0.05, sample_fraction=0.3)
# The table has no theta, xi and T_s for Multi-Linear: FAST and DPCrowd take those of Linear there.
MULTI_TUNING = Tuning(theta=2.5, xi=0.05, sample_fraction=0.3, rescue_theta=1.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class SyntheticData(DataSet):
    """A process that is drawn anew in each run.

    start     r(0), of all regions of the process
    process   A and Q that the truth follows (the filters' `model` may differ)
    columns   which regions are shown, or None for all
    """

    start: PerRegion
    process: ProcessModel
    columns: tuple[int, ...] | None = None

    @property
    def expected_level(self) -> PerRegion:
        """The expected counts (d,), averaged over the slots; the reflection at 0 is neglected."""
        state, total = self.start, np.zeros_like(self.start)
        for _ in range(self.slots):
            total += state
            state = self.process.matrix_transition @ state
        mean = total / self.slots
        return mean if self.columns is None else mean[list(self.columns)]

    def truth(self, rng: np.random.Generator) -> Truth:
        a = self.process.matrix_transition
        steps = rng.standard_normal((self.slots - 1, len(self.start))) * np.sqrt(self.process.noise_var)
        states = np.empty((self.slots, len(self.start)))
        states[0] = state = self.start
        for t, step in enumerate(steps, start=1):
            states[t] = state = np.abs(a @ state + step)
        counts = np.rint(states).astype(np.int64)
        return counts if self.columns is None else counts[:, list(self.columns)]


def linear(slots: int | None = None) -> SyntheticData:
    """Return Linear: one region, Q = 1e5, r(0) = 20,000, T = 1000."""
    process = ProcessModel.of(1.0, [LINEAR_VAR])
    return _build("linear", ("crowd",), LINEAR_START, process, LINEAR_TUNING, (), slots)


def multi_linear(slots: int | None = None) -> SyntheticData:
    """Return Multi-Linear: six regions between which people move, T = 1000."""
    d = len(MULTI_START)
    transition = (1 - MULTI_MOVING) * np.eye(d) + MULTI_MOVING * markov_matrix(d, MARKOV_SEED)
    process = ProcessModel.of(transition, np.square(MULTI_SPREAD * np.array(MULTI_START)))
    names = tuple(f"region-{k}" for k in range(1, d + 1))
    return _build("multi-linear", names, MULTI_START, process, MULTI_TUNING, (), slots)


def markov_matrix(d: int, seed: int) -> RegionMatrix:
    """Return a random d x d matrix whose columns sum to 1: acting on a column of counts, it keeps the total.

    Column j is where the people of region j go, uniform over the simplex. It is built from uniform numbers by hand
    because only those are the same in every NumPy version.
    """
    uniform = np.random.Generator(np.random.PCG64(seed)).random((d, d))
    exponential = -np.log1p(-uniform)
    return np.asarray(exponential / exponential.sum(axis=0))


def select_regions(data: SyntheticData, selection: Sequence[str]) -> SyntheticData:
    """Return the same process in some of its regions; each run has the columns that the complete set would have."""
    columns = region_indexes(data.regions, selection)
    assert columns is not None
    model = ProcessModel.of(1.0, data.model.diagonal_var[columns])  # people who come from elsewhere included
    notes = data.notes
    if data.process.transition.ndim == 2:
        notes = (*notes, "only some regions are used: flows from the others are unknown, so the model takes A = 1.")
    return replace(
        data,
        regions=tuple(data.regions[k] for k in columns),
        columns=tuple(columns),
        model=model,
        change_var=data.change_var[columns],
        notes=notes,
    )


def _build(
    name: str,
    regions: tuple[str, ...],
    start: tuple[float, ...],
    process: ProcessModel,
    tuning: Tuning,
    notes: tuple[str, ...],
    slots: int | None,
) -> SyntheticData:
    slots = SLOTS if slots is None else slots
    if slots < 1:
        raise BadInput(f"slots={slots} asked of {name}; allowed: 1 or more.")
    if slots > MOST_SLOTS:
        raise BadInput(f"slots={slots} asked of {name}; allowed: at most {MOST_SLOTS}.")
    return SyntheticData(
        name=name,
        regions=regions,
        slots=int(slots),
        model=process,
        tuning=tuning,
        notes=notes,
        change_var=process.noise_var,
        start=np.array(start),
        process=process,
    )
