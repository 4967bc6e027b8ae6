"""What a value misses that is repeated until the next sample, learned from how far the samples are apart.

A scheme without a filter repeats its last value for w slots. How far the crowd has moved after k of them is unknown;
the model expects E(k): k Q of a random walk, or what its course says. Jobs and influenza move in one direction for
months, and before the second sample nobody has seen how far. So the interval begins with a robust expectation,

    S(k) = E(k) + T(k)/2         T: if every change had the correlation rho = 0.9 with the one before

and every new sample shows how far the crowd has really moved. With e, the difference of two successive samples, and V,
the variance of both,

    E[e^2] = V + g S(w)

gives the factor g by least squares, with weights that fade and with e of bounded size, because noise has long tails.
Each region has its own, drawn towards that of all regions of the server, and this towards 1, where it starts. The
variance that is released is

    variance of the sample + max(g S(k), min(h E(k), g S(w)))          h = max(1, g S(w)/E(w))

The second term is for a crowd that returns: after w slots it has hardly moved, but in between it has, as far as the
model says, up to what is seen after w slots. And it is for one that moves further than expected without any trend: then
the first slots have their part of it. A course says where the crowd goes in between; then E(k) is the least.

Everything is a function of released values. Arrays are (N, d).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.learned_factor import LearnedFactor

__all__ = ["Repeated", "learn_from_sample", "missed_var", "pass_slot", "start_repeated"]

_CORRELATION = 0.9
"""rho: how much of a change is expected in the next slot again."""
_TREND = 0.5
"""The weight of T at the start."""
_PRIOR_SAMPLES = 2.0
"""How many samples that agree with the start are believed in, and how many of the other regions' count."""
_LIMIT = 3.0
"""Differences are bounded to this many standard deviations."""


@dataclass
class Repeated:
    """What N servers have learned of how far the crowd moves while they repeat a value.

    fresh_var       variance of the value when it was sampled; NaN: there was no sample
    expected        E(k), at the age of the value
    trend, cross    T(k), and the covariance of the last change with all before, if they are correlated
    value, weight   g as the samples alone show it, which may be below 0, and how many samples that rests on
    most, excess    g S(w), what was seen after w slots, and h; infinite and 1: nothing was
    """

    fresh_var: Floats
    expected: Floats
    trend: Floats
    cross: Floats
    value: Floats
    weight: Floats
    most: Floats
    excess: Floats


def start_repeated(servers: int, regions: int) -> Repeated:
    """Return the memory before the first slot."""
    nothing = np.zeros((servers, regions))
    return Repeated(
        fresh_var=np.full_like(nothing, np.nan),
        most=np.full_like(nothing, np.inf),
        excess=np.ones_like(nothing),
        **dict.fromkeys(("expected", "trend", "cross", "value", "weight"), nothing),
    )


def pass_slot(memory: Repeated, expected: Floats) -> Repeated:
    """Return the memory one slot later; `expected`: what the model expects a value of this age to miss."""
    expected = np.broadcast_to(np.maximum(expected, 0.0), memory.expected.shape)
    added = np.maximum(expected - memory.expected, 0.0)
    carried = _CORRELATION * memory.cross
    return replace(memory, expected=expected, trend=memory.trend + 2.0 * carried + added, cross=carried + added)


def learn_from_sample(memory: Repeated, difference: Floats, variance: Floats) -> Repeated:
    """Return the memory after a new sample, which begins a new value.

    difference  of the new sample and the value that was repeated; NaN: there was none
    variance    of the new sample
    """
    known = np.isfinite(difference) & np.isfinite(memory.fresh_var)
    start = np.where(known, _at_start(memory), 0.0)
    noise = np.where(known, memory.fresh_var + variance, 1.0)
    # Shares of the variance are taken at a factor of at least 1, so that no single sample has an unbounded weight.
    total = noise + np.maximum(_factor(memory), 1.0) * start
    shown = np.minimum(np.square(np.where(known, difference, 0.0)) / total, _LIMIT**2) - noise / total
    factor = LearnedFactor(memory.value, memory.weight).learn(shown, start / total, known)
    nothing = np.zeros_like(start)
    most = _believed(factor) * start
    expected = np.where(memory.expected > 0.0, memory.expected, 1.0)
    return Repeated(
        fresh_var=np.broadcast_to(variance, start.shape),
        **dict.fromkeys(("expected", "trend", "cross"), nothing),
        value=factor.value,
        weight=factor.weight,
        most=np.where(known, most, memory.most),
        excess=np.where(known & (memory.expected > 0.0), np.maximum(most / expected, 1.0), memory.excess),
    )


def missed_var(memory: Repeated, *, returns: bool) -> Floats:
    """Return what has to be added to the variance of the sample; `returns`: whether the crowd may, unlike a course."""
    least = np.minimum(memory.excess * memory.expected, memory.most) if returns else memory.expected
    return np.maximum(_factor(memory) * _at_start(memory), least)


def _at_start(memory: Repeated) -> Floats:
    """Return S(k)."""
    return memory.expected + _TREND * memory.trend


def _factor(memory: Repeated) -> Floats:
    """Return g as it is believed."""
    return _believed(LearnedFactor(memory.value, memory.weight))


def _believed(factor: LearnedFactor) -> Floats:
    return factor.believed(_PRIOR_SAMPLES, 1.0)
