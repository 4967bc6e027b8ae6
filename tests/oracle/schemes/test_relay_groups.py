"""Records of groups against a dense Kalman filter whose rows are sums of regions."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from dpcrowd.filters import Course, ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.records import RecordMessages
from dpcrowd.schemes.server import Server
from relay_support import Network

SLOTS, REGIONS, SERVERS = 12, 4, 3
LEVEL = np.array([[3.0, 1.0, 40.0, 2.0]])
MODEL = ProcessModel.around(Course(LEVEL, np.array([[2.0, 1.0, 30.0, 0.5]])), np.array([0.6, 0.2, 0.9, 0.0]))
SINGLE, PAIRS = np.arange(REGIONS), np.array([0, 0, 2, 2])
PATTERNS = (np.array([0, 0, 2, 0]), PAIRS, SINGLE)


def network_of(form: Literal["diagonal", "matrix"]) -> Network:
    return Network(
        shares=np.array([0.3, 0.5, 0.2]),
        model=MODEL,
        guarantee=Guarantee.window(4, 4.0),
        samples=4,
        phases=np.zeros(SERVERS, dtype=np.int64),
        lag=4,
        guard=False,
        form=form,
        options={"groups": "auto"},
    )


def record(slot: int, origin: int, patterns: tuple[Any, ...]) -> tuple[Any, Any]:
    """Values and groups of a record: each origin has its own pattern in every slot."""
    rng = np.random.default_rng([slot, origin])
    groups = patterns[(slot + origin) % len(patterns)]
    values = np.rint(rng.normal(LEVEL[0], 4.0))
    return np.where(groups == SINGLE, values, 0.0), groups


def measurements(network: Network, patterns: tuple[Any, ...], slot: int) -> dict[bytes, list[tuple[Any, float, float]]]:
    """Rows, values and variances of a slot's sums, by the groups of their records."""
    by_pattern: dict[bytes, list[tuple[Any, float, float]]] = {}
    for origin in (1, 2):
        values, groups = record(slot, origin, patterns)
        share = float(network.shares[origin])
        for lead in np.flatnonzero(groups == SINGLE):
            row = share * (groups == lead)
            var = network.noise_var + max(share**2 * MODEL.one_step_var[groups == lead].sum(), 1 / 12)
            by_pattern.setdefault(groups.tobytes(), []).append((row, float(values[lead]), var))
    return by_pattern


def dense(network: Network, patterns: tuple[Any, ...], *, keep: bool) -> list[tuple[Any, Any, Any, Any]]:
    """Priors and posteriors of all slots, as means and covariances; keep: with the covariances that sums lead to."""
    a, slots = np.diag(MODEL.transition), []
    course = MODEL.course
    assert course is not None
    mean, cov = course.mean(-1), np.diag(course.settled_var(-1, MODEL.transition))
    for slot in range(SLOTS):
        prior = mean = course.mean(slot) + a @ (mean - course.mean(slot - 1))
        prior_cov = cov = a @ cov @ a + np.diag(course.noise_var(slot))
        by_pattern = measurements(network, patterns, slot)
        for pattern in sorted(by_pattern, key=lambda key: tuple(np.frombuffer(key, dtype=np.int64)), reverse=True):
            rows, values_, variances = (np.array(part) for part in zip(*by_pattern[pattern], strict=True))
            innovation_cov = rows @ cov @ rows.T + np.diag(variances)
            gain = cov @ rows.T @ np.linalg.inv(innovation_cov)
            mean, cov = mean + gain @ (values_ - rows @ mean), cov - gain @ rows @ cov
            if not keep:
                cov = np.diag(np.diag(cov))
        slots.append((prior, prior_cov, mean, cov))
    return slots


def joint_posterior(network: Network, patterns: tuple[Any, ...]) -> tuple[Any, Any]:
    """Means and variances (slots, regions) of all slots given all records: one system of equations, no recursion."""
    a, settled = MODEL.transition, np.array([2.0, 1.0, 30.0, 0.5]) / (1 - MODEL.transition**2)
    times = np.arange(SLOTS)
    cov = np.zeros((SLOTS, REGIONS, SLOTS, REGIONS))
    for k in range(REGIONS):
        cov[:, k, :, k] = settled[k] * a[k] ** np.abs(times[:, None] - times)
    prior, size = np.tile(LEVEL[0], SLOTS), SLOTS * REGIONS
    rows, values, variances = [], [], []
    for slot in range(SLOTS):
        for part in measurements(network, patterns, slot).values():
            for row, value, var in part:
                complete = np.zeros((SLOTS, REGIONS))
                complete[slot] = row
                rows.append(complete.ravel())
                values.append(value)
                variances.append(var)
    h, joint = np.array(rows), cov.reshape(size, size)
    gain = joint @ h.T @ np.linalg.inv(h @ joint @ h.T + np.diag(variances))
    mean, posterior = prior + gain @ (np.array(values) - h @ prior), joint - gain @ h @ joint
    return mean.reshape(SLOTS, REGIONS), np.diag(posterior).reshape(SLOTS, REGIONS)


def pass_back(slots: list[tuple[Any, Any, Any, Any]]) -> tuple[Any, Any]:
    """Means and variances (slots, regions) of the smoother whose filter drops all covariances."""
    a = np.diag(MODEL.transition)
    smoothed = [slots[-1][2:]]
    for (_, _, mean, cov), (prior, prior_cov, _, _) in zip(slots[-2::-1], slots[:0:-1], strict=True):
        after, after_cov = smoothed[0]
        gain = cov @ a @ np.linalg.inv(prior_cov)
        smoothed.insert(0, (mean + gain @ (after - prior), cov + gain @ (after_cov - prior_cov) @ gain.T))
    return np.array([mean for mean, _ in smoothed]), np.array([np.diag(cov) for _, cov in smoothed])


def fused(network: Network, patterns: tuple[Any, ...]) -> tuple[Server, Any]:
    """A server that has had all records, and its last release."""
    server = network.server(0)
    for slot in range(SLOTS):
        server.observe(slot, None)
        records = [record(slot, origin, patterns) for origin in (1, 2)]
        message = RecordMessages.of(
            np.array([1, 2]),
            np.full(2, slot),
            np.full(2, network.price),
            np.ones(2, dtype=np.int64),
            np.array([values for values, _ in records]),
            np.array([groups for _, groups in records]),
        )
        release = server.hear({1: message})
    return server, release


@pytest.mark.parametrize("form", ["matrix", "diagonal"])
@pytest.mark.parametrize("patterns", [PATTERNS, (PAIRS,)], ids=["mixed", "same"])
def test_a_sum_is_one_measurement(form: Literal["diagonal", "matrix"], patterns: tuple[Any, ...]) -> None:
    """A group that counted once per member, with another variance or in another slot would show in the digits."""
    network = network_of(form)
    server, release = fused(network, patterns)
    *_, mean, cov = dense(network, patterns, keep=form == "matrix")[-1]
    assert not server.mailbox.refused.any()
    assert release.estimate == pytest.approx(mean, rel=1e-9)
    assert release.variance == pytest.approx(np.diag(cov), rel=1e-8)


@pytest.mark.parametrize("patterns", [PATTERNS, (PAIRS,)], ids=["mixed", "same"])
def test_smoothing_with_groups_is_exact_in_matrix_form(patterns: tuple[Any, ...]) -> None:
    """A pass back that took a sum for a measurement of one region would be believed, because it looks smooth."""
    network = network_of("matrix")
    server, _ = fused(network, patterns)
    history = server.smoothed()
    mean, variance = joint_posterior(network, patterns)
    assert history.slots.tolist() == list(range(SLOTS - network.lag, SLOTS))
    assert history.estimate == pytest.approx(mean[-network.lag :], rel=1e-9)
    assert history.variance == pytest.approx(variance[-network.lag :], rel=1e-8)


@pytest.mark.parametrize("patterns", [PATTERNS, (PAIRS,)], ids=["mixed", "same"])
def test_smoothing_with_groups_in_diagonal_form_drops_covariances_and_nothing_else(patterns: tuple[Any, ...]) -> None:
    """The documentation says what it ignores; anything more would be a mistake, and less would need another filter."""
    network = network_of("diagonal")
    server, _ = fused(network, patterns)
    history = server.smoothed()
    mean, variance = pass_back(dense(network, patterns, keep=False))
    assert history.estimate == pytest.approx(mean[-network.lag :], rel=1e-9)
    assert history.variance == pytest.approx(variance[-network.lag :], rel=1e-8)
    exact, _ = joint_posterior(network, patterns)
    deviation = np.sqrt(variance[-network.lag :])
    assert 1e-6 < np.abs((history.estimate - exact[-network.lag :]) / deviation).max() < 0.5
