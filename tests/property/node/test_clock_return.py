"""Clocks that are ahead for a while and come back, and operators who accept that: no old copy samples because of it.

Two nodes, each with a clock of its own, which may be ahead by some slots, and come back. What it has sealed is waited
for until the clock is accepted. Both are restarted; server 0 is put back to any copy of its folder, and server 1 may
forget it, at any moment. Whatever comes of it: a sample is paid only by a ledger that knows all samples that were ever
told, and no slot is drawn twice.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpcrowd.errors import BadInput
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import SECOND
from examples_support import examples
from node_support import FreshNoise, Node, body_of, make_view
from node_support_lone import COUNTS, REGIONS, make_server


class World:
    """Two servers; by number: how many slots the clock is ahead, copies of the folder, the most samples ever told."""

    def __init__(self) -> None:
        self.nodes = [self._node(number) for number in (0, 1)]
        self.ahead = [0, 0]
        self.told = [0, 0]
        self.paid = [0, 0]
        self.time = 0
        self.slot(0, [], [])
        self.copies = [[node.disk.copy()] for node in self.nodes]

    def _node(self, number: int) -> Node:
        noise = FreshNoise(number)
        view = make_view(number, 2, lambda slot: frozenset({1 - number}), regions=REGIONS)
        return Node(view, lambda: make_server(noise, number=number))

    def now(self, number: int) -> int:
        return self.time + self.ahead[number] * SECOND

    def give(self, number: int, stimulus: on.Stimulus) -> None:
        node = self.nodes[number]
        node.told.clear()
        node.give(stimulus)
        for instruction in node.told:
            if isinstance(instruction, do.StoreSample):
                assert instruction.counter > self.told[number], "a second draw for what was spent before"
                self.paid[number] += 1

    def deliver(self) -> None:
        while any(node.outbox for node in self.nodes):
            for number, node in enumerate(self.nodes):
                sent, node.outbox = node.outbox, []
                for message in sent:
                    self.told[number] = max(self.told[number], body_of(message.payload).counter)
                    self.give(1 - number, on.MessageArrived(self.now(1 - number), f"server-{number}", message.payload))

    def happen(self, what: str, number: int, which: int) -> None:
        node = self.nodes[number]
        match what:
            case "copy":
                self.copies[number].append(node.disk.copy())
            case "restart" | "back":
                if what == "back":
                    node.disk = self.copies[number][which % len(self.copies[number])].copy()
                node.restart(self.now(number))
                self.give(1 - number, on.NeighbourUp(self.now(1 - number), f"server-{number}"))
            case "forget":
                node.disk.heard.clear()
                node.restart(self.now(number))
                self.give(1 - number, on.NeighbourUp(self.now(1 - number), f"server-{number}"))
            case "ahead":
                self.ahead[number] += 2 + which
                self.give(number, on.TimeLost(self.now(number)))
            case "back in time":
                self.ahead[number] = 0
            case "accept":
                self.accept(number)
        self.deliver()

    def accept(self, number: int) -> None:
        """The operator says that the clock is right now."""
        self.ahead[number] = 0
        try:
            self.give(number, on.ClockAccepted(self.now(number)))
        except BadInput:  # there is nothing to accept
            return

    def seal(self, number: int, slot: int) -> None:
        slot += self.ahead[number]
        node = self.nodes[number]
        counts = None if slot in node.disk.samples else COUNTS  # the ledger says so before anybody counts
        self.give(number, on.SlotSealed(self.now(number), slot, counts))
        self.deliver()

    def slot(self, slot: int, before: list[Any], within: list[Any], first: int = 0) -> None:
        view = self.nodes[0].view
        self.time = view.clock.opens(slot) + SECOND // 2
        for event in before:
            self.happen(*event)
        self.time = view.seals(slot)
        self.seal(first, slot)
        self.seal(1 - first, slot)
        self.time = view.seals(slot) + SECOND // 4
        for event in within:
            self.happen(*event)
        self.time = view.ends(slot)
        for number, node in enumerate(self.nodes):
            if (exchanging := node.machine.exchanging) is not None and node.view.ends(exchanging) <= self.now(number):
                self.give(number, on.DeadlinePassed(self.now(number), exchanging))
        self.deliver()


kinds = ["restart", "ahead", "ahead", "back in time", "accept", "accept"]
event = st.tuples(st.sampled_from(kinds), st.integers(0, 1), st.integers(0, 6)) | st.one_of(
    st.tuples(st.sampled_from(["copy", "back"]), st.just(0), st.integers(0, 6)),
    st.tuples(st.just("forget"), st.just(1), st.just(0)),
)
events = st.lists(event, max_size=2)
stories = st.lists(st.tuples(events, events, st.integers(0, 1)), min_size=4, max_size=18)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(stories)
@example(  # a copy of the time when the clock was ahead; its neighbour has forgotten, and hears slots told again
    [
        ([("ahead", 0, 6), ("ahead", 1, 6)], [], 0),
        ([], [], 0),
        ([], [("copy", 0, 0)], 0),
        ([], [], 0),
        ([("forget", 1, 0), ("back", 0, 1), ("accept", 0, 0), ("accept", 1, 0)], [], 0),
        *[([], [], 0)] * 6,
    ]
)
def test_no_old_copy_samples_because_a_clock_was_accepted(
    story: list[tuple[list[Any], list[Any], int]],
) -> None:
    """Numbers of slots that are told twice would let an echo of the copy's own words reach back far enough."""
    world = World()
    for slot, (before, within, first) in enumerate(story, start=1):
        world.slot(slot, before, within, first)


def test_nodes_do_sample_in_this_world() -> None:
    """After one clock, or both, came back and were accepted: otherwise the property above would prove nothing."""
    for who in ((0,), (0, 1)):
        world = World()
        for slot in range(1, 4):
            world.slot(slot, [], [])
        world.slot(4, [("ahead", number, 6) for number in who], [])
        for slot in range(5, 8):
            world.slot(slot, [], [])
        wrong = list(world.paid)
        assert (wrong[0] > 4) == (who == (0, 1)), "two that are wrong together vouch for each other"
        world.slot(8, [("accept", number, 0) for number in who], [])
        for slot in range(9, 12):
            world.slot(slot, [], [])
        assert all(after > before for after, before in zip(world.paid, wrong, strict=True)), who
