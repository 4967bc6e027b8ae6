"""Neighbours that say anything of a node's ledger, with any proof they can find: an honest node goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples_support import examples
from node_support import body_of
from node_support_lone import Lone, beat
from node_support_wire import proof_in

HONEST, LIARS = 1, (2, 3)


@dataclass
class World:
    """Server 0 with an honest neighbour and two liars, who have every message that it ever sent.

    told   proofs of what it said, in all its lives
    start  the first slot that it sealed, or will seal, in this run
    """

    node: Lone
    told: list[bytes]
    start: int

    def collect(self) -> None:
        self.told += [proof_in(sent.payload) for sent in self.node.outbox]
        self.node.outbox.clear()

    def lie(self, slot: int, word: tuple[int, int, int, int, int]) -> None:
        liar, ahead, echo, ago, shown = word
        match shown:
            case -1:
                proofs = {}
            case -2:
                proofs = {0: b"nonsense"}
            case -3:
                proofs = {0: proof_in(beat(liar, max(slot - 1, 0), counter=echo))}
            case _:
                proofs = {0: self.told[shown % len(self.told)]}
        at_ns = self.node.view.seals(max(slot, 0)) - (5 if self.node.machine.exchanging is None else -5)
        said = beat(liar, max(slot + ahead, 0), echo=min(echo, 2**61), ago=ago, proofs=proofs, after=ago % 2 == 0)
        self.node.hear(liar, said, at_ns)

    def restart(self, slot: int, *, sealed: bool) -> None:
        self.collect()
        view = self.node.view
        self.node.restart(view.seals(slot) + 9 if sealed else view.clock.opens(slot) + 9)
        self.start = slot + 1 if sealed else slot
        self.collect()


words = st.tuples(
    st.sampled_from(LIARS),
    st.integers(-2, 2),
    st.integers(0, 30) | st.sampled_from([2**40, 2**61]),
    st.integers(-5, 9),
    st.integers(-3, 40),
)
said = st.lists(words, max_size=3)
slots = st.lists(
    st.tuples(st.sampled_from(["", "", "", "", "before", "after"]), said, said, said), min_size=6, max_size=14
)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(slots)
def test_liars_cost_two_slots_after_a_start_and_nothing_later(slots: list[Any]) -> None:
    """One honest neighbour is heard in every slot: whatever others say, three slots after a start all are sampled.

    Without an end to the wait, with a word that is believed, or with a proof of the node's own past that counts against
    it, one organisation could stop another one for good.
    """
    world = World(node := Lone((HONEST, *LIARS)), [], 0)
    node.seal(0)
    node.pass_deadline(0)
    world.collect()
    for slot, (restart, early, within, late) in enumerate(slots, start=1):
        remembered, last = node.disk.counter, max(node.disk.samples)
        if restart == "before":
            world.restart(slot, sealed=False)
        for word in early:
            world.lie(slot, word)
        if restart == "before" and slot % 2:  # the honest one may have come up at once
            said = beat(HONEST, slot - 1, echo=remembered, ago=slot - 1 - last, proven=True, after=True)
            node.hear(HONEST, said, node.view.clock.opens(slot) + 10)
        node.seal(slot)
        world.collect()
        if restart == "after":
            world.restart(slot, sealed=True)
        for word in within:
            world.lie(slot, word)
        node.hear(HONEST, beat(HONEST, slot, echo=remembered, ago=slot - last), node.view.seals(slot) + 20)
        for word in late:
            world.lie(slot, word)
        node.pass_deadline(slot)
        if slot >= world.start + 3:
            assert slot in node.disk.samples, "stopped by a word"
    assert "ledger-rolled-back" not in node.events
    assert node.events.count("unproven-echo") <= len(LIARS) * (1 + sum(restart != "" for restart, *_ in slots))


def test_liars_can_do_that_much() -> None:
    """Without them, and without early words, only the slot of the restart is lost: so the property says something."""
    for lies, sampled in ((False, [5, 6, 7, 8]), (True, [7, 8])):
        node = Lone((HONEST, *LIARS))
        node.live(range(4))
        node.restart(node.view.clock.opens(4) + 9)
        for slot in range(4, 9):
            before, last = node.disk.counter, max(node.disk.samples)
            node.seal(slot)
            node.hear(HONEST, beat(HONEST, slot, echo=before, ago=slot - last))
            if lies:
                node.hear(2, beat(2, slot, echo=50))
            node.pass_deadline(slot)
        assert [slot for slot in sorted(node.disk.samples) if slot >= 4] == sampled
        assert body_of(node.outbox[-1].payload).counter == node.disk.counter
