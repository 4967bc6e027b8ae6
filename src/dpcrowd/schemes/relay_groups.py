"""Which regions of a relay record share one draw of noise: a choice from earlier releases alone.

A server that samples joins regions whose counts are small beside the noise into groups, and reads one noisy sum per
group (`filters.groups` says how that is fused). A user is in one region, so in one group: the sensitivity stays the
same. The choice is made from public numbers alone, the model and what the server has released before, and travels with
the record, so it reveals nothing that the records before it have not, and no receiver has to repeat it.

Let lambda be the information of all records per slot, n/w sum H^2/R, and M(a, q) the variance in which a filter with
that information settles: 1/M = 1/(a^2 M + q) + lambda.

Without a course, a region by itself has the error M_k = M(1, Q_k). A group of n regions whose sum is s has an error of
M(1, sum Q)/n^2 from the sum, and (s/n)^2 + s/n from its unknown division. Levels are those of the last release, in its
non-negative view: noise above 0 does not make a region large, and noise below 0 does not make a sum small. Regions
whose level is at most one standard deviation, of M_k or of the last release, are small. They are joined, in the order
of the regions, as long as the sum of a group stays below four times the mean of their sqrt(M_k), and a group is formed
if its error is below that of its members by themselves. A region that grows enlarges the sum of its group; the group is
divided, and divided again, until the region is by itself.

With a course the model says what to expect of each region, and independent regions would lose by being joined, if only
a little; regions that rise and fall together gain. All regions may be joined of which single records would tell next to
nothing: which would reduce the standard deviation by less than 2%, and by less than 5% that of what filters have
learned beyond the course. Such a deviation stays, so that records of many slots tell of it: a region that has left its
past is read by itself.

They are joined if their sum is predicted to tell at least twice as much. Let P_k be the variance of region k around the
course, rho the correlation of two regions (`region_correlation` of the model), and R_k = (1 - a_k^2)/lambda the noise
of the records of as many slots as a deviation lasts. Records of region k alone, and of the sum, divided as in
`filters.groups`, reduce P_k by

    P_k^2 / (P_k + R_k)        and        P_k^2 / (S + R_k) (2 c_k - (V + R_k) / (S + R_k))

where S = sum P,  V = S + rho ((sum sqrt(P))^2 - S)  and  c_k = 1 + rho sum_{j != k} sqrt(P_j / P_k): the filter divides
as if regions were independent, and the covariance of region k and the sum is c_k P_k. Both are added up over the
regions in units of sqrt(P_k). Twice, and not once, since a sum does not show which region it is that leaves its past:
its members share what one of them did, until their intervals are so wide that single records tell of them again. Where
the correlation is unknown, nothing predicts a gain, and no regions are joined.

Choices do not flap: the groups of a server's last record stay while no region and no sum is above twice the limits,
unless a new choice would need less than three quarters of the draws.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters import ProcessModel
from dpcrowd.filters.nonnegative import nonnegative_view
from dpcrowd.filters.observation import ROUNDING
from dpcrowd.schemes.records import ungrouped
from dpcrowd.schemes.relay_level import diagonal
from dpcrowd.schemes.relay_state import RelayState, servers_per_run

__all__ = [
    "choose_groups",
    "deviations",
    "grouped_var",
    "is_tolerable",
    "new_groups",
    "record_var",
    "reductions",
    "released",
    "settled_var",
    "shares_of_peers",
    "slot_information",
]

_LARGEST_SUM = 4.0
_STAYS = 2.0
_FEWER_DRAWS = 0.75
_TELLS_NOTHING = 0.02
_TELLS_LITTLE = 0.05
_LASTING = 0.98
"""The least part of a deviation that is left after a slot if the region has another level, as in `filters.learning`."""
_WORTH = 2.0
"""How much more than single records a sum has to tell; it pays for regions that leave their past within a group."""


def slot_information(shares: Floats, noise_var: float, samples: int, length: int) -> float:
    """Return the information per slot of the records of all servers with these shares (m,).

    noise_var  alpha times the variance of a record's noise
    """
    variance = noise_var + np.maximum(shares * (1.0 - shares), ROUNDING)
    return float(samples / length * (shares * shares / variance).sum())


def settled_var(transition: Floats, process_var: Floats, information: Floats | float) -> Floats:
    """Return the variance in which a filter settles: M of 1/M = 1/(a^2 M + q) + information.

    >>> float(settled_var(np.array(1.0), np.array(0.5), 1.0))
    0.5
    """
    square = np.square(transition)
    linear = 1.0 - square + information * process_var
    root = np.sqrt(linear * linear + 4.0 * information * square * process_var)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(process_var > 0.0, 2.0 * process_var / (linear + root), 0.0))


def choose_groups(state: RelayState, slot: int, shares: Floats, due: Bools, samples: int) -> Ints:
    """Return the groups (N, d) of the records that servers are about to make.

    shares   (N, 1) of the servers in this slot, in a simulation; a server on its own knows those of its peers
    due      (N,) which servers make one; the others have every region by itself
    samples  n
    """
    setting = state.setting
    assert state.own_groups is not None
    groups = np.tile(ungrouped(setting.regions), (setting.servers, 1))
    if setting.regions < 2:
        return groups
    level, level_var = released(state)
    if setting.model.course is None:
        level = nonnegative_view(np.where(np.isfinite(level_var), level, np.nan), level_var)
    noise_var, networks = record_var(state), shares_of_peers(state, shares)
    length = setting.need_guarantee().length
    for row in np.flatnonzero(due):
        information = slot_information(networks[row], noise_var, samples, length)
        before = state.own_groups[row]
        fresh = new_groups(setting.model, information, level[row], level_var[row])
        stays = is_tolerable(before, setting.model, information, level[row], level_var[row])
        groups[row] = before if stays and _draws(fresh) > _FEWER_DRAWS * _draws(before) else fresh
    return groups


def record_var(state: RelayState) -> float:
    """Return alpha times the variance of a record's noise."""
    return state.setting.tuning.alpha * float(state.amount_var.max())


def shares_of_peers(state: RelayState, shares: Floats) -> Floats:
    """Return the shares of all servers of each server's network, (N, m), from the shares of the servers (N, 1)."""
    setting = state.setting
    if setting.peers is not None:
        return np.broadcast_to(setting.peers.shares, (setting.servers, len(setting.peers.shares)))
    return np.repeat(shares.reshape(setting.runs, -1), servers_per_run(setting), axis=0)


def released(state: RelayState) -> tuple[Floats, Floats]:
    """Return what each server has released last, or what the course says before that: means and variances, (N, d)."""
    if int(state.last) < 0:
        mean, var, known = state.base, state.base_var, state.base_known
    else:
        place = int(state.last) % state.lag
        mean, var, known = state.mean[place], state.mean_var[place], state.known[place]
    return mean, np.where(known[:, None], diagonal(var), np.inf) if state.setting.form == "matrix" else var


def new_groups(model: ProcessModel, information: float, level: Floats, level_var: Floats) -> Ints:
    """Return groups (d,) chosen for regions with these levels and variances, (d,); infinite: nothing is known yet."""
    groups = ungrouped(model.regions)
    if model.course is not None:
        small = _tells_nothing(model, information, level_var)
        if _worth_of_sums(model, information, level_var, small) >= _WORTH:
            groups[small] = np.flatnonzero(small).min(initial=model.regions)
        return groups
    alone = settled_var(np.ones(()), model.diagonal_var, information)
    deviation = np.sqrt(alone)
    limit = np.sqrt(np.maximum(alone, level_var))
    places = np.flatnonzero(np.isfinite(level_var) & (level <= limit))
    members: list[int] = []
    total, widths = 0.0, 0.0
    for region in [*places.tolist(), None]:
        if region is not None:
            fits = total + level[region] <= _LARGEST_SUM * (widths + deviation[region]) / (len(members) + 1)
            if not members or fits:
                members.append(region)
                total, widths = total + float(level[region]), widths + float(deviation[region])
                continue
        if len(members) > 1 and grouped_var(model, information, total, members) < float(alone[members].mean()):
            groups[members] = members[0]
        if region is not None:
            members, total, widths = [region], float(level[region]), float(deviation[region])
    return groups


def grouped_var(model: ProcessModel, information: float, total: float, members: list[int]) -> float:
    """Return the mean squared error of each of the members of a group with this sum, without a course."""
    number = len(members)
    each = max(total, 0.0) / number
    of_sum = float(settled_var(np.ones(()), np.asarray(model.diagonal_var[members].sum()), information))
    return each * each + max(each, 1.0 / number) + of_sum / number**2


def is_tolerable(before: Ints, model: ProcessModel, information: float, level: Floats, level_var: Floats) -> bool:
    """Whether no region and no sum of earlier groups (d,) is above twice the limits of new ones."""
    joined = np.bincount(before, minlength=len(before))[before] > 1
    if not joined.any():
        return True
    if model.course is not None:
        small = _tells_nothing(model, information, level_var, _STAYS)
        return bool(small[joined].all()) and _worth_of_sums(model, information, level_var, joined) >= _WORTH / _STAYS
    deviation = np.sqrt(settled_var(np.ones(()), model.diagonal_var, information))
    sums = np.bincount(before, weights=level)
    widths = np.bincount(before, weights=deviation) / np.maximum(np.bincount(before), 1)
    sizes = np.bincount(before)
    return bool(
        (level <= _STAYS * np.maximum(deviation, np.sqrt(level_var)))[joined].all()
        and (sums <= _STAYS * _LARGEST_SUM * widths)[sizes > 1].all()
        and np.isfinite(level_var[joined]).all()
    )


def _tells_nothing(model: ProcessModel, information: float, level_var: Floats, factor: float = 1.0) -> Bools:
    """Return of which regions records tell next to nothing, (d,); `factor`: of the limits."""
    a, spread = deviations(model, level_var)
    learned = spread - model.noise_var / (1.0 - a * a)
    by_course = _remaining(a, spread, information) < 1.0 - factor * _TELLS_NOTHING
    by_learning = _remaining(np.maximum(a, _LASTING), learned, information) < 1.0 - factor * _TELLS_LITTLE
    return np.asarray(~(by_course | by_learning))


def _remaining(transition: Floats, spread: Floats, information: float) -> Floats:
    """Return which part of the standard deviation of variances (d,) is left with records; 1: there is none."""
    settled = settled_var(transition, spread * (1.0 - np.square(transition)), information)
    return np.asarray(np.sqrt(np.divide(settled, spread, out=np.ones_like(spread), where=spread > 0.0)))


def _worth_of_sums(model: ProcessModel, information: float, level_var: Floats, members: Bools) -> float:
    """Return how much the sums of a group tell of its `members` (d,), with records of each by itself as the unit."""
    a, spread = deviations(model, level_var)
    members = members & (spread > 0.0)
    if model.region_correlation is None or not members.any():
        return 0.0
    a, spread = a[members], spread[members]
    alone, joined = reductions(a, spread, information, model.region_correlation)
    deviation = np.sqrt(spread)
    return float((joined / deviation).sum() / (alone / deviation).sum())


def reductions(a: Floats, spread: Floats, information: float, correlation: float) -> tuple[Floats, Floats]:
    """Return by how much records of each of some regions, and records of their sum, reduce the variances `spread` (n,).

    >>> alone, joined = reductions(np.zeros(9), np.ones(9), 1e-3, 0.5)
    >>> (float(joined[0]) / float(alone[0])).__round__(1), reductions(np.zeros(2), np.ones(2), 1e-3, 0.0)[1] < alone[:2]
    (8.9, array([ True,  True]))
    """
    deviation, noise = np.sqrt(spread), (1.0 - a * a) / information
    total = float(spread.sum())
    with_sum = spread + correlation * deviation * (float(deviation.sum()) - deviation)  # c P
    of_sum = (float(with_sum.sum()) + noise) / (total + noise)
    joined = spread * (2.0 * with_sum - of_sum * spread) / (total + noise)
    return np.asarray(spread * spread / (spread + noise)), np.asarray(joined)


def deviations(model: ProcessModel, level_var: Floats) -> tuple[Floats, Floats]:
    """Return a and the variance of each region around its course, (d,): as learned, if that is more than it says."""
    a = np.broadcast_to(model.diagonal_transition, level_var.shape)
    settled = model.noise_var / (1.0 - a * a)
    return a, np.maximum(settled, np.where(np.isfinite(level_var), level_var, settled))


def _draws(groups: Ints) -> int:
    """Return how many draws of noise a record with these groups has."""
    return int(np.count_nonzero(groups == ungrouped(len(groups))))
