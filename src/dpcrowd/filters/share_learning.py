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

Shares are constant, and b is not. So once the crowd is known within 15%, or as well as it moves until all servers have
been heard again, and records are precise, the region is settled: the state has g in the place of b, and the product S r
with S = H + g is linearised at the share s and the crowd q that are believed in:

    S r = s r + q S - s q + (S - s)(r - q)          the last term: mean Cov(S, r), variance Var(S) Var(r) + Cov(S, r)^2

Its mean is subtracted, and its variance counts as noise. They are those of all widths (`share_widths`) and not of W
alone, or records of right shares would count little until W is ruled out. What was learned until then is widened by
what the crowd has moved meanwhile. That is done when all servers have been heard, or those that have been heard twice
while others are silent: then r and S refer to the servers that have been heard (`share_settling`), until another one
is. Where noise hides the crowd the region is not settled, and b is taken to be constant, but for the growth of an
expected course; where it is precise and not settled yet, b moves with the crowd.

The filter starts with public shares that may be wrong by a large part, Var(g_i) = W^2 H_i sum H^2: of equal shares
(W H)^2. `share_widths` reads off what it has learned how wrong they are. Variances in proportion to the shares are
those of Dirichlet draws. With them, how servers divide a crowd says nothing of the part of other servers: if some of
them are silent, the others scale by the sum of their public shares, and a small server with an unusual share does not
decide about the scale.

Covariances are symmetric to the last bit: a server that joins gets their lower halves, and goes on with the bits of its
neighbours. Everything is a function of the records. A record beyond `LIMIT` squared deviations counts less. Where the
records of a slot show that what was learned of a region cannot be right, it begins anew (`share_beginning`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.observation import ROUNDING
from dpcrowd.filters.share_beginning import (
    LEAST_NOISE,
    WIDEST,
    begun,
    is_contradicted,
    is_impossible,
    restarted,
    square_root,
    sums_to_zero,
    widened,
)
from dpcrowd.filters.share_settling import expected_part, heard_crowd, heard_part, to_parts, to_people
from dpcrowd.filters.share_state import (
    CrowdStep,
    ExpectedRecords,
    PreparedSlot,
    ProductMoments,
    ShareCovariance,
    ShareFilter,
    SlotRecords,
)

__all__ = [
    "LIMIT",
    "expected_records",
    "former_filter",
    "fuse_slot",
    "learn_slot",
    "move_filter",
    "prepare_slot",
]

LIMIT = 36.0
_SETTLED_PART, _MOST_UNSETTLED = 0.15, 1.5
"""The deviation of a crowd that is known well enough to linearise products with it, as a part of the crowd: of a calm
one, and of one that moves by so much or more."""
_PRECISE_PART = 0.3
"""The deviation of a record that says enough of a share to linearise products with it, as a part of a mean count."""
_MOST_MOVES = 0.05
"""How far b moves with the crowd in a slot at most, as a part of it: filters that learn may take errors of shares, of
servers that never sample in the same slot, for jumps of the crowd, and would never get to know them."""
_LEAST_HEARD = 0.5
"""The public part of the servers that have been heard, at least, before a region is settled."""


def former_filter(mean: Floats, cov: Floats, public: Floats, heard: Ints, *, begun: bool) -> ShareFilter:
    """Return the filter from a state of earlier builds, which had shares in the place of their errors."""
    moved, scale, nobody = mean.copy(), np.ones(len(mean)), np.zeros(len(public), dtype=np.bool_)
    moved[:, 1 : len(public) + 1] -= public.T
    if begun and not heard.all():
        scale = np.maximum(moved[:, 0], 1.0)
        moved, cov = to_people(moved, cov, public.T, nobody)
    return ShareFilter(
        moved, ShareCovariance(cov), scale, begun, heard, np.full(len(mean), begun and bool(heard.all()))
    )


def learn_slot(
    before: ShareFilter, public: Floats, believed: Floats, width: float, step: CrowdStep, records: SlotRecords | None
) -> ShareFilter:
    """Return the filter after a slot.

    public    (m, d) shares
    believed  (m, d) what is believed of the shares, for the variance of the deviations
    """
    if not before.begun and records is None and not np.isfinite(step.expected_var).all():
        return before
    return fuse_slot(
        move_filter(before, public, believed, step, records), before, public, believed, width, step, records
    )


def move_filter(
    before: ShareFilter, public: Floats, believed: Floats, step: CrowdStep, records: SlotRecords | None
) -> ShareFilter:
    """Return the filter before the records of a slot; one that has not begun takes its first crowd from them."""
    if before.begun:
        mean, cov = _moved(before, public.T, believed.T, step)
        scale = before.scale * np.where(before.settled, 1.0, step.growth)
        return ShareFilter(mean, ShareCovariance(cov), scale, True, before.heard, before.settled)
    mean, cov, scale = begun(before, public.T, believed.T, step, records)
    return ShareFilter(mean, ShareCovariance(cov), scale, True, before.heard, before.settled)


def fuse_slot(
    moved: ShareFilter,
    before: ShareFilter,
    public: Floats,
    believed: Floats,
    width: float,
    step: CrowdStep,
    records: SlotRecords | None,
    products: ProductMoments | None = None,
) -> ShareFilter:
    """Return the filter after the records of a slot, for which it was `moved` from the slot before.

    believed  (m, d) what is believed of the shares before the slot, for products with the crowd
    products  what else is believed of them; None: nothing
    """
    if records is None:
        return moved
    slot = prepare_slot(moved, before, public, believed, width, step, records, products)
    known, heard = slot.known, before.heard.copy()
    heard[records.origins] = np.minimum(heard[records.origins] + 1, 2)
    expected = expected_records(slot, public, records)
    mean, gain, noise = _update(known, expected)
    after = ShareFilter(mean, known.spread, known.scale, True, heard, known.settled, gain, noise)
    contradicted = is_contradicted(known, expected) if before.begun else np.zeros_like(known.settled)
    if before.begun and (wrong := contradicted | is_impossible(after)).any():
        known = restarted(known, wrong, contradicted, public, width, step, records)
        slot = replace(slot, known=known, shares=np.where(wrong[:, None], public.T, slot.shares))
        mean, gain, noise = _update(known, expected_records(slot, public, records))
        after = ShareFilter(mean, known.spread, known.scale, True, heard, known.settled, gain, noise)
    return _settle(after, public.T, width, records, step)


def prepare_slot(
    moved: ShareFilter,
    before: ShareFilter,
    public: Floats,
    believed: Floats,
    width: float,
    step: CrowdStep,
    records: SlotRecords,
    products: ProductMoments | None = None,
) -> PreparedSlot:
    """Return what is compared with the records of a slot; arguments as those of `fuse_slot`."""
    public, believed = public.T, believed.T
    new = before.heard[records.origins] == 0
    if before.begun and new.any():
        moved = _in_people(moved, public)
        if step.claimed:
            moved = widened(moved, public, width, records, new)
    if before.begun:
        moved = _with_moves(moved, step, records)
    known = np.isfinite(step.expected_var)
    crowd = np.maximum(np.where(known, step.expected, moved.mean[:, 0]), 1.0)
    crowd_var = np.where(known, step.expected_var, moved.crowd_var)
    part = expected_part(believed - public, public, moved.silent)
    return PreparedSlot(moved, believed / part[:, None], crowd * part, crowd_var, products)


def _in_people(known: ShareFilter, public: Floats) -> ShareFilter:
    """Return the filter with errors of shares in people in all regions."""
    settled = known.settled
    if not settled.any():
        return known
    mean, cov = known.mean.copy(), known.cov.copy()
    mean[settled], cov[settled] = to_people(mean[settled], cov[settled], public[settled], known.silent)
    scale = np.where(settled, known.scale * np.maximum(known.mean[:, 0], 1.0), known.scale)
    return replace(known, mean=mean, spread=ShareCovariance(cov), scale=scale, settled=np.zeros_like(settled))


def _with_moves(known: ShareFilter, step: CrowdStep, records: SlotRecords) -> ShareFilter:
    """Return the filter with what the move of the crowd adds to b = g r, where single records say something of it."""
    servers = len(known.heard)
    part, crowd = slice(1, servers + 1), np.maximum(known.mean[:, 0], 1.0)
    which = ~known.settled & _is_precise(records, crowd, servers)
    if not which.any():
        return known
    moves = np.where(which, np.minimum(step.added / np.square(crowd), _MOST_MOVES**2), 0.0)[:, None, None]
    people, cov = np.clip(known.mean[:, part], -crowd[:, None], crowd[:, None]), known.cov.copy()
    cov[:, part, part] += moves * (cov[:, part, part] + people[:, :, None] * people[:, None, :])
    return replace(known, spread=ShareCovariance(cov))


def _is_precise(records: SlotRecords, crowd: Floats, servers: int) -> Bools:
    """Return whether single records say enough of a share of a crowd (d,) to linearise products with it, (d,)."""
    return np.asarray(records.noise_var.mean() + crowd / servers < np.square(_PRECISE_PART * crowd / servers))


def _moved(before: ShareFilter, public: Floats, believed: Floats, step: CrowdStep) -> tuple[Floats, Floats]:
    """Return mean and covariance for the next slot.

    The crowd q = f r of servers that are heard follows q' = a q + f (expected - a before) + f noise.
    """
    servers, settled = believed.shape[1], before.settled
    part, first = slice(1, servers + 1), servers + 1
    factor = np.empty_like(before.mean)
    factor[:, 0], factor[:, first:] = step.transition, step.stays
    factor[:, part] = np.where(settled, 1.0, step.growth)[:, None]
    known = np.where(settled, expected_part(before.mean[:, part], public, before.silent), 1.0)
    drift = step.expected - step.transition * step.before
    mean = factor * before.mean
    mean[:, 0] += known * drift
    cov = before.cov * (factor[:, :, None] * factor[:, None, :])
    if settled.any() and (silent := before.silent).any():
        slope = np.where(settled, -drift / heard_part(public, silent), 0.0)[:, None]
        common = slope * cov[:, 1 + np.flatnonzero(silent)].sum(axis=1)
        more = 2.0 * common[:, 0] + slope[:, 0] * common[:, 1 + np.flatnonzero(silent)].sum(axis=1)
        cov[:, 0, 1:] += common[:, 1:]
        cov[:, 1:, 0] += common[:, 1:]
        cov[:, 0, 0] += more
    jump = np.where(settled, np.minimum(step.jump, np.square(before.mean[:, 0])), 0.0)
    cov[:, 0, 0] += np.square(known) * (step.added + jump)
    people = np.maximum(mean[:, :1] / known[:, None], 1.0)
    cov[:, first:, first:] += sums_to_zero((1.0 - step.stays * step.stays) * people * believed)
    return mean, cov


def expected_records(slot: PreparedSlot, public: Floats, records: SlotRecords) -> ExpectedRecords:
    """Return what is expected of the records of a slot.

    Where the filter has b, z = H r + b + delta is linear. Where it has g, the product (H + g) r is linearised at the
    point of the slot, which is drawn back already. The rest is the product of what is off in both; its mean is
    subtracted, and its variance counts as noise.

    public  (m, d) shares
    """
    mean, cov, settled = slot.known.mean, slot.known.spread.cov, slot.known.settled
    known_shares = public.T[:, records.origins]
    servers, places, which = len(public), 1 + records.origins, settled[:, None]
    share = np.where(which, slot.shares[:, records.origins], known_shares)
    crowd = np.where(settled, slot.crowd, 1.0)[:, None]
    common = share[:, :, None] * cov[:, :1] + crowd[:, :, None] * cov[:, places] + cov[:, servers + places]
    product, rest = _products(slot, known_shares, records.origins)
    expected = np.where(which, product, known_shares * mean[:, :1] + mean[:, places])
    innovation = records.noisy.T - expected - mean[:, servers + places]
    joint = share[:, None, :] * common[:, :, :1] + crowd[:, :, None] * common[:, :, places]
    joint = joint + common[:, :, servers + places]
    joint = 0.5 * (joint + joint.swapaxes(1, 2))
    own = np.maximum(np.einsum("dkk->dk", joint), 0.0)
    noise = np.maximum(records.noise_var, ROUNDING) + np.where(which, rest, 0.0) + LEAST_NOISE * own
    usual = own + noise
    noise = noise + usual * (np.maximum(np.square(innovation) / (LIMIT * usual), 1.0) - 1.0)
    return ExpectedRecords(share, common, joint, innovation, noise, usual)


def _products(slot: PreparedSlot, public: Floats, origins: Ints) -> tuple[Floats, Floats]:
    """Return what is expected of products of shares and crowd, and the variance that is left out, (d, k) each.

    public  (d, k) shares of the servers of the records
    """
    mean, cov, places = slot.known.mean, slot.known.spread.cov, 1 + origins
    share, crowd = slot.shares[:, origins], slot.crowd[:, None]
    both, crowd_var, error_var = cov[:, 0, places], cov[:, :1, 0], np.einsum("dkk->dk", cov[:, places[:, None], places])
    counted = public + mean[:, places]
    share_off, crowd_off = counted - share, mean[:, :1] - crowd
    product = counted * mean[:, :1] + both
    rest = crowd_var * (error_var + share_off * share_off) + both * both
    rest = np.maximum(rest + crowd_off * (crowd_off * error_var + 2.0 * share_off * both), 0.0)
    if slot.products is None:
        return product, rest
    widest, common = slot.products.widest, slot.products.common[:, origins]
    spread = slot.crowd_var[:, None] * slot.products.share_var[:, origins]
    other = share * mean[:, :1] + crowd * counted - share * crowd + common
    other_rest = spread + np.minimum(np.square(common), spread)
    return widest * product + (1.0 - widest) * other, widest * rest + (1.0 - widest) * other_rest


def _update(known: ShareFilter, expected: ExpectedRecords) -> tuple[Floats, Floats, Floats]:
    """Return the mean after the records of a slot, the gain, and what the noise of the records adds to the crowd."""
    joint = expected.cov.copy()
    np.einsum("dkk->dk", joint)[...] += expected.noise
    root = square_root(joint)
    gains = np.linalg.solve(root, np.concatenate([expected.common, expected.innovation[:, :, None]], axis=2))
    gain, normalised = gains[:, :, :-1], gains[:, :, -1]
    weights = np.linalg.solve(root.swapaxes(1, 2), gain[:, :, :1])[:, :, 0]
    noise = (np.square(weights) * expected.noise).sum(axis=1)
    return known.mean + np.einsum("dkn,dk->dn", gain, normalised), gain, noise


def _settle(known: ShareFilter, public: Floats, width: float, records: SlotRecords, step: CrowdStep) -> ShareFilter:
    """Turn errors of shares from people into parts of the crowd, where so much is known of it.

    What this leaves out is (error of the crowd)^2/crowd in all records together, and has to be less than the noise of
    a record at each server. Where single records say little, products of what they say are wrong, and the region
    stays as it is. So does one of which servers with less than half of the public shares have been heard. In the round
    of records until now, the crowd has moved, and b with it: twice as far as the model says, if it moves in one
    direction.
    """
    silent = known.silent
    if silent.any() and (known.heard == 1).any():  # others may be heard for the first time in this round
        return known
    servers, row = public.shape[1], heard_crowd(public, silent, known.mean.shape[1])
    crowd = np.maximum(np.einsum("dn,dn->d", row, known.mean), 1.0)
    noise_var = records.noise_var.mean()
    rounds = servers / len(records.origins)
    part_var = np.clip(_moves(step, rounds) / np.square(crowd), _SETTLED_PART**2, _MOST_UNSETTLED**2)
    least = np.minimum(part_var * np.square(crowd), servers * np.sqrt(noise_var) * crowd)
    now = ~known.settled & _is_precise(records, crowd, servers) & (heard_part(public, silent) > _LEAST_HEARD)
    now &= step.added < np.square(crowd)  # nobody is there, or next to nobody, and what was learned is of no use
    if not now.any():
        return known
    now[now] = _variances(known, row, now) < least[now]
    if not now.any():
        return known
    mean, cov = known.mean.copy(), known.cov.copy()
    part, people = slice(1, servers + 1), crowd[now][:, None]
    turned_mean, turned = to_parts(mean[now], cov[now], public[now], silent)
    round_var = 4.0 * rounds * step.added[now][:, None]
    scale = known.scale / crowd
    most = np.square(np.minimum(WIDEST * width * scale[now], _MOST_UNSETTLED))[:, None]
    wrong = np.minimum(round_var / np.square(people), most)
    share = np.where(silent, 0.0, np.maximum(public[now] + turned_mean[:, part], 0.0))
    turned[:, part, part] += sums_to_zero(wrong * np.square(share))
    mean[now], cov[now] = turned_mean, turned
    scale = np.where(now, scale, known.scale)
    return ShareFilter(mean, ShareCovariance(cov), scale, True, known.heard, known.settled | now)


def _moves(step: CrowdStep, slots: float) -> Floats:
    """Return by how much the process model moves a crowd in some slots, (d,): the variance of what they add."""
    left = np.minimum(np.square(step.persistence), 1.0 - 1e-9)
    return np.asarray(step.model_var * (1.0 - left**slots) / (1.0 - left))


def _variances(known: ShareFilter, row: Floats, which: Bools) -> Floats:
    """Return the variances of a linear function (d, n) of the state, in some of the regions."""
    row = row[which]
    var: Floats = (row * np.einsum("dnk,dk->dn", known.spread.cov[which], row)).sum(axis=1)
    return var if known.gain is None else var - np.square(np.einsum("dkn,dn->dk", known.gain[which], row)).sum(axis=1)
