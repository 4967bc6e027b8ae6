"""Normalised innovations of what one server has just fused from others, by scheme; see `filters.calibration`.

A server compares each measurement of another server with what it had expected for that slot without it. Its own
samples are not among them: it would judge itself by what its prior already rests on.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats
from dpcrowd.filters.calibration import normalised_innovations
from dpcrowd.filters.groups import leads
from dpcrowd.filters.records import Reference, pair_var
from dpcrowd.schemes.base import Plan
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.relay_filter import prior_of
from dpcrowd.schemes.relay_shares import own_records
from dpcrowd.schemes.relay_state import RelayState

__all__ = ["message_innovations", "record_innovations"]


def message_innovations(plan: Plan, known: Bools, messages: InfoMessages) -> Floats:
    """Return the innovations (M, d) of neighbours' messages against the server's prior of the slot.

    known  (1,) whether the prior means anything, with full matrices
    """
    assert plan.prior is not None and plan.prior_var is not None
    values = normalised_innovations(messages.info_vec, messages.info_mat, plan.prior[0], plan.prior_var[0])
    return values if messages.info_mat.ndim == 2 or known.all() else np.full_like(values, np.nan)


def record_innovations(state: RelayState) -> tuple[Floats, Bools]:
    """Return the innovations (M, d) of the records that a server on its own has accepted in its last slot.

    The second array (M, d) says which of them are of the sum of several regions.

    A record of slot s is compared with the prior of slot s, which rests on records of earlier slots only. Records of
    servers that are suspected are left out: they say something about those servers, and count less in the estimate.
    The sum of a group has one innovation, at its lowest region.
    """
    mailbox = state.mailbox
    assert mailbox is not None
    values = [np.zeros((0, state.setting.regions))]
    of_sums: list[Bools] = [np.zeros((0, state.setting.regions), dtype=np.bool_)]
    trusted = np.ones(state.servers, dtype=np.bool_)
    if state.scores is not None:
        trusted = state.scores.penalty()[0] <= 1.0
    counting = mailbox.counting(int(state.last))
    for slot in range(max(int(state.last) - state.lag + 1, 0), int(state.last) + 1):
        place = slot % state.lag
        origins = np.flatnonzero(mailbox.fresh[place] & counting[place] & trusted)
        if not len(origins):
            continue
        rows = np.zeros(len(origins), dtype=np.int64)
        everybody = np.ones(1, dtype=np.bool_)
        table = state.table(slot) if state.learned is None else own_records(state, slot, "numpy", everybody)[1]
        reference = Reference(state.level[place], state.level_var[place])
        variance = pair_var(
            rows, origins, table, reference, state.setting.observation, state.setting.model.one_step_var
        )
        share = table.by_region[origins]
        prior, prior_var = prior_of(state, slot)
        info_vec, info_mat = share * table.values(origins) / variance, share * share / variance
        expected, expected_var = (table.totals(part[rows], origins) for part in (prior, prior_var))
        each = normalised_innovations(info_vec, info_mat, expected, expected_var)
        joint = np.zeros(each.shape, dtype=np.bool_)
        if table.groups is not None:  # the sum of a group is one measurement
            groups = table.groups[origins]
            each = np.where(leads(groups) > 0.0, each, np.nan)
            at, member = np.nonzero(leads(groups) == 0.0)
            joint[at, groups[at, member]] = True
        values.append(each)
        of_sums.append(joint)
    return np.concatenate(values), np.concatenate(of_sums)
