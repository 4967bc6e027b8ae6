"""Continued learning: a bank of filters with different beliefs about the model, weighted by how well they predict.

A model is fitted on the past, and a series may leave its past: its variance may have grown, or its level may have
moved. So several filters run side by side on the same records, each with its own belief,

    the model                 a, q                    trusted most at the start
    calmer, livelier          a, q/4; a, 4 q; a, 16 q; where deviations are mostly small and sometimes large,
                              `filters.tails` is in the place of the calmer one
    another level             a close to 1, q         deviations that stay
    a level far away          a closest to 1          deviations that stay for good, and are twice as large as the
                                                      level, or as that of an average region: one may fill or empty
    lasting deviations        a close to 1            deviations that stay, and are as large as the model says
    a crowd that grows        a, q                    around a level that moves in all regions by one factor, and does
                                                      not come back (`filters.common_level`)
    upheaval                  a closest to 1          steps in proportion to the region's own size: an epidemic, which
                                                      becomes a thousand times as large as anything before it
    another season            its own                 a season of the same size and speed that has moved, or is gone;
                                                      only where the model has a season (`course.UnknownSeason`)
    a level that moves        a, q                    around a level of the region's own that moves slowly
                                                      (`filters.moving_level`)
    deviations in common      a, q                    of which all regions share a part, if the model says so; trusted
                                                      more than the model itself then (`filters.common_deviation`)

and each has a weight: the probability that it is right, given how well it has predicted the records (Bayes). With a
small chance f per slot another belief becomes right, so none is ever ruled out and the bank reacts within a few
records:

    weight_k <- (1-f) weight_k L(z; prior mean_k, prior_var_k + R)/sum + f start_k          where z = y/Y and R = 1/Y

L is the density of Student's t with 6 degrees of freedom, scaled to that variance: it has the fourth moment of Laplace
noise. With a normal density the tails of the noise would speak for livelier beliefs, which then follow the noise.

Where a record has the sum of a group of regions, every filter compares it with the sum that it expects itself, and each
member finds the same evidence in it. So a member of a group of n counts 1/n of its logarithm: in the product over the
regions a sum is one piece of evidence, not n of them.

How estimates and intervals are made of them, and what regions learn from one another: `bank_estimate`.

Where records say little, the weights stay what they were: intervals become narrower by evidence alone. Everything is a
function of records, that is of released values. No schedule depends on it: where slots are chosen by what is estimated,
a pilot that does not learn chooses them (`schemes.filter_state`). Arrays are (beliefs, N, d).

Without an expected course the beliefs differ in Q alone, which then need not be known: 1/16, 1/4, 1, 4 and 16 times,
and 4096 times for a region that leaves its past at once, such as an empty one that fills, whose Q says nothing. The
belief in upheaval is the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.common_deviation import CommonDeviation, beliefs_in_common, common_facts, predict_common
from dpcrowd.filters.common_level import RETURN, CommonLevel, predict_level, start_var
from dpcrowd.filters.course import Course
from dpcrowd.filters.groups import GroupedSums, divide_sums, group_sizes, over_members
from dpcrowd.filters.model import ProcessModel
from dpcrowd.filters.moving_level import LASTING_PART, predict_moving, start_moving
from dpcrowd.filters.student import log_density
from dpcrowd.filters.tails import MostlySmall

__all__ = [
    "CALM",
    "FAR_AWAY",
    "MODEL",
    "Bank",
    "Beliefs",
    "Priors",
    "beliefs_of",
    "carried_parts",
    "complete_banks",
    "over_beliefs",
    "predict_bank",
    "reset_bank",
    "start_bank",
    "update_bank",
]

_FORGETTING = 0.01
"""The chance that in a slot with records another belief becomes right."""
_MOST_EVIDENCE = 5.0
"""By how much one slot can speak for a belief, as a logarithm: noise has long tails, and one record must not decide."""
_SLOW, _FOR_GOOD = 0.99, 0.9995
"""What is left of deviations that stay, and of those that stay for good, after a slot."""
_FAR = 2.0
"""How far away a level may be: the typical deviation that stays for good, by the level."""
_OF_A_BANK = re.compile(r"bank\.(mean|var|weight)$")
_AROUND_COURSE = ((0.25, 0.06), (1.0, 0.84), (4.0, 0.06), (16.0, 0.02))  # factor of q, weight at the start
_ANOTHER_LEVEL, _LEVEL_FAR_AWAY, _LASTING, _COMMON_LEVEL, _IN_UPHEAVAL = 0.02, 0.005, 0.05, 0.05, 0.005
_ANOTHER_SEASON, _LEVEL_THAT_MOVES = 0.01, 0.05
_IN_COMMON = 0.6
"""How much of the trust in the model goes to the belief that regions have a part of their deviations in common."""
_PART_PER_SLOT = 0.25
"""The typical step of a region in upheaval, by its size."""
_MOST_STEPS = 64
"""Number of steps in upheaval that are followed; after so many the interval contains every plausible crowd."""
_TRUST_IN_CALM, _TRUST_IN_LIVELY = 0.2, 0.15
"""Weights of the calmest and of the liveliest belief at the start of an estimate, beside those of the others."""
CALM, MODEL, _LIVELY, FAR_AWAY, _COMMON, _UPHEAVAL, _SEASON = 0, 1, 3, 5, 7, 8, 9  # which beliefs these are
_UPHEAVAL_ALONE = 6
_SILENT = {FAR_AWAY: 0.02, _COMMON: 0.05, _UPHEAVAL: 0.02, _SEASON: 0.02}
"""Up to which weight a belief is silent, since it would decide with any."""
_SILENT_ALONE = {5: 0.02, _UPHEAVAL_ALONE: 0.02}
"""The same without an expected course: 4096 q, and upheaval."""
_ALONE = ((1.0 / 16.0, 0.05), (0.25, 0.2), (1.0, 0.5), (4.0, 0.2), (16.0, 0.05), (4096.0, 0.005), (1.0, _IN_UPHEAVAL))


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What the filters of a bank believe.

    transition  (beliefs, 1, d) a
    factor      (beliefs, 1, d) of q
    weight      (beliefs, 1, 1) logarithms of the weights at the start
    trust       (beliefs, 1, 1) or (beliefs, 1, d) weights at the start with which the estimate is made
    silent      (beliefs, 1, 1) weights up to which a belief is silent
    joint       whether the start is learned from all regions
    relative    whether deviations follow a scale, and may be carried below an empty crowd
    around_course  whether the model expects a course
    """

    transition: Floats
    factor: Floats
    weight: Floats
    trust: Floats
    silent: Floats
    joint: bool
    relative: bool = False
    around_course: bool = False


@dataclass
class Bank:
    """Means, variances and logarithms of the weights of a bank, (beliefs, N, d); relay has slots in front."""

    mean: Floats
    var: Floats
    weight: Floats

    def at(self, place: int) -> Bank:
        """Return the bank of one slot; its arrays are views."""
        return Bank(self.mean[place], self.var[place], self.weight[place])

    def put(self, place: int, bank: Bank, active: Bools | None = None) -> None:
        """Set the bank of one slot, of all servers or of those in `active` (N,)."""
        rows = slice(None) if active is None or active.all() else active
        self.mean[place][:, rows], self.var[place][:, rows] = bank.mean[:, rows], bank.var[:, rows]
        self.weight[place][:, rows] = bank.weight[:, rows]

    def follow(self, bank: Bank, rows: Bools) -> None:
        """Take means and variances of another bank for these servers (N,), and keep the weights."""
        self.mean[:, rows], self.var[:, rows] = bank.mean[:, rows], bank.var[:, rows]

    def copy(self) -> Bank:
        """Return a copy."""
        return Bank(self.mean.copy(), self.var.copy(), self.weight.copy())


@dataclass
class Priors(Bank):
    """The priors of a slot, and what is known of the level that all regions share, if there is a course.

    small     what is expected of deviations that are mostly small, if there are such regions
    together  what is known of deviations that regions have in common, if the model says that they do
    """

    common: CommonLevel | None = None
    small: MostlySmall | None = None
    together: CommonDeviation | None = None

    def widened(self, factor: Floats) -> Priors:
        """Return filters of their own with variances that are larger by a factor, broadcastable to (N, d)."""
        return Priors(self.mean, self.var * factor, self.weight)


def beliefs_of(model: ProcessModel, *, joint: bool = True) -> Beliefs:
    """Return the beliefs around a model, in its diagonal form; `joint`: whether regions learn from one another."""
    a = np.broadcast_to(model.diagonal_transition, (model.regions,))
    course = model.course
    rows = [(a, np.full(model.regions, factor), start) for factor, start in (_AROUND_COURSE if course else _ALONE)]
    if course is not None:
        slow = np.maximum(a, _SLOW)
        rows.append((slow, np.ones(model.regions), _ANOTHER_LEVEL))
        stays = np.maximum(a, _FOR_GOOD)
        far = np.maximum(np.square(_FAR) * course.level_by_noise * (1.0 - stays * stays), 1.0)
        rows.append((stays, far, _LEVEL_FAR_AWAY))
        rows.append((slow, (1.0 - slow * slow) / (1.0 - a * a), _LASTING))
        rows.append((np.full(model.regions, RETURN), np.ones(model.regions), _COMMON_LEVEL))
        rows.append((stays, far, _IN_UPHEAVAL))
        if (season := course.unknown_season) is not None:
            rows.append((season.transition, season.noise_var / course.variance.max(axis=0), _ANOTHER_SEASON))
        rows.append((np.maximum(a, LASTING_PART), np.ones(model.regions), _LEVEL_THAT_MOVES))
        _, factor, start = rows[MODEL]
        for left in _divided(model):
            rows.append((a, factor, left * start))
        rows[MODEL] = a, factor, (1.0 - sum(_divided(model))) * start
    transition, factor, weight = (np.stack(column) for column in zip(*rows, strict=True))
    trust, silent = weight.copy(), np.zeros((len(weight), 1, 1))
    if course is not None:
        trust[CALM], trust[_LIVELY] = _TRUST_IN_CALM, _TRUST_IN_LIVELY
        for number, most in _SILENT.items():
            silent[: _moving(model)][number : number + 1] = most
    else:
        for number, most in _SILENT_ALONE.items():
            silent[number] = most
    weight, trust = (part[:, None, None] / part.sum() for part in (weight, trust))
    if course is not None and course.tails is not None:
        moved = course.tails.trusted * trust
        moved[_COMMON] = 0.0  # what all regions do is no noise of this one
        trust = trust - moved
        trust[CALM] += moved.sum(axis=0)
    relative = course is not None and course.scale is not None
    rows_of_regions = transition[:, None, :], factor[:, None, :]
    return Beliefs(*rows_of_regions, np.log(weight), trust, silent, joint, relative, course is not None)


def _divided(model: ProcessModel) -> tuple[float, ...]:
    """Return which parts of the trust in the model go to the beliefs in common deviations: to f, and to its median."""
    facts = common_facts(model)
    if facts is None:
        return ()
    small = float(facts[1].tails.trusted[0])
    return (_IN_COMMON,) if small == 0.0 else ((1.0 - small) * _IN_COMMON, small * _IN_COMMON)


def _moving(model: ProcessModel) -> int:
    """Return the place of the belief in a level that moves, before those in common deviations."""
    return -1 - beliefs_in_common(model)


def start_bank(model: ProcessModel, servers: int, slot: int) -> Bank:
    """Return the bank of a slot before any record."""
    beliefs = beliefs_of(model)
    mean, var = model.start(slot)
    shape = (len(beliefs.factor), servers, model.regions)
    variances = np.tile(var, (shape[0], 1))
    if model.course is not None:
        for number, transition in enumerate(beliefs.transition[:, 0]):
            variances[number] = beliefs.factor[number, 0] * model.course.settled_var(slot, transition)
        variances[_COMMON] = start_var(model.course, slot, model.diagonal_transition)
        variances[_moving(model)] = start_moving(model.course, slot, model.diagonal_transition)
        if model.course.tails is not None:
            variances[CALM] = np.where(model.course.tails.heavy, variances[MODEL], variances[CALM])
    means = np.broadcast_to(mean, shape).copy()
    if model.course is not None and (season := model.course.unknown_season) is not None:
        means[_SEASON], variances[_SEASON] = season.level, season.settled_var
    return Bank(
        means,
        np.broadcast_to(variances[:, None, :], shape).copy(),
        np.broadcast_to(beliefs.weight, shape).copy(),
    )


def reset_bank(mean: Floats, var: Floats, beliefs: Beliefs) -> Bank:
    """Return a bank that agrees on an estimate (N, d), with the weights of the start."""
    shape = (len(beliefs.factor), *mean.shape)
    return Bank(*(np.broadcast_to(part, shape).copy() for part in (mean, var, beliefs.weight)))


def predict_bank(bank: Bank, model: ProcessModel, beliefs: Beliefs, slot: int, before: int | None = None) -> Priors:
    """Return the priors of a slot; `before`: the slot of the posteriors, the one before by default."""
    a, course = beliefs.transition, model.course
    if course is None:
        var = np.where(np.isfinite(bank.var), a * a * bank.var, np.inf) + beliefs.factor * model.diagonal_var
        mean = a * bank.mean
        var[_UPHEAVAL_ALONE] += _step_in_upheaval(mean[_UPHEAVAL_ALONE])
        return Priors(mean, var, bank.weight)
    before = slot - 1 if before is None else before
    steps = max(slot - before, 1)
    carried = a**steps * course.ratio(before, slot)
    if steps == 1:
        added = beliefs.factor * course.noise_var(slot)
    else:
        added = beliefs.factor * np.stack([course.added_var(slot, steps, one) for one in a[:, 0]])[:, None, :]
    mean = course.mean(slot) + carried * (bank.mean - course.mean(before))
    var = carried * carried * bank.var + added
    var[_UPHEAVAL] += _added_in_upheaval(bank.mean[_UPHEAVAL], a[_UPHEAVAL], course, before, slot)
    if (season := course.unknown_season) is not None:
        mean[_SEASON], var[_SEASON] = season.predict(bank.mean[_SEASON], bank.var[_SEASON], steps)
    own = _moving(model)
    former, belief, moving = ((bank.mean[place], bank.var[place]) for place in (MODEL, _COMMON, own))
    prior = mean[MODEL], var[MODEL]
    mean[own], var[own] = predict_moving(former, moving, prior, course, model.diagonal_transition, slot, before)
    common = predict_level(former, belief, var[MODEL], course, model.diagonal_transition, slot, before)
    mean[_COMMON], var[_COMMON] = common.estimate(mean[MODEL], var[MODEL])
    small = None
    if course.tails is not None:
        settled, stays = course.settled_var(slot, model.diagonal_transition), a[MODEL, 0] ** steps
        small = MostlySmall(course.mean(slot), settled, course.tails, stays)
        small.put(mean, var, CALM, MODEL)
    together = None
    if (number := beliefs_in_common(model)) > 0:
        together = predict_common(former, (bank.mean[-number], bank.var[-number]), prior, model, slot, before)
        together.put(mean, var, MODEL)
    return Priors(mean, var, bank.weight, common, small, together)


def carried_parts(beliefs: Beliefs, model: ProcessModel, slot: int, steps: int = 1) -> Floats:
    """Return which part of the deviation of `steps` slots before each filter finds in a slot, (beliefs, 1, d)."""
    if model.course is None:
        return beliefs.transition if steps == 1 else beliefs.transition**steps
    carried = model.course.carried(beliefs.transition, slot, steps)
    if model.course.unknown_season is not None and carried is not beliefs.transition:
        carried[_SEASON] = beliefs.transition[_SEASON] ** steps
    return carried


def _added_in_upheaval(former: Floats, transition: Floats, course: Course, before: int, slot: int) -> Floats:
    """Return what the steps from one slot to another add to the variance of regions in upheaval, (N, d).

    former  estimates of the slot `before`
    """
    deviation = former - course.mean(before)
    total = np.zeros_like(former)
    for one in range(max(before, slot - _MOST_STEPS) + 1, slot + 1):
        mean = course.mean(one) + transition ** (one - before) * course.ratio(before, one) * deviation
        part = transition ** (slot - one) * course.ratio(one, slot)
        total += part * part * _step_in_upheaval(mean)
    return total


def _step_in_upheaval(mean: Floats) -> Floats:
    """Return the variance of one step of regions in upheaval, where these are the estimates, (N, d)."""
    return np.asarray(np.square(_PART_PER_SLOT * np.maximum(mean, 0.0)))


def update_bank(
    prior: Priors,
    info_vec: Floats,
    info_mat: Floats,
    beliefs: Beliefs,
    grouped: Sequence[GroupedSums] = (),
    *,
    bounded: bool = False,
    fresh: Floats | float = 1.0,
) -> Bank:
    """Return the posteriors after fusing summed information (N, d), with the weights that follow.

    grouped  sums of records that join regions, which are fused after it, one after the other; `bounded`: see `groups`
    fresh    how much the evidence of info_vec counts, (N, d): later records may repeat a part of it
    """
    after, evidence, informed = _fuse(prior, info_vec, info_mat)
    evidence = evidence * fresh
    for sums in grouped:
        after, more, measured = _fuse_groups(after, sums, bounded)
        evidence, informed = evidence + more, informed | measured
    evidence = np.maximum(evidence - evidence.max(axis=0), -_MOST_EVIDENCE)
    weight = np.exp(prior.weight + evidence)
    weight = (1.0 - _FORGETTING) * weight / over_beliefs(weight) + _FORGETTING * np.exp(beliefs.weight)
    return Bank(after.mean, after.var, np.where(informed, np.log(weight), prior.weight))


def _fuse(prior: Priors, info_vec: Floats, info_mat: Floats) -> tuple[Priors, Floats, Bools]:
    """Return the posteriors of all filters, the evidence, and which regions have any."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        spread = prior.var + 1.0 / info_mat
        surprise = np.square(info_vec / info_mat - prior.mean) / spread
    evidence, informed = _evidence(spread, surprise, info_mat)
    if prior.small is not None:
        which = prior.small.tails.heavy
        noise = 1.0 / np.where(informed, info_mat, 1.0)[:, which]
        off = info_vec[:, which] * noise - prior.mean[CALM][:, which]
        found = prior.small.evidence(off, prior.var[MODEL][:, which], noise)
        evidence[CALM][:, which] = np.where(informed[:, which], found, 0.0)
    everyone = info_vec, info_mat
    return _updated(prior, *everyone, everyone, everyone, None), evidence, informed


def _fuse_groups(prior: Priors, sums: GroupedSums, bounded: bool) -> tuple[Priors, Floats, Bools]:
    """Return the same for records of groups: every filter compares a sum with the sum that it expects itself.

    Each of n members finds the same evidence in their sum, so it counts 1/n of its logarithm.
    """
    shape, groups = prior.mean.shape, sums.groups
    y, info = (np.broadcast_to(part, shape).reshape(-1, shape[-1]) for part in (sums.y, sums.info))
    mean, var = (part.reshape(-1, shape[-1]) for part in (prior.mean, prior.var))
    wide = np.broadcast_to(groups, mean.shape)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        spread = (over_members(var, wide) + 1.0 / info).reshape(shape)
        if prior.common is not None:
            spread[_COMMON] += prior.common.added_var(groups)
        if prior.together is not None:
            spread[-prior.together.beliefs :] += prior.together.factor.added_var(groups)
        surprise = np.square((y / info - over_members(mean, wide)).reshape(shape)) / spread
    evidence, informed = _evidence(spread, surprise, sums.info)
    if prior.together is not None:  # its own deviations are what the members of a group do not have in common
        mean, var = prior.mean.copy(), prior.var.copy()
        mean[-1], var[-1] = prior.together.own(mean[MODEL], var[MODEL])
        mean, var = (part.reshape(-1, shape[-1]) for part in (mean, var))
    divided = (part.reshape(shape) for part in divide_sums(y, info, groups, mean, var, bounded=bounded))
    divided_y, divided_info = divided
    of_model, of_last = ((divided_y[place], divided_info[place]) for place in (MODEL, -1))
    return (
        _updated(prior, divided_y, divided_info, of_model, of_last, groups),
        evidence / group_sizes(groups),
        informed,
    )


def _evidence(spread: Floats, surprise: Floats, info_mat: Floats) -> tuple[Floats, Bools]:
    """Return the logarithms of the densities of what was measured, (beliefs, N, d), and of which regions it was."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        evidence = log_density(spread, surprise)
    informed: Bools = (info_mat > 0.0) & np.isfinite(evidence).all(axis=0)
    return np.where(informed, evidence, 0.0), informed


def _updated(
    prior: Priors,
    info_vec: Floats,
    info_mat: Floats,
    of_model: tuple[Floats, Floats],
    of_last: tuple[Floats, Floats],
    groups: Ints | None,
) -> Priors:
    """Return the posteriors of all filters; `of_model`, `of_last`: the information as two of them have it, (N, d)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        precision = 1.0 / prior.var + info_mat
        var = 1.0 / precision
        step = np.where(precision > 0.0, (info_vec - info_mat * prior.mean) * var, 0.0)
    mean, common = prior.mean + step, prior.common
    if common is not None:
        common = common.update(prior.mean[MODEL], prior.var[MODEL], *of_model, groups)
        mean[_COMMON], var[_COMMON] = common.estimate(mean[MODEL], var[MODEL])
    if prior.small is not None:
        prior.small.put(mean, var, CALM, MODEL)
    together = prior.together
    if together is not None:
        together = together.update((prior.mean[MODEL], prior.var[MODEL]), *of_last, groups)
        together.put(mean, var, MODEL)
    return Priors(mean, var, prior.weight, common, prior.small, together)


def over_beliefs(values: Floats) -> Floats:
    """Return the sum over the first axis, one after the other: NumPy adds eight numbers of a single server in another
    order than those of several, and both have to have the same bits.
    """
    total: Floats = values[0]
    for one in values[1:]:
        total = total + one
    return total


def complete_banks(arrays: dict[str, NDArray[Any]], fresh: dict[str, NDArray[Any]]) -> None:
    """Give saved banks the beliefs that have come later, in place; `fresh`: the arrays of a state before any record.

    A new belief continues from the last one, with the weight that it has at the start.
    """
    for name, array in arrays.items():
        missing = fresh[name].shape[-3] - array.shape[-3] if name in fresh and _OF_A_BANK.search(name) else 0
        if missing > 0:
            last = np.repeat(array[..., -1:, :, :], missing, axis=-3)
            if name.endswith(".weight"):
                last = np.broadcast_to(fresh[name][..., -missing:, :, :], last.shape)
            arrays[name] = np.concatenate([array, last], axis=-3)
