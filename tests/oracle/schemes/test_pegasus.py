"""PeGaSus against plain Python written from Chen et al. (perturber, deviation-based grouper, median smoother).

Noise on counts and deviations is discrete: n Sum|c - mean| is a whole number for a group of n slots, so it gets
discrete noise of scale 8n/eps_g and is divided by n. Draw 0 of a slot is the perturber's, 1 the threshold's, 2 the
deviation's.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes import pegasus
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.registry import make_scheme
from schemes_support import World, drawn, make_world, play

NANO = 10**9


def chen(world: World, server: int, region: int, total: int, window: int, longest: int) -> Iterator[tuple[float, int]]:
    """(released value, size of its group) of one region at one server.

    A count that is found too far from the open group has been read by that group's test. It becomes a group of its own
    that is closed at once: in a second test its reading would be paid twice. A group is also closed, untested, when
    it is as long as memory allows.
    """
    grouper = total // (5 * window)
    perturber = 4 * grouper
    theta = 5 * NANO / grouper
    raw: list[int] = []
    noisy: list[float] = []
    threshold = 0.0
    is_open = False
    for slot in range(world.slots):
        count = int(world.counts[slot, server, region])
        value = count + drawn(world, slot, perturber)[server][region]
        if is_open and len(raw) < longest:
            members = [*raw, count]
            n = len(members)
            whole = sum(abs(n * c - sum(members)) for c in members)  # n Sum|c - mean|
            noise = drawn(world, slot, grouper, sensitivity=8 * n, read=2)[server][region]
            if (whole + noise) / n < threshold:
                raw, noisy = members, [*noisy, value]
            else:
                raw, noisy, is_open = [count], [value], False
        else:
            raw, noisy, is_open = [count], [value], True
            threshold = theta + drawn(world, slot, grouper, sensitivity=4, read=1)[server][region]
        yield statistics.median(noisy), len(noisy)


@pytest.mark.parametrize("epsilon", [5.0, 100.0])
@pytest.mark.parametrize(("window", "longest"), [(6, 256), (20, 256), (6, 9)])
def test_pegasus(epsilon: float, window: int, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which slots are grouped, and so every median, depends on every draw, threshold and count."""
    monkeypatch.setattr(pegasus, "_LONGEST_GROUP", longest)
    world = make_world(41, servers=3, regions=2, slots=100)
    total = round(epsilon * NANO)
    setting = Setting(3, ProcessModel.of(1.0, np.ones(2)), Guarantee.window(window, epsilon))
    releases = play(make_scheme("pegasus"), setting, world)
    sizes: list[int] = []
    for server in range(3):
        for region in range(2):
            slots = list(chen(world, server, region, total, window, longest))
            share = float(world.shares[server, 0])
            for release, (value, _) in zip(releases, slots, strict=True):
                assert release.estimate[server, region] == pytest.approx(value / share, rel=1e-9)
            sizes += [group for _, group in slots]
    assert {1, 2, 3} <= set(sizes)
    assert max(sizes) == 9 if longest == 9 and epsilon == 5.0 else max(sizes) > 3
    assert all((release.charge == 5 * (total // (5 * window))).all() for release in releases)


def test_a_count_is_read_by_one_grouping_test_only() -> None:
    """The count that closes a group must not open the next one: it would be in two tests and pay the grouper twice.

    With hardly any noise, 0, 0, 1000 closes the group of zeros. The next 1000 opens a group without a test, although
    it is no different from the one before it.
    """
    stream = [0, 0, 1000, 1000, 1000, 1000]
    world = make_world(0, servers=2)
    scheme = make_scheme("pegasus")
    state = scheme.start(Setting(2, ProcessModel.of(1.0, [1.0]), Guarantee.window(100, 200_000.0)))
    sizes = []
    for slot, count in enumerate(stream):
        plan = scheme.plan(state, slot, world.shares)
        scheme.perturb(state, plan, np.full((2, 1), count), world.noise())
        sizes.append(int(state.size[0, 0]))
    assert sizes == [1, 2, 0, 1, 2, 3]  # 0: no open group
