"""What a node has missed of a slot, by downtime alone: who was there to check in plays no part."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpcrowd.node.live.presence import Presence
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage.journal import Journal
from node_support_storage import EPOCH, LENGTH, SECOND, opens

CLOCK = SlotClock(EPOCH, LENGTH)


class Lives:
    """One node after another over the same folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.journal: Journal | None = None

    def start(self, now_ns: int, first: int) -> Presence:
        if self.journal is not None:
            self.journal.close()
        self.journal = Journal(self._folder)
        presence = Presence(self.journal, CLOCK, SECOND)
        presence.start(now_ns, first)
        return presence

    def check_in(self, slot: int) -> None:
        assert self.journal is not None
        self.journal.slot_key(opens(slot))
        self.journal.append(opens(slot), b"somebody")


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path / "journal")


@pytest.mark.parametrize("somebody", [True, False])
@pytest.mark.parametrize(("downtime", "complete"), [(SECOND - 1, True), (SECOND, True), (SECOND + 1, False)])
def test_a_restart_inside_a_slot_depends_on_downtime_alone(
    lives: Lives, somebody: bool, downtime: int, complete: bool
) -> None:
    """If a slot were sampled only where somebody had checked in, a missing sample would say that nobody had."""
    presence = lives.start(opens(0), 0)
    presence.open(1, opens(1))
    if somebody:
        lives.check_in(1)
    presence.stamp(opens(1) + 3 * SECOND)
    again = lives.start(opens(1) + 3 * SECOND + downtime, 1)
    assert again.complete(1) == complete
    assert again.missed(1) == downtime


@pytest.mark.parametrize("somebody", [True, False])
def test_a_slot_that_opened_while_the_node_was_down(lives: Lives, somebody: bool) -> None:
    """A check-in whose time was a little ahead may have opened the slot's file before the node went down."""
    presence = lives.start(opens(0), 0)
    if somebody:
        lives.check_in(1)
    presence.stamp(opens(1) - SECOND)
    assert lives.start(opens(1) + SECOND // 2, 0).missed(1) == SECOND // 2
    assert lives.start(opens(1) + 2 * SECOND, 0).missed(1) == 2 * SECOND
    assert lives.start(opens(1) + 2 * SECOND, 0).missed(0) == 3 * SECOND, "the grace counts, too"


def test_a_first_start_counts_from_the_opening(lives: Lives) -> None:
    """Nobody knows what happened before the first start: only a slot that has just opened is complete."""
    assert lives.start(opens(4) + SECOND, 4).complete(4)
    (lives._folder / "alive").unlink()
    assert not lives.start(opens(5) + SECOND + 1, 5).complete(5)


def test_short_absences_add_up(lives: Lives) -> None:
    """A node that is restarted again and again sees little of a slot."""
    presence = lives.start(opens(0), 0)
    for number in range(1, 4):
        at = opens(0) + number * SECOND
        presence.stamp(at)
        presence = lives.start(at + SECOND // 2, 0)
        assert presence.complete(0) == (number <= 2)


def test_a_clock_that_went_back_says_nothing(lives: Lives) -> None:
    """By such a clock the node was away for a negative time."""
    lives.start(opens(3), 3)
    assert not lives.start(opens(1), 1).complete(1)


def test_a_slot_that_is_opened_late_was_missed_until_then(lives: Lives) -> None:
    """The disk was full when the slot opened, and check-ins were refused."""
    presence = lives.start(opens(0), 0)
    presence.open(1, opens(1) + 2)
    assert presence.missed(1) == 2
    presence.open(2, opens(2) + 2 * SECOND)
    assert not presence.complete(2)
    assert not presence.complete(3), "it was never opened"


def test_standing_still_and_a_set_clock(lives: Lives) -> None:
    """A frozen process hears nobody; after a jump nobody knows what was missed."""
    presence = lives.start(opens(0), 0)
    presence.open(1, opens(1))
    presence.stood_still(opens(1) + SECOND // 2, SECOND)
    assert (presence.missed(0), presence.missed(1)) == (SECOND, SECOND // 2), "slot 1 was not open for longer"
    presence.stood_still(opens(1) + 3 * SECOND, SECOND)
    assert not presence.complete(1)
    presence.open(2, opens(2))
    presence.distrust(opens(2) + 1)
    assert not presence.complete(2)
    presence.distrust(opens(7) + 1)
    assert not presence.complete(7), "also one that was not open before the clock was set"


def test_a_slot_that_passed_while_nothing_ran_is_not_made_complete_by_a_check_in(lives: Lives) -> None:
    """A late check-in in its grace makes the slot's file; the slot would be sampled because somebody came late."""
    presence = lives.start(opens(0), 0)
    lives.check_in(1)
    assert not presence.complete(1)
    presence.open(2, opens(2))
    lives.check_in(2)
    assert presence.complete(2)
