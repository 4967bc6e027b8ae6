"""Errors of shares as people, and as parts of a crowd that is known.

The joint filter (`share_learning`) begins with people: server i counts c_i = H_i r + b_i, which is linear. Shares are
constant, and people are not, so once a crowd is known well enough its state is turned into parts. Where some servers
have never been heard, that is not the crowd r itself: nobody knows how large their part U is. But what the others count
together is known, and so is how they divide it. So with U by public shares, U0, and the other servers' crowd
q = sum c_i/(1 - U0), which is r if U = U0,

    q = r f,  f = (1 - U)/(1 - U0)          the crowd of servers that are heard, in the place of r
    c_i = (H_i + g_i) q                     a server that is heard: sum g_i = 0 over these servers
    S_j = H_j + g_j                         the share of a server that is silent: f = 1 - sum g_j/(1 - U0)

By Dirichlet draws of shares, g_i and g_j are independent: products g_i q are as small as with all servers heard,
whatever U is, and U has its own place in the state. If all servers are heard, q = r and f = 1.

Both changes are linearised at what is known.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats

__all__ = ["LEAST_PART", "expected_part", "heard_crowd", "heard_part", "to_parts", "to_people"]

LEAST_PART = 0.1
"""The least f: what silent servers see is at most so much more than expected."""


def heard_part(public: Floats, silent: Bools) -> Floats:
    """Return 1 - U0 (d,): the public part of the servers that have been heard; public shares are (d, m)."""
    return np.asarray(1.0 - public[:, silent].sum(axis=1))


def expected_part(errors: Floats, public: Floats, silent: Bools) -> Floats:
    """Return f (d,), from errors of shares (d, m) as parts."""
    if not silent.any() or silent.all():  # nothing is known of anybody
        return np.ones(len(public))
    return np.asarray(np.maximum(1.0 - errors[:, silent].sum(axis=1) / heard_part(public, silent), LEAST_PART))


def heard_crowd(public: Floats, silent: Bools, size: int) -> Floats:
    """Return q as a linear function of a state in people, (d, n): r + sum b_i/(1 - U0)."""
    servers = public.shape[1]
    row = np.zeros((len(public), size))
    row[:, 0] = 1.0
    if silent.any():
        row[:, 1 : servers + 1] = ~silent / heard_part(public, silent)[:, None]
    return row


def to_parts(mean: Floats, cov: Floats, public: Floats, silent: Bools) -> tuple[Floats, Floats]:
    """Return means (d, n) and covariances (d, n, n) of the state in parts, from that in people."""
    servers, size = public.shape[1], mean.shape[1]
    part, quiet = slice(1, servers + 1), np.flatnonzero(silent) + 1
    row = heard_crowd(public, silent, size)
    crowd = np.maximum(mean[:, 0], 1.0)[:, None]
    heard = np.maximum(np.einsum("dn,dn->d", row, mean), 1.0)[:, None]
    moved = mean.copy()
    moved[:, 0] = heard[:, 0]
    share = (public * mean[:, :1] + mean[:, part]) / heard  # of what the servers that are heard count
    moved[:, part] = share - public
    slope = np.tile(np.eye(size), (len(mean), 1, 1))
    slope[:, 0] = row
    slope[:, part] = -share[:, :, None] * (row / heard)[:, None, :]
    slope[:, part, 0] += public / heard
    np.einsum("dii->di", slope)[:, part] += 1.0 / heard
    for place in quiet:
        moved[:, place] = mean[:, place] / crowd[:, 0]
        slope[:, place] = 0.0
        slope[:, place, 0], slope[:, place, place] = -moved[:, place] / crowd[:, 0], 1.0 / crowd[:, 0]
    return moved, _turned(slope, cov)


def to_people(mean: Floats, cov: Floats, public: Floats, silent: Bools) -> tuple[Floats, Floats]:
    """Return means and covariances of the state in people, from that in parts."""
    servers, size = public.shape[1], mean.shape[1]
    part, quiet = slice(1, servers + 1), np.flatnonzero(silent) + 1
    known = expected_part(mean[:, part], public, silent)
    heard, crowd = mean[:, 0], mean[:, 0] / known
    moved = mean.copy()
    moved[:, 0] = crowd
    moved[:, part] = (public + mean[:, part]) * heard[:, None] - public * crowd[:, None]
    slope = np.tile(np.eye(size), (len(mean), 1, 1))
    slope[:, 0, 0] = 1.0 / known
    slope[:, 0, quiet] = (crowd / (known * heard_part(public, silent)))[:, None]
    slope[:, part] = -public[:, :, None] * slope[:, :1]
    slope[:, part, 0] += public + mean[:, part]
    np.einsum("dii->di", slope)[:, part] += heard[:, None]
    for place in quiet:
        moved[:, place] = mean[:, place] * crowd
        slope[:, place] = mean[:, place, None] * slope[:, 0]
        slope[:, place, place] += crowd
    return moved, _turned(slope, cov)


def _turned(slope: Floats, cov: Floats) -> Floats:
    turned = slope @ cov @ slope.swapaxes(1, 2)
    return np.asarray(0.5 * (turned + turned.swapaxes(1, 2)))
