"""Relay with learned shares: how wide the crowd is before the records of a slot (`filters.share_surprise`)."""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats
from dpcrowd.filters.bank_estimate import doubtful_mixture, doubtful_weights
from dpcrowd.filters.learning import Priors
from dpcrowd.filters.share_learning import expected_records, move_filter, prepare_slot
from dpcrowd.filters.share_state import ShareFilter
from dpcrowd.filters.share_surprise import CrowdBeliefs, surprise
from dpcrowd.kernels.engine import Engine
from dpcrowd.schemes.relay_share_steps import bits_of, filters_before, held_records, moved_filter, records_of, steps_of
from dpcrowd.schemes.relay_state import MovedFilter, RelayState

__all__ = ["crowd_variance"]


def crowd_variance(
    state: RelayState, slot: int, active: Bools, prior: tuple[Floats, Floats], bank: Priors, engine: Engine
) -> Floats:
    """Return the variances (N, d) of the crowd that are expected of a slot, larger where its records surprise.

    prior  means and variances (N, d) of the filters that learn together, and `bank` what each of them expects
    """
    learned, place, setting = state.learned, slot % state.lag, state.setting
    assert learned is not None
    if setting.model.course is None:
        return prior[1]
    filters, before = filters_before(state, slot)
    held, weights = held_records(state, slot, engine, active), doubtful_weights(bank, state.beliefs)
    normals = doubtful_mixture(bank, weights)
    var, width = prior[1].copy(), setting.share_width
    former, found = learned.surprises[place], dict[tuple[int, bytes], tuple[ShareFilter, Floats]]()
    learned.moved_filters = {}
    step_from = steps_of(setting, before, prior, (slot - 1, slot))
    for receiver in np.flatnonzero(active).tolist():
        known, records = filters[receiver], records_of(state, slot, receiver, held[receiver])
        if records is None:
            continue
        step, step_bits = step_from(receiver, 1.0)
        means, variances, chances = (part[:, receiver] for part in (bank.mean, bank.var, weights))
        mixture = CrowdBeliefs(
            mean=prior[0][receiver],
            var=prior[1][receiver],
            spread=(chances * (variances + np.square(means - prior[0][receiver]))).sum(axis=0),
            means=normals[0][:, receiver],
            vars=normals[1][:, receiver],
            weights=normals[2][:, receiver],
        )
        key = id(known), step_bits + bits_of(records) + bits_of(mixture)
        if key not in found and key in former and former[key][0] is known:
            found[key] = former[key]
        if key not in found:
            public, believed = learned.learner.public[learned.learner.members[receiver]], learned.shares[place]
            if not known.begun:
                first = move_filter(known, public, believed[:, receiver], step, records)
                ready = MovedFilter(first, believed[:, receiver])
            elif (expectation := (id(known), step_bits)) in learned.moved_filters:
                ready = learned.moved_filters[expectation]
            else:
                ready = moved_filter(known, public, believed[:, receiver], width, step, anchor=True)
                learned.moved_filters[expectation] = ready
            prepared = prepare_slot(ready.known, known, public, ready.shares, width, step, records, ready.products)
            expected = expected_records(prepared, public, records)
            found[key] = known, surprise(prepared.known, expected, public, width, mixture)
        var[receiver] *= found[key][1]
    learned.surprises[place] = found
    return var
