"""How wrong public shares are, read off the joint filter that has learned them (`share_learning`).

The filter starts with public shares that may be wrong by a large part: Var(g) is W^2 times what it is at a width of 1.
With a width w instead of W every posterior is known without another filter, since both differ in the prior alone. With
g = L y, where y has the variance w^2 in m - 1 directions, and at the width W the mean a, the covariances P, and the
covariances k with the crowd r:

    c = 1/w^2 - 1/W^2                what the narrower prior adds       K = 1 + c P
    y | w:  mean K^-1 a                                                 covariances K^-1 P
    r | w:  mean r - c k^T K^-1 a                                       variance Var(r) - c k^T K^-1 k
    log p(records | w) = - 1/2 (c a^T K^-1 a + log det K) - (m - 1) log w + constant

pooled over all regions. The widths are that of the setting, which is trusted most beforehand, up to 15 times as much,
and down to a tenth (Bayes). So right public shares cost little, and wrong ones are found. Where the number of samples
divides the window, groups of servers never sample in the same slot, and a season that the process model does not know
looks like an error that the shares of each group have in common. Servers of one group say how wrong shares usually are:
if not at all, the narrow widths keep the season from being taken for it. What comes out is the mean over the widths,
with their distances in the variances.

Products of shares and crowd are linearised with what all widths say of both (`product_moments`). Public shares that are
wrong by eight times the setting or more have long tails, and the width that fits most of them says too little of the
largest ones; all such widths count as the widest there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpcrowd.arrays import Bools, Floats
from dpcrowd.filters.share_beginning import WIDEST, share_var
from dpcrowd.filters.share_settling import LEAST_PART, expected_part, heard_part
from dpcrowd.filters.share_state import Directions, ProductMoments, ShareCovariance, ShareFilter, Widths

__all__ = [
    "anchored",
    "directions_of",
    "learned_crowd",
    "learned_shares",
    "product_moments",
    "weigh_widths",
]

_WIDTHS = ((0.1, 0.05), (0.3, 0.05), (1.0, 0.5), (2.0, 0.1), (4.0, 0.1), (8.0, 0.1), (15.0, 0.1))
"""Factors of the width, and their weights."""
_USUAL = 5
"""How many of them are not taken for the widest in products with the crowd."""
_LEAST_SHARE = 1e-9
"""No learned share is smaller than this part of an equal share."""
_LEAST_PART = 1e-14
_LEAST_WEIGHT = 1e-13
"""A width that is less probable does not change learned shares."""


def learned_crowd(known: ShareFilter, public: Floats, width: float) -> tuple[Floats, Floats]:
    """Return means and variances (d,) of the crowd, drawn back to the public shares (m, d) as far as records allow."""
    widths = weigh_widths(known, public.T, width)
    weight = widths.weight[:, None]
    crowd = (weight * widths.crowd).sum(axis=0)
    return crowd, (weight * (widths.var + np.square(widths.crowd - crowd))).sum(axis=0)


def learned_shares(known: ShareFilter, public: Floats, width: float) -> tuple[Floats, Floats]:
    """Return the shares and the variances of their errors, (m, d), drawn back to the public shares likewise."""
    public = public.T
    servers, directions, scale = public.shape[1], directions_of(known, public), _scale(known)[:, None]
    widths = weigh_widths(known, public, width)
    back, gain = directions.back, widths.gain
    explained = gain @ back.swapaxes(1, 2)
    common = directions.var[:, :, None] * back.swapaxes(1, 2) - gain.swapaxes(1, 2) @ explained  # P L^T
    widest = np.einsum("dij,dji->di", back, common)
    probable = np.flatnonzero(widths.weight > _LEAST_WEIGHT)
    means, own = np.empty((2, len(probable), *public.shape))
    for number, one in enumerate(probable):
        added, diagonal = widths.added[one][:, None], widths.diagonal[one]
        right = np.concatenate([widths.mean[:, :, None], common], axis=2)
        weighted = right / diagonal[:, :, None]
        seen = np.linalg.solve(widths.root[one], gain @ weighted)
        drawn = weighted[:, :, 0] + added * np.einsum(
            "dki,dk->di", np.linalg.solve(widths.root[one], gain / diagonal[:, None, :]), seen[:, :, 0]
        )
        share = public + np.einsum("dij,dj->di", back, drawn) / scale
        less = (common * weighted[:, :, 1:]).sum(axis=1) + added * np.square(seen[:, :, 1:]).sum(axis=1)
        var = (widest - added * less) / np.square(scale)
        part, part_var = (values[one][:, None] for values in widths.part)
        means[number] = np.where(known.silent, share, part * share)
        own[number] = np.where(known.silent, var, part * part * var + part_var * share * share)
    weight = widths.weight[probable][:, None, None]
    mean = (weight * means).sum(axis=0)
    var = (weight * (own + np.square(means - mean))).sum(axis=0)
    shares = np.maximum(mean, _LEAST_SHARE / servers)
    shares = shares / shares.sum(axis=1, keepdims=True)
    return np.ascontiguousarray(shares.T), np.ascontiguousarray(np.maximum(var, 0.0).T)


def anchored(moved: ShareFilter, public: Floats, width: float, expected: tuple[Floats, Floats]) -> ShareFilter:
    """Return a filter before the records of a slot whose crowd, drawn back, is what is expected of it.

    expected  means and variances (d,), by filters that learn (`learning`) and may have another opinion than the joint
              filter after the slot before. Without this, what the joint filter knows already would be taken for news
              of the records, slot after slot, and speak against a crowd that leaves its past.
    """
    crowd, crowd_var = learned_crowd(moved, public, width)
    part = np.where(moved.settled, expected_part(moved.mean[:, 1 : len(public) + 1], public.T, moved.silent), 1.0)
    mean, cov = moved.mean.copy(), moved.spread.cov.copy()
    factor = np.sqrt(np.minimum(expected[1] / crowd_var, 1.0))[:, None]
    if moved.silent.any():  # what nobody knows of their part stays open
        factor[moved.settled] = 1.0
    mean[:, 0] = part * expected[0] + factor[:, 0] * (mean[:, 0] - part * crowd)
    cov[:, 0] *= factor
    cov[:, :, 0] *= factor
    cov[:, 0, 0] += np.square(part) * np.maximum(expected[1] - crowd_var, 0.0)
    directions = directions_of(moved, public.T)
    return replace(
        moved, mean=mean, spread=ShareCovariance(cov, replace(directions, common=factor * directions.common))
    )


def product_moments(moved: ShareFilter, public: Floats, width: float) -> ProductMoments | None:
    """Return what is believed of shares and crowd before the records of a slot, by all widths but the largest ones.

    public  (m, d) shares
    None    only the largest ones are probable; or servers have never been heard, of whose part nobody knows
    """
    widths = weigh_widths(moved, public.T, width)
    total = float(widths.weight[:_USUAL].sum())
    if moved.silent.any() or total < _LEAST_WEIGHT:
        return None
    directions, weight = directions_of(moved, public.T), widths.weight[:_USUAL, None, None] / total
    diagonal, crowd = widths.diagonal[:_USUAL], widths.crowd[:_USUAL, :, None]
    errors, common = (
        np.einsum("dij,wdj->wdi", directions.back, part / diagonal) for part in (widths.mean, directions.common)
    )
    var = np.einsum("dij,wdj->wdi", np.square(directions.back), directions.var / diagonal)
    off = errors - (weight * errors).sum(axis=0)
    crowd_off = crowd - (weight * crowd).sum(axis=0)
    return ProductMoments(
        widest=1.0 - total,
        share_var=(weight * (var + np.square(off))).sum(axis=0),
        common=(weight * (common + off * crowd_off)).sum(axis=0),
    )


def weigh_widths(known: ShareFilter, public: Floats, width: float) -> Widths:
    """Return what the widths say of the crowd, and how probable each of them is.

    They are asked for after the records of a slot and again when it is final, so a filter keeps them.
    """
    found = known.widths
    if found is None or found[0] != width or not (found[1] is public or np.array_equal(found[1], public)):
        found = width, public, _weighed(known, public, width)
        known.widths = found
    return found[2]


def _weighed(known: ShareFilter, public: Floats, width: float) -> Widths:
    """Return `weigh_widths`, computed."""
    directions, scale, places = directions_of(known, public), _scale(known), slice(1, public.shape[1] + 1)
    size = directions.var.shape[1]
    factors, weights = (np.array(column) for column in zip(*_WIDTHS, strict=True))
    widest = np.square(WIDEST * width * known.scale)
    prior = np.minimum(np.square(np.multiply.outer(factors * width, scale)), widest)
    added = 1.0 / prior - 1.0 / widest
    mean = (directions.to @ known.mean[:, places, None])[:, :, 0]
    common, gain = directions.common, np.zeros((len(mean), 0, size))
    if known.gain is not None:
        gain = known.gain[:, :, places] @ directions.to.swapaxes(1, 2)
        common = common - (known.gain[:, None, :, 0] @ gain)[:, 0]
    right = [mean, common]
    if apart := bool(known.silent.any() and known.settled.any()):
        quiet = directions.back[:, known.silent].sum(axis=1)  # y to the errors of silent servers' shares together
        right += [quiet, directions.var * quiet - ((gain @ quiet[:, :, None]).swapaxes(1, 2) @ gain)[:, 0]]
    diagonal = 1.0 + added[:, :, None] * directions.var
    root, products = _products(gain, added, diagonal, right)
    determinant = np.log(diagonal).sum(axis=-1) + 2.0 * np.log(np.einsum("wdkk->wdk", root)).sum(axis=-1)
    pulls = added * products[..., 0, 0] + determinant + size * np.log(prior)
    evidence = -0.5 * pulls.sum(axis=1) + np.log(weights)
    weight = np.exp(evidence - evidence.max())
    crowd_var = known.crowd_var
    var = np.maximum(crowd_var - added * products[..., 1, 1], _LEAST_PART * crowd_var)
    crowd = known.mean[:, 0] - added * products[..., 0, 1]
    part = np.ones_like(crowd), np.zeros_like(crowd)
    if apart:
        errors, errors_var = products[..., 0, 2], np.maximum(products[..., 2, 3], 0.0)
        crowd, var, part = _of_all_servers(known, public, (crowd, var), (errors, errors_var, products[..., 1, 2]))
    return Widths(weight / weight.sum(), added, diagonal, gain, root, mean, crowd, var, part)


def _products(gain: Floats, added: Floats, diagonal: Floats, right: list[Floats]) -> tuple[Floats, Floats]:
    """Return R of `Widths`, and the products x K^-1 y (w, d, x, y) of some vectors `right`, (d, m - 1) each."""
    both = np.stack([one * other for one in right for other in right], axis=1)
    shape = *added.shape, len(right), len(right)
    products = (both @ (1.0 / diagonal).transpose(1, 2, 0)).transpose(2, 0, 1).reshape(shape)
    if not gain.shape[1]:
        return np.zeros((*added.shape, 0, 0)), products
    seen = gain / diagonal[:, :, None, :]
    remainder = np.eye(gain.shape[1]) - added[:, :, None, None] * (seen @ gain.swapaxes(1, 2))
    root = np.asarray(np.linalg.cholesky(remainder), dtype=np.float64)
    by_records = np.linalg.solve(root, seen @ np.stack(right, axis=-1))
    return root, products + added[:, :, None, None] * (by_records.swapaxes(2, 3) @ by_records)


def _of_all_servers(
    known: ShareFilter, public: Floats, heard: tuple[Floats, Floats], errors: tuple[Floats, Floats, Floats]
) -> tuple[Floats, Floats, tuple[Floats, Floats]]:
    """Return mean and variance of the crowd r = q/f, and f with its variance, (w, d) each.

    heard   mean and variance of q
    errors  of the shares of silent servers together: means, variances, and covariances with q
    """
    rest = heard_part(public, known.silent)
    part = np.where(known.settled, np.maximum(1.0 - errors[0] / rest, LEAST_PART), 1.0)
    slope = np.where(known.settled, heard[0] / (part * rest), 0.0)
    var = (heard[1] + 2.0 * slope * errors[2] + np.square(slope) * errors[1]) / np.square(part)
    part_var = np.where(known.settled, errors[1] / np.square(rest), 0.0)
    return heard[0] / part, np.maximum(var, _LEAST_PART * heard[1]), (part, part_var)


def directions_of(known: ShareFilter, public: Floats) -> Directions:
    """Return the directions of a filter; filters that differ in the records of the slot have them in common."""
    spread, part = known.spread, slice(1, public.shape[1] + 1)
    if spread.directions is None:
        root, inverse = _roots(public)
        if known.silent.any() and (which := known.settled).any():
            root[which], inverse[which] = _roots_apart(public[which], known.silent)
        cov = inverse @ spread.cov[:, part, part] @ inverse.swapaxes(1, 2)
        var, axes = np.linalg.eigh(0.5 * (cov + cov.swapaxes(1, 2)))
        to = axes.swapaxes(1, 2) @ inverse
        common = np.einsum("dij,dj->di", to, spread.cov[:, 0, part])
        spread.directions = Directions(np.maximum(var, 0.0), common, to, root @ axes)
    return spread.directions


def _scale(known: ShareFilter) -> Floats:
    """Return the crowd of which errors of shares are parts, (d,): rather too large where little is known of it."""
    crowd = np.sqrt(np.square(np.maximum(known.mean[:, 0], 1.0)) + np.maximum(known.crowd_var, 0.0))
    return np.where(known.settled | (not known.begun), 1.0, crowd)


def _roots(public: Floats) -> tuple[Floats, Floats]:
    """Return L (d, m, m - 1) and its inverse.

    L L^T are the covariances of the errors of shares (d, m) at a width of 1:
    they are diag(s) (1 - n n^T) diag(s) with the deviations s and the unit vector n = s/|s|. A reflection takes the
    first axis to n, so its other columns span what is perpendicular to n.
    """
    return _roots_of(np.sqrt(share_var(public)))


def _roots_apart(public: Floats, silent: Bools) -> tuple[Floats, Floats]:
    """Return the same where errors of the shares of heard servers sum to 0, and silent ones are independent of them.

    Those of silent servers have the covariances diag(s) (1 - U0 n n^T) diag(s), with U0 = sum H and n = sqrt(H/U0).
    """
    regions, servers = public.shape
    deviation, all_silent = np.sqrt(share_var(public)), public[:, silent].sum(axis=1)[:, None, None]
    heard, first = np.flatnonzero(~silent), servers - int(silent.sum()) - 1
    root, inverse = np.zeros((regions, servers, servers - 1)), np.zeros((regions, servers - 1, servers))
    root[:, heard, :first], inverse[:, :first, heard] = _roots_of(deviation[:, heard])
    unit = np.sqrt(public[:, silent] / all_silent[:, 0])
    along, rest = unit[:, :, None] * unit[:, None, :], np.sqrt(1.0 - all_silent)
    axes = np.eye(unit.shape[1])
    own = deviation[:, silent]
    root[:, silent, first:] = own[:, :, None] * (axes - (1.0 - rest) * along)
    inverse[:, first:, silent] = (axes + (1.0 / rest - 1.0) * along) / own[:, None, :]
    return root, inverse


def _roots_of(deviation: Floats) -> tuple[Floats, Floats]:
    """Return `_roots` from the deviations of errors of shares, (d, m)."""
    unit = deviation / np.sqrt(np.square(deviation).sum(axis=1, keepdims=True))
    mirror = unit.copy()
    mirror[:, 0] += 1.0
    scale = 2.0 / np.square(mirror).sum(axis=1)
    axes = -scale[:, None, None] * mirror[:, :, None] * mirror[:, None, 1:]
    axes[:, 1:] += np.eye(deviation.shape[1] - 1)
    return deviation[:, :, None] * axes, (axes / deviation[:, :, None]).swapaxes(1, 2)
