"""The least variance that the estimate of a relay server can have, whatever records it has: a bound on certainty.

A neighbour's finalised state (`relay_join`) claims how certain it is, and a claim of too much certainty would outweigh
the records that follow. How certain a server can be at most follows from public facts. The most that any schedule
allows is that all servers have sampled in the slot itself, k = w/n slots before, 2 k slots before and so on, and that
all those records have arrived. With the information W of all servers' records together, and

    P  ->  1 / (1 / (A P + B) + W)         A = a^2k,   B = Q (1 + a^2 + ... + a^2(k-1))

from one sample to the next, the variance never falls below the fixed point, the positive root of

    W A P^2 + (1 - A + W B) P - B = 0

Where deviations are in proportion to a scale s(t), a s(t)/s(t-1) may be larger than 1, and all this holds for
deviations divided by the scale instead: their Q is at least the least q(t)/s(t)^2, records say at most W times the
largest s(t)^2 about them, and a variance in people is at least the least s(t)^2 times theirs.

W is the information of `prediction.record_weights` for regions that are nearly empty, where records say most. What may
add to the variance in practice (late and missing records, levels, guard, penalties) only moves it away from the bound.

Under another revision, shares and Q may have been others, and so may the variance at its end have been: then the
recursion starts from complete certainty in the first slot of the revision. With full matrices, regions inform each
other, and only what a single slot adds is bounded: P >= (1/Q + W)^-1.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.learning import beliefs_of
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.prediction import PublicFacts, record_noise, record_weights

__all__ = ["least_variance"]

_MOST_STEPS = 64


def least_variance(setting: Setting, samples: int, slots: int | None) -> Floats:
    """Return the least variance of each region, (d,), for a server on its own with n `samples` per window or horizon.

    slots  how many slots this setting has been in use; None: since the beginning, when nothing was known
    """
    model = setting.model
    if slots is not None and slots < 1:
        return np.zeros(model.regions)
    information = _information(setting, samples)
    change = model.diagonal_var if setting.form == "diagonal" else model.noise_var
    course = model.course
    if course is not None:
        change = course.variance.min(axis=0)
    if setting.form == "matrix":
        covariance = model.matrix_var if course is None else np.diag(change)
        gain = np.linalg.solve(covariance + np.diag(1.0 / information), covariance)
        return np.maximum(np.diag(covariance - covariance @ gain), 0.0)
    least_scale = np.ones(model.regions)
    if course is not None and course.scale is not None:
        square = np.square(course.scale)
        least_scale, information = square.min(axis=0), information * square.max(axis=0)
        change = (course.variance / square).min(axis=0)
    transition = np.broadcast_to(model.diagonal_transition, (1, model.regions))
    factor = np.ones((1, 1))
    if setting.learn:
        beliefs = beliefs_of(model)
        transition, factor = beliefs.transition[:, 0], beliefs.factor[:, 0]
    interval = max(1, setting.need_guarantee().length // samples)
    square = np.square(transition)
    kept = square**interval
    with np.errstate(divide="ignore", invalid="ignore"):
        sums = np.where(square == 1.0, float(interval), (1.0 - kept) / (1.0 - square))
    added = change * factor * sums
    if slots is None:
        return np.asarray(least_scale * _fixed_point(kept, added, information).min(axis=0))
    variance = np.zeros_like(added)
    with np.errstate(divide="ignore"):
        for _ in range(min(slots // interval, _MOST_STEPS)):
            variance = 1.0 / (1.0 / (kept * variance + added) + information)
    return np.asarray(least_scale * variance.min(axis=0))


def _fixed_point(kept: Floats, added: Floats, information: Floats) -> Floats:
    """Return the positive root of W A P^2 + (1 - A + W B) P - B = 0, in the form that does not cancel."""
    linear = 1.0 - kept + information * added
    root = np.sqrt(np.square(linear) + 4.0 * information * kept * added)
    with np.errstate(divide="ignore", invalid="ignore"):
        from_above = 2.0 * added / (linear + root)
        from_below = (root - linear) / (2.0 * information * kept)
    return np.nan_to_num(np.where(linear >= 0.0, from_above, from_below), nan=0.0)


def _information(setting: Setting, samples: int) -> Floats:
    """Return the most information that one record of every server together can hold, (d,)."""
    assert setting.peers is not None
    shares, regions = setting.peers.shares, setting.regions
    facts = PublicFacts(
        guarantee=setting.need_guarantee(),
        model=setting.model,
        shares=shares,
        delays=np.zeros((1, len(shares)), dtype=np.int64),
        phases=lambda _: np.zeros(len(shares), dtype=np.int64),
        alpha=setting.tuning.alpha,
        observation=setting.observation,
        form=setting.form,
        level=np.ones(regions),
        count_var=setting.model.one_step_var,
        selection=np.arange(regions),
    )
    if setting.turnover == 1.0 and setting.share_width == 0.0 and not facts.cancelling_regions.any():
        return np.asarray(record_weights(facts, samples).sum(axis=0))
    # The deviations of servers that share all people cancel, and the noise alone is left; so it is where users stay.
    noise = max(setting.tuning.alpha * record_noise(facts, samples), 1e-12)
    # The same holds for shares that are learned, whatever they are: their squares sum to 1 at most.
    squares = np.square(shares).sum(axis=0) if setting.share_width == 0.0 else 1.0
    return np.broadcast_to(np.asarray(squares, dtype=np.float64) / noise, (regions,)).copy()
