"""What the records of other servers say by themselves about the complete population, to be shown beside the estimate.

A record holds noisy counts z of a share H of the people, so z / H estimates everybody, with the variance R / H² of the
filter's own observation. It uses nothing but that record: whoever sees records and estimate side by side sees whether
servers agree. Every record was noised and paid for by its origin, so showing it costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.records import RecordTable, Reference, pair_var
from dpcrowd.schemes.relay_state import RelayState

__all__ = ["RecordEstimates", "record_estimates"]


@dataclass(frozen=True)
class RecordEstimates:
    """Estimates of the population by single records.

    origin, slot           (M,) number of the server that has signed the record, and the slot of its counts
    value, variance        (M, d) by region; NaN for regions that share one draw with others
    total, total_variance  (M,) of all regions together
    """

    origin: Ints
    slot: Ints
    value: Floats
    variance: Floats
    total: Floats
    total_variance: Floats


def record_estimates(state: RelayState) -> RecordEstimates:
    """Return the estimates by the records of others that a server on its own has accepted in its last slot."""
    mailbox, setting = state.mailbox, state.setting
    assert mailbox is not None
    origins, slots = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    values, variances = [np.zeros((0, setting.regions))], [np.zeros((0, setting.regions))]
    alone = [np.zeros((0, setting.regions), dtype=np.bool_)]
    for slot in range(max(int(state.last) - state.lag + 1, 0), int(state.last) + 1):
        place = slot % state.lag
        fresh = np.flatnonzero(mailbox.fresh[place] & mailbox.held[place])
        fresh = fresh[fresh != mailbox.number]
        if not len(fresh):
            continue
        table, rows = state.table(slot), np.zeros(len(fresh), dtype=np.int64)
        reference = Reference(state.level[place], state.level_var[place])
        variance = pair_var(rows, fresh, table, reference, setting.observation, setting.model.one_step_var)
        share = table.by_region[fresh]
        origins.append(fresh)
        slots.append(np.full(len(fresh), slot))
        values.append(table.noisy[fresh] / share)
        variances.append(variance / (share * share))
        alone.append(_alone(table, fresh))
    value, variance, by_itself = np.concatenate(values), np.concatenate(variances), np.concatenate(alone)
    return RecordEstimates(
        origin=np.concatenate(origins),
        slot=np.concatenate(slots),
        value=np.where(by_itself, value, np.nan),
        variance=np.where(by_itself, variance, np.nan),
        total=value.sum(axis=1),
        total_variance=variance.sum(axis=1),
    )


def _alone(table: RecordTable, origins: Ints) -> Bools:
    """Return which regions (M, d) of these records share their draw with no other region."""
    if table.groups is None:
        return np.ones((len(origins), table.noisy.shape[1]), dtype=np.bool_)
    groups = table.groups[origins]
    sizes = np.zeros_like(groups)
    np.add.at(sizes, (np.arange(len(groups))[:, None], groups), 1)
    return np.asarray(np.take_along_axis(sizes, groups, axis=1) == 1)
