"""Neighbours that vouch when a link comes up: whatever is still on its way, no old copy samples because of that.

Server 0 is killed, restarted, or put back to any copy of its folder, at any moment of a slot. Server 1 is honest; what
is sent to it comes when it likes, but before the exchange of its slot is over. Its own messages come in every exchange,
and what it says to a newcomer comes at once, later, or never. Server 2 vouches for anything, at any moment, also early.
Whatever comes of it: a sample is paid only by a ledger that knows all samples that were ever told.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import SECOND
from examples_support import examples
from node_support import FreshNoise, Node, body_of, make_view
from node_support_lone import COUNTS, REGIONS, beat, make_server

VICTIM, HONEST, LIAR = 0, 1, 2


class World:
    """The victim, its honest neighbour, letters between them, and the most samples that the victim ever told.

    letters  to the honest neighbour, not heard yet
    answers  what the honest neighbour has said to a newcomer, and is not heard yet
    """

    def __init__(self, *, liar: bool = True) -> None:
        self.links = frozenset({HONEST, LIAR}) if liar else frozenset({HONEST})
        self.victim, self.honest = self._node(VICTIM, self.links), self._node(HONEST, frozenset({VICTIM}))
        self.letters: list[bytes] = []
        self.answers: list[bytes] = []
        self.told = self.paid = 0
        self.at_ns = 0
        self.slot = 0
        self.run(0, [], [], [])
        self.copies = [self.victim.disk.copy()]

    def _node(self, number: int, near: frozenset[int]) -> Node:
        noise = FreshNoise(number)
        view = make_view(number, 3, lambda slot: near, regions=REGIONS)
        return Node(view, lambda: make_server(noise, number=number))

    def give(self, stimulus: on.Stimulus) -> None:
        """To the victim; whatever it pays for is compared with what it has told before."""
        self.victim.told.clear()
        self.victim.give(stimulus)
        for instruction in self.victim.told:
            if isinstance(instruction, do.StoreSample):
                assert instruction.counter > self.told, "a second draw for what was spent before"
                self.paid += 1
        self.collect()

    def collect(self) -> None:
        """What was sent has left, whatever happens to its sender now."""
        sent, self.victim.outbox = self.victim.outbox, []
        for message in sent:
            self.told = max(self.told, body_of(message.payload).counter)
            self.letters += [message.payload] * (f"server-{HONEST}" in message.to)
        said, self.honest.outbox = self.honest.outbox, []
        for message in said:
            if body_of(message.payload).after:
                self.answers.append(message.payload)
            else:
                self.hear(message.payload)

    def hear(self, payload: bytes, number: int = HONEST) -> None:
        self.give(on.MessageArrived(self.at_ns, f"server-{number}", payload))

    def deliver(self, number: int | None = None) -> None:
        """One letter to the honest neighbour, or all of them."""
        chosen = self.letters if number is None else self.letters[number % max(len(self.letters), 1) :][:1]
        self.letters = [letter for letter in self.letters if letter not in chosen]
        for letter in chosen:
            self.honest.give(on.MessageArrived(self.at_ns, f"server-{VICTIM}", letter))
        self.collect()

    def happen(self, what: str, which: int) -> None:
        self.at_ns += 1
        match what:
            case "copy":
                self.copies.append(self.victim.disk.copy())
            case "restart" | "back":
                self.collect()
                if what == "back":
                    self.victim.disk = self.copies[which % len(self.copies)].copy()
                self.victim.restart(self.at_ns)
                self.collect()
            case "up":
                self.honest.give(on.NeighbourUp(self.at_ns, f"server-{VICTIM}"))
                self.collect()
            case "deliver":
                self.deliver(which)
            case "seal" if self.slot > self.victim.machine.server.slot and self.at_ns > self.victim.view.seals(
                self.slot
            ):
                self.give(on.SlotSealed(self.at_ns, self.slot, COUNTS))  # the shell may have the check-ins
            case "answer" if self.answers:
                self.hear(self.answers.pop(which % len(self.answers)))
            case "lose" if self.answers:
                self.answers.pop(which % len(self.answers))
            case "reboot" if not self.letters:
                self.honest.restart(self.at_ns, vouched=True)
                self.collect()
            case "lie" if LIAR in self.links:
                slot = self.victim.view.next_seal(self.at_ns) - 1 + which % 3 - 1
                echo = self.victim.machine.trust.counter
                if slot >= 0:
                    self.hear(beat(LIAR, slot, echo=echo, ago=slot, after=which % 4 > 0), LIAR)

    def run(self, slot: int, before: list[Any], within: list[Any], last: list[Any], first: int = VICTIM) -> None:
        """Before the seal, inside the exchange, and after it; the honest one has heard everything by its end."""
        view = self.victim.view
        self.slot, self.at_ns = slot, view.clock.opens(slot) + SECOND * 2 // 3
        for event in before:
            self.happen(*event)
        self.at_ns = view.seals(slot)
        for number in (first, 1 - first):
            if number == VICTIM:
                self.give(on.SlotSealed(self.at_ns, slot, COUNTS))
            elif slot > self.honest.machine.server.slot:
                self.honest.give(on.SlotSealed(self.at_ns, slot, COUNTS))
                self.collect()
        self.at_ns += SECOND // 10
        for event in within:
            self.happen(*event)
        self.deliver()
        self.at_ns = view.ends(slot)
        self.honest.give(on.DeadlinePassed(self.at_ns, slot))
        self.collect()
        self.give(on.DeadlinePassed(self.at_ns, slot))
        for event in last:
            self.happen(*event)


kinds = ["copy", "restart", "back", "back", "seal", "up", "up", "deliver", "answer", "answer", "lose", "reboot", "lie"]
events = st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 6)), max_size=5)
stories = st.lists(st.tuples(events, events, events, st.integers(0, 1)), min_size=3, max_size=10)

UP, ANSWER, BACK, LIE, SEAL, LAST = ("up", 0), ("answer", 0), ("back", 0), ("lie", 4), ("seal", 0), ("deliver", -1)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(stories)
@example([([], [], [], 0)] * 2 + [([], [BACK, UP, LIE], [UP, ANSWER, LIE], 0), ([UP, ANSWER, LIE], [], [], 0)])
@example([([], [], [], 0)] * 2 + [([BACK, UP, ANSWER, LIE], [], [], 0), ([UP, ANSWER, LIE], [], [], 0)])
@example(  # what the copy says for a slot comes before what the lost run has said for it
    [([], [], [("copy", 0)], 0), ([], [("back", 1), SEAL, LAST, UP], [ANSWER, ("lie", 1)], 0), ([], [], [], 0)]
)
@example([([], [], [], 0), ([], [], [BACK, UP, ANSWER, LIE], 1), ([UP, ANSWER, LIE], [], [], 1)])
def test_no_old_copy_samples_because_a_link_came_up(story: list[tuple[list[Any], list[Any], list[Any], int]]) -> None:
    """An early word of somebody who has not heard everything would let a copy spend again what it has lost."""
    world = World()
    for slot, (before, within, last, first) in enumerate(story, start=1):
        world.run(slot, before, within, last, first)


def test_restarts_cost_no_slot_in_this_world() -> None:
    """Before the seal, inside the exchange and after it: otherwise the property above would prove nothing."""
    for where in range(3):
        world = World(liar=False)
        for slot in range(1, 9):
            events: list[list[Any]] = [[], [], []]
            events[where] = [("restart", 0), UP]
            events[2 if where else 0].append(ANSWER)
            world.run(slot, *events)
        # A restart inside the exchange finds its own sample on disk, and the next slot is the one in question.
        assert world.paid == 9, where
