"""A server compares what others have measured with what it had expected without it, and never with itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee, SecureNoise
from dpcrowd.schemes.base import Scheme, Setting
from dpcrowd.schemes.dpcrowd_plus import DPCrowdPlus
from dpcrowd.schemes.dpcrowd_w import DPCrowdW
from dpcrowd.schemes.records import RecordMessages
from dpcrowd.schemes.server import Server
from relay_support import Network, message_of
from schemes_support import bits, course_model

NETWORK = Network(
    np.array([0.5, 0.25, 0.25]),
    ProcessModel.of(1.0, [30.0, 60.0]),
    Guarantee.window(4, epsilon=2.0),
    samples=4,
    phases=np.zeros(3, int),
)


def test_a_record_is_compared_with_the_prior_of_its_slot() -> None:
    """A late record that was compared with a later slot, or with a posterior that has it, would look too good."""
    server = NETWORK.server(0)
    noise_var = NETWORK.noise_var
    records = {(1, 0): np.array([25.0, 50.0]), (2, 1): np.array([40.0, 40.0]), (1, 1): np.array([20.0, 60.0])}
    server.observe(0, None)
    server.hear({9: message_of(records, [(1, 0)], NETWORK.price)})
    assert np.isnan(server.innovations).all(), "nothing was known before"
    server.observe(1, None)
    server.hear({9: message_of(records, [(2, 1)], NETWORK.price)})
    process_var = np.array([30.0, 60.0])
    record_var = noise_var + 0.25**2 * process_var
    mean, var = records[1, 0] / 0.25, record_var / 0.25**2 + process_var
    spread = np.sqrt(0.25**2 * var + record_var)
    np.testing.assert_allclose(server.innovations, [(records[2, 1] - 0.25 * mean) / spread])
    server.observe(2, None)
    server.hear({9: message_of(records, [(1, 1)], NETWORK.price)})
    np.testing.assert_allclose(server.innovations, [(records[1, 1] - 0.25 * mean) / spread])


def test_own_samples_and_records_known_already_are_not_compared() -> None:
    """A server that judges itself by its own samples would always be satisfied, and twice is once too often."""
    server = NETWORK.server(0)
    records = {(1, 0): np.array([25.0, 50.0])}
    for slot in range(3):
        server.observe(slot, [50, 100])
        server.hear({9: message_of(records, [(1, 0)], NETWORK.price)})
        assert len(server.innovations) == (1 if slot == 0 else 0)


def test_sums_of_regions_are_marked_as_such() -> None:
    """The value of a sum stands at its lowest region, and must not pass for a value of that region."""
    three = replace(NETWORK, model=ProcessModel.of(1.0, [30.0, 60.0, 20.0]), options={"groups": "auto"})
    server = three.server(0)
    for slot, groups in enumerate([[0, 1, 2], [0, 1, 0], [0, 0, 0]]):
        origin, at, nano = (np.array([one], dtype=np.int64) for one in (1, slot, three.price))
        noisy = np.where(np.array(groups) == np.arange(3), 30.0, 0.0)[None]
        server.observe(slot, None)
        server.hear({9: RecordMessages.of(origin, at, nano, np.ones(1, dtype=np.int64), noisy, np.array([groups]))})
        expected = [[False] * 3, [True, False, False], [True, False, False]][slot]
        assert server.innovations_of_sums.tolist() == [expected]
        assert np.isnan(server.innovations).tolist() == [[[True] * 3, [False, False, True], [False, True, True]][slot]]


def test_the_sum_of_regions_of_a_server_whose_users_stay() -> None:
    """A sum has in common with the prior what its regions have together; that of its lowest region alone is less."""
    shares, q, noise_var = np.array([0.5, 0.4, 0.3]), np.array([30.0, 60.0, 20.0]), NETWORK.noise_var
    network = replace(
        NETWORK, shares=shares, model=ProcessModel.of(1.0, q), observation="binomial", turnover=0.1,
        options={"groups": "auto"},
    )  # fmt: skip
    server, first, total = network.server(0), np.array([120.0, 80.0, 60.0]), 230.0
    at, nano, hops = (np.array([one], dtype=np.int64) for one in (1, network.price, 1))
    server.observe(0, None)
    server.hear({9: RecordMessages.of(at, 0 * at, nano, hops, first[None], np.array([[0, 1, 2]]))})
    server.observe(1, None)
    server.hear({9: RecordMessages.of(at, at, nano, hops, np.array([[total, 0.0, 70.0]]), np.array([[0, 0, 2]]))})
    spread = 0.4 * 0.6 * first / 0.4  # of the deviation, and of the first error e = (delta + noise)/H
    prior_var, common = (spread + noise_var) / 0.4**2 + q, 0.9 * spread / 0.4
    by_region = 0.4**2 * prior_var + spread - 2.0 * 0.4 * common
    expected = [(total - 200.0) / np.sqrt(by_region[:2].sum() + noise_var), 10.0 / np.sqrt(by_region[2] + noise_var)]
    np.testing.assert_allclose(server.innovations[0, [0, 2]], expected)
    assert server.innovations_of_sums.tolist() == [[True, False, False]]


LEARNING = replace(NETWORK, observation="binomial", turnover=0.1, share_width=0.1)


@pytest.mark.parametrize("learn", [False, True])
def test_learned_shares_and_an_expected_course(learn: bool) -> None:
    """The first record says what there is, and nothing was expected of it; unless a model has a course."""
    record = {(1, 0): np.array([25.0, 50.0])}
    for model, is_known in ((NETWORK.model, False), (course_model(2), True)):
        server = replace(LEARNING, model=model, learn=learn).server(0)
        server.observe(0, None)
        server.hear({9: message_of(record, [(1, 0)], LEARNING.price)})
        assert np.isfinite(server.innovations).tolist() == [[is_known] * 2]


def test_a_restored_server_compares_late_records_with_learned_shares() -> None:
    """The filters of the last slots are not part of a saved state, and have to run again before anything is compared.

    A record that is far off counts less in the filter, but it is compared as it is: else no alert would ever see it.
    """
    rng = np.random.default_rng(3)
    keys = [(origin, slot) for slot in range(12) for origin in (1, 2)]
    records = {key: rng.integers(90, 110, 2).astype(float) for key in keys}
    records[2, 9] = np.array([5000.0, 100.0])
    server, restored = LEARNING.server(0), LEARNING.server(0)
    for slot in range(12):
        server.observe(slot, None)
        arriving = [key for key in keys if key[1] + (2 if key[0] == 2 else 0) == slot]
        message = {9: message_of(records, arriving, LEARNING.price)}
        restored.restore(server.save())
        server.hear(message)
        restored.hear(message)
        assert bits(restored.innovations) == bits(server.innovations)
        assert len(server.innovations) == len(arriving)
    assert server.innovations[0, 0] > 10.0, "the late record of slot 9 comes first"
    assert abs(server.innovations[0, 1]) < 3.0


@pytest.mark.parametrize(
    ("turnover", "samples", "observation", "kept"),
    [(0.05, 10, "binomial", 0.95), (0.05, 2, "binomial", 0.95**5), (1.0, 2, "binomial", 0.0), (0.05, 2, "paper", 0.0)],
)
def test_how_much_of_a_deviation_is_left_at_the_next_sample(
    turnover: float, samples: int, observation: Literal["binomial", "paper"], kept: float
) -> None:
    """The calibration counts values of users who stay as fewer: with the turnover of one slot, far too few of them."""
    network = Network(
        np.array([0.3, 0.4]), ProcessModel.of(1.0, [100.0]), Guarantee.window(10, epsilon=2.0), samples=samples,
        phases=np.zeros(2, int), observation=observation, turnover=turnover,
    )  # fmt: skip
    assert network.server(0).kept_deviation == pytest.approx(kept)


@pytest.mark.parametrize(
    ("scheme", "kept"),
    [(DPCrowdW("fixed", interval=5), 0.95**5), (DPCrowdW(), 0.95), (DPCrowdPlus(), 0.95)],
    ids=["fixed", "adaptive", "plus"],
)
def test_servers_with_a_fixed_interval_are_known_to_sample_rarely(scheme: Scheme, kept: float) -> None:
    """With an interval of 25, 3,903 values were needed instead of 234, which never came."""
    setting = Setting(
        1, ProcessModel.of(1.0, [100.0]), Guarantee.window(10, epsilon=2.0), observation="binomial", turnover=0.05
    )
    server = Server(scheme, setting, SecureNoise(), number=0, share=0.3, max_degree=1)
    assert server.kept_deviation == pytest.approx(kept)
