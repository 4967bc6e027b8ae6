"""Records of servers whose users stay: a server's deviation from H r persists, and errors remember whose it was.

A server's count is c = H r + delta. While its users stay, so does delta: it is a slowly changing state

    delta(t) = s delta(t-1) + arrivals and departures          s = 1 - turnover
    Cov(delta) = r (diag(H) - H H^T)     users are partitioned (the shares sum to 1)
               = r diag(H (1 - H))       servers overlap, and are independent of each other

Who takes the deviations of two records of one server for independent believes in too narrow intervals. A filter with
every delta in its state would cost m^2 numbers per region. It is enough to remember what the estimate's error e has in
common with each deviation, x_i = Cov(e, delta_i): m numbers per region (a Schmidt-Kalman filter: deviations are
considered, not estimated). With P = Var(e), the records z = H r + delta + noise of a slot, and nu = z - H prior:

    predict   x <- a s x
    S = Cov(nu) = D + c H H^T - H x^T - x H^T        D = noise + H r,       c = P - r     partitioned
                                                     D = noise + H (1-H) r, c = P         overlapping
    gain      k = S^-1 (P H - x)                     the best for P, given x
    update    mean += k nu,   P -= k (P H - x),   x <- (1 - k H) x + Cov(delta) k

S is a diagonal matrix and one of rank 2, so k follows from five sums over the records, in order of the origins:

    A = sum H^2/D    B = sum H x/D    C = sum x^2/D    F = sum H nu/D    G = sum x nu/D       r' = r or 0, as in c
    Delta = A (c - C) + (1 - B)^2      phi = 1 - k H = (1 - B - A r')/Delta      beta = (c - C + r' (1 - B))/Delta
    k = (beta H - phi x)/D             P <- ((P - C) (1 - A r') - r' B^2)/Delta

For any gain the variance that this recursion has is the error's, if the model is right. With s = 0 and overlapping
servers it is the usual update. With s = 0 and partitioned ones nothing has to be remembered, either: x is 0, and the
records are one measurement with the information (`partitioned_information`)

    Y = A/(1 - A r)        y = sum H z/D / (1 - A r)

which is infinite if all servers are heard without noise: then their counts sum to r. Deviations of other servers are
not estimated, so a record of a server of which everything is known already counts as much as its noise and its prior
deviation allow, and not more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.observation import ROUNDING

__all__ = [
    "LEAST_PART",
    "PersistentGain",
    "PersistentRecords",
    "are_partitioned",
    "consistent",
    "deviation_spread",
    "fuse_persistent",
    "ordered_sum",
    "partitioned_information",
    "persistent_gain",
    "posterior_mean",
    "remainder",
    "repeated_part",
]

_SUM_TOLERANCE = 1e-6
"""Per server: shares in a file have six decimals."""

LEAST_PART = 1e-9
"""No posterior variance is below this part of the prior one: rounding must not make an estimate certain."""


@dataclass(frozen=True)
class PersistentRecords:
    """The records of one slot, for n receivers whose networks have m servers each.

    origins    (k,) the places of the servers that have made records
    noisy      (k, n, d) z; 0 where a receiver does not have the record
    noise_var  (k, n, d) the variance of its noise, with what a guard adds; infinite where there is no record
    shares     (m, n, 1) of all servers of the receiver's network, or (m, n, d) where they differ by region
    people     (n, d) r, for the variance of the deviations
    """

    origins: Ints
    noisy: Floats
    noise_var: Floats
    shares: Floats
    people: Floats
    partition: Bools
    """(n, 1) or (n, d) whether the users of the receiver's network are partitioned."""


@dataclass(frozen=True)
class PersistentGain:
    """What the records of a slot change, whatever their values are: variance, x, and the weights of the innovations.

    var       (n, d) the posterior variance
    cross     (m, n, d) x after the records
    phi       (n, d) the part 1 - k H of the prior that remains
    beta      (n, d) as in the module's equations
    by_share  (k, n, d) H/D of each record
    by_cross  (k, n, d) x/D of each record
    """

    var: Floats
    cross: Floats
    phi: Floats
    beta: Floats
    by_share: Floats
    by_cross: Floats

    @property
    def weights(self) -> Floats:
        """The gain k of each record's innovation, (k, n, d)."""
        return np.asarray(self.beta * self.by_share - self.phi * self.by_cross)


def persistent_gain(prior_var: Floats, cross: Floats, records: PersistentRecords) -> PersistentGain:
    """Return the part of `fuse_persistent` that does not depend on what was measured: `records.noisy` is not read."""
    people, share = records.people, records.shares
    spread = deviation_spread(share, people, records.partition)
    is_known = np.isfinite(prior_var)
    known_var = np.where(is_known, prior_var, 1.0)
    origins = records.origins
    informed = np.isfinite(records.noise_var).any(axis=0)
    cross = np.where(is_known, np.where(informed, consistent(cross, spread, known_var), cross), 0.0)
    own, common = share[origins], cross[origins]
    weight = 1.0 / (records.noise_var + spread[origins])
    weighted_share, weighted_common = weight * own, weight * common
    a = ordered_sum(weighted_share * own)
    b = ordered_sum(weighted_share * common)
    c = ordered_sum(weighted_common * common)
    crowd = np.where(records.partition, people, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        delta = a * (known_var - crowd - c) + np.square(1.0 - b)
        phi = np.where(is_known, (1.0 - b - a * crowd) / delta, 0.0)
        beta = np.where(is_known, (known_var - crowd - c + crowd * (1.0 - b)) / delta, 1.0 / a)
        var = ((known_var - c) * (1.0 - a * crowd) - crowd * b * b) / delta
        var = np.where(is_known, np.maximum(var, LEAST_PART * known_var), 1.0 / a - crowd)
    phi, beta = np.where(informed, phi, 1.0), np.where(informed, beta, 0.0)
    var = np.where(informed, np.maximum(var, 0.0), prior_var)
    after = phi * cross
    after -= share * np.where(records.partition, crowd * (1.0 - phi), 0.0)
    after[origins] += spread[origins] * (beta * weighted_share - phi * weighted_common)
    return PersistentGain(var, after, phi, beta, weighted_share, weighted_common)


def fuse_persistent(
    prior: Floats, prior_var: Floats, cross: Floats, records: PersistentRecords
) -> tuple[Floats, Floats, Floats]:
    """Return posterior mean and variance (n, d), and x (m, n, d), from the priors of the slot and its records."""
    gain = persistent_gain(prior_var, cross, records)
    return posterior_mean(prior, gain, records), gain.var, gain.cross


def posterior_mean(prior: Floats, gain: PersistentGain, records: PersistentRecords) -> Floats:
    """Return the posterior mean (n, d)."""
    innovation = records.noisy - records.shares[records.origins] * prior
    by_share, by_cross = ordered_sum(gain.by_share * innovation), ordered_sum(gain.by_cross * innovation)
    return np.asarray(prior + gain.beta * by_share - gain.phi * by_cross)


def repeated_part(prior_var: Floats, gain: PersistentGain, records: PersistentRecords, interval: float) -> Floats:
    """Return which part of the variance of what a slot's records change comes from deviations that stay, (n, d).

    Deviations are considered, and not estimated: while users stay, the next records of the same servers change the
    estimate by the same again. In a partition, what one server has too much the others have too little: as far as they
    are heard, too, that cancels. How large a part of the crowd is heard from one sample of a server to its next, in
    `interval` slots, is taken from this slot.
    """
    share, weights = records.shares[records.origins], gain.weights
    spread = deviation_spread(share, records.people, records.partition)
    repeated = ordered_sum(np.square(weights) * spread)
    heard = interval * ordered_sum(np.where(np.isfinite(records.noise_var), share, 0.0))
    repeated = repeated * np.where(records.partition, np.maximum(1.0 - heard, 0.0), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = repeated / (prior_var - gain.var)
    return np.asarray(np.clip(np.nan_to_num(part, nan=0.0, posinf=1.0), 0.0, 1.0))


def partitioned_information(records: PersistentRecords) -> tuple[Floats, Floats]:
    """Return y and Y (n, d) of records whose servers' deviations are fresh, and sum to 0 over all servers."""
    share = records.shares[records.origins]
    weighted = share / (records.noise_var + share * records.people)
    a, y = ordered_sum(weighted * share), ordered_sum(weighted * records.noisy)
    divisor = remainder(a, records.people)
    return y / divisor, a / divisor


def remainder(a: Floats, people: Floats) -> Floats:
    """Return 1 - A r, at least so much that rounding makes nothing certain."""
    return np.asarray(np.maximum(1.0 - a * people, LEAST_PART))


def are_partitioned(shares: Floats) -> Bools:
    """Return whether shares (..., m, 1) or (..., m, d) sum to 1, so that every user of a region is at one server.

    The only definition of a partition, for filters, plans, simulated crowds and configuration alike: a crowd that is
    drawn by another one would have deviations that its filters take to cancel. Returns (..., 1) or (..., d).
    """
    return np.asarray(np.abs(shares.sum(axis=-2) - 1.0) <= _SUM_TOLERANCE * shares.shape[-2])


def deviation_spread(shares: Floats, people: Floats, partition: Bools) -> Floats:
    """Return D without noise, (m, n, d): H r of servers among which users are partitioned, else H (1 - H) r."""
    return np.where(partition, shares * people, np.maximum(shares * (1.0 - shares) * people, ROUNDING))


def consistent(cross: Floats, spread: Floats, variance: Floats) -> Floats:
    """Return x, made smaller where no error of this variance could have so much in common with the deviations.

    That happens where the crowd, and with it the deviations, has become smaller. The sum of x^2/spread is at most P.
    """
    explained = ordered_sum(np.square(cross) / spread)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factor = np.where(explained > variance, np.sqrt(variance / explained), 1.0)
    return cross * factor


def ordered_sum(values: Floats) -> Floats:
    """Return the sum over the origins, the first axis, added one after the other, whatever the shape is."""
    if not len(values):
        return np.zeros(values.shape[1:])
    if values[0].size > 1:
        return np.asarray(values.sum(axis=0))
    return np.asarray(np.cumsum(values, axis=0)[-1])
