"""What each server sees of the population: counts x_i(t) from the truth r(t) and the shares H_i (Eq. sensing).

    paper     x = max(0, round(H r + v)), v ~ N(0, H^2 Q), independent for each server, slot and region
    binomial  x ~ Binomial(r, H), independent for each server: a share H of a crowd of r people
    binomial with shares that sum to 1: a multinomial split, so that the servers' counts sum to the truth exactly

With `paper` the formula is applied to each server whatever the shares are: counts of a partition then sum to the truth
on average only.

With a turnover below 1 the users of `binomial` are people who stay for a while (`people`), if they are pinned and the
shares are constant. Roaming users, and users whose servers' shares change in every slot, choose anew in every slot,
and so does everybody with a turnover of 1. Raw check-ins (`checkins`) have people of their own.

With a turnover of 1 numbers are drawn slot by slot: observing slots 0..9 and then 10..19 with one generator gives the
same as observing all 20 at once (not so for the multinomial split, which goes server by server).
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats, PerRegion, ServerCounts, Shares, Truth
from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.sim.data.people import checked_turnover, draw_overlapping, draw_partition
from dpcrowd.sim.data.shares import is_partition, partitioned_regions

__all__ = ["KINDS", "USERS", "checked_users", "observe"]

KINDS = ("paper", "binomial")
USERS = ("pinned", "roaming")


def observe(
    kind: str,
    truth: Truth,
    shares: Shares,
    process_var: PerRegion,
    rng: np.random.Generator,
    users: str = "pinned",
    turnover: float = 1.0,
    by_region: Floats | None = None,
) -> ServerCounts:
    """Draw counts (T, m, d) from truth (T, d), shares (m,), (T, m) or (1, m, d) and process_var (d,).

    turnover   the part of the pinned users who are replaced per slot, in (0, 1]
    by_region  (m, d) shares of a partition that differ by region, by which people choose a server instead (`binomial`
               only)
    """
    if kind not in KINDS:
        raise unknown_name("observation", kind, KINDS)
    checked_users(users)
    turnover = checked_turnover(turnover)
    slots, d = truth.shape
    if shares.ndim == 3 and shares.shape[::2] == (1, d):
        if kind == "binomial" and by_region is None:
            divided = partitioned_regions(shares)
            if divided.any() and not divided.all():
                return _some_divided(truth, shares, divided, process_var, rng, users, turnover)
            by_region = shares[0] if divided.all() else None
    elif shares.ndim not in (1, 2) or (shares.ndim == 2 and shares.shape[0] != slots):
        raise BadInput(f"shares have shape {shares.shape}; allowed: (servers,) or (slots, servers) = ({slots}, ...).")
    if process_var.shape != (d,):
        raise BadInput(f"process variance has shape {process_var.shape}; allowed for {d} regions: ({d},).")
    if kind == "paper":
        return _paper(truth, shares, process_var, rng)
    if by_region is not None:
        return draw_partition(truth, by_region, turnover if users == "pinned" else 1.0, rng)
    if turnover < 1.0 and users == "pinned" and shares.ndim != 2:
        draw = draw_partition if is_partition(shares) else draw_overlapping
        return draw(truth, shares if shares.ndim == 1 else shares[0], turnover, rng)
    if shares.ndim == 3:
        return rng.binomial(truth[:, None, :], np.broadcast_to(shares, (slots, *shares.shape[1:])))
    if is_partition(shares):
        return _multinomial(truth, shares, rng)
    return rng.binomial(truth[:, None, :], np.broadcast_to(shares, (slots, shares.shape[-1]))[:, :, None])


def _some_divided(
    truth: Truth,
    shares: Shares,
    divided: Bools,
    process_var: PerRegion,
    rng: np.random.Generator,
    users: str,
    turnover: float,
) -> ServerCounts:
    """Draw counts of people of whom those of some regions, `divided` (d,), are at one server each."""
    counts = np.empty((len(truth), shares.shape[1], truth.shape[1]), dtype=np.int64)
    for regions in (divided, ~divided):
        own = shares[:, :, regions]
        counts[:, :, regions] = observe("binomial", truth[:, regions], own, process_var[regions], rng, users, turnover)
    return counts


def checked_users(users: str) -> None:
    """Refuse users that are neither pinned nor roaming."""
    if users not in USERS:
        raise unknown_name("kind of users", users, USERS)


def _paper(truth: Truth, shares: Shares, process_var: PerRegion, rng: np.random.Generator) -> ServerCounts:
    """Draw H r + N(0, H^2 Q) = H (r + sqrt(Q) n) with n ~ N(0, 1); in place, since this is the largest array."""
    slots, d = truth.shape
    by_region = shares if shares.ndim == 3 else shares[..., None]
    values = rng.standard_normal((slots, by_region.shape[-2], d))
    values *= np.sqrt(process_var)
    values += truth[:, None, :]
    values *= by_region
    np.rint(values, out=values)
    np.maximum(values, 0.0, out=values)
    return values.astype(np.int64)


def _multinomial(truth: Truth, shares: Shares, rng: np.random.Generator) -> ServerCounts:
    """Draw, server by server, a binomial part of the remaining people; the last server gets the rest."""
    slots, d = truth.shape
    m = shares.shape[-1]
    counts = np.empty((slots, m, d), dtype=np.int64)
    remaining = truth.copy()
    remaining_share = np.cumsum(shares[..., ::-1], axis=-1)[..., ::-1]  # of this server and all after it
    for i in range(m - 1):
        part = rng.binomial(remaining, np.minimum(shares[..., i] / remaining_share[..., i], 1.0)[..., None])
        counts[:, i, :] = part
        remaining -= part
    counts[:, m - 1, :] = remaining
    return counts
