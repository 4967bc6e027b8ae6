"""How many people there are in a slot, as far as the binomial variance of its records needs to know.

A server that sees the share H of r people counts H r of them with variance H (1 - H) r. Whoever filters a record takes
for r what the records before its slot lead to, its prior, once that is known better than its own size. Until then it
takes the finalised state of slot s - L, as it is expected to be in slot s, and if nothing is final, the record itself.

Where records are precise beside the noise, r matters: after a crowd has become three times as large, variances of the
finalised state would be too small by three for L slots, and the intervals by their square root. The filter runs again
from the lag's start whenever a late record arrives, so the prior is a function of the set of records, too.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters import predict
from dpcrowd.filters.ahead import predict_ahead
from dpcrowd.filters.bank_estimate import combined
from dpcrowd.filters.learning import predict_bank
from dpcrowd.schemes.relay_state import RelayState

__all__ = ["crowd_level", "diagonal", "expected_level"]


def crowd_level(state: RelayState, slot: int, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
    """Return the crowd behind the binomial variance of a slot, and its variance (infinite: unknown), (N, d) each.

    mean, var  (N, d) what is known of the slot: its prior, or what all its records lead to
    """
    place = slot % state.lag
    level, level_var = state.level[place], state.level_var[place]
    if state.setting.observation == "paper":  # whose variance does not depend on the crowd
        return level, level_var
    certain = np.isfinite(var) & (var < np.square(np.maximum(mean, 1.0)))
    return np.where(certain, np.maximum(mean, 0.0), level), np.where(certain, var, level_var)


def expected_level(state: RelayState, slot: int) -> tuple[Floats, Floats]:
    """Return the finalised state as it is expected to be L slots later, in a slot: means and variances, (N, d)."""
    model, mean, var = state.setting.model, state.base, state.base_var
    if state.base_bank is not None and model.course is not None:  # it may have learned that the level has moved
        beliefs = state.beliefs
        return combined(predict_bank(state.base_bank, model, beliefs, slot, max(slot - state.lag, -1)), beliefs)
    if model.course is not None:
        variances = diagonal(var) if state.setting.form == "matrix" else var
        return predict_ahead(mean, variances, model, min(state.lag, slot + 1), slot)
    if state.setting.form == "diagonal":
        for _ in range(state.lag):
            mean, var = predict(mean, var, model)
        return mean, var
    ahead = np.linalg.matrix_power(model.matrix_transition, state.lag)
    known = np.broadcast_to(state.base_known[:, None], mean.shape)
    return (ahead @ mean[..., None])[..., 0], np.where(known, 1.0, np.inf)


def diagonal(matrices: Floats) -> Floats:
    """Return the diagonals of the last two axes, as a view."""
    return np.asarray(np.einsum("...kk->...k", matrices))
