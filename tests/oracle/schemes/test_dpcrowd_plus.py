"""DPCrowd+ and RescueDP against Algorithm 3 written out in plain Python: sound ledger, diagonal form, four regions.

Rescue's PID control, its allocation from what the window has left, dynamic grouping from released values, one draw a
group split evenly, and the Kalman-consensus filter for each region. Only the noise is shared with the scheme.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.tuning import Tuning
from schemes_support import World, drawn, laplace_var, make_world, play

NANO = 10**9
REGIONS = 4


@dataclass
class Region:
    """One region at one server: its filter, and the control of its sampling interval."""

    posterior: float | None = None
    posterior_var: float = math.inf
    interval: float = 1.0
    next_sample: int = 0
    errors: list[float] = field(default_factory=list)
    last_release: float | None = None

    def adjust(self, slot: int, release: float, left: float, tuning: Tuning) -> None:
        """Feedback |r_n - r_(n-1)|; I <- max(1, I + theta (1 - (Delta/lambda)^2)) with lambda = 1/epsilon_left."""
        if self.last_release is not None:
            error = abs(release - self.last_release)
            self.errors.append(error)
            recent = self.errors[-tuning.integral_window :]
            delta = tuning.gains[0] * error + tuning.gains[1] * sum(recent) / len(recent)
            self.interval = max(1.0, self.interval + tuning.rescue_theta * (1.0 - (delta * left) ** 2))
        self.last_release = release
        self.next_sample = slot + math.floor(self.interval + 0.5)


@dataclass
class Provider:
    """One server: its regions, its payments by slot, and all regions' releases at its samples."""

    share: float
    regions: list[Region]
    paid: dict[int, int] = field(default_factory=dict)
    releases: list[list[float]] = field(default_factory=list)

    def left(self, slot: int, window: int, total: int) -> int:
        """What the window that ends in `slot` may still spend."""
        return total - sum(self.paid.get(past, 0) for past in range(slot - window + 1, slot + 1))


def pearson(first: list[float], second: list[float]) -> float:
    mean_1, mean_2 = sum(first) / len(first), sum(second) / len(second)
    covariance = sum((a - mean_1) * (b - mean_2) for a, b in zip(first, second, strict=True))
    return covariance / math.sqrt(sum((a - mean_1) ** 2 for a in first) * sum((b - mean_2) ** 2 for b in second))


def dynamic_groups(releases: list[list[float]], tuning: Tuning) -> list[list[int]]:
    """RescueDP's grouping of all regions; the pivot comes first in its group."""
    if len(releases) < tuning.history:
        return [[k] for k in range(REGIONS)]
    recent = releases[-tuning.history :]
    value = [sum(row[k] for row in recent) / len(recent) for k in range(REGIONS)]
    waiting = sorted(range(REGIONS), key=lambda k: value[k])
    groups = []
    while waiting:
        pivot = waiting.pop(0)
        group, total = [pivot], value[pivot]
        for k in list(waiting):
            alike = pearson([row[pivot] for row in recent], [row[k] for row in recent]) > tuning.tau2
            small = value[k] < tuning.tau1 and total + value[k] < tuning.tau1
            if alike and small and abs(value[k] - value[pivot]) < tuning.tau3:
                group.append(k)
                total += value[k]
                waiting.remove(k)
        groups.append(group)
    return groups


def wanted(sp: Provider, slot: int, guarantee: Guarantee, tuning: Tuning) -> int:
    """The largest epsilon that a due region asks for: p of what is left, at most epsilon_max, at least epsilon/w.

    0 if no region is due, or if less than epsilon/w is left: so small a sample would be noise alone.
    """
    total = round(guarantee.epsilon * NANO)
    least, left = total // guarantee.length, sp.left(slot, guarantee.length, total)
    asked = 0
    for region in sp.regions:
        if region.next_sample <= slot and left >= least:
            part = min(tuning.phi * math.log(region.interval + 1), tuning.p_max)
            asked = max(asked, least, min(int(part * left), int(total * tuning.epsilon_max)))
    return asked


def algorithm_3(world: World, setting: Setting, *, neighbours: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Estimates and variances (slots, servers, regions), nano-epsilon paid (slots, servers), largest group."""
    guarantee, tuning = setting.guarantee, setting.tuning
    assert guarantee is not None
    total = round(guarantee.epsilon * NANO)
    A, Q = [float(a) for a in setting.model.transition], [float(q) for q in setting.model.process_var]
    providers = [Provider(float(share), [Region() for _ in range(REGIONS)]) for share in world.shares[:, 0]]
    shape = (world.slots, world.servers, REGIONS)
    estimates, variances, paid = np.full(shape, np.nan), np.full(shape, np.inf), np.zeros(shape[:2], dtype=np.int64)
    largest = 0
    for slot in range(world.slots):
        priors = [
            [None if r.posterior is None else a * r.posterior for a, r in zip(A, sp.regions, strict=True)]
            for sp in providers
        ]
        says: dict[int, list[tuple[float, float]]] = {}
        for i, sp in enumerate(providers):
            price = wanted(sp, slot, guarantee, tuning)
            if price == 0:
                continue
            sp.paid[slot] = price
            paid[slot, i] = price
            noise = drawn(world, slot, price)
            says[i] = [(0.0, 0.0)] * REGIONS
            for group in dynamic_groups(sp.releases, tuning):
                n = len(group)
                largest = max(largest, n)
                z = (sum(float(world.counts[slot, i, k]) for k in group) + noise[i][group[0]]) / n
                for k in group:
                    R = tuning.alpha * laplace_var(price / NANO) / n**2 + max(sp.share**2 * Q[k], 1 / 12)
                    says[i][k] = (sp.share * z / R, sp.share**2 / R)
        for i, sp in enumerate(providers):
            near = [int(j) for j in world.graph(slot).neighbours(i)] if neighbours else []
            heard = [j for j in sorted([i, *near]) if j in says]
            for k, region in enumerate(sp.regions):
                y, Y = sum(says[j][k][0] for j in heard), sum(says[j][k][1] for j in heard)
                prior, P = priors[i][k], A[k] ** 2 * region.posterior_var + Q[k]
                if prior is not None:
                    M = 1 / (1 / P + Y)
                    others = [priors[j][k] for j in near if j in says]
                    pull = sum(other - prior for other in others if other is not None)
                    region.posterior = prior + M * (y - Y * prior) + world.gain * P / (P + 1) * pull
                    region.posterior_var = M
                elif heard:
                    region.posterior, region.posterior_var = y / Y, 1 / Y
                if region.posterior is not None:
                    estimates[slot, i, k], variances[slot, i, k] = region.posterior, region.posterior_var
            if i in says:
                released = [sp.share * float(x) for x in estimates[slot, i]]
                sp.releases.append(released)
                left = sp.left(slot, guarantee.length, total) / NANO
                for region, release in zip(sp.regions, released, strict=True):
                    region.adjust(slot, release, left, tuning)
    return estimates, variances, paid, largest


def compare(name: str, tuning: Tuning, seed: int, *, changing: bool) -> tuple[np.ndarray, int]:
    world = make_world(seed, servers=6, regions=REGIONS, slots=70, changing=changing)
    model = ProcessModel.of([1.0, 0.99, 1.0, 0.995], [120.0, 2.0, 0.0, 0.5])
    setting = Setting(6, model, Guarantee.window(20, 8.0), tuning=tuning)
    estimates, variances, paid, largest = algorithm_3(world, setting, neighbours=name == "dpcrowd-plus")
    for slot, release in enumerate(play(make_scheme(name), setting, world)):
        assert release.charge[:, 0].tolist() == paid[slot].tolist(), slot
        np.testing.assert_allclose(release.estimate, estimates[slot], 1e-9, 1e-9, equal_nan=False, err_msg=f"{slot}")
        np.testing.assert_allclose(release.variance, variances[slot], 1e-9, err_msg=f"{slot}")
    return paid, largest


GROUPED = Tuning(tau2=-0.5, rescue_theta=4.0, phi=0.4, epsilon_max=0.3, history=6)


@pytest.mark.parametrize("name", ["dpcrowd-plus", "rescuedp"])
@pytest.mark.parametrize("tuning", [Tuning(), GROUPED], ids=["defaults", "grouped"])
@pytest.mark.parametrize("changing", [False, True], ids=["static", "changing"])
def test_the_scheme_is_algorithm_3(name: str, tuning: Tuning, changing: bool) -> None:
    """A slip in grouping, splitting, allocation, PID control or fusion shows within a few slots."""
    paid, largest = compare(name, tuning, 21, changing=changing)
    assert 0.1 < (paid > 0).mean() < 0.99
    assert len(np.unique(paid)) > 20
    assert largest >= (3 if tuning is GROUPED else 2)
    assert paid[paid > 0].min() >= 8 * NANO // 20
