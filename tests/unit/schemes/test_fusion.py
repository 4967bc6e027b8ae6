"""What servers make of samples and messages: silence, groups, the two forms of the filter, and the central limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.network.hearing import Hearing, central_hearing, one_hop_hearing
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import Release, Scheme, Setting, run_slot
from dpcrowd.schemes.flooding import Flooding
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.schemes.uniform import Uniform
from schemes_support import SERVERS, World, make_setting, make_world, play, same

WINDOW = Guarantee.window(12, 6.0)


def run(scheme: Scheme, setting: Setting, world: World, hearing: Hearing) -> list[Release]:
    """All slots of a world with the same hearing."""
    state, noise = scheme.start(setting), world.noise()
    return [run_slot(scheme, state, t, world.shares, world.counts[t], noise, hearing) for t in range(world.slots)]


def test_a_slot_without_an_own_sample_still_fuses_what_is_heard() -> None:
    """Algorithm 2, line 15: a silent server listens. Its estimate moves with its neighbours' samples and is surer."""
    world = make_world(1, servers=4, slots=8)
    setting = make_setting(4, 1, WINDOW, phases=np.array([0, 1, 2, 3]))
    scheme = make_scheme("dpcrowd-w", sampling="staggered", interval=4)
    together = run(scheme, setting, world, one_hop_hearing(world.graph(0), 0.1))
    alone = run(scheme, setting, world, Hearing())
    heard = 0
    for slot in range(4, 8):
        speaker = slot - 4
        for server in range(4):
            if server != speaker and speaker in world.graph(0).neighbours(server):
                heard += 1
                assert not together[slot].sampled[server, 0]
                assert together[slot].charge[server, 0] == 0
                assert together[slot].variance[server, 0] < together[slot - 1].variance[server, 0] + 200.0
                assert together[slot].variance[server, 0] < alone[slot].variance[server, 0]
                assert together[slot].estimate[server, 0] != together[slot - 1].estimate[server, 0]
    assert heard > 3


def test_an_old_release_is_no_new_measurement() -> None:
    """z <- r(t-1), as Algorithm 2 prints it, would make servers surer in slots in which nobody measured anything."""
    world = make_world(2, slots=12)
    setting = make_setting(SERVERS, 1, WINDOW)
    releases = play(make_scheme("dpcrowd-w", interval=6), setting, world)
    for slot in (1, 2, 3, 4, 5, 7, 8):
        assert (releases[slot].estimate == releases[slot - 1].estimate).all()
        assert releases[slot].variance == pytest.approx(releases[slot - 1].variance + 200.0, rel=1e-12)


@pytest.mark.parametrize("name", ["non-private", "dpcrowd-w", "dpcrowd-plus", "rescuedp"])
@pytest.mark.parametrize("regions", [1, 4])
def test_both_forms_agree_where_regions_do_not_mix(name: str, regions: int) -> None:
    """With A = I and no groups the matrix form is the diagonal one. Consensus is off: its gains differ on purpose."""
    world = make_world(3, regions=regions, slots=60)
    options = {"grouping": "none"} if name in ("dpcrowd-plus", "rescuedp") else {}
    hearing = one_hop_hearing(world.graph(0), 0.0)
    diagonal, matrix = (
        run(
            make_scheme(name, **options),
            make_setting(SERVERS, regions, None if name == "non-private" else WINDOW, form=form),
            world,
            hearing if make_scheme(name).reach == "one-hop" else Hearing(),
        )
        for form in ("diagonal", "matrix")
    )
    for one, other in zip(diagonal, matrix, strict=True):
        assert (one.charge == other.charge).all()
        assert other.estimate == pytest.approx(one.estimate, rel=1e-9)
        assert other.variance == pytest.approx(one.variance, rel=1e-9)


@pytest.mark.parametrize("kind", ["finite", "window"])
def test_central_is_one_filter_that_hears_every_sample(kind: str) -> None:
    """The limit that others are compared with must use all samples, once, and no consensus."""
    world = make_world(4, regions=3, slots=50)
    guarantee = Guarantee.finite(45, 20.0) if kind == "finite" else WINDOW
    Q = np.array([120.0, 3.0, 1.0])
    setting = Setting(SERVERS, ProcessModel.of(0.99, Q), guarantee, tuning=Tuning(xi=0.2, tau2=0.0))
    scheme = make_scheme("central")
    state, noise = scheme.start(setting), world.noise()
    hearing = central_hearing(1, SERVERS, one_hop_hearing(world.graph(0), 0.1))
    mean, variance, samples = np.zeros(3), np.full(3, np.inf), 0
    for slot in range(world.slots):
        plan = scheme.plan(state, slot, world.shares)
        reading = scheme.perturb(state, plan, world.counts[slot], noise)
        messages = scheme.message(state, plan, reading)
        scheme.fuse(state, plan, reading, messages, hearing)
        release = scheme.release(state, plan, reading)
        mean, variance = 0.99 * mean, 0.99**2 * variance + Q
        for server in range(SERVERS):  # one Kalman update for each sample, in moment form
            if not plan.due[server, 0]:
                continue
            samples += 1
            share = float(world.shares[server, 0])
            R = np.broadcast_to(reading.noise_var, (SERVERS, 3))[server] + np.maximum(share**2 * Q, 1 / 12)
            with np.errstate(invalid="ignore"):
                K = np.where(np.isinf(variance), 1 / share, variance * share / (share**2 * variance + R))
                variance = np.where(np.isinf(variance), R / share**2, (1 - K * share) * variance)
            mean = mean + K * (reading.noisy[server] - share * mean)
        assert release.estimate == pytest.approx(np.tile(mean, (SERVERS, 1)), rel=1e-9)
        assert release.variance == pytest.approx(np.tile(variance, (SERVERS, 1)), rel=1e-9)
    assert 20 < samples < 50 * SERVERS


def test_central_samples_as_the_servers_do() -> None:
    """The comparison is of communication alone: same slots, same prices as DPCrowd (horizon) or DPCrowd+ (window)."""
    world = make_world(5, regions=3, slots=40)
    for name, guarantee, options in (
        ("dpcrowd", Guarantee.finite(40, 20.0), {}),
        ("dpcrowd-plus", WINDOW, {}),
        ("dpcrowd-w", WINDOW, {"interval": 3}),
    ):
        setting = make_setting(SERVERS, 3, guarantee)
        servers = play(make_scheme(name, **options), setting, world)
        central = play(make_scheme("central", **options), setting, world)
        for one, other in zip(servers, central, strict=True):
            assert (one.charge == other.charge).all()
            assert (other.variance <= one.variance * (1 + 1e-12)).all()


def grouped_world(slots: int = 80) -> World:
    """Three small regions that count the same at every server, and a large one."""
    counts = np.tile(np.array([8, 8, 300, 8]), (slots, 4, 1)).astype(np.int64)
    return World(counts, np.full((4, 1), 0.5), make_world(0, servers=4).graphs, seed=5)


ALIKE = Tuning(tau2=-1.0, epsilon_max=0.3)


def test_grouping_reduces_the_error_of_small_regions() -> None:
    """One draw for n regions leaves 1/n^2 of the variance in each; and nothing is pulled towards 0 (a known trap)."""
    world = grouped_world()
    setting = Setting(4, ProcessModel.of(1.0, [0.01] * 4), Guarantee.window(12, 2.0), tuning=ALIKE)
    grouped, single = (play(make_scheme("rescuedp", grouping=g), setting, world) for g in ("dynamic", "none"))
    small = [0, 1, 3]
    errors = [np.mean([(r.estimate[:, small] - 16.0) ** 2 for r in releases[20:]]) for releases in (grouped, single)]
    assert errors[0] < 0.6 * errors[1]
    assert np.mean([r.estimate[:, small] for r in grouped[20:]]) == pytest.approx(16.0, abs=1.5)
    assert (grouped[-1].variance[:, small] < 0.5 * single[-1].variance[:, small]).all()


@pytest.mark.parametrize("split", ["even", "proportional"])
@pytest.mark.parametrize("accounting", ["sound", "per-region"])
def test_a_group_shares_one_draw(split: str, accounting: str) -> None:
    """Parts add up to the group's noisy sum; a large region stands alone with all of the noise's variance."""
    world = grouped_world(30)
    setting = make_setting(4, 4, Guarantee.window(12, 6.0), tuning=ALIKE, accounting=accounting)
    scheme = make_scheme("rescuedp", split=split)
    state, noise, groups = scheme.start(setting), world.noise(), 0
    for slot in range(world.slots):
        plan = scheme.plan(state, slot, world.shares)
        reading = scheme.perturb(state, plan, world.counts[slot], noise)
        if plan.pivot is None or reading.group_noisy is None:
            scheme.fuse(state, plan, reading, scheme.message(state, plan, reading), Hearing())
            continue
        due = np.broadcast_to(plan.due, (4, 4))
        whole = np.broadcast_to(plan.noise_var, (4, 4))
        for server in range(4):
            for pivot in {int(p) for p, is_due in zip(plan.pivot[server], due[server], strict=True) if is_due}:
                members = np.flatnonzero((plan.pivot[server] == pivot) & due[server])
                assert 2 not in members or len(members) == 1
                groups += len(members) > 1
                assert reading.noisy[server, members].sum() == pytest.approx(reading.group_noisy[server, pivot])
                parts = np.sqrt(reading.noise_var[server, members] / whole[server, members])
                assert parts.sum() == pytest.approx(1.0)
                charge = np.broadcast_to(reading.charge, (4, 4))[server, members]
                assert (charge == charge[0]).all()
                weights = np.maximum(state.history[server, -1, members], 1.0)
                even = np.full(len(members), 1 / len(members))
                assert parts == pytest.approx(even if split == "even" else weights / weights.sum())
        scheme.fuse(state, plan, reading, scheme.message(state, plan, reading), Hearing())
    assert groups > 20


def test_a_server_groups_only_by_its_own_releases() -> None:
    """A history that others' samples filled would hold zeros, and every region would look small and alike."""
    world = grouped_world(8)
    scheme = make_scheme("rescuedp")
    state = scheme.start(make_setting(4, 4, Guarantee.window(12, 6.0), tuning=ALIKE))
    state.controllers.next_slot[1:] = 7  # servers 1 to 3 have not sampled before slot 7
    noise = world.noise()
    for slot in range(7):
        run_slot(scheme, state, slot, world.shares, world.counts[slot], noise, Hearing())
    plan = scheme.plan(state, 7, world.shares)
    assert plan.due[1:].all()
    assert state.filled[0] >= 3
    assert plan.pivot is not None
    assert (plan.pivot[1:] == np.arange(4)).all()


def test_the_matrix_form_takes_a_group_as_one_measurement() -> None:
    """z_g = H sum r_k + noise is one number: its noise counts once, and the spreads of its regions add up."""
    world, Q = grouped_world(30), np.array([1.0, 2.0, 50.0, 4.0])
    model = ProcessModel.of(1.0, Q)
    setting = Setting(4, model, Guarantee.window(12, 6.0), tuning=replace(ALIKE, alpha=0.8), form="matrix")
    scheme = make_scheme("dpcrowd-plus")
    state, noise, groups = scheme.start(setting), world.noise(), 0
    for slot in range(world.slots):
        plan = scheme.plan(state, slot, world.shares)
        reading = scheme.perturb(state, plan, world.counts[slot], noise)
        messages = scheme.message(state, plan, reading)
        if plan.pivot is not None and reading.group_noisy is not None:
            for server in np.flatnonzero(plan.due[:, 0]):
                info_vec, info_mat = np.zeros(4), np.zeros((4, 4))
                for pivot in set(plan.pivot[server].tolist()):
                    member = (plan.pivot[server] == pivot).astype(float)
                    groups += int(member.sum() > 1)
                    R = 0.8 * float(plan.noise_var[server, 0]) + float((member * 0.25 * Q).sum())
                    info_vec += 0.5 * member * reading.group_noisy[server, pivot] / R
                    info_mat += 0.25 * np.outer(member, member) / R
                assert messages.info_vec[server] == pytest.approx(info_vec, rel=1e-9)
                assert messages.info_mat[server] == pytest.approx(info_mat, rel=1e-9)
        scheme.fuse(state, plan, reading, messages, one_hop_hearing(world.graph(0), 0.1))
    assert groups > 20


def test_blocks_never_release_a_zero() -> None:
    """FAST on blocks that forgot its filter would release exactly 0 at the start of each block (a known trap)."""
    world = make_world(6, slots=60)
    setting = make_setting(SERVERS, 1, Guarantee.window(10, 6.0))
    for release in play(make_scheme("dpcrowd-w"), setting, world):
        assert (release.estimate > 50.0).all()


def test_any_scheme_that_works_alone_can_be_flooded() -> None:
    """The wrapper itself, on a scheme given as an object: the same as the named one."""
    world, setting = make_world(7, regions=2), make_setting(SERVERS, 2, WINDOW)
    assert same(play(Flooding(Uniform()), setting, world), play(make_scheme("duniform"), setting, world))
