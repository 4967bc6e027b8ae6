"""Neighbours that answer a joining node with anything: a majority of honest ones decides, and nothing ends the node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.node.machine.instructions import RefuseMessage, Report, StoredRecord
from dpcrowd.node.machine.join import Join
from dpcrowd.node.machine.records import Records
from dpcrowd.node.machine.revision import NetworkView
from dpcrowd.schemes.base import half_width
from dpcrowd.schemes.relay_join import FinalisedState
from dpcrowd.schemes.server import Server
from dpcrowd.schemes.snapshot import from_bytes, to_bytes
from examples_support import examples
from node_support_relay import counts_of, facts_of, make_network

LAG, JOINER, LAST = 5, 2, 19
FACTS = replace(facts_of(lag=LAG), observation="binomial")
COUNTS = counts_of(FACTS, LAST + 2)
NAMES = ("server-0", "server-1", "server-3", "server-4")


@dataclass(frozen=True)
class World:
    """What a node finds that joins after a slot: its view, the signed records, and the honest states of the others.

    same     the state of all servers that have all records
    another  that of a server that has missed one record, which is honest, too
    """

    view: NetworkView
    stored: tuple[StoredRecord, ...]
    same: bytes
    another: bytes


@pytest.fixture(scope="module")
def world() -> World:
    network = make_network(FACTS)
    network.drop = lambda sender, receiver, payload: JOINER in (sender, receiver)
    for slot in range(LAST + 1):
        network.slot(slot, COUNTS[slot])
    lonely = make_network(FACTS)
    lonely.drop = lambda sender, receiver, payload: 0 in (sender, receiver) and not sender % 2
    for slot in range(LAST + 1):
        lonely.slot(slot, COUNTS[slot])
    node = network.nodes[1]
    assert node.machine.records is not None
    view = network.nodes[JOINER].view
    stored = tuple(one for one in node.machine.records.held.contents() if one.origin != "server-2")
    return World(view, stored, node.machine.server.finalised_state(), lonely.nodes[3].machine.server.finalised_state())


SPECIAL = [0.0, -1.0, 1e-300, 1e-9, 0.5, 1.0, 1.01, 1.5, 3.0, 1e6, 2.0**52, 1e300, np.inf, -np.inf, np.nan]
FIELDS = (
    "slot", "since", "settled", "base", "base_var", "base_known", "base_recent", "paid_until", "level", "level_var",
    "score", "usual", "penalty", "suspicious",
)  # fmt: skip
change = st.tuples(
    st.sampled_from(FIELDS),
    st.sampled_from(["set", "times", "plus", "one"]),
    st.sampled_from(SPECIAL) | st.floats(-1e4, 1e4),
)
damage = st.tuples(st.just("bytes"), st.integers(0, 600), st.integers(0, 255))
lie = st.lists(change, min_size=1, max_size=4) | st.lists(damage, min_size=1, max_size=3)


def told(state: bytes, changes: list[Any]) -> bytes:
    """A state after some changes; numbers that do not fit their kind become whatever numpy makes of them."""
    if changes[0][0] == "bytes":
        content = bytearray(state)
        for _, place, value in changes:
            content[place % len(content)] = value
        return bytes(content)
    arrays = from_bytes(state)
    with np.errstate(all="ignore"):
        for name, way, value in changes:
            array = arrays[name].astype(np.float64)
            if way == "one":
                array.flat[0] = value
            else:
                array = {"set": np.full_like(array, value), "times": array * value, "plus": array + value}[way]
            if arrays[name].dtype != np.float64:
                array = np.clip(np.nan_to_num(array), -(2.0**53), 2.0**53)
            arrays[name] = array.astype(arrays[name].dtype)
    return to_bytes(arrays)


def join(world: World, answers: dict[str, bytes]) -> tuple[bool, Server, list[Any]]:
    """What a node does that has asked all, and got these answers; it goes on for a slot in any case."""
    server, joining = FACTS.server(JOINER), Join()
    records = Records(world.view, server, world.stored)
    joining.start(server, world.view, LAST, records)
    joining.to_ask(NAMES, LAST)
    for name, state in answers.items():
        joining.take_answer(name, LAST, state)
    joined, instructions = joining.decide(server, world.view, LAST + 1, records)
    base = server._state.base[0].copy() if joined else None
    variance = server._state.base_var[0].copy() if joined else None
    server.observe(LAST + 1, COUNTS[LAST + 1, JOINER])
    release = server.hear()
    assert np.isfinite(release.estimate).all() or not joined
    return joined, server, [*instructions, base, variance]


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.sampled_from([1, 2]), st.data())
def test_what_honest_servers_agree_on_is_taken_bit_by_bit(world: World, liars: int, data: Any) -> None:
    """As long as more neighbours are honest than not, no lie changes anything."""
    honest = NAMES[: liars + 1]
    answers = dict.fromkeys(honest, world.same)
    answers |= {name: told(world.same, data.draw(lie)) for name in NAMES[liars + 1 : 2 * liars + 1]}
    joined, server, _ = join(world, answers)
    assert joined
    assert server.joined is not None
    assert set(server.joined.sources) >= set(honest)
    _, expected, _ = join(world, dict.fromkeys(honest, world.same))
    assert server.finalised_state() == expected.finalised_state()


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(lie)
def test_where_honest_servers_differ_no_lie_leads_outside_of_their_intervals(world: World, lies: list[Any]) -> None:
    """Two honest neighbours have other records: what is taken agrees with one of them, in every region."""
    answers = {"server-0": world.same, "server-1": world.another, "server-3": told(world.same, lies)}
    joined, _, (*said, base, variance) = join(world, answers)
    if not joined:
        assert any(isinstance(one, Report) and one.event == "join-disagreement" for one in said)
        return
    reader = FACTS.server(JOINER)
    honest: list[FinalisedState] = [reader.read_finalised(one) for one in (world.same, world.another)]
    assert any((np.abs(base - one.base) <= half_width(variance) + half_width(one.variance)).all() for one in honest)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.lists(lie, min_size=1, max_size=4))
def test_whatever_all_of_them_send_the_node_goes_on(world: World, lies: list[list[Any]]) -> None:
    """A state that ended the process would end it again after every start. Who is refused is named."""
    answers = {name: told(world.same, one) for name, one in zip(NAMES, lies, strict=False)}
    _, server, said = join(world, answers)
    assert server.slot == LAST + 1
    assert {one.sender for one in said if isinstance(one, RefuseMessage)} <= set(answers)


def test_honest_servers_differ(world: World) -> None:
    """So the properties above say something."""
    assert world.same != world.another
    joined, server, _ = join(world, {"server-0": world.same, "server-1": world.another})
    assert joined
    assert server.joined is not None
    assert len(server.joined.sources) == 1
