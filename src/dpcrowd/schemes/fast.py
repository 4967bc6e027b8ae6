"""FAST (Fan and Xiong): one server alone, PID sampling with epsilon/T_s per sample, Kalman filter (Eq. stdKF)."""

from __future__ import annotations

from dpcrowd.schemes.sampled import SampledScheme

__all__ = ["FAST"]


class FAST(SampledScheme):
    """A server that filters its own samples and sends nothing."""

    name = "fast"
    kinds = frozenset({"finite"})
    summary = ("alone", "PID or fixed, ε/T_s per sample", "Kalman", "finite")
    live = False
