"""What neighbours estimated, from the messages that were used."""

from __future__ import annotations

import numpy as np

from dpcrowd.node.live.neighbour_estimates import NeighbourEstimates
from dpcrowd.node.wire import encode, prior_of
from node_support_wire import REGIONS, SIGN, SLOT, body, info

NAMES = [f"region {number}" for number in range(REGIONS)]
PRIOR = np.array([[10.0, 20.0, 30.0]])


def payload(**other: object) -> bytes:
    known = np.ones((1, REGIONS), dtype=np.bool_)
    return encode(body(info(prior=PRIOR, prior_known=known), **other), SIGN)


def test_the_prior_of_a_message() -> None:
    """A heartbeat has none, and neither has what cannot be read; a region that is not known is not a number."""
    assert np.array_equal(prior_of(payload()), PRIOR[0])  # type: ignore[arg-type]
    assert prior_of(encode(body(), SIGN)) is None
    assert prior_of(b"nonsense") is None
    some = prior_of(encode(body(info(prior=PRIOR, prior_known=np.array([[True, False, True]]))), SIGN))
    assert some is not None
    assert np.isnan(some).tolist() == [False, True, False]


def test_only_messages_that_were_used_are_shown() -> None:
    """A message that was refused, or that came for another slot, must not look like a neighbour's estimate."""
    estimates = NeighbourEstimates()
    estimates.arrived("a", payload())
    estimates.arrived("b", payload())
    estimates.arrived("c", b"nonsense")
    estimates.released(SLOT, ["a"], REGIONS)
    history = estimates.history(10, None, NAMES, ["a", "b"])
    assert (history.slots, history.neighbours) == ([SLOT], {"a": [60.0], "b": [None]})
    assert estimates.history(10, "region 1", NAMES, ["a"]).neighbours == {"a": [20.0]}


def test_the_last_slots_are_kept_and_memory_is_bounded() -> None:
    """A node runs for months: of each neighbour a fixed number of slots is kept, and few messages wait."""
    estimates = NeighbourEstimates()
    for slot in range(20):
        estimates.arrived("a", payload(slot=slot))
        estimates.released(slot, ["a"], REGIONS)
    assert estimates.history(5, None, NAMES, ["a"]).slots == [15, 16, 17, 18, 19]
    for slot in range(100, 200):
        estimates.arrived("a", payload(slot=slot))
    assert len(estimates._waiting["a"]) <= 4
    assert estimates.history(5, None, NAMES[:2], ["a"]).slots == [], "of another revision, with other regions"
