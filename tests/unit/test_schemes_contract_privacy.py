"""The contract of every scheme about raw counts and budgets: one step reads counts, and every read is paid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.network.hearing import Hearing
from dpcrowd.privacy import Guarantee, SeededNoise, worst_paid
from dpcrowd.schemes.base import Release, Scheme, run_slot
from dpcrowd.schemes.registry import SCHEMES, make_scheme
from schemes_support import (
    SERVERS,
    BlindNoise,
    Case,
    WatchedNoise,
    charges_of,
    every_case,
    every_private_case,
    guarantee_for,
    hearing_of,
    make_setting,
    make_world,
    play,
    played,
    same,
)


@every_private_case
def test_nobody_pays_more_than_promised(case: Case) -> None:
    """The promise itself: sound bounds a moving user, roaming mode a roaming one, per-region only one who stays."""
    guarantee = case.guarantee
    assert guarantee is not None
    window = guarantee.length if guarantee.kind == "window" else None
    paid = worst_paid(charges_of(played(case), case.regions), window)
    assert 0 < paid.staying <= guarantee.total
    if case.accounting == "sound":
        assert paid.moving <= guarantee.total
    if case.users == "roaming":
        assert paid.roaming <= guarantee.total


@every_private_case
def test_what_is_read_is_what_is_paid(case: Case) -> None:
    """Noise drawn at more than the ledger was charged, or for a smaller sensitivity, breaks the promise unseen."""
    world = make_world(regions=case.regions)
    guarantee = guarantee_for(case.name, users=case.users, servers_per_slot=2, correlation=1.5)
    setting = replace(case.setting(), guarantee=guarantee)
    noise = WatchedNoise(world.noise())
    releases = play(case.scheme(), setting, world, noise=noise)
    charges = charges_of(releases, case.regions)
    assert (charges.sum(axis=0) > 0).all()
    for slot, charge in enumerate(charges):
        spent = np.zeros_like(charge)
        for read in noise.reads:
            if case.name.endswith("pegasus") and read.number == 1:  # its threshold, the same for all counts
                assert read.blank
            elif read.slot == slot:
                assert (read.sensitivity[read.where] >= 2).all()
                spent = spent + np.where(read.where, read.charge, 0).max(axis=1, keepdims=True)
        # A group is read at its pivot, so the reads of a server are compared, not those of a region.
        assert (spent.max(axis=1) == charge.max(axis=1)).all()
    window = guarantee.length if guarantee.kind == "window" else None
    assert worst_paid(charges, window).staying <= guarantee.total < guarantee.epsilon * 1e9


@every_private_case
def test_the_ledger_knows_all_that_was_paid(case: Case) -> None:
    """A read that is reported but not written into the ledger could be spent again."""
    world, scheme = make_world(regions=case.regions), case.scheme()
    state, noise, charges = scheme.start(case.setting()), world.noise(), []
    guarantee, inner = case.guarantee, state
    assert guarantee is not None
    while not hasattr(inner, "ledger"):
        inner = inner.inner  # the D- schemes and Central keep the servers' state inside
    for slot in range(world.slots):
        hearing = hearing_of(scheme, [world.graph(slot)], world.gain)
        release = run_slot(scheme, state, slot, world.shares, world.counts[slot], noise, hearing)
        charges.append(release.charge)
        begin = max(0, slot - guarantee.length + 1) if guarantee.kind == "window" else 0
        inner.ledger.remaining(slot)
        assert (inner.ledger.spent == np.sum(charges[begin:], axis=0)).all()


@every_private_case
def test_counts_matter_only_through_the_noise(case: Case) -> None:
    """With noise that ignores its input, another stream of counts must give the same bits: nothing goes around it."""
    world = make_world(regions=case.regions)
    others = np.random.default_rng(1).integers(0, 5000, world.counts.shape)
    runs = [
        play(case.scheme(), case.setting(), world, noise=BlindNoise(world.noise()), counts=counts)
        for counts in (world.counts, others)
    ]
    assert same(*runs)


@every_private_case
def test_unpaid_counts_change_nothing(case: Case) -> None:
    """Where a server paid nothing, its counts of that slot were not read: absurd ones in their place change no bit."""
    world = make_world(regions=case.regions)
    charges = charges_of(played(case), case.regions)
    poisoned = np.where(charges > 0, world.counts, 10**12)
    assert same(play(case.scheme(), case.setting(), world, counts=poisoned), played(case))


@every_case
def test_counts_are_dropped_after_perturb(case: Case) -> None:
    """A scheme that kept a reference to the counts would read them again in a later step, unpaid."""

    def scribbled(
        scheme: Scheme, state: Any, slot: int, shares: Any, counts: Any, noise: SeededNoise, hearing: Hearing
    ) -> Release:
        plan = scheme.plan(state, slot, shares)
        reading = scheme.perturb(state, plan, counts, noise)
        counts[:] = -(10**15)
        messages = scheme.message(state, plan, reading)
        scheme.fuse(state, plan, reading, messages, hearing)
        return scheme.release(state, plan, reading)

    world = make_world(regions=case.regions)
    assert same(play(case.scheme(), case.setting(), world, step=scribbled), played(case))


@pytest.mark.parametrize("name", [name for name in SCHEMES if SCHEMES[name].kinds and name != "relay"])
def test_with_one_region_both_accountings_agree(name: str) -> None:
    """One region leaves nothing to take a maximum over: the two ledgers must then be the same."""
    world, guarantee = make_world(), guarantee_for(name)
    runs = [
        play(make_scheme(name), make_setting(SERVERS, 1, guarantee, accounting=a), world)
        for a in ("sound", "per-region")
    ]
    assert same(*runs)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_guarantee_of_the_wrong_kind_is_refused(name: str) -> None:
    """A horizon given to a window scheme would be promised and not kept."""
    kinds = SCHEMES[name].kinds
    for guarantee in (Guarantee.finite(40, 1.0), Guarantee.window(8, 1.0), None):
        setting = make_setting(2, 1, guarantee)
        if not kinds or (guarantee is not None and guarantee.kind in kinds):
            make_scheme(name).start(setting)
        elif guarantee is None:
            with pytest.raises(BadInput, match="needs a privacy guarantee"):
                make_scheme(name).start(setting)
        else:
            with pytest.raises(BadInput, match=rf"scheme '{name}' takes a (horizon|window).* slots"):
                make_scheme(name).start(setting)


def test_central_keeps_the_contract_with_a_horizon_too() -> None:
    """Central takes both kinds; the cases above give it a window, where it is DPCrowd+ and not DPCrowd."""
    guarantee = Guarantee.finite(30, 6.0)
    setting, world = make_setting(SERVERS, 4, guarantee), make_world(regions=4)
    releases = play(make_scheme("central"), setting, world)
    charges = charges_of(releases, 4)
    assert 0 < worst_paid(charges, None).moving <= guarantee.total
    poisoned = np.where(charges > 0, world.counts, 10**12)
    assert same(play(make_scheme("central"), setting, world, counts=poisoned), releases)
