"""Nodes that speak the live protocol release the bits that the simulator computes: one arithmetic, two drivers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.node.wire import same_content
from dpcrowd.schemes.base import Release
from node_support import Network, Node, make_view
from schemes_support import SERVERS, Case, World, bits, make_server, make_world, play

CASES = [
    Case("dpcrowd"),
    Case("dpcrowd-w", regions=3),
    Case("dpcrowd-plus", regions=3),
    Case("dpcrowd-plus", regions=3, form="matrix"),
]


def make_network(world: World, case: Case, **changes: Any) -> Network:
    """One node for each server of a simulated world."""
    setting = replace(case.setting(), **changes)

    def node(number: int) -> Node:
        def links(slot: int) -> frozenset[int]:
            return frozenset(int(n) for n in world.graph(slot).neighbours(number))

        view = make_view(number, SERVERS, links, regions=case.regions, form=setting.form)
        return Node(view, lambda: make_server(world, case.name, setting, number))

    return Network([node(number) for number in range(SERVERS)])


def assert_released(network: Network, batch: list[Release]) -> None:
    for node in network.nodes:
        assert [release.slot for release in node.published] == [release.slot for release in batch]
        for mine, theirs in zip(node.published, batch, strict=True):
            number = node.view.me
            assert bits(mine.estimate) == bits(theirs.estimate[number]), (mine.slot, number)
            assert bits(mine.variance) == bits(theirs.variance[number]), (mine.slot, number)
            assert mine.nano == int(theirs.charge[number].max())


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_protocol_changes_no_bit(case: Case) -> None:
    """Signing, packing and unpacking must not cost a single rounding, or simulations say nothing of live nodes."""
    world = make_world(2, regions=case.regions, slots=24, changing=True)
    network = make_network(world, case)
    for slot in range(world.slots):
        network.slot(slot, world.counts[slot])
    assert_released(network, play(case.scheme(), case.setting(), world))
    for node in network.nodes:
        assert not node.refused
        sampled = [release.slot for release in node.published if release.sampled]
        assert sorted(node.disk.samples) == sampled, "what was sampled was paid for on disk"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dpcrowd-w", "dpcrowd-plus"])
def test_pilots_hear_one_another(name: str) -> None:
    """Pilots that heard nothing, or what filters that learn say, would choose other slots than without learning."""
    case = Case(name, regions=3, model="learn")
    world = make_world(2, regions=3, slots=30, changing=True)
    counts = world.counts.copy()
    counts[8:] *= 3
    world = replace(world, counts=counts)
    network = make_network(world, case)
    for slot in range(world.slots):
        network.slot(slot, world.counts[slot])
    assert_released(network, play(case.scheme(), case.setting(), world))
    pilots = [node.machine.server._state.pilot for node in network.nodes]
    plain = make_network(world, case, learn=False)
    for slot in range(world.slots):
        plain.slot(slot, world.counts[slot])
    for pilot, node in zip(pilots, plain.nodes, strict=True):
        alone = node.machine.server._state
        assert bits(pilot.posterior) == bits(alone.posterior)
        assert bits(pilot.posterior_var) == bits(alone.posterior_var)


def test_a_node_that_is_killed_after_it_paid_changes_no_bit() -> None:
    """It comes back with the values that it drew, says the same words again, and its neighbours notice nothing."""
    case = Case("dpcrowd-plus", regions=3)
    world = make_world(4, regions=3, slots=20)
    network = make_network(world, case)
    rng = np.random.default_rng(1)
    plain = network.deliver
    restarts = 0

    def restart_some_first() -> None:
        nonlocal restarts
        for node in network.nodes:
            if node.machine.server.open_sample() is not None and rng.random() < 0.5:
                said = [message.payload for message in node.outbox]
                node.restart(node.view.seals(node.machine.server.slot) + 1, vouched=True)
                (again,) = (message.payload for message in node.outbox)
                assert same_content(again, said[-1]), "what it remembers of others it proves, not having heard them yet"
                restarts += 1
        plain()

    network.deliver = restart_some_first  # type: ignore[method-assign]
    for slot in range(world.slots):
        network.slot(slot, world.counts[slot])
    assert restarts > 10
    assert_released(network, play(case.scheme(), case.setting(), world))
