"""The numbers that a scheme can be tuned with, in one frozen object.

Defaults are the paper's parameter table for Linear and, where the paper gives none, the values that the public
re-implementations of FAST and RescueDP use. All of them are public: none may be computed from the raw counts of
the stream that is being protected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

from dpcrowd.errors import BadInput

__all__ = ["Tuning"]


@dataclass(frozen=True)
class Tuning:
    """Parameters of sampling, allocation, grouping and filtering.

    theta, xi         FAST's interval adjustment (theta, xi)
    sample_fraction   T_s / T, the largest share of slots that FAST and DPCrowd may sample (pinned users)
    rescue_theta      RescueDP's theta
    gains             PID gains (C_p, C_i, C_d)
    integral_window   T_i, how many past errors the integral term averages
    floor             delta: the smallest denominator of a relative error
    alpha             weight of the noise variance in the observation variance, Eq. (approx)
    phi, p_max        RescueDP's budget allocation: p = min(phi ln(I + 1), p_max)
    epsilon_max       largest share of epsilon that RescueDP gives to one sample
    tau1, tau2, tau3  dynamic grouping: size, correlation and difference thresholds, in the server's own counts
    history           kappa: how many past releases the grouping looks at

    >>> Tuning(theta=1.0).theta
    1.0
    >>> Tuning(sample_fraction=2)
    Traceback (most recent call last):
        ...
    dpcrowd.errors.BadInput: tuning parameter sample_fraction must be above 0 and at most 1; given 2.
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

    def __post_init__(self) -> None:
        for name in ("theta", "rescue_theta", "alpha", "phi", "epsilon_max", "p_max"):
            self._require(name, lambda value: 0.0 <= value < math.inf, "a finite number >= 0")
        for name in ("xi", "floor"):
            self._require(name, lambda value: 0.0 < value < math.inf, "a finite number > 0")
        self._require("sample_fraction", lambda value: 0.0 < value <= 1.0, "above 0 and at most 1")
        for name in ("tau1", "tau2", "tau3"):
            self._require(name, lambda value: not math.isnan(value), "a number")
        for name in ("integral_window", "history"):
            self._require(name, lambda value: value >= 1 and value == int(value), "a whole number >= 1")
        gains = self.gains
        if not isinstance(gains, tuple | list) or len(gains) != 3 or not all(_finite(gain) for gain in gains):
            raise BadInput(f"tuning parameter gains must be three finite numbers; given {gains!r}.")
        object.__setattr__(self, "gains", tuple(float(gain) for gain in gains))

    def _require(self, name: str, allowed: Callable[[float], bool], text: str) -> None:
        value = getattr(self, name)
        if not _is_number(value) or not allowed(float(value)):
            raise BadInput(f"tuning parameter {name} must be {text}; given {value!r}.")


def _is_number(value: Any) -> bool:
    return issubclass(type(value), Real) and type(value) is not bool


def _finite(value: Any) -> bool:
    return _is_number(value) and math.isfinite(float(value))
