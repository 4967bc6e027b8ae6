"""The variance of an observation, R = alpha Var(noise) + Var(counts given the truth) (Eq. approx).

The paper takes H^2 Q for the second term. A share H of a crowd of r people has the binomial variance H (1 - H) r
instead, with r taken from the prior: both are offered.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dpcrowd.arrays import Floats

__all__ = ["ROUNDING", "Observation", "observation_var"]

Observation = Literal["paper", "binomial"]

# A count is a whole number: rounding alone leaves this variance, which also keeps R > 0 where Q or the noise is 0.
ROUNDING = 1.0 / 12.0


def observation_var(kind: Observation, share: Floats, process_var: Floats, expected: Floats) -> Floats:
    """Return the variance of a server's counts around H r, broadcast to (N, d).

    expected  the population's counts as the server expects them, (N, d); only "binomial" looks at it
    """
    spread = share * share * process_var if kind == "paper" else share * (1.0 - share) * np.maximum(expected, 1.0)
    return np.maximum(spread, ROUNDING)
