"""DPCrowd, DPCrowdW, FAST and DFAST against Algorithm 2 written out in plain Python.

Every server, region, slot and sum is a loop over plain numbers. Only the noise is shared: the oracle asks for the same
draws. It is the paper's Algorithm 2 with the corrections of the design: the first sample is noised and paid, a
slot without a sample has no measurement, M(0) = R/H^2, and consensus is with the neighbours that speak. With several
regions the account is sound: if any region is due, all are sampled at the price of one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.filters import Observation, ProcessModel
from dpcrowd.network.costs import components
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.tuning import Tuning
from schemes_support import World, drawn, filter_alone, laplace_var, make_world, play


@pytest.fixture(autouse=True)
def _variances_of_the_filter_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What drift adds is beside the filter (`unit/schemes/test_drift.py`)."""
    filter_alone(monkeypatch)


NANO = 10**9


@dataclass
class Controller:
    """FAST's PID control of the sampling interval."""

    interval: float = 1.0
    next_sample: int = 0
    errors: list[float] = field(default_factory=list)
    measured_at: int = 0

    def adjust(self, slot: int, error: float, tuning: Tuning) -> None:
        """A new error: Delta = Cp E + Ci mean(last T_i) + Cd slope; I <- max(1, I + theta (1 - exp((Delta-xi)/xi)))."""
        proportional, integral, derivative = tuning.gains
        self.errors.append(error)
        recent = self.errors[-tuning.integral_window :]
        delta = proportional * error + integral * sum(recent) / len(recent)
        if len(self.errors) > 1:
            delta += derivative * (error - self.errors[-2]) / (slot - self.measured_at)
        self.measured_at = slot
        pressure = min((delta - tuning.xi) / tuning.xi, 30.0)
        self.interval = max(1.0, self.interval + tuning.theta * (1.0 - math.exp(pressure)))
        self.wait(slot)

    def wait(self, slot: int) -> None:
        self.next_sample = slot + math.floor(self.interval + 0.5)


@dataclass
class Region:
    """One region at one server: posterior (None: no information yet), its variance, and the sampling control."""

    posterior: float | None = None
    posterior_var: float = math.inf
    control: Controller = field(default_factory=Controller)


@dataclass
class Provider:
    """One server SP_i."""

    share: float
    regions: list[Region]
    samples: int = 0
    paid: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Says:
    """msg_i(t) about one region: u, U and the prior."""

    info_vec: float
    info_mat: float
    prior: float | None


def is_due(sp: Provider, phase: int | None, slot: int, most: int) -> bool:
    """Adaptive: some region's interval has passed and samples are left; staggered: the server's own phase of four."""
    if phase is not None:
        return (slot - phase) % STAGGER == 0
    return sp.samples < most and any(region.control.next_sample <= slot for region in sp.regions)


def algorithm_2(world: World, setting: Setting, *, neighbours: bool) -> np.ndarray:
    """(slots, servers, regions, 3): estimate, variance, sampled; without neighbours it is FAST."""
    guarantee, tuning = setting.guarantee, setting.tuning
    assert guarantee is not None
    blocks = guarantee.kind == "window"  # DPCrowdW: begin anew in each block of w slots, half of the budget a block
    most = max(1, int(tuning.sample_fraction * guarantee.length))
    total = round(guarantee.epsilon * NANO)
    A = float(setting.model.transition)
    Q = [float(q) for q in setting.model.process_var]
    providers = [Provider(float(share), [Region() for _ in Q]) for share in world.shares[:, 0]]
    history = np.full((world.slots, world.servers, len(Q), 3), np.nan)
    for slot in range(world.slots):
        priors = [[None if r.posterior is None else A * r.posterior for r in sp.regions] for sp in providers]
        messages: dict[int, list[Says]] = {}
        for i, sp in enumerate(providers):
            if blocks and slot % guarantee.length == 0:
                sp.samples = 0
                for region in sp.regions:
                    region.control = Controller(next_sample=slot)
            phase = None if setting.phases is None else int(setting.phases[i])
            price = total // (2 if blocks else 1) // most
            if phase is not None:
                price = total // len(range(phase, guarantee.length, STAGGER))
            if not is_due(sp, phase, slot, most) or (not blocks and slot >= guarantee.length):
                continue
            sp.samples += 1
            sp.paid[slot] = price
            noise = drawn(world, slot, price)[i]
            messages[i] = []
            for k, prior in enumerate(priors[i]):
                z = float(world.counts[slot, i, k]) + noise[k]
                spread = sp.share**2 * Q[k]
                if setting.observation == "binomial":
                    spread = sp.share * (1 - sp.share) * max(z / sp.share if prior is None else prior, 1.0)
                R = tuning.alpha * laplace_var(price / NANO) + max(spread, 1 / 12)
                messages[i].append(Says(sp.share * z / R, sp.share**2 / R, prior))
        for i, sp in enumerate(providers):
            near = [int(j) for j in world.graph(slot).neighbours(i)] if neighbours else []
            heard = [j for j in sorted([i, *near]) if j in messages]
            for k, region in enumerate(sp.regions):
                prior, P = priors[i][k], A * A * region.posterior_var + Q[k]
                y = sum(messages[j][k].info_vec for j in heard)
                Y = sum(messages[j][k].info_mat for j in heard)
                if prior is not None:
                    M = 1 / (1 / P + Y)
                    C = world.gain * P / (abs(P) + 1)
                    others = [messages[j][k].prior for j in near if j in messages]
                    pull = C * sum(theirs - prior for theirs in others if theirs is not None)
                    region.posterior, region.posterior_var = prior + M * (y - Y * prior) + pull, M
                elif heard:
                    region.posterior, region.posterior_var = y / Y, 1 / Y
                if i in messages:
                    assert region.posterior is not None
                    if prior is None:
                        region.control.wait(slot)
                    else:
                        error = abs(region.posterior - prior) / max(region.posterior, tuning.floor)
                        region.control.adjust(slot, error, tuning)
                estimate = math.nan if region.posterior is None else region.posterior
                history[slot, i, k] = estimate, region.posterior_var, i in messages
    for sp in providers:
        worst = max(sum(sp.paid.get(s, 0) for s in range(t, t + guarantee.length)) for t in range(world.slots))
        assert worst <= total
    return history


STAGGER = 4
PAPER = Tuning(theta=2.5, xi=0.05, sample_fraction=0.3)
OTHER = Tuning(theta=1.5, xi=0.1, sample_fraction=0.6, gains=(0.7, 0.2, 0.4), integral_window=3, alpha=0.7, floor=150.0)


def settings(world: World, guarantee: Guarantee, tuning: Tuning, observation: Observation, A: float) -> Setting:
    model = ProcessModel.of(A, [150.0, 5.0, 0.0][: world.regions])
    return Setting(world.servers, model, guarantee, tuning=tuning, observation=observation)


def compare(name: str, world: World, setting: Setting, *, neighbours: bool, **options: Any) -> float:
    """Assert that scheme and oracle agree everywhere; returns how often servers sampled."""
    expected = algorithm_2(world, setting, neighbours=neighbours)
    releases = play(make_scheme(name, **options), setting, world)
    for slot, release in enumerate(releases):
        estimate, variance, sampled = np.moveaxis(expected[slot], -1, 0)
        assert (release.sampled == sampled.astype(bool)).all(), slot
        np.testing.assert_allclose(release.estimate, estimate, rtol=1e-9, atol=1e-9, err_msg=f"slot {slot}")
        np.testing.assert_allclose(release.variance, variance, rtol=1e-9, err_msg=f"slot {slot}")
    return float(expected[..., 2].mean())


VARIANTS = [(PAPER, "paper", 1.0), (OTHER, "paper", 0.995), (OTHER, "binomial", 1.0)]


@pytest.mark.slow
@pytest.mark.parametrize(("tuning", "observation", "A"), VARIANTS)
@pytest.mark.parametrize("changing", [False, True])
def test_dpcrowd_is_algorithm_2(tuning: Tuning, observation: Observation, A: float, changing: bool) -> None:
    """Any slip in filter, consensus, PID control or price would show within a few slots."""
    world = make_world(8, servers=8, slots=90, changing=changing)
    setting = settings(world, Guarantee.finite(80, 20.0), tuning, observation, A)
    frequency = compare("dpcrowd", world, setting, neighbours=True)
    assert 0.05 < frequency < 0.6


@pytest.mark.parametrize(("tuning", "observation", "A"), VARIANTS)
def test_dpcrowd_w_is_algorithm_2_on_blocks(tuning: Tuning, observation: Observation, A: float) -> None:
    """Controllers and samples begin anew with each block at half the budget, while the filter goes on."""
    world = make_world(9, servers=6, slots=85, changing=True)
    setting = settings(world, Guarantee.window(25, 6.0), tuning, observation, A)
    assert compare("dpcrowd-w", world, setting, neighbours=True) > 0.1


@pytest.mark.parametrize(("tuning", "observation", "A"), VARIANTS)
def test_fast_is_algorithm_2_alone(tuning: Tuning, observation: Observation, A: float) -> None:
    """FAST hears nobody: each server is a plain Kalman filter with PID sampling."""
    world = make_world(10, servers=5, slots=80)
    compare("fast", world, settings(world, Guarantee.finite(70, 10.0), tuning, observation, A), neighbours=False)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [("dpcrowd", "finite"), ("dpcrowd-w", "window"), ("fast", "finite")])
def test_several_regions_are_sampled_together(name: str, kind: Any) -> None:
    """Each region has a controller of its own; the first one that is due takes all others along."""
    world = make_world(13, servers=6, regions=3, slots=70, changing=True)
    setting = settings(world, Guarantee(kind, 60 if kind == "finite" else 20, 30.0), OTHER, "paper", 1.0)
    assert 0.1 < compare(name, world, setting, neighbours=name != "fast") < 0.9


@pytest.mark.parametrize("changing", [False, True])
def test_staggered_servers_start_by_hearing(changing: bool) -> None:
    """A server takes a neighbour's first record as its start; nobody is pulled towards one that has no prior yet."""
    world = make_world(11, servers=12, slots=40, changing=changing)
    phases = np.array([0, 1, 2, 3] * 3)
    setting = replace(settings(world, Guarantee.finite(30, 9.0), PAPER, "paper", 1.0), phases=phases)
    compare("dpcrowd", world, setting, neighbours=True, sampling="staggered", interval=STAGGER)
    first = algorithm_2(world, setting, neighbours=True)[:3, :, 0, 0]
    assert np.isnan(first[0]).any()
    late = [i for i in range(12) if np.isnan(first[phases[i] - 1, i]) and phases[i] > 0]
    known = [i for i in late for j in world.graph(int(phases[i])).neighbours(i) if np.isfinite(first[phases[i] - 1, j])]
    assert known  # somebody without a prior speaks to somebody who has one


@pytest.mark.parametrize("changing", [False, True])
def test_dfast_is_the_average_of_fast(changing: bool) -> None:
    """Flooding reaches the whole component: all of its servers hold the plain mean of their own estimates.

    The servers filter the same truth, so their errors go together: standard deviations are averaged, not variances.
    """
    world = make_world(12, servers=9, slots=70, changing=changing)
    setting = settings(world, Guarantee.finite(60, 20.0), PAPER, "paper", 1.0)
    alone = algorithm_2(world, setting, neighbours=False)
    for slot, release in enumerate(play(make_scheme("dfast"), setting, world)):
        labels = components(world.graph(slot)).tolist()
        for i, label in enumerate(labels):
            members = [alone[slot, j, 0] for j in range(9) if labels[j] == label]
            mean = sum(estimate for estimate, _, _ in members) / len(members)
            deviation = sum(math.sqrt(variance) for _, variance, _ in members) / len(members)
            assert release.estimate[i, 0] == pytest.approx(mean, rel=1e-9)
            assert release.variance[i, 0] == pytest.approx(deviation**2, rel=1e-9)
            assert release.sampled[i, 0] == alone[slot, i, 0, 2]
