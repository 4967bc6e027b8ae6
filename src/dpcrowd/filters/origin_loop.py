"""Scores of origins as one loop that Numba compiles; `origins` explains them and does the same in array operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

__all__ = ["compiled_judge"]


def _loop_judge(
    indptr: Any, indices: Any, noisy: Any, var: Any, shares: Any, level: Any, level_var: Any, paper: bool,
    process_var: Any, mean: Any, mean_var: Any, known: Any, rates: Any, limits: Any, scores: Any, usual: Any,
) -> None:  # fmt: skip
    most_usual, most, suspect, learning, forgiving = limits
    regions, servers = noisy.shape[1], scores.shape[1]
    residuals = np.empty(rates.shape[0])
    for i in range(indptr.shape[0] - 1):
        if not known[i]:
            continue
        number, total = 0, 0.0
        for e in range(indptr[i], indptr[i + 1]):
            o = indices[e]
            if var[o] <= 0.0:
                continue
            share = shares[o]
            each = 0.0
            for k in range(regions):
                if paper:
                    spread = share * share * process_var[k]
                else:
                    crowd = level[i, k] if level_var[i, k] < np.inf else noisy[o, k] / share
                    spread = share * (1.0 - share) * max(crowd, 1.0)
                variance = var[o] + max(spread, 1.0 / 12.0)
                off = noisy[o, k] - share * mean[i, k]
                each += off * off / (variance + share * share * mean_var[i, k])
            residuals[number] = each / regions
            total += min(residuals[number], most_usual)
            number += 1
        if not number:
            continue
        usual[i] = usual[i] + (total / number - usual[i]) * rates[number]
        number, first = 0, i // servers * servers
        for e in range(indptr[i], indptr[i + 1]):
            o = indices[e]
            if var[o] <= 0.0:
                continue
            residual = min(residuals[number] / max(usual[i], 1.0), most)
            number += 1
            score = scores[i, o - first]
            rate = forgiving if score > suspect and residual < score else learning
            scores[i, o - first] = score + (residual - score) * rate


@cache
def compiled_judge() -> Callable[..., Any] | None:
    """The loop, or None without Numba."""
    if find_spec("numba") is None:
        return None
    import numba

    compiled: Callable[..., Any] = numba.njit(cache=True)(_loop_judge)
    return compiled
