"""Scores of the origins of records: how well the records of each origin have agreed with those of all origins together.

A record that is far off is down-weighted at once (`records`). A record that is wrong but plausible, such as that of a
server whose feed has stopped and which repeats its last value, shows only over time. So when a slot is final, its
records are compared with the posterior that all of them have led to: the squared residual over its variance, averaged
over the regions, is 1 on average for an honest origin. Each origin's score is a moving mean of it, in units of what is
usual among all origins, since a wrong model makes every origin look bad. From `SUSPECT` on the variances of an origin's
records are multiplied by the square of its score. Good records bring the score down again, slowly.

While its users stay, so does a server's deviation from its share, and the residuals of its records do not average out:
with one region and little noise 6% of all honest servers would be suspected. With q the part of a residual's variance
that is the deviation's, and f the part of its variance that is left in a moving mean of records whose deviations are
correlated by rho (`persistence_of`), the score of an honest origin is about chi^2/nu with nu = d^2/(f sum q^2) degrees
of freedom. Its quantile (Wilson and Hilferty's, at the same `_TAIL` for all) is where `SUSPECT` then is:

    v = 2 f sum q^2/d^2    bound = (1 - v/9 + tail sqrt(v/9))^3    f = k/(2-k) (1 + (1-k) rho^2)/(1 - (1-k) rho^2)

Residuals up to the bound are drawn together so that it becomes `SUSPECT`, and those above it are moved down to there.

Above `SUSPECT` an origin is named in public. One record alone does that to nobody, however far off it is: whoever is
the first to report that the crowd has jumped is far off, too. It takes a usual score up to `SUSPECT`, so that the next
record counts less, and if that is a good one nothing is left of it.

A receiver that knows nothing yet has no prior with which it could compare. It compares a record with the lower median
of the slot's records (`start_penalty`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats, Ints
from dpcrowd.filters.groups import leads
from dpcrowd.filters.observation import Observation
from dpcrowd.filters.records import (
    RecordTable,
    Reference,
    held_pairs,
    lists_of_one_type,
    pair_var,
    squared_residuals,
    sum_over_regions,
)
from dpcrowd.kernels.engine import Engine, compiled
from dpcrowd.kernels.records import judge_origins, judge_origins_by_bits

__all__ = ["SUSPECT", "OriginScores", "penalty_of", "persistence_of", "start_penalty"]


SUSPECT = 3.5
"""From this score on the records of an origin count less, and above it the origin is suspected. Honest origins have 1
on average, four standard deviations below."""

_RATE, _FORGIVENESS = 1 / 8, 1 / 32
_MOST = 100.0
_USUAL_SCORE = 2.5  # one record alone takes no score that was at most this above SUSPECT
_USUAL_RATE, _MOST_USUAL = 1 / 64, 4.0
_MOST_PENALTY = 1e12
_TAIL = 4.0  # standard deviations of a normal distribution: an honest origin is hardly ever above it
_LIMITS = np.array([_MOST_USUAL, _MOST, SUSPECT, _RATE, _FORGIVENESS, _USUAL_SCORE, _TAIL])


@dataclass
class OriginScores:
    """Scores of N receivers.

    score       (N, servers per run) of each origin at each receiver
    usual       (N,) the mean residual of all its origins
    suspicious  (N,) whether records of any origin count less
    """

    score: Floats
    usual: Floats
    suspicious: NDArray[np.bool_]

    @classmethod
    def start(cls, receivers: int, servers: int) -> OriginScores:
        """Begin without any suspicion."""
        return cls(np.ones((receivers, servers)), np.ones(receivers), np.zeros(receivers, dtype=np.bool_))

    def penalty(self, rows: Ints | None = None) -> Floats:
        """Return factors of the variance, at least 1, of all receivers or of those in `rows`."""
        score = self.score if rows is None else self.score[rows]
        return penalty_of(score)

    def judge(
        self,
        indptr: NDArray[np.integer],
        indices: NDArray[np.integer],
        table: RecordTable,
        reference: Reference,
        observation: Observation,
        process_var: Floats,
        posterior: tuple[Floats, Floats, NDArray[np.bool_]],
        engine: Engine = "numpy",
        words: NDArray[np.uint64] | None = None,
        persistence: float = 0.0,
    ) -> None:
        """Learn from the records of a slot that is final; arguments as of `record_sums`.

        posterior    of the slot: means and variances (N, d), and (N,) which receivers know anything
        persistence  `persistence_of`; 0: deviations are fresh in every record
        """
        mean, mean_var, known = posterior
        rates = _usual_rates(self.score.shape[1])
        facts = (
            table.noisy, table.var, table.by_region, reference.level, reference.level_var, observation == "paper",
            process_var, mean, np.ascontiguousarray(mean_var), known, rates, _LIMITS, persistence, self.score,
            self.usual, self.suspicious,
        )  # fmt: skip
        if table.groups is not None:
            engine = "numpy"  # the compiled loops do not know groups
        if words is not None and (by_bits := compiled(judge_origins_by_bits, engine)) is not None:
            by_bits(words, *facts)
            return
        if (listed := compiled(judge_origins, engine)) is not None:
            indptr, indices = lists_of_one_type(indptr, indices)
            listed(indptr, indices, *facts)
            return
        rows, origins = held_pairs(indptr, indices, table)
        rows, origins = rows[known[rows]], origins[known[rows]]
        if not rows.size:
            return
        variance = pair_var(rows, origins, table, reference, observation, process_var)
        _, each = squared_residuals(rows, origins, table, variance, mean, mean_var)
        number = np.bincount(rows, minlength=len(self.usual))
        total = np.bincount(rows, weights=np.minimum(each, _MOST_USUAL), minlength=len(self.usual))
        step = (total / np.maximum(number, 1) - self.usual) * rates[number]
        self.usual[:] = self.usual + np.where(number > 0, step, 0.0)
        residual = np.minimum(each / np.maximum(self.usual[rows], 1.0), _MOST)
        if persistence > 0.0:
            residual = _without_deviations(residual, rows, origins, table, variance, mean_var, persistence)
        place = origins % self.score.shape[1]
        score = self.score[rows, place]
        rate = np.where((score > SUSPECT) & (residual < score), _FORGIVENESS, _RATE)
        after = score + (residual - score) * rate
        self.score[rows, place] = np.where(score <= _USUAL_SCORE, np.minimum(after, SUSPECT), after)
        self.suspicious[:] = (self.score >= SUSPECT).any(axis=1)


def persistence_of(turnover: float, interval: float) -> float:
    """Return f, the part of the variance of a residual that is left in a score.

    turnover  the part of a server's users who are replaced per slot
    interval  slots from one of its records to the next
    """
    if turnover >= 1.0:
        return 0.0
    kept = (1.0 - _RATE) * (1.0 - turnover) ** (2.0 * interval)
    return float(_RATE / (2.0 - _RATE) * (1.0 + kept) / (1.0 - kept))


def _without_deviations(
    residual: Floats,
    rows: NDArray[np.integer],
    origins: NDArray[np.integer],
    table: RecordTable,
    variance: Floats,
    mean_var: Floats,
    persistence: float,
) -> Floats:
    """Return the residuals (pairs,) with the bound for deviations that stay at `SUSPECT`."""
    share = table.by_region[origins]
    total = variance + share * share * table.totals(mean_var[rows], origins)
    part = (variance - table.var[origins][:, None]) / total
    staying, number = sum_over_regions(part * part, origins, table)
    ninth = persistence * 2.0 * staying / (number * number) / 9.0
    root = 1.0 - ninth + _TAIL * np.sqrt(ninth)
    bound = np.maximum(root * root * root, SUSPECT)
    within = 1.0 + (residual - 1.0) * ((SUSPECT - 1.0) / (bound - 1.0))
    moved = np.where(residual > bound, residual - (bound - SUSPECT), within)
    return np.where((residual > 1.0) & (bound > SUSPECT), moved, residual)


def penalty_of(score: Floats) -> Floats:
    """Return the factors of the variance, at least 1, that scores lead to."""
    return np.where(score >= SUSPECT, np.square(score), 1.0)


@cache
def _usual_rates(servers: int) -> Floats:
    """Return how fast the usual residual follows the mean residual of 0, 1, ... records of a slot, at most `servers`.

    The array is shared; do not write to it.
    """
    return np.asarray(1.0 - (1.0 - _USUAL_RATE) ** np.arange(servers + 2))


def start_penalty(
    receivers: NDArray[np.bool_],
    servers: int,
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    table: RecordTable,
    reference: Reference,
    observation: Observation,
    process_var: Floats,
    limit: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return factors of the variance by the records of one slot alone, for receivers that know nothing yet.

    receivers  (N,) which of them

    Returns the factors above 1, and for each of them its receiver and the place of its origin among the servers of
    the run. All other factors are 1.

    A record whose total is far from the lower median of the receiver's records counts less. With two records the lower
    median is the smaller total, so the smaller one is believed, as in a tie of `records`. A single record is accepted
    as it is: there is nothing to compare it with.
    """
    rows, origins = held_pairs(indptr, indices, table)
    several = receivers & (np.bincount(rows, minlength=len(receivers)) > 1)
    rows, origins = rows[several[rows]], origins[several[rows]]
    share = table.mean_shares[origins]
    variance = pair_var(rows, origins, table, reference, observation, process_var)
    row = (np.cumsum(several) - 1)[rows]
    receiver_count = int(np.count_nonzero(several))
    records = np.bincount(row, minlength=receiver_count)
    column = np.arange(len(row)) - (np.cumsum(records) - records)[row]  # the number of a record at its receiver
    shape = (receiver_count, int(records.max(initial=0)) + 1)
    total, var = np.full(shape, np.nan), np.zeros(shape)
    total[row, column] = table.noisy[origins].sum(axis=1) / share
    once = variance if table.groups is None else variance * leads(table.groups[origins])
    var[row, column] = once.sum(axis=1) / (share * share)
    with np.errstate(invalid="ignore"):
        total[(total < 0) & (np.square(total) > limit * var)] = np.inf  # no crowd is negative
        number = records[:, None]
        lower = (number - 1) // 2
        order = np.argsort(total, axis=1, kind="stable")  # servers without a record come last
        middle = np.take_along_axis(order, lower, axis=1)
        median, median_var = np.take_along_axis(total, middle, axis=1), np.take_along_axis(var, middle, axis=1)
        off = np.abs(total - median)
        width = 1.4826 * np.take_along_axis(np.sort(off, axis=1), lower, axis=1)
        ratio = np.square(off) / (limit * (np.square(width) + var + median_var))
        ratio = np.where(np.isinf(total), np.inf, ratio)
        far = (np.isfinite(median) & (ratio > 1.0))[row, column]
    return rows[far], origins[far] % servers, np.minimum(ratio[row[far], column[far]], _MOST_PENALTY)
