"""What a bank of filters says together: one estimate and one interval of all its beliefs (`learning`).

**What the regions have in common.** A series rarely leaves its past in one region alone, and the records of one region
may say little. So the start is learned from all regions (empirical Bayes): the evidence weight_k / start_k of every
region is weighed with one common start, the mean weight of the regions and of n0 more that believe what was believed at
the beginning. It is found by some steps of expectation and maximisation.

A crowd that grows, or moves to another level, does so in most regions. So with a chance of one in five one and the same
belief is right in all of them, but for exceptions: one in ten has its own. Its evidence is the product over the
regions, which is clear long before that of any single one, and Bayes' rule says how much each of the two counts:

    apart:     prod_i apart_i,  apart_i = sum_k common_k evidence_ik
    together:  start_k prod_i (0.9 evidence_ik + 0.1 apart_i)

Without exceptions, fifteen regions that are a little calmer than their model outvote one that has plainly left it.

The product takes the regions for independent. Those of one country are not: what is common to 26 of them would count
26 times. So for the interval no calmer belief is right in all regions: what they have in common makes it wider alone.

Where nobody knows the sizes of the groups behind the information, every region has its own start, and nothing is
learned together (`joint` is False).

**Estimate and interval.** Both are made with the same evidence. The estimate is close to the median of the mixture,
which has the smallest absolute error: a belief that is twice as wide has half the density where the others are, and
counts half.

    estimate = sum_k share_k mean_k          share_k in proportion to weight_k / sd_k, at most 4 weight_k
    variance = sum_k weight_k (var_k + (mean_k - estimate)^2)

With their mean, livelier beliefs that have no evidence yet would move the estimate by the noise of weak records, and
make it worse than the model itself. But densities say nothing of beliefs that are far apart: where a crowd has become a
hundred times as large, a model that is nearly sure of the opposite, and nearly refuted, is the narrowest of all. So no
belief counts more than four times its weight, and what is left goes to those that count less than theirs.

Real deviations are mostly small and sometimes large, so the estimate starts with more trust in the calmest and in the
liveliest belief, which would be a width without evidence for the interval. A level far away, one that has moved in all
regions, or an upheaval would decide with any weight: they are silent until evidence has raised their weights.

**Empty crowds.** Where deviations follow a scale, which is never 0, a closed day becomes a crowd of less than nobody in
the night after it, and its interval may lie below 0. No estimate is further below 0 than its standard deviation. The
filters themselves go on with what they know: in the morning the deviation is a part of more people again.
"""

from __future__ import annotations

import math

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.learning import (
    CALM,
    FAR_AWAY,
    MODEL,
    Bank,
    Beliefs,
    Priors,
    carried_parts,
    over_beliefs,
    predict_bank,
)
from dpcrowd.filters.model import ProcessModel

__all__ = ["combined", "doubtful_mixture", "doubtful_weights", "step_ahead"]

_PRIOR_REGIONS = 30.0
"""n0: how many regions the beliefs of the beginning count for, beside those that have records."""
_ODDS_TOGETHER = math.log(0.25)
"""Odds beforehand, as a logarithm, that one belief is right in all regions: one to four."""
_MOST_ODDS = 50.0
_EXCEPTIONS = 0.1
"""The chance that a region is an exception where one belief is right in all the others."""
_MOST_SHARE = 4.0
"""How many times its weight a belief counts at most."""
_LEAST = 1e-300  # where no belief counts less than its weight, nothing is left to divide among them
_STEPS = 3
"""Steps of expectation and maximisation; forty change errors by less than 1%, and coverage by less than 0.001."""


def combined(bank: Bank, beliefs: Beliefs) -> tuple[Floats, Floats]:
    """Return estimate and variance of the mixture, (N, d); nothing is known where any filter knows nothing."""
    trusted = _audible(_common_weights(bank, beliefs, beliefs.trust, beliefs.trust), beliefs)
    mean = over_beliefs(_by_width(trusted, bank.var) * bank.mean)
    weight = doubtful_weights(bank, beliefs)
    spread = bank.var
    if beliefs.around_course:  # people whom the model does not expect come by chance as well
        spread = spread.copy()
        spread[FAR_AWAY] += np.maximum(bank.mean[FAR_AWAY] - bank.mean[MODEL], 0.0)
    with np.errstate(invalid="ignore"):
        var = _weighted(weight, spread + np.square(bank.mean - mean))
    if beliefs.relative:
        with np.errstate(invalid="ignore"):
            mean = np.where(np.isfinite(var), np.maximum(mean, -np.sqrt(var)), mean)
    return mean, var


def doubtful_weights(bank: Bank, beliefs: Beliefs) -> Floats:
    """Return the weights with which the interval is made, (beliefs, N, d)."""
    start = np.exp(beliefs.weight)
    shared = np.where((beliefs.factor < 1.0).all(axis=-1, keepdims=True), 0.0, start)
    return _audible(_common_weights(bank, beliefs, start, shared / shared.sum()), beliefs)


def doubtful_mixture(prior: Priors, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Return means, variances and weights (k, N, d) of the normal distributions that the beliefs consist of.

    weight  (beliefs, N, d) `doubtful_weights`

    There are as many as beliefs, and more if one of them expects deviations that are mostly small.
    """
    if prior.small is None:
        return prior.mean, prior.var, weight
    means, variances, weights = prior.small.components(prior.mean[CALM], prior.var[CALM])
    weights *= weight[CALM]
    mixture = []
    for of_beliefs, parts in ((prior.mean, means), (prior.var, variances), (weight, weights)):
        first = of_beliefs.copy()
        first[CALM] = parts[0]
        mixture.append(np.concatenate([first, parts[1:]]))
    return mixture[0], mixture[1], mixture[2]


def _audible(weight: Floats, beliefs: Beliefs) -> Floats:
    """Return weights (beliefs, N, d) of which beliefs without evidence that must not decide have none."""
    weight = np.maximum(weight - beliefs.silent, 0.0)
    return np.asarray(weight / over_beliefs(weight))


def _weighted(weight: Floats, values: Floats) -> Floats:
    """Return the mean of values (beliefs, N, d), without those of silent beliefs, which may be infinite."""
    return over_beliefs(np.where(weight > 0.0, weight * values, 0.0))


def _by_width(weight: Floats, var: Floats) -> Floats:
    """Return the shares with which means make about the median of a mixture; all arrays (beliefs, N, d)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        density = weight / np.sqrt(var)
        total = over_beliefs(density)
        # Where nothing is known, or something exactly, no density says more than the weights do.
        by_density = np.where(np.isfinite(total) & (total > 0.0), density / total, weight)
    share = np.minimum(by_density, _MOST_SHARE * weight)
    shortfall = np.maximum(weight - share, 0.0)
    rest = np.maximum(1.0 - over_beliefs(share), 0.0)
    return np.asarray(share + shortfall * (rest / np.maximum(over_beliefs(shortfall), _LEAST)))


def _common_weights(bank: Bank, beliefs: Beliefs, start: Floats, shared: Floats) -> Floats:
    """Return the weights (beliefs, N, d), with what is learned from all regions if they are joint.

    start, shared  (beliefs, 1, 1) weights at the start, of a region of its own and of a belief that is right in all;
                   (beliefs, 1, d) where they differ by region (`tails`)
    """
    logarithms = bank.weight - beliefs.weight
    evidence = np.exp(logarithms)
    if not beliefs.joint:
        weight = start * evidence
        return np.asarray(weight / over_beliefs(weight))
    regions, common = evidence.shape[-1], start
    for _ in range(_STEPS):
        weight = evidence / over_beliefs(common * evidence)
        mean_weight = common * weight.sum(axis=-1, keepdims=True)
        common = (_PRIOR_REGIONS * start + mean_weight) / (_PRIOR_REGIONS + regions)
    weight = common * evidence
    apart = over_beliefs(weight)
    own = weight / apart
    of_most = (1.0 - _EXCEPTIONS) * evidence + _EXCEPTIONS * apart
    total = np.log(of_most).sum(axis=-1, keepdims=True)
    most = total.max(axis=0)
    together = shared * np.exp(total - most)
    likelihood = over_beliefs(together)
    odds = np.log(likelihood) + most - np.log(apart).sum(axis=-1, keepdims=True) + _ODDS_TOGETHER
    chance = 1.0 / (1.0 + np.exp(-np.clip(odds, -_MOST_ODDS, _MOST_ODDS)))
    follows = (together / likelihood) * ((1.0 - _EXCEPTIONS) * evidence / of_most)
    return np.asarray((1.0 - chance) * own + chance * (follows + (1.0 - over_beliefs(follows)) * own))


def step_ahead(bank: Bank, model: ProcessModel, beliefs: Beliefs, slot: int) -> Floats:
    """Return what a smoother needs of the step to a slot, (3, N, d): the prior's mean and variance, and its covariance
    with the posterior before it.
    """
    mean = combined(bank, beliefs)[0]
    carried = carried_parts(beliefs, model, slot)
    ahead = predict_bank(bank, model, beliefs, slot)
    prior = combined(ahead, beliefs)
    with np.errstate(invalid="ignore", over="ignore"):
        # No covariance is larger than its variances allow: a level that all regions share has no transition of its own,
        # and a smoother would get negative variances.
        own = np.minimum(carried * bank.var, np.sqrt(bank.var) * np.sqrt(ahead.var))
        own = own + (bank.mean - mean) * (ahead.mean - prior[0])
        covariance = _weighted(doubtful_weights(bank, beliefs), own)
    return np.stack([*prior, covariance])
