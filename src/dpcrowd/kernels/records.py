"""Sums over the records of a slot, and scores of their origins, for one receiver after the other.

`filters.records` and `filters.origins` define what is computed, and do the same in array operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["AGREEING", "POOL", "judge_origins", "judge_origins_by_bits", "sum_records"]

POOL = 5
"""Records whose lower quartile says how far off the prior is. A constant, so that loops over them are unrolled."""
AGREEING = 3
"""Records of one slot, if there are fewer than `POOL`, that show by themselves that the prior is off, where all do."""

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
    shares         (O, 1), or (O, d) where they differ by region
    doubtful       a scale above this multiplies the variance of the prior

    One pass over the records has the sums that hold if the guard changes nothing, and what the guard looks at. A second
    pass follows where a record is beyond the limit, or where the receiver penalises an origin. A receiver whose
    records and prior are those of an earlier receiver of its run takes over that one's results.
    """
    count, regions = y.shape
    by_region = shares.shape[1] > 1
    pool = POOL
    most = servers
    if not by_bits:
        for i in range(count):
            size: Any = np.int64(indptr[i + 1]) - np.int64(indptr[i])
            most = max(most, size) if i else size
    means = np.empty(pool + most + 1)  # v of the records before this slot, then of this slot's
    ordered = np.empty(pool + most)
    squares = np.empty((regions, most + 1))
    origins = np.empty(most + 1, dtype=np.uint64)  # of the records that a receiver has, counted from the run's first
    trusted = np.empty(most + 1, dtype=np.int64)  # the numbers of those of them that have no penalty
    # Of each record and region: z, H, H^2, and the factor of R due to a negative z; then, in the paper's form, where
    # all receivers have the same R, R, H z/R and H^2/R, and otherwise alpha V, H (1 - H) and z/H.
    table = np.empty((regions, servers, 8))
    first, packed = 0, -1  # the first origin of the receiver's run, and of the run whose records are in the table
    twin, twin_records = -1, 0  # the receiver of this run with the most records so far
    rows = np.flatnonzero(active)
    for row in range(rows.shape[0]):
        i = rows[row]
        while i >= first + servers:
            first += servers
        punishes = penalised[i]
        if packed != first:
            packed, twin, twin_records = first, -1, 0
            for o in range(servers):
                if var[first + o] > 0.0:
                    noise_var = var[first + o]
                    for k in range(regions):
                        share = shares[first + o, k if by_region else 0]
                        z = noisy[first + o, k]
                        table[k, o, 0], table[k, o, 1], table[k, o, 2] = z, share, share * share
                        table[k, o, 3] = z * z / (limit * noise_var) if z < 0.0 else 0.0
                        if paper:
                            table[k, o, 4] = noise_var + max(share * share * process_var[k], 1.0 / 12.0)
                            weight = share / table[k, o, 4]
                            table[k, o, 5], table[k, o, 6] = weight * z, weight * share
                        else:
                            table[k, o, 4], table[k, o, 5], table[k, o, 6] = noise_var, share * (1.0 - share), z / share
        if twin >= 0 and punishes == penalised[twin]:
            alike = True
            for w in range(have.shape[1]):
                alike &= have[i, w] == have[twin, w]
            if alike:
                for k in range(regions):
                    alike &= prior[i, k] == prior[twin, k] and prior_var[i, k] == prior_var[twin, k]
                    alike &= paper or (level[i, k] == level[twin, k] and level_var[i, k] == level_var[twin, k])
                if guarded:
                    for b in range(pool):
                        alike &= before[i, b] == before[twin, b]
                if punishes:
                    for o in range(servers):
                        alike &= penalty[i, o] == penalty[twin, o]
            if alike:
                for k in range(regions):
                    y[i, k], info[i, k] = y[twin, k], info[twin, k]
                if guarded:
                    scales[i] = scales[twin]
                    for b in range(pool):
                        recent[i, b] = recent[twin, b]
                if updated:
                    known[i] = known[twin]
                    for k in range(regions):
                        mean[i, k], mean_var[i, k] = mean[twin, k], mean_var[twin, k]
                continue
        record = 0
        if by_bits:
            for w in range(have.shape[1]):
                x = have[i, w]
                while x:
                    lowest = x & (~x + np.uint64(1))
                    origins[record] = w * 64 + _PLACES[(lowest * _DE_BRUIJN) >> np.uint64(58)]
                    record += 1
                    x ^= lowest
            if record >= twin_records:
                twin, twin_records = i, record
        else:
            for e in range(indptr[i], indptr[i + 1]):
                origins[record] = np.int64(indices[e]) - first
                record += var[indices[e]] > 0.0
        beyond = False
        for k in range(regions):
            vec_sum, mat_sum = 0.0, 0.0
            expected, expected_var = prior[i, k], prior_var[i, k]
            for e in range(record):
                o = origins[e]
                variance = table[k, o, 4]
                if paper:
                    vec_sum += table[k, o, 5]
                    mat_sum += table[k, o, 6]
                else:
                    crowd = level[i, k] if level_var[i, k] < np.inf else table[k, o, 6]
                    variance += max(table[k, o, 5] * max(crowd, 1.0), 1.0 / 12.0)
                    weight = table[k, o, 1] / variance
                    vec_sum += weight * table[k, o, 0]
                    mat_sum += weight * table[k, o, 1]
                if guarded:
                    off = table[k, o, 0] - table[k, o, 1] * expected
                    square = off * off / (variance + table[k, o, 2] * expected_var)
                    beyond |= (square > limit) | (table[k, o, 3] > 1.0)
                    squares[k, e] = square
                    means[pool + e] = square if k == 0 else means[pool + e] + square
            y[i, k], info[i, k] = vec_sum, mat_sum
        scale = 1.0
        if guarded:
            own = record
            if regions > 1:
                for e in range(record):
                    means[pool + e] /= regions
            if punishes:
                own = 0
                for e in range(record):
                    means[pool + own] = means[pool + e]
                    trusted[own] = e
                    own += penalty[i, origins[e]] == 1.0
            for b in range(pool):
                means[b] = before[i, b]
            number = max(own, pool)
            usual, unknown = 0, 0
            for b in range(pool):
                recent[i, b] = means[own + b]
                usual += means[own + b] <= 1.0
                unknown += means[own + b] != means[own + b]
            for b in range(pool, own):  # there are more than the last ones
                usual += means[b] <= 1.0
            # Where more than a quarter are at most 1, so is the quartile, and nothing has to be sorted.
            if (unknown or usual <= number // 4) and own:
                number = 0
                for e in range(own):
                    ordered[number] = means[pool + e]
                    number += 1
                for b in range(pool - 1, -1, -1):
                    if number < pool and not np.isnan(means[b]):
                        ordered[number] = means[b]
                        number += 1
                if number >= pool:
                    for e in range(1, number):
                        value, place = ordered[e], e
                        while place > 0 and ordered[place - 1] > value:
                            ordered[place] = ordered[place - 1]
                            place -= 1
                        ordered[place] = value
                    scale = max(ordered[number // 4], 1.0)
                else:  # few records so far: is the prior outvoted?
                    least, rival, majority = np.inf, np.inf, 0
                    for b in range(number):
                        majority += 1 if ordered[b] > limit else -1
                        if b < own and ordered[b] > limit:
                            least = min(least, ordered[b])
                            o = origins[trusted[b] if punishes else b]
                            claim = 0.0
                            for k in range(regions):
                                claim += table[k, o, 0]
                            if claim >= 0.0:
                                share = table[0, o, 1]
                                if by_region:
                                    for k in range(1, regions):
                                        share += table[k, o, 1]
                                    share /= regions
                                rival = min(rival, claim / share)
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
            if AGREEING <= own < pool:
                nearest = np.inf
                for e in range(own):
                    if not means[pool + e] > limit:
                        nearest = 0.0
                    nearest = min(nearest, means[pool + e])
                scale = max(scale, nearest)
            scales[i] = scale
        if beyond or punishes:
            bound = limit * scale
            for k in range(regions):
                vec_sum, mat_sum = 0.0, 0.0
                for e in range(record):
                    o = origins[e]
                    variance = table[k, o, 4]
                    if not paper:
                        crowd = level[i, k] if level_var[i, k] < np.inf else table[k, o, 6]
                        variance += max(table[k, o, 5] * max(crowd, 1.0), 1.0 / 12.0)
                    ratio = max(squares[k, e] / bound, table[k, o, 3])
                    if guarded and ratio > 1.0:
                        variance = variance * ratio
                    if punishes:
                        variance = variance * penalty[i, origins[e]]
                    weight = table[k, o, 1] / variance
                    vec_sum += weight * table[k, o, 0]
                    mat_sum += weight * table[k, o, 1]
                y[i, k], info[i, k] = vec_sum, mat_sum
        if updated:
            doubt = scale if scale > doubtful else 1.0
            known[i] = True
            for k in range(regions):
                precision = 1.0 / (prior_var[i, k] * doubt) + info[i, k]
                posterior_var = 1.0 / precision
                step = (y[i, k] - info[i, k] * prior[i, k]) * posterior_var if precision > 0.0 else 0.0
                mean[i, k], mean_var[i, k] = prior[i, k] + step, posterior_var
                known[i] = known[i] and posterior_var < np.inf


def judge_origins(  # noqa: PLR0912, PLR0915  (one loop: a call in it would have to be compiled as well)
    indptr: Any, indices: Any, noisy: Any, var: Any, shares: Any, level: Any, level_var: Any, paper: bool,
    process_var: Any, mean: Any, mean_var: Any, known: Any, rates: Any, limits: Any, persistence: float, scores: Any,
    usual: Any, suspicious: Any,
) -> None:  # fmt: skip
    """Update the scores of the origins whose records each receiver has, its `usual`, and whether it is suspicious.

    A receiver has few of a slot's records, where records travel one hop, and each of them has its score at another
    place. So all records of a run go through one step before any goes through the next: the processor then waits for
    many scores at the same time, and does not guess, receiver by receiver, how many records there are.
    """
    most_usual, most, suspect, learning, forgiving, usual_score, tail = limits
    count, regions = mean.shape
    servers, by_region = scores.shape[1], shares.shape[1] > 1
    room: Any = 0
    for first in range(0, count, servers):
        room = max(room, np.int64(indptr[min(first + servers, count)]) - np.int64(indptr[first]))
    steps = np.empty(room + 1, dtype=np.int64)
    receivers, origins = np.empty(room + 1, dtype=np.uint64), np.empty(room + 1, dtype=np.uint64)
    residuals, before, staying = np.empty(room), np.empty(room), np.empty(room)
    totals, numbers = np.empty(servers), np.empty(servers, dtype=np.int64)
    for first in range(0, count, servers):
        rows = min(servers, count - first)
        begin = np.int64(indptr[first])
        listed = np.int64(indptr[first + rows]) - begin
        steps[: listed + 1] = 0  # how many receivers further each record of the list is than the one before it
        for row in range(1, rows):
            steps[np.int64(indptr[first + row]) - begin] += 1
        records, row = 0, 0
        for e in range(listed):
            row += steps[e]
            origin = np.int64(indices[begin + e])
            receivers[records], origins[records] = row, origin - first
            records += known[first + row] & (var[origin] > 0.0)
        for e in range(records):
            before[e] = scores[np.uint64(first) + receivers[e], origins[e]]
        for k in range(regions):
            for e in range(records):
                i, o = np.uint64(first) + receivers[e], np.uint64(first) + origins[e]
                share = shares[o, k if by_region else 0]
                if paper:
                    spread = share * share * process_var[k]
                else:
                    crowd = level[i, k] if level_var[i, k] < np.inf else noisy[o, k] / share
                    spread = share * (1.0 - share) * max(crowd, 1.0)
                variance = var[o] + max(spread, 1.0 / 12.0)
                off, total = noisy[o, k] - share * mean[i, k], variance + share * share * mean_var[i, k]
                square = off * off / total
                residuals[e] = square if k == 0 else residuals[e] + square
                if persistence > 0.0:
                    part = (variance - var[o]) / total
                    staying[e] = part * part if k == 0 else staying[e] + part * part
        totals[:], numbers[:] = 0.0, 0
        for e in range(records):
            if regions > 1:
                residuals[e] /= regions
            totals[receivers[e]] += min(residuals[e], most_usual)
            numbers[receivers[e]] += 1
        for row in range(rows):
            old, number = usual[first + row], numbers[row]
            new = old + (totals[row] / number - old) * rates[number]
            usual[first + row] = new if number else old
        for e in range(records):
            i = np.uint64(first) + receivers[e]
            residual, score = min(residuals[e] / max(usual[i], 1.0), most), before[e]
            if persistence > 0.0 and residual > 1.0:
                ninth = persistence * 2.0 * staying[e] / (regions * regions) / 9.0
                root = 1.0 - ninth + tail * np.sqrt(ninth)
                bound = root * root * root
                if bound > suspect:
                    beyond = residual - (bound - suspect)
                    within = 1.0 + (residual - 1.0) * ((suspect - 1.0) / (bound - 1.0))
                    residual = beyond if residual > bound else within
            rate = forgiving if (score > suspect) & (residual < score) else learning
            score = min(score + (residual - score) * rate, suspect if score <= usual_score else most)
            scores[i, origins[e]] = score
            suspicious[i] |= score >= suspect
        for row in range(rows):
            if suspicious[first + row]:
                high = False
                for o in range(servers):
                    high |= scores[first + row, o] >= suspect
                suspicious[first + row] = high


def judge_origins_by_bits(  # noqa: PLR0912, PLR0915  (one loop)
    have: Any, noisy: Any, var: Any, shares: Any, level: Any, level_var: Any, paper: bool, process_var: Any, mean: Any,
    mean_var: Any, known: Any, rates: Any, limits: Any, persistence: float, scores: Any, usual: Any, suspicious: Any,
) -> None:  # fmt: skip
    """Do what `judge_origins` does, with the records as bits (N, words): many of them, and often the same ones.

    A receiver whose records and posterior are those of the receiver before it takes over that one's residuals.
    """
    most_usual, most, suspect, learning, forgiving, usual_score, tail = limits
    count, regions = mean.shape
    servers, by_region = scores.shape[1], shares.shape[1] > 1
    residuals, origins = np.empty(rates.shape[0]), np.empty(rates.shape[0], dtype=np.uint64)
    staying = np.empty(rates.shape[0])
    number, total, twin, first = 0, 0.0, -1, 0
    for i in range(count):
        if i == first + servers:
            first = i
        if not known[i]:
            continue
        alike = twin >= first
        if alike:
            for w in range(have.shape[1]):
                alike &= have[i, w] == have[twin, w]
            for k in range(regions):
                alike &= mean[i, k] == mean[twin, k] and mean_var[i, k] == mean_var[twin, k]
                alike &= paper or (level[i, k] == level[twin, k] and level_var[i, k] == level_var[twin, k])
        if not alike:
            number, total, twin = 0, 0.0, i
            for w in range(have.shape[1]):
                x = have[i, w]
                while x:
                    lowest = x & (~x + np.uint64(1))
                    origins[number] = first + w * 64 + _PLACES[(lowest * _DE_BRUIJN) >> np.uint64(58)]
                    number += 1
                    x ^= lowest
            for e in range(number):
                o = origins[e]
                each, common = 0.0, 0.0
                for k in range(regions):
                    share = shares[o, k if by_region else 0]
                    if paper:
                        spread = share * share * process_var[k]
                    else:
                        crowd = level[i, k] if level_var[i, k] < np.inf else noisy[o, k] / share
                        spread = share * (1.0 - share) * max(crowd, 1.0)
                    variance = var[o] + max(spread, 1.0 / 12.0)
                    off, both = noisy[o, k] - share * mean[i, k], variance + share * share * mean_var[i, k]
                    each += off * off / both
                    if persistence > 0.0:
                        part = (variance - var[o]) / both
                        common += part * part
                staying[e] = common
                residuals[e] = each / regions if regions > 1 else each
                total += min(residuals[e], most_usual)
        if not number:
            continue
        usual[i] = usual[i] + (total / number - usual[i]) * rates[number]
        unit, high = max(usual[i], 1.0), False
        for e in range(number):
            place = origins[e] - np.uint64(first)
            residual = min(residuals[e] / unit, most)
            if persistence > 0.0 and residual > 1.0:
                ninth = persistence * 2.0 * staying[e] / (regions * regions) / 9.0
                root = 1.0 - ninth + tail * np.sqrt(ninth)
                bound = root * root * root
                if bound > suspect:
                    beyond = residual - (bound - suspect)
                    within = 1.0 + (residual - 1.0) * ((suspect - 1.0) / (bound - 1.0))
                    residual = beyond if residual > bound else within
            score = scores[i, place]
            rate = forgiving if (score > suspect) & (residual < score) else learning
            score = min(score + (residual - score) * rate, suspect if score <= usual_score else most)
            scores[i, place] = score
            high |= score >= suspect
        if suspicious[i] or high:
            high = False
            for b in range(servers):
                high |= scores[i, b] >= suspect
            suspicious[i] = high
