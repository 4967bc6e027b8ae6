"""What users who stay add to the variance of a filter that takes every sample's deviation for a new one.

A server's count deviates from H r, and while its users stay, so does the deviation (`filters.persistence`). The filters
of DPCrowd, FAST and RescueDP add up information from messages that do not say whose deviation they contain, so they
cannot take it into account when they weigh a sample. Their estimates stay what they are; but the variance of their
error can be followed beside them. Per server and region, with what was heard in a slot as one measurement whose
deviation is the part f of its variance,

    phi = M/P              the part of the prior in the posterior      (M, P: variances of posterior and prior)
    cross <- phi a s cross + f M                              s = 1 - turnover
    extra <- (phi a)^2 extra + 2 phi (1 - phi) a s cross      with `cross` of the slot before

`cross` is the covariance of the estimate's error with the deviation of the measurements, and `extra` is what has to be
added to M. For a server that works alone this is the exact variance of its error, as long as its filter has one belief.
Where it hears others, it is an upper bound: it holds if the same servers are heard in every slot, and is too large if
they change, or if users are partitioned and all servers are heard, whose deviations cancel.

Filters that learn count the evidence of a sample only as far as it is new (`fresh_evidence`): with Y the information
that is fused, the part f/(1 + P Y) of the innovation is deviation (`deviating_part`), of which s^k stays for k slots,
the time between the last two samples of the server itself (`StayingUsers.left`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dpcrowd.arrays import Bools, Floats

__all__ = ["StayingUsers", "count_slots", "deviating_part", "follow_staying", "kept_part", "start_staying"]


_NOTHING_FUSED = 1.0 - 1e-9
"""Above this part of the prior, nothing was fused: 1/(1/P) differs from P by rounding."""
_NOW = 1.0
"""`since` in the slot of a sample: saved states of earlier versions have zeros, which say that there was none."""


@dataclass
class StayingUsers:
    """What persistent deviations have done to the errors of N servers; all arrays are (N, d).

    extra, cross  variance and covariance, as above
    since         slots since the last sample of the server itself; 0: there was none
    between       slots between its last two samples; 0: there were no two
    """

    extra: Floats
    cross: Floats
    since: Floats = field(metadata={"later": True})
    between: Floats = field(metadata={"later": True})

    def left(self, turnover: float) -> Floats:
        """Return which part of the users is left of those at the sample before, (N, d); 0: there was none."""
        return np.where(self.between > 0.0, (1.0 - turnover) ** self.between, 0.0)


def start_staying(servers: int, regions: int) -> StayingUsers:
    """Return the memory before the first slot."""
    return StayingUsers(*(np.zeros((servers, regions)) for _ in range(4)))


def count_slots(memory: StayingUsers, due: Bools, slots: int = 1) -> StayingUsers:
    """Return the memory at a slot, `slots` after the one before; `due`: which regions are sampled, (N, d)."""
    since = np.where(memory.since > 0.0, memory.since + slots, 0.0)
    return replace(
        memory,
        since=np.where(due, _NOW, since),
        between=np.where(due & (since > 0.0), since - _NOW, memory.between),
    )


def deviating_part(part: Floats, prior_var: Floats, info_mat: Floats) -> Floats:
    """Return which part of the innovation of what is fused is deviation, (N, d); `part`: as in `follow_staying`."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(np.isfinite(prior_var), part / (1.0 + prior_var * info_mat), 0.0))


def follow_staying(
    before: StayingUsers, prior_var: Floats, posterior_var: Floats, part: Floats, transition: Floats, turnover: float
) -> StayingUsers:
    """Return the memory after a slot.

    prior_var, posterior_var  (N, d) as the filter has them, without `extra`
    part                      the part of the variance of what was measured that is deviation, broadcastable to (N, d)
    transition                a: () or (d,)

    A filter that samples every slot with equal weights believes in a variance that falls forever; the error does not.

    >>> memory = start_staying(1, 1)
    >>> variance, one = np.array([[np.inf]]), np.ones((1, 1))
    >>> for _ in range(400):
    ...     after = 1.0 / (1.0 / variance + one)
    ...     memory, variance = follow_staying(memory, variance, after, one, np.ones(()), 0.05), after
    >>> float((variance + memory.extra)[0, 0] / variance[0, 0])  # (1 + s)/(1 - s) = 39 in the long run
    37.1...
    """
    kept = kept_part(prior_var, posterior_var)
    heard = kept < 1.0
    cross = (1.0 - turnover) * transition * before.cross
    extra = np.square(kept * transition) * before.extra + 2.0 * kept * (1.0 - kept) * cross
    after = kept * cross + np.where(heard, part * np.where(heard, posterior_var, 0.0), 0.0)
    return replace(before, extra=extra, cross=after)


def kept_part(prior_var: Floats, posterior_var: Floats) -> Floats:
    """Return phi = M/P, the part of the prior in the posterior: 0 where nothing was known before, from 0 to 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.where(
            np.isfinite(prior_var), posterior_var / prior_var, np.where(np.isfinite(posterior_var), 0.0, 1.0)
        )
    return np.where(kept > _NOTHING_FUSED, 1.0, np.maximum(kept, 0.0))
