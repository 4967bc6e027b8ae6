"""Records in the state machine: a ring of five machines releases what the simulator computes, whatever happens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.wire_records import unpack_record
from node_support import Node
from node_support_records import COUNTS, FACTS, SLOTS, assert_released, link_up, records_of, run
from node_support_relay import RING, facts_of, make_network, simulate
from schemes_support import bits


@pytest.mark.slow
@pytest.mark.parametrize("send_offset_ns", [0, 40])
@pytest.mark.parametrize("reach", [1, 2, "all"])
def test_a_ring_releases_what_the_simulator_computes(reach: object, send_offset_ns: int) -> None:
    """If this broke, no simulated figure would say anything about a network that runs."""
    facts = facts_of(reach=reach)
    network = make_network(facts, RING, send_offset_ns=send_offset_ns)
    run(network, range(SLOTS))
    assert_released(network, simulate(facts, COUNTS))
    assert not any(node.refused for node in network.nodes)


@pytest.mark.slow
def test_servers_that_join_regions_release_what_the_simulator_computes() -> None:
    """Groups that were not signed, stored, read or passed on would give every server other sums; some are restarted."""
    facts, counts = facts_of(regions=6, groups="auto"), np.zeros((SLOTS, 5, 6), dtype=np.int64)
    facts = replace(facts, model=ProcessModel.of(1.0, np.full(6, 1.0)))
    network = make_network(facts)
    plain = network.deliver

    def restart_one_first() -> None:
        node = network.nodes[network.nodes[0].machine.server.slot % 5]
        if node.machine.server.open_sample() is not None:
            node.restart(node.view.seals(node.machine.server.slot) + 1, vouched=True)
            for near in RING[node.view.me]:
                link_up(network, near, node.view.me, node.view.seals(node.machine.server.slot) + 2)
        plain()

    network.deliver = restart_one_first  # type: ignore[method-assign]
    run(network, range(SLOTS), counts)
    assert_released(network, simulate(facts, counts))
    stored = [unpack_record(one.content) for one in records_of(network.nodes[2]).held.contents()]
    assert any(record.groups is not None for record in stored), "no record joins regions: the test shows nothing"


def test_roaming_users_are_sampled_in_lockstep() -> None:
    """All servers sample in the same slots, and all wait for all."""
    facts = facts_of(roaming=True)
    network = make_network(facts)
    run(network, range(SLOTS))
    assert_released(network, simulate(facts, COUNTS))
    sampled = {tuple(release.slot for release in node.published if release.sampled) for node in network.nodes}
    assert len(sampled) == 1


@pytest.mark.slow
def test_a_server_that_is_killed_and_comes_back_changes_no_bit() -> None:
    """It comes back inside the slot with the record that it has signed, and with those that it had stored."""
    network = make_network(FACTS)
    plain, rng, restarts = network.deliver, np.random.default_rng(1), 0

    def restart_some_first() -> None:
        nonlocal restarts
        for node in network.nodes:
            if node.machine.server.open_sample() is not None and rng.random() < 0.5:
                slot = node.machine.server.slot
                own = records_of(node).own(slot)
                node.restart(node.view.seals(slot) + 1, vouched=True)
                assert records_of(node).own(slot) == own, "it has signed it, and must not sign another"
                assert {(one.slot, one.origin) for one in records_of(node).held.contents()} == set(node.disk.records)
                for near in RING[node.view.me]:
                    link_up(network, near, node.view.me, node.view.seals(slot) + 2)
                restarts += 1
        plain()

    network.deliver = restart_some_first  # type: ignore[method-assign]
    run(network, range(SLOTS))
    assert restarts > 10
    assert_released(network, simulate(FACTS, COUNTS))


@pytest.mark.slow
def test_a_server_that_was_away_gets_what_it_has_missed() -> None:
    """Away for some slots, fewer than the lag: when its links come up it has all records, and releases what all do."""
    network = make_network(FACTS)
    run(network, range(9))
    network.down.add(2)
    run(network, range(9, 12))
    network.down.clear()
    away = network.nodes[2]
    away.restart(away.view.seals(11) + 1, vouched=True)
    for near in (1, 3):
        link_up(network, near, 2, away.view.ends(11) + 1)
    network.deliver()
    run(network, range(12, SLOTS))
    last = [node.published[-1] for node in network.nodes]
    assert len({bits(release.estimate) for release in last}) == 1
    assert len({bits(release.variance) for release in last}) == 1
    first = {node.published[12 - SLOTS].slot: bits(node.published[12 - SLOTS].estimate) for node in network.nodes}
    assert len(first) == 1, "in the first slot after its return it has everything"


def test_records_that_are_lost_on_a_link_come_another_way() -> None:
    """A ring has two ways: one broken link must not cost a record, and everybody waits for it only once."""
    network = make_network(FACTS)
    network.drop = lambda sender, receiver, payload: {sender, receiver} == {0, 1}
    run(network, range(SLOTS))
    assert_released(network, simulate(FACTS, COUNTS))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_order_and_repetition_change_nothing(seed: int) -> None:
    """Messages come in any order, some of them twice: the estimates are those of the same records."""
    rng, network = np.random.default_rng(seed), make_network(FACTS)
    hand_over = network._hand_over

    def twice(sender: Node, name: str, message: do.Send) -> None:
        hand_over(sender, name, message)
        if rng.random() < 0.4:
            hand_over(sender, name, message)

    def shuffled() -> None:
        while any(node.outbox or node.forward_at is not None for node in network.nodes):
            letters = []
            for node in network.nodes:
                node.forward()
                letters += [(node, name, message) for message in node.outbox for name in message.to]
                node.outbox.clear()
            for place in rng.permutation(len(letters)):
                twice(*letters[place])

    network.deliver = shuffled  # type: ignore[method-assign]
    run(network, range(SLOTS))
    assert_released(network, simulate(FACTS, COUNTS))
