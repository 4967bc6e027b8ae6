"""What samples show of a crowd that moves further than a filter believes, and what that adds to its variance.

Between samples a filter adds q per slot, as if every change were independent of the one before. Jobs and influenza move
in one direction for months: over k slots such changes add up to k^2 q rather than k q. The filter's estimates stay what
they are; but every sample shows how far the crowd has really moved, and the variance can follow beside the filter:

    released variance = M + max(c walk + x trend, jump) + pulled^2         pulled: beyond what averages noise away

`walk` is what independent changes of variance q have left in the estimate's error, and `trend` is what they would have
left if each had the correlation rho with the one before. With phi = M/P, the part of the prior in the posterior,

    from slot to slot     walk <- a^2 walk + q     trend <- a^2 trend + 2 a rho cross + q     cross <- a rho cross + q
    by what is fused      walk <- phi^2 walk       trend <- phi^2 trend                       cross <- phi cross

c and x are learned from the innovations e of the server's own samples, whose variance is V by all that is expected, and
which are uncorrelated with one another if the filter is right:

    E[e^2] = V + c walk + x trend              a variance Q that is too small shows in their size
    E[e e'] = B + x common                     a trend shows in successive innovations of one sign

where e' is the innovation of the sample before, B is what users who stay contribute to the product, and `common` is
what both would have in common at x = 1. Each region has numbers of its own, drawn towards those of all regions of the
server, and these towards 0: by least squares, with weights that fade, and with products of bounded size, because noise
has long tails. So both stay near 0 on a random walk with the right Q, and a trend raises x within a few samples.

Where Q is next to nothing, no factor of it says how far a region has moved that was empty and has filled. `jump` does
not depend on Q: see `filters.offset`. `pulled` is what the consensus has added to the estimate: the filter's variance
does not know of it, and where servers have sampled long ago, their priors pull precise estimates away. A server knows
what it has added, and by what it fuses it loses phi of it, as of any other error. Where samples are weak, the consensus
moves estimates by as much as their noise, which it averages away (`filters.mixed`): that is no error.

rho = 0.9 lets changes add up over about ten slots: a compromise, since trends last longer and fluctuations do not.
Everything is a function of released values, and no schedule depends on it. Arrays are (N, d).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from dpcrowd.arrays import Bools, Floats
from dpcrowd.filters.learned_factor import LearnedFactor
from dpcrowd.filters.offset import Fused, Offset

__all__ = [
    "Drift",
    "Innovations",
    "believed",
    "carry_drift",
    "drift_var",
    "keep_drift",
    "learn_drift",
    "learn_offset",
    "start_drift",
]

_CORRELATION = 0.9
"""rho: how much of a change is expected in the next slot again."""
_PRIOR_SAMPLES = 4.0
"""How many samples that show no drift are believed in at the start, and how many of the other regions' count."""
_LIMIT = 3.0
"""Innovations are bounded to this many standard deviations."""
_RECENT, _LASTING = 0.6, 0.95
"""By how much the weight of earlier slots fades, where offsets are concerned: over 2 or 3, and over about 20."""


class Innovations(NamedTuple):
    """Innovations of the samples of a slot.

    where      which regions were sampled and have a prior
    value      e
    variance   V
    deviation  the part of V by which the server's users deviate from its share, and that persists; 0: none
    inherited  the covariance of that deviation with the error of the prior
    extra      what such deviations have added to the variance of that error
    """

    where: Bools
    value: Floats
    variance: Floats
    deviation: Floats
    inherited: Floats
    extra: Floats


@dataclass
class Pulled:
    """What the consensus has added to the estimates, as far as it is still in them."""

    mean: Floats


@dataclass
class Drift:
    """What N servers have learned of the drift.

    last_var            variance of the posterior of the last slot
    walk, trend, cross  what changes have left in the error, as above
    common, change      covariance of the error, and of the next change, with the error at the server's last sample
    last, last_sd       the innovation of that sample by its standard deviation, and that; 0: there was none
    staying, settled    what users who stay have in common with it: their deviation now, and what the estimate has of it
    size, slope         c and x
    recent, lasting     by how much the estimates are off, as a few slots show it, and as many do
    pulled              what the consensus has added to the estimates
    """

    last_var: Floats
    walk: Floats
    trend: Floats
    cross: Floats
    common: Floats
    change: Floats
    last: Floats
    last_sd: Floats
    staying: Floats
    settled: Floats
    size: LearnedFactor
    slope: LearnedFactor
    recent: Offset = field(metadata={"later": True})
    lasting: Offset = field(metadata={"later": True})
    pulled: Pulled = field(metadata={"later": True})


def start_drift(variance: Floats) -> Drift:
    """Return the memory before the first slot; `variance`: of what is known then."""
    nothing = np.zeros_like(variance)
    size, slope = LearnedFactor(nothing, nothing), LearnedFactor(nothing, nothing)
    names = ("walk", "trend", "cross", "common", "change", "last", "last_sd", "staying", "settled")
    return Drift(
        last_var=variance,
        size=size,
        slope=slope,
        recent=Offset.start(nothing),
        lasting=Offset.start(nothing),
        pulled=Pulled(nothing),
        **dict.fromkeys(names, nothing),
    )


def drift_var(drift: Drift, averaged: Floats | None = None, possible: Floats | float = np.inf) -> Floats:
    """Return what has to be added to the variances of the estimates.

    averaged  the variance of the noise that a consensus averages away; None: there is none
    possible  how far off an estimate may be before that is certain (`offset`)
    """
    jump = np.maximum(drift.recent.jump(possible), drift.lasting.jump(possible))
    pulled = np.square(drift.pulled.mean)
    if averaged is not None:
        pulled = np.maximum(pulled - averaged, 0.0)
    return np.maximum(_moved_var(drift), jump) + pulled


def believed(factor: LearnedFactor) -> Floats:
    """Return what is believed of c or x."""
    return factor.believed(_PRIOR_SAMPLES, 0.0)


def _moved_var(drift: Drift) -> Floats:
    """Return c walk + x trend."""
    return believed(drift.size) * drift.walk + believed(drift.slope) * drift.trend


def carry_drift(drift: Drift, added: Floats, transition: Floats, turnover: float, ratio: Floats | float = 1.0) -> Drift:
    """Return the memory at the prior of a slot.

    added  what the model adds to the variance
    ratio  of the scales of this slot and the one before, which `transition` contains (`course`)
    """
    a, change = transition, ratio * _CORRELATION * drift.change
    carried = ratio * _CORRELATION * a * drift.cross
    return replace(
        drift,
        walk=np.square(a) * drift.walk + added,
        trend=np.maximum(np.square(a) * drift.trend + 2.0 * carried + added, 0.0),
        cross=carried + added,
        common=a * drift.common + change,
        change=change,
        staying=(1.0 - turnover) * drift.staying,
        settled=a * drift.settled,
        recent=drift.recent.carry(a, ratio),
        lasting=drift.lasting.carry(a, ratio),
        pulled=Pulled(a * drift.pulled.mean),
    )


def learn_drift(drift: Drift, seen: Innovations) -> Drift:
    """Return the memory with what the samples of a slot show, between `carry_drift` and `keep_drift`."""
    size, slope = believed(drift.size), believed(drift.slope)
    size_scale, slope_scale = np.maximum(size, 1.0), np.maximum(slope, 1.0)
    # Shares of the variance are taken at a factor of at least 1, so that no single sample has an unbounded weight.
    without = seen.variance + slope * drift.trend
    size_var = np.where(seen.where, without + size_scale * drift.walk, 1.0)
    square = np.minimum(np.square(seen.value) / size_var, _LIMIT**2) - without / size_var
    expected = seen.variance + size_scale * drift.walk + slope_scale * drift.trend
    sd = np.sqrt(np.where(seen.where, expected, 1.0))
    value = np.clip(np.where(seen.where, seen.value / sd, 0.0), -_LIMIT, _LIMIT)
    before = seen.where & (drift.last_sd > 0.0)
    both = sd * np.where(before, drift.last_sd, 1.0)
    product = value * drift.last - (drift.staying + drift.settled) / both
    return replace(
        drift,
        size=drift.size.learn(size_scale * square, size_scale * drift.walk / size_var, seen.where),
        slope=drift.slope.learn(slope_scale * product, slope_scale * drift.common / both, before),
        common=np.where(seen.where, drift.trend, drift.common),
        change=np.where(seen.where, drift.cross, drift.change),
        last=np.where(seen.where, value, drift.last),
        last_sd=np.where(seen.where, sd, drift.last_sd),
        staying=np.where(seen.where, seen.deviation - seen.inherited, drift.staying),
    )


def learn_offset(drift: Drift, fused: Fused) -> Drift:
    """Return the memory with what all that was fused in a slot shows, between `carry_drift` and `keep_drift`."""
    moved = _moved_var(drift)
    return replace(
        drift,
        recent=drift.recent.learn(fused, moved, _RECENT),
        lasting=drift.lasting.learn(fused, moved, _LASTING),
    )


def keep_drift(
    drift: Drift, posterior_var: Floats, kept: Floats, seen: Innovations | None = None, pull: Floats | None = None
) -> Drift:
    """Return the memory at the posterior of a slot; `kept`: the part of the prior in it; `pull`: of the consensus."""
    settled = kept * drift.settled
    if seen is not None:
        settled = np.where(seen.where, (1.0 - 2.0 * kept) * seen.inherited + kept * seen.extra, settled)
    return replace(
        drift,
        last_var=posterior_var,
        walk=np.square(kept) * drift.walk,
        trend=np.square(kept) * drift.trend,
        cross=kept * drift.cross,
        common=kept * drift.common,
        settled=settled,
        recent=drift.recent.keep(kept),
        lasting=drift.lasting.keep(kept),
        pulled=Pulled(kept * drift.pulled.mean + (0.0 if pull is None else pull)),
    )
