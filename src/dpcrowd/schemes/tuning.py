"""The numbers that a scheme can be tuned with, in one frozen object.

Defaults are the paper's parameter table for Linear and, where the paper gives none, the values that the public
re-implementations of FAST and RescueDP use. All of them are public: none may be computed from the raw counts of
the stream that is being protected.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Tuning"]


@dataclass(frozen=True)
class Tuning:
    """Parameters of sampling, allocation, grouping and filtering.

    theta, xi         FAST's interval adjustment (theta, xi)
    sample_fraction   T_s / T, the largest share of slots that FAST and DPCrowd may sample
    rescue_theta      RescueDP's theta
    gains             PID gains (C_p, C_i, C_d)
    integral_window   T_i, how many past errors the integral term averages
    floor             delta: the smallest denominator of a relative error
    alpha             weight of the noise variance in the observation variance, Eq. (approx)
    phi, p_max        RescueDP's budget allocation: p = min(phi ln(I + 1), p_max)
    epsilon_max       largest share of epsilon that RescueDP gives to one sample
    tau1, tau2, tau3  dynamic grouping: size, correlation and difference thresholds, in the server's own counts
    history           kappa: how many past releases the grouping looks at
    """

    theta: float = 2.5
    xi: float = 0.05
    sample_fraction: float = 0.3
    rescue_theta: float = 1.0
    gains: tuple[float, float, float] = (0.9, 0.1, 0.0)
    integral_window: int = 5
    floor: float = 1.0
    alpha: float = 1.0
    phi: float = 0.2
    p_max: float = 0.6
    epsilon_max: float = 0.2
    tau1: float = 30.0
    tau2: float = 0.5
    tau3: float = 25.0
    history: int = 3
