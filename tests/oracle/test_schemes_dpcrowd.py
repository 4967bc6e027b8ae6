"""DPCrowd, DPCrowdW, FAST and DFAST against Algorithm 2 written out in plain Python, one region.

Every server, slot and sum is a loop over plain numbers. Only the noise is shared: the oracle asks for the same draws.
The text below is the paper's Algorithm 2 with the corrections of the design: the first sample is noised and paid, a
slot without a sample has no measurement, M(0) = R/H^2, and consensus is with the neighbours that speak.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from dpcrowd.filters import Observation, ProcessModel
from dpcrowd.network.costs import components
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.tuning import Tuning
from schemes_support import World, drawn, laplace_var, make_world, play

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
class Provider:
    """One server SP_i: posterior and its variance (None: no information yet), sampling and budget."""

    share: float
    posterior: float | None = None
    posterior_var: float = math.inf
    control: Controller = field(default_factory=Controller)
    samples: int = 0
    paid: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Says:
    """msg_i(t): u, U and the prior."""

    info_vec: float
    info_mat: float
    prior: float | None


def algorithm_2(world: World, setting: Setting, *, neighbours: bool) -> list[list[tuple[float, float, bool]]]:
    """(estimate, variance, sampled) of each server in each slot; without neighbours it is FAST."""
    guarantee, tuning = setting.guarantee, setting.tuning
    assert guarantee is not None
    blocks = guarantee.kind == "window"  # DPCrowdW: begin anew in each block of w slots, half of the budget a block
    most = max(1, int(tuning.sample_fraction * guarantee.length))
    price = round(guarantee.epsilon * NANO) // (2 if blocks else 1) // most
    noise_variance = laplace_var(price / NANO)
    A, Q = float(setting.model.transition), float(setting.model.process_var[0])
    providers = [Provider(float(share)) for share in world.shares[:, 0]]
    history = []
    for slot in range(world.slots):
        noise = drawn(world, slot, price)
        priors: list[float | None] = []
        prior_vars: list[float] = []
        messages: dict[int, Says] = {}
        for i, sp in enumerate(providers):
            prior = None if sp.posterior is None else A * sp.posterior
            priors.append(prior)
            prior_vars.append(A * A * sp.posterior_var + Q)
            if blocks and slot % guarantee.length == 0:
                sp.control, sp.samples = Controller(next_sample=slot), 0
            over = not blocks and slot >= guarantee.length
            if sp.control.next_sample <= slot and sp.samples < most and not over:
                z = float(world.counts[slot, i, 0]) + noise[i][0]
                expected = z / sp.share if prior is None else prior
                spread = sp.share**2 * Q
                if setting.observation == "binomial":
                    spread = sp.share * (1 - sp.share) * max(expected, 1.0)
                R = tuning.alpha * noise_variance + max(spread, 1 / 12)
                messages[i] = Says(sp.share * z / R, sp.share**2 / R, prior)
                sp.samples += 1
                sp.paid[slot] = price
        row = []
        for i, sp in enumerate(providers):
            near = [int(j) for j in world.graph(slot).neighbours(i)] if neighbours else []
            heard = [j for j in sorted([i, *near]) if j in messages]
            y = sum(messages[j].info_vec for j in heard)
            Y = sum(messages[j].info_mat for j in heard)
            prior, P = priors[i], prior_vars[i]
            if prior is None:
                if heard:
                    sp.posterior, sp.posterior_var = y / Y, 1 / Y
            else:
                M = 1 / (1 / P + Y)
                C = world.gain * P / (abs(P) + 1)
                others = [messages[j].prior for j in near if j in messages]
                pull = C * sum(theirs - prior for theirs in others if theirs is not None)
                sp.posterior, sp.posterior_var = prior + M * (y - Y * prior) + pull, M
            if i in messages:
                assert sp.posterior is not None
                if prior is None:
                    sp.control.wait(slot)
                else:
                    error = abs(sp.posterior - prior) / max(sp.posterior, tuning.floor)
                    sp.control.adjust(slot, error, tuning)
            row.append((math.nan if sp.posterior is None else sp.posterior, sp.posterior_var, i in messages))
        history.append(row)
    for sp in providers:
        worst = max(sum(sp.paid.get(s, 0) for s in range(t, t + guarantee.length)) for t in range(world.slots))
        assert worst <= guarantee.epsilon * NANO
    return history


PAPER = Tuning(theta=2.5, xi=0.05, sample_fraction=0.3)
OTHER = Tuning(theta=1.5, xi=0.1, sample_fraction=0.6, gains=(0.7, 0.2, 0.4), integral_window=3, alpha=0.7, floor=150.0)


def settings(world: World, guarantee: Guarantee, tuning: Tuning, observation: Observation, A: float) -> Setting:
    return Setting(world.servers, ProcessModel.of(A, [150.0]), guarantee, tuning=tuning, observation=observation)


def compare(name: str, world: World, setting: Setting, *, neighbours: bool) -> float:
    """Assert that scheme and oracle agree everywhere; returns how often servers sampled."""
    expected = np.array(algorithm_2(world, setting, neighbours=neighbours))
    releases = play(make_scheme(name), setting, world)
    for slot, release in enumerate(releases):
        estimate, variance, sampled = expected[slot].T
        assert (release.sampled[:, 0] == sampled.astype(bool)).all(), slot
        assert release.estimate[:, 0] == pytest.approx(estimate, rel=1e-9, abs=1e-9, nan_ok=True), slot
        assert release.variance[:, 0] == pytest.approx(variance, rel=1e-9), slot
    return float(expected[:, :, 2].mean())


VARIANTS = [(PAPER, "paper", 1.0), (OTHER, "paper", 0.995), (OTHER, "binomial", 1.0)]


@pytest.mark.parametrize(("tuning", "observation", "A"), VARIANTS)
@pytest.mark.parametrize("changing", [False, True])
def test_dpcrowd_is_algorithm_2(tuning: Tuning, observation: Observation, A: float, changing: bool) -> None:
    """Any slip in filter, consensus, PID control or price would show within a few slots."""
    world = make_world(8, servers=8, slots=130, changing=changing)
    setting = settings(world, Guarantee.finite(120, 20.0), tuning, observation, A)
    frequency = compare("dpcrowd", world, setting, neighbours=True)
    assert 0.05 < frequency < 0.6


@pytest.mark.parametrize(("tuning", "observation", "A"), VARIANTS)
def test_dpcrowd_w_is_algorithm_2_on_blocks(tuning: Tuning, observation: Observation, A: float) -> None:
    """Controllers and samples begin anew with each block at half the budget, while the filter goes on."""
    world = make_world(9, servers=6, slots=110, changing=True)
    setting = settings(world, Guarantee.window(25, 6.0), tuning, observation, A)
    assert compare("dpcrowd-w", world, setting, neighbours=True) > 0.1


@pytest.mark.parametrize(("tuning", "observation", "A"), VARIANTS)
def test_fast_is_algorithm_2_alone(tuning: Tuning, observation: Observation, A: float) -> None:
    """FAST hears nobody: each server is a plain Kalman filter with PID sampling."""
    world = make_world(10, servers=5, slots=120)
    compare("fast", world, settings(world, Guarantee.finite(100, 10.0), tuning, observation, A), neighbours=False)


def test_servers_that_nobody_reaches_in_time_start_by_hearing() -> None:
    """With no budget of their own at first, servers take a neighbour's first record as their start."""
    world = make_world(11, servers=7, slots=40)
    setting = replace(settings(world, Guarantee.finite(30, 9.0), PAPER, "paper", 1.0), phases=np.arange(7) % 4)
    releases = play(make_scheme("dpcrowd", sampling="staggered", interval=4), setting, world)
    first = releases[0]
    samplers = np.flatnonzero(first.sampled[:, 0])
    for i in range(7):
        heard = [j for j in [i, *world.graph(0).neighbours(i)] if j in samplers]
        assert np.isfinite(first.estimate[i, 0]) == bool(heard)
        if len(heard) == 1:  # one record alone: the estimate is z/H and its variance R/H^2
            share = float(world.shares[heard[0], 0])
            price = 9 * NANO // 8
            z = world.counts[0, heard[0], 0] + drawn(world, 0, price)[heard[0]][0]
            assert first.estimate[i, 0] == pytest.approx(z / share, rel=1e-9)
            R = laplace_var(price / NANO) + share**2 * 150.0
            assert first.variance[i, 0] == pytest.approx(R / share**2, rel=1e-9)


@pytest.mark.parametrize("changing", [False, True])
def test_dfast_is_the_average_of_fast(changing: bool) -> None:
    """Flooding reaches the whole component: all of its servers hold the plain mean of their own estimates.

    The servers filter the same truth, so their errors go together: standard deviations are averaged, not variances.
    """
    world = make_world(12, servers=9, slots=110, changing=changing)
    setting = settings(world, Guarantee.finite(100, 20.0), PAPER, "paper", 1.0)
    alone = algorithm_2(world, setting, neighbours=False)
    for slot, release in enumerate(play(make_scheme("dfast"), setting, world)):
        labels = components(world.graph(slot)).tolist()
        for i, label in enumerate(labels):
            members = [alone[slot][j] for j in range(9) if labels[j] == label]
            mean = sum(estimate for estimate, _, _ in members) / len(members)
            deviation = sum(math.sqrt(variance) for _, variance, _ in members) / len(members)
            assert release.estimate[i, 0] == pytest.approx(mean, rel=1e-9)
            assert release.variance[i, 0] == pytest.approx(deviation**2, rel=1e-9)
            assert bool(release.sampled[i, 0]) == alone[slot][i][2]
