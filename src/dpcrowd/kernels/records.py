"""Sums over the records of a slot, and scores of their origins, for one receiver after the other.

`filters.records` and `filters.origins` define what is computed, and do the same in array operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["judge_origins", "sum_records"]


# The place of the only bit of a word x that is set is _PLACES[(x * _DE_BRUIJN) >> 58].
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_PLACES = np.empty(64, dtype=np.int64)
_PLACES[[(((1 << place) * int(_DE_BRUIJN)) & (2**64 - 1)) >> 58 for place in range(64)]] = np.arange(64)


def sum_records(  # noqa: PLR0912, PLR0915  (one loop: a call in it would have to be compiled as well)
    indptr: Any, indices: Any, have: Any, by_bits: bool, active: Any, noisy: Any, var: Any, shares: Any, level: Any,
    level_var: Any, prior: Any, prior_var: Any, guarded: bool, penalty: Any, penalised: Any, limit: float, paper: bool,
    process_var: Any, servers: int, before: Any, recent: Any, scales: Any, y: Any, info: Any, updated: bool,
    doubtful: float, mean: Any, mean_var: Any, known: Any,
) -> None:  # fmt: skip
    """Sum the records of each active receiver; if `updated`, its posterior follows from the prior and the sums.

    have, by_bits  the records as bits (N, words) instead of the lists in indptr and indices
    doubtful       a scale above this multiplies the variance of the prior
    """
    count, regions = y.shape
    pool = recent.shape[1]
    most = servers
    if not by_bits:
        for i in range(count):
            size: Any = np.int64(indptr[i + 1]) - np.int64(indptr[i])
            most = max(most, size) if i else size
    means = np.empty(most + pool)
    variances, squares = np.empty((most, regions)), np.empty((most, regions))
    origins = np.empty(most, dtype=np.int64)  # origins of the records that a receiver has
    trusted = np.empty(most, dtype=np.int64)  # those of them that have no penalty
    base_var, base_weight = np.empty_like(noisy), np.empty_like(noisy)
    if paper:  # they are the same for all receivers
        for o in range(noisy.shape[0]):
            if var[o] > 0.0:
                for k in range(regions):
                    base_var[o, k] = var[o] + max(shares[o] * shares[o] * process_var[k], 1.0 / 12.0)
                    base_weight[o, k] = shares[o] / base_var[o, k]
    for i in range(count):
        if not active[i]:
            continue
        first = i // servers * servers  # the origin that is the first one of this run
        own, record, punishes = 0, 0, penalised[i]
        if by_bits:
            for w in range(have.shape[1]):
                x = have[i, w]
                while x:
                    lowest = x & (~x + np.uint64(1))
                    origins[record] = first + w * 64 + _PLACES[(lowest * _DE_BRUIJN) >> np.uint64(58)]
                    record += 1
                    x ^= lowest
        else:
            for e in range(indptr[i], indptr[i + 1]):
                if var[indices[e]] > 0.0:
                    origins[record] = indices[e]
                    record += 1
        for k in range(regions):
            y[i, k] = info[i, k] = 0.0
        if guarded:
            for b in range(pool):
                recent[i, b] = before[i, b]
        for e in range(record):
            o = origins[e]
            share = shares[o]
            total = 0.0
            for k in range(regions):
                if paper:
                    variance = base_var[o, k]
                else:
                    crowd = level[i, k] if level_var[i, k] < np.inf else noisy[o, k] / share
                    variance = var[o] + max(share * (1.0 - share) * max(crowd, 1.0), 1.0 / 12.0)
                    variances[e, k] = variance
                if guarded:
                    off = noisy[o, k] - share * prior[i, k]
                    square = off * off / (variance + share * share * prior_var[i, k])
                    squares[e, k] = square
                    total += square
            if guarded and not (punishes and penalty[i, o - first] != 1.0):
                means[own] = total / regions if regions > 1 else total
                trusted[own] = o
                own += 1
        scale = 1.0
        if guarded and own:
            number = own
            for b in range(pool - 1, -1, -1):
                if number < pool and not np.isnan(recent[i, b]):
                    means[number] = recent[i, b]
                    number += 1
            if own >= pool:
                for b in range(pool):
                    recent[i, b] = means[own - pool + b]
            else:
                for b in range(pool - own):
                    recent[i, b] = recent[i, b + own]
                for b in range(own):
                    recent[i, pool - own + b] = means[b]
            if number >= pool:
                usual = 0  # where more than a quarter are at most 1, so is the quartile, and nothing has to be sorted
                for b in range(number):
                    usual += means[b] <= 1.0
                if usual <= number // 4:
                    scale = max(np.sort(means[:number])[number // 4], 1.0)
            else:  # few records so far: is the prior outvoted?
                least, rival, majority = np.inf, np.inf, 0
                for b in range(number):
                    majority += 1 if means[b] > limit else -1
                    if b < own and means[b] > limit:
                        least = min(least, means[b])
                        claim = 0.0
                        for k in range(regions):
                            claim += noisy[trusted[b], k]
                        if claim >= 0.0:
                            rival = min(rival, claim / shares[trusted[b]])
                if majority == 0:
                    total = 0.0
                    for k in range(regions):
                        total += prior[i, k]
                    majority = 1 if rival < (total if total >= 0.0 else np.inf) else -1
                if majority > 0 and least < np.inf:
                    scale = least
                    for b in range(pool):  # the prior changes sides
                        if not np.isnan(recent[i, b]):
                            recent[i, b] = 0.0 if recent[i, b] > limit else 2.0 * limit
        if guarded:
            scales[i] = scale
        bound = limit * scale
        for e in range(record):
            o = origins[e]
            share = shares[o]
            for k in range(regions):
                variance = base_var[o, k] if paper else variances[e, k]
                weight = base_weight[o, k]
                changed = not paper
                if guarded and (squares[e, k] > bound or noisy[o, k] < 0.0):
                    ratio = squares[e, k] / bound
                    if noisy[o, k] < 0.0:
                        ratio = max(ratio, noisy[o, k] * noisy[o, k] / (limit * var[o]))
                    if ratio > 1.0:
                        variance, changed = variance * ratio, True
                if punishes:
                    variance, changed = variance * penalty[i, o - first], True
                if changed:
                    weight = share / variance
                y[i, k] += weight * noisy[o, k]
                info[i, k] += weight * share
        if updated:
            doubt = scale if scale > doubtful else 1.0
            known[i] = True
            for k in range(regions):
                precision = 1.0 / (prior_var[i, k] * doubt) + info[i, k]
                posterior_var = 1.0 / precision
                step = (y[i, k] - info[i, k] * prior[i, k]) * posterior_var if precision > 0.0 else 0.0
                mean[i, k], mean_var[i, k] = prior[i, k] + step, posterior_var
                known[i] = known[i] and posterior_var < np.inf


def judge_origins(
    indptr: Any, indices: Any, noisy: Any, var: Any, shares: Any, level: Any, level_var: Any, paper: bool,
    process_var: Any, mean: Any, mean_var: Any, known: Any, rates: Any, limits: Any, scores: Any, usual: Any,
    suspicious: Any,
) -> None:  # fmt: skip
    """Update the scores of the origins whose records each receiver has, its `usual`, and whether it is suspicious."""
    most_usual, most, suspect, learning, forgiving = limits
    regions, servers = noisy.shape[1], scores.shape[1]
    residuals, origins = np.empty(rates.shape[0]), np.empty(rates.shape[0], dtype=np.int64)
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
            origins[number] = o
            number += 1
        if not number:
            continue
        usual[i] = usual[i] + (total / number - usual[i]) * rates[number]
        first, low = i // servers * servers, True
        for e in range(number):
            o = origins[e]
            residual = min(residuals[e] / max(usual[i], 1.0), most)
            score = scores[i, o - first]
            rate = forgiving if score > suspect and residual < score else learning
            scores[i, o - first] = score + (residual - score) * rate
            low = low and scores[i, o - first] <= suspect
        if suspicious[i] or not low:
            suspicious[i] = False
            for b in range(servers):
                suspicious[i] = suspicious[i] or scores[i, b] > suspect
