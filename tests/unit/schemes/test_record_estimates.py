"""What single records of other servers say about the population, shown beside the estimate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpcrowd.filters import ProcessModel
from dpcrowd.filters.records import RecordTable
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.records import RecordMessages
from relay_support import Network, message_of

SHARE = 0.25
PROCESS_VAR = np.array([30.0, 60.0])
NETWORK = Network(
    np.array([0.5, SHARE, 0.25]),
    ProcessModel.of(1.0, PROCESS_VAR),
    Guarantee.window(4, epsilon=2.0),
    samples=4,
    phases=np.zeros(3, int),
)


def test_a_record_divided_by_its_share_with_the_variance_of_its_noise() -> None:
    """A line of raw counts would look like a server that sees a quarter of the people, not like agreement."""
    server = NETWORK.server(0)
    records = {(1, 0): np.array([25.0, 50.0]), (2, 1): np.array([40.0, 44.0])}
    server.observe(0, [50, 100])
    server.hear({9: message_of(records, [(1, 0)], NETWORK.price)})
    first = server.record_estimates()
    assert (first.origin.tolist(), first.slot.tolist()) == ([1], [0]), "its own sample is not among them"
    np.testing.assert_allclose(first.value, [[100.0, 200.0]])
    np.testing.assert_allclose(first.variance, [NETWORK.noise_var / SHARE**2 + PROCESS_VAR])
    np.testing.assert_allclose(first.total, [300.0])
    assert (first.share.tolist(), first.learned) == ([[SHARE]], False)
    np.testing.assert_allclose(first.total_variance, first.variance.sum(axis=1))
    server.observe(1, None)
    server.hear({9: message_of(records, [(1, 0), (2, 1)], NETWORK.price)})
    second = server.record_estimates()
    assert (second.origin.tolist(), second.slot.tolist()) == ([2], [1]), "each record is shown once"


def test_a_record_is_divided_by_the_shares_of_its_regions() -> None:
    """A live server of a network with shares by region broke with the first record of another server."""
    shares = np.array([[0.5, 0.2], [0.25, 0.5], [0.25, 0.3]])
    network = replace(NETWORK, shares=shares)
    server = network.server(0)
    server.observe(0, [50, 100])
    records = {(1, 0): np.array([25.0, 50.0]), (2, 0): np.array([30.0, 27.0])}
    server.hear({9: message_of(records, list(records), network.price)})
    shown = server.record_estimates()
    np.testing.assert_allclose(shown.value, [[100.0, 100.0], [120.0, 90.0]])
    np.testing.assert_allclose(shown.variance, network.noise_var / shares[1:] ** 2 + PROCESS_VAR)
    np.testing.assert_allclose(shown.total, [200.0, 210.0])
    np.testing.assert_array_equal(shown.share, shares[1:])


def test_a_record_is_divided_by_the_share_that_the_filter_has_learned() -> None:
    """Divided by public shares, all records of two honest servers lay beside the estimate, and both looked broken."""
    public, true = np.array([0.4, 0.4, 0.2]), np.array([0.4, 0.2, 0.4])
    network = replace(
        NETWORK, shares=public, guarantee=Guarantee.window(4, epsilon=20.0), observation="binomial", share_width=0.2
    )
    server, crowd = network.server(0), np.array([4000.0, 1000.0])
    releases = []
    for slot in range(30):
        server.observe(slot, (true[0] * crowd).astype(int))
        records = {(origin, slot): true[origin] * crowd for origin in (1, 2)}
        releases.append(server.hear({9: message_of(records, list(records), network.price)}))
    level, release = releases[-2].estimate, releases[-1]  # the crowd was expected to stay what it was
    shown = server.record_estimates()
    assert shown.learned
    learned = server.learned_shares()
    assert learned is not None
    shares, deviations = (part[1:] for part in learned)
    np.testing.assert_array_equal(shown.share, shares)
    np.testing.assert_allclose(shown.value, true[1:, None] * crowd / shares)
    spread = shares * (1 - shares) * level + np.square(deviations * level)
    np.testing.assert_allclose(shown.variance, (network.noise_var + spread) / shares**2)
    np.testing.assert_allclose(shown.value, np.tile(release.estimate, (2, 1)), rtol=0.1)
    by_public = true[1:, None] * crowd / public[1:, None]
    assert np.abs(by_public / release.estimate - 1).min() > 0.4


def test_the_total_of_a_record_of_groups_has_the_variance_of_its_draws() -> None:
    """Counted once per member, ten regions in one group had a total with ten times its variance."""
    regions, crowd = 10, 160.0
    network = replace(
        NETWORK,
        model=ProcessModel.of(1.0, np.full(regions, 30.0)),
        options={"groups": "auto"},
        observation="binomial",
    )
    server = network.server(0)
    server.observe(0, [5] * regions)
    noisy, groups = np.zeros((2, regions)), np.zeros((2, regions), dtype=np.int64)
    noisy[:, 0], noisy[1, 7], groups[1, 7:] = SHARE * crowd, SHARE * crowd, 7
    one = np.ones(2, dtype=np.int64)
    records = RecordMessages.of(np.array([1, 2]), 0 * one, network.price * one, one, noisy, groups)
    server.hear({9: records})
    shown = server.record_estimates()
    assert np.isnan(shown.value).all()
    np.testing.assert_allclose(shown.total, [crowd, 2.0 * crowd])
    spread = SHARE * (1 - SHARE) * crowd
    np.testing.assert_allclose(shown.total_variance, np.array([1, 2]) * (network.noise_var + spread) / SHARE**2)


def test_regions_that_share_a_draw_are_known_together_only() -> None:
    """The noisy sum of a group is at its lowest region: drawn as that region alone it would be far too high."""
    groups = np.array([[0, 0, 2, 3, 3], [0, 1, 2, 3, 4]])
    table = RecordTable(np.zeros((2, 5)), np.ones(2), np.ones(2), groups)
    assert table.joined(np.array([0, 1])).tolist() == [[True, True, False, True, True], [False] * 5]
