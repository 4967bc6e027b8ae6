"""The least variance that a relay server can have: no server is below it, and the best one comes close to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.filters import Course, ProcessModel
from dpcrowd.schemes.relay_bounds import least_variance
from node_support_relay import counts_of, facts_of
from relay_support import Network, message_of

SLOTS = 60


def variances(network: Network) -> Any:
    """Variances of a server that gets all records at once, (slots, d)."""
    servers, counts = [network.server(number) for number in range(network.servers)], counts_of(network, SLOTS)
    sent, released = {}, []
    for slot in range(SLOTS):
        for number, server in enumerate(servers):
            server.observe(slot, counts[slot, number])
            if (sample := server.open_sample()) is not None:
                sent[number, slot] = sample[1].copy()
        keys = [key for key in sorted(sent) if key[1] == slot and key[0] != 0]
        message = {network.servers: message_of(sent, keys, network.price)} if keys else None
        released.append(servers[0].hear(message).variance)
        for server in servers[1:]:
            server.hear()
    return np.array(released)


@pytest.mark.slow
@pytest.mark.parametrize("roaming", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"observation": "binomial"},
        {"learn": True},
        {"observation": "binomial", "turnover": 0.1},
        {"observation": "binomial", "shares": np.array([0.5, 0.3, 0.2])},
        {"form": "matrix"},
    ],
    ids=str,
)
def test_no_server_is_below_it(roaming: bool, options: Any) -> None:
    """An honest neighbour that was refused could not help anybody."""
    network = replace(facts_of(servers=3, roaming=roaming), **options)
    least = least_variance(network.setting(0), network.samples, None)
    assert (variances(network).min(axis=0) >= least).all()
    assert (least > 0.0).all()


@pytest.mark.parametrize("options", [{}, {"learn": True}, {"form": "matrix"}], ids=str)
def test_deviations_that_follow_a_scale_are_not_below_it(options: Any) -> None:
    """In the morning a deviation is multiplied by more than 1, and at night it shrinks below what a day allows."""
    profile = np.array([[400.0], [40.0], [150.0]]) * np.ones(2)
    course = Course(profile, 0.04 * np.square(profile), season=3, step=1, scale=profile)
    network = replace(facts_of(servers=3, regions=2), model=ProcessModel.around(course, 0.9), **options)
    least = least_variance(network.setting(0), network.samples, None)
    assert (variances(network).min(axis=0) >= least).all()
    assert (least > 0.0).all()


def test_servers_that_sample_together_reach_it() -> None:
    """A bound that is far away would let a neighbour claim nearly anything."""
    network = replace(facts_of(servers=3, roaming=True), guard=False)
    least = least_variance(network.setting(0), network.samples, None)
    assert variances(network).min(axis=0) == pytest.approx(least, rel=0.1)


@pytest.mark.parametrize("transition", [1.0, 0.9, 1.1])
def test_it_is_the_fixed_point_of_the_recursion(transition: float) -> None:
    """By the recursion of the prediction, started without information and from complete certainty."""
    network = replace(
        facts_of(servers=3, roaming=True, regions=1), model=ProcessModel.of(transition, [400.0]), guard=False
    )
    setting = network.setting(0)
    least = least_variance(setting, 4, None)
    after_long = least_variance(setting, 4, 500)
    assert after_long == pytest.approx(least, rel=1e-6)
    steps = [float(least_variance(setting, 4, slots)[0]) for slots in range(0, 40, 2)]
    assert steps[0] == 0.0
    assert steps == sorted(steps)
    assert steps[-1] <= float(least[0]) * (1.0 + 1e-9)


def test_a_process_that_stands_still_has_no_bound() -> None:
    """Its variance falls with every record, for ever."""
    network = replace(facts_of(servers=3, regions=1), model=ProcessModel.of(1.0, [0.0]))
    assert least_variance(network.setting(0), 3, None).tolist() == [0.0]
