"""Relay with learned shares: records say which part of the crowd each server counts (`filters.share_learning`).

One joint filter per region follows the crowd, the shares and the deviations over the records that a receiver has, and
the release is its crowd. When records arrive late, it runs again from the slot of the oldest one. Receivers that have
had the same records share one filter: where records travel to all servers within a slot that is one per run.

What is learned up to slot s - L, which accepts no more records, is what guard and scores compare records of slot s
with; innovations are those of the joint filter. So everything is still a function of the set of records.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import BadInput, counted
from dpcrowd.filters.records import RecordTable
from dpcrowd.filters.share_beginning import start_filter
from dpcrowd.filters.share_learning import fuse_slot, learn_slot
from dpcrowd.filters.share_state import ShareCovariance, ShareFilter
from dpcrowd.filters.share_widths import learned_crowd, learned_shares
from dpcrowd.kernels.engine import Engine
from dpcrowd.network.spread import Holdings
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.relay_share_steps import (
    base_filters,
    bits_of,
    filters_before,
    held_records,
    moved_filter,
    records_of,
    step_of,
    steps_of,
)
from dpcrowd.schemes.relay_state import LearnedShares, LearnedSlot, RelayState, ShareLearner, slot_of_base

__all__ = [
    "begin_learning",
    "check_learning",
    "finalised_shares",
    "full_matrices",
    "fuse_learned",
    "keep_final_filters",
    "keep_shares",
    "learning_goes_on",
    "missing_slots",
    "own_records",
    "pass_many_slots",
    "take_shares",
]

_ROUNDING = 1e-6
"""The largest rounding error of a share that was written with six decimals."""


def begin_learning(state: RelayState, shares: Floats) -> None:
    """Start to learn from public shares (N, 1) or (N, d) of the servers of all runs."""
    setting, servers = state.setting, state.servers
    by_run = np.broadcast_to(shares, (len(shares), setting.regions)).reshape(-1, servers, setting.regions)
    total = by_run.sum(axis=1, keepdims=True)
    if (np.abs(total - 1.0) > _ROUNDING * servers).any():
        raise BadInput(
            "shares are learned where every user is at one server, but these do not sum to 1 in every region; leave "
            "the share width out, or give shares of a partition."
        )
    public = by_run / total
    filters = [start_filter(one, setting.share_width) for one in public]
    members = np.repeat(np.arange(setting.runs), setting.servers // setting.runs)
    shape = (state.lag, servers, setting.servers, setting.regions)
    learner = _learner(filters, members, public)
    state.learned = LearnedShares(np.empty(shape), np.empty(shape), learner, [], [], [])
    state.learned.forget_slots(state.lag)
    for place in range(state.lag):
        keep_shares(state, place)


def missing_slots(state: RelayState, until: int) -> list[int]:
    """Return the slots of the lag before `until` of which no filter is known: it is not part of a saved state."""
    if state.learned is None:
        return []
    slots = range(max(int(state.last) - state.lag + 1, 0), until)
    return [slot for slot in slots if state.learned.filters[slot % state.lag] is None]


def keep_final_filters(state: RelayState, slot: int) -> None:
    """Keep what is known after slot - L, which is final when a slot begins."""
    learned, place = state.learned, slot % state.lag
    if learned is None or slot < state.lag:
        return
    filters = learned.filters[place]
    assert filters is not None
    _keep(learned, filters)
    learned.filters[place], learned.made[place], learned.surprises[place] = None, {}, {}


def keep_shares(state: RelayState, place: int) -> None:
    """Let the slot at a place compare records with the shares that are known from final slots."""
    learned = state.learned
    if learned is None:
        return
    base = base_filters(learned)
    for one, members in _classes(base):
        public = learned.learner.public[learned.learner.members[members[0]]]
        shares, var = learned_shares(one, public, state.setting.share_width)
        learned.shares[place][:, members] = shares[:, None]
        learned.var[place][:, members] = var[:, None]


def pass_many_slots(state: RelayState, slots: tuple[int, int], before: tuple[Floats, Floats]) -> None:
    """Go on when more than L slots have passed without records, between two slots of the base.

    before  means and variances (N, d) of the base in the earlier one
    """
    learned = state.learned
    if learned is None:
        return
    _keep(learned, _without_records(state, before, (state.base, state.base_var), slots))
    learned.forget_slots(state.lag)
    for place in range(state.lag):
        keep_shares(state, place)


def learning_goes_on(state: RelayState, fresh: RelayState) -> None:
    """Let a state that goes on from the last posterior of another one know what that has learned of shares.

    Its last slot may be an earlier one, and its lag another one; `complete_filters` was called for the other state.
    Each slot has a filter of its own: with a season, what is known of the crowd differs from slot to slot.
    """
    learned, latest, last, lag = state.learned, int(state.last), int(fresh.last), fresh.lag
    if learned is None or fresh.learned is None:
        return
    place = latest % state.lag
    if (filters := learned.filters[place]) is not None:
        _keep(learned, filters)
    before = state.mean[place], state.mean_var[place]

    def moved(slot: int, after: tuple[Floats, Floats]) -> list[ShareFilter]:
        return _without_records(state, before, after, (latest, slot), same_people=True)

    by_slot = {slot: moved(slot, (fresh.mean[slot % lag], fresh.mean_var[slot % lag])) for slot in _recent(last, lag)}
    base = moved(slot_of_base(last, lag), (fresh.base, fresh.base_var))
    fresh.learned.learner = learned.learner
    _keep(fresh.learned, base)
    fresh.learned.forget_slots(lag)
    for slot, one in by_slot.items():
        fresh.learned.filters[slot % lag] = one
    for place in range(lag):
        keep_shares(fresh, place)


def _recent(last: int, lag: int) -> range:
    """Return the last L slots; some of them may be before slot 0."""
    return range(last - lag + 1, last + 1)


def _without_records(
    state: RelayState,
    before: tuple[Floats, Floats],
    after: tuple[Floats, Floats],
    slots: tuple[int, int],
    *,
    same_people: bool = False,
) -> list[ShareFilter]:
    """Return the filters of all receivers when the crowd has moved, and no record has arrived.

    same_people  whether the time has changed, and nothing else
    """
    learned, width = state.learned, state.setting.share_width
    assert learned is not None
    base = base_filters(learned)
    moved = list(base)
    for one, members in _classes(base):
        step = step_of(state.setting, members[0], before, after, slots)
        if same_people:
            same = np.ones_like(step.transition) * state.setting.model.ratio(*slots)
            step = replace(step, transition=same, added=np.zeros_like(step.added), stays=1.0)
        public = learned.learner.public[learned.learner.members[members[0]]]
        changed = learn_slot(one, public, learned.shares[0][:, members[0]], width, step, None)
        for receiver in members:
            moved[receiver] = changed
    return moved


def finalised_shares(state: RelayState) -> dict[str, Floats | Ints | None]:
    """Return what a finalised state has of the learned shares of a server on its own (`relay_join`)."""
    learned = state.learned
    if learned is None:
        return dict.fromkeys(("learned", "learner", "learner_cov", "learner_begun"))
    one, (rows, columns) = base_filters(learned)[0], np.tril_indices(2 * state.servers + 1)
    return {
        "learned": np.stack([learned.shares[:, :, 0], learned.var[:, :, 0]]),
        "learner": np.concatenate([one.mean, one.scale[:, None], one.settled[:, None]], axis=1),
        "learner_cov": one.cov[:, rows, columns],
        "learner_begun": np.concatenate([[int(one.begun)], one.heard]),
    }


def take_shares(
    fresh: RelayState, learned: Floats | None, mean: Floats | None, cov: Floats | None, begun: Ints | None
) -> None:
    """Let a fresh state begin with what a neighbour has learned."""
    if fresh.learned is None or learned is None or mean is None or cov is None or begun is None:
        return
    mine = fresh.learned
    mine.shares[:, :, 0], mine.var[:, :, 0] = learned
    known, heard = bool(begun[0]), np.clip(begun[1:], 0, 2)
    values, scale, settled = mean[:, :-2].copy(), mean[:, -2].copy(), mean[:, -1] > 0.0
    _keep(mine, [ShareFilter(values, ShareCovariance(full_matrices(cov)), scale, known, heard, settled)])
    mine.forget_slots(fresh.lag)


def full_matrices(lower: Floats) -> Floats:
    """Return symmetric matrices (d, n, n) from their lower halves (d, n (n + 1)/2)."""
    size = (math.isqrt(8 * lower.shape[1] + 1) - 1) // 2
    matrices = np.empty((len(lower), size, size))
    rows, columns = np.tril_indices(size)
    matrices[:, rows, columns] = lower
    matrices[:, columns, rows] = lower
    return matrices


def own_records(state: RelayState, slot: int, engine: Engine, active: Bools) -> tuple[Holdings, RecordTable]:
    """Return the records of a slot with the shares that each receiver has learned.

    Every receiver has its own rows of the table, one per server of its run, and names origins by these rows.
    """
    learned, servers, place = state.learned, state.servers, slot % state.lag
    assert learned is not None
    receivers, table = state.setting.servers, state.table(slot)
    held = held_records(state, slot, engine, active)
    run = np.arange(receivers) // (receivers // state.setting.runs)
    rows = (run[:, None] * servers + np.arange(servers)).ravel()
    indptr = np.concatenate([[0], np.cumsum(held.sum(axis=1))])
    shares, var = (
        part[place].swapaxes(0, 1).reshape(receivers * servers, -1) for part in (learned.shares, learned.var)
    )
    own = RecordTable(table.noisy[rows], table.var[rows], shares, None, var)
    return Holdings(indptr, np.flatnonzero(held.ravel())), own


def fuse_learned(
    state: RelayState,
    slot: int,
    active: Bools,
    prior: tuple[Floats, Floats],
    doubt: Floats,
    engine: Engine,
    *,
    again: bool = False,
) -> tuple[Floats, Floats]:
    """Return means and variances (N, d) after a slot's records, and keep the filters of those in `active`.

    prior  means and variances (N, d), which come back where a receiver is not active or has no records
    doubt  (N,) the factors that these variances contain, because records contradict what was expected
    again  whether the slot was fused before, and its filters alone are missing
    """
    learned, place, setting = state.learned, slot % state.lag, state.setting
    assert learned is not None
    filters, before = filters_before(state, slot)
    held = held_records(state, slot, engine, active)
    mean, var = prior[0].copy(), prior[1].copy()
    after: list[ShareFilter] = list(learned.filters[place] or filters)
    made = {} if again else dict(learned.made[place])
    moved = learned.moved_filters  # some of them were made to see how surprising the records are
    kept = state.mean[place], state.mean_var[place]
    from_prior, from_kept = (steps_of(setting, before, expected, (slot - 1, slot)) for expected in (prior, kept))
    for receiver in np.flatnonzero(active).tolist():
        known, step_from = filters[receiver], from_prior
        if again and not held[receiver].any() and not _is_same(prior, kept, receiver):
            step_from = from_kept  # many slots have passed since the slot before
        step, step_bits = step_from(receiver, doubt[receiver])
        records = records_of(state, slot, receiver, held[receiver])
        key = id(known), step_bits + bits_of(records)
        if again or key not in made or made[key].known is not known:
            public = learned.learner.public[learned.learner.members[receiver]]
            believed = learned.shares[place][:, receiver]
            if known.begun:
                if (expectation := (id(known), step_bits)) not in moved:
                    anchor = state.bank is not None and setting.model.course is not None
                    moved[expectation] = moved_filter(known, public, believed, setting.share_width, step, anchor=anchor)
                ready = moved[expectation]
                one = fuse_slot(
                    ready.known, known, public, ready.shares, setting.share_width, step, records, ready.products
                )
            else:
                one = learn_slot(known, public, believed, setting.share_width, step, records)
            values = mean[receiver], var[receiver]
            if records is not None and not again:
                values = learned_crowd(one, public, setting.share_width)
            made[key] = LearnedSlot(known, one, *values)
        entry = made[key]
        after[receiver], mean[receiver], var[receiver] = entry.after, entry.mean, entry.var
    learned.filters[place], learned.moved_filters = after, {}
    current = {id(one) for one in after}
    for one in {id(one): one for one in filters}.values():
        one.forget_cov()
    learned.made[place] = {} if again else {key: one for key, one in made.items() if id(one.after) in current}
    return mean, var


def _is_same(one: tuple[Floats, Floats], other: tuple[Floats, Floats], receiver: int) -> bool:
    """Whether means and variances (N, d) of a receiver are the same up to rounding."""
    return all(np.allclose(mine[receiver], its[receiver], rtol=1e-9) for mine, its in zip(one, other, strict=True))


def _keep(learned: LearnedShares, filters: list[ShareFilter]) -> None:
    """Keep the filters of all receivers after the last slot that is final."""
    classes = _classes(filters)
    members = np.empty(len(filters), dtype=np.int64)
    public = np.stack([learned.learner.public[learned.learner.members[receivers[0]]] for _, receivers in classes])
    for number, (_, receivers) in enumerate(classes):
        members[receivers] = number
    learned.learner = _learner([one for one, _ in classes], members, public)
    learned.base = learned.learner.mean, filters
    for one, _ in classes:
        one.forget_cov()


def _classes(filters: list[ShareFilter]) -> list[tuple[ShareFilter, list[int]]]:
    """Return the different filters, and which receivers have each of them."""
    classes: dict[int, tuple[ShareFilter, list[int]]] = {}
    for receiver, one in enumerate(filters):
        classes.setdefault(id(one), (one, []))[1].append(receiver)
    return list(classes.values())


def _learner(filters: list[ShareFilter], members: Ints, public: Floats) -> ShareLearner:
    return ShareLearner(
        mean=np.stack([one.mean for one in filters]),
        cov=np.stack([one.cov for one in filters]),
        begun=np.array([int(one.begun) for one in filters]),
        heard=np.stack([one.heard for one in filters]),
        members=members,
        public=public,
        scale=np.stack([one.scale for one in filters]),
        settled=np.stack([one.settled.astype(np.int64) for one in filters]),
    )


def check_learning(setting: Setting, max_hops: int | None) -> None:
    """Refuse to learn shares where that cannot work."""
    if setting.observation != "binomial":
        raise BadInput(
            "shares are learned from binomial counts; give observation=binomial, or leave the share width out."
        )
    if setting.form != "diagonal":
        raise BadInput("shares are learned in the diagonal form only; leave form=matrix or the share width out.")
    if max_hops is not None:
        raise BadInput(
            f"shares are learned where all servers have all records, but these travel {counted(max_hops, 'hop')}; give "
            "reach=all, or leave the share width out."
        )
