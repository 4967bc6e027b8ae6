"""Sums of groups of regions in the diagonal form: as measurements of their members, and what dividing them costs.

One draw of noise on the sum of a group says little about who in the group has how many people. With an expected course
(a process model) every member is measured by the sum less what is expected of the others, with their variance:

    z_k = S - H sum_{j != k} prior_j          R_k = R_S + H^2 sum_{j != k} P_j

so that mean and variance of each member are those after the exact update by one measurement of the sum; what members
have in common afterwards is left out, as everywhere in the diagonal form.

Without a course, RescueDP divides the sum evenly, and nothing says how unequal the members are. A count that cannot be
negative and whose mean is known to be mu has the variance mu^2 if nothing else is known of it (the exponential
distribution has the most entropy). The error is the same in every slot in which the same regions form a group, so its
standard deviation adds up like a bias:

    split <- phi a split + (1 - phi) sqrt(1 - 1/n) posterior       phi = M/P, n members; alone (n = 1) it fades away

The released variance contains its square. The estimates do not change. What is heard of other servers is taken to be
grouped like the server's own last sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.groups import over_members
from dpcrowd.filters.staying import kept_part

__all__ = ["DividedSums", "follow_split", "group_sizes", "measured_by_sums"]


@dataclass
class DividedSums:
    """What dividing the sums of groups has done to the errors of N servers, (N, d).

    deviation  the standard deviation that it has added
    sizes      how many regions were read together with each in the server's last sample
    """

    deviation: Floats
    sizes: Ints

    @classmethod
    def none(cls, servers: int, regions: int) -> DividedSums:
        """Return the memory before the first slot."""
        return cls(np.zeros((servers, regions)), np.ones((servers, regions), dtype=np.int64))


def group_sizes(pivot: Ints, due: Bools) -> Ints:
    """Return how many regions were read together with each region, (N, d); 1 where a region was not read."""
    together = np.where(due, pivot, np.arange(pivot.shape[1]))
    return over_members(np.ones(pivot.shape), together).astype(np.int64)


def measured_by_sums(
    noisy: Floats, variance: Floats, prior: Floats, prior_var: Floats, share: Floats, pivot: Ints
) -> tuple[Floats, Floats]:
    """Return z and R of each region, (N, d), from the sum of its group and what is expected of the other members.

    noisy, variance   (N, d) the noisy sum of a region's group, and its variance, at every member
    """
    others = over_members(prior, pivot) - prior
    others_var = over_members(prior_var, pivot) - prior_var
    return noisy - share * others, variance + share * share * np.maximum(others_var, 0.0)


def follow_split(
    before: DividedSums, prior_var: Floats, posterior: tuple[Floats, Floats], sizes: Ints, transition: Floats
) -> DividedSums:
    """Return the memory after a slot.

    posterior  mean and variance
    sizes      (N, d) how many regions were read together with each, in this slot or when the server sampled last
    """
    mean, var = posterior
    kept = kept_part(prior_var, var)
    unknown = np.sqrt(1.0 - 1.0 / sizes) * np.maximum(mean, 1.0)
    return DividedSums(kept * np.abs(transition) * before.deviation + (1.0 - kept) * unknown, sizes)
