"""DPCrowdW: DPCrowd on each region and each block of w slots (Section "Comparison"), w-event privacy.

Each block pays epsilon/2, since a sliding window can straddle two blocks; with `blocks="full"` it pays epsilon, and the
ledger holds back every sample that would bring some window above epsilon. Controllers and sample counts begin anew with
each block; the filter goes on, which costs nothing (post-processing).
"""

from __future__ import annotations

from dpcrowd.errors import unknown_name
from dpcrowd.schemes.sampled import SampledScheme, Sampling

__all__ = ["DPCrowdW"]


class DPCrowdW(SampledScheme):
    """The paper's first extension to endless streams of many regions."""

    name = "dpcrowd-w"
    kinds = frozenset({"window"})
    summary = ("one hop, intermittent", "DPCrowd on blocks of w slots, ε/2 per block", "KCIF", "window")
    reach = "one-hop"

    def __init__(self, sampling: Sampling = "adaptive", interval: int | None = None, blocks: str = "half") -> None:
        super().__init__(sampling, interval)
        if blocks not in ("half", "full"):
            raise unknown_name("budget of a block", blocks, ("half", "full"))
        self.block_parts = 2 if blocks == "half" else 1
