"""One neighbour only, which may forget everything at any moment: no old copy of a node ever samples because of it.

Every message arrives. The node is restarted, or put back to any copy of its folder, before or inside any exchange; its
neighbour loses its memory before or inside any exchange. Whatever comes of it: a sample is paid only by a ledger that
knows all samples that were ever told.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import SECOND
from examples_support import examples
from node_support import FreshNoise, Network, Node, body_of, make_view
from node_support_lone import COUNTS, REGIONS, make_server

NOTHING = "", 0


class World:
    """Server 0, its neighbour, copies of the folder of server 0, and the most samples that it ever told."""

    def __init__(self) -> None:
        self.nodes = [self._node(number) for number in (0, 1)]
        self.network = Network(self.nodes)
        self.node, self.neighbour = self.nodes
        self.told = 0
        self.paid = 0
        self.slot(0, NOTHING, NOTHING, first=0, again=False)
        self.copies = [self.node.disk.copy()]  # of an empty folder nobody could tell that it is not a first start

    def _node(self, number: int) -> Node:
        noise = FreshNoise(number)
        view = make_view(number, 2, lambda slot: frozenset({1 - number}), regions=REGIONS)
        return Node(view, lambda: make_server(noise, number=number))

    def give(self, stimulus: on.Stimulus) -> None:
        """To server 0; whatever it pays for is compared with what it has told before."""
        self.node.told.clear()
        self.node.give(stimulus)
        for instruction in self.node.told:
            if isinstance(instruction, do.StoreSample):
                assert instruction.counter > self.told, "a second draw for what was spent before"
                self.paid += 1
        self.deliver()

    def deliver(self) -> None:
        for message in self.node.outbox:
            self.told = max(self.told, body_of(message.payload).counter)
        self.network.deliver()

    def happen(self, what: str, which: int, at_ns: int) -> None:
        match what:
            case "copy":
                self.copies.append(self.node.disk.copy())
            case "restart" | "back":
                if what == "back":
                    self.node.disk = self.copies[which % len(self.copies)].copy()
                self.node.restart(at_ns)
                self.neighbour.give(on.NeighbourUp(at_ns, "server-0"))
                self.deliver()
            case "forget":
                self.neighbour.disk.heard.clear()
                self.neighbour.restart(at_ns, vouched=True)
                self.node.give(on.NeighbourUp(at_ns, "server-1"))
                self.deliver()

    def seal(self, number: int, slot: int) -> None:
        stimulus = on.SlotSealed(self.node.view.seals(slot), slot, COUNTS)
        if number == 0:
            self.give(stimulus)
        elif slot > self.neighbour.machine.server.slot:
            self.neighbour.give(stimulus)
            self.deliver()

    def slot(self, slot: int, before: tuple[str, int], within: tuple[str, int], *, first: int, again: bool) -> None:
        view = self.node.view
        self.happen(*before, view.clock.opens(slot) + SECOND // 2)
        self.seal(first, slot)
        self.seal(1 - first, slot)
        self.happen(*within, view.seals(slot) + SECOND // 4)
        if again and slot > self.node.machine.server.slot:  # the shell may still have the check-ins of this slot
            self.seal(0, slot)
        for node in self.nodes:
            node.give(on.DeadlinePassed(view.ends(slot), slot))
        self.deliver()


events = st.tuples(st.sampled_from(["", "", "", "copy", "restart", "back", "forget"]), st.integers(0, 9))
slots = st.lists(st.tuples(events, events, st.integers(0, 1), st.booleans()), min_size=4, max_size=16)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(slots)
def test_no_old_copy_samples_however_much_is_forgotten(
    slots: list[tuple[tuple[str, int], tuple[str, int], int, bool]],
) -> None:
    """An echo of what a copy says itself would let it spend again what it has lost, in this run or in a later one."""
    world = World()
    for slot, (before, within, first, again) in enumerate(slots, start=1):
        world.slot(slot, before, within, first=first, again=again)


def test_nodes_do_sample_in_this_world() -> None:
    """And again after a restart: a node that never does would pass the property above."""
    world = World()
    for slot in range(1, 8):
        world.slot(slot, ("restart", 0) if slot == 4 else NOTHING, NOTHING, first=slot % 2, again=False)
    assert world.paid == 7
    world.slot(8, ("forget", 0), NOTHING, first=0, again=False)
    world.slot(9, ("restart", 0), NOTHING, first=0, again=False)
    assert world.paid == 8
    world.slot(10, NOTHING, NOTHING, first=0, again=False)
    assert world.paid == 9, "its neighbour has forgotten it and heard it again while it was known to be complete"
