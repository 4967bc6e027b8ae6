"""DPCrowd for one region as a hand-written loop: what the engine is measured against in bench_engine.py.

The same arithmetic as the scheme, written for this one case: Kalman-consensus information filter (Algorithm 1), FAST's
PID (without its derivative, whose gain is 0), discrete Laplace noise from two exponentials, and a ledger that counts
nano-epsilon. Run by run, slot by slot, server by server, so that a run's state stays in the nearest cache; noise is
drawn only where a sample is taken. Numba compiles it; nothing here is used by the library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Case", "Outcome", "run_loop"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Case(NamedTuple):
    """Everything that is drawn or decided before the first slot.

    counts           (runs, slots, servers)
    shares, gain     (runs, servers); gain is the consensus step beta
    indptr, indices  J_i of each server in the union of the runs' graphs, ascending, unsigned
    amount           nano-epsilon of a sample, of `total`; at most `most` samples
    """

    counts: Ints
    shares: Floats
    gain: Floats
    indptr: NDArray[np.uint32]
    indices: NDArray[np.uint32]
    process_var: float
    noise_scale: float
    noise_var: float
    amount: int
    total: int
    most: int
    theta: float
    xi: float
    proportional: float
    integral: float
    window: int


class Outcome(NamedTuple):
    """What a simulation has to hand over, (runs, slots, servers) each; charges in nano-epsilon."""

    estimates: Floats
    variances: Floats
    charges: Ints


def run_loop(case: Case, rng: np.random.Generator, given: Floats | None = None) -> Outcome:
    """The whole simulation. `given`: noise numbers to use instead of drawing them, (runs, slots, servers)."""
    noise = np.zeros((0, 0, 0)) if given is None else given
    shape = case.counts.shape
    outcome = Outcome(np.empty(shape), np.empty(shape), np.empty(shape, dtype=np.int64))
    _compiled()(case, rng, noise, outcome)
    return outcome


@cache
def _compiled() -> Callable[..., Any]:
    from numba import njit

    compiled: Callable[..., Any] = njit(_loop)
    return compiled


def _loop(case: Case, rng: np.random.Generator, given: Floats, outcome: Outcome) -> None:
    runs, slots, servers = case.counts.shape
    q, window = case.process_var, case.window
    for run in range(runs):
        first = np.uint32(run * servers)
        mean, var = np.zeros(servers), np.full(servers, np.inf)
        said = np.zeros((servers, 4))  # info_vec, info_mat, prior, 1: all zero for a server that is silent
        interval, next_slot = np.ones(servers), np.zeros(servers, dtype=np.int64)
        errors, measured = np.zeros((servers, window)), np.zeros(servers, dtype=np.int64)
        samples, spent = np.zeros(servers, dtype=np.int64), np.zeros(servers, dtype=np.int64)
        due = np.zeros(servers, dtype=np.bool_)
        for slot in range(slots):
            for i in range(servers):
                var[i] += q
                due[i] = next_slot[i] <= slot and samples[i] < case.most and case.total - spent[i] >= case.amount
                if not due[i]:
                    outcome.charges[run, slot, i] = 0
                    said[i] = 0.0
                    continue
                outcome.charges[run, slot, i] = case.amount
                spent[i] += case.amount
                samples[i] += 1
                if given.size > 0:
                    noise = given[run, slot, i]
                else:
                    noise = np.floor(rng.standard_exponential() * case.noise_scale)
                    noise -= np.floor(rng.standard_exponential() * case.noise_scale)
                share = case.shares[run, i]
                weight = share / (case.noise_var + max(share * share * q, 1.0 / 12.0))
                known = var[i] < np.inf
                said[i, 0] = weight * (case.counts[run, slot, i] + noise)
                said[i, 1] = weight * share
                said[i, 2] = mean[i] if known else 0.0
                said[i, 3] = 1.0 if known else 0.0
            for i in range(servers):
                row = run * servers + i
                info_vec, info_mat, heard, speakers = 0.0, 0.0, 0.0, 0.0
                for e in range(case.indptr[row], case.indptr[row + 1]):
                    j = case.indices[e] - first
                    info_vec += said[j, 0]
                    info_mat += said[j, 1]
                    heard += said[j, 2]
                    speakers += said[j, 3]
                prior, prior_var = mean[i], var[i]
                precision = 1.0 / prior_var + info_mat
                posterior = prior
                if precision > 0.0:
                    var[i] = 1.0 / precision
                    posterior += (info_vec - info_mat * prior) * var[i]
                if prior_var < np.inf:
                    pull = case.gain[run, i] * (1.0 - 1.0 / (1.0 + prior_var))
                    posterior += pull * (heard - speakers * prior)
                mean[i] = posterior
                outcome.estimates[run, slot, i] = posterior if var[i] < np.inf else np.nan
                outcome.variances[run, slot, i] = var[i]
                if not due[i]:
                    continue
                if prior_var < np.inf:
                    error = abs(posterior - prior) / max(posterior, 1.0)
                    errors[i, measured[i] % window] = error
                    measured[i] += 1
                    mean_error = errors[i].sum() / min(measured[i], window)
                    delta = case.proportional * error + case.integral * mean_error
                    exponent = min((delta - case.xi) / case.xi, 30.0)
                    interval[i] = max(1.0, interval[i] + case.theta * (1.0 - np.exp(exponent)))
                next_slot[i] = slot + int(np.floor(interval[i] + 0.5))
