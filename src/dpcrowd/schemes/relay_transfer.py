"""A relay server under another setting: what it knows survives a new revision of the network.

What servers of one network release is a function of the records that they have. So that this stays true when the
network changes, all servers have to treat their records alike, whichever arrive late:

- Where the regions, the model and the price of a sample are the same and no server has left, records, posteriors and
  accounts continue; servers may have come, and have other numbers. A record keeps the share that its origin had.
- Otherwise the posterior of the last slot continues and the records of slots up to it are final: none of them is
  accepted any more. A new region has no information yet. What was learned goes on as `kept_learning` says.

In both cases a server keeps its own schedule: its next sample is in the slot in which it would have been.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import BadInput
from dpcrowd.filters.ahead import moved_in_time
from dpcrowd.filters.common_deviation import common_facts
from dpcrowd.filters.course import same_course
from dpcrowd.filters.persistence import are_partitioned
from dpcrowd.sampling.schedule import samples_due
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.kept_learning import goes_on_learning, keep_beliefs, keeps_shares
from dpcrowd.schemes.records import Mailbox, ungrouped
from dpcrowd.schemes.relay_shares import learning_goes_on
from dpcrowd.schemes.relay_state import RelayState, reset_banks, servers_per_run, slot_of_base

__all__ = ["take_beliefs", "transfer_relay"]

Places = Sequence[int | None]


def transfer_relay(
    state: RelayState, fresh: RelayState, places: Places, origins: Places, samples: tuple[int, int]
) -> RelayState:
    """Return the state with which a server continues from `state`; `fresh` is its state before the first slot.

    `state` has its filters of learned shares (`relay_filter.complete_filters`).

    places   for each region its number before; None: a new region
    origins  the same for each server
    samples  n before and now
    """
    if len(origins) != servers_per_run(fresh.setting):
        raise BadInput(
            f"one place per server is needed, {servers_per_run(fresh.setting)} in all; given {len(origins)}."
        )
    if state.last >= 0 and samples[0] == samples[1]:
        fresh.shift, fresh.waiting = _same_next_sample(state, fresh, samples[0]), state.waiting
    if _is_compatible(state, fresh, places, origins):
        return _with_records(state, fresh, origins)
    return _with_posterior(state, fresh, places, origins)


def _is_compatible(state: RelayState, fresh: RelayState, places: Places, origins: Places) -> bool:
    """Whether records of slots before mean the same under the new setting."""
    old, new = state.setting, fresh.setting
    stayed = {origin for origin in origins if origin is not None}
    return (
        list(places) == list(range(old.regions))
        and len(stayed) == servers_per_run(old)
        and state.lag == fresh.lag
        and bool((state.amount == fresh.amount).all())
        and (state.scores is None) == (fresh.scores is None)
        and (state.own_groups is None) == (fresh.own_groups is None)
        and _same_model(old, new)
        and state.shares.ndim == fresh.shares.ndim
        and _same_partition(old, new)
        and (state.learned is None or list(origins) == list(range(servers_per_run(old))))
    )


def _same_partition(old: Setting, new: Setting) -> bool:
    """Whether the deviations of all servers sum to 0 as they did in earlier slots."""
    if (new.turnover == 1.0 and new.share_width == 0.0) or old.peers is None or new.peers is None:
        return True
    before, now = old.peers.shares, new.peers.shares
    if not any(are_partitioned(shares.reshape(len(shares), -1)).any() for shares in (before, now)):
        return True
    return before.shape == now.shape and bool((before == now).all())


def _same_model(old: Setting, new: Setting) -> bool:
    same = old.observation == new.observation and old.tuning.alpha == new.tuning.alpha
    for name in ("transition", "process_var"):
        before, now = getattr(old.model, name), getattr(new.model, name)
        same = same and before.shape == now.shape and bool((before == now).all())
    same = same and old.turnover == new.turnover and old.share_width == new.share_width
    same = same and common_facts(old.model) == common_facts(new.model)
    return same and old.learn == new.learn and same_course(old.model.course, new.model.course)


def _with_records(state: RelayState, fresh: RelayState, origins: Places) -> RelayState:
    """Continue with everything, by the new numbers of the servers."""
    for name in (
        "last", "y", "info", "mean", "mean_var", "known", "level", "level_var", "recent", "scale", "base", "base_var",
        "base_known", "base_recent", "suspicious", "bank", "base_bank", "learned",
    ):  # fmt: skip
        setattr(fresh, name, getattr(state, name))
    for name in ("noisy", "var", "shares"):
        setattr(fresh, name, _moved(getattr(state, name), getattr(fresh, name), origins, axis=1))
    if state.groups is not None:
        own = np.tile(ungrouped(fresh.setting.regions), (*fresh.var.shape, 1))
        fresh.groups = _moved(state.groups, own, origins, axis=1)
    if fresh.own_groups is not None and state.own_groups is not None:
        fresh.own_groups = state.own_groups
    if state.cross is not None and state.base_cross is not None and fresh.cross is not None:
        assert fresh.base_cross is not None
        fresh.cross = _moved(state.cross, fresh.cross, origins, axis=1)
        fresh.base_cross = _moved(state.base_cross, fresh.base_cross, origins, axis=0)
    _take_scores(state, fresh, origins)
    if state.scores is not None:
        fresh.penalty = _moved(state.penalty, fresh.penalty, origins, axis=2)
    _take_mailbox(state.mailbox, fresh.mailbox, origins)
    return fresh


def _with_posterior(state: RelayState, fresh: RelayState, places: Places, origins: Places) -> RelayState:
    """Continue with the last posterior alone."""
    last, latest = int(state.last), int(state.last) % state.lag
    if last < 0:
        return fresh
    setting = fresh.setting
    if setting.form == "matrix" and list(places) != list(range(state.setting.regions)):
        raise BadInput("relay with full matrices cannot go on with other regions: start anew.")
    shift, mailbox = fresh.shift, state.mailbox
    kept = [number for number, place in enumerate(places) if place is not None]
    came = [place for place in places if place is not None]
    mean, var, known = fresh.mean[0].copy(), fresh.mean_var[0].copy(), state.known[latest].copy()
    if setting.form == "matrix":
        mean, var = state.mean[latest].copy(), state.mean_var[latest].copy()
    else:
        mean[:, kept], var[:, kept] = state.mean[latest][:, came], state.mean_var[latest][:, came]
    if setting.model.course is not None:
        _start_from_course(mean, var, known, setting, last, new=[place is None for place in places])
    _take_scores(state, fresh, origins)
    for name, value in (
        ("mean", mean),
        ("mean_var", var),
        ("known", known),
        ("recent", state.recent[latest]),
    ):
        getattr(fresh, name)[:] = value
    for slot in range(last - fresh.lag + 1, last + 1):  # the same deviation from what is expected of each slot
        place, moved = slot % fresh.lag, moved_in_time(mean, var, setting.model, last, slot)
        fresh.mean[place], fresh.mean_var[place] = moved
    base = moved_in_time(mean, var, setting.model, last, slot_of_base(last, fresh.lag))
    fresh.base, fresh.base_var = (part.copy() for part in base)
    fresh.base_known, fresh.base_recent = known, state.recent[latest].copy()
    reset_banks(fresh)
    if state.cross is not None and fresh.cross is not None:
        cross = np.zeros((*fresh.cross.shape[1:3], state.setting.regions))
        cross = _moved(state.cross[latest], cross, origins, axis=0)
        fresh.cross[..., kept] = cross[..., came]
        fresh.base_cross = fresh.cross[0].copy()
    if fresh.scores is not None:
        fresh.penalty[:] = fresh.scores.penalty()
        fresh.suspicious[:] = fresh.scores.suspicious
    fresh.last, fresh.shift = np.array(last), shift
    if fresh.mailbox is not None and mailbox is not None:
        fresh.mailbox.late, fresh.mailbox.unknown = mailbox.late, mailbox.unknown
        fresh.mailbox.open_accounts(last + 1, last)
    take_beliefs(state, fresh, places)
    if keeps_shares(state.setting, setting, places, origins):
        learning_goes_on(state, fresh)
    return fresh


def take_beliefs(state: RelayState, fresh: RelayState, places: Places) -> None:
    """Let the filters that learn go on, after the last slot of `fresh`; who joins soon begins with its base."""
    if fresh.bank is None or fresh.base_bank is None or state.bank is None:
        return
    latest, last, model = int(state.last), int(fresh.last), fresh.setting.model
    former, where = state.bank.at(latest % state.lag), goes_on_learning(state.setting, fresh.setting, places)
    estimates = state.mean[latest % state.lag], state.mean_var[latest % state.lag]
    banks = [(slot, fresh.bank.at(slot % fresh.lag)) for slot in range(last - fresh.lag + 1, last + 1)]
    for slot, bank in [*banks, (slot_of_base(last, fresh.lag), fresh.base_bank)]:
        keep_beliefs(bank, former, estimates, places, where, model.ratio(latest, slot))


def _start_from_course(
    mean: Floats, var: Floats, known: Bools, setting: Setting, slot: int, new: Sequence[bool]
) -> None:
    """Let what is not known yet start with what the expected course says of a slot, in place; `new`: new regions."""
    expected, expected_var = setting.model.start(slot)
    if setting.form == "matrix":
        mean[~known], var[~known] = expected, np.diag(expected_var)
    else:
        unknown = np.array(new) | ~np.isfinite(var)
        mean[:], var[:] = np.where(unknown, expected, mean), np.where(unknown, expected_var, var)
    known[:] = True


def _take_scores(state: RelayState, fresh: RelayState, origins: Places) -> None:
    if state.scores is None or fresh.scores is None:
        return
    fresh.scores.score = _moved(state.scores.score, fresh.scores.score, origins, axis=1)
    fresh.scores.usual = state.scores.usual.copy()
    fresh.scores.suspicious = state.scores.suspicious.copy()


def _take_mailbox(old: Mailbox | None, new: Mailbox | None, origins: Places) -> None:
    if old is None or new is None:
        return
    for name in ("held", "fresh", "void", "hops", "nano"):
        setattr(new, name, _moved(getattr(old, name), getattr(new, name), origins, axis=1))
    for name in ("paid_until", "refused"):
        setattr(new, name, _moved(getattr(old, name), getattr(new, name), origins, axis=0))
    new.late, new.unknown, new.since = old.late, old.unknown, old.since


def _moved(old: NDArray[Any], fresh: NDArray[Any], origins: Places, axis: int) -> NDArray[Any]:
    """Return a fresh array with the old numbers of the servers that stay."""
    moved = fresh.copy()
    for number, before in enumerate(origins):
        if before is not None:
            place: list[int | slice] = [slice(None)] * fresh.ndim
            source = place.copy()
            place[axis], source[axis] = number, before
            moved[tuple(place)] = old[tuple(source)]
    return moved


def _same_next_sample(state: RelayState, fresh: RelayState, samples: int) -> Ints:
    """Return by how much the schedule has to be moved so that the next sample is in the slot in which it would be."""
    old, new, length = state.setting, fresh.setting, fresh.setting.need_guarantee().length
    if old.phases is None or new.phases is None:
        return fresh.shift
    before, offset, shift = int(old.phases[0]), int(new.phases[0]), int(state.shift[0, 0])
    first = int(state.last) + 1
    due = first
    while not samples_due(due - shift, samples, length, np.array(before)):
        due += 1
    moved = 0
    while not samples_due(due - moved, samples, length, np.array(offset)) or any(
        samples_due(one - moved, samples, length, np.array(offset)) for one in range(first, due)
    ):
        moved += 1
    return np.full_like(fresh.shift, moved)
