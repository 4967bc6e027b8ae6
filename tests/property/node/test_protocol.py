"""Networks of nodes in a hostile world: whatever is lost, repeated, late, killed, full or restored, nobody overpays.

A story is a list of slots, each a list of things that happen in it. Nodes draw noise that is never the same, so that a
second draw for a slot shows. `Node` itself checks that nothing leaves that is not on its disk.

Here it is the state machine alone, with every message in the hands of the test. The same with shell, account and
storage, as they are deployed, is in `test_node_deployed`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.errors import BadInput
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.release import SlotRelease
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from examples_support import examples
from node_support import STORING, WRITING, Crashed, Disk, FreshNoise, Node, body_of, make_view
from node_support_lone import beat
from schemes_support import TUNING, make_setting

WINDOW, EPSILON, REGIONS = 4, 2.0, 2
# Nearly everything at once: whoever samples again too early has broken the promise.
GREEDY = replace(TUNING, phi=9.0, p_max=0.9, epsilon_max=0.9)
RING = {0: {1, 3}, 1: {0, 2}, 2: {1, 3}, 3: {0, 2}}
LINE = {0: {1}, 1: {0, 2}, 2: {1}}
FULL = {a: {b for b in range(5) if b != a} for a in range(5)}
HERMIT = {0: {1}, 1: {0}, 2: set()}


@dataclass
class Letter:
    """A message on its way."""

    sender: int
    receiver: int
    payload: bytes


class Story:
    """The world: nodes, letters, the time, and everything that was ever sent."""

    def __init__(
        self, links: dict[int, set[int]], *, vouched: bool = True, greedy: bool = False, waits: bool = False
    ) -> None:
        self.tuning = GREEDY if greedy else TUNING
        self.send_offset_ns = 40 if waits else 0
        self.slot = 0
        self.letters: list[Letter] = []
        self.records: dict[tuple[int, int], bytes] = {}
        self.spent: dict[int, dict[int, int]] = {number: {} for number in links}
        self.down: set[int] = set()
        self.copies: dict[int, Disk] = {}
        self.last: dict[int, SlotRelease] = {}
        self.instant = 0
        self.nodes = [self._node(number, frozenset(near), len(links)) for number, near in sorted(links.items())]
        if not vouched:
            for node in self.nodes:
                node.restart(0)

    def _node(self, number: int, near: frozenset[int], servers: int) -> Node:
        noise = FreshNoise(number)
        view = make_view(number, servers, lambda slot: near, regions=REGIONS, send_offset_ns=self.send_offset_ns)

        def make() -> Server:
            setting = make_setting(1, REGIONS, Guarantee.window(WINDOW, EPSILON), tuning=self.tuning)
            return Server(
                make_scheme("dpcrowd-plus"),
                setting,
                noise,
                number=number,
                share=0.5,
                max_degree=4,
                allow_simulated_noise=True,
            )

        return Node(view, make)

    @property
    def now(self) -> int:
        return self.nodes[0].view.seals(self.slot) + self.instant

    # --------------------------------------------------------------------------------------------- what happens

    def give(self, number: int, stimulus: on.Stimulus) -> None:
        node = self.nodes[number]
        if number in self.down:
            return
        self.instant += 1
        try:
            node.give(stimulus)
        except Crashed:
            self.down.add(number)
        self.collect(node)
        self.check(node)

    def seal(self, number: int, slot: int, *, counted: bool = True) -> None:
        counts = np.array([60 + number, 20 + slot % 3]) if counted else None
        self.give(number, on.SlotSealed(self.now, slot, counts))

    def leave(self, number: int) -> None:
        """The time of a node's message has come."""
        node = self.nodes[number]
        if number in self.down:
            return
        try:
            node.leave(self.now)
        except Crashed:
            self.down.add(number)
        self.collect(node)
        self.check(node)

    def deliver(self, letter: Letter) -> None:
        name = self.nodes[0].view.names[letter.sender]
        self.give(letter.receiver, on.MessageArrived(self.now, name, letter.payload))

    def restart(self, number: int, disk: Disk | None = None) -> None:
        """A new run, from its own disk or from another."""
        node = self.nodes[number]
        if disk is not None:
            node.disk = disk.copy()
        self.last.pop(number, None)
        node.published.clear()
        self.down.discard(number)
        node.restart(self.now)
        self.collect(node)
        self.check(node)

    def act(self, what: str, number: int, choice: int) -> None:
        number %= len(self.nodes)
        node = self.nodes[number]
        match what:
            case "deliver" | "repeat" if self.letters:
                letter = self.letters[choice % len(self.letters)]
                if what == "deliver":
                    self.letters.remove(letter)
                self.deliver(letter)
            case "lose" if self.letters:
                del self.letters[choice % len(self.letters)]
            case "leave":
                self.leave(number)
            case "crash":
                node.crash_in = choice % 7
            case "restart":
                self.restart(number)
            case "full":
                node.disk.full, node.disk.refuses = True, (STORING, WRITING, (do.StoreRelease,))[choice % 3]
            case "repair":
                node.disk.full = False
                self.give(number, on.StorageRecovered(self.now))
            case "copy":
                self.copies[number] = node.disk.copy()
            case "roll back" if number in self.copies:
                self.restart(number, self.copies[number])
            case "up":
                for near in sorted(node.view.links(self.slot)):
                    self.give(near, on.NeighbourUp(self.now, node.view.names[number]))
            case "deadline":
                self.pass_deadline(number)
            case "again":
                self.seal(number, max(self.slot - choice % 3, 0))
            case "ahead":
                self.seal(number, self.slot + 1 + choice % 2)
            case "confirm":
                with suppress(BadInput):  # there is no loss
                    self.give(number, on.LossConfirmed(self.now))

    def pass_deadline(self, number: int) -> None:
        """As the shell does it: only deadlines that it was asked for."""
        node = self.nodes[number]
        exchanging = node.machine.exchanging
        if number in self.down or exchanging is None:
            return
        assert node.deadlines.get(exchanging) == node.view.ends(exchanging), "an exchange without an end"
        self.give(number, on.DeadlinePassed(node.view.ends(exchanging), exchanging))
        if number not in self.down:
            assert node.machine.exchanging is None
            assert self.last[number].slot == exchanging, "a release that nobody is told"

    # ------------------------------------------------------------------------------------------------ what is true

    def collect(self, node: Node) -> None:
        """Take what was sent, also by a node that was killed just after; every record is compared with all before."""
        for message in node.outbox:
            body = body_of(message.payload)
            for record in body.records:
                said = record.info_vec + record.info_mat + record.signature
                key = record.origin, body.slot
                assert self.records.setdefault(key, said) == said, f"two draws of {key}"
                self.spent[record.origin][body.slot] = node.disk.samples[body.slot][0]
            self.letters += [Letter(node.view.me, node.view.names.index(name), message.payload) for name in message.to]
        node.outbox.clear()

    def check(self, node: Node) -> None:
        on_disk = {slot: nano for slot, (nano, _) in node.disk.samples.items()}
        assert most_in_a_window(on_disk) <= EPSILON * 1e9
        for release in node.published:
            self.check_release(node, release)
        node.published.clear()

    def check_release(self, node: Node, release: SlotRelease) -> None:
        assert (np.isfinite(release.estimate) | (np.isnan(release.estimate) & np.isinf(release.variance))).all()
        assert (release.variance > 0).all()
        before = self.last.get(node.view.me)
        if before is not None:
            assert release.slot > before.slot, "a slot was released twice in one run"
            heard_of = {origin for origin, slot in self.records if slot == release.slot}
            if not heard_of and not release.sampled:
                known = np.isfinite(before.variance)
                assert (release.variance[known] > before.variance[known]).all()
                assert (release.estimate[known] == before.estimate[known]).all()
        self.last[node.view.me] = release


def most_in_a_window(spent: dict[int, int]) -> int:
    sums = [sum(nano for other, nano in spent.items() if slot <= other < slot + WINDOW) for slot in spent]
    return max(sums, default=0)


# ------------------------------------------------------------------------------------------------------- stories

FAULTS = ["repeat", "lose", "crash", "restart", "full", "repair", "up", "deadline", "again", "ahead", "leave"]
OLD_COPIES = [*FAULTS, "copy", "roll back", "confirm"]


def events(names: list[str]) -> st.SearchStrategy[Any]:
    kinds = st.sampled_from([*["deliver"] * 8, *names])
    return st.lists(st.tuples(kinds, st.integers(0, 4), st.integers(0, 50)), max_size=14)


def stories(names: list[str]) -> st.SearchStrategy[Any]:
    """For each slot: who seals (a bit a node), whether the rest of the letters arrive, and what else happens."""
    slot = st.tuples(st.sampled_from([31, 31, 31, 30, 23, 5, 0]), st.booleans(), events(names), events(names))
    return st.lists(slot, min_size=1, max_size=12)


def tell(story: Story, slots: list[Any]) -> None:
    for slot, (sealing, arrive, first, second) in enumerate(slots):
        story.slot, story.instant = slot, 0
        for event in first:
            story.act(*event)
        for node in story.nodes:
            if sealing >> node.view.me & 1:
                story.seal(node.view.me, slot)
        for event in second:
            story.act(*event)
        for node in story.nodes:
            if arrive or sealing & 1:
                story.leave(node.view.me)
        if arrive:
            letters, story.letters = story.letters, []
            for letter in letters:
                story.deliver(letter)
        for node in story.nodes:
            if sealing >> (4 - node.view.me) & 1 or arrive:
                story.pass_deadline(node.view.me)


graphs = st.sampled_from([RING, LINE, FULL, HERMIT])


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(graphs, st.booleans(), st.booleans(), st.booleans(), stories(FAULTS))
def test_nobody_ever_pays_more_than_epsilon(
    links: dict[int, set[int]], vouched: bool, greedy: bool, waits: bool, slots: list[Any]
) -> None:
    """Everything that was ever sent, by all lives of a node together: in no window more than epsilon, no slot twice."""
    story = Story(links, vouched=vouched, greedy=greedy, waits=waits)
    tell(story, slots)
    for spent in story.spent.values():
        assert most_in_a_window(spent) <= EPSILON * 1e9


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(graphs, st.booleans(), stories(OLD_COPIES))
def test_old_copies_never_make_a_slot_drawn_twice(links: dict[int, set[int]], waits: bool, slots: list[Any]) -> None:
    """With folders put back to old copies, and operators who confirm at any moment, rightly or not."""
    tell(Story(links, waits=waits), slots)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(
            st.sampled_from("live live live copy back crash quick".split()), st.integers(0, 6), st.integers(0, 6)
        ),
        min_size=4,
        max_size=16,
    )
)
def test_neighbours_that_heard_everything_expose_every_old_copy(lives: list[tuple[str, int, int]]) -> None:
    """Rollback: with two honest, reliable neighbours the lost samples are never spent again, whatever copy comes back.

    quick: put back in the very slot that was just told, while neighbours repeat what they wrote before they heard it.
    Server 3 is silent, so that the others' exchanges are open until the deadline.
    """
    story = Story({0: {1, 2}, 1: {0, 2, 3}, 2: {0, 1, 3}, 3: {1, 2}}, greedy=True)
    story.down.add(3)
    copies = [story.nodes[0].disk.copy()]

    def exchange() -> None:
        while story.letters:
            story.deliver(story.letters.pop(0))

    for slot, (what, which, when) in enumerate(lives):
        story.slot, story.instant = slot, -1_000
        if what == "crash":
            story.nodes[0].crash_in = when
        if what == "back":
            story.restart(0, copies[which % len(copies)])
            for near in (1, 2):  # they vouch, or expose it, before the seal
                story.give(near, on.NeighbourUp(story.now, "server-0"))
            exchange()
        story.instant = 0
        for number in ((0, 1, 2), (1, 2, 0))[which % 2]:
            story.seal(number, slot)
            exchange()
        if 0 in story.down or what == "quick":
            story.restart(0, copies[which % len(copies)] if what == "quick" else None)
            for near in (1, 2):
                story.give(near, on.NeighbourUp(story.now, "server-0"))
            story.seal(0, slot, counted=when % 2 == 0)
            exchange()
        for number in range(3):
            story.pass_deadline(number)
        exchange()
        if what == "copy":
            copies.append(story.nodes[0].disk.copy())
        assert most_in_a_window(story.spent[0]) <= EPSILON * 1e9


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(
            st.sampled_from("live live copy back back crash quick forget".split()),
            st.integers(0, 6),
            st.integers(0, 7),
            st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.integers(-1, 1)), max_size=4),
        ),
        min_size=4,
        max_size=16,
    )
)
@pytest.mark.slow
def test_one_honest_neighbour_exposes_every_old_copy_before_it_samples(lives: list[tuple[str, int, int, Any]]) -> None:
    """Server 1 has heard everything and speaks in every slot. Server 2 vouches for any copy, at any moment.

    Whoever vouches first must not decide; and an honest word has to hold until its proof is there. forget: server 1
    restarts, and has to prove what it remembers although it does not know what it heard last.
    """
    story = Story({0: {1, 2}, 1: {0, 2, 3}, 2: {0, 1, 3}, 3: {1, 2}}, greedy=True)
    story.down |= {2, 3}
    victim, honest = story.nodes[:2]
    copies = [victim.disk.copy()]

    def exchange() -> None:
        while story.letters:
            story.deliver(story.letters.pop(0))

    def vouch(words: list[tuple[int, int, int]]) -> None:
        for _, ahead, more in words:
            if slot + ahead >= 0:
                echo = max(victim.machine.trust.counter + more, 0)
                said = beat(2, slot + ahead, echo=echo, ago=1, after=ahead < 0)
                story.give(0, on.MessageArrived(story.now, "server-2", said))

    def seal(number: int, **how: Any) -> None:
        paid = len([told for told in victim.told if isinstance(told, do.StoreSample)])
        story.seal(number, slot, **how)
        remembered = honest.disk.heard.get("server-0", (0, 0))[1]
        for sample in [told for told in victim.told if isinstance(told, do.StoreSample)][paid:]:
            assert sample.counter > remembered, "a second draw for what was spent before"

    for slot, (what, which, when, words) in enumerate(lives):
        story.slot, story.instant = slot, -1_000
        if what == "crash":
            victim.crash_in = when
        if what == "back":
            story.restart(0, copies[which % len(copies)])
            if when % 2:
                story.give(1, on.NeighbourUp(story.now, "server-0"))
                exchange()
        if what == "forget":
            story.restart(1)
        said = [*words, (when % 4, 0, 0)]
        at = [[word for word in said if word[0] == moment] for moment in range(4)]
        vouch(at[0])
        story.instant = 0
        for number in ((0, 1), (1, 0))[which % 2]:
            seal(number)
            exchange()
        vouch(at[1])
        if 0 in story.down or what == "quick":
            story.restart(0, copies[which % len(copies)] if what == "quick" else None)
            vouch(at[2])
            story.give(1, on.NeighbourUp(story.now, "server-0"))
            seal(0, counted=when % 2 == 0)
            exchange()
        vouch(at[3])
        for number in (0, 1):
            story.pass_deadline(number)
        exchange()
        if what == "copy":
            copies.append(victim.disk.copy())


def test_stories_do_happen() -> None:
    """A story in which nothing was sampled, heard or refused would prove nothing."""
    story = Story(RING)
    quiet: list[Any] = [(31, True, [], [])] * 12
    tell(story, quiet)
    assert all(len(spent) >= 6 for spent in story.spent.values())
    assert max(most_in_a_window(spent) for spent in story.spent.values()) > 0.8 * EPSILON * 1e9
    for waits in (False, True):
        tell(story := Story(RING, vouched=False, waits=waits), quiet)
        assert all(spent and min(spent) == 1 for spent in story.spent.values())
