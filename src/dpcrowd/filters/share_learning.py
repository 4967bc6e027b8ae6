"""Shares learned from final records: one joint filter over the crowd, the shares and the servers' deviations.

Where every user is at one server, r = sum c_i, and records of all servers say which part of r each of them counts:

    c_i = S_i r + delta_i          z_i = c_i + noise
    S       the shares: H + g, constant, sum g = 0
    delta   who happens to be at server i: persists while users stay (`persistence`), sum delta = 0

A filter per region has (r, S_1 .. S_m, delta_1 .. delta_m) as its state, with all covariances. That g and delta sum to
0 is part of the covariances at the start, diag(v) - v v^T / sum v: what is learned of one server narrows the shares of
the others, and a server that nobody hears keeps its uncertainty. The product S r is linearised at s, what is believed
of the share, and q, the filter's crowd: S r = s r + q S - s q + (S - s)(r - q). The mean of the last term is
subtracted, and its variance counts as noise, so that a wrong beginning does not make the filter too certain.

The filter starts with public shares that may be wrong by a large part, Var(g_i) = (W H_i)^2. How wrong they are is then
read off what it has learned: with a width w instead of W every posterior is known without another filter, since both
differ in the prior alone. With g = L y, where y has the variance w^2 in m - 1 directions, and in those directions in
which the posterior of y is independent, with variance p and mean a:

    l = 1/p - 1/W^2                  what the records say                h = a/p
    Var(y | w) = 1/(l + 1/w^2)       E(y | w) = h Var(y | w)
    log p(records | w) = sum 1/2 (h^2 Var(y | w) + log(Var(y | w)/w^2)) + constant

pooled over all directions and regions. The widths are that of the setting, which is trusted most beforehand, and up to
15 times as much (Bayes). So right public shares cost little, and wrong ones are found. What comes out is the mean over
the widths, with their distances in the variances.

Covariances are symmetric to the last bit, because every product of two numbers is formed before anything else: a server
that joins gets their lower halves, and goes on with the bits of its neighbours.

Everything is a function of final records, in order of their origins. A record beyond `LIMIT` squared deviations counts
less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.model import ProcessModel
from dpcrowd.filters.observation import ROUNDING

__all__ = ["LIMIT", "FinalSlot", "ShareLearner", "forget_crowd", "learn_shares", "shrunk_shares", "start_learner"]

LIMIT = 36.0
_WIDTHS = ((1.0, 0.6), (2.0, 0.1), (4.0, 0.1), (8.0, 0.1), (15.0, 0.1))  # factors of the width, and their weights
_WIDEST = 15.0
_LEAST_SHARE = 0.01
"""No learned share is smaller than this part of an equal share."""
_FIRST_DEVIATION = 0.5
"""Standard deviation of a crowd of which nothing is known, in units of its first estimate."""
_FIRST_FACTOR = 4.0
"""The factor by which the variance of that estimate is enlarged."""
_LEAST_PART = 1e-9


@dataclass
class ShareLearner:
    """The filters of some classes of receivers, each of which has had the same records; C classes.

    mean     (C, d, 2 m + 1)
    cov      (C, d, 2 m + 1, 2 m + 1)
    begun    (C,) whether the crowd has been estimated for the first time
    heard    (C, m) whether a server has ever been heard
    members  (N,) the class of each receiver
    public   (C, m, d) public shares
    """

    mean: Floats
    cov: Floats
    begun: Ints
    heard: Ints
    members: Ints
    public: Floats

    @property
    def servers(self) -> int:
        """m."""
        return int(self.public.shape[1])


@dataclass(frozen=True)
class FinalSlot:
    """What a class of receivers knows of a slot that is final.

    origins    (k,) the places of the servers that have made records, in ascending order
    noisy      (k, d)
    noise_var  (k,)
    crowd      (d,) the estimate, with which a filter begins that knows nothing yet; NaN: there is none
    crowd_var  (d,)
    shares     (m, d) what was believed of the shares
    """

    slot: int
    origins: Ints
    noisy: Floats
    noise_var: Floats
    crowd: Floats
    crowd_var: Floats
    shares: Floats


def start_learner(public: Floats, width: float, members: Ints) -> ShareLearner:
    """Return the filters before the first record.

    public   (C, m, d) public shares, which sum to 1 in every region
    members  (N,) the class of each receiver
    """
    classes, servers, regions = public.shape
    size = 2 * servers + 1
    by_region = public.swapaxes(1, 2)
    mean, cov = np.zeros((classes, regions, size)), np.zeros((classes, regions, size, size))
    mean[..., 1 : servers + 1] = by_region
    cov[..., 1 : servers + 1, 1 : servers + 1] = _sums_to_zero(np.square(_WIDEST * width * by_region))
    begun, heard = np.zeros(classes, dtype=np.int64), np.zeros((classes, servers), dtype=np.int64)
    return ShareLearner(mean, cov, begun, heard, members, public)


def learn_shares(learner: ShareLearner, one: int, final: FinalSlot, model: ProcessModel, turnover: float) -> None:
    """Let one class of receivers learn from a slot that is final, in place."""
    mean, cov, servers = learner.mean[one], learner.cov[one], learner.servers
    if not learner.begun[one]:
        if model.course is None and not np.isfinite(final.crowd).all():
            return
        _begin(learner, one, final, model)
    _predict(mean, cov, final.shares.T, model, turnover, final.slot)
    learner.heard[one][final.origins] = 1
    for origin, noisy, noise_var in zip(final.origins, final.noisy, final.noise_var, strict=True):
        place, share = 1 + int(origin), final.shares[origin]
        crowd = np.maximum(mean[:, 0], 1.0)
        common = share[:, None] * cov[:, 0] + crowd[:, None] * cov[:, place] + cov[:, servers + place]
        explained = share * common[:, 0] + crowd * common[:, place] + common[:, servers + place]
        off, both = mean[:, place] - share, cov[:, 0, place]
        rest_var = cov[:, 0, 0] * (cov[:, place, place] + off * off) + both * both
        innovation = noisy - (share * mean[:, 0] + crowd * off + both + mean[:, servers + place])
        var = np.maximum(explained, 0.0) + np.maximum(rest_var, 0.0) + max(float(noise_var), ROUNDING)
        var = var * np.maximum(np.square(innovation) / (LIMIT * var), 1.0)
        mean += common * (innovation / var)[:, None]
        cov -= common[:, :, None] * common[:, None, :] / var[:, None, None]


def forget_crowd(learner: ShareLearner) -> None:
    """Keep what is known of the shares alone, in place: so much time has passed that the crowd is another one."""
    first, size = learner.servers + 1, learner.mean.shape[-1]
    for place in (0, slice(first, size)):
        learner.mean[..., place] = 0.0
        learner.cov[..., place, :] = 0.0
        learner.cov[..., :, place] = 0.0
    learner.begun[:] = 0  # whom it has heard stays true


def shrunk_shares(learner: ShareLearner, one: int, width: float) -> tuple[Floats, Floats, Floats]:
    """Return the shares of a class, the variances of their errors, and what the errors have in common, (m, d) each.

    Shares of a region sum to 1. Where some servers are not heard, nobody knows how large their part is, and all other
    shares are wrong by the same factor: so the covariances are close to diag(var - f^2) + f f^T. With the matrix C of
    all covariances, f = C a/sqrt(a^T C a), where a are weights in proportion to the variances.
    """
    servers, public = learner.servers, learner.public[one].T
    part = slice(1, servers + 1)
    root, inverse = _roots(public)
    spread = inverse @ learner.cov[one][:, part, part] @ inverse.swapaxes(1, 2)
    off = np.einsum("dij,dj->di", inverse, learner.mean[one][:, part] - public)
    most = np.square(_WIDEST * width)
    variances, directions = np.linalg.eigh(0.5 * (spread + spread.swapaxes(1, 2)))
    variances = np.clip(variances, _LEAST_PART * most, most)
    information = np.maximum(1.0 / variances - 1.0 / most, 0.0)
    pull = np.einsum("dij,di->dj", directions, off) / variances
    factors, weights = (np.array(column) for column in zip(*_WIDTHS, strict=True))
    prior = np.square(factors * width)[:, None, None]
    var = 1.0 / (information + 1.0 / prior)
    evidence = 0.5 * (np.square(pull) * var + np.log(var / prior)).sum(axis=(1, 2)) + np.log(weights)
    weight = np.exp(evidence - evidence.max())
    weight = (weight / weight.sum())[:, None, None]
    turned = root @ directions  # from independent directions to the errors of shares
    means = np.einsum("dij,wdj->wdi", turned, pull * var)
    mean = (weight * means).sum(axis=0)
    own = np.einsum("dij,wdj->wdi", np.square(turned), var)
    share_var = (weight * (own + np.square(means - mean))).sum(axis=0)
    along = share_var / share_var.sum(axis=1, keepdims=True)
    by_direction = np.einsum("dij,di->dj", turned, along)
    apart = means - mean
    common = np.einsum("dij,dj->di", turned, (weight * var).sum(axis=0) * by_direction)
    common = common + (weight * apart * (apart * along).sum(axis=2, keepdims=True)).sum(axis=0)
    common = common / np.sqrt((common * along).sum(axis=1, keepdims=True))
    shares = np.maximum(public + mean, _LEAST_SHARE / servers)
    shares = shares / shares.sum(axis=1, keepdims=True)
    heard = learner.heard[one] > 0
    if learner.begun[one] and not heard.all() and heard.any():
        typical = np.sqrt((weight * prior).sum())
        shares, share_var, common = _with_unheard(shares, share_var, public, heard, float(typical))
    return np.ascontiguousarray(shares.T), np.ascontiguousarray(share_var.T), np.ascontiguousarray(common.T)


def _with_unheard(
    shares: Floats, share_var: Floats, public: Floats, heard: Bools, width: float
) -> tuple[Floats, Floats, Floats]:
    """Return shares, variances and their common part, (d, m) each, where some servers have never been heard.

    Nothing says how large their part is, so theirs stay the public shares, with the width that the others have shown,
    and the others divide the rest in the proportions that were learned: all of these are wrong by one factor.
    """
    unheard = np.where(heard, 0.0, public)
    rest = 1.0 - unheard.sum(axis=1, keepdims=True)
    parts = np.where(heard, shares, 0.0)
    parts = parts / parts.sum(axis=1, keepdims=True)
    own = width * unheard
    total = np.sqrt(np.square(own).sum(axis=1, keepdims=True))
    common = np.where(heard, -parts * total, np.square(own) / np.maximum(total, 1e-300))
    var = np.where(heard, np.minimum(share_var, np.square(width * public)) + np.square(common), np.square(own))
    return np.where(heard, parts * rest, unheard), var, common


def _begin(learner: ShareLearner, one: int, final: FinalSlot, model: ProcessModel) -> None:
    """Give the filters of a class their first crowd, in place."""
    servers, mean, cov = learner.servers, learner.mean[one], learner.cov[one]
    if model.course is not None:
        mean[:, 0], cov[:, 0, 0] = model.start(final.slot - 1)
    else:
        mean[:, 0] = np.maximum(final.crowd, 1.0)
        cov[:, 0, 0] = np.square(_FIRST_DEVIATION * mean[:, 0]) + _FIRST_FACTOR * final.crowd_var
    people = np.maximum(mean[:, :1], 1.0)
    cov[:, servers + 1 :, servers + 1 :] = _sums_to_zero(people * final.shares.T)
    learner.begun[one] = 1


def _predict(mean: Floats, cov: Floats, shares: Floats, model: ProcessModel, turnover: float, slot: int) -> None:
    """Move the filters of all regions to a slot, in place."""
    first, course = 1 + shares.shape[1], model.course
    a = np.broadcast_to(model.diagonal_transition, (model.regions,))
    if course is None:
        mean[:, 0] *= a
        added = model.diagonal_var
    else:
        mean[:, 0] = course.mean(slot) + a * (mean[:, 0] - course.mean(slot - 1))
        added = course.noise_var(slot)
    stays = 1.0 - turnover
    factor = np.ones(mean.shape)
    factor[:, 0], factor[:, first:] = a, stays
    mean[:, first:] *= stays
    cov *= factor[:, :, None] * factor[:, None, :]
    cov[:, 0, 0] += added
    people = np.maximum(mean[:, :1], 1.0)
    cov[:, first:, first:] += _sums_to_zero((1.0 - stays * stays) * people * shares)


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
