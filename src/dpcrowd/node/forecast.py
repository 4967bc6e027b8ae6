"""Will the budget last? The samples of a configuration, foretold with an invented crowd before anybody is counted.

Adaptive sampling follows the crowd: where people come and go quickly, it may spend the budget of a window in its first
slots and then stand still until the window is over. This follows from public numbers alone, so an operator can be told
beforehand. The scheme itself runs over three windows (or one horizon) for one server that hears nobody; the crowd has
the network's population and process variance, or is one that a process model expects, and every draw comes from a fixed
seed.

To keep it well below a second, at most 16 regions are looked at and the number of slots is limited: more regions would
ask for more samples, not fewer, so the forecast is rather too mild than too strict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import counted
from dpcrowd.filters import ProcessModel, default_gain
from dpcrowd.network.hearing import inbox_hearing
from dpcrowd.node.config import NetworkConfig
from dpcrowd.privacy import SeededNoise, noise_var
from dpcrowd.privacy.units import format_epsilon
from dpcrowd.sampling.schedule import samples_in_window
from dpcrowd.schemes.base import run_slot
from dpcrowd.schemes.rescue import RescueScheme
from dpcrowd.schemes.sampled import SampledScheme

__all__ = ["Forecast", "best_interval", "forecast", "schedule_warning"]

_REGIONS, _SLOTS = 16, 1_500
_WINDOWS = 3
_SEED = 20_260_101
_WAVE = 0.5
"""By which part of its mean a region rises and falls over a day."""
_DAY = 86_400 * 10**9
_TOLERATED = 10
"""A standstill is worth a warning if it is longer than this part of the window or horizon."""
_HOUR = 3600 * 10**9


@dataclass(frozen=True)
class Forecast:
    """What an adaptive scheme does with its budget.

    slots       how many were looked at
    samples     in how many of them the server sampled
    spent_at    the first slot that should have been sampled and could not be; None: there is none
    standstill  the most such slots in a row
    """

    slots: int
    samples: int
    spent_at: int | None
    standstill: int


def forecast(network: NetworkConfig, server: str) -> Forecast | None:
    """Return how an adaptive scheme will spread a server's samples; None if the configuration says when to sample."""
    scheme, guarantee = network.scheme(), network.guarantee()
    adaptive = isinstance(scheme, RescueScheme) or (isinstance(scheme, SampledScheme) and scheme.interval is None)
    if not adaptive:
        return None
    slots = min(_SLOTS, guarantee.length * (_WINDOWS if guarantee.kind == "window" else 1))
    truth, model = _crowd(network, slots)
    regions = truth.shape[1]
    share = np.array(network.server(server).counted_shares(network.regions[:regions]))[None]
    setting = replace(network.setting(server), model=model, form="diagonal")
    rng = np.random.default_rng(_SEED + 1)
    noise = SeededNoise([np.random.SeedSequence(_SEED)], 1, regions)
    hearing = inbox_hearing(default_gain(network.max_degree()))
    state = scheme.start(setting)
    samples, spent_at, standstill, still = 0, None, 0, 0
    for slot in range(slots):
        counts = rng.binomial(truth[slot], share)
        release = run_slot(scheme, state, slot, share, counts, noise, hearing)
        if release.sampled.any():
            samples, still = samples + 1, 0
        elif (state.controllers.next_slot <= slot).any():  # it would have sampled, had it been able to pay
            still += 1
            standstill = max(standstill, still)
            spent_at = slot if spent_at is None else spent_at
    if still and slots == _SLOTS:
        standstill = max(standstill, _until_end(guarantee.length, slots, still))
    return Forecast(slots, samples, spent_at, standstill)


def schedule_warning(network: NetworkConfig, server: str) -> str | None:
    """Return what will happen and what to write instead, if the budget will be spent long before its time."""
    expected = forecast(network, server)
    guarantee = network.guarantee()
    length = guarantee.length
    if expected is None or expected.spent_at is None or expected.standstill * _TOLERATED <= length:
        return None
    what, name = ("window", "dpcrowd-w") if guarantee.kind == "window" else ("horizon", "dpcrowd")
    crowd = "of this population" if network.fitted is None else "as the process model expects it"
    spent_at = expected.spent_at % length
    reaches = ", which reaches into the next window" if spent_at + expected.standstill > length else ""
    instead = f'name = "{name}", sampling = "fixed", interval = {best_interval(network, server)}'
    return (
        f"the budget will not last: with an invented crowd {crowd}, scheme '{network.method.name}' can pay for no more "
        f"samples after {spent_at} of the {counted(length, 'slot')} of its {what}, and stands still for up to "
        f"{counted(expected.standstill, 'slot')} in a row ({_lasting(expected.standstill * network.clock().length_ns)}"
        f"{reaches}). Meanwhile estimates fall behind. Write in [scheme]: {instead}; each sample then has an equal "
        f"part of ε={format_epsilon(guarantee.total)}. A network that has begun can change its scheme to relay by a "
        "revision; any other scheme needs a new network, with an id of its own."
    )


def best_interval(network: NetworkConfig, server: str) -> int:
    """Return the fixed interval with the smallest mean error variance, by the filter's own model in its steady state.

    A sample every I slots gets epsilon / ceil(w/I), hence the variance R(I) of what it says about the population. In k
    slots c(k) = a^2k of the variance P after a sample is left, and d(k) = Q (1 + a^2 + .. + a^(2k-2)) is added, so that
    P solves c(I) P^2 + (d(I) + (1 - c(I)) R) P = d(I) R, and the mean is that of c(k) P + d(k) over k < I. Without a
    process model a is 1. The neighbours sample in the same slots.
    """
    guarantee, length, model = network.guarantee(), network.guarantee().length, network.model()
    process_var, kept = float(np.mean(model.noise_var)), 1.0
    if model.course is not None:
        kept = float(np.mean(np.square(model.diagonal_transition)))
    people = network.population / len(network.regions)
    names = [server, *network.neighbours(server, network.valid_from_slot)]
    shares = [network.server(name).counted_share for name in names]
    best, least = 1, math.inf
    for interval in range(1, min(length, _SLOTS) + 1):
        price = guarantee.total // samples_in_window(length, interval)
        noise = float(noise_var(max(price, 1), guarantee.sensitivity))
        information = sum(share * share / (noise + share * (1 - share) * people) for share in shares)
        left = kept ** np.arange(interval + 1)
        added = process_var * np.concatenate([[0.0], np.cumsum(left[:-1])])
        linear = added[-1] + (1.0 - left[-1]) / information
        root = math.sqrt(linear**2 + 4 * left[-1] * added[-1] / information)
        after = 2 * added[-1] / information / max(linear + root, 1e-300)
        mean = float((left[:-1] * after + added[:-1]).mean())
        if mean < least:
            best, least = interval, mean
    return best


def _crowd(network: NetworkConfig, slots: int) -> tuple[NDArray[np.int64], ProcessModel]:
    """Return counts, (slots, regions), and what filters know: a daily wave, and a random walk for the rest of Q.

    With a process model the counts are drawn from it.
    """
    count = min(len(network.regions), _REGIONS)
    if network.fitted is not None:
        return _expected_crowd(_of_first_regions(network.model(), count), slots)
    variance = np.broadcast_to(np.asarray(network.method.process_var, dtype=np.float64), len(network.regions))[:count]
    people = network.population / len(network.regions)
    angle = 2 * np.pi * network.clock().length_ns / _DAY
    # The mean square of a step of height * sin(angle * slot) is height^2 * angle^2 / 2 for short slots, never above Q.
    height = np.minimum(_WAVE * people, np.sqrt(2 * variance) / angle)
    rest = np.maximum(variance - (height * angle) ** 2 / 2, 0.0)
    rng = np.random.default_rng(_SEED)
    walk = np.cumsum(rng.standard_normal((slots, count)) * np.sqrt(rest), axis=0)
    phases = rng.uniform(0, 2 * np.pi, count)
    wave = height * np.sin(angle * np.arange(slots)[:, None] + phases)
    return np.abs(people + wave + walk).round().astype(np.int64), ProcessModel.of(1.0, variance)


def _of_first_regions(model: ProcessModel, count: int) -> ProcessModel:
    """Return the model of the first regions alone."""
    course = model.course
    assert course is not None
    scale = None if course.scale is None else course.scale[:, :count]
    part = replace(course, profile=course.profile[:, :count], variance=course.variance[:, :count], scale=scale)
    return ProcessModel.around(part, np.broadcast_to(model.diagonal_transition, model.regions)[:count])


def _expected_crowd(model: ProcessModel, slots: int) -> tuple[NDArray[np.int64], ProcessModel]:
    """Return counts that are drawn from a model with a course, and the model."""
    course, rng = model.course, np.random.default_rng(_SEED)
    assert course is not None
    counts, off = np.empty((slots, model.regions)), np.zeros(model.regions)
    for slot in range(slots):
        added = np.sqrt(course.noise_var(slot)) * rng.standard_normal(model.regions)
        off = model.carried(slot) * off + added
        counts[slot] = course.mean(slot) + off
    return np.maximum(counts, 0.0).round().astype(np.int64), model


def _until_end(length: int, slots: int, still: int) -> int:
    """Return the length of a standstill that goes on after the forecast's last slot: nothing comes back sooner."""
    return max(still, length - (slots - still)) if length > slots else still


def _lasting(nanoseconds: int) -> str:
    hours = nanoseconds / _HOUR
    if hours < 1 / 30:
        return f"{nanoseconds / 10**9:.3g} s"
    if hours < 2:
        return f"{hours * 60:.3g} minutes"
    return f"{hours:.3g} hours" if hours < 48 else f"{hours / 24:.3g} days"
