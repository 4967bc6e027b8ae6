"""What the records of other servers say by themselves about the complete population, to be shown beside the estimate.

A record holds noisy counts z of a share H of the people, so z / H estimates everybody, with the variance R / H² of the
filter's own observation. It uses nothing but that record: whoever sees records and estimate side by side sees whether
servers agree. Every record was noised and paid for by its origin, so showing it costs nothing.

Where shares are learned (`relay_shares`), H is the share that the filter itself uses in the slot, and R includes the
variance of its error: divided by the public share, every record of a server whose public share is wrong would lie
beside the estimate, which has corrected it. Learned shares are a function of final records: they cost nothing, either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.filters.groups import leads
from dpcrowd.filters.records import Reference, pair_var
from dpcrowd.schemes.relay_filter import prior_of
from dpcrowd.schemes.relay_level import crowd_level
from dpcrowd.schemes.relay_shares import own_records
from dpcrowd.schemes.relay_state import RelayState

__all__ = ["RecordEstimates", "record_estimates"]


@dataclass(frozen=True)
class RecordEstimates:
    """Estimates of the population by single records.

    origin, slot           (M,) number of the server that has signed the record, and the slot of its counts
    value, variance        (M, d) by region; NaN for regions that share one draw with others
    total, total_variance  (M,) of all regions together
    share                  (M, d) by which the counts were divided; (M, 1): the same in all regions
    learned                whether these shares were learned from records, and are not the public ones
    """

    origin: Ints
    slot: Ints
    value: Floats
    variance: Floats
    total: Floats
    total_variance: Floats
    share: Floats
    learned: bool = False


def record_estimates(state: RelayState) -> RecordEstimates:
    """Return the estimates by the records of others that a server on its own has accepted in its last slot."""
    mailbox, setting = state.mailbox, state.setting
    assert mailbox is not None
    origins, slots = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    values, variances = [np.zeros((0, setting.regions))], [np.zeros((0, setting.regions))]
    alone = [np.zeros((0, setting.regions), dtype=np.bool_)]
    of_total = [np.zeros((0, setting.regions))]  # a group is one measurement, which is at its lowest region
    by_region = state.learned is not None or state.shares.ndim > 2
    shares, everybody = [np.zeros((0, setting.regions if by_region else 1))], np.ones(1, dtype=np.bool_)
    for slot in range(max(int(state.last) - state.lag + 1, 0), int(state.last) + 1):
        place = slot % state.lag
        fresh = np.flatnonzero(mailbox.fresh[place] & mailbox.held[place])
        fresh = fresh[fresh != mailbox.number]
        if not len(fresh):
            continue
        table = state.table(slot) if state.learned is None else own_records(state, slot, "numpy", everybody)[1]
        rows = np.zeros(len(fresh), dtype=np.int64)
        reference = Reference(*crowd_level(state, slot, *prior_of(state, slot)))
        variance = pair_var(rows, fresh, table, reference, setting.observation, setting.model.one_step_var)
        share = table.by_region[fresh]
        origins.append(fresh)
        slots.append(np.full(len(fresh), slot))
        values.append(table.noisy[fresh] / share)
        variances.append(variance / (share * share))
        alone.append(~table.joined(fresh))
        of_total.append(variances[-1] if table.groups is None else variances[-1] * leads(table.groups[fresh]))
        shares.append(share)
    value, variance, by_itself = np.concatenate(values), np.concatenate(variances), np.concatenate(alone)
    return RecordEstimates(
        origin=np.concatenate(origins),
        slot=np.concatenate(slots),
        value=np.where(by_itself, value, np.nan),
        variance=np.where(by_itself, variance, np.nan),
        total=value.sum(axis=1),
        total_variance=np.concatenate(of_total).sum(axis=1),
        share=np.concatenate(shares),
        learned=state.learned is not None,
    )
