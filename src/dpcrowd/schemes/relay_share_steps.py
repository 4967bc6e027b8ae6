"""What the joint filter of learned shares (`relay_shares`) is given in a slot: a filter, a step, and records.

Everything is by receiver. Those that have had the same records have one filter, and what is the same has the same
bits: it is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.model import ProcessModel
from dpcrowd.filters.records import held_pairs
from dpcrowd.filters.share_learning import expected_records, former_filter, move_filter, prepare_slot
from dpcrowd.filters.share_state import CrowdStep, ExpectedRecords, ShareCovariance, ShareFilter, SlotRecords
from dpcrowd.filters.share_surprise import CrowdBeliefs
from dpcrowd.filters.share_widths import anchored, learned_shares, product_moments
from dpcrowd.kernels.engine import Engine
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.relay_state import LearnedShares, MovedFilter, RelayState

__all__ = [
    "base_filters",
    "bits_of",
    "expected_of_records",
    "filters_before",
    "held_records",
    "moved_filter",
    "records_of",
    "step_of",
    "steps_of",
]


def base_filters(learned: LearnedShares) -> list[ShareFilter]:
    """Return the filters of all receivers after the last slot that is final."""
    learner = learned.learner
    if learned.base is None or learned.base[0] is not learner.mean:
        filters = []
        for one in range(len(learner.mean)):
            mean, cov, scale = learner.mean[one], learner.cov[one], learner.scale[one]
            begun, heard = bool(learner.begun[one]), learner.heard[one]
            if scale.any():
                filters.append(ShareFilter(mean, ShareCovariance(cov), scale, begun, heard, learner.settled[one] > 0))
            else:
                filters.append(former_filter(mean, cov, learner.public[one], heard, begun=begun))
        learned.base = learner.mean, [filters[one] for one in learner.members]
    return learned.base[1]


def filters_before(state: RelayState, slot: int) -> tuple[list[ShareFilter], tuple[Floats, Floats]]:
    """Return the filters of all receivers after the slot before, and its means and variances (N, d)."""
    assert state.learned is not None
    before = (slot - 1) % state.lag
    if slot in (0, int(state.last) - state.lag + 1):
        return base_filters(state.learned), (state.base, state.base_var)
    filters = state.learned.filters[before]
    assert filters is not None
    return filters, (state.mean[before], state.mean_var[before])


def moved_filter(
    known: ShareFilter, public: Floats, believed: Floats, width: float, step: CrowdStep, *, anchor: bool
) -> MovedFilter:
    """Return a filter before the records of a slot, and what it believes of shares (m, d).

    believed  (m, d) what final slots say of the shares, for the variance of the deviations
    anchor    whether filters that learn say what is expected of the crowd
    """
    moved = move_filter(known, public, believed, step, None)
    if anchor:
        moved = anchored(moved, public, width, (step.expected, step.expected_var))
    if not moved.settled.any():
        return MovedFilter(moved, believed)
    # Products with the crowd take what is known now: L slots ago shares may have been known by their public values.
    return MovedFilter(moved, learned_shares(moved, public, width)[0], product_moments(moved, public, width))


def step_of(
    setting: Setting,
    receiver: int,
    before: tuple[Floats, Floats],
    after: tuple[Floats, Floats],
    slots: tuple[int, int],
    doubt: float = 1.0,
) -> CrowdStep:
    """Return how the crowd of a receiver moves, by the means and variances (N, d) that it has before and after it.

    slots  before and after it
    doubt  the factor by which records have enlarged the variances after it
    """
    model, steps = setting.model, abs(slots[1] - slots[0])
    transition = np.broadcast_to(model.diagonal_transition, (setting.regions,)) ** steps * model.ratio(*slots)
    growth = np.ones(setting.regions)
    if model.course is not None:
        earlier, later = (_size(model, slot) for slot in slots)
        growth = later / earlier
    mean, var, expected, expected_var = (part[receiver] for part in (*before, *after))
    known = np.isfinite(var) & np.isfinite(expected_var)
    usual = np.where(known, expected_var, 0.0) / doubt
    return CrowdStep(
        transition=transition,
        added=np.maximum(usual - np.square(transition) * np.where(known, var, 0.0), 0.0),
        jump=(doubt - 1.0) * usual,
        before=np.where(known, mean, 0.0),
        expected=np.where(np.isfinite(expected_var), expected, 0.0),
        expected_var=expected_var,
        growth=growth,
        stays=(1.0 - setting.turnover) ** steps,
        claimed=model.course is None,
        model_var=model.noise_var if model.course is None else model.course.noise_var(slots[1]),
        persistence=model.diagonal_transition,
    )


def steps_of(
    setting: Setting, before: tuple[Floats, Floats], after: tuple[Floats, Floats], slots: tuple[int, int]
) -> Callable[[int, float], tuple[CrowdStep, bytes]]:
    """Return `step_of` by receiver and doubt, with the bits of the step, for means and variances that stay as they are.

    Nearly all receivers expect the same, and get the same step.
    """
    made: dict[bytes, tuple[CrowdStep, bytes]] = {}

    def step(receiver: int, doubt: float = 1.0) -> tuple[CrowdStep, bytes]:
        key = b"".join(part[receiver].tobytes() for part in (*before, *after)) + np.float64(doubt).tobytes()
        if key not in made:
            one = step_of(setting, receiver, before, after, slots, doubt)
            made[key] = one, bits_of(one)
        return made[key]

    return step


def _size(model: ProcessModel, slot: int) -> Floats:
    """Return how large the crowd of a slot may be, by the course of a model, (d,); at night that is not nobody."""
    assert model.course is not None
    spread = model.course.settled_var(slot, model.diagonal_transition)
    return np.sqrt(np.maximum(np.square(model.course.mean(slot)) + spread, 1.0))


def bits_of(given: CrowdStep | SlotRecords | CrowdBeliefs | None) -> bytes:
    """Return the bits of what a filter is given; what is the same has the same result."""
    return b"" if given is None else b"".join(np.atleast_1d(value).tobytes() for value in vars(given).values())


def records_of(state: RelayState, slot: int, receiver: int, held: Bools) -> SlotRecords | None:
    """Return the records of a slot that a receiver has; None: it has none."""
    origins: Ints = np.flatnonzero(held)
    if not len(origins):
        return None
    place, setting = slot % state.lag, state.setting
    first = receiver // (setting.servers // setting.runs) * state.servers
    noise_var = state.var[place][first + origins]
    if state.scores is not None and state.suspicious[place, receiver]:
        noise_var = noise_var * state.penalty[place, receiver, origins]
    return SlotRecords(origins, state.noisy[place][first + origins], noise_var)


def held_records(state: RelayState, slot: int, engine: Engine, active: Bools) -> Bools:
    """Return which receivers have which records of a slot, (N, servers per run)."""
    holdings = state.holdings(slot, engine, active)
    held = np.zeros((state.setting.servers, state.servers), dtype=np.bool_)
    receivers, origins = held_pairs(holdings.indptr, holdings.indices, state.table(slot))
    held[receivers, origins % state.servers] = True
    return held & active[:, None]


def expected_of_records(
    state: RelayState, slot: int, prior: tuple[Floats, Floats]
) -> tuple[ShareFilter, ExpectedRecords, Ints]:
    """Return what a server on its own expects of the records of a slot, as if it did not have them yet.

    prior  means and variances (1, d) by records of earlier slots; where they are unknown, the result means nothing

    Returns the filter before the records, what it expects of them, and the servers that have made them, in order.
    Neither what the records claim of the crowd nor how surprising they are makes it wider, and no record counts less.
    """
    learned, place, setting = state.learned, slot % state.lag, state.setting
    assert learned is not None
    filters, before = filters_before(state, slot)
    origins: Ints = np.flatnonzero(held_records(state, slot, "numpy", np.ones(1, dtype=np.bool_))[0])
    records = SlotRecords(origins, state.noisy[place][origins], state.var[place][origins])
    step = replace(step_of(setting, 0, before, prior, (slot - 1, slot)), claimed=False)
    known, public = filters[0], learned.learner.public[learned.learner.members[0]]
    believed, width = learned.shares[place][:, 0], setting.share_width
    if known.begun:
        anchor = state.bank is not None and setting.model.course is not None
        ready = moved_filter(known, public, believed, width, step, anchor=anchor)
    else:
        ready = MovedFilter(move_filter(known, public, believed, step, records), believed)
    prepared = prepare_slot(ready.known, known, public, ready.shares, width, step, records, ready.products)
    return prepared.known, expected_records(prepared, public, records), origins
