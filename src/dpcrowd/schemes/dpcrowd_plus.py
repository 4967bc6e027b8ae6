"""DPCrowd+ (Algorithm 3): RescueDP's sampling, budget and grouping with one-hop Kalman-consensus fusion.

Regions that are not sampled in a slot carry no measurement (line 10 of the printed algorithm would count the last
release as one).
"""

from __future__ import annotations

from dpcrowd.schemes.rescue import RescueScheme

__all__ = ["DPCrowdPlus"]


class DPCrowdPlus(RescueScheme):
    """The paper's scheme for endless streams of many regions."""

    name = "dpcrowd-plus"
    summary = (
        "one hop, intermittent",
        "Rescue PID, budget of the window, grouping",
        "KCIF, diagonal or matrix",
        "window",
    )
    reach = "one-hop"
    live = True
