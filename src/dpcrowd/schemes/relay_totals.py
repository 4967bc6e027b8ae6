"""Which records have the complete crowd as one sum, where servers choose groups and know a model.

A model says how a crowd divides among its regions, and what it cannot say is whether the crowd has grown since. One
number g answers that for all regions, r_k = mu_k (1 + g) + e_k (`filters.common_level`), and a record with one draw of
noise on the sum of all regions shows it best: of d equal regions with a draw each, the sum has d times the variance of
noise. But such a record says nothing of single regions. So all records, every second one, or none of them have the
sum, whichever is predicted to leave the smallest error

    sum_k sqrt(M_k + mu_k^2 G)

M_k is what records leave of the variance P_k of region k around the course: those of single regions, as many as there
are (`settled_var`), and then the sums (`reductions`). G is what they leave of the variance of g, which is 0.1^2
beforehand: a crowd is expected to have moved by a tenth. A record adds to the information on g

    (sum_k mu_k)^2 / (V L + R)          and           sum_k mu_k^2 / (P_k L + R_k)

if it has the sum of all regions, or one number per region; R is its variance, V the variance of the sum and
L = (1 + a)/(1 - a), since records of successive slots find the same deviation.

Where records of single regions would reduce the standard deviations by more than a fifth, none have the sum: what they
tell of each region is certain, and that the crowd has moved is not. All have it only where single ones would reduce
them by less than 2%, and sums, by what regions have in common, by at least twice as much as these: else nobody would
see regions that move apart.

Everything here is public: model, shares, schedule and what a server has released before.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters import ProcessModel
from dpcrowd.filters.common_level import RETURN
from dpcrowd.filters.observation import ROUNDING
from dpcrowd.schemes.relay_groups import (
    deviations,
    record_var,
    reductions,
    released,
    settled_var,
    shares_of_peers,
)
from dpcrowd.schemes.relay_state import RelayState, servers_per_run

__all__ = ["PARTS", "has_total", "join_all", "part_of_totals", "remaining_variance"]

PARTS = (0.0, 0.5, 1.0)
"""Which part of the records may have the sum of all regions."""
_MOVED = 0.1
"""By which part of itself a crowd is expected to have moved since the model was fitted."""
_TELLS_MUCH, _TELLS_NOTHING = 0.8, 0.98
"""Single records tell much if they leave less than the first part of the standard deviations, and next to nothing if
they leave more than the second.
"""
_WORTH = 2.0
"""How much more than single records sums have to tell of the regions themselves, if all records are to have them."""


def join_all(state: RelayState, slot: int, shares: Floats, due: Bools, samples: int, shift: Ints) -> Bools:
    """Return which servers (N,) have the sum of all regions in the records that they are about to make.

    shares   (N, 1) of the servers in this slot, in a simulation; a server on its own knows those of its peers
    due      (N,) which servers make one
    samples  n
    shift    (N, 1) slots by which the schedule has moved
    """
    setting, joined = state.setting, np.zeros_like(due)
    if setting.model.course is None:
        return joined
    length, noise_var, networks = setting.need_guarantee().length, record_var(state), shares_of_peers(state, shares)
    level_var = released(state)[1]
    offsets = np.zeros(len(due), dtype=np.int64) if setting.phases is None else setting.phases
    number = np.arange(len(due)) % servers_per_run(setting)
    if state.mailbox is not None:
        number = np.array([state.mailbox.number])
    for row in np.flatnonzero(due):
        part = part_of_totals(setting.model, networks[row], noise_var, samples / length, level_var[row])
        joined[row] = has_total(part, slot - int(shift[row, 0]), int(offsets[row]), samples, length, int(number[row]))
    return joined


def part_of_totals(model: ProcessModel, shares: Floats, noise_var: float, rate: float, level_var: Floats) -> float:
    """Return which part of all records has the sum of all regions: one of `PARTS`.

    shares     (m,) of all servers
    noise_var  alpha times the variance of a record's noise
    rate       n/w, records per server and slot
    level_var  (d,) the variances that the server has released last
    """
    if model.course is None or model.region_correlation is None or model.regions < 2:
        return 0.0
    spread = deviations(model, level_var)[1]
    single, together = (remaining_variance(model, shares, noise_var, rate, level_var, part) for part in (0.0, 1.0))
    deviation = np.sqrt(spread)
    left, before = float(np.sqrt(single).sum()), float(deviation.sum())
    if left < _TELLS_MUCH * before:
        return 0.0
    by_single, by_sums = (
        float(np.divide(spread - one, deviation, out=np.zeros_like(one), where=spread > 0.0).sum())
        for one in (single, together)
    )
    go_together = by_sums >= _WORTH * by_single
    parts = PARTS if go_together and left > _TELLS_NOTHING * before else PARTS[:-1]
    expected = model.course.profile.mean(axis=0)
    errors = [
        np.sqrt(
            remaining_variance(model, shares, noise_var, rate, level_var, part)
            + np.square(expected) * _level_var(model, shares, noise_var, rate, spread, part)
        ).sum()
        for part in parts
    ]
    return parts[int(np.argmin(errors))]


def remaining_variance(
    model: ProcessModel, shares: Floats, noise_var: float, rate: float, level_var: Floats, part: float
) -> Floats:
    """Return M (d,): what records leave of the variances around the course if this part of them has the sum."""
    assert model.course is not None
    a, spread = deviations(model, level_var)
    expected = model.course.profile.mean(axis=0)
    single = rate * (1.0 / _variances(shares, noise_var, expected)).sum(axis=0)
    left = settled_var(a, spread * (1.0 - a * a), (1.0 - part) * single)
    if part == 0.0:
        return left
    total = rate * float((1.0 / _variances(shares, noise_var, expected.sum(keepdims=True))).sum())
    told = reductions(a, left, part * total, model.region_correlation or 0.0)[1]
    return np.asarray(left - np.clip(told, 0.0, left))


def has_total(part: float, slot: int, offset: int, samples: int, length: int, number: int) -> bool:
    """Whether a server has the sum in its record of this slot, if that part of all records does.

    If it is every second one, half of the servers begin with it and the others with the next. The slot is that of the
    schedule, `offset` that of the server, and `number` its place in the network.

    >>> [has_total(0.5, slot, 0, 1, 10, number) for number in (0, 1) for slot in (0, 10, 20)]
    [True, False, True, False, True, False]
    """
    return ((slot * samples - offset) // length + number) % 2 < 2 * part


def _variances(shares: Floats, noise_var: float, people: Floats) -> Floats:
    """Return R/H^2 of records of the servers (m,) on so many people (k,), (m, k)."""
    share = shares[:, None]
    return np.asarray(
        (noise_var + np.maximum(share * (1.0 - share) * np.maximum(people, 1.0), ROUNDING)) / (share * share)
    )


def _level_var(
    model: ProcessModel, shares: Floats, noise_var: float, rate: float, spread: Floats, part: float
) -> float:
    """Return G, what records leave of the variance of g."""
    assert model.course is not None
    a = np.broadcast_to(model.diagonal_transition, spread.shape)
    lasting = spread * (1.0 + a) / (1.0 - a)
    expected, deviation = model.course.profile.mean(axis=0), np.sqrt(lasting)
    of_sum = lasting.sum() + (model.region_correlation or 0.0) * (deviation.sum() ** 2 - lasting.sum())
    total = expected.sum(keepdims=True)
    by_sum = np.square(total) / (of_sum + _variances(shares, noise_var, total))
    by_region = np.square(expected) / (lasting + _variances(shares, noise_var, expected))
    information = rate * (part * by_sum.sum() + (1.0 - part) * by_region.sum())
    step = np.array(_MOVED**2 * (1.0 - RETURN**2))
    return float(settled_var(np.array(RETURN), step, float(information)))
