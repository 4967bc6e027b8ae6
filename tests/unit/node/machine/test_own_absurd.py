"""A server whose own counts are absurd: it uses them no more than its neighbours do, and has paid for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.node.machine import stimuli as on
from node_support import Network, Node, make_view
from node_support_relay import counts_of, facts_of, make_network
from schemes_support import SERVERS, Case, bits, make_server, make_world

FACTS = facts_of(lag=5)
COUNTS = counts_of(FACTS, 30)
LIAR, HUGE = 1, 10**9


def due(number: int, first: int) -> int:
    """The first slot from `first` on in which a server samples."""
    return next(slot for slot in range(first, first + 9) if FACTS.due(slot, number))


def released(node: Node) -> dict[int, bytes]:
    return {one.slot: bits(one.estimate) + bits(one.variance) for one in node.published}


def absurd_reports(node: Node) -> list[str]:
    return [report.text for report in node.reports if report.event == "own-absurd"]


@pytest.mark.parametrize("killed", [False, True])
def test_all_servers_use_one_set_of_records(killed: bool) -> None:
    """Refused by all others, its own record moved its own estimates alone, for many slots."""
    network, wrong = make_network(FACTS), due(LIAR, 8)
    liar = network.nodes[LIAR]
    for slot in range(20):
        counts = COUNTS[slot].copy()
        if slot == wrong:
            counts[LIAR] = HUGE
        network.slot(slot, counts)
        if slot in (wrong - 1, wrong):
            assert liar.machine.unused_since == (wrong if slot == wrong else None)
        if killed and slot == wrong:
            liar.restart(liar.view.ends(slot) + 1, vouched=True)
            for other in sorted(liar.view.links(slot)):
                for one, name in ((liar, liar.view.names[other]), (network.nodes[other], liar.view.name)):
                    one.give(on.NeighbourUp(liar.view.ends(slot) + 2, name))
            network.deliver()
    again = due(LIAR, wrong + 1)  # nobody waits for its next record, since none has come when it was due
    slots = set(range(20)) - {again}
    assert len({tuple(released(node)[slot] for slot in sorted(slots)) for node in network.nodes}) == 1
    assert max(abs(liar.published[-1].estimate)) < 1e5
    assert not any(node.refused for node in network.nodes), "it is not even sent"
    (text,) = absurd_reports(liar)
    assert f"the sample of slot {wrong} cannot be noisy counts" in text
    assert "000" not in text, "no value is in the log"
    assert wrong in liar.disk.samples, "it is paid for"
    assert (wrong, liar.view.name) not in liar.disk.records
    assert again in liar.disk.samples, "and the schedule goes on as it was"
    assert liar.machine.unused_since is None, "the last one was used"


def consensus(case: Case, population: int) -> tuple[Network, Any]:
    world, setting = make_world(2, regions=case.regions, slots=16), case.setting()

    def node(number: int) -> Node:
        links = frozenset(int(one) for one in world.graph(0).neighbours(number))
        view = make_view(number, SERVERS, lambda slot: links, regions=case.regions, form=setting.form)
        view = replace(view, population=population, coarsest=1e3)
        return Node(view, lambda: make_server(world, case.name, setting, number))

    return Network([node(number) for number in range(SERVERS)]), world


@pytest.mark.parametrize("form", ["diagonal", "matrix"])
@pytest.mark.parametrize("name", ["dpcrowd", "dpcrowd-w", "dpcrowd-plus"])
def test_nor_does_it_enter_a_consensus(name: str, form: Any) -> None:
    """An estimate that was moved by it would be sent as a prior, and refused, long after the feed is right again."""
    network, world = consensus(Case(name, regions=3, form=form), 1_000)
    liar = network.nodes[LIAR]
    for slot in range(world.slots):
        counts = world.counts[slot].copy()
        if slot < 6:
            counts[LIAR] = HUGE
        network.slot(slot, counts)
    assert absurd_reports(liar)
    assert all(slot in liar.disk.samples for slot in range(1))
    assert not any(node.refused for node in network.nodes)
    for release in liar.published[3:]:
        assert np.isfinite(release.estimate).all()
        assert np.abs(release.estimate).max() < 1e4


@pytest.mark.parametrize("name", ["dpcrowd-w", "dpcrowd-plus", "relay"])
def test_a_sample_that_is_discarded_stays_so_after_a_restart(name: str) -> None:
    """The state is saved between the draw and the release: a server that was killed there would fuse it after all."""
    case = Case(name, regions=3)
    world, setting = make_world(2, regions=3, slots=16), case.setting()
    one, other = (make_server(world, name, setting, 0) for _ in range(2))
    slot = -1
    while one.open_sample() is None:
        if one.open_slot is not None:
            one.hear()
        slot += 1
        one.observe(slot, world.counts[slot][0])
    one.discard_sample()
    other.restore(one.save())
    assert other.open_sample() is not None, "it stays paid"
    first, second = one.hear(), other.hear()
    assert bits(first.estimate) == bits(second.estimate)
    assert not first.speaks
    assert first.nano == second.nano > 0
    assert np.isnan(first.estimate).all(), "nothing else is known yet"
