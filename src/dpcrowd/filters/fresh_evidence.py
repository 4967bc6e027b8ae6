"""How much the evidence of a sample counts where users stay, and the next sample of their server repeats a part of it.

Filters that learn (`learning`) weigh beliefs by how well they predict samples. By chance a server has a few users more
than its share, and as long as they stay, its samples say so again. Of the variance S of an innovation nu, let f be the
part that is such a deviation (`repeated`), and s the part of the users who stay from one sample of the server to its
next (`stays`). Then innovations that are j samples apart have the correlation c_j = f s^j. A sum of n terms with these
correlations varies as a sum of n/(1 + 2 sum_j c_j) independent ones does, so each says as much as a part of one:

    (1 - s)/(1 - s + 2 f s)              where beliefs are told apart by the mean of innovations
    (1 - s^2)/(1 - s^2 + 2 f^2 s^2)      where they are told apart by their squares: of normal numbers with the
                                         correlation c, the squares have the correlation c^2

Which one it is depends on the filter. One that considers deviations (`persistence`) does not follow them: while users
stay, the mean of its innovations stays off in one direction, and speaks for another level again and again. One that
takes every deviation for a new one follows it as it follows the crowd. Its innovations keep no mean, and evidence is in
how large they are. By their mean it would hardly learn any more: with users who stay for hundreds of samples its error
was more than twice as large where a crowd had become livelier than its model.

What stays is a deviation, and S its variance with all else: an innovation that is far off is no such deviation, but a
crowd that leaves its model. So where nu^2 is larger than t S, f is multiplied by how much less likely a normal
innovation is there, exp(-(nu^2/S - t)/2). Otherwise a crowd that jumps would prove one deviation. For filters that
follow deviations t is 2, beyond which one in six innovations is by chance. For those that consider them it is 6, beyond
which it is one in seventy: their evidence counts so little that a few innovations that count in full would decide.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats

__all__ = ["fresh_evidence", "squared_surprise"]

_TYPICAL, _TYPICAL_CONSIDERED = 2.0, 6.0
"""t, by what filters do with deviations."""
_MOST_LEFT = 1.0 - 1e-9
"""Of s: a turnover as small as rounding would leave 0/0."""


def fresh_evidence(repeated: Floats, stays: Floats | float, surprise: Floats, *, considered: bool) -> Floats:
    """Return how much the evidence of what is fused in a slot counts, (N, d), above 0 and at most 1.

    repeated    f, broadcastable to (N, d)
    stays       s, likewise, below 1; 0 where there is no sample before
    surprise    nu^2/S, (N, d), of `squared_surprise`
    considered  whether the filter considers deviations, instead of following them

    >>> half, usual = np.full((1, 1), 0.5), np.ones((1, 1))
    >>> [round(float(fresh_evidence(half, s, usual, considered=False)[0, 0]), 3) for s in (0.0, 0.95, 0.995)]
    [1.0, 0.178, 0.02]
    >>> [round(float(fresh_evidence(half, s, usual, considered=True)[0, 0]), 3) for s in (0.0, 0.95, 0.995)]
    [1.0, 0.05, 0.005]
    >>> round(float(fresh_evidence(half, 0.995, 30.0 * usual, considered=True)[0, 0]), 3)  # no deviation explains that
    0.999
    """
    typical = _TYPICAL_CONSIDERED if considered else _TYPICAL
    part, left = repeated * np.exp(-0.5 * np.maximum(surprise - typical, 0.0)), np.minimum(stays, _MOST_LEFT)
    if not considered:
        part, left = np.square(part), np.square(left)
    return np.asarray((1.0 - left) / (1.0 - left + 2.0 * left * part))


def squared_surprise(prior: tuple[Floats, Floats], sums: tuple[Floats, Floats]) -> Floats:
    """Return nu^2/S of what is fused, (N, d); 0 where nothing is, or nothing was known before.

    prior  mean and variance; sums: information vectors and matrices

    >>> level, known, samples = np.full((1, 1), 100.0), np.full((1, 1), 3.0), np.ones((1, 1))
    >>> squared_surprise((level, known), (104.0 * samples, samples)).tolist()
    [[4.0]]
    """
    (mean, var), (info_vec, info_mat) = prior, sums
    known = (info_mat > 0.0) & np.isfinite(var)
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = np.square(info_vec - info_mat * mean) / (info_mat * (1.0 + info_mat * var))
    return np.asarray(np.where(known, surprise, 0.0))
