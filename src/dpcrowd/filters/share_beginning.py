"""What the joint filter of learned shares (`share_learning`) begins with, and when it begins anew.

Until a crowd is settled, errors of shares are people, b = g r. Where the crowd goes to next to nobody, or comes again,
they go and come with it, and what was learned of them before is wrong by far. At night records of no one fit public
shares to the last person. When the crowd is there again, they are as many as the right shares say, which is thousands
of deviations off, and a filter that took that for a move of the crowd would be anywhere.

So two things are forgotten with all that was learned of a region. A crowd of less than nobody: whoever was heard before
the crowd came looks as if it had no share. And records that contradict one another, by what was learned: then nothing
is known of the crowd either, but how large it may be. The records of the slot are the first ones of the region again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpcrowd.arrays import Bools, Floats
from dpcrowd.filters.share_state import CrowdStep, ExpectedRecords, ShareCovariance, ShareFilter, SlotRecords

__all__ = [
    "LEAST_NOISE",
    "WIDEST",
    "begun",
    "is_contradicted",
    "is_impossible",
    "restarted",
    "share_var",
    "square_root",
    "start_filter",
    "sums_to_zero",
    "widened",
]

WIDEST = 15.0
"""W, with which the filter starts, in units of the width of the setting."""
_FIRST_FACTOR = 2.0
"""The deviation of a crowd of which nothing is known, in units of its first estimate."""
_LESS_THAN_NOBODY = 4.0
"""How many standard deviations below 0 a crowd is impossible."""
_CONTRADICTION = 100.0
"""The mean square of the deviations of a slot's records, in independent directions, beyond which what was learned is
wrong. Crowds that move, holidays and noise reach 35."""
LEAST_NOISE = 1e-13
"""The least variance of a record's noise, as a part of what the filter expects of its value: rounding."""


def start_filter(public: Floats, width: float) -> ShareFilter:
    """Return the filter before the first record; `public` shares (m, d) sum to 1 in every region."""
    servers, regions = public.shape
    size = 2 * servers + 1
    mean, cov = np.zeros((regions, size)), np.zeros((regions, size, size))
    cov[:, 1 : servers + 1, 1 : servers + 1] = sums_to_zero(np.square(WIDEST * width) * share_var(public.T))
    heard, settled = np.zeros(servers, dtype=np.int64), np.zeros(regions, dtype=np.bool_)
    return ShareFilter(mean, ShareCovariance(cov), np.ones(regions), False, heard, settled)


def begun(
    before: ShareFilter, public: Floats, believed: Floats, step: CrowdStep, records: SlotRecords | None
) -> tuple[Floats, Floats, Floats]:
    """Return mean, covariance and scale with a first crowd: what is expected of it, else what the records claim."""
    servers, known = public.shape[1], np.isfinite(step.expected_var)
    crowd, crowd_var = np.where(known, step.expected, 1.0), np.where(known, step.expected_var, 1.0)
    scale = np.sqrt(np.square(crowd) + crowd_var)
    if records is not None and not known.all():
        claim, claim_var = _claim(public, records, np.ones(len(records.origins), dtype=np.bool_))
        claimed = _FIRST_FACTOR * np.sqrt(np.square(claim) + claim_var)
        crowd, crowd_var = np.where(known, crowd, claim), np.where(known, crowd_var, np.square(claimed))
        scale = np.where(known, scale, claimed)
    part = slice(1, servers + 1)
    mean, cov = before.mean * scale[:, None], np.zeros_like(before.cov)
    cov[:, part, part] = before.cov[:, part, part] * np.square(scale)[:, None, None]
    mean[:, 0], cov[:, 0, 0] = crowd, crowd_var
    cov[:, servers + 1 :, servers + 1 :] = sums_to_zero(np.maximum(crowd, 1.0)[:, None] * believed)
    return mean, cov, before.scale * scale


def _claim(public: Floats, records: SlotRecords, which: Bools) -> tuple[Floats, Floats]:
    """Return the crowd that some of the records claim, by public shares, and the variance of their noise, (d,) each."""
    share = public[:, records.origins[which]].sum(axis=1)
    claim = np.maximum(records.noisy[which].sum(axis=0) / share, 1.0)
    return claim, (records.noise_var[which].sum() + share * claim) / np.square(share)


def widened(known: ShareFilter, public: Floats, width: float, records: SlotRecords, new: Bools) -> ShareFilter:
    """Return the filter, wider where servers that were never heard claim a larger crowd.

    The crowd of the first records says how wide the filter starts, and may have been too small by far.
    """
    claim, claim_var = _claim(public, records, new)
    least = _FIRST_FACTOR * (claim - 2.0 * np.sqrt(claim_var))  # more than noise
    larger = np.maximum(least, known.scale)
    added = np.square(larger) - np.square(known.scale)
    cov = known.cov.copy()
    if added.any():
        part = slice(1, public.shape[1] + 1)
        cov[:, 0, 0] += added
        cov[:, part, part] += added[:, None, None] * sums_to_zero(np.square(WIDEST * width) * share_var(public))
    return replace(known, spread=ShareCovariance(cov), scale=larger)


def is_impossible(known: ShareFilter) -> Bools:
    """Return in which regions there would be less than nobody, (d,): what was learned there cannot be right."""
    return np.asarray(known.mean[:, 0] < -_LESS_THAN_NOBODY * np.sqrt(np.maximum(known.crowd_var, 1.0)))


def is_contradicted(known: ShareFilter, expected: ExpectedRecords) -> Bools:
    """Return in which regions that are not settled the records of a slot cannot be what was expected of them, (d,).

    Each of them may be possible for itself while they are not together. Where a slot has a single one, it would be all
    that is known of the region, and is none. A server that makes up its records achieves that the filter begins anew,
    from public shares and with wide intervals.
    """
    open_ones = ~known.settled
    if expected.innovation.shape[1] < 2 or not open_ones.any():
        return np.zeros_like(open_ones)
    joint, innovation, usual = (part[open_ones] for part in (expected.cov, expected.innovation, expected.usual))
    joint = joint.copy()
    np.einsum("dkk->dk", joint)[...] = usual  # without what makes a record count less
    off = np.linalg.solve(square_root(joint), innovation[:, :, None])[:, :, 0]
    contradicted = open_ones.copy()
    contradicted[open_ones] = np.square(off).mean(axis=1) > _CONTRADICTION
    return contradicted


def restarted(
    known: ShareFilter,
    which: Bools,
    contradicted: Bools,
    public: Floats,
    width: float,
    step: CrowdStep,
    records: SlotRecords,
) -> ShareFilter:
    """Return the filter before the records of a slot, in some regions (d,) as if they were the first ones.

    contradicted  (d,) in which of them nothing is known of the crowd either: it is what the records claim, and may be
                  as large as it has ever been
    """
    unknown = replace(step, expected_var=np.where(contradicted, np.inf, step.expected_var))
    mean, cov, scale = begun(start_filter(public, width), public.T, public.T, unknown, records)
    part, wider = slice(0, len(public) + 1), np.where(contradicted, np.maximum(known.scale / scale, 1.0), 1.0)
    cov[:, part, part] *= np.square(wider)[:, None, None]
    return replace(
        known,
        mean=np.where(which[:, None], mean, known.mean),
        spread=ShareCovariance(np.where(which[:, None, None], cov, known.cov)),
        scale=np.where(which, wider * scale, known.scale),
        settled=known.settled & ~which,
        gain=None,
    )


def square_root(matrices: Floats) -> Floats:
    """Return R with R R^T = each of the matrices, which are positive up to rounding."""
    try:
        return np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrices)
        return np.asarray(vectors * np.sqrt(np.maximum(values, LEAST_NOISE * values[:, -1:]))[:, None, :])


def sums_to_zero(var: Floats) -> Floats:
    """Return covariances (..., m, m) of numbers that sum to 0 and have about these variances (..., m)."""
    total = np.maximum(var.sum(axis=-1, keepdims=True), 1e-300)
    cov = -(var[..., :, None] * var[..., None, :]) / total[..., None]
    np.einsum("...ii->...i", cov)[...] += var
    return np.asarray(cov)


def share_var(public: Floats) -> Floats:
    """Return the variances (..., m) of errors of public shares (..., m) at a width of 1, before they sum to 0.

    They are in proportion to the shares, as those of Dirichlet draws, and sum up as if each were H^2.
    """
    return np.asarray(public * np.square(public).sum(axis=-1, keepdims=True))
