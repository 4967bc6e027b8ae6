"""BD, BA, Uniform and Sample against plain Python written from their rules (Kellaris et al.; design, section 4.3).

A server's estimate is its last release divided by its share. Only the noise is shared with the schemes: draw 0 of a
slot is the publication's, draw 1 the dissimilarity test's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.registry import make_scheme
from schemes_support import World, drawn, filter_alone, laplace_var, make_world, play


@pytest.fixture(autouse=True)
def _variances_of_the_filter_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What drift adds is beside the filter (`unit/schemes/test_drift.py`)."""
    filter_alone(monkeypatch)


NANO = 10**9
Slot = tuple[list[float], int]  # the last release of all regions, and what was paid in the slot


def moved(world: World, slot: int, server: int, last: list[float], unit: int) -> float:
    """dis + noise: the mean over regions of |x - last release|, with noise of scale 2w/(epsilon d)."""
    counts = [float(x) for x in world.counts[slot, server]]
    distance = sum(abs(x - y) for x, y in zip(counts, last, strict=True))
    return (distance + drawn(world, slot, unit, read=1)[server][0]) / len(counts)


def publish(world: World, slot: int, server: int, epsilon: int) -> list[float]:
    noise = drawn(world, slot, epsilon)[server]
    return [float(x) + n for x, n in zip(world.counts[slot, server], noise, strict=True)]


def budget_distribution(world: World, server: int, total: int, window: int) -> Iterator[Slot]:
    """BD: a publication takes half of what those of the last w - 1 slots have left of epsilon/2."""
    unit = total // (2 * window)
    published = [0] * world.slots
    last: list[float] = []
    for slot in range(world.slots):
        spent = sum(published[max(0, slot - window + 1) : slot])
        price = (total // 2 - spent) // 2
        first = slot == 0
        if first or moved(world, slot, server, last, unit) > NANO / price:
            published[slot] = price
            last = publish(world, slot, server, price)
        yield last, published[slot] + (0 if first else unit)


def budget_absorption(world: World, server: int, total: int, window: int) -> Iterator[Slot]:
    """BA: each slot has epsilon/(2w); a publication absorbs unused shares before it, and as many slots are nullified.

    At the publication of slot l with the shares of n slots, slots l+1 .. l+n-1 are nullified: neither tested nor
    published. Slot i after them has the shares of slots l+n .. i, at most w.
    """
    unit = total // (2 * window)
    free_from = 0  # the first slot whose share is unused
    last: list[float] = []
    for slot in range(world.slots):
        if slot < free_from:
            yield last, 0
            continue
        shares = min(slot - free_from + 1, window)
        first = slot == 0
        paid = 0 if first else unit
        if first or moved(world, slot, server, last, unit) > NANO / (unit * shares):
            last = publish(world, slot, server, unit * shares)
            paid += unit * shares
            free_from = slot + shares
        yield last, paid


@pytest.mark.parametrize(("name", "oracle"), [("bd", budget_distribution), ("ba", budget_absorption)])
@pytest.mark.parametrize("regions", [1, 4])
@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_bd_and_ba(name: str, oracle: object, regions: int, epsilon: float) -> None:
    """A wrong price, threshold, noise or memory of the last publication (a known trap) changes what is published."""
    assert callable(oracle)
    world = make_world(31, servers=4, regions=regions, slots=90)
    total, window = round(epsilon * NANO), 12
    setting = Setting(4, ProcessModel.of(1.0, np.ones(regions)), Guarantee.window(window, epsilon))
    releases = play(make_scheme(name), setting, world)
    unit = total // (2 * window)
    for server in range(4):
        share = float(world.shares[server, 0])
        slots = list(oracle(world, server, total, window))
        for release, (last, paid) in zip(releases, slots, strict=True):
            assert release.estimate[server] == pytest.approx([x / share for x in last], rel=1e-9)
            assert int(release.charge[server, 0]) == paid
            assert bool(release.sampled[server, 0]) == (paid > 0)
            assert np.isnan(release.variance[server]).all()
        publications = sum(paid not in (0, unit) for _, paid in slots)
        assert 3 < publications < 89  # both branches are taken
        payments = [paid for _, paid in slots]
        assert max(sum(payments[t : t + window]) for t in range(90)) <= total
        if name == "ba":
            assert 0 in payments  # slots were nullified


@pytest.mark.parametrize("observation", ["paper", "binomial"])
@pytest.mark.parametrize("name", ["uniform", "sample"])
def test_uniform_and_sample(name: str, observation: object) -> None:
    """epsilon/w in each slot, or all of epsilon at slots 0, w, 2w; an old value's variance grows by Q a slot."""
    world = make_world(32, servers=4, regions=3, slots=60)
    Q, window, total = [90.0, 4.0, 0.0], 7, 4 * NANO
    setting = Setting(4, ProcessModel.of(1.0, Q), Guarantee.window(window, 4.0), observation=observation)  # type: ignore[arg-type]
    releases = play(make_scheme(name), setting, world)
    for server in range(4):
        share = float(world.shares[server, 0])
        for slot, release in enumerate(releases):
            age = slot % window if name == "sample" else 0
            price = total if name == "sample" else total // window
            values = publish(world, slot - age, server, price)
            for k, value in enumerate(values):
                spread = share**2 * Q[k]
                if observation == "binomial":
                    spread = share * (1 - share) * max(value / share, 1.0)
                variance = (laplace_var(price / NANO) + max(spread, 1 / 12)) / share**2 + age * Q[k]
                assert release.estimate[server, k] == pytest.approx(value / share, rel=1e-9)
                assert release.variance[server, k] == pytest.approx(variance, rel=1e-9)
                low, high = (bound[server, k] for bound in release.interval)
                assert high - low == pytest.approx(2 * 1.959963984540054 * math.sqrt(variance), rel=1e-9)
            assert int(release.charge[server, 0]) == (0 if age else price)
