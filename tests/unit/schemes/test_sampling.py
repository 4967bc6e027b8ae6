"""When servers sample: fixed, lockstep, staggered and adaptive, and what one due region means for the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import Guarantee, worst_paid
from dpcrowd.sampling.schedule import spread_phases
from dpcrowd.schemes.base import Release
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.tuning import Tuning
from schemes_support import SERVERS, WatchedNoise, charges_of, course_model, make_setting, make_world, play, same

NANO = 10**9


def sampled_in(releases: list[Release]) -> np.ndarray:
    """(slots, servers) whether any region was sampled."""
    return np.array([release.sampled.any(axis=1) for release in releases])


@pytest.mark.parametrize("interval", [1, 3, 5, 40])
@pytest.mark.parametrize("name", ["dpcrowd", "fast", "dfast", "central"])
def test_fixed_sampling_of_a_horizon(name: str, interval: int) -> None:
    """Every I slots from slot 0 on, at epsilon over the number of samples that the horizon holds."""
    world = make_world(slots=36)
    guarantee = Guarantee.finite(30, 2.0)
    releases = play(make_scheme(name, interval=interval), make_setting(SERVERS, 1, guarantee), world)
    expected = [slot % interval == 0 and slot < 30 for slot in range(36)]
    assert (sampled_in(releases) == np.array(expected)[:, None]).all()
    price = 2 * NANO // sum(expected)
    assert all((release.charge == (price if due else 0)).all() for release, due in zip(releases, expected, strict=True))


@pytest.mark.parametrize("interval", [1, 3, 5, 40])
@pytest.mark.parametrize("name", ["dpcrowd-w", "central"])
def test_fixed_sampling_in_windows(name: str, interval: int) -> None:
    """epsilon/ceil(w/I) a sample holds for every window, wherever it begins, and the worst one spends nearly all."""
    world = make_world(slots=90)
    guarantee = Guarantee.window(8, 2.0)
    releases = play(make_scheme(name, interval=interval), make_setting(SERVERS, 1, guarantee), world)
    assert (sampled_in(releases) == (np.arange(90) % interval == 0)[:, None]).all()
    assert worst_paid(charges_of(releases, 1), 8).moving == guarantee.total // -(-8 // interval) * -(-8 // interval)


def test_lockstep_is_fixed_and_the_same_for_all() -> None:
    """With users who roam, only common slots bound the network-wide sum."""
    world = make_world(regions=4)
    for users in ("pinned", "roaming"):
        guarantee = Guarantee.window(9, 2.0, users=users)
        setting = make_setting(SERVERS, 4, guarantee)
        schemes = [make_scheme("dpcrowd-w", sampling=sampling, interval=4) for sampling in ("lockstep", "fixed")]
        lockstep, fixed = (play(scheme, setting, world) for scheme in schemes)
        assert same(lockstep, fixed)
        slots = sampled_in(lockstep)
        assert (slots == slots[:, :1]).all()
        assert worst_paid(charges_of(lockstep, 4), 9).roaming <= guarantee.total


@pytest.mark.parametrize("guarantee", [Guarantee.finite(30, 2.0), Guarantee.window(9, 2.0)], ids=["finite", "window"])
def test_staggered_servers_keep_to_their_phases(guarantee: Guarantee) -> None:
    """Somebody nearby has fresh data in every slot, each server pays at most epsilon, by its own number of samples."""
    world = make_world(2, servers=8, slots=36)
    phases = spread_phases(world.graph(0).indptr, world.graph(0).indices, 4)
    setting = make_setting(8, 1, guarantee, phases=phases)
    name = "dpcrowd" if guarantee.kind == "finite" else "dpcrowd-w"
    releases = play(make_scheme(name, sampling="staggered", interval=4), setting, world)
    end = 30 if guarantee.kind == "finite" else 36
    expected = np.array([[(slot - p) % 4 == 0 and slot < end for p in phases] for slot in range(36)])
    assert (sampled_in(releases) == expected).all()
    assert expected[:end].any(axis=1).all()
    charges = charges_of(releases, 1)[:, :, 0]
    for server in range(8):
        samples = expected[:, server].sum() if guarantee.kind == "finite" else 3
        assert set(charges[:, server].tolist()) == {0, guarantee.total // samples}


def test_staggered_sampling_is_refused_where_it_does_not_fit() -> None:
    """With roaming users a staggered schedule costs every user the sum over all servers."""
    scheme = make_scheme("dpcrowd-w", sampling="staggered", interval=3)
    roaming, pinned = (Guarantee.window(9, 1.0, users=users) for users in ("roaming", "pinned"))
    with pytest.raises(BadInput, match="staggered sampling is for pinned users"):
        scheme.start(make_setting(3, 1, roaming, phases=np.array([0, 1, 2])))
    with pytest.raises(BadInput, match="needs the servers' public phases"):
        scheme.start(make_setting(3, 1, pinned))
    for phases in ([0, 1], [0, 1, 2, 0], [0, 1, 3], [0, -1, 2]):
        with pytest.raises(BadInput, match="one phase >= 0 and below the interval 3 for each of 3 servers"):
            scheme.start(make_setting(3, 1, pinned, phases=np.array(phases)))


@pytest.mark.parametrize(("name", "options"), [("dpcrowd-w", {"sampling": "fixed", "interval": 3}), ("relay", {})])
def test_schedules_do_not_depend_on_learning(name: str, options: dict[str, Any]) -> None:
    """They are public: what a server has learned of its crowd must not show in when it samples, or for how much."""
    world, guarantee = make_world(regions=3, slots=40), Guarantee.window(9, 2.0)
    plain, learned = (
        play(
            make_scheme(name, **options), make_setting(SERVERS, 3, guarantee, model=course_model(3), learn=learn), world
        )
        for learn in (False, True)
    )
    assert not same(plain, learned), "the estimates do"
    assert (sampled_in(plain) == sampled_in(learned)).all()
    assert all((one.charge == other.charge).all() for one, other in zip(plain, learned, strict=True))


@pytest.mark.parametrize("accounting", ["sound", "per-region"])
def test_adaptive_sampling_stops_after_its_samples(accounting: Any) -> None:
    """At most T_s samples of epsilon/T_s: one more would be more than epsilon."""
    world = make_world(4, regions=3)
    eager = Tuning(sample_fraction=0.3, theta=0.5, xi=0.001)  # an interval that never grows
    guarantee = Guarantee.finite(30, 3.0)
    for name in ("dpcrowd", "fast"):
        setting = make_setting(SERVERS, 3, guarantee, tuning=eager, accounting=accounting)
        charges = charges_of(play(make_scheme(name), setting, world), 3)
        assert ((charges > 0).sum(axis=0) == 9).all()
        assert set(np.unique(charges).tolist()) == {0, guarantee.total // 9}


@pytest.mark.parametrize("name", ["dpcrowd", "dpcrowd-w", "dpcrowd-plus", "rescuedp", "fast"])
def test_one_due_region_makes_all_due_when_accounts_are_sound(name: str) -> None:
    """At the price of one region the others are free; with an account a region each samples for itself."""
    world = make_world(5, regions=5, slots=60)
    finite = name in ("dpcrowd", "fast")
    guarantee = Guarantee.finite(60, 20.0) if finite else Guarantee.window(12, 6.0)
    counted = {}
    for accounting in ("sound", "per-region"):
        noise = WatchedNoise(world.noise())
        setting = make_setting(SERVERS, 5, guarantee, accounting=accounting)
        releases = play(make_scheme(name), setting, world, noise=noise)
        some = [r.sampled.any(axis=1) & ~np.broadcast_to(r.sampled, (SERVERS, 5)).all(axis=1) for r in releases]
        counted[accounting] = int(np.sum(some))
        widths = {release.sampled.shape[1] for release in releases}
        assert widths == {1 if accounting == "sound" else 5}
    assert counted["sound"] == 0
    assert counted["per-region"] > 50
