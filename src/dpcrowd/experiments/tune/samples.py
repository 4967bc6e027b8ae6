"""The noisy samples of a simulated network: what its servers have released, and nothing that they have not.

A scheme is wrapped in one that listens: the engine runs it as ever, and every reading is written down on its way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.network.hearing import Hearing
from dpcrowd.privacy import Noise
from dpcrowd.schemes.base import Form, Plan, Reading, Release, Scheme, Setting
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.engine import run_batch

__all__ = ["Samples", "listen"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Samples:
    """Noisy samples of several independent streams of one process, slots first, then streams, servers, regions.

    noisy      (T, n, m, d) z_i(t) = H_i x(t) + v_i
    noise_var  (T, n, m, d) variance of the noise that was added for privacy
    where      (T, n, m, d) whether there is a sample
    shares     (T, n, m, 1) H_i
    """

    noisy: Floats
    noise_var: Floats
    where: NDArray[np.bool_]
    shares: Floats

    @property
    def regions(self) -> int:
        return int(self.noisy.shape[-1])

    def region(self, k: int) -> Samples:
        """Those of one region, in arrays of their own."""
        one = slice(k, k + 1)
        return Samples(
            self.noisy[..., one].copy(), self.noise_var[..., one].copy(), self.where[..., one].copy(), self.shares
        )


class _Listening(Scheme):
    """A scheme as it is, whose samples are kept."""

    name = "listening"
    kinds = frozenset({"finite", "window"})
    summary = ("as the scheme below",) * 4

    def __init__(self, inner: Scheme) -> None:
        self.inner, self.reach = inner, inner.reach
        self.heard: list[tuple[Floats, Floats, NDArray[np.bool_], Floats]] = []

    def start(self, setting: Setting) -> Any:
        return self.inner.start(setting)

    def plan(self, state: Any, slot: int, shares: Floats) -> Plan:
        return self.inner.plan(state, slot, shares)

    def perturb(self, state: Any, plan: Plan, counts: NDArray[np.int64], noise: Noise) -> Reading:
        reading = self.inner.perturb(state, plan, counts, noise)
        shape = reading.noisy.shape
        noise_var, where = np.broadcast_to(reading.noise_var, shape).copy(), np.broadcast_to(plan.due, shape).copy()
        self.heard.append((reading.noisy.copy(), noise_var, where, np.array(plan.shares)))
        return reading

    def message(self, state: Any, plan: Plan, reading: Reading) -> Any:
        return self.inner.message(state, plan, reading)

    def fuse(self, state: Any, plan: Plan, reading: Reading, messages: Any, hearing: Hearing) -> None:
        self.inner.fuse(state, plan, reading, messages, hearing)

    def release(self, state: Any, plan: Plan, reading: Reading) -> Release:
        return self.inner.release(state, plan, reading)

    def value_bytes(self, regions: int, form: Form) -> int:
        return self.inner.value_bytes(regions, form)


def listen(config: SimulationConfig) -> Samples:
    """All noisy samples of the one scheme of a simulation; it must not group regions."""
    scheme = _Listening(config.entrants[0].scheme)
    run_batch(replace(config, entrants=(replace(config.entrants[0], scheme=scheme),)), range(config.runs))
    noisy, noise_var, where, shares = (np.stack(arrays) for arrays in zip(*scheme.heard, strict=True))
    shape = (len(noisy), config.runs, config.servers, -1)
    return Samples(noisy.reshape(shape), noise_var.reshape(shape), where.reshape(shape), shares.reshape(shape))
