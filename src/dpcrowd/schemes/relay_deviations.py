"""Relay's filter where servers' deviations from their shares are not independent: over time, or of one another.

Where users stay, deviations persist: the records of a slot are fused as `filters.persistence` does it. Where everybody
is drawn anew in every slot, nothing has to be remembered, but the deviations of servers among which all users are
divided still sum to 0 in each slot: `partition_sums`.

Everything is a function of the set of records, summed in order of their origins: servers with the same records have
the same memory of deviations, whichever arrived late.

Regions that a record of the slot joins into groups are fused as if deviations were fresh: see `_without_deviations`.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.kalman import update
from dpcrowd.filters.observation import ROUNDING
from dpcrowd.filters.persistence import (
    PersistentRecords,
    are_partitioned,
    consistent,
    deviation_spread,
    ordered_sum,
    partitioned_information,
    persistent_gain,
    posterior_mean,
    repeated_part,
)
from dpcrowd.filters.records import Reference, held_pairs
from dpcrowd.kernels.engine import Engine
from dpcrowd.schemes.relay_state import RelayState

__all__ = [
    "common_with_deviations",
    "deviations_cancel",
    "equivalent_sums",
    "fuse_deviations",
    "keep_final_deviations",
    "move_deviations",
    "partition_sums",
    "slot_records",
]


_LEAST_VAR = 1e-9
"""In people squared: a server that alone sees everybody may be certain, but no information is infinite."""


def deviations_cancel(state: RelayState, slot: int) -> bool:
    """Whether deviations are fresh in every slot, and those of all servers sum to 0 in some region."""
    setting = state.setting
    if setting.turnover < 1.0 or setting.observation != "binomial" or state.learned is not None:
        return False
    return bool(_partition(state, slot).any())


def partition_sums(
    state: RelayState, slot: int, active: Bools, prior: tuple[Floats, Floats], reference: Reference, engine: Engine
) -> tuple[Floats, Floats]:
    """Return y and Y (N, d) of a slot's records, where the deviations of partitioned servers sum to 0.

    Arguments as of `fuse_deviations`. The usual sums are returned for receivers that are not active, for regions whose
    users are not partitioned, and for those that a record joins into groups.
    """
    y, info = (sums[slot % len(sums)].copy() for sums in (state.y, state.info))
    rows = np.flatnonzero(active)
    records = slot_records(state, slot, active, rows, prior, reference, engine)
    if records is None:
        return y, info
    taken = np.broadcast_to(records.partition, y[rows].shape)
    if state.table(slot).groups is not None:
        taken = taken & ~_joined(state, slot, active, engine)[rows]
    own = partitioned_information(records)
    y[rows], info[rows] = np.where(taken, own[0], y[rows]), np.where(taken, own[1], info[rows])
    return y, info


def fuse_deviations(
    state: RelayState, slot: int, active: Bools, prior: tuple[Floats, Floats], reference: Reference, engine: Engine
) -> tuple[Floats, Floats, Floats]:
    """Return means and variances (N, d) after a slot's records, and remember the deviations of those in `active`.

    The third is which part of what these records change the next ones of the same servers would repeat, (N, d).

    prior      means and variances (N, d); those of receivers that are not active come back as they are
    reference  what the guard has compared the records with
    """
    assert state.cross is not None
    rows = np.flatnonzero(active)
    mean, var, repeated = prior[0].copy(), prior[1].copy(), np.zeros_like(prior[0])
    before_fusing = carried = _carried(state, slot, rows)
    records = slot_records(state, slot, active, rows, prior, reference, engine)
    if records is not None:
        gain = persistent_gain(prior[1][rows], carried, records)
        mean[rows], var[rows], carried = posterior_mean(prior[0][rows], gain, records), gain.var, gain.cross
        if state.bank is not None:
            repeated[rows] = repeated_part(prior[1][rows], gain, records, state.interval)
    if state.table(slot).groups is not None:
        joined = _joined(state, slot, active, engine)[rows]
        alone = _without_deviations(state, slot, rows, prior)
        mean[rows], var[rows] = (np.where(joined, *pair) for pair in zip(alone, (mean[rows], var[rows]), strict=True))
        with np.errstate(invalid="ignore"):
            kept = np.where(joined & np.isfinite(prior[1][rows]), alone[1] / prior[1][rows], 1.0)
        carried = np.where(joined, before_fusing * kept, carried)
        repeated[rows] = np.where(joined, 0.0, repeated[rows])
    state.cross[slot % len(state.cross)][:, rows] = carried
    return mean, var, repeated


def common_with_deviations(state: RelayState, slot: int, prior_var: Floats, people: Floats) -> Floats:
    """Return what errors have in common with the servers' deviations before the records of a slot, (m, N, d).

    prior_var  (N, d) variances of the errors
    people     (N, d) r, for the variance of the deviations
    """
    shares = _shares_by_run(state, slot)
    run = np.arange(state.setting.servers) // (state.setting.servers // state.setting.runs)
    spread = deviation_spread(shares.swapaxes(0, 1)[:, run], people, _partition(state, slot)[run])
    known_var = np.where(np.isfinite(prior_var), prior_var, 0.0)  # an error that is not there has nothing in common
    return consistent(_carried(state, slot, np.arange(state.setting.servers)), spread, known_var)


def _carried(state: RelayState, slot: int, rows: Ints) -> Floats:
    """Return x of the slot before, for the receivers in `rows`, as far as crowd and users are still the same."""
    assert state.cross is not None and state.base_cross is not None
    before = state.cross[(slot - 1) % len(state.cross)]
    if slot in (0, int(state.last) - state.lag + 1):
        before = state.base_cross
    return np.asarray(before[:, rows] * (state.setting.model.carried(slot) * (1.0 - state.setting.turnover)))


def _joined(state: RelayState, slot: int, active: Bools, engine: Engine) -> Bools:
    """Return which regions are in a group with others in any record of this slot that a receiver has, (N, d)."""
    table, holdings = state.table(slot), state.holdings(slot, engine, active)
    receivers, origins = held_pairs(holdings.indptr, holdings.indices, table)
    joined = np.zeros(state.level.shape[1:], dtype=np.bool_)
    np.logical_or.at(joined, receivers, table.joined(origins))
    return joined


def _without_deviations(
    state: RelayState, slot: int, rows: Ints, prior: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Return means and variances of a slot as if deviations were fresh, of the receivers in `rows`.

    Regions are joined where counts are small beside the noise, and so are the deviations of counts.
    """
    sums = state.y[slot % len(state.y)][rows], state.info[slot % len(state.info)][rows]
    return update(prior[0][rows], prior[1][rows], *sums)


def equivalent_sums(prior: tuple[Floats, Floats], posterior: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Return y and Y of the one measurement that leads from a prior to a posterior, (N, d) each."""
    (mean, var), (after, after_var) = prior, posterior
    with np.errstate(divide="ignore", invalid="ignore"):
        known = 1.0 / np.maximum(after_var, _LEAST_VAR)
        info = np.maximum(known - 1.0 / var, 0.0)
        y = np.where(info > 0.0, (after - mean) * known + info * mean, 0.0)
    return y, info


def keep_final_deviations(state: RelayState, place: int) -> None:
    """Let the filter start from the deviations of a slot that is final now."""
    if state.cross is not None and state.base_cross is not None and len(state.cross) == state.lag:
        state.base_cross[:] = state.cross[place]


def move_deviations(state: RelayState, first: int, steps: int) -> None:
    """Pass many slots without records; `first` is the place of the oldest slot."""
    if state.cross is None or state.base_cross is None:
        return
    factor = state.setting.model.diagonal_transition * (1.0 - state.setting.turnover)
    depth, course, last = len(state.cross), state.setting.model.course, int(state.last)
    state.base_cross = state.cross[first % depth] * factor ** (steps - 1)
    state.cross = np.roll(state.cross, steps, axis=0) * factor**steps
    if course is not None and course.scale is not None:
        oldest = last - state.lag + 1
        state.base_cross = state.base_cross * course.ratio(oldest, oldest + steps - 1)
        for slot in range(last - depth + 1, last + 1):
            state.cross[(slot + steps) % depth] *= course.ratio(slot, slot + steps)


def slot_records(
    state: RelayState,
    slot: int,
    active: Bools,
    rows: Ints,
    prior: tuple[Floats, Floats],
    reference: Reference,
    engine: Engine,
) -> PersistentRecords | None:
    """Return the records of a slot that the receivers in `rows` have; None: nobody has made any."""
    setting, table, servers = state.setting, state.table(slot), state.servers
    runs = setting.runs
    made = table.var.reshape(runs, servers) > 0.0
    origins = np.flatnonzero(made.any(axis=0))
    if not len(origins) or not len(rows):
        return None
    run = rows // (setting.servers // runs)
    held = np.zeros((servers, setting.servers), dtype=np.bool_)
    holdings = state.holdings(slot, engine, active)
    receivers, of = held_pairs(holdings.indptr, holdings.indices, table)
    held[of % servers, receivers] = True
    has = held[origins][:, rows][..., None]
    if not has.any():
        return None
    noisy = np.where(has, table.noisy.reshape(runs, servers, -1)[run][:, origins].swapaxes(0, 1), 0.0)
    noise_var = np.where(has, table.var.reshape(runs, servers)[run][:, origins].T[..., None], 1.0)
    by_run = _shares_by_run(state, slot)
    partition = _partition(state, slot)
    shares = by_run.swapaxes(0, 1)[:, run]
    share = shares[origins]
    with np.errstate(invalid="ignore", divide="ignore"):
        claim = ordered_sum(noisy) / ordered_sum(np.where(has, share, 0.0))
    expected = np.where(np.isfinite(prior[1][rows]), prior[0][rows], np.nan_to_num(claim))
    expected = np.where(np.isfinite(reference.level_var[rows]), reference.level[rows], expected)
    people = np.maximum(expected, 1.0)
    usual = noise_var + np.maximum(share * (1.0 - share) * people, ROUNDING)
    factor = _guard(state, slot, rows, origins, (noisy, noise_var, share, usual), reference)
    noise = np.where(has, noise_var + usual * (factor - 1.0), np.inf)
    return PersistentRecords(origins, noisy, noise, shares, people, partition[run])


def _partition(state: RelayState, slot: int) -> Bools:
    """Return in which regions the deviations of all servers sum to 0, (runs, 1) or (runs, d).

    Shares that sum to 1 are no partition where users may be at several servers: some are then at none.
    """
    guarantee = state.setting.guarantee
    at_one_server = guarantee is None or guarantee.servers_per_slot == 1
    return are_partitioned(_shares_by_run(state, slot)) & at_one_server


def _shares_by_run(state: RelayState, slot: int) -> Floats:
    """Return the shares of all servers in a slot, (runs, m, 1) or (runs, m, d)."""
    return state.table(slot).by_region.reshape(state.setting.runs, state.servers, -1)


def _guard(
    state: RelayState,
    slot: int,
    rows: Ints,
    origins: Ints,
    records: tuple[Floats, Floats, Floats, Floats],
    reference: Reference,
) -> Floats:
    """Return the factors, at least 1, by which guard and penalties multiply the variances of records, (k, n, d)."""
    noisy, noise_var, share, usual = records
    factor = np.ones_like(noisy)
    if reference.prior is not None and reference.prior_var is not None:
        expected, expected_var = reference.prior[rows], reference.prior_var[rows]
        squared = np.square(noisy - share * expected) / (usual + share * share * expected_var)
        scale = state.scale[slot % state.lag][rows][:, None]
        below = np.minimum(noisy, 0.0)
        ratio = np.maximum(squared / scale, below * below / noise_var) / reference.limit
        factor = np.maximum(factor, ratio)
    if reference.penalty is not None:
        penalty = reference.penalty[rows][:, origins].T[..., None]
        if reference.penalised is not None:
            penalty = np.where(reference.penalised[rows][:, None], penalty, 1.0)
        factor = factor * penalty
    return factor
