"""What each scheme pays and when: the rules of BD, BA, Sample, RescueDP, blocks, horizons, and of moving users."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee, worst_paid
from dpcrowd.schemes.base import Release, Setting
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.tuning import Tuning
from schemes_support import TUNING, WatchedNoise, World, charges_of, make_setting, make_world, play

NANO = 10**9


def steady(jumps: dict[int, int], slots: int, regions: int = 1) -> World:
    """Two servers that count 100 everywhere until a slot in `jumps` gives another number."""
    counts = np.empty((slots, 2, regions), dtype=np.int64)
    level = 100
    for slot in range(slots):
        level = jumps.get(slot, level)
        counts[slot] = level
    return World(counts, np.ones((2, 1)), make_world(0, servers=2).graphs)


def units(releases: list[Release], unit: int) -> list[float]:
    """What server 0 paid in each slot, in units."""
    return [int(release.charge[0, 0]) / unit for release in releases]


def test_ba_nullifies_as_many_slots_as_it_absorbed() -> None:
    """Nullified slots that were tested would be paid; `skipped` that counted them would spend their shares twice.

    With so large an epsilon that noise hardly matters: slot 0 is published at its own share; 1 to 5 are tested only;
    the jump of slot 6 takes six shares, so 7 to 11 are nullified and the jump of slot 8 is not seen before slot 12.
    """
    window, epsilon = 20, 4000.0
    world = steady({6: 200, 8: 300}, 16)
    noise = WatchedNoise(world.noise())
    setting = make_setting(2, 1, Guarantee.window(window, epsilon))
    releases = play(make_scheme("ba"), setting, world, noise=noise)
    unit = round(epsilon * NANO) // (2 * window)
    assert units(releases, unit) == [1, 1, 1, 1, 1, 1, 7, 0, 0, 0, 0, 0, 2, 1, 1, 1]
    shown = [round(float(release.estimate[0, 0])) for release in releases]
    assert shown == [100] * 6 + [200] * 6 + [300] * 4
    read_in = {read.slot for read in noise.reads if read.where.any()}
    assert read_in.isdisjoint(range(7, 12))
    assert [bool(release.sampled[0, 0]) for release in releases] == [slot not in range(7, 12) for slot in range(16)]


def test_ba_absorbs_at_most_a_window() -> None:
    """More than w shares would be more than epsilon/2 in one slot."""
    world = steady({30: 200}, 45)
    setting = make_setting(2, 1, Guarantee.window(5, 1000.0))
    unit = 1000 * NANO // 10
    paid = units(play(make_scheme("ba"), setting, world), unit)
    assert paid[28:37] == [1, 1, 6, 0, 0, 0, 0, 1, 1]


def test_ba_with_roaming_users_nullifies_nothing() -> None:
    """Capped at one share a slot, a publication absorbs nothing: there is nothing to pay back by staying silent."""
    world = steady({6: 200, 8: 300}, 12)
    setting = make_setting(2, 1, Guarantee.window(20, 4000.0, users="roaming"))
    assert units(play(make_scheme("ba"), setting, world), 100 * NANO) == [1, 1, 1, 1, 1, 1, 2, 1, 2, 1, 1, 1]


def test_bd_halves_what_is_left() -> None:
    """Slot 0 is published untested at epsilon/4; each further jump takes half of the rest; then shares come back."""
    window, epsilon = 6, 2048.0
    jumps = {3: 200, 4: 300, 7: 400}
    world = steady(jumps, 12)
    total = round(epsilon * NANO)
    test = total // (2 * window)
    releases = play(make_scheme("bd"), make_setting(2, 1, Guarantee.window(window, epsilon)), world)
    published = [int(release.charge[0, 0]) - (test if slot else 0) for slot, release in enumerate(releases)]
    quarter, half = total // 4, total // 2
    assert published == [
        quarter, 0, 0, quarter // 2, quarter // 4, 0, 0, (half - quarter // 2 - quarter // 4) // 2, 0, 0, 0, 0,
    ]  # fmt: skip


def test_sample_pays_everything_once_a_window() -> None:
    """Two samples in a window would be 2 epsilon; none would waste it. All servers sample together."""
    world = make_world(regions=4, slots=30)
    setting = make_setting(world.servers, 4, Guarantee.window(7, 1.5))
    charges = charges_of(play(make_scheme("sample"), setting, world), 4)
    for slot, charge in enumerate(charges):
        assert (charge == (1.5 * NANO if slot % 7 == 0 else 0)).all()


@pytest.mark.parametrize("accounting", ["sound", "per-region"])
@pytest.mark.parametrize("window", [1, 2, 5, 8, 30])
def test_rescue_never_takes_a_sample_worth_less_than_an_even_share(window: int, accounting: Any) -> None:
    """A budget that decays to 3e-9 makes the error explode; and a short window must not stop sampling for good."""
    world = make_world(regions=4, slots=60)
    guarantee = Guarantee.window(window, 2.0)
    greedy = Tuning(rescue_theta=0.1, phi=0.3)  # intervals stay near 1: every region is due in nearly every slot
    for name in ("rescuedp", "dpcrowd-plus"):
        setting = make_setting(world.servers, 4, guarantee, tuning=greedy, accounting=accounting)
        releases = play(make_scheme(name), setting, world)
        charges = charges_of(releases, 4)
        assert charges[charges > 0].min() >= guarantee.total // window
        assert (charges[0] > 0).all()
        assert (charges.max(axis=2) > 0).mean() > min(0.3, 1 / window)
        assert worst_paid(charges, window).staying > 0.9 * guarantee.total


@pytest.mark.parametrize("blocks", ["half", "full"])
@pytest.mark.parametrize("fraction", [0.1, 0.5, 1.0])
def test_dpcrowd_w_keeps_within_its_blocks_and_windows(blocks: str, fraction: float) -> None:
    """Two blocks meet in a sliding window: at epsilon a block they would pay 2 epsilon, were it not for the ledger."""
    world = make_world(3, regions=3, slots=80)
    guarantee = Guarantee.window(10, 2.0)
    eager = Tuning(sample_fraction=fraction, theta=1.0, xi=0.01)
    setting = make_setting(world.servers, 3, guarantee, tuning=eager)
    paid = charges_of(play(make_scheme("dpcrowd-w", blocks=blocks), setting, world), 3).max(axis=2)
    each_block = paid.reshape(8, 10, -1).sum(axis=1)
    part = guarantee.total // (2 if blocks == "half" else 1)
    assert (each_block <= part).all()
    assert each_block[0].max() > part * 0.9  # the first block uses what it has
    assert worst_paid(paid[:, :, None], 10).moving <= guarantee.total


def test_sampling_stops_where_the_horizon_ends() -> None:
    """A sample after the last slot would be outside of the promise; the estimate goes on from the prediction alone."""
    world = make_world(5, slots=40)
    for options in ({}, {"interval": 2}, {"sampling": "lockstep", "interval": 3}):
        for name in ("dpcrowd", "fast", "dfast", "central"):
            setting = make_setting(world.servers, 1, Guarantee.finite(25, 5.0))
            releases = play(make_scheme(name, **options), setting, world)
            assert not any(release.sampled.any() or release.charge.any() for release in releases[25:])
            assert any(release.sampled.any() for release in releases[15:25])
            grown = releases[39].variance - releases[30].variance
            assert (grown > 0).all()
            assert np.isfinite(releases[39].estimate).all()


def test_per_region_accounting_lets_a_moving_user_pay_more_than_promised() -> None:
    """The fault of the per-region ledger must be reproduced and labelled, and the sound ledger must not have it."""
    world = make_world(6, regions=8, slots=100, size=60.0)
    guarantee = Guarantee.window(20, 1.0)
    for name in ("dpcrowd-plus", "rescuedp"):
        paid = {}
        for accounting in ("sound", "per-region"):
            setting = make_setting(world.servers, 8, guarantee, accounting=accounting)
            paid[accounting] = worst_paid(charges_of(play(make_scheme(name), setting, world), 8), 20)
        assert paid["per-region"].moving > 2 * guarantee.total
        assert paid["per-region"].staying <= guarantee.total
        assert paid["sound"].moving <= guarantee.total


def test_a_user_who_roams_pays_more_unless_users_are_said_to_roam() -> None:
    """Servers that choose their own slots bound what one server costs, not the network: roaming mode must cap them."""
    world = make_world(7, regions=2, slots=80)
    for name in ("dpcrowd-plus", "bd", "ba", "dpcrowd"):
        window = None if name == "dpcrowd" else 10
        paid = []
        for users in ("pinned", "roaming"):
            guarantee = Guarantee("window" if window else "finite", window or 80, 1.0, users=users)
            setting = make_setting(world.servers, 2, guarantee, tuning=replace(TUNING, sample_fraction=0.2))
            releases = play(make_scheme(name), setting, world)
            paid.append(worst_paid(charges_of(releases, 2), window).roaming)
        assert paid[0] > guarantee.total >= paid[1] > 0


@pytest.mark.parametrize(("name", "epsilon"), [("uniform", 4e-9), ("pegasus", 2e-8), ("bd", 9e-9), ("ba", 9e-9)])
def test_a_budget_too_small_to_divide_is_refused(name: str, epsilon: float) -> None:
    """Rounded down to nothing, a share would mean infinite noise, or a test that is never paid."""
    setting = Setting(2, ProcessModel.of(1.0, [1.0]), Guarantee.window(5, epsilon))
    world = make_world(0, servers=2, slots=3)
    with pytest.raises(BadInput, match="cannot be split"):
        play(make_scheme(name), setting, world)
    finite = Setting(2, ProcessModel.of(1.0, [1.0]), Guarantee.finite(50, 4e-8))
    with pytest.raises(BadInput, match="cannot be split"):
        make_scheme("dpcrowd", interval=1).start(finite)
