"""Shares learned from records: one joint filter over the crowd, the errors of the shares and the servers' deviations.

Where every user is at one server, r = sum c_i, and records of all servers say which part of r each of them counts:

    c_i = H_i r + b_i + delta_i          z_i = c_i + noise
    b       people whom the public share misses: b_i = g_i r, where H + g is the right share; sum b = sum g = 0
    delta   who happens to be at server i: persists while users stay (`persistence`), sum delta = 0

A filter per region has (r, b_1 .. b_m, delta_1 .. delta_m) as its state, with all covariances. Measurements are linear
in it, so that a first estimate of the crowd that is wrong by far does no lasting harm. Where servers that are heard for
the first time claim a larger crowd, what was believed is widened. That b and delta sum to 0 is part of the covariances
at the start, diag(v) - v v^T / sum v: what is learned of one server narrows what is believed of the others, and a
server that nobody hears keeps its uncertainty.

Shares are constant, and b is not. So once all servers have been heard and the crowd is known well enough, within 15% or
better, the region is settled: the state has g in the place of b, and the product S r with S = H + g is linearised at
the share s and the crowd q that are believed in, S r = s r + q S - s q + (S - s)(r - q). The mean of the last term is
subtracted, and its variance counts as noise. What was learned until then is widened by what the crowd has moved
meanwhile. Where noise hides the crowd, or a server is never heard, the region is not settled, and b is taken to be
constant, but for the growth of an expected course.

The filter starts with public shares that may be wrong by a large part, Var(g_i) = (W H_i)^2. How wrong they are is then
read off what it has learned: with a width w instead of W every posterior is known without another filter, since both
differ in the prior alone. With g = L y, where y has the variance w^2 in m - 1 directions, and in those directions in
which the posterior of y is independent, with variance p and mean a:

    l = 1/p - 1/W^2                  what the records say                h = a/p
    Var(y | w) = 1/(l + 1/w^2)       E(y | w) = h Var(y | w)
    r | w:  mean + Cov(r, y)/p (E(y | w) - a),  variance + (Cov(r, y)/p)^2 (Var(y | w) - p),  summed over the directions
    log p(records | w) = sum 1/2 (h^2 Var(y | w) + log(Var(y | w)/w^2)) + constant

pooled over all directions and regions. The widths are that of the setting, which is trusted most beforehand, and up to
15 times as much (Bayes). So right public shares cost little, and wrong ones are found. What comes out is the mean over
the widths, with their distances in the variances.

Covariances are symmetric to the last bit: a server that joins gets their lower halves, and goes on with the bits of its
neighbours. Everything is a function of the records. A record beyond `LIMIT` squared deviations counts less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.observation import ROUNDING

__all__ = [
    "LIMIT",
    "CrowdStep",
    "LearnedCrowd",
    "ShareFilter",
    "SlotRecords",
    "former_filter",
    "learn_slot",
    "learned_crowd",
    "start_filter",
]

LIMIT = 36.0
_WIDTHS = ((1.0, 0.6), (2.0, 0.1), (4.0, 0.1), (8.0, 0.1), (15.0, 0.1))  # factors of the width, and their weights
_WIDEST = 15.0
_LEAST_SHARE = 1e-9
"""No learned share is smaller than this part of an equal share."""
_FIRST_FACTOR = 2.0
"""The deviation of a crowd of which nothing is known, in units of its first estimate."""
_SETTLED_PART = 0.15
"""The deviation of a crowd that is known well enough to linearise products with it, as a part of the crowd."""
_PRECISE_PART = 0.3
"""The deviation of a record that says enough of a share to linearise products with it, as a part of a mean count."""
_LEAST_PART = 1e-14
_LEAST_NOISE = 1e-13
"""The least variance of a record's noise, as a part of what the filter expects of its value: rounding."""


@dataclass(frozen=True)
class LearnedCrowd:
    """What a filter says: crowd and variance (d,), shares and variances of their errors (m, d)."""

    crowd: Floats
    crowd_var: Floats
    shares: Floats
    share_var: Floats


@dataclass(eq=False)
class ShareFilter:
    """What is known after a slot, in d regions of m servers; n = 2 m + 1. Nothing changes it.

    mean     (d, n) crowd, errors of shares and deviations. Errors of shares are in people, b, from the first estimate
             of the crowd until it is settled; before and after that they are parts of it, g
    cov      (d, n, n)
    scale    (d,) the crowd to which the width W at the start refers, in the unit of the errors of shares
    begun    whether the crowd has been estimated for the first time
    heard    (m,) whether each server has been heard
    settled  (d,) whether the crowd is known well enough to linearise g r
    crowd    what `learned_crowd` says of it, once that was asked
    """

    mean: Floats
    cov: Floats
    scale: Floats
    begun: bool
    heard: Bools
    settled: Bools
    crowd: LearnedCrowd | None = None


@dataclass(frozen=True)
class CrowdStep:
    """How the crowd moves from one slot to another: r becomes expected + transition (r - before), and noise is added.

    transition, added       (d,) a, and the variance of the noise
    jump                    (d,) what is added to that since records contradict what was expected
    before                  (d,) what was believed of the crowd in the slot before, with the same records
    expected, expected_var  (d,) what follows from it for the slot; an infinite variance: nothing is known
    growth                  (d,) the factor by which an expected course grows; 1 without one
    stays                   the part of the users who have stayed
    """

    transition: Floats
    added: Floats
    jump: Floats
    before: Floats
    expected: Floats
    expected_var: Floats
    growth: Floats
    stays: float


@dataclass(frozen=True)
class SlotRecords:
    """The records of a slot.

    origins    (k,) the places of the servers that have made them, in ascending order
    noisy      (k, d)
    noise_var  (k,)
    """

    origins: Ints
    noisy: Floats
    noise_var: Floats


def start_filter(public: Floats, width: float) -> ShareFilter:
    """Return the filter before the first record; `public` shares (m, d) sum to 1 in every region."""
    servers, regions = public.shape
    size = 2 * servers + 1
    mean, cov = np.zeros((regions, size)), np.zeros((regions, size, size))
    cov[:, 1 : servers + 1, 1 : servers + 1] = _sums_to_zero(np.square(_WIDEST * width * public.T))
    heard, settled = np.zeros(servers, dtype=np.bool_), np.zeros(regions, dtype=np.bool_)
    return ShareFilter(mean, cov, np.ones(regions), False, heard, settled)


def former_filter(mean: Floats, cov: Floats, public: Floats, heard: Bools, *, begun: bool) -> ShareFilter:
    """Return the filter from a state of earlier builds, which had shares in the place of their errors."""
    moved = mean.copy()
    moved[:, 1 : len(public) + 1] -= public.T
    return ShareFilter(moved, cov, np.ones(len(mean)), begun, heard, np.full(len(mean), begun))


def learn_slot(
    before: ShareFilter, public: Floats, believed: Floats, width: float, step: CrowdStep, records: SlotRecords | None
) -> ShareFilter:
    """Return the filter after a slot.

    public    (m, d) shares
    believed  (m, d) what is believed of the shares, for the variance of the deviations
    """
    public, believed = public.T, believed.T
    if before.begun:
        mean, cov = _moved(before, believed, step)
        scale = before.scale
    else:
        if records is None and not np.isfinite(step.expected_var).all():
            return before
        mean, cov, scale = _begun(before, public, believed, step, records)
    if records is None:
        return ShareFilter(mean, cov, scale, True, before.heard, before.settled)
    heard = before.heard.copy()
    heard[records.origins] = True
    new = ~before.heard[records.origins]
    if before.begun and new.any():
        scale = _widened(cov, scale, before.settled, public, width, records, new)
    crowd = np.maximum(np.where(np.isfinite(step.expected_var), step.expected, mean[:, 0]), 1.0)
    _update(mean, cov, public, records, before.settled, (believed, crowd))
    settled = before.settled
    if heard.all():
        scale, settled = _settle(mean, cov, (scale, settled), public, records, step.added)
    return ShareFilter(mean, cov, scale, True, heard, settled)


def learned_crowd(known: ShareFilter, public: Floats, width: float) -> LearnedCrowd:
    """Return crowd and shares, drawn back to the public shares (m, d) as far as the records allow."""
    if known.crowd is None:
        known.crowd = _drawn_back(known, public.T, width)
    return known.crowd


def _drawn_back(known: ShareFilter, public: Floats, width: float) -> LearnedCrowd:
    """Do what `learned_crowd` does; `public` is (d, m)."""
    servers = public.shape[1]
    part = slice(1, servers + 1)
    crowd, crowd_var = known.mean[:, 0], known.cov[:, 0, 0]
    scale = _scale(known)
    errors, common = known.mean[:, part] / scale[:, None], known.cov[:, 0, part] / scale[:, None]
    spread = known.cov[:, part, part] / np.square(scale)[:, None, None]
    root, inverse = _roots(public)
    spread = inverse @ spread @ inverse.swapaxes(1, 2)
    most = np.square(_WIDEST * width * known.scale / scale)[:, None]
    variances, directions = np.linalg.eigh(0.5 * (spread + spread.swapaxes(1, 2)))
    variances = np.clip(variances, _LEAST_PART * most, most)
    information = np.maximum(1.0 / variances - 1.0 / most, 0.0)
    turned_back = directions.swapaxes(1, 2) @ inverse
    off = np.einsum("dij,dj->di", turned_back, errors)
    pull = off / variances
    factors, weights = (np.array(column) for column in zip(*_WIDTHS, strict=True))
    prior = np.minimum(np.square(factors * width)[:, None, None], most)
    var = 1.0 / (information + 1.0 / prior)
    evidence = 0.5 * (np.square(pull) * var + np.log(var / prior)).sum(axis=(1, 2)) + np.log(weights)
    weight = np.exp(evidence - evidence.max())
    weight = (weight / weight.sum())[:, None]
    turned = root @ directions  # from independent directions to the errors of shares
    means = np.einsum("dij,wdj->wdi", turned, pull * var)
    mean = (weight[..., None] * means).sum(axis=0)
    own = np.einsum("dij,wdj->wdi", np.square(turned), var)
    share_var = (weight[..., None] * (own + np.square(means - mean))).sum(axis=0)
    shares = np.maximum(public + mean, _LEAST_SHARE / servers)
    shares = shares / shares.sum(axis=1, keepdims=True)
    slope = np.einsum("dij,dj->di", turned_back, common) / variances
    crowds = crowd + (slope * (pull * var - off)).sum(axis=2)
    crowd_vars = crowd_var + (np.square(slope) * (var - variances)).sum(axis=2)
    crowd_vars = np.maximum(crowd_vars, _LEAST_PART * crowd_var)
    middle = (weight * crowds).sum(axis=0)
    total_var = (weight * (crowd_vars + np.square(crowds - middle))).sum(axis=0)
    return LearnedCrowd(middle, total_var, np.ascontiguousarray(shares.T), np.ascontiguousarray(share_var.T))


def _scale(known: ShareFilter) -> Floats:
    """Return the crowd of which errors of shares are parts, (d,): rather too large where little is known of it."""
    crowd = np.sqrt(np.square(np.maximum(known.mean[:, 0], 1.0)) + np.maximum(known.cov[:, 0, 0], 0.0))
    return np.where(known.settled | (not known.begun), 1.0, crowd)


def _begun(
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
    cov[:, servers + 1 :, servers + 1 :] = _sums_to_zero(np.maximum(crowd, 1.0)[:, None] * believed)
    return mean, cov, before.scale * scale


def _claim(public: Floats, records: SlotRecords, which: Bools) -> tuple[Floats, Floats]:
    """Return the crowd that some of the records claim, by public shares, and the variance of their noise, (d,) each."""
    share = public[:, records.origins[which]].sum(axis=1)
    claim = np.maximum(records.noisy[which].sum(axis=0) / share, 1.0)
    return claim, (records.noise_var[which].sum() + share * claim) / np.square(share)


def _widened(
    cov: Floats, scale: Floats, settled: Bools, public: Floats, width: float, records: SlotRecords, new: Bools
) -> Floats:
    """Return the scale, and widen what is believed, in place, where servers that were never heard claim a larger crowd.

    The crowd of the first records says how wide the filter starts, and may have been too small by far.
    """
    claim, claim_var = _claim(public, records, new)
    least = _FIRST_FACTOR * (claim - 2.0 * np.sqrt(claim_var))  # more than noise
    larger = np.where(settled, scale, np.maximum(least, scale))
    added = np.square(larger) - np.square(scale)
    if added.any():
        part = slice(1, public.shape[1] + 1)
        cov[:, 0, 0] += added
        cov[:, part, part] += added[:, None, None] * _sums_to_zero(np.square(_WIDEST * width * public))
    return larger


def _moved(before: ShareFilter, believed: Floats, step: CrowdStep) -> tuple[Floats, Floats]:
    """Return mean and covariance for the next slot."""
    servers = believed.shape[1]
    part, first = slice(1, servers + 1), servers + 1
    factor = np.empty_like(before.mean)
    factor[:, 0], factor[:, first:] = step.transition, step.stays
    factor[:, part] = np.where(before.settled, 1.0, step.growth)[:, None]
    mean = factor * before.mean
    mean[:, 0] = step.expected + step.transition * (before.mean[:, 0] - step.before)
    cov = before.cov * (factor[:, :, None] * factor[:, None, :])
    cov[:, 0, 0] += step.added + np.where(before.settled, np.minimum(step.jump, np.square(before.mean[:, 0])), 0.0)
    people = np.maximum(mean[:, :1], 1.0)
    cov[:, first:, first:] += _sums_to_zero((1.0 - step.stays * step.stays) * people * believed)
    return mean, cov


def _update(
    mean: Floats, cov: Floats, public: Floats, records: SlotRecords, settled: Bools, point: tuple[Floats, Floats]
) -> None:
    """Take the records of a slot into account, in place.

    Where the filter has b, z = H r + b + delta is linear. Where it has g, the product (H + g) r is linearised at a
    `point`: shares (d, m) and crowd (d,) that are drawn back already. The rest is the product of what is off in both;
    its mean is subtracted, and its variance counts as noise.
    """
    servers, places, which = public.shape[1], 1 + records.origins, settled[:, None]
    share = np.where(which, point[0][:, records.origins], public[:, records.origins])
    crowd = np.where(settled, point[1], 1.0)[:, None]
    common = share[:, :, None] * cov[:, :1] + crowd[:, :, None] * cov[:, places] + cov[:, servers + places]
    both, crowd_var, share_var = cov[:, 0, places], cov[:, :1, 0], np.einsum("dkk->dk", cov[:, places[:, None], places])
    counted = public[:, records.origins] + mean[:, places]
    expected = np.where(which, counted * mean[:, :1] + both, public[:, records.origins] * mean[:, :1] + mean[:, places])
    innovation = records.noisy.T - expected - mean[:, servers + places]
    share_off, crowd_off = counted - share, mean[:, :1] - crowd
    rest = crowd_var * (share_var + share_off * share_off) + both * both
    rest = rest + crowd_off * (crowd_off * share_var + 2.0 * share_off * both)
    joint = share[:, None, :] * common[:, :, :1] + crowd[:, :, None] * common[:, :, places]
    joint = joint + common[:, :, servers + places]
    joint = 0.5 * (joint + joint.swapaxes(1, 2))
    own = np.maximum(np.einsum("dkk->dk", joint), 0.0)
    noise = np.maximum(records.noise_var, ROUNDING) + np.where(which, np.maximum(rest, 0.0), 0.0) + _LEAST_NOISE * own
    usual = own + noise
    noise = noise + usual * (np.maximum(np.square(innovation) / (LIMIT * usual), 1.0) - 1.0)
    np.einsum("dkk->dk", joint)[...] += noise
    gains = np.linalg.solve(_square_root(joint), np.concatenate([common, innovation[:, :, None]], axis=2))
    gain, normalised = gains[:, :, :-1], gains[:, :, -1]
    mean += np.einsum("dkn,dk->dn", gain, normalised)
    cov -= gain.swapaxes(1, 2) @ gain
    cov += cov.swapaxes(1, 2).copy()
    cov *= 0.5


def _square_root(matrices: Floats) -> Floats:
    """Return R with R R^T = each of the matrices, which are positive up to rounding."""
    try:
        return np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrices)
        return np.asarray(vectors * np.sqrt(np.maximum(values, _LEAST_NOISE * values[:, -1:]))[:, None, :])


def _settle(
    mean: Floats, cov: Floats, before: tuple[Floats, Bools], public: Floats, records: SlotRecords, added: Floats
) -> tuple[Floats, Bools]:
    """Turn errors of shares from people into parts of the crowd, in place, where so much is known of it.

    With g = b/r, an error of g is (that of b - g times that of r)/r; what this leaves out is (error of r)^2/r in all
    records together, and has to be less than the noise of a record at each server. Where single records say little,
    products of what they say are wrong, and the region stays as it is. In the round of records until now,
    the crowd has moved, and b with it: twice as far as the model says, if it moves in one direction.

    before  scale and `settled`, which are returned as they are now
    """
    scale, settled = before
    servers, crowd = public.shape[1], np.maximum(mean[:, 0], 1.0)
    noise_var = records.noise_var.mean()
    least = np.minimum(np.square(_SETTLED_PART * crowd), servers * np.sqrt(noise_var) * crowd)
    is_precise = noise_var + crowd / servers < np.square(_PRECISE_PART * crowd / servers)
    now = ~settled & is_precise & (cov[:, 0, 0] < least)
    if not now.any():
        return before
    part, people = slice(1, servers + 1), crowd[now][:, None]
    moved = mean[now]
    errors = moved[:, part] / people
    turn = np.tile(np.eye(mean.shape[1]), (len(people), 1, 1))
    np.einsum("dii->di", turn)[:, part] = 1.0 / people
    turn[:, part, 0] = -errors / people
    turned = turn @ cov[now] @ turn.swapaxes(1, 2)
    turned = 0.5 * (turned + turned.swapaxes(1, 2))
    round_var = 4.0 * added[now][:, None] * servers / len(records.origins)
    wrong = np.minimum(round_var / np.square(people), np.square(_SETTLED_PART))
    turned[:, part, part] += _sums_to_zero(wrong * np.square(np.maximum(public[now] + errors, 0.0)))
    moved[:, part] = errors
    mean[now], cov[now] = moved, turned
    return np.where(now, scale / crowd, scale), settled | now


def _sums_to_zero(var: Floats) -> Floats:
    """Return covariances (..., m, m) of numbers that sum to 0 and have about these variances (..., m)."""
    total = np.maximum(var.sum(axis=-1, keepdims=True), 1e-300)
    cov = -(var[..., :, None] * var[..., None, :]) / total[..., None]
    np.einsum("...ii->...i", cov)[...] += var
    return np.asarray(cov)


def _roots(public: Floats) -> tuple[Floats, Floats]:
    """Return L (d, m, m - 1) and its inverse.

    L L^T are the covariances of the errors of shares (d, m) at a width of 1:
    they are diag(H) (1 - n n^T) diag(H) with the unit vector n = H/|H|. A reflection takes the first axis to
    n, so its other columns span what is perpendicular to n.
    """
    unit = public / np.sqrt(np.square(public).sum(axis=1, keepdims=True))
    mirror = unit.copy()
    mirror[:, 0] += 1.0
    scale = 2.0 / np.square(mirror).sum(axis=1)
    axes = -scale[:, None, None] * mirror[:, :, None] * mirror[:, None, 1:]
    axes[:, 1:] += np.eye(public.shape[1] - 1)
    return public[:, :, None] * axes, (axes / public[:, :, None]).swapaxes(1, 2)
