"""Whatever the budget, window, tuning and stream: no scheme overspends, stops with an error, or leaves finite numbers.

The worlds are tiny and the parameters wild; saving and restoring happens at random points.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee, SeededNoise, worst_paid
from dpcrowd.schemes.base import Peers, Setting
from dpcrowd.schemes.registry import SCHEMES, make_scheme
from dpcrowd.schemes.server import Server
from dpcrowd.schemes.tuning import Tuning
from examples_support import examples
from schemes_support import World, accountings, bits, charges_of, make_world, play, same

tunings = st.builds(
    Tuning,
    theta=st.floats(0.1, 10),
    xi=st.floats(0.001, 1),
    sample_fraction=st.floats(0.01, 1),
    rescue_theta=st.floats(0.1, 10),
    gains=st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)),
    integral_window=st.integers(1, 6),
    alpha=st.floats(0.1, 2),
    phi=st.floats(0.01, 1),
    p_max=st.floats(0.05, 1),
    epsilon_max=st.floats(0.01, 1),
    tau1=st.floats(0, 200),
    tau2=st.floats(-1, 1),
    tau3=st.floats(0, 100),
    history=st.integers(1, 5),
)


@st.composite
def guarantees(draw: Any, name: str) -> Guarantee:
    kind = draw(st.sampled_from(sorted(SCHEMES[name].kinds)))
    length = draw(st.integers(1, 30))
    epsilon = draw(st.floats(-5, 3).map(lambda power: float(f"{10.0**power:.3g}")))
    return Guarantee(
        kind,
        length,
        epsilon,
        draw(st.sampled_from(["pinned", "roaming"])),
        regions_per_slot=draw(st.integers(1, 2)),
        servers_per_slot=draw(st.integers(1, 3)),
        correlation=draw(st.sampled_from([1.0, 2.5])),
    )


@st.composite
def arrangements(draw: Any) -> tuple[str, Setting, World]:
    """A private scheme, a setting that fits it, and a world."""
    name = draw(st.sampled_from([name for name in SCHEMES if SCHEMES[name].kinds]))
    regions = draw(st.integers(1, 4))
    world = make_world(draw(st.integers(0, 5)), servers=4, regions=regions, slots=25)
    wild = draw(st.sampled_from([1.0, 0.0, 1e6]))
    world = replace(world, counts=(world.counts * wild).astype(np.int64))
    guarantee = draw(guarantees(name))
    setting = Setting(
        4,
        ProcessModel.of(draw(st.sampled_from([1.0, 0.9])), draw(st.sampled_from([0.0, 5.0, 1e6])) * np.ones(regions)),
        guarantee,
        tuning=draw(tunings),
        observation=draw(st.sampled_from(["paper", "binomial"])),
        accounting=draw(st.sampled_from(accountings(name))),
        samples=draw(st.integers(1, guarantee.length)),
    )
    return name, setting, world


@settings(max_examples=examples(150))
@given(arrangements())
@example(
    (
        "relay",
        Setting(4, ProcessModel.of(1.0, [0.0]), Guarantee.finite(1, 1000.0), samples=1),
        make_world(0, servers=4, regions=1, slots=25),
    )
)  # a noise of variance 0 once stood for "no record"
@pytest.mark.slow
def test_no_setting_overspends_or_breaks(arrangement: tuple[str, Setting, World]) -> None:
    """A ledger refuses by raising: a scheme that asks for too much would stop; one that went around would overspend."""
    name, setting, world = arrangement
    guarantee = setting.need_guarantee()
    releases = play(make_scheme(name), setting, world)
    charges = charges_of(releases, world.regions)
    paid = worst_paid(charges, guarantee.length if guarantee.kind == "window" else None)
    assert 0 < paid.staying <= guarantee.total
    if setting.accounting == "sound":
        assert paid.moving <= guarantee.total
    if guarantee.users == "roaming":
        assert paid.roaming <= guarantee.total
    for release in releases:
        assert np.isfinite(release.estimate).all()
        assert not (release.variance <= 0).any()
    poisoned = np.where(charges > 0, world.counts, 10**12)
    assert same(play(make_scheme(name), setting, world, counts=poisoned), releases)


@settings(max_examples=examples(40))
@given(arrangements(), st.lists(st.integers(1, 3), min_size=15, max_size=15), st.data())
def test_restarts_anywhere_change_nothing(
    arrangement: tuple[str, Setting, World], steps: list[int], data: st.DataObject
) -> None:
    """Slots may be skipped and the server may be saved and restored between any two calls: the bits stay."""
    name, setting, world = arrangement
    if name == "central" or make_scheme(name).keeps_raw_counts:
        return
    alone = replace(setting, servers=1, peers=Peers(0, np.array([0.4])))

    def fresh() -> Server:
        noise = SeededNoise([np.random.SeedSequence(3)], 1, world.regions)
        return Server(make_scheme(name), alone, noise, number=0, share=0.4, allow_simulated_noise=True)

    steady, restarted = fresh(), fresh()
    slot = -1
    for step in steps:
        slot += step
        counts = world.counts[slot % world.slots, 0]
        said = [server.observe(slot, counts) for server in (steady, restarted)]
        assert (said[0] is None) == (said[1] is None)
        if data.draw(st.booleans()):
            saved, restarted = restarted.save(), fresh()
            restarted.restore(saved)
            assert restarted.save() == saved
        one, other = steady.hear(), restarted.hear()
        assert bits(one.estimate) == bits(other.estimate)
        assert bits(one.variance) == bits(other.variance)
        assert one.epsilon == other.epsilon
    assert steady.save() == restarted.save()
