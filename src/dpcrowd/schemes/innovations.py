"""Normalised innovations of what one server has just fused from others, by scheme; see `filters.calibration`.

A server compares each measurement of another server with what it had expected for that slot without it. Its own
samples are not among them: it would judge itself by what its prior already rests on.

A record z = H r + delta + noise has the innovation n = z - H m against the prior mean m = r + e, and with P = Var(e)

    Var(n) = H^2 P + Var(delta) + Var(noise) - 2 H Cov(e, delta)

The last term is 0 if everybody is drawn anew in every slot. Where users stay, the error of a server that has heard the
origin before is in part the origin's own deviation, and its next record confirms it: the filter knows how much
(`filters.persistence`). Where shares are learned, the error of H is not independent of e, either: then the joint filter
says what it had expected (`filters.share_innovations`). Without these terms intervals would look wider than they are.

Records say nothing of servers that were never heard: an error in what they count is in no innovation.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.calibration import normalised, normalised_innovations
from dpcrowd.filters.groups import leads
from dpcrowd.filters.observation import ROUNDING
from dpcrowd.filters.records import RecordTable, Reference, pair_var
from dpcrowd.filters.share_innovations import share_innovations
from dpcrowd.schemes.base import Plan
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.relay_deviations import common_with_deviations
from dpcrowd.schemes.relay_filter import prior_of
from dpcrowd.schemes.relay_level import crowd_level
from dpcrowd.schemes.relay_share_steps import expected_of_records
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
        table = state.table(slot)
        of_slot = _of_public_shares if state.learned is None else _of_learned_shares
        each = of_slot(state, slot, origins)
        joint = np.zeros(each.shape, dtype=np.bool_)
        if table.groups is not None:  # the sum of a group is one measurement
            groups = table.groups[origins]
            each = np.where(leads(groups) > 0.0, each, np.nan)
            at, member = np.nonzero(leads(groups) == 0.0)
            joint[at, groups[at, member]] = True
        values.append(each)
        of_sums.append(joint)
    return np.concatenate(values), np.concatenate(of_sums)


def _of_public_shares(state: RelayState, slot: int, origins: Ints) -> Floats:
    """Return the innovations (M, d) of the records of a slot, with public shares."""
    table, setting = state.table(slot), state.setting
    rows = np.zeros(len(origins), dtype=np.int64)
    prior, prior_var = prior_of(state, slot)
    reference = Reference(*crowd_level(state, slot, prior, prior_var))
    if state.cross is not None:  # the filter takes its prior for the crowd where nothing else is known of it
        is_known = np.isfinite(reference.level_var)
        reference = Reference(
            np.where(is_known, reference.level, prior), np.where(is_known, reference.level_var, prior_var)
        )
    variance = pair_var(rows, origins, table, reference, setting.observation, setting.model.one_step_var)
    share = table.by_region[origins]
    info_vec, info_mat = share * table.values(origins) / variance, share * share / variance
    expected, expected_var = (table.totals(part[rows], origins) for part in (prior, prior_var))
    if state.cross is not None:
        common = common_with_deviations(state, slot, prior_var, np.maximum(reference.level, 1.0))[origins, 0]
        expected_var = _less_common(expected_var, table.totals(common, origins), variance, table, origins)
    return normalised_innovations(info_vec, info_mat, expected, expected_var)


def _less_common(prior_var: Floats, common: Floats, variance: Floats, table: RecordTable, origins: Ints) -> Floats:
    """Return the variances with which H^2 P + R is Var(n): P - 2 Cov(e, delta)/H, (M, d).

    prior_var  (M, d) P
    common     (M, d) Cov(e, delta), which is no larger than P and Var(delta) allow
    variance   (M, d) R = Var(delta) + Var(noise)

    A count is a whole number, so that Var(n) - Var(noise) is at least `ROUNDING`.
    """
    share, spread = table.by_region[origins], variance - table.var[origins][:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.sqrt(prior_var * spread)
        left = prior_var - 2.0 * np.clip(common, -most, most) / share
        return np.where(np.isfinite(prior_var), np.maximum(left, (ROUNDING - spread) / np.square(share)), np.inf)


def _of_learned_shares(state: RelayState, slot: int, origins: Ints) -> Floats:
    """Return the innovations (M, d) of the records of a slot against what the joint filter had expected of them."""
    assert state.learned is not None
    prior = prior_of(state, slot)
    known, expected, held = expected_of_records(state, slot, prior)
    public = state.learned.learner.public[state.learned.learner.members[0]]
    innovation, variance = share_innovations(known, expected, public, state.setting.share_width)
    which = np.searchsorted(held, origins)
    return normalised(innovation.T[which], np.where(np.isfinite(prior[1][0]), variance.T[which], np.inf))
