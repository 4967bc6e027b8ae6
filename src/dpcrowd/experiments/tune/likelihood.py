"""Q by maximum likelihood from noisy samples alone: no truth is needed.

Samples that servers have released cost no further privacy. Those of `collect_samples` are not such: they are simulated
from counts, with noise that a seed repeats and that no ledger has paid for, so what is found from them depends on the
counts without any epsilon.

    x(t+1) = A x(t) + N(0, Q)        z_i(t) = H_i x(t) + N(0, R_i),   R_i = Var(noise) + observation variance

The observation variance is the filters' own (`dpcrowd.filters.observation`): H^2 Q (Q enters twice), or binomial.
With y = sum of H z/R and Y = sum of H^2/R over the samples of a slot, zbar = y/Y is sufficient for x:

    log p(z) = -1/2 sum [log 2 pi R + (z - H zbar)^2/R] + 1/2 log(2 pi/Y) + log N(zbar; prior, P + 1/Y)

exactly, so a slot costs O(m). Prior and P come from the filter itself (predict and update). Before the first
sample x is entirely unknown (a flat prior), which removes the last term of that slot. The noise is assumed to be
Gaussian, as in the filters. Whether a server samples depends only on past releases, and so adds no information.
Each region is treated alone, with the A of the diagonal form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints, PerRegion
from dpcrowd.filters import Observation, ProcessModel, observation_info, observation_var, predict, update
from dpcrowd.network.hearing import Hearing
from dpcrowd.privacy import Noise
from dpcrowd.schemes.base import Form, Plan, Reading, Release, Scheme, Setting
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.engine import run_batch

__all__ = ["Samples", "collect_samples", "log_likelihood", "most_likely_var"]

Progress = Callable[[int, int], None]

_LEAST = math.log10(1.0 / 12.0)  # rounding alone
_PER_DECADE = 2  # points of the first, coarse search
_DIGITS = 1e-3  # decades


@dataclass(frozen=True, eq=False)
class Samples:
    """Noisy samples of several independent streams of one process, slots first, then streams, servers, regions.

    noisy      (T, n, m, d) z_i(t) = H_i x(t) + v_i
    noise_var  (T, n, m, d) variance of the noise that was added for privacy
    where      (T, n, m, d) whether there is a sample
    shares     (T, n, m, 1) H_i, or (T, n, m, d) where they differ by region
    """

    noisy: Floats
    noise_var: Floats
    where: Bools
    shares: Floats

    @property
    def regions(self) -> int:
        return int(self.noisy.shape[-1])

    def region(self, k: int) -> Samples:
        """Return the samples of one region, in arrays of their own."""
        one = slice(k, k + 1)
        shares = self.shares if self.shares.shape[-1] == 1 else self.shares[..., one].copy()
        return Samples(
            self.noisy[..., one].copy(), self.noise_var[..., one].copy(), self.where[..., one].copy(), shares
        )


class _RecordingScheme(Scheme):
    """A wrapper around a scheme that records its samples and changes nothing."""

    name = "recording"
    kinds = frozenset({"finite", "window"})
    summary = ("as the scheme below",) * 4

    def __init__(self, inner: Scheme) -> None:
        self.inner, self.reach = inner, inner.reach
        self.readings: list[tuple[Floats, Floats, Bools, Floats]] = []

    def start(self, setting: Setting) -> Any:
        return self.inner.start(setting)

    def plan(self, state: Any, slot: int, shares: Floats) -> Plan:
        return self.inner.plan(state, slot, shares)

    def perturb(self, state: Any, plan: Plan, counts: Ints, noise: Noise) -> Reading:
        reading = self.inner.perturb(state, plan, counts, noise)
        shape = reading.noisy.shape
        noise_var, where = np.broadcast_to(reading.noise_var, shape).copy(), np.broadcast_to(plan.due, shape).copy()
        self.readings.append((reading.noisy.copy(), noise_var, where, np.array(plan.shares)))
        return reading

    def message(self, state: Any, plan: Plan, reading: Reading) -> Any:
        return self.inner.message(state, plan, reading)

    def fuse(self, state: Any, plan: Plan, reading: Reading, messages: Any, hearing: Hearing) -> None:
        self.inner.fuse(state, plan, reading, messages, hearing)

    def release(self, state: Any, plan: Plan, reading: Reading) -> Release:
        return self.inner.release(state, plan, reading)

    def value_bytes(self, regions: int, form: Form) -> int:
        return self.inner.value_bytes(regions, form)


def collect_samples(config: SimulationConfig) -> Samples:
    """Simulate one scheme and return all its noisy samples, which nobody has paid for; it must not group regions."""
    scheme = _RecordingScheme(config.entrants[0].scheme)
    run_batch(replace(config, entrants=(replace(config.entrants[0], scheme=scheme),)), range(config.runs))
    noisy, noise_var, where, shares = (np.stack(arrays) for arrays in zip(*scheme.readings, strict=True))
    shape = (len(noisy), config.runs, config.servers, -1)
    return Samples(noisy.reshape(shape), noise_var.reshape(shape), where.reshape(shape), shares.reshape(shape))


def log_likelihood(
    samples: Samples, process_var: object, observation: Observation = "paper", transition: object = 1.0
) -> PerRegion:
    """Return (d,) the log density of all samples of each region, for Q (a number or (d,)) and a diagonal A."""
    slots, streams, _, d = samples.noisy.shape
    model = ProcessModel.of(transition, np.broadcast_to(np.asarray(process_var, dtype=np.float64), (d,)))
    mean, var = np.zeros((streams, d)), np.full((streams, d), np.inf)
    # The paper's R does not depend on the state, so all slots are computed at once.
    fixed = _information(samples, slice(None), model, observation, mean, var) if observation == "paper" else None
    means, variances = np.empty((slots, streams, d)), np.empty((slots, streams, d))
    info_vec, info_mat, rest = np.empty((3, slots, streams, d)) if fixed is None else fixed
    for t in range(slots):
        means[t], variances[t] = mean, var = predict(mean, var, model)
        if fixed is None:
            info_vec[t], info_mat[t], rest[t] = _information(samples, t, model, observation, mean, var)
        mean, var = update(mean, var, info_vec[t], info_mat[t])
    return np.asarray((rest + _innovation(info_vec, info_mat, means, variances)).sum(axis=(0, 1)))


def _information(
    samples: Samples, at: int | slice, model: ProcessModel, observation: Observation, prior: Floats, prior_var: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return y, Y and all terms of the likelihood except the last, summed over the servers."""
    noisy, share, where = samples.noisy[at], samples.shares[at], samples.where[at]
    expected = np.where(np.isfinite(prior_var), prior, 0.0)[..., None, :]
    if observation == "binomial":  # as in the schemes: a server without a prior takes the sample itself
        expected = np.where(np.isfinite(prior_var)[..., None, :], expected, noisy / share)
    obs_var = samples.noise_var[at] + observation_var(observation, share, model.noise_var, expected)
    vectors, matrices = observation_info(noisy, share, obs_var, where)
    info_vec, info_mat = vectors.sum(axis=-2), matrices.sum(axis=-2)
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = noisy - share * (info_vec / info_mat)[..., None, :]
        terms = np.where(where, np.log(2.0 * np.pi * obs_var) + residual * residual / obs_var, 0.0)
        volume = np.where(info_mat > 0.0, np.log(2.0 * np.pi / info_mat), 0.0)
    return info_vec, info_mat, 0.5 * (volume - terms.sum(axis=-2))


def _innovation(info_vec: Floats, info_mat: Floats, prior: Floats, prior_var: Floats) -> Floats:
    """Return log N(zbar; prior, P + 1/Y); 0 where there is no sample or no prior."""
    defined = (info_mat > 0.0) & np.isfinite(prior_var)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = prior_var + 1.0 / info_mat
        innovation = info_vec / info_mat - prior
        return np.where(defined, -0.5 * (np.log(2.0 * np.pi * spread) + innovation * innovation / spread), 0.0)


def most_likely_var(
    samples: Samples,
    observation: Observation = "paper",
    transition: object = 1.0,
    *,
    progress: Progress | None = None,
) -> Floats:
    """Return (d,) the most likely Q of each region; NaN for a region that was sampled in fewer than two slots."""
    a = np.broadcast_to(np.asarray(transition, dtype=np.float64), (samples.regions,))
    best = np.full(samples.regions, np.nan)
    for k in range(samples.regions):
        best[k] = _most_likely(samples.region(k), observation, float(a[k]))
        if progress is not None:
            progress(k + 1, samples.regions)
    return best


def _most_likely(samples: Samples, observation: Observation, transition: float) -> float:
    """Search coarsely over all magnitudes that the samples allow, then within bounds around the best one."""
    from scipy.optimize import minimize_scalar

    if samples.where.any(axis=(1, 2, 3)).sum() < 2:
        return math.nan

    def loss(exponent: float) -> float:
        return -float(log_likelihood(samples, 10.0 ** float(exponent), observation, transition)[0])

    largest = float(np.abs(np.where(samples.where, samples.noisy / samples.shares, 0.0)).max())
    most = max(2.0 * math.log10(max(largest, 1.0)), _LEAST + 1.0)
    grid = np.linspace(_LEAST, most, 2 + math.ceil(_PER_DECADE * (most - _LEAST)))
    best = int(np.argmin([loss(exponent) for exponent in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    return float(10.0 ** minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": _DIGITS}).x)
