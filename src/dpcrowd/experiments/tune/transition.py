"""A from transition frequencies: where the people of a region are one slot later (Eq. multistate).

Column j of A is where the people of region j go; columns sum to 1, so that A keeps the total.

    check-ins   counted: users seen in region j in a slot and in region k in the next
    counts      nobody's moves are known. A is estimated from consecutive counts by non-negative least squares with a
                ridge towards the identity: a macro-data estimate, which may take a region that rises as another falls
                for one that people move to. It predicts; it does not say who moved.

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
"""How large a flow is expected to be, as a share of a region's people: the width of the pull towards the identity."""


def moves_between_regions(data: CheckIns) -> Ints:
    """(d, d): how many times a user was in region j in one slot and in region k in the next, at [k, j]."""
    d = len(data.regions)
    place = data.entry_slot * data.users + data.entry_user  # of one (slot, user) pair; each occurs once
    order = np.argsort(place)
    place, region = place[order], data.entry_region[order]
    following = np.searchsorted(place, place + data.users)
    known = following < len(place)
    known[known] = place[following[known]] == place[known] + data.users
    flat = region[following[known]] * d + region[known]
    return np.bincount(flat, minlength=d * d).astype(np.int64).reshape(d, d)


def transition_from_checkins(data: CheckIns) -> RegionMatrix:
    """A from the moves of users who were seen in two consecutive slots; who was never seen again stays."""
    moves = moves_between_regions(data)
    if not moves.any():
        raise BadInput(
            f"nobody in '{data.name}' checks in during two consecutive slots, so there are no moves to count; take "
            "longer slots, or leave the transition out."
        )
    return _normalised(moves.astype(np.float64))


def transition_from_counts(series: Sequence[Truth], flow: float = FLOW) -> RegionMatrix:
    """A that predicts each slot's counts from the one before, over one or more streams (T, d).

    With F[k, j] >= 0 the share of region j's people who go to region k, a region changes by what flows in less what
    flows out, and A = I + F - diag(column sums of F) has columns that sum to 1 whatever F is. Minimised is

        sum over slots and regions of (change - inflow + outflow)^2/s_k^2  +  sum of (F[k, j]/flow)^2

    with s_k^2 the mean square of the region's changes. (Fitting rows apart and dividing the columns by their sums
    afterwards is worse than the identity for small regions beside large ones: 1% of a city is a village.)
    """
    from scipy.optimize import minimize

    before, after = _steps(series)
    d = before.shape[1]
    change = after - before
    weight = 1.0 / np.maximum(np.square(change).mean(axis=0), ROUNDING_VAR)
    # Each flow in units of its own uncertainty: regions of very different size make the problem stiff otherwise.
    size = np.square(before).sum(axis=0)
    unit = 1.0 / np.sqrt(size * (weight[:, None] + weight) + flow**-2)

    def loss(point: Floats) -> tuple[float, Floats]:
        flows = point.reshape(d, d) * unit
        apart = before @ flows.T - before * flows.sum(axis=0) - change
        slope = (apart * weight).T @ before
        slope = slope - np.diag(slope) + flows / flow**2
        np.fill_diagonal(slope, 0.0)
        value = 0.5 * float((np.square(apart) * weight).sum() + np.square(flows).sum() / flow**2)
        return value, (slope * unit).ravel()

    bounds = [(0.0, 0.0 if k == j else None) for k in range(d) for j in range(d)]
    options = {"maxiter": 20_000, "maxfun": 40_000, "maxcor": 30, "ftol": 1e-14, "gtol": 1e-9}
    solution = minimize(loss, np.zeros(d * d), jac=True, bounds=bounds, method="L-BFGS-B", options=options).x
    flows = solution.reshape(d, d) * unit
    flows = flows / np.maximum(flows.sum(axis=0), 1.0)  # nobody leaves twice
    return np.asarray(flows + np.diag(1.0 - flows.sum(axis=0)))


def residual_var(transition: RegionMatrix, series: Sequence[Truth]) -> PerRegion:
    """(d,) Q around A: the mean square of what A does not predict."""
    before, after = _steps(series)
    apart = np.square(after - before @ transition.T)
    return np.asarray(np.maximum(apart.mean(axis=0), ROUNDING_VAR))


def _steps(series: Sequence[Truth]) -> tuple[Floats, Floats]:
    before = np.concatenate([counts[:-1] for counts in series]).astype(np.float64)
    return before, np.concatenate([counts[1:] for counts in series]).astype(np.float64)


def _normalised(flows: RegionMatrix) -> RegionMatrix:
    """Columns divided by their sums; a region that nobody leaves or stays in keeps its people."""
    total = flows.sum(axis=0)
    return np.where(total > 0.0, flows / np.where(total > 0.0, total, 1.0), np.eye(len(flows)))
