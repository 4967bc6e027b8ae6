"""DPCrowdW: DPCrowd on each region and each block of w slots (Section "Comparison"), w-event privacy.

Each block pays epsilon/2, since a sliding window can straddle two blocks. Controllers and sample counts begin anew with
each block; the filter goes on, which costs nothing (post-processing).
"""

from __future__ import annotations

from dpcrowd.schemes.sampled import SampledScheme

__all__ = ["DPCrowdW"]


class DPCrowdW(SampledScheme):
    """The paper's first extension to endless streams of many regions."""

    name = "dpcrowd-w"
    kinds = frozenset({"window"})
    summary = ("one hop, intermittent", "DPCrowd on blocks of w slots, ε/2 a block", "KCIF", "window")
    reach = "one-hop"
