"""What the consensus averages away: the variance of estimates that servers mix with those of their neighbours.

The filter's variance M is that of a server that listens to samples, as if the consensus term did nothing. But it adds
the priors of neighbours, and what these know of samples that the server itself has never heard. Where samples are weak,
estimates average over the whole network in the end, and M is several times too large.

An error consists of what all servers share, since all miss the same changes of the crowd (`filters.shared_errors`), and
of the noise of samples. The consensus leaves the shared part alone. Of the noise, it leaves the network's average alone
and lets the rest die out (`network.mixing`). With k = M/P, the part of the prior in the posterior, and all servers
taken to be like this one,

    average  <- (k a)^2 average + focus M (1 - k)
    rest     <- ((k - C n rate) a)^2 rest + left M (1 - k)           left = (1 - focus/size)/(1 - 1/size)

    variance = min(M, shared + average/size + (1 - 1/size) rest)

M (1 - k) is what the noise of this slot's samples adds, C the gain of the consensus and n the number of neighbours
whose priors it has fused. Without a consensus (n = 0) this is M itself. Arrays are (N, d).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.shared_errors import follow_shared, start_shared
from dpcrowd.filters.staying import kept_part

__all__ = ["LinkEffect", "Mixed", "follow_mixed", "start_mixed"]


class LinkEffect(NamedTuple):
    """What the links of a network do to errors, broadcastable to (N, d); see `network.mixing`."""

    size: Floats
    rate: Floats
    focus: Floats


@dataclass
class Mixed:
    """The parts of the errors of N servers, and the variance that they make together."""

    shared: Floats
    average: Floats
    rest: Floats
    var: Floats

    def averaged(self, posterior_var: Floats) -> Floats:
        """Return the variance of the noise that the consensus averages: what a server would have had of it alone."""
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(posterior_var), np.maximum(posterior_var - self.shared, 0.0), 0.0)


def start_mixed(posterior_var: Floats) -> Mixed:
    """Return the memory before the first slot: what is known by then, everybody knows."""
    nothing = np.zeros_like(posterior_var)
    return Mixed(start_shared(posterior_var), nothing, nothing, posterior_var)


def follow_mixed(
    mixed: Mixed,
    last_var: Floats,
    prior_var: Floats,
    posterior_var: Floats,
    carried: Floats,
    pull: Floats,
    links: LinkEffect,
) -> Mixed:
    """Return the memory after a slot.

    last_var  the posterior variance of the slot before
    carried   a
    pull      C n, the gain of the consensus times the number of neighbours whose priors were fused

    >>> one, two = np.ones((1, 1)), LinkEffect(np.array([[2.0]]), np.array([[1.0]]), np.array([[2.0]]))
    >>> mixed = follow_mixed(start_mixed(np.inf * one), np.inf * one, np.inf * one, 4.0 * one, one, 0.0 * one, two)
    >>> float(mixed.var[0, 0])  # two servers hear the same samples, and nothing is mixed
    4.0
    """
    # A state that was saved before there was this memory: all that it knows may be shared.
    former = np.where(np.isinf(mixed.var) & np.isfinite(last_var), last_var, mixed.shared)
    known = np.isfinite(posterior_var)
    kept = kept_part(prior_var, posterior_var)
    noise = np.where(known, np.where(known, posterior_var, 0.0) * (1.0 - kept), 0.0)
    others = 1.0 - 1.0 / links.size
    left = np.maximum(1.0 - links.focus / links.size, 0.0) / np.where(others > 0.0, others, 1.0)
    average = np.square(kept * carried) * mixed.average + links.focus * noise
    rest = np.square(np.maximum(kept - pull * links.rate, 0.0) * carried) * mixed.rest + left * noise
    shared = follow_shared(former, last_var, prior_var, posterior_var, carried)
    var = np.minimum(shared + average / links.size + others * rest, posterior_var)
    return Mixed(shared, average, rest, np.where(known, var, posterior_var))
