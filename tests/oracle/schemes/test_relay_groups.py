"""Records of groups against a dense Kalman filter whose rows are sums of regions."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from dpcrowd.filters import Course, ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.records import RecordMessages
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


def dense(network: Network, patterns: tuple[Any, ...], *, keep: bool) -> tuple[Any, Any]:
    """Mean and variances after the last slot; keep: with the covariances that sums lead to."""
    a, noise = np.diag(MODEL.transition), network.noise_var
    course = MODEL.course
    assert course is not None
    mean, cov = course.mean(-1), np.diag(course.settled_var(-1, MODEL.transition))
    for slot in range(SLOTS):
        mean = course.mean(slot) + a @ (mean - course.mean(slot - 1))
        cov = a @ cov @ a + np.diag(course.noise_var(slot))
        by_pattern: dict[bytes, list[tuple[Any, float, float]]] = {}
        for origin in (1, 2):
            values, groups = record(slot, origin, patterns)
            share = float(network.shares[origin])
            for lead in np.flatnonzero(groups == SINGLE):
                row = share * (groups == lead)
                spread = max(share**2 * MODEL.one_step_var[groups == lead].sum(), 1 / 12)
                by_pattern.setdefault(groups.tobytes(), []).append((row, float(values[lead]), noise + spread))
        for pattern in sorted(by_pattern, key=lambda key: tuple(np.frombuffer(key, dtype=np.int64)), reverse=True):
            rows, values_, variances = (np.array(part) for part in zip(*by_pattern[pattern], strict=True))
            innovation_cov = rows @ cov @ rows.T + np.diag(variances)
            gain = cov @ rows.T @ np.linalg.inv(innovation_cov)
            mean, cov = mean + gain @ (values_ - rows @ mean), cov - gain @ rows @ cov
            if not keep:
                cov = np.diag(np.diag(cov))
    return mean, np.diag(cov)


@pytest.mark.parametrize("form", ["matrix", "diagonal"])
@pytest.mark.parametrize("patterns", [PATTERNS, (PAIRS,)], ids=["mixed", "same"])
def test_a_sum_is_one_measurement(form: Literal["diagonal", "matrix"], patterns: tuple[Any, ...]) -> None:
    """A group that counted once per member, with another variance or in another slot would show in the digits."""
    network = network_of(form)
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
    mean, variance = dense(network, patterns, keep=form == "matrix")
    assert not server.mailbox.refused.any()
    assert release.estimate == pytest.approx(mean, rel=1e-9)
    assert release.variance == pytest.approx(variance, rel=1e-8)
