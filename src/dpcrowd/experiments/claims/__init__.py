"""Every comparison that the paper states in words, judged on simulations: holds, does not hold, or undecided.

A claim is a row of `claims.toml`. `docs/claims.md` explains the rules and margins.
"""

from __future__ import annotations

from dpcrowd.experiments.claims.claim import CLAIMS, Claim, Outcome, Part, Verdict
from dpcrowd.experiments.claims.judge import judge, judge_all, why_not_judged

__all__ = ["CLAIMS", "Claim", "Outcome", "Part", "Verdict", "judge", "judge_all", "why_not_judged"]
