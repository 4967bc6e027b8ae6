"""RescueDP (Wang et al.): one server alone, adaptive sampling, budget in a window, dynamic grouping, Kalman filter."""

from __future__ import annotations

from dpcrowd.schemes.rescue import RescueScheme

__all__ = ["RescueDP"]


class RescueDP(RescueScheme):
    """A server that filters its own samples and sends nothing."""

    name = "rescuedp"
    summary = ("alone", "Rescue PID, budget of the window, grouping", "Kalman", "window")
