"""A from transition frequencies: the regions of people one slot later (Eq. multistate).

Column j of A says where the people of region j go; columns sum to 1, so that A preserves the total.

    check-ins   counted: users seen in region j in a slot and in region k in the next
    counts      individual moves are unknown. A is estimated from consecutive counts by non-negative least squares with
                a ridge towards the identity: a macro-data estimate, which may mistake a region that rises while
                another one falls for its destination. It predicts counts; it does not say who moved.

Only the matrix form of a filter uses a full A.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpcrowd.arrays import Floats, Ints, PerRegion, RegionMatrix, Truth
from dpcrowd.errors import BadInput
from dpcrowd.sim.data.checkins import CheckIns
from dpcrowd.sim.data.series import ROUNDING_VAR

__all__ = ["FLOW", "moves_between_regions", "residual_var", "transition_from_checkins", "transition_from_counts"]

FLOW = 0.01
"""The expected size of a flow, as a share of a region's people: the width of the ridge towards the identity."""


def moves_between_regions(data: CheckIns) -> Ints:
    """Return (d, d): how often a user was in region j in one slot and in region k in the next, at [k, j]."""
    d = len(data.regions)
    place = data.entry_slot * data.users + data.entry_user  # number of a (slot, user) pair; each occurs once
    order = np.argsort(place)
    place, region = place[order], data.entry_region[order]
    following = np.searchsorted(place, place + data.users)
    continues = following < len(place)
    continues[continues] = place[following[continues]] == place[continues] + data.users
    flat = region[following[continues]] * d + region[continues]
    return np.bincount(flat, minlength=d * d).astype(np.int64).reshape(d, d)


def transition_from_checkins(data: CheckIns) -> RegionMatrix:
    """Return A from the moves of users who check in during two consecutive slots."""
    moves = moves_between_regions(data)
    if not moves.any():
        raise BadInput(
            f"nobody in '{data.name}' checks in during two consecutive slots, so there are no moves to count; take "
            "longer slots, or leave the transition out."
        )
    return _normalised(moves.astype(np.float64))


def transition_from_counts(series: Sequence[Truth], flow: float = FLOW) -> RegionMatrix:
    """Return the A that predicts the counts of each slot from the slot before, over one or more streams (T, d).

    With F[k, j] >= 0 the share of region j's people who go to region k, a region changes by its inflow minus its
    outflow, and A = I + F - diag(column sums of F) has columns that sum to 1 whatever F is. The minimum is sought of

        sum over slots and regions of (change - inflow + outflow)^2/s_k^2  +  sum of (F[k, j]/flow)^2

    with s_k^2 the mean square of the region's changes. (Fitting each row alone and dividing the columns by their
    sums afterwards is worse than the identity for small regions beside large ones: 1% of a city is a village.)
    """
    from scipy.optimize import minimize

    before, after = _steps(series)
    d = before.shape[1]
    change = after - before
    weight = 1.0 / np.maximum(np.square(change).mean(axis=0), ROUNDING_VAR)
    # Each flow is in units of its own uncertainty: regions of very different sizes would make the problem stiff.
    size = np.square(before).sum(axis=0)
    unit = 1.0 / np.sqrt(size * (weight[:, None] + weight) + flow**-2)

    def loss(point: Floats) -> tuple[float, Floats]:
        flows = point.reshape(d, d) * unit
        residual = before @ flows.T - before * flows.sum(axis=0) - change
        slope = (residual * weight).T @ before
        slope = slope - np.diag(slope) + flows / flow**2
        np.fill_diagonal(slope, 0.0)
        value = 0.5 * float((np.square(residual) * weight).sum() + np.square(flows).sum() / flow**2)
        return value, (slope * unit).ravel()

    bounds = [(0.0, 0.0 if k == j else None) for k in range(d) for j in range(d)]
    options = {"maxiter": 20_000, "maxfun": 40_000, "maxcor": 30, "ftol": 1e-14, "gtol": 1e-9}
    solution = minimize(loss, np.zeros(d * d), jac=True, bounds=bounds, method="L-BFGS-B", options=options).x
    flows = solution.reshape(d, d) * unit
    flows = flows / np.maximum(flows.sum(axis=0), 1.0)  # nobody leaves twice
    return np.asarray(flows + np.diag(1.0 - flows.sum(axis=0)))


def residual_var(transition: RegionMatrix, series: Sequence[Truth]) -> PerRegion:
    """Return (d,) the Q that belongs to A: the mean square of the changes that A does not predict."""
    before, after = _steps(series)
    squares = np.square(after - before @ transition.T)
    return np.asarray(np.maximum(squares.mean(axis=0), ROUNDING_VAR))


def _steps(series: Sequence[Truth]) -> tuple[Floats, Floats]:
    before = np.concatenate([counts[:-1] for counts in series]).astype(np.float64)
    return before, np.concatenate([counts[1:] for counts in series]).astype(np.float64)


def _normalised(flows: RegionMatrix) -> RegionMatrix:
    """Divide columns by their sums; a region without any observed move keeps its people."""
    total = flows.sum(axis=0)
    return np.where(total > 0.0, flows / np.where(total > 0.0, total, 1.0), np.eye(len(flows)))
