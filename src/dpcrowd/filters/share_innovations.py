"""Innovations of records where shares are learned: what the joint filter had expected, by all widths of wrong shares.

The joint filter (`share_learning`) has the crowd, the errors of the shares and the deviations in one state, so it knows
what the error of a share has in common with the error of the crowd. But it starts with public shares that may be wrong
by a large part, at the width W, and what is released is the mean over narrower widths w as well (`share_widths`). With
the innovation n and the variance S of a record z at the width W, and its covariances k with the errors of shares y,
which are independent of one another in their directions, with means a and variances P:

    n_w = n + sum c k a/(1 + c P)          S_w = S - sum c k^2/(1 + c P)          c = 1/w^2 - 1/W^2
    n   = sum p_w n_w                      S   = sum p_w (S_w + (n_w - n)^2)      p_w: probability of w before the slot
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.share_state import ExpectedRecords, ShareFilter
from dpcrowd.filters.share_widths import directions_of, weigh_widths

__all__ = ["share_innovations"]


def share_innovations(
    known: ShareFilter, expected: ExpectedRecords, public: Floats, width: float
) -> tuple[Floats, Floats]:
    """Return the innovations of the records of a slot and their variances, (d, k) each.

    known     the filter before the records, and what it expects of them
    public    (m, d) shares
    """
    directions, widths = directions_of(known, public.T), weigh_widths(known, public.T, width)
    common = np.einsum("dij,dkj->dki", directions.to, expected.common[:, :, 1 : len(public) + 1])  # Cov(z, y)
    drawn = widths.added[:, :, None] / widths.diagonal
    weight = widths.weight[:, None, None]
    off = expected.innovation + np.einsum("dki,wdi->wdk", common, drawn * widths.mean)
    var = expected.usual - np.einsum("dki,wdi->wdk", np.square(common), drawn)
    innovation = (weight * off).sum(axis=0)
    variance = (weight * (var + np.square(off - innovation))).sum(axis=0)
    noise = expected.usual - np.maximum(np.einsum("dkk->dk", expected.cov), 0.0)
    return innovation, np.maximum(variance, noise)
