"""The smoothed history of a simulation: every slot estimated with the records of all slots, and its errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Estimates, Floats, PerRun, PerRunAndSlot
from dpcrowd.schemes.base import half_width
from dpcrowd.sim.metrics import covered, nan_mean, relative_error, squared_error

__all__ = ["Smoothed", "merge_smoothed", "smoothed_records"]


@dataclass(frozen=True, eq=False, repr=False)
class Smoothed:
    """The smoothed history of one scheme; arrays have the runs first.

    estimates, variances  (runs, slots, servers, regions); NaN and infinite where a server never knows anything
    are, mse, claimed_mse, coverage95   (runs,) as in `RunRecords`, from the burn-in on
    are_by_slot           (runs, slots)
    measurements, measurement_variances  (runs, slots, servers, regions): what the records of each slot say by
                          themselves; NaN and infinite where they say nothing
    """

    estimates: Estimates
    variances: Estimates
    are: PerRun
    mse: PerRun
    claimed_mse: PerRun
    coverage95: PerRun
    are_by_slot: PerRunAndSlot
    measurements: Estimates
    measurement_variances: Estimates

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """Return the bounds of the 95% intervals."""
        half = half_width(self.variances)
        return self.estimates - half, self.estimates + half


def smoothed_records(
    estimates: Floats, variances: Floats, measurements: Floats, measurement_var: Floats, truth: Floats, burn_in: int
) -> Smoothed:
    """Return the history of estimates, measurements and their variances, (slots, runs, servers, regions) each.

    truth  (slots, runs, regions)
    """
    errors = relative_error(estimates, truth)
    by_slot = (
        errors,
        squared_error(estimates, truth),
        nan_mean(np.where(np.isinf(variances), np.nan, variances), (2, 3)),
        covered(estimates, variances, truth),
    )
    are, mse, claimed, coverage = (nan_mean(np.ascontiguousarray(values[burn_in:].T), (1,)) for values in by_slot)
    return Smoothed(
        estimates=estimates.swapaxes(0, 1).copy(),
        variances=variances.swapaxes(0, 1).copy(),
        are=are,
        mse=mse,
        claimed_mse=claimed,
        coverage95=coverage,
        are_by_slot=errors.T.copy(),
        measurements=measurements.swapaxes(0, 1).copy(),
        measurement_variances=measurement_var.swapaxes(0, 1).copy(),
    )


def merge_smoothed(parts: Sequence[Smoothed], order: NDArray[np.integer]) -> Smoothed:
    """Return one history from those of several batches."""
    joined = {f.name: np.concatenate([getattr(part, f.name) for part in parts])[order] for f in fields(Smoothed)}
    return Smoothed(**joined)
