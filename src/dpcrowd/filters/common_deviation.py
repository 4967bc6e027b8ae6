"""Deviations that regions have in common: what a bank believes of a crowd whose regions rise and fall together.

    r_i(t) = mu_i(t) + e_i(t) + L_i(t) f(t)          f(t+1) = b f(t) + noise, so that f has the variance 1

Weather, holidays and epidemics move many regions at once. L_i^2 = rho V_i is the part of the variance V_i of deviations
that all regions share (`region_correlation` of a model), the deviations e_i of their own have the rest, and b says how
much of what they share is left after a slot (`in_common`). A filter that follows every region for itself needs
records that show it in each of them; the one number f shows in all records together.

As in `common_level` this belief is another filter and a correction (Friedland's separate estimation of a bias). That
other filter is the model's, read with less variance: what it knows of a region, the mean m and the variance v, is
N(mu, V) before any record and information Y = 1/v - 1/V from records. With (1 - rho) V in the place of V that is

    v_i = 1/(1/((1 - rho) V) + Y)          m_i = mu + (m - mu) v_i/v

and with P the variance of f, and S_i how much of f that filter has not followed,

    estimate of r_i = m_i + S_i f          variance = v_i + S_i^2 P          S_i = L_i v_i/((1 - rho) V)

So f and P follow from the estimates and variances of this belief and of the model's filter, and a bank has to remember
nothing else. Records are fused as in `common_level`. Where f is mostly small and sometimes large, such as storms in all
regions, its median (`tails`) is in the place of f in one more belief. Arrays are (N, d), and (N, 1) for f and P.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpcrowd.arrays import Floats, Ints, PerRegion
from dpcrowd.filters.common_level import CommonLevel
from dpcrowd.filters.model import InCommon, ProcessModel
from dpcrowd.filters.tails import MostlySmall, Tails

__all__ = ["CommonDeviation", "beliefs_in_common", "common_facts", "predict_common"]

_MOST_IN_COMMON = 0.95
"""rho is at most this: of regions that are all alike, own deviations would be certain."""
_LEAST = 1e-300


def common_facts(model: ProcessModel) -> tuple[float, InCommon] | None:
    """Return rho and what is known of f; None: the model does not say that regions have anything in common, or how it
    moves.
    """
    part, known = model.region_correlation, model.in_common
    if model.course is None or model.regions < 2 or known is None or not part:
        return None
    return min(part, _MOST_IN_COMMON), known


def beliefs_in_common(model: ProcessModel) -> int:
    """Return how many beliefs are about what regions have in common: none, f, or f and its median."""
    facts = common_facts(model)
    return 0 if facts is None else 1 + bool(facts[1].tails.heavy[0])


@dataclass(frozen=True, eq=False)
class CommonDeviation:
    """What is known of f before or after the records of a slot.

    expected, settled  (d,) mu and V of the slot
    part               rho
    factor             S, f and P
    tails              of f, where it is mostly small
    """

    expected: PerRegion
    settled: PerRegion
    part: float
    factor: CommonLevel
    tails: Tails | None

    @property
    def beliefs(self) -> int:
        """How many there are, the last ones of a bank."""
        return 1 if self.tails is None else 2

    def own(self, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """Return m_i and v_i, where mean and variance of the model's filter are given."""
        return _own(mean, var, self.expected, self.settled, self.part)

    def put(self, mean: Floats, var: Floats, model: int) -> None:
        """Set the last beliefs of a bank (beliefs, N, d), in place, from the model's filter."""
        own, own_var = self.own(mean[model], var[model])
        factor, first = self.factor, -self.beliefs
        var[first:] = own_var + np.square(factor.sensitivity) * factor.variance
        mean[first] = own + factor.sensitivity * factor.level
        if self.tails is not None:
            median = MostlySmall(np.zeros(1), np.ones(1), self.tails).median(factor.level, factor.variance)
            mean[-1] = own + factor.sensitivity * median

    def update(
        self, prior: tuple[Floats, Floats], info_vec: Floats, info_mat: Floats, groups: Ints | None
    ) -> CommonDeviation:
        """Return what is known of f after fusing summed information.

        prior     mean and variance of the model's filter
        info_vec, info_mat  information as the filter of own deviations has it
        """
        return replace(self, factor=self.factor.update(*self.own(*prior), info_vec, info_mat, groups))


def predict_common(
    model_filter: tuple[Floats, Floats],
    belief: tuple[Floats, Floats],
    prior: tuple[Floats, Floats],
    model: ProcessModel,
    slot: int,
    before: int,
) -> CommonDeviation:
    """Return what is known of f before the records of a slot.

    model_filter, belief  mean and variance (N, d) of the slot `before`, of the model's filter and of this belief
    prior                 those of the model's filter in this slot
    """
    facts, course = common_facts(model), model.course
    assert facts is not None and course is not None
    part, known = facts
    settled_before, settled = (course.settled_var(one, model.diagonal_transition) for one in (before, slot))
    own, own_var = _own(*model_filter, course.mean(before), settled_before, part)
    sensitivity = _sensitivity(own_var, settled_before, part)
    total = np.maximum(np.square(sensitivity).sum(axis=-1, keepdims=True), _LEAST)
    level = (sensitivity * (belief[0] - own)).sum(axis=-1, keepdims=True) / total
    variance = np.clip((belief[1] - own_var).sum(axis=-1, keepdims=True) / total, 0.0, 1.0)
    left = known.transition ** max(slot - before, 1)
    variance = left * left * variance + (1.0 - left * left)
    prior_var = _own(*prior, course.mean(slot), settled, part)[1]
    factor = CommonLevel(_sensitivity(prior_var, settled, part), left * level, variance)
    tails = known.tails if known.tails.heavy[0] else None
    return CommonDeviation(course.mean(slot), settled, part, factor, tails)


def _own(mean: Floats, var: Floats, expected: PerRegion, settled: PerRegion, part: float) -> tuple[Floats, Floats]:
    """Return mean and variance of a filter of own deviations, which have the rest of the variance."""
    with np.errstate(divide="ignore", over="ignore"):
        information = np.maximum(1.0 / var - 1.0 / settled, 0.0)
    own_var = 1.0 / (1.0 / ((1.0 - part) * settled) + information)  # 0 where the count is known
    less = np.divide(own_var, var, out=np.ones_like(var), where=var > 0.0)
    return expected + np.minimum(less, 1.0) * (mean - expected), own_var


def _sensitivity(own_var: Floats, settled: PerRegion, part: float) -> Floats:
    """Return S (N, d), where the filter of own deviations has this variance."""
    return np.asarray(np.sqrt(part * settled) * np.minimum(own_var / ((1.0 - part) * settled), 1.0))
