"""Settings of relay for a live network that is about to be written: what `dpcrowd init` and `dpcrowd demo` choose.

Live servers forward a record as soon as it arrives, so on links that are faster than a slot every record within reach
arrives in its own slot: the prediction lets records travel all hops at once. Servers are linked in a ring and have
equal shares, as in a sample network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import USUAL_TURNOVER
from dpcrowd.schemes.prediction import PublicFacts, best_samples
from dpcrowd.schemes.relay import Hops
from dpcrowd.sim.planner.predict import predict
from dpcrowd.sim.planner.request import PlanRequest, read_levels

__all__ = ["RelaySettings", "settings_of_ring"]

LAG = 16


@dataclass(frozen=True)
class RelaySettings:
    """Samples per window, hops that a record travels, and slots by which it may be late."""

    samples: int
    reach: Hops
    lag: int = LAG


def settings_of_ring(
    servers: int,
    level: Sequence[float],
    process_var: float | Sequence[float],
    window: int,
    epsilon: float,
    turnover: float = USUAL_TURNOVER,
) -> RelaySettings:
    """Return the recommended settings for servers in a ring, among which the users are divided in equal parts.

    level        expected people per slot, one number per region
    process_var  Q: one number for all regions, or one per region
    window       w, the length of the window in slots
    turnover     the part of a server's users who are replaced per slot
    """
    levels = read_levels([max(value, 1.0) for value in level], process_var)
    if servers == 1:
        facts = PublicFacts(
            guarantee=Guarantee.window(window, epsilon),
            model=ProcessModel.of(1.0, levels.process_var),
            shares=np.ones(1),
            delays=np.zeros((1, 1), dtype=np.int64),
            phases=lambda _samples: np.zeros(1, dtype=np.int64),
            observation="binomial",
            level=np.array(levels.level),
            turnover=turnover,
        )
        return RelaySettings(best_samples(facts), "all")
    request = PlanRequest(
        levels=levels,
        epsilon=epsilon,
        window=window,
        servers=servers,
        graph="ring",
        shares=(1.0 / servers,) * servers,
        observation="binomial",
        hops_per_slot="all",
        turnover=turnover,
        lag=LAG,
    )
    prediction = predict(request)
    return RelaySettings(prediction.samples, prediction.reach)
