"""The errors of all servers' exact counts put together: what remains without noise, filter, model or network.

    binomial   estimate = sum of x_i / sum of H_i               (of a partition: the truth itself)
    paper      estimate = sum of w_i x_i / sum of w_i H_i       w = H / (H^2 Q + 1/12), Q of the data, 1/12 of rounding

It depends on shares and counts alone, so no choice of a process variance can make it worse. A filter can be better
where counts say little about a crowd that hardly moves.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dpcrowd.arrays import Floats, PerRegion, PerRun
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.data import RunData
from dpcrowd.sim.engine import draw_data
from dpcrowd.sim.metrics import relative_error

__all__ = ["errors_together"]

_ROUNDING_VAR = 1.0 / 12.0


def errors_together(config: SimulationConfig, runs: Iterable[int]) -> tuple[PerRun, PerRun]:
    """Return ARE and total error of these runs, (runs,) each, from the burn-in on; NaN where they are not defined."""
    weighted = config.observation == "paper"
    errors = [_errors(draw_data(config, run), config.data.change_var if weighted else None, config) for run in runs]
    return np.array([are for are, _ in errors]), np.array([total for _, total in errors])


def _errors(drawn: RunData, process_var: PerRegion | None, config: SimulationConfig) -> tuple[float, float]:
    truth = drawn.truth[config.burn_in :].astype(np.float64)
    estimate = _estimate(drawn, None if drawn.partition else process_var)[config.burn_in :]
    are = relative_error(estimate[:, None, None, :], truth[:, None, :])
    people = float(truth.sum())
    return float(np.nanmean(are)), float(np.nansum(np.abs(estimate - truth))) / people if people else float("nan")


def _estimate(drawn: RunData, process_var: PerRegion | None) -> Floats:
    """Return the estimates (T, d); NaN where no server has a share."""
    shares = drawn.shares if drawn.shares.ndim == 3 else np.atleast_2d(drawn.shares)[..., None]  # (T or 1, m, d or 1)
    weights = (
        np.ones_like(shares) if process_var is None else shares / (np.square(shares) * process_var + _ROUNDING_VAR)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((weights * drawn.counts).sum(axis=1) / (weights * shares).sum(axis=1))
