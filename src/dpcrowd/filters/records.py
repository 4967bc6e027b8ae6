"""Sums of information over the records that each server has (Relay, "fuse").

A record of origin o is z = H r + noise per region, with the public share H and the variance V of its noise. Its
receiver derives everything else itself:

    R = alpha V + Var(counts given r)                   as in `observation`, at the receiver's reference level
    y = sum over the records of H z / R                 Y = sum over the records of H^2 / R

in ascending order of the origins, so that servers with the same records have the same bits. Where a record joins
regions into groups, z, r, V and R are those of the group's sum (`groups`).

Guard. With a prior (mean, variance) for the slot a record of region k has the innovation n = z - H mean, whose
variance is R + H^2 variance; v_k = n^2 over that is 1 on average, and a record's v is the mean over its regions (each
group counts once, and its members have its v_k). Let s
be the lower quartile of v over the slot's records, at least 1; if there are fewer than five, the records before them
count as well. If the slot has three or four and all of them are beyond the limit, s is at least the smallest of them.
Where the records agree that the prior is off, it is: its variance is multiplied by s, and v_k is compared with limit s.
Where v_k is larger, R is multiplied by v_k / (limit s): the farther off a record is, the less it
counts, and its influence is bounded. `penalty` multiplies R by the factor that the origin has earned before; records
with a penalty do not count in the quartile.

While a receiver has had fewer than five records, there is no quartile, and its prior may itself rest on a broken one.
Then the majority decides: records with v above the limit vote against the prior, the others for it. If more vote
against it, s is the smallest v of this slot's records that do. The prior then follows these records, so in later votes
they count as votes for it, and the others as votes against it. In a tie the side that claims fewer people wins: a claim
that is too small is wrong by at most the number of people that there are, and one that is too large by any number.
Counts are never negative: a total below 0 loses every tie, and R of a negative value is multiplied by
z^2 / (limit alpha V), if that is more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.groups import GroupedSums, divide_sums, leads, over_members, same_group, spread_values
from dpcrowd.filters.kalman import update
from dpcrowd.filters.observation import ROUNDING, Observation
from dpcrowd.kernels.engine import Engine, compiled
from dpcrowd.kernels.gather import unsigned
from dpcrowd.kernels.records import AGREEING, POOL, sum_records

__all__ = [
    "NO_WORDS",
    "POOL",
    "Posterior",
    "RecordSums",
    "RecordTable",
    "Reference",
    "Split",
    "held_pairs",
    "lists_of_one_type",
    "pair_var",
    "record_sums",
    "single_sums",
    "squared_residuals",
    "sum_over_regions",
]


NO_WORDS = np.zeros((0, 0), dtype=np.uint64)
_NO_LISTS = np.zeros(1, dtype=np.uint32)


@dataclass(frozen=True)
class RecordTable:
    """The records of one slot, by origin.

    noisy   (O, d)
    var     (O,) alpha times the variance of the noise; 0: there is no record
    shares  (O,), or (O, d) where they differ by region
    groups  (O, d) the lowest region of each region's group; None: every region of every record is by itself
    share_var  (O, d) variances of the errors of shares that were learned; None: shares are right. Compiled loops do not
            look at it
    """

    noisy: Floats
    var: Floats
    shares: Floats
    groups: Ints | None = None
    share_var: Floats | None = None

    @property
    def by_region(self) -> Floats:
        """The shares with an axis of regions, (O, 1) or (O, d)."""
        return self.shares if self.shares.ndim == 2 else self.shares[:, None]

    @property
    def mean_shares(self) -> Floats:
        """The mean share of each origin over its regions, (O,), added one after the other, as in the compiled loop."""
        if self.shares.ndim == 1:
            return self.shares
        total = np.zeros(len(self.shares))
        for k in range(self.shares.shape[1]):
            total = total + self.shares[:, k]
        return np.asarray(total / self.shares.shape[1])

    def values(self, origins: NDArray[np.integer]) -> Floats:
        """Return the noisy counts of records, (n, d), each group's sum at all of its members."""
        noisy = self.noisy[origins]
        return noisy if self.groups is None else spread_values(noisy, self.groups[origins])

    def totals(self, values: Floats, origins: NDArray[np.integer]) -> Floats:
        """Return values of regions (n, d) as these records measure them: summed over the members of each group."""
        return values if self.groups is None else over_members(values, self.groups[origins])

    def joined(self, origins: NDArray[np.integer]) -> Bools:
        """Return which regions of these records share their draw with others, (n, d)."""
        shape = len(origins), self.noisy.shape[1]
        if self.groups is None:
            return np.zeros(shape, dtype=np.bool_)
        return np.asarray(over_members(np.ones(shape), self.groups[origins]) > 1.0)


@dataclass(frozen=True)
class Split:
    """What N receivers expect of a slot, by which the sums of groups are divided among their regions.

    prior, prior_var  (N, d)
    doubtful          a scale s above this multiplies the variances
    bounded           whether nothing is known of how the regions of a group differ; see `groups`
    """

    prior: Floats
    prior_var: Floats
    doubtful: float
    bounded: bool


@dataclass(frozen=True)
class Reference:
    """What the receivers compare the records of a slot with; arrays of N receivers.

    level, level_var   (N, d) the counts behind a binomial variance; an infinite variance: nothing is known
    prior, prior_var   (N, d) what the guard compares with; None: no guard
    penalty            (N, servers per run) factors >= 1 by origin, or None
    limit              of v
    recent             (N, POOL) v of the last records before this slot, oldest first; NaN: none
    penalised          (N,) which receivers have a factor above 1; the rows of the others are not looked at
    split              needed where records join regions into groups
    """

    level: Floats
    level_var: Floats
    prior: Floats | None = None
    prior_var: Floats | None = None
    penalty: Floats | None = None
    limit: float = np.inf
    recent: Floats | None = None
    penalised: NDArray[np.bool_] | None = None
    split: Split | None = None


@dataclass(frozen=True)
class RecordSums:
    """The sums of N receivers, written in place, in the rows of the active receivers.

    y, info  (N, d) y and Y
    recent   (N, POOL) as in `Reference`, after this slot; with a guard
    scale    (N,) s, with a guard
    full     (N, d, d) Y with full covariances, if they are asked for and any record joins regions into groups; y is
             then not divided among the regions of a group
    by_groups  receives the sums of records with the same groups, in the order in which they are fused, before they are
             divided; None: nobody asks for them
    """

    y: Floats
    info: Floats
    recent: Floats
    scale: Floats
    full: Floats | None = None
    by_groups: list[GroupedSums] | None = None


@dataclass(frozen=True)
class Posterior:
    """What an update in diagonal form takes and writes in place, of N receivers.

    prior, prior_var  (N, d)
    mean, var, known  (N, d), (N, d), (N,)
    doubtful          a scale s above this multiplies the variance of the prior
    """

    prior: Floats
    prior_var: Floats
    mean: Floats
    var: Floats
    known: NDArray[np.bool_]
    doubtful: float


def lists_of_one_type(
    indptr: NDArray[np.integer], indices: NDArray[np.integer]
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Return lists of origins as unsigned numbers of 32 bits, if these suffice.

    A compiled loop is compiled again for every other type, which takes seconds.
    """
    if len(indices) >= 2**32:
        return indptr, indices
    narrow = unsigned(indices) if indices.itemsize == 4 else indices.astype(np.uint32)
    return indptr.astype(np.uint32, copy=False), narrow


def record_sums(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    table: RecordTable,
    reference: Reference,
    observation: Observation,
    process_var: Floats,
    servers: int,
    engine: Engine,
    out: RecordSums,
    active: NDArray[np.bool_],
    posterior: Posterior | None = None,
    words: NDArray[np.uint64] | None = None,
) -> None:
    """Sum up the records that the receivers in `active` (N,) have, and update their posteriors, if any are given.

    Row i of (indptr, indices) lists the origins whose records receiver i may have. The compiled loop takes them as bits
    instead, if there are any: (N, words), a bit per origin of the receiver's run. It does not know groups: a slot with
    any is summed in array operations.
    """
    guarded = reference.prior is not None
    if table.groups is None and (loop := compiled(sum_records, engine)) is not None:
        penalty, penalised = reference.penalty, reference.penalised
        if penalty is None:
            penalty, penalised = np.ones((1, 1)), np.zeros(len(active), dtype=np.bool_)
        elif penalised is None:
            penalised = np.ones(len(active), dtype=np.bool_)
        prior, prior_var = reference.level, reference.level_var
        if posterior is not None:
            prior, prior_var = posterior.prior, posterior.prior_var
        elif reference.prior is not None and reference.prior_var is not None:
            prior, prior_var = reference.prior, reference.prior_var
        mean, var, known = (prior, prior_var, active) if posterior is None else _written(posterior)
        indptr, indices = (_NO_LISTS, _NO_LISTS) if words is not None else lists_of_one_type(indptr, indices)
        loop(
            indptr, indices, NO_WORDS if words is None else words, words is not None, active, table.noisy, table.var,
            table.by_region, reference.level, reference.level_var, prior, prior_var, guarded, penalty,
            penalised, reference.limit, observation == "paper", process_var, servers,
            reference.recent if guarded else out.recent, out.recent, out.scale, out.y, out.info, posterior is not None,
            np.inf if posterior is None else posterior.doubtful, mean, var, known,
        )  # fmt: skip
        return
    count = len(indptr) - 1
    rows, origins = held_pairs(indptr, indices, table)
    there = active[rows]
    rows, origins = rows[there], origins[there]
    variance = pair_var(rows, origins, table, reference, observation, process_var)
    share = table.by_region[origins]
    penalties = _penalties(rows, origins % servers, reference)
    if guarded:
        growth, recent, scale = _guard(rows, origins, table, reference, variance, penalties)
        variance = variance * growth
        out.recent[active], out.scale[active] = recent[active], scale[active]
    if penalties is not None:
        variance = variance * penalties[:, None]
    weight = share / variance
    vectors, matrices = weight * table.values(origins), weight * share
    if table.groups is None:
        out.y[active] = _add_up(rows, vectors, count)[active]
        out.info[active] = _add_up(rows, matrices, count)[active]
    else:
        _add_up_groups(rows, table.groups[origins], (vectors, matrices), reference, active, out)
    if posterior is not None:
        doubt = np.where(guarded & (out.scale > posterior.doubtful), out.scale, 1.0)[:, None]
        mean, var = update(posterior.prior, posterior.prior_var * doubt, out.y, out.info)
        posterior.mean[active], posterior.var[active] = mean[active], var[active]
        posterior.known[active] = np.isfinite(var[active]).all(axis=1)


def single_sums(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    table: RecordTable,
    reference: Reference,
    observation: Observation,
    process_var: Floats,
    servers: int,
    scale: Floats,
) -> tuple[Floats, Floats]:
    """Return y and Y, (N, d) each, of the records in which a region is by itself: sums of groups are left out.

    scale  (N,) s of the slot, as `record_sums` has found it; with a guard
    """
    rows, origins = held_pairs(indptr, indices, table)
    variance, share = pair_var(rows, origins, table, reference, observation, process_var), table.by_region[origins]
    if reference.prior is not None and reference.prior_var is not None:
        squared, _ = squared_residuals(rows, origins, table, variance, reference.prior, reference.prior_var)
        variance = variance * _growth(rows, origins, table, reference, squared, scale)
    penalties = _penalties(rows, origins % servers, reference)
    if penalties is not None:
        variance = variance * penalties[:, None]
    weight = share / variance
    if table.groups is not None:
        weight = np.where(table.joined(origins), 0.0, weight)
    sums = weight * table.values(origins), weight * share
    return _add_up(rows, sums[0], len(indptr) - 1), _add_up(rows, sums[1], len(indptr) - 1)


def _penalties(rows: NDArray[np.int64], places: NDArray[np.int64], reference: Reference) -> Floats | None:
    """Return the penalty of each record for its receiver, (pairs,); None: nobody has any."""
    if reference.penalty is None or reference.penalised is None:
        return None if reference.penalty is None else reference.penalty[rows, places]
    penalties, here = np.ones(len(rows)), reference.penalised[rows]
    penalties[here] = reference.penalty[rows[here], places[here]]
    return penalties


def _written(posterior: Posterior) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    return posterior.mean, posterior.var, posterior.known


def held_pairs(
    indptr: NDArray[np.integer], indices: NDArray[np.integer], table: RecordTable
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the receiver and the origin of every record that a receiver has, in order."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    there = table.var[indices] > 0.0
    return rows[there], indices[there].astype(np.int64)


def pair_var(
    rows: NDArray[np.integer],
    origins: NDArray[np.integer],
    table: RecordTable,
    reference: Reference,
    observation: Observation,
    process_var: Floats,
) -> Floats:
    """Return R of each record (origin) for each of its receivers (row), before guard and penalty, (pairs, d)."""
    share = table.by_region[origins]
    if observation == "paper":
        spread = share * share * process_var
        if table.groups is not None:
            spread = table.totals(np.broadcast_to(spread, (len(rows), table.noisy.shape[1])), origins)
    else:  # where the level is unknown, the record itself says how many there may be
        is_known = np.isfinite(table.totals(reference.level_var[rows], origins))
        level = table.totals(reference.level[rows], origins)
        expected = np.where(is_known, level, table.values(origins) / share)
        spread = share * (1.0 - share) * np.maximum(expected, 1.0)
        if table.share_var is not None:
            spread = spread + table.share_var[origins] * np.square(np.maximum(expected, 1.0))
    return np.asarray(table.var[origins][:, None] + np.maximum(spread, ROUNDING))


def squared_residuals(
    rows: NDArray[np.integer],
    origins: NDArray[np.integer],
    table: RecordTable,
    variance: Floats,
    mean: Floats,
    mean_var: Floats,
) -> tuple[Floats, Floats]:
    """Return how far records are from what their receivers expect, as squares over their variances.

    variance        (pairs, d) R of the records
    mean, mean_var  (N, d) what the receivers expect

    Returns the squares (pairs, d), each 1 on average for an honest origin, and their means over the regions (pairs,).
    """
    share = table.by_region[origins]
    residual = table.values(origins) - share * table.totals(mean[rows], origins)
    squared = residual * residual / (variance + share * share * table.totals(mean_var[rows], origins))
    total, number = sum_over_regions(squared, origins, table)
    return squared, total / number


def sum_over_regions(
    values: Floats, origins: NDArray[np.integer], table: RecordTable
) -> tuple[Floats, int | NDArray[np.float64]]:
    """Return the sums of values (pairs, d) over the regions of each record, (pairs,), and how many regions that are.

    The sum of a group counts once. Regions are added one after the other, as the compiled loop does.
    """
    first = None if table.groups is None else leads(table.groups[origins])
    once = values if first is None else values * first
    total = np.zeros(len(values))
    for k in range(values.shape[1]):
        total = total + once[:, k]
    return total, values.shape[1] if first is None else first.sum(axis=1)


def _guard(
    rows: NDArray[np.integer],
    origins: NDArray[np.integer],
    table: RecordTable,
    reference: Reference,
    variance: Floats,
    penalty: Floats | None,
) -> tuple[Floats, Floats, Floats]:
    """Return the factor of R, (pairs, d), at least 1; `recent` after this slot; and s, (N,)."""
    assert reference.prior is not None and reference.prior_var is not None and reference.recent is not None
    squared, mean = squared_residuals(rows, origins, table, variance, reference.prior, reference.prior_var)
    trusted = np.arange(len(rows)) if penalty is None else np.flatnonzero(penalty == 1.0)
    recent = reference.recent.copy()
    scale = np.ones(len(recent))
    claims = table.noisy[origins].sum(axis=1) / table.mean_shares[origins]
    # Rows ascend. A receiver has a handful of records: lists are faster than small arrays.
    receivers = rows[trusted]
    begins = [*(np.flatnonzero(receivers[1:] != receivers[:-1]) + 1).tolist(), len(receivers)]
    values = mean[trusted].tolist()
    for begin, end in pairwise([0, *begins] if len(receivers) else []):
        row, own = int(receivers[begin]), values[begin:end]
        kept = recent[row].tolist()
        before = [value for value in kept if not math.isnan(value)]
        pool = own if len(own) >= POOL else [*before, *own][-POOL:]
        if len(pool) >= POOL:
            scale[row] = max(sorted(pool, key=_nan_last)[len(pool) // 4], 1.0)
        elif any(value > reference.limit for value in own):
            here = trusted[begin:end]
            scale[row] = _vote(np.array(before), mean[here], claims[here], reference.prior[row], reference.limit)
        if AGREEING <= len(own) < POOL and all(value > reference.limit for value in own):
            scale[row] = max(scale[row], min(own))
        recent[row] = [*kept, *own][-POOL:]
        if len(pool) < POOL and scale[row] > 1.0:  # the prior is outvoted and changes sides
            sides = np.where(recent[row] > reference.limit, 0.0, 2.0 * reference.limit)
            recent[row] = np.where(np.isnan(recent[row]), np.nan, sides)
    return _growth(rows, origins, table, reference, squared, scale), recent, scale


def _growth(
    rows: NDArray[np.integer],
    origins: NDArray[np.integer],
    table: RecordTable,
    reference: Reference,
    squared: Floats,
    scale: Floats,
) -> Floats:
    """Return the factor of R, (pairs, d), at least 1, from squared residuals and s, (N,)."""
    ratio = squared / (reference.limit * scale[rows][:, None])
    below = np.minimum(table.values(origins), 0.0)
    ratio = np.maximum(ratio, below * below / (reference.limit * table.var[origins][:, None]))
    return np.where(ratio > 1.0, ratio, 1.0)


def _nan_last(value: float) -> tuple[bool, float]:
    """Return what orders numbers as NumPy does."""
    return math.isnan(value), value


def _vote(before: Floats, own: Floats, claims: Floats, prior: Floats, limit: float) -> float:
    """Return s of a receiver that has had few records, `before` and now: above 1 if its prior is outvoted."""
    against = own > limit
    if not against.any():
        return 1.0
    majority = 2 * int(np.count_nonzero(before > limit) + np.count_nonzero(against)) - len(before) - len(own)
    if majority == 0:
        total = 0.0
        for k in range(len(prior)):
            total = total + prior[k]
        rivals = claims[against]
        majority = 1 if np.where(rivals < 0, np.inf, rivals).min() < (total if total >= 0 else np.inf) else -1
    return float(own[against].min()) if majority > 0 else 1.0


def _add_up(rows: NDArray[np.integer], values: Floats, count: int) -> Floats:
    """Return the sums of the rows of `values` by `rows`, which ascend; one addition after the other."""
    columns = [np.bincount(rows, weights=values[:, k], minlength=count) for k in range(values.shape[1])]
    return np.stack(columns, axis=1).astype(np.float64, copy=False)


def _add_up_groups(
    rows: NDArray[np.integer],
    groups: Ints,
    information: tuple[Floats, Floats],
    reference: Reference,
    active: NDArray[np.bool_],
    out: RecordSums,
) -> None:
    """Sum up records, some of which join regions into groups; receivers that are not `active` have none of them.

    groups       (pairs, d)
    information  (pairs, d) H z/R and H^2/R of each record, a group's at all of its members
    """
    assert reference.split is not None
    split, full = reference.split, out.full
    out.y[active], out.info[active] = 0.0, 0.0
    if full is not None:
        full[active] = 0.0
    doubt = np.where(out.scale > split.doubtful, out.scale, 1.0)[:, None] if reference.prior is not None else 1.0
    mean, var = split.prior.copy(), split.prior_var * doubt
    patterns, which = np.unique(groups, axis=0, return_inverse=True)
    for number in range(len(patterns) - 1, -1, -1):  # regions by themselves come first
        here = np.flatnonzero(which.ravel() == number)
        receivers, row = np.unique(rows[here], return_inverse=True)
        y, info = (_add_up(row.ravel(), part[here], len(receivers)) for part in information)
        if out.by_groups is not None:
            sums = np.zeros((2, *out.y.shape))
            sums[0, receivers], sums[1, receivers] = y, info
            out.by_groups.append(GroupedSums(patterns[number], *sums))
        if full is not None:
            out.y[receivers] += y
            full[receivers] += info[:, :, None] * same_group(patterns[number])
            continue
        y, info = divide_sums(y, info, patterns[number], mean[receivers], var[receivers], bounded=split.bounded)
        out.y[receivers] += y
        out.info[receivers] += info
        mean[receivers], var[receivers] = update(mean[receivers], var[receivers], y, info)
