"""Relay's filter: posteriors of the last L slots from the records that each server has.

    begin_slot   the oldest slot becomes final: the filter starts from its state, the scores of its records' origins
                 change (`filters.origins`), and the new slot takes its place
    end_slot     the records of the slot have arrived: the filter runs again from the oldest slot with a new record
    skip_slots   a server was away for some slots, in which it has sampled and received nothing

The crowd behind the binomial variance of slot s, and what the guard compares with, is the prior that the records before
the slot lead to (`relay_level`); scores of origins come from final slots. So the estimate is a function of the set of
records, whatever their order.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters import predict, predict_matrix, update, update_matrix
from dpcrowd.filters.ahead import predict_ahead, predict_ahead_matrix
from dpcrowd.filters.bank_estimate import combined
from dpcrowd.filters.fresh_evidence import fresh_evidence, squared_surprise
from dpcrowd.filters.groups import GroupedSums, group_sizes
from dpcrowd.filters.learning import Priors, predict_bank, update_bank
from dpcrowd.filters.origins import persistence_of, start_penalty
from dpcrowd.filters.records import Posterior, RecordSums, RecordTable, Reference, Split, record_sums
from dpcrowd.kernels.engine import Engine
from dpcrowd.network.bit_spread import Words
from dpcrowd.network.spread import Holdings
from dpcrowd.schemes.records import ungrouped
from dpcrowd.schemes.relay_deviations import (
    deviations_cancel,
    equivalent_sums,
    fuse_deviations,
    keep_final_deviations,
    move_deviations,
    partition_sums,
)
from dpcrowd.schemes.relay_level import crowd_level, diagonal, expected_level
from dpcrowd.schemes.relay_shares import (
    fuse_learned,
    keep_final_filters,
    keep_shares,
    missing_slots,
    own_records,
    pass_many_slots,
)
from dpcrowd.schemes.relay_state import RelayState, fill_from_course, reset_banks
from dpcrowd.schemes.relay_surprise import crowd_variance

__all__ = [
    "LIMIT",
    "OFF",
    "begin_slot",
    "complete_filters",
    "end_slot",
    "prior_of",
    "skip_slots",
    "with_bursts",
]


LIMIT = 36.0
"""A record counts less if its squared normalised innovation is above this; honest noise is, once in thousands."""

OFF = 4.0
"""The prior, and not the records, is off if the lower quartile of their squared normalised innovations is above."""


_IN_WORDS = Holdings.none(0)  # what is passed where the records are given as bits


def begin_slot(state: RelayState, slot: int, engine: Engine) -> None:
    """Let a slot take the place of the one that is final now."""
    _finalise(state, slot, engine)
    place = slot % state.lag
    state.noisy[place], state.var[place] = 0.0, 0.0
    if state.groups is not None:
        state.groups[place] = ungrouped(state.setting.regions)
        if (state.groups == ungrouped(state.setting.regions)).all():
            state.groups = None
    if state.mailbox is not None:
        assert state.setting.peers is not None
        state.shares[place] = state.setting.peers.shares
        state.mailbox.open(slot)


def end_slot(state: RelayState, slot: int, oldest: Ints, guard: bool, engine: Engine) -> None:
    """Run the filter again, of each server from the `oldest` slot (N,) with a new record on.

    The guard's priors change with it, so a server sums all slots from its oldest change on again.
    """
    state.last = np.array(slot)
    complete_filters(state, int(oldest.min()), engine)
    for one in range(int(oldest.min()), slot + 1):
        _filter(state, one, oldest <= one, guard, engine)


def skip_slots(state: RelayState, until: int, guard: bool, engine: Engine) -> None:
    """Pass the slots before `until` in which a server was away.

    After L of them all its records are final, and it only predicts. A server that begins later than its network has
    missed nothing: it keeps its phase.
    """
    if int(state.last) < 0:
        state.last = np.array(until - 1)
        if until > 0 and state.setting.model.course is not None:
            fill_from_course(state, until)
    if int(state.last) + 1 == until:
        return
    for slot in range(int(state.last) + 1, min(until, int(state.last) + 1 + state.lag)):
        begin_slot(state, slot, engine)
        end_slot(state, slot, np.full(state.setting.servers, slot), guard, engine)
    if state.last + 1 < until:
        _jump(state, until - 1)


def _jump(state: RelayState, slot: int) -> None:
    """Go on to a slot when all records are final: every posterior is predicted."""
    setting, steps = state.setting, slot - int(state.last)
    ahead = predict_ahead_matrix if setting.form == "matrix" else predict_ahead
    first = (int(state.last) + 1) % state.lag
    base, base_var = state.mean[first], state.mean_var[first]
    former_base = state.base.copy(), state.base_var.copy()
    state.base, state.base_var = ahead(base, base_var, setting.model, steps - 1, slot - state.lag)
    state.base_known, state.base_recent = state.known[first].copy(), state.recent[first].copy()
    if state.scores is not None:
        state.penalty[:] = state.scores.penalty()
        state.suspicious[:] = state.scores.suspicious
    for name, mean, var in (("mean", state.mean, state.mean_var), ("level", state.level, state.level_var)):
        one = predict_ahead if name == "level" else ahead
        values = one(mean, var, setting.model, steps) if setting.model.course is None else None
        moved = [np.roll(part, steps, axis=0) for part in values] if values else [mean.copy(), var.copy()]
        if values is None:  # every slot has its own expectation
            for before in range(int(state.last) - state.lag + 1, int(state.last) + 1):
                place, after = before % state.lag, before + steps
                mean_var = one(mean[place], var[place], setting.model, steps, after)
                moved[0][after % state.lag], moved[1][after % state.lag] = mean_var
        mean[:], var[:] = moved
    reset_banks(state)
    move_deviations(state, first, steps)
    pass_many_slots(state, (int(state.last) - state.lag, slot - state.lag), former_base)
    state.last = np.array(slot)


def prior_of(state: RelayState, slot: int) -> tuple[Floats, Floats]:
    """Return means and variances (N, d) that records of earlier slots predict for a slot; infinite: nothing is known.

    The slot is one of the last L, and the filter has run for the last one.
    """
    model, before = state.setting.model, (slot - 1) % state.lag
    if state.bank is not None:
        return combined(_bank_priors(state, slot), state.beliefs)
    from_base = slot in (0, int(state.last) - state.lag + 1)
    mean, var, known = state.mean[before], state.mean_var[before], state.known[before]
    if from_base:
        mean, var, known = state.base, state.base_var, state.base_known
    if state.setting.form == "matrix":
        prior, prior_var = predict_matrix(mean, var, model, slot)
        return prior, np.where(known[:, None], diagonal(prior_var), np.inf)
    return predict(mean, var, model, slot)


def _bank_priors(state: RelayState, slot: int) -> Priors:
    """Return what each of the filters that learn predicts for a slot."""
    assert state.bank is not None and state.base_bank is not None
    bank = state.bank.at((slot - 1) % state.lag)
    if slot in (0, int(state.last) - state.lag + 1):
        bank = state.base_bank
    return predict_bank(bank, state.setting.model, state.beliefs, slot)


def _filter(state: RelayState, slot: int, active: Bools, guard: bool, engine: Engine) -> None:
    """Posteriors of a slot: predicted from the slot before, with the slot's records, summed again where `active`."""
    model, lag, matrix = state.setting.model, state.lag, state.setting.form == "matrix"
    place, before = slot % lag, (slot - 1) % lag
    mean, var, known = state.mean[before], state.mean_var[before], state.known[before]
    recent = state.recent[before]
    if slot in (0, int(state.last) - lag + 1):
        mean, var, known, recent = state.base, state.base_var, state.base_known, state.base_recent
    if state.bank is not None:
        _filter_bank(state, slot, active, (known, recent), guard, engine)
        return
    if matrix:
        prior, prior_var = predict_matrix(mean, var, model, slot)
        if not known.all():
            prior_var = np.where(known[:, None, None], prior_var, var)
    else:
        prior, prior_var = predict(mean, var, model, slot)
    if state.cross is not None or state.learned is not None:
        reference = _sum(state, slot, active, known, (prior, prior_var), recent if guard else None, engine)
        doubted = prior_var * _doubt(state, place)[:, None]
        _put(state, place, active, *_fuse(state, slot, active, (prior, doubted), reference, engine)[:2])
        return
    cancels = deviations_cancel(state, slot)
    if not matrix and (cancels or _bursts(state) is not None):
        reference = _sum(state, slot, active, known, (prior, prior_var), recent if guard else None, engine)
        doubted = prior_var * _doubt(state, place)[:, None]
        sums = state.y[slot % len(state.y)], state.info[slot % len(state.info)]
        if cancels:
            sums = partition_sums(state, slot, active, (prior, doubted), reference, engine)
        mean, var = update(prior, doubted, *sums)
        _put(state, place, active, mean, var)
        return
    if not matrix:
        posterior = Posterior(prior, prior_var, state.mean[place], state.mean_var[place], state.known[place], OFF)
        _sum(state, slot, active, known, (prior, prior_var), recent if guard else None, engine, posterior)
        return
    spread = np.where(known[:, None], diagonal(prior_var), np.inf)
    full = np.zeros((*state.info[place].shape, state.info.shape[2]))
    reference = _sum(state, slot, active, known, (prior, spread), recent if guard else None, engine, full=full)
    doubt = _doubt(state, place)[:, None, None]
    rows = active  # of the others, no sum over groups is kept: their posteriors stay
    if state.table(slot).groups is None:
        rows = np.ones_like(active)
        if cancels:
            sums = partition_sums(state, slot, active, (prior, spread), reference, engine)
            state.y[place], state.info[place] = sums
        diagonal(full)[:] = state.info[place]
    state.mean[place][rows], state.mean_var[place][rows], state.known[place][rows] = update_matrix(
        prior[rows], (prior_var * doubt)[rows], known[rows], state.y[place][rows], full[rows]
    )


def _put(state: RelayState, place: int, active: Bools, mean: Floats, var: Floats) -> None:
    """Take means and variances (N, d) for the posteriors of those in `active`."""
    state.mean[place][active], state.mean_var[place][active] = mean[active], var[active]
    state.known[place][active] = np.isfinite(var[active]).all(axis=1)


def _filter_bank(
    state: RelayState, slot: int, active: Bools, before: tuple[Bools, Floats], guard: bool, engine: Engine
) -> None:
    """Posteriors of a slot by filters that learn; `before`: known and recent of the slot before."""
    assert state.bank is not None
    model, place = state.setting.model, slot % state.lag
    beliefs, priors = state.beliefs, _bank_priors(state, slot)
    prior, prior_var = combined(priors, beliefs)
    known, recent = before
    by_groups: list[GroupedSums] = []
    reference = _sum(
        state, slot, active, known, (prior, prior_var), recent if guard else None, engine, by_groups=by_groups
    )
    doubt = _doubt(state, place)[:, None]
    if state.learned is not None:
        prior_var = crowd_variance(state, slot, active, (prior, prior_var), priors, engine)
    fresh: Floats | float = 1.0
    if state.cross is not None or state.learned is not None:
        doubted = prior, prior_var * doubt
        mean, var, repeated = _fuse(state, slot, active, doubted, reference, engine)
        sums, stays = equivalent_sums(doubted, (mean, var)), (1.0 - state.setting.turnover) ** state.interval
        fresh = fresh_evidence(repeated, stays, squared_surprise((prior, prior_var), sums), considered=True)
        state.y[place][active], state.info[place][active] = sums[0][active], sums[1][active]
    elif deviations_cancel(state, slot):
        sums = partition_sums(state, slot, active, (prior, prior_var * doubt), reference, engine)
        state.y[place], state.info[place] = sums
    y, info, grouped = _apart(state.y[place], state.info[place], by_groups)
    fuse = partial(update_bank, beliefs=beliefs, grouped=grouped, bounded=model.course is None, fresh=fresh)
    after = fuse(priors, y, info)
    if (contradicted := doubt[:, 0] > 1.0).any():
        after.follow(fuse(priors.widened(doubt), y, info), contradicted)
    state.bank.put(place, after, active)  # of the others, no sums over groups are kept: their posteriors stay
    state.mean[place], state.mean_var[place] = combined(state.bank.at(place), beliefs)
    state.known[place] = np.isfinite(state.mean_var[place]).all(axis=1)


def _apart(y: Floats, info: Floats, by_groups: list[GroupedSums]) -> tuple[Floats, Floats, list[GroupedSums]]:
    """Return the information of a slot's records in two parts: of regions that no record joins with others, (N, d)
    each, and of the others by the groups of the records, before it is divided.
    """
    joined = np.zeros(y.shape, dtype=np.bool_)
    for sums in by_groups:
        joined |= (sums.info > 0.0) & (group_sizes(sums.groups) > 1)
    grouped = [
        replace(sums, y=np.where(joined, sums.y, 0.0), info=np.where(joined, sums.info, 0.0)) for sums in by_groups
    ]
    return np.where(joined, 0.0, y), np.where(joined, 0.0, info), grouped


def _fuse(
    state: RelayState, slot: int, active: Bools, prior: tuple[Floats, Floats], reference: Reference, engine: Engine
) -> tuple[Floats, Floats, Floats]:
    """Return means and variances after the records of a slot, where servers deviate from their shares for long.

    The third is which part of it the next records would repeat; none where shares are learned: all servers are heard.
    """
    if state.learned is not None:
        learned = fuse_learned(state, slot, active, prior, _doubt(state, slot % state.lag), engine)
        return *learned, np.zeros(())
    return fuse_deviations(state, slot, active, prior, reference, engine)


def _doubt(state: RelayState, place: int) -> Floats:
    """Return the factor by which the variance of the prior is enlarged, (N,): the records say that it is off."""
    return np.where(state.scale[place] > OFF, state.scale[place], 1.0)


def complete_filters(state: RelayState, until: int, engine: Engine) -> None:
    """Run the filters of learned shares over slots before `until` again, if they are missing."""
    everybody = np.ones(state.setting.servers, dtype=np.bool_)
    for slot in missing_slots(state, until):
        prior, prior_var = prior_of(state, slot)
        if state.bank is not None:
            prior_var = crowd_variance(state, slot, everybody, (prior, prior_var), _bank_priors(state, slot), engine)
        doubt = _doubt(state, slot % state.lag)
        fuse_learned(state, slot, everybody, (prior, prior_var * doubt[:, None]), doubt, engine, again=True)


def _sum(
    state: RelayState,
    slot: int,
    active: Bools,
    known: Bools,
    priors: tuple[Floats, Floats],
    recent: Floats | None,
    engine: Engine,
    posterior: Posterior | None = None,
    full: Floats | None = None,
    by_groups: list[GroupedSums] | None = None,
) -> Reference:
    """Sum the information of a slot's records for the servers that are `active`, and update their posteriors, if given.

    Returns what the records were compared with.

    known   which servers knew anything before this slot
    priors  means and variances
    recent  with which, and with the priors, the guard compares; None: no guard
    full    receives the matrices of records that join regions into groups, with full covariances
    by_groups  receives their sums by groups
    """
    place, setting = slot % state.lag, state.setting
    held, table, words, engine = _held_records(state, slot, engine, active)
    split = None if table.groups is None else Split(*priors, OFF, setting.model.course is None)
    level, level_var = crowd_level(state, slot, *priors)
    reference = Reference(level, level_var, split=split)
    if recent is not None:
        prior, prior_var = priors[0], with_bursts(state, priors[1])
        penalised = state.suspicious[place]
        penalty = state.penalty[place] if penalised.any() else None
        if state.scores is not None and not known.all() and (beginners := active & ~known).any():
            records = held if state.learned is not None else state.holdings(slot, engine, beginners)
            rows, origins, factors = start_penalty(
                beginners, state.servers, records.indptr, records.indices, table, reference, setting.observation,
                setting.model.one_step_var, LIMIT,
            )  # fmt: skip
            if len(rows) or (penalised & beginners).any():
                penalty, penalised = state.penalty[place].copy(), penalised & ~beginners
                penalty[beginners] = 1.0
                penalty[rows, origins] = factors
                penalised[rows] = True
        reference = Reference(level, level_var, prior, prior_var, penalty, LIMIT, recent, penalised, split)
    y, info = state.y[slot % len(state.y)], state.info[slot % len(state.info)]
    record_sums(
        held.indptr, held.indices, table, reference, setting.observation, setting.model.one_step_var, state.servers,
        engine, RecordSums(y, info, state.recent[place], state.scale[place], full, by_groups), active, posterior, words,
    )  # fmt: skip
    return reference


def _bursts(state: RelayState) -> Floats | None:
    """Return the variance (d,) of bursts that are known from the past, beyond that of the filter; None: of none."""
    course = state.setting.model.course
    return None if course is None or course.tails is None else course.tails.burst_var


def with_bursts(state: RelayState, prior_var: Floats) -> Floats:
    """Return the variances (N, d) with which the guard compares: a burst such as those of the past is no fault."""
    bursts = _bursts(state)
    return prior_var if bursts is None else prior_var + bursts


def _held_records(
    state: RelayState, slot: int, engine: Engine, active: Bools | None = None
) -> tuple[Holdings, RecordTable, Words | None, Engine]:
    """Return who has which records of a slot, as lists or bits, the records, and the engine that can sum them."""
    if state.learned is not None:
        everybody = np.ones(state.setting.servers, dtype=np.bool_)
        return *own_records(state, slot, engine, everybody if active is None else active), None, "numpy"
    table = state.table(slot)
    if table.groups is not None:  # no compiled loop knows groups
        engine = "numpy"
    words = state.words(slot, engine)
    held = state.holdings(slot, engine, active) if words is None else _IN_WORDS
    return held, table, words, engine


def _finalise(state: RelayState, slot: int, engine: Engine) -> None:
    """Make slot - L final, of which no record is taken any more: the filter starts from its state."""
    place, setting = slot % state.lag, state.setting
    complete_filters(state, int(state.last) + 1, engine)
    keep_final_filters(state, slot)
    keep_shares(state, place)  # records of the slot that is final now are judged by all that is known of their shares
    if slot >= state.lag:
        if state.scores is not None:
            held, table, words, taken = _held_records(state, slot - state.lag, engine)
            mean_var = state.mean_var[place]
            spread = diagonal(mean_var) if setting.form == "matrix" else mean_var
            level = crowd_level(state, slot, state.mean[place], np.where(state.known[place][:, None], spread, np.inf))
            state.scores.judge(
                held.indptr, held.indices, table, Reference(*level),
                setting.observation, setting.model.one_step_var,
                (state.mean[place], spread, state.known[place]), taken, words, _persistence(state),
            )  # fmt: skip
        state.base[:], state.base_var[:] = state.mean[place], state.mean_var[place]
        state.base_known[:] = state.known[place]
        keep_final_deviations(state, place)
        if state.links is None or state.lag == 1:  # over one hop no record is late: no slot is filtered again from here
            state.base_recent[:] = state.recent[place]
        if state.bank is not None:
            state.base_bank = state.bank.at(place).copy()
    if setting.observation != "paper":  # which does not look at the level
        state.level[place], state.level_var[place] = expected_level(state, slot)
    if state.scores is not None:
        state.suspicious[place] = state.scores.suspicious
        numbers = np.flatnonzero(state.scores.suspicious)
        if len(numbers):
            state.penalty[place, numbers] = state.scores.penalty(numbers)


def _persistence(state: RelayState) -> float:
    """Return how much of a server's deviation from its share stays in what is remembered of it (`filters.origins`)."""
    setting = state.setting
    if setting.observation != "binomial":
        return 0.0
    return persistence_of(setting.turnover, state.interval)
