"""Groups of records in a saved state: stored only where a record has any, and read as earlier builds wrote them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel
from dpcrowd.filters.course import Course
from dpcrowd.schemes.relay_state import RelayState
from dpcrowd.schemes.server import Server
from dpcrowd.schemes.snapshot import from_bytes, to_bytes
from node_support_relay import counts_of, facts_of
from project_support import TESTS
from relay_support import message_of

STORED = TESTS / "fixtures" / "v0.2.dev-14" / "states" / "relay.state"
"""Server 0 of three after slot 11, with the groups of all records, as the first builds with relay have stored it."""
OF_MODELS = TESTS / "fixtures" / "v0.2.dev-16" / "states"
"""Server 1 of three after slot 11, with a process model of two seasons."""
FACTS = replace(facts_of(servers=3), observation="binomial")
COUNTS = counts_of(FACTS, 20)


def run(server: Server, slots: range, sent: dict[tuple[int, int], Any]) -> list[Any]:
    """Let slots pass at server 0, which gets the records of the other two at once."""
    others = [FACTS.server(number) for number in (1, 2)]
    releases = []
    for slot in range(slots.stop):
        for number, other in enumerate(others, start=1):
            other.observe(slot, COUNTS[slot, number])
            if (sample := other.open_sample()) is not None:
                sent[number, slot] = sample[1].copy()
            other.hear()
        if slot in slots:
            server.observe(slot, COUNTS[slot, 0])
            keys = [key for key in sorted(sent) if key[1] == slot]
            releases.append(server.hear({3: message_of(sent, keys, FACTS.price)} if keys else None))
    return releases


def state_of(server: Server) -> RelayState:
    state: RelayState = server._state
    return state


def test_a_state_with_the_groups_of_all_records_goes_on() -> None:
    """A folder of an earlier build would otherwise begin from nothing, or refuse to start."""
    assert "state.groups" in from_bytes(STORED.read_bytes())
    server, continuous = FACTS.server(0), FACTS.server(0)
    server.restore(STORED.read_bytes())
    expected = run(continuous, range(16), {})[12:]
    # The builds that stored it took the crowd behind a binomial variance from an earlier slot.
    for mine, theirs in zip(run(server, range(12, 16), {}), expected, strict=True):
        assert np.abs(mine.estimate - theirs.estimate).max() < 0.1 * np.sqrt(theirs.variance.min())
        assert mine.variance == pytest.approx(theirs.variance, rel=0.02)
    mine, theirs = from_bytes(server.save()), from_bytes(continuous.save())
    assert mine.keys() == theirs.keys()
    assert (mine["state.noisy"] == theirs["state.noisy"]).all()


@pytest.mark.parametrize(
    ("learn", "file", "estimate", "variance"),
    [
        (False, "relay-model.state", 2127.430345508678, 137.1079333610357),
        (True, "relay-learning.state", 3023.113747166634, 1948.7148965391711),
    ],
)
def test_a_state_with_an_earlier_model_goes_on(learn: bool, file: str, estimate: float, variance: float) -> None:
    """What later models say more would make every network with a model forget its estimates and what it has learned."""
    profile = np.array([[2100.0] * 3, [2000.0] * 3])
    course = Course(profile, np.full(profile.shape, 100.0), season=2, step=1)
    network = replace(FACTS, shares=np.array([0.2, 0.3, 0.5]), model=ProcessModel.around(course, 0.5), learn=learn)
    server = network.server(1)
    server.restore((OF_MODELS / file).read_bytes())
    server.observe(12, None)
    release = server.hear()
    assert release.estimate[0] == pytest.approx(estimate, rel=1e-12), "what the build that stored it went on with"
    assert release.variance[0] == pytest.approx(variance, rel=1e-12)


def test_groups_are_not_stored_where_no_record_has_any() -> None:
    """They were half of every state, which is stored in every slot, and say nothing."""
    server = FACTS.server(0)
    run(server, range(8), {})
    assert "state.groups" not in from_bytes(server.save())


def test_groups_that_a_record_has_are_stored_until_it_is_final() -> None:
    """A record that is passed on after a restart without its groups would be another record, under its signature."""
    server = FACTS.server(0)
    run(server, range(8), {})
    state = state_of(server)
    state.noisy[7 % FACTS.lag, 1, 1] = 0.0
    state.put_groups(np.array([7 % FACTS.lag]), np.array([1]), np.array([[0, 0, 2]]))
    restored = FACTS.server(0)
    restored.restore(server.save())
    assert state_of(restored).groups_of(np.array([7 % FACTS.lag]), np.array([1])).tolist() == [[0, 0, 2]]
    assert state_of(restored).groups_of(np.array([6 % FACTS.lag]), np.array([1])).tolist() == [[0, 1, 2]]
    moved = FACTS.server(0)
    moved.take_over(server.save(), FACTS.server(0), range(3), [0, 2, 1])
    assert state_of(moved).groups_of(np.array([7 % FACTS.lag]), np.array([2])).tolist() == [[0, 0, 2]]
    run(restored, range(8, 8 + FACTS.lag), {})
    assert state_of(restored).groups is None


def test_groups_of_another_size_are_refused() -> None:
    """They belong to another network: a server that took them would fail in the next slot."""
    arrays = from_bytes(STORED.read_bytes())
    arrays["state.groups"] = arrays["state.groups"][:, :2]
    with pytest.raises(BadInput, match="groups"):
        FACTS.server(0).restore(to_bytes(arrays))
