"""Pinned users as people: most of those who are in a region now were there, at the same server, in the slot before.

    departures   where a region's count falls, those who leave are chosen uniformly among all who are there
    turnover     of the others, each is replaced by somebody new with the probability `turnover`
    arrivals     everybody who is new, also where a region's count grows, chooses a server by the shares H

In every slot the counts are Binomial(r, H), or Multinomial(r, H) where the shares sum to 1, as if everybody had chosen
in this slot. But a server's deviation from H r persists: while r is constant, its autocorrelation is 1 - turnover per
slot. Who leaves is drawn by numbers (hypergeometric), never person by person, so the cost does not depend on r.

With shares that do not sum to 1 servers are independent of each other: each has its own turnover among its users and
among the people who are not its users.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats, Ints, ServerCounts, Shares, Truth
from dpcrowd.errors import BadInput

__all__ = ["MOST_PEOPLE", "checked_turnover", "draw_overlapping", "draw_partition"]

MOST_PEOPLE = 10**9
"""Counts of regions up to which who leaves can be drawn (a limit of the hypergeometric sampler)."""


def checked_turnover(turnover: float) -> float:
    """Return a turnover in (0, 1], or refuse it."""
    if isinstance(turnover, bool) or not isinstance(turnover, int | float) or not 0.0 < turnover <= 1.0:
        raise BadInput(
            f"turnover={turnover!r}; allowed: above 0 and at most 1, the part of the users who are replaced per slot "
            "(1: everybody chooses a server anew in every slot)."
        )
    return float(turnover)


def draw_partition(truth: Truth, shares: Floats, turnover: float, rng: np.random.Generator) -> ServerCounts:
    """Draw counts (T, m, d) that sum to the truth (T, d), from shares (m,), or (m, d) by region, that sum to 1."""
    _check_size(truth)
    probabilities = (shares / shares.sum(axis=0)).T
    counts = np.empty((len(truth), len(shares), truth.shape[1]), dtype=np.int64)
    counts[0] = rng.multinomial(truth[0], probabilities).T
    for slot in range(1, len(truth)):
        before, now = truth[slot - 1], truth[slot]
        remaining = np.minimum(before, now)
        staying = rng.binomial(remaining, 1.0 - turnover)
        counts[slot] = _chosen(counts[slot - 1], staying, rng)
        counts[slot] += rng.multinomial(now - staying, probabilities).T
    return counts


def draw_overlapping(truth: Truth, shares: Shares, turnover: float, rng: np.random.Generator) -> ServerCounts:
    """Draw counts (T, m, d) of servers that are independent of each other, from the truth (T, d) and shares (m,).

    Shares may differ by region, (m, d).
    """
    _check_size(truth)
    share = shares if shares.ndim == 2 else shares[:, None]
    counts = np.empty((len(truth), len(shares), truth.shape[1]), dtype=np.int64)
    counts[0] = rng.binomial(truth[0], share)
    for slot in range(1, len(truth)):
        before, now = truth[slot - 1], truth[slot]
        remaining = np.minimum(before, now)
        users = rng.hypergeometric(counts[slot - 1], before - counts[slot - 1], remaining)
        staying = rng.binomial(users, 1.0 - turnover)
        others = rng.binomial(remaining - users, 1.0 - turnover)  # who stay, and are not users of this server
        counts[slot] = staying + rng.binomial(now - staying - others, share)
    return counts


def _chosen(counts: Ints, number: Ints, rng: np.random.Generator) -> Ints:
    """Return how many of each server's people (m, d) are among `number` (d,) people that are chosen uniformly.

    The servers are halved again and again: how many of the chosen belong to one half is hypergeometric. That takes
    log m steps on arrays, instead of one step per server.
    """
    size = 1 << (len(counts) - 1).bit_length()
    levels = [np.concatenate([counts, np.zeros((size - len(counts), counts.shape[1]), dtype=np.int64)])]
    while len(levels[-1]) > 1:
        levels.append(levels[-1][0::2] + levels[-1][1::2])
    chosen = number[None, :]
    for level in levels[-2::-1]:
        first = rng.hypergeometric(level[0::2], level[1::2], chosen)
        both = np.empty_like(level)
        both[0::2], both[1::2] = first, chosen - first
        chosen = both
    return np.asarray(chosen[: len(counts)])


def _check_size(truth: Truth) -> None:
    if truth.size and truth.max() >= MOST_PEOPLE:
        raise BadInput(
            f"a region has {truth.max():,} people; who stays in a slot can be drawn for fewer than {MOST_PEOPLE:,}. "
            "Give turnover=1, or count in larger units."
        )
