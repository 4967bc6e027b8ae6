"""Normalised innovations where users stay, against a dense joint Gaussian of a server's error and all deviations."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.arrays import Floats
from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from relay_support import Network, Records, message_of

TURNOVER, Q, LAG, SLOTS = 0.1, 40.0, 4, 14
PARTITION, OVERLAPPING = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.7, 0.5, 0.3, 0.1])


def network_of(shares: Floats) -> Network:
    """Server 0 does not sample, so that it knows what it is given."""
    return Network(
        shares, ProcessModel.of(1.0, [Q]), Guarantee.window(4, epsilon=8.0), samples=4,
        phases=np.zeros(len(shares), int), lag=LAG, guard=False, observation="binomial", turnover=TURNOVER,
    )  # fmt: skip


def some_records(shares: Floats) -> dict[tuple[int, int], Floats]:
    """Servers 1 to 3 take turns, and meet now and then."""
    rng = np.random.default_rng(8)
    which = [(1 + slot % 3, slot) for slot in range(SLOTS)] + [(3, slot) for slot in range(0, SLOTS, 5)]
    return {(origin, slot): np.rint(3000.0 * shares[[origin]] + rng.normal(0.0, 30.0, 1)) for origin, slot in which}


def dense_innovations(network: Network, records: Records, last: int) -> dict[tuple[int, int], float]:
    """Return the normalised innovations of records of slots up to `last`, by one pass over all of them.

    full  covariances of the error e = mean - r and the deviations; those of the deviations stay what they are
    """
    shares, servers = network.shares, network.servers
    deviations = np.diag(shares * (1.0 - shares))
    if np.isclose(shares.sum(), 1.0):  # users are partitioned
        deviations = np.diag(shares) - np.outer(shares, shares)
    found: dict[tuple[int, int], float] = {}
    means: list[float] = []
    mean, full = np.nan, np.zeros((1 + servers, 1 + servers))
    for slot in range(last + 1):
        full[0, 0] += Q
        full[0, 1:] *= 1.0 - TURNOVER
        origins = np.array(sorted(origin for origin, of in records if of == slot), dtype=np.int64)
        values = np.array([records[int(origin), slot][0] for origin in origins])
        sensing = np.zeros((len(origins), 1 + servers))  # nu = -H e + delta + noise
        sensing[:, 0] = -shares[origins]
        sensing[np.arange(len(origins)), 1 + origins] = 1.0
        noise = np.eye(len(origins)) * network.noise_var
        people = mean  # of which it is known by then where they are within their own number
        if not means:  # the first records say what there is
            people = values.sum() / shares[origins].sum()
            full[0, 0] = 1e12
            mean = people
        full[1:, 1:], full[1:, 0] = people * deviations, full[0, 1:]
        cov = sensing @ full @ sensing.T + noise
        innovation = values - shares[origins] * mean
        for row, origin in enumerate(origins):
            found[int(origin), slot] = float(innovation[row] / np.sqrt(cov[row, row])) if means else np.nan
        gain = -np.linalg.solve(cov, sensing @ full[:, 0])
        step = np.eye(1 + servers)
        step[0] += gain @ sensing
        full = step @ full @ step.T
        full[0, 0] += gain @ noise @ gain
        mean = float(mean + gain @ innovation)
        means.append(mean)
    return found


@pytest.mark.parametrize("late", [0, 1, 3])
@pytest.mark.parametrize("shares", [PARTITION, OVERLAPPING], ids=["partition", "overlapping"])
def test_as_in_a_dense_joint_gaussian(shares: Floats, late: int) -> None:
    """H^2 P + R alone would leave out what the error has in common with the deviation of the record's own server.

    late  slots by which records of server 3 are late: they are compared with the prior of their own slot
    """
    network, records = network_of(shares), some_records(shares)
    server, compared = network.server(0), 0
    for slot in range(SLOTS):
        arriving = sorted((of, origin) for origin, of in records if of + (late if origin == 3 else 0) == slot)
        server.observe(slot, None)
        keys = [(origin, of) for of, origin in arriving]
        server.hear({9: message_of(records, keys, network.price)} if keys else {})
        known = {key: value for key, value in records.items() if key[1] + (late if key[0] == 3 else 0) <= slot}
        expected = dense_innovations(network, known, slot)
        np.testing.assert_allclose(server.innovations[:, 0], [expected[key] for key in keys], rtol=1e-5)
        compared += int(np.isfinite(server.innovations).sum())
    assert compared >= 12
