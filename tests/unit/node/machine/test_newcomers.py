"""A neighbour vouches as soon as the link comes up: so that a restart does not cost the slot in which it happens."""

from __future__ import annotations

import msgspec
import pytest

from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import SECOND
from dpcrowd.node.wire import Record, _envelopes, proven, same_content, written_after
from node_support import WRITING, FreshNoise, Network, Node, body_of, fake_verify, make_view
from node_support_lone import COUNTS, REGIONS, Lone, beat, lived, make_server, restarted, sample

# ------------------------------------------------------------------------------------------------ who is restarted


def early(number: int, slot: int, **other: object) -> bytes:
    """What a neighbour says while a slot is open: its message of the slot before, written again."""
    return beat(number, slot - 1, after=True, **{"echo": 5, "ago": slot - 1 - 4, "proven": True, **other})  # type: ignore[arg-type]


def in_slot(node: Lone, slot: int, *payloads: tuple[int, bytes]) -> bool:
    """These come while a slot is open; whether that slot is sampled."""
    for number, payload in payloads:
        node.hear(number, payload, node.view.clock.opens(slot) + SECOND * 3 // 4)
    node.seal(slot)
    node.pass_deadline(slot)
    return slot in node.disk.samples


def test_the_slot_of_a_restart_is_sampled_if_all_neighbours_vouch_at_once() -> None:
    """Check-ins of that slot were acknowledged and are on disk: to throw them away at every restart is a loss."""
    node = restarted(lived().disk, 5)
    assert in_slot(node, 5, (1, early(1, 5)), (2, early(2, 5)))
    assert node.reasons == [], "it is no late message"


def test_also_if_it_was_down_for_some_slots() -> None:
    """Nothing was told in those; who was there for the last exchange knows."""
    node = restarted(lived().disk, 8)
    assert in_slot(node, 8, (1, early(1, 8)), (2, early(2, 8)))


def test_also_in_the_exchange_in_which_it_is_told_again() -> None:
    """Killed after its seal, it tells its slot again, and hears its neighbours' words after that exchange."""
    node = Lone()
    node.live(range(4))
    node.seal(4)
    node.restart(node.view.seals(4) + SECOND // 4)
    for number in (1, 2):
        node.hear(number, early(number, 5), node.view.ends(4) + 1)
    node.pass_deadline(4)
    assert in_slot(node, 5)


@pytest.mark.parametrize("second", [None, "plain", "for the slot before", "for the slot after"])
def test_everybody_has_to_have_a_say(second: str | None) -> None:
    """Whoever vouches first must not decide: another one may remember more. As before, the exchange is waited for."""
    node = restarted(lived().disk, 5)
    words = [(1, early(1, 5))]
    if second == "plain":  # as 0.1.0 repeats it: written before the exchange
        words.append((2, beat(2, 4, echo=5, ago=0)))
    elif second is not None:
        words.append((2, early(2, 4 if second == "for the slot before" else 6)))
    assert not in_slot(node, 5, *words)
    assert in_slot(node, 6, (2, early(2, 6)))


def test_neighbours_of_other_slots_are_not_waited_for() -> None:
    """A link that begins later, or has ended, has nobody at its other end."""
    node = Lone(lambda slot: frozenset({1}) if slot == 5 else frozenset({1, 2}), disk=lived().disk)
    node.restart(node.view.clock.opens(5) + SECOND // 2)
    assert in_slot(node, 5, (1, early(1, 5)))


def test_an_old_copy_is_exposed_before_its_first_seal() -> None:
    """The word of one is enough, whatever the other says; and it comes with its proof."""
    node = restarted(lived(3).disk, 5)
    assert not in_slot(node, 5, (2, early(2, 5, echo=3, ago=2)), (1, early(1, 5)))
    assert node.events[0] == "ledger-rolled-back"
    assert not in_slot(node, 6)
    assert node.noise.drawn == []


def test_more_without_proof_costs_two_slots_as_ever() -> None:
    """A liar cannot stop the node for good, and is not quicker than before either."""
    node = restarted(lived().disk, 5)
    assert not in_slot(node, 5, (1, early(1, 5)), (2, early(2, 5, echo=9, proven=False)))
    assert not in_slot(node, 6)
    assert not in_slot(node, 7)
    assert in_slot(node, 8)


def test_an_echo_of_the_own_words_does_not_vouch_early_either() -> None:
    """Both neighbours have forgotten the node, and have heard it once since, while it waited."""
    node = restarted(lived(3).disk, 8)
    assert not in_slot(node, 8)
    for slot in range(9, 13):
        said = {"echo": 3, "ago": slot - 1 - 8, "proven": False}
        assert not in_slot(node, slot, (1, early(1, slot, **said)), (2, early(2, slot, **said)))


def test_after_time_was_lost_what_was_said_before_does_not_count() -> None:
    """A snapshot of a node that was vouched for early has lived on since, perhaps."""
    node = restarted(lived().disk, 5)
    for number in (1, 2):
        node.hear(number, early(number, 5), node.view.clock.opens(5) + SECOND // 2)
    node.give(on.TimeLost(node.view.clock.opens(5) + SECOND // 2))
    assert not in_slot(node, 5)


# ---------------------------------------------------------------------------------------------------- who vouches


def neighbour(*, hears: int = 1, slot: int = 4) -> Lone:
    """Server 0 after the exchange of a slot in which it has heard server 1; its outbox is empty."""
    node = Lone()
    node.live(range(slot))
    node.seal(slot)
    node.hear(hears, sample(hears, slot))
    node.pass_deadline(slot)
    node.outbox.clear()
    return node


def comes_up(node: Lone, at_ns: int, name: str = "server-1") -> list[do.Send]:
    node.give(on.NeighbourUp(at_ns, name))
    sent, node.outbox = node.outbox, []
    return sent


def test_whoever_comes_up_is_told_what_is_remembered_of_it() -> None:
    """Once, with the proof, marked as written after the exchange; to a node of 0.1.0 it is a repetition."""
    node = neighbour()
    regular = [told for told in node.told if isinstance(told, do.Send)][-1]
    (told,) = comes_up(node, node.view.ends(4) + 1)
    assert (told.slot, told.to, told.at_ns) == (4, ("server-1",), None)
    body = body_of(told.payload)
    assert body.after
    assert written_after(told.payload)
    assert body.heard[1] == (0, 1)
    assert proven(body.proofs[1], 1, fake_verify) == (4, 1)
    assert same_content(told.payload, regular.payload)
    assert not written_after(regular.payload)


def test_not_before_the_exchange_has_had_its_time() -> None:
    """All have spoken, among them perhaps a new run of the neighbour; what the old one sent may be on its way."""
    node = Lone()
    node.live(range(4))
    node.seal(4)
    for number in (1, 2):
        node.hear(number, beat(number, 4))
    assert node.machine.exchanging is None
    node.outbox.clear()
    assert comes_up(node, node.view.ends(4) - 1) == []
    node.hear(1, sample(1, 4), node.view.ends(4) - 1)  # of the run that was lost; late, and refused
    node.pass_deadline(4)
    (told,) = node.outbox
    assert body_of(told.payload).heard[1] == (0, 1), "it is remembered all the same"
    assert body_of(told.payload).after


def test_not_inside_the_exchange_although_it_is_sent_again_there() -> None:
    """What is sent again was written before; the word comes when the exchange is over."""
    node = Lone()
    node.live(range(4))
    node.seal(4)
    node.outbox.clear()
    (again,) = comes_up(node, node.view.seals(4) + 1)
    assert not body_of(again.payload).after
    node.hear(1, sample(1, 4))
    node.pass_deadline(4)
    (told,) = node.outbox
    assert body_of(told.payload).after
    assert body_of(told.payload).heard[1] == (0, 1)


def test_not_while_the_own_message_waits_for_its_time() -> None:
    """Written again, it would leave before its moment."""
    node = Lone(send_offset_ns=SECOND // 4)
    node.seal(4)
    node.pass_deadline(4)
    assert comes_up(node, node.view.ends(4)) == []
    node.leave(node.view.ends(4) + 1)
    assert [body_of(sent.payload).after for sent in node.outbox] == [False, True]


@pytest.mark.parametrize("why", ["next slot", "restarted", "stood still", "time lost", "down", "stranger"])
def test_whoever_cannot_know_says_nothing(why: str) -> None:
    """A neighbour that was not there for the whole exchange, or whose exchange is long over, has heard too little."""
    node, name = neighbour(), "server-1"
    at_ns = node.view.ends(4) + 1
    match why:
        case "next slot":
            at_ns = node.view.seals(5)
        case "restarted":
            node.restart(at_ns)
        case "stood still":
            node.give(on.StoodStill(at_ns))
        case "time lost":
            node.give(on.TimeLost(at_ns))
        case "down":
            node.seal(5)
            node.outbox.clear()
            assert [body_of(one.payload).after for one in comes_up(node, node.view.seals(5) + 1)] == [False]
            node.give(on.NeighbourDown(node.view.seals(5) + 2, name))
            node.pass_deadline(5)
            assert node.outbox == []
            return
        case "stranger":
            name = "nobody"
    assert comes_up(node, at_ns, name) == []


def test_a_restart_in_the_exchange_is_no_attendance() -> None:
    """Messages came while it was down; it tells its slot again, and does not know what it has missed."""
    node = Lone()
    node.live(range(4))
    node.seal(4)
    node.restart(node.view.seals(4) + 1)
    node.pass_deadline(4)
    node.outbox.clear()
    assert comes_up(node, node.view.ends(4) + 1) == []


def test_what_it_says_is_on_its_disk_before() -> None:
    """A crash right after it would leave a neighbour that has vouched for what it does not remember."""
    node = neighbour()
    node.hear(1, beat(1, 4, counter=7), node.view.ends(4) + 1)
    node.told.clear()
    (told,) = comes_up(node, node.view.ends(4) + 2)
    assert [type(one) for one in node.told] == [do.StoreCounters, do.Send]
    assert body_of(told.payload).heard[1][1] == 7


def test_with_a_full_disk_it_says_nothing() -> None:
    """It would echo less than it has heard, and so vouch for an old copy."""
    node = neighbour()
    node.disk.full, node.disk.refuses = True, WRITING
    node.hear(1, beat(1, 4, counter=7), node.view.ends(4) + 1)
    assert not any(body_of(one.payload).after for one in comes_up(node, node.view.ends(4) + 2))
    assert not any(body_of(one.payload).after for one in comes_up(node, node.view.ends(4) + 3))


def test_a_link_that_comes_and_goes_is_no_fault_of_anybody() -> None:
    """Whoever has heard the slot already takes it for a repetition."""
    node = Lone()
    node.live(range(4))
    node.seal(4)
    node.hear(1, beat(1, 4))
    node.pass_deadline(4)
    node.hear(1, beat(1, 4, after=True), node.view.ends(4) + 1)
    assert node.reasons == []


class RestOfVersion010(msgspec.Struct, array_like=True, frozen=True):
    """What version 0.1.0 reads of a message behind its head."""

    heard: dict[int, tuple[int, int]]
    prior: bytes = b""
    prior_known: bytes = b""
    records: tuple[Record, ...] = ()
    proofs: dict[int, bytes] = {}


def test_a_node_of_version_0_1_0_reads_it_as_what_was_said_before() -> None:
    """It compares slot, round, prior and records: a difference would be a second message for the same slot."""
    before, again = (_envelopes.decode(sample(1, 4, **other)) for other in ({}, {"after": True}))
    assert before.head == again.head
    old, new = (msgspec.msgpack.decode(one.rest, type=RestOfVersion010) for one in (before, again))
    assert old == new
    assert len(new.records) == 1


# ------------------------------------------------------------------------------------------------------- together


def pair() -> Network:
    def make(number: int) -> Node:
        noise = FreshNoise(number)
        view = make_view(number, 2, lambda slot: frozenset({1 - number}), regions=REGIONS)
        return Node(view, lambda: make_server(noise, number=number))

    return Network([make(0), make(1)])


def test_two_nodes_lose_no_slot_to_a_restart() -> None:
    """The whole way, by their own machines; with an old copy in place of the folder, every slot is lost."""
    for copy in (False, True):
        network = pair()
        node, other = network.nodes
        for slot in range(3):
            network.slot(slot, [COUNTS, COUNTS])  # type: ignore[arg-type]
        old = node.disk.copy()
        for slot in range(3, 9):
            at_ns = node.view.clock.opens(slot) + SECOND * 3 // 4
            node.disk = old.copy() if copy else node.disk
            node.restart(at_ns)
            other.give(on.NeighbourUp(at_ns, "server-0"))
            for message in other.outbox:
                node.give(on.MessageArrived(at_ns, "server-1", message.payload))
            other.outbox.clear()
            network.slot(slot, [COUNTS, COUNTS])  # type: ignore[arg-type]
        sampled = [slot for slot in range(3, 9) if slot in node.disk.samples]
        # The first copy is as young as the folder: nothing is lost in it.
        assert sampled == ([] if copy else [3, 4, 5, 6, 7, 8])
        assert ("ledger-rolled-back" in [report.event for report in node.reports]) == copy
