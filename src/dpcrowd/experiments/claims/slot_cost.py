"""The time that one slot of one server takes, measured when the paper is reproduced.

A live server is a Python object: `observe` (plan, noise, message) and `hear` (fusion of five neighbours' messages,
release) are timed together, with the simulator's noise and with the exact one. It samples in every slot, or as often
as its own rule says (DPCrowd+). The cost in the simulator is in its records; the claim judges both.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass

import numpy as np

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee, Noise
from dpcrowd.privacy.secure_noise import SecureNoise
from dpcrowd.privacy.seeded_noise import SeededNoise
from dpcrowd.schemes.base import Scheme, Setting
from dpcrowd.schemes.messages import Messages
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server

__all__ = ["LIMIT_MS", "NEIGHBOURS", "SlotCost", "SlotTiming", "measure_slot_cost"]

LIMIT_MS = 0.1  # what a slot costs at most, according to the paper
NEIGHBOURS = 5
_SLOTS = 300
_WARM_UP = 20
_SERVERS = (("dpcrowd", 1), ("dpcrowd-plus", 51))
_WINDOW = 100


@dataclass(frozen=True)
class SlotTiming:
    """Milliseconds per slot of one server: the median and the quartiles of `slots` slots."""

    scheme: str
    regions: int
    secure: bool
    slots: int
    low: float
    median: float
    high: float


@dataclass(frozen=True)
class SlotCost:
    """All timings, and the machine on which they were measured."""

    machine: str
    timings: tuple[SlotTiming, ...]


def measure_slot_cost(slots: int = _SLOTS) -> SlotCost:
    """Time a server of DPCrowd with one region and one of DPCrowd+ with 51, with each kind of noise."""
    servers = [(name, regions, secure) for name, regions in _SERVERS for secure in (False, True)]
    timings = [_timing(name, regions, secure, slots) for name, regions, secure in servers]
    return SlotCost(_machine(), tuple(timings))


def _timing(name: str, regions: int, secure: bool, slots: int) -> SlotTiming:
    first, *others = (_server(name, regions, number, slots, secure) for number in range(NEIGHBOURS + 1))
    rng = np.random.default_rng(0)
    counts = rng.poisson(400.0, size=(slots + _WARM_UP, NEIGHBOURS + 1, regions))
    messages: dict[int, Messages] = {}
    for number, other in enumerate(others, start=1):
        message = other.observe(0, counts[0, number])
        if message is not None:
            messages[number] = message  # the same in every slot: the cost of fusing it does not depend on its content
    durations = np.empty(slots + _WARM_UP)
    for slot in range(slots + _WARM_UP):
        start = time.perf_counter()
        first.observe(slot, counts[slot, 0])
        first.hear(messages)
        durations[slot] = 1000.0 * (time.perf_counter() - start)
    low, median, high = np.quantile(durations[_WARM_UP:], (0.25, 0.5, 0.75)).tolist()
    return SlotTiming(name, regions, secure, slots, low, median, high)


def _server(name: str, regions: int, number: int, slots: int, secure: bool) -> Server:
    finite = name == "dpcrowd"
    scheme: Scheme = make_scheme(name, interval=1) if finite else make_scheme(name)
    guarantee = Guarantee.finite(slots + _WARM_UP, 1.0) if finite else Guarantee.window(_WINDOW, 1.0)
    setting = Setting(1, ProcessModel.of(1.0, np.full(regions, 100.0)), guarantee)
    noise: Noise = SeededNoise([np.random.SeedSequence(number)], 1, regions)
    if secure and number == 0:  # the others are not timed
        noise = SecureNoise()
    return Server(scheme, setting, noise, number=number, share=0.5, max_degree=NEIGHBOURS, allow_simulated_noise=True)


def _machine() -> str:
    processor = platform.processor() or platform.machine()
    return f"{platform.python_implementation()} {platform.python_version()}, {processor}, {os.cpu_count()} cores"
