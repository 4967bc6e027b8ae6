"""What dpcrowd's own schemes keep beyond the contract of all schemes (`dpcrowd.testing`): they estimate well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.privacy import SeededNoise
from dpcrowd.schemes.base import run_slot
from dpcrowd.schemes.registry import SCHEMES
from schemes_support import (
    CASES,
    SERVERS,
    Case,
    every_case,
    guarantee_for,
    hearing_of,
    make_setting,
    make_world,
    play,
    played,
    same,
)


@every_case
def test_estimates_and_intervals_mean_something(case: Case) -> None:
    """In every scheme all servers sample in slot 0: from then on nobody may be without an estimate, and low <= high."""
    for release in played(case):
        assert np.isfinite(release.estimate).all()
        low, high = release.interval
        given = ~np.isnan(release.variance)
        assert (release.variance[given] > 0).all()
        assert np.isfinite(release.variance[given]).all()
        assert (low[given] < release.estimate[given]).all()
        assert (release.estimate[given] < high[given]).all()


@pytest.mark.parametrize("case", [case for case in CASES if case.name != "past"], ids=str)
def test_estimates_are_near_the_truth(case: Case) -> None:
    """A forgotten division by the share or by a group's size shows as an estimate that is off by a factor."""
    world = make_world(regions=case.regions)
    crowd = (world.counts / world.shares).mean(axis=(0, 1))
    estimate = np.mean([release.estimate for release in played(case)], axis=(0, 1))
    assert estimate == pytest.approx(crowd, rel=0.15, abs=6.0)


LOOPS = [case for case in CASES if case.name in ("dpcrowd", "dpcrowd-w", "dpcrowd-plus", "rescuedp", "fast", "relay")]


@pytest.mark.slow
@pytest.mark.parametrize("case", LOOPS, ids=str)
def test_compiled_loops_change_no_bit(case: Case) -> None:
    """The simulator compiles its hot loops and a live server does not: both must be the same scheme."""
    pytest.importorskip("numba")
    world, scheme = make_world(regions=case.regions), case.scheme()
    setting = replace(case.setting(), engine="numba")
    state, noise, releases = scheme.start(setting), world.noise(), []
    for slot in range(world.slots):
        hearing = replace(hearing_of(scheme, [world.graph(slot)], world.gain), engine="numba")
        releases.append(run_slot(scheme, state, slot, world.shares, world.counts[slot], noise, hearing))
    assert same(releases, played(case))


@pytest.mark.parametrize("name", [name for name in SCHEMES if not SCHEMES[name].needs_model])
def test_shares_may_change_in_each_slot(name: str) -> None:
    """A count belongs to the share of its own slot: divided by another one, the estimate would be off by a factor."""
    case = Case(name, regions=3)
    world, scheme = make_world(2, servers=5, regions=3, slots=60), case.scheme()
    shares = np.random.default_rng(0).uniform(0.1, 1.0, (60, 5, 1))
    crowd = np.array([400.0, 150.0, 60.0])
    counts = np.rint(shares * crowd).astype(np.int64)
    guarantee = case.guarantee and guarantee_for(name, epsilon=60.0)
    state, noise, estimates = scheme.start(make_setting(5, 3, guarantee)), world.noise(), []
    hearing = hearing_of(scheme, [world.graph(0)], world.gain)
    for slot in range(world.slots):
        release = run_slot(scheme, state, slot, shares[slot], counts[slot], noise, hearing)
        estimates.append(release.estimate)
    assert np.median(np.array(estimates), axis=(0, 1)) == pytest.approx(crowd, rel=0.03)
    assert np.abs(np.array(estimates)[5:] / crowd - 1).mean() < 0.1


@pytest.mark.parametrize("name", SCHEMES)
def test_another_seed_gives_other_noise(name: str) -> None:
    """If the noise did not reach the estimates, nothing would be private (and only NonPrivate may be so)."""
    case = Case(name)
    world = make_world()
    other = SeededNoise([np.random.SeedSequence(99)], SERVERS, 1)
    assert same(play(case.scheme(), case.setting(), world, noise=other), played(case)) == (not case.private)
