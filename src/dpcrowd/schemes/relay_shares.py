"""Relay with learned shares: final records say which part of the crowd each server counts (`filters.share_learning`).

What is learned up to slot s - L, which accepts no more records, is what the filter uses in slot s, with the variances
that remain: so the estimate is still a function of the set of records. Receivers that have had the same final records
share one learner; where records travel to all servers that is one per run. Guard, scores and innovations compare with
the learned shares, too.
"""

from __future__ import annotations

import math

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import BadInput
from dpcrowd.filters.records import RecordTable, Reference, held_pairs
from dpcrowd.filters.share_learning import (
    FinalSlot,
    ShareLearner,
    forget_crowd,
    learn_shares,
    shrunk_shares,
    start_learner,
)
from dpcrowd.filters.uncertain_shares import fuse_uncertain, retention
from dpcrowd.kernels.engine import Engine
from dpcrowd.network.spread import Holdings
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.relay_deviations import slot_records
from dpcrowd.schemes.relay_state import LearnedShares, RelayState

__all__ = [
    "begin_learning",
    "check_learning",
    "finalised_shares",
    "full_matrices",
    "fuse_learned",
    "learn_final",
    "learned_back_in_time",
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
    receivers = setting.servers // setting.runs
    learner = start_learner(by_run / total, setting.share_width, np.repeat(np.arange(setting.runs), receivers))
    shape = (state.lag, servers, setting.servers, setting.regions)
    state.learned = LearnedShares(np.empty(shape), np.empty(shape), np.empty(shape), learner)
    for place in range(state.lag):
        _put(state, state.learned, place)


def learn_final(state: RelayState, slot: int, engine: Engine) -> None:
    """Learn from slot - L, which is final, and keep what is known for a new slot, which takes its place."""
    learned = state.learned
    assert learned is not None
    learner, place = learned.learner, slot % state.lag
    if slot >= state.lag:
        held = _held(state, slot - state.lag, engine, np.ones(state.setting.servers, dtype=np.bool_))
        _split(learner, held)
        for one in range(len(learner.mean)):
            _learn(state, one, slot - state.lag, held)
    _put(state, learned, place)


def pass_many_slots(state: RelayState) -> None:
    """Go on when more than L slots have passed without records: every slot knows what was known in the last one."""
    learned = state.learned
    if learned is None:
        return
    forget_crowd(learned.learner)
    for place in range(state.lag):
        _put(state, learned, place)


def learned_back_in_time(state: RelayState, fresh: RelayState) -> None:
    """Let a state after an earlier slot know the shares that were learned until now."""
    if state.learned is not None:
        fresh.learned = state.learned
        pass_many_slots(fresh)


def finalised_shares(state: RelayState) -> dict[str, Floats | Ints | None]:
    """Return what a finalised state has of the learned shares of a server on its own (`relay_join`)."""
    learned = state.learned
    if learned is None:
        return dict.fromkeys(("learned", "learner", "learner_cov", "learner_begun"))
    learner, (rows, columns) = learned.learner, _lower(state.servers)
    return {
        "learned": np.stack([learned.shares[:, :, 0], learned.var[:, :, 0], learned.common[:, :, 0]]),
        "learner": learner.mean[0],
        "learner_cov": learner.cov[0][:, rows, columns],
        "learner_begun": np.concatenate([learner.begun, learner.heard[0]]),
    }


def take_shares(
    fresh: RelayState, learned: Floats | None, mean: Floats | None, cov: Floats | None, begun: Ints | None
) -> None:
    """Let a fresh state begin with what a neighbour has learned."""
    if fresh.learned is None or learned is None or mean is None or cov is None or begun is None:
        return
    mine = fresh.learned
    mine.shares[:, :, 0], mine.var[:, :, 0], mine.common[:, :, 0] = learned
    learner = fresh.learned.learner
    learner.mean[0], learner.cov[0] = mean, full_matrices(cov)
    learner.begun[0], learner.heard[0] = begun[0], begun[1:]


def full_matrices(lower: Floats) -> Floats:
    """Return symmetric matrices (d, n, n) from their lower halves (d, n (n + 1)/2)."""
    size = (math.isqrt(8 * lower.shape[1] + 1) - 1) // 2
    matrices = np.empty((len(lower), size, size))
    rows, columns = np.tril_indices(size)
    matrices[:, rows, columns] = lower
    matrices[:, columns, rows] = lower
    return matrices


def _lower(servers: int) -> tuple[Ints, Ints]:
    return np.tril_indices(2 * servers + 1)


def _put(state: RelayState, learned: LearnedShares, place: int) -> None:
    """Keep what is known now for the slot at a place."""
    learner = learned.learner
    for one in range(len(learner.mean)):
        shares, var, common = shrunk_shares(learner, one, state.setting.share_width)
        members = np.flatnonzero(learner.members == one)
        learned.shares[place][:, members] = shares[:, None]
        learned.var[place][:, members] = var[:, None]
        learned.common[place][:, members] = common[:, None]


def own_records(state: RelayState, slot: int, engine: Engine, active: Bools) -> tuple[Holdings, RecordTable]:
    """Return the records of a slot with the shares that each receiver has learned.

    Every receiver has its own rows of the table, one per server of its run, and names origins by these rows.
    """
    learned, servers, place = state.learned, state.servers, slot % state.lag
    assert learned is not None
    receivers, table = state.setting.servers, state.table(slot)
    held = _held(state, slot, engine, active)
    run = np.arange(receivers) // (receivers // state.setting.runs)
    rows = (run[:, None] * servers + np.arange(servers)).ravel()
    indptr = np.concatenate([[0], np.cumsum(held.sum(axis=1))])
    shares, var = (
        part[place].swapaxes(0, 1).reshape(receivers * servers, -1) for part in (learned.shares, learned.var)
    )
    own = RecordTable(table.noisy[rows], table.var[rows], shares, None, var)
    return Holdings(indptr, np.flatnonzero(held.ravel())), own


def fuse_learned(
    state: RelayState, slot: int, active: Bools, prior: tuple[Floats, Floats], reference: Reference, engine: Engine
) -> tuple[Floats, Floats]:
    """Do what `relay_deviations.fuse_deviations` does, with learned shares."""
    learned = state.learned
    assert learned is not None and state.cross is not None and state.base_cross is not None
    place, depth, model = slot % state.lag, len(state.cross), state.setting.model
    before = state.cross[(slot - 1) % depth]
    if slot in (0, int(state.last) - state.lag + 1):
        before = state.base_cross
    rows = np.flatnonzero(active)
    shares, share_var = learned.shares[place][:, rows], learned.var[place][:, rows]
    known = np.isfinite(reference.level_var[rows])
    people = np.maximum(np.where(known, reference.level[rows], np.nan_to_num(prior[0][rows])), 1.0)
    stays = retention(shares, share_var, people, state.setting.turnover)
    carried = before[:, rows] * (model.diagonal_transition * stays)
    mean, var = prior[0].copy(), prior[1].copy()
    records = slot_records(state, slot, active, rows, prior, reference, engine)
    if records is not None:
        common = learned.common[place][:, rows]
        mean[rows], var[rows], carried = fuse_uncertain(
            prior[0][rows], prior[1][rows], carried, records, share_var, common
        )
    state.cross[slot % depth][:, rows] = carried
    return mean, var


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
            f"shares are learned where all servers have all records, but these travel {max_hops} hops; give reach=all, "
            "or leave the share width out."
        )


def _held(state: RelayState, slot: int, engine: Engine, active: Bools) -> Bools:
    """Return which receivers have which records of a slot, (N, servers per run)."""
    holdings = state.holdings(slot, engine, active)
    held = np.zeros((state.setting.servers, state.servers), dtype=np.bool_)
    receivers, origins = held_pairs(holdings.indptr, holdings.indices, state.table(slot))
    held[receivers, origins % state.servers] = True
    return held & active[:, None]


def _split(learner: ShareLearner, held: Bools) -> None:
    """Divide classes of receivers that do not have the same records, in place."""
    for one in range(len(learner.mean)):
        members = np.flatnonzero(learner.members == one)
        kinds, kind = np.unique(held[members], axis=0, return_inverse=True)
        for number in range(1, len(kinds)):
            learner.members[members[kind.ravel() == number]] = len(learner.mean)
            for name in ("mean", "cov", "begun", "heard", "public"):
                values = getattr(learner, name)
                setattr(learner, name, np.concatenate([values, values[one : one + 1]]))


def _learn(state: RelayState, one: int, slot: int, held: Bools) -> None:
    """Let one class of receivers learn from a slot that is final."""
    learned, place, setting = state.learned, slot % state.lag, state.setting
    assert learned is not None
    receiver = int(np.flatnonzero(learned.learner.members == one)[0])
    origins: Ints = np.flatnonzero(held[receiver])
    first = receiver // (setting.servers // setting.runs) * state.servers
    noise_var = state.var[place][first + origins]
    if state.scores is not None and state.suspicious[place, receiver]:
        noise_var = noise_var * state.penalty[place, receiver, origins]
    final = FinalSlot(
        slot,
        origins,
        state.noisy[place][first + origins],
        noise_var,
        np.where(state.known[place, receiver], state.mean[place, receiver], np.nan),
        state.mean_var[place, receiver],
        learned.shares[place][:, receiver],
    )
    learn_shares(learned.learner, one, final, setting.model, setting.turnover)
