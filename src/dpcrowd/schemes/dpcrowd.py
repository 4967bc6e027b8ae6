"""DPCrowd (Algorithm 2): one hop, intermittent, Kalman-consensus information filter, user-level epsilon.

In a slot without an own sample the server has no measurement of its own (the paper's z <- r(t-1) would count old
information again); messages of neighbours that did sample are fused all the same (Eqs. kgain, posterior).
"""

from __future__ import annotations

from dpcrowd.schemes.sampled import SampledScheme

__all__ = ["DPCrowd"]


class DPCrowd(SampledScheme):
    """The paper's scheme for a finite stream."""

    name = "dpcrowd"
    kinds = frozenset({"finite"})
    summary = ("one hop, intermittent", "PID or fixed, ε/T_s per sample", "KCIF", "finite")
    reach = "one-hop"
