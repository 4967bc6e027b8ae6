"""What a relay server refuses: schedules that break its promise, and records that would break the server."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from relay_support import Network, message_of

NETWORK = Network(
    shares=np.array([0.5, 0.4, 0.3]),
    model=ProcessModel.of(1.0, [100.0, 25.0]),
    guarantee=Guarantee.window(12, 4.0),
    samples=4,
    phases=np.array([5, 0, 1]),
    guard=False,
)
VALUES = np.array([120.0, 16.0])


def test_roaming_users_are_sampled_in_lockstep_only() -> None:
    """With phases of their own, six servers of n = 1 let a user who visits all of them pay six times epsilon."""
    roaming = replace(NETWORK.setting(0), guarantee=Guarantee.window(12, 4.0, users="roaming"), phases=np.array([3]))
    with pytest.raises(BadInput, match="with roaming users all servers sample in the same slots"):
        NETWORK.scheme().start(roaming)
    for phases in (np.array([0]), None):
        NETWORK.scheme().start(replace(roaming, phases=phases))


@pytest.mark.parametrize("phases", [[-3], [12], [0.5]])
def test_a_phase_is_a_slot_of_the_window(phases: list[float]) -> None:
    """A phase outside of the window shifts the schedule in ways that no other server computes."""
    with pytest.raises(BadInput, match="phases must be whole numbers from 0 to 11"):
        NETWORK.scheme().start(replace(NETWORK.setting(0), phases=np.array(phases)))


@pytest.mark.parametrize("hops", [0, 3, 2**63 - 1])
def test_a_record_that_has_travelled_further_than_there_are_servers_is_refused(hops: int) -> None:
    """The largest number of hops overflowed when it was passed on, and the server never got past that slot."""
    server = NETWORK.server(1)
    server.observe(0, None)
    message = message_of({(0, 0): VALUES}, [(0, 0)], NETWORK.price)
    server.hear({0: replace(message, hops=np.array([hops]))})
    assert server.mailbox.refused[0] == 1
    server.observe(1, None)
    assert np.isnan(server.hear().estimate).all(), "nothing was learned, and the server goes on"


def test_a_record_weighs_what_its_sensitivity_says() -> None:
    """A user in two regions per slot doubles the noise's scale; a receiver that forgets it trusts records fourfold."""
    variances = []
    for regions in (1, 2):
        network = replace(NETWORK, guarantee=Guarantee.window(12, 4.0, regions_per_slot=regions))
        server = network.server(1)
        server.observe(0, None)
        release = server.hear({0: message_of({(0, 0): VALUES}, [(0, 0)], network.price)})
        variances.append(release.variance)
        expected = network.noise_var / 0.5**2 + network.model.process_var  # the paper's observation adds H^2 Q
        np.testing.assert_allclose(release.variance, expected, rtol=1e-9)
    assert (variances[1] > variances[0] + 15.0).all()


def test_records_of_slots_before_the_return_of_a_clock_are_late_although_the_lag_has_room() -> None:
    """They may be in the estimate already, by the clock that was ahead, and would count twice."""
    network = replace(NETWORK, lag=8)
    server = network.server(1)
    for slot in range(10):
        server.observe(slot, None)
        server.hear()
    server.mailbox.since = 10
    server.observe(10, None)
    server.hear({0: message_of({(0, 7): VALUES}, [(0, 7)], network.price)})
    assert server.mailbox.late == 1
    assert not server.mailbox.held.any()
