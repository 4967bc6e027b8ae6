"""What dpcrowd's own schemes keep beyond the contract of all schemes: they pay exactly what they read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import Guarantee, worst_paid
from dpcrowd.schemes.registry import SCHEMES, make_scheme
from schemes_support import (
    SERVERS,
    Case,
    WatchedNoise,
    charges_of,
    every_private_case,
    guarantee_for,
    make_setting,
    make_world,
    play,
    same,
)


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


@pytest.mark.parametrize("name", [name for name in SCHEMES if SCHEMES[name].kinds and name != "relay"])
def test_with_one_region_both_accountings_agree(name: str) -> None:
    """One region leaves nothing to take a maximum over: the two ledgers must then be the same."""
    world, guarantee = make_world(), guarantee_for(name)
    runs = [
        play(make_scheme(name), make_setting(SERVERS, 1, guarantee, accounting=a), world)
        for a in ("sound", "per-region")
    ]
    assert same(*runs)


@pytest.mark.parametrize("name", [name for name in SCHEMES if not SCHEMES[name].needs_model])
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
