"""Groups in records: which region is in which group, what cannot be, and what a receiver does with them so far."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.records import RecordMessages
from dpcrowd.schemes.relay import Relay
from relay_support import Network, message_of

NETWORK = Network(
    shares=np.array([0.5, 0.4, 0.3]),
    model=ProcessModel.of(1.0, [100.0, 25.0, 9.0, 4.0]),
    guarantee=Guarantee.window(12, 4.0),
    samples=4,
    phases=np.array([0, 4, 8]),
)
VALUES = np.array([120.0, 16.0, 0.0, 0.0])


def record(groups: list[int], values: np.ndarray = VALUES, slot: int = 0) -> RecordMessages:
    """One record of server 0 with these groups."""
    message = message_of({(0, slot): values}, [(0, slot)], NETWORK.price)
    return replace(message, groups=np.array([groups]))


def test_without_groups_every_region_is_by_itself() -> None:
    """Callers that know nothing of groups would otherwise send records that nobody can read."""
    message = message_of({(0, 0): VALUES, (1, 0): VALUES}, [(0, 0), (1, 0)], NETWORK.price)
    assert message.groups.tolist() == [[0, 1, 2, 3]] * 2
    assert message.groups.dtype == np.int64
    assert message.row(1).groups.tolist() == [[0, 1, 2, 3]]
    assert RecordMessages.stack([message, message.row(0)]).groups.shape == (3, 4)


@pytest.mark.parametrize("groups", [[0, 1, 2, 3], [0, 1, 1, 0], [0, 0, 0, 0], [0, 1, 1, 3]])
def test_groups_that_can_be(groups: list[int]) -> None:
    """A group of any size at any place is a correct record, once filters read it."""
    record(groups, np.where(np.array(groups) == np.arange(4), VALUES, 0.0)).check_values("server 0")


@pytest.mark.parametrize(
    ("groups", "region", "name"),
    [
        ([0, 2, 2, 3], 1, 2),  # not the lowest
        ([0, 0, 1, 3], 2, 1),  # region 1 is itself in the group of region 0
        ([0, 1, 2, -1], 3, -1),
        ([0, 1, 2, 9], 3, 9),
        ([-4, 1, 2, 3], 0, -4),
    ],
)
def test_groups_that_cannot_be(groups: list[int], region: int, name: int) -> None:
    """Read as an index, such a name would take the value of another region, or stop the receiver."""
    with pytest.raises(BadInput, match=f"server 0 sent a record whose region {region} is in a group named {name}; all"):
        record(groups).check_values("server 0")


def test_a_value_of_a_region_that_is_in_the_group_of_another() -> None:
    """A second number beside the sum of a group would be one that nobody has paid for."""
    with pytest.raises(BadInput, match="a value for region 1 alone, which is in the group of region 0; allowed"):
        record([0, 0, 2, 3]).check_values("server 0")


def test_a_grouped_record_is_refused_and_changes_nothing() -> None:
    """As counts of regions, the sum of a group would be all of it in one region, and nothing in the others."""
    receiver, other = NETWORK.server(1), NETWORK.server(1)
    for server in (receiver, other):
        server.observe(0, None)
    grouped = receiver.hear({0: record([0, 1, 1, 0])})
    assert np.array_equal(grouped.estimate, other.hear().estimate, equal_nan=True)
    assert receiver.mailbox.refused.tolist() == [1, 0, 0]
    assert not receiver.mailbox.held.any()


def test_groups_travel_with_the_record_and_with_the_saved_state() -> None:
    """A server that passes a record on without its groups would change what its origin has signed."""
    server = NETWORK.server(1)
    server.observe(0, None)
    server.hear({0: record([0, 1, 2, 3])})
    again = NETWORK.server(1)
    again.restore(server.save())
    for one in (server, again):
        message = one.observe(1, None)
        assert isinstance(message, RecordMessages)
        assert message.origin.tolist() == [0]
        assert message.groups.tolist() == [[0, 1, 2, 3]]


def test_a_simulation_stores_no_groups_where_there_are_none() -> None:
    """They would take as much memory as the records of all servers, to say nothing."""
    scheme = NETWORK.scheme()
    assert isinstance(scheme, Relay)
    state = scheme.start(NETWORK.setting())
    assert state.groups is None
    assert state.table(0).groups is None
