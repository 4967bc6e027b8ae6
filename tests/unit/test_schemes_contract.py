"""The contract that every scheme keeps, whatever it is: parametrised over all schemes and what they run under."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.grouping import compiled_grouper
from dpcrowd.privacy import SeededNoise
from dpcrowd.sampling.pid_loop import compiled_pid
from dpcrowd.schemes.base import Release, run_slot
from dpcrowd.schemes.registry import SCHEMES
from schemes_support import (
    CASES,
    SERVERS,
    Case,
    bits,
    every_case,
    fingerprint,
    guarantee_for,
    hearing_of,
    make_setting,
    make_world,
    play,
    played,
    same,
)


@every_case
def test_shapes_and_types(case: Case) -> None:
    """A wrong shape would broadcast silently into wrong metrics; a float charge would not be exact."""
    for slot, release in enumerate(played(case)):
        assert release.slot == slot
        for values in (release.estimate, release.variance, *release.interval):
            assert values.shape == (SERVERS, case.regions)
            assert values.dtype == np.float64
        assert release.sampled.shape in ((SERVERS, 1), (SERVERS, case.regions))
        assert release.sampled.dtype == np.bool_
        assert release.charge.shape in ((SERVERS, 1), (SERVERS, case.regions))
        assert release.charge.dtype == np.int64
        assert release.speaks.shape == (SERVERS,)
        assert release.speaks.dtype == np.bool_


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


@every_case
def test_estimates_are_near_the_truth(case: Case) -> None:
    """A forgotten division by the share or by a group's size shows as an estimate that is off by a factor."""
    world = make_world(regions=case.regions)
    crowd = (world.counts / world.shares).mean(axis=(0, 1))
    estimate = np.mean([release.estimate for release in played(case)], axis=(0, 1))
    assert estimate == pytest.approx(crowd, rel=0.15, abs=6.0)


@every_case
def test_a_batch_of_runs_is_its_runs(case: Case) -> None:
    """Runs in a batch that touched each other, or sums in another order, would make results depend on batching."""
    worlds = [make_world(seed, regions=case.regions, slots=24) for seed in (0, 3)]
    gain = min(world.gain for world in worlds)
    seeds = [np.random.SeedSequence(seed) for seed in (5, 6)]
    scheme = case.scheme()

    def run(chosen: Sequence[int]) -> list[Release]:
        noise = SeededNoise([seeds[i] for i in chosen], SERVERS, case.regions)
        state = scheme.start(case.setting(SERVERS * len(chosen)))
        hearing = hearing_of(scheme, [worlds[i].graph(0) for i in chosen], gain)
        shares = np.concatenate([worlds[i].shares for i in chosen])
        counts = np.concatenate([worlds[i].counts for i in chosen], axis=1)
        return [run_slot(scheme, state, t, shares, counts[t], noise, hearing) for t in range(len(counts))]

    batch, singles = run([0, 1]), [run([i]) for i in range(2)]
    for slot, release in enumerate(batch):
        for name in ("estimate", "variance", "sampled", "charge", "speaks"):
            alone = np.concatenate([getattr(single[slot], name) for single in singles])
            assert bits(getattr(release, name)) == bits(alone), (slot, name)


@every_case
def test_same_seed_same_bits_and_releases_stay(case: Case) -> None:
    """A hidden generator or clock would change a second run; arrays that change after release would rewrite history."""
    world, scheme = make_world(regions=case.regions), case.scheme()
    state, noise, early = scheme.start(case.setting()), world.noise(), []
    for slot in range(world.slots):
        hearing = hearing_of(scheme, [world.graph(slot)], world.gain)
        release = run_slot(scheme, state, slot, world.shares, world.counts[slot], noise, hearing)
        early.append((fingerprint(release), release))
    assert same([release for _, release in early], played(case))
    assert all(before == fingerprint(release) for before, release in early)


LOOPS = [case for case in CASES if case.name in ("dpcrowd", "dpcrowd-w", "dpcrowd-plus", "rescuedp", "fast", "relay")]


@pytest.mark.parametrize("case", LOOPS, ids=str)
def test_compiled_loops_change_no_bit(case: Case) -> None:
    """The simulator compiles its hot loops and a live server does not: both must be the same scheme."""
    pytest.importorskip("numba")
    world, scheme = make_world(regions=case.regions), case.scheme()
    setting = replace(case.setting(), grouper=compiled_grouper(), pid_loop=compiled_pid())
    state, noise, releases = scheme.start(setting), world.noise(), []
    for slot in range(world.slots):
        hearing = replace(hearing_of(scheme, [world.graph(slot)], world.gain), engine="numba")
        releases.append(run_slot(scheme, state, slot, world.shares, world.counts[slot], noise, hearing))
    assert same(releases, played(case))


@pytest.mark.parametrize("name", SCHEMES)
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
