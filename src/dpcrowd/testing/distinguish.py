"""Try to tell a crowd with one more user from one without, by what thousands of servers release.

For neighbouring streams the log ratio of the probabilities of any event is at most ε. Events are single values and
tails of every number that leaves a server; each is judged with its own standard error. An honest scheme stays below a
margin of 6 standard errors, and the seeds are fixed, so that a verdict does not change from run to run.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.network.graph import Graph
from dpcrowd.network.hearing import Hearing, central_hearing, flooded_hearing, one_hop_hearing
from dpcrowd.privacy import SeededNoise
from dpcrowd.schemes.base import Scheme, Setting
from dpcrowd.testing.trial import ContractBroken

__all__ = ["MARGIN", "SERVERS", "check_distinguishability", "excess"]

MARGIN = 6.0
_FEWEST = 60  # occurrences before the ratio of an event is judged
SERVERS = 6000
_SLOTS, _COUNT = 3, 40


def excess(without: Floats, with_user: Floats, epsilon: float) -> float:
    """Return by how many standard errors the |log ratio| of the worst event exceeds epsilon.

    >>> raw = np.full(1000, 40.0)
    >>> excess(raw, raw + 1, epsilon=1.0)
    inf
    """
    values, places = np.unique(np.concatenate([without, with_user]), return_inverse=True)
    size = len(values)
    exactly = [np.bincount(part, minlength=size) for part in (places[: len(without)], places[len(without) :])]
    events = [np.concatenate([hits, np.cumsum(hits), np.cumsum(hits[::-1])]) for hits in exactly]  # =, <= and >=
    a, b = events
    if (np.maximum(a, b)[np.minimum(a, b) < _FEWEST] > 4 * _FEWEST * math.exp(epsilon)).any():
        return math.inf  # frequent in one crowd, almost impossible in the other
    judged = np.minimum(a, b) >= _FEWEST
    a, b = a[judged], b[judged]
    ratio = np.abs(np.log(a / len(without)) - np.log(b / len(with_user)))
    return float(((ratio - epsilon) / np.sqrt(1 / a + 1 / b)).max(initial=-math.inf))


def check_distinguishability(scheme: Scheme, setting: Setting) -> None:
    """Check that nothing that leaves a server reveals a user by more than the epsilon charged so far."""
    runs = [_released(scheme, setting, user) for user in (0, 1)]
    for slot in range(_SLOTS):
        (without, charge), (with_user, other_charge) = (run[slot] for run in runs)
        epsilon = max(charge, other_charge) / 1e9
        for name, values in without.items():
            worst = excess(values, with_user[name], epsilon)
            if worst > MARGIN:
                raise ContractBroken(
                    f"'{name}' of slot {slot} reveals whether a user is present by more than the ε = {epsilon:.6g} "
                    f"that was charged up to then ({worst:.3g} standard errors more)"
                )


def _released(scheme: Scheme, setting: Setting, user: int) -> list[tuple[dict[str, Floats], float]]:
    """Return, by slot, every number that leaves each of many servers, and the nano-epsilon charged so far."""
    state = scheme.start(setting)
    noise = SeededNoise([np.random.SeedSequence(11, spawn_key=(user,))], setting.servers, 1)
    hearing, shares = _deaf(scheme), np.full((setting.servers, 1), 0.5)
    counts = np.full((setting.servers, 1), _COUNT + user)
    slots, charge = [], np.zeros(setting.servers)
    for slot in range(_SLOTS):
        plan = scheme.plan(state, slot, shares)
        reading = scheme.perturb(state, plan, counts.copy(), noise)
        message = scheme.message(state, plan, reading)
        scheme.fuse(state, plan, reading, message, hearing)
        release = scheme.release(state, plan, reading)
        charge += release.charge.max(axis=1)
        numbers: dict[str, Any] = {"reading.noisy": reading.noisy, "release.estimate": release.estimate}
        numbers |= {"release.variance": release.variance, "release.sampled": release.sampled}
        numbers |= {f"message.{name}": array for name, array in message.arrays().items()}
        columns = {
            name: np.nan_to_num(np.asarray(array, dtype=np.float64).reshape(setting.servers, -1)[:, 0], nan=-1e300)
            for name, array in numbers.items()
        }
        slots.append((columns, float(charge.max())))
    return slots


def _deaf(scheme: Scheme) -> Hearing:
    """Return a hearing in which every server hears itself only, so that all are independent."""
    alone = one_hop_hearing(Graph.alone(SERVERS), 0.1)
    if scheme.reach == "one-hop":
        return alone
    if scheme.reach == "relay":
        return replace(alone, graph=Graph.alone(SERVERS))
    if scheme.reach == "flooding":
        return flooded_hearing(np.arange(SERVERS))
    return central_hearing(SERVERS, 1, alone) if scheme.reach == "central" else Hearing()
