"""Steps of the clock as one run of a node sees them: what comes back was no step, and no budget comes back early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpcrowd.node.storage import Storage, StorageError, ledger
from dpcrowd.privacy.clock_jumps import ClockSteps
from node_support_storage import LENGTH, SECOND, draw, open_storage, opens

HOUR = 360 * LENGTH


class NodeRun:
    """One run of a node, from its start to its end, and what it sees its clock do."""

    def __init__(self, storage: Storage) -> None:
        self.storage, self.steps = storage, ClockSteps()

    def step(self, at_ns: int, moved_ns: int) -> None:
        self.steps = self.storage.ledger.set_clock(at_ns, moved_ns, self.steps)


def kept(storage: Storage) -> list[tuple[int, int]]:
    """What counts of the jumps that are kept, the oldest first: when, and how far."""
    return [(jump.at_ns, jump.remaining_ns) for jump in storage.ledger.account(0).jumps if jump.remaining_ns]


def test_a_clock_that_was_ahead_for_a_moment_blocks_nothing_afterwards(tmp_path: Path) -> None:
    """Payments of the hour before used to count as if they had been made in the present window: 3.85 of 1."""
    with open_storage(tmp_path, nano=10, slots=4) as storage:
        node_run = NodeRun(storage)
        for slot in range(0, 40, 4):
            draw(storage, slot, nano=10)
        node_run.step(opens(38), HOUR)
        assert storage.ledger.allowance(opens(398)).counted == 10, (
            "ahead: the last payment is two slots old, not an hour"
        )
        node_run.step(opens(399), -HOUR)
        assert kept(storage) == []
        assert storage.ledger.allowance(opens(39)).counted == 10
        assert storage.ledger.allowance(opens(40)).counted == 0
        assert [event.kind for event in storage.events.all()] == ["clock", "clock"]
        assert "was set back by 3600.0 s" in storage.events.all()[1].text


def test_what_was_paid_by_the_wrong_clock_counts_until_its_date_has_passed(tmp_path: Path) -> None:
    """It is younger than its date says: to let it go with the jump would spend it twice."""
    with open_storage(tmp_path, nano=10, slots=4) as storage:
        node_run = NodeRun(storage)
        node_run.step(opens(1), HOUR)
        draw(storage, 361, nano=10)
        node_run.step(opens(362), -HOUR)
        for slot in (2, 100, 364):
            assert storage.ledger.allowance(opens(slot)).nano == 0
        assert storage.ledger.allowance(opens(365)).nano == 10


@pytest.mark.parametrize(
    ("moves", "left"),
    [
        ([50, 30, -30], [(0, 50)]),
        ([50, 30, -80], []),
        ([50, 30, -40], [(0, 40)]),
        ([50, -20], [(0, 30)]),
        ([50, -20, -30], []),
        ([50, -20, 20, -50], []),
        ([50, -60], []),
        ([-60, 60], []),
        ([-60, 70], [(3, 10)]),
        ([-60, 20, 40, 5], [(15, 5)]),
        ([-60], []),
        ([30, -80, 50], []),
        ([30, -80, 60], [(12, 10)]),
    ],
)
def test_steps_there_and_back_add_up(moves: list[int], left: list[tuple[int, int]], tmp_path: Path) -> None:
    """Less than the sum would give budget back too early, more would block it for as long as the clock was wrong."""
    with open_storage(tmp_path) as storage:
        node_run = NodeRun(storage)
        at = 0
        for moved in moves:
            node_run.step(at * SECOND, moved * SECOND)
            at += moved + 3  # three seconds pass between two steps
        sums = kept(storage)
        assert sum(moved for _, moved in sums) == sum(moved for _, moved in left) * SECOND
        assert len(sums) == len(left)


def test_a_slot_that_was_sealed_between_keeps_the_whole_step_ahead(tmp_path: Path) -> None:
    """It may have been paid for by the clock that was behind, and is younger than its date by all of the step."""
    with open_storage(tmp_path) as storage:
        node_run = NodeRun(storage)
        node_run.step(opens(9), -50 * SECOND)
        node_run.steps = node_run.steps.slot_sealed()
        node_run.step(opens(5), 50 * SECOND)
        assert kept(storage) == [(opens(5), 50 * SECOND)]


def test_other_networks_on_the_ledger_may_have_paid_between(tmp_path: Path) -> None:
    """Nothing is known here of when they do: a step ahead counts, whatever was before it."""
    shared = tmp_path / "a"
    with open_storage(shared, "a") as a, open_storage(tmp_path / "b", "b", ledger=shared):
        node_run = NodeRun(a)
        node_run.step(opens(9), -50 * SECOND)
        node_run.step(opens(5), 50 * SECOND)
        assert kept(a) == [(opens(5), 50 * SECOND)]


def test_one_return_that_two_networks_see_is_kept_once(tmp_path: Path) -> None:
    """Taken off twice, it would take off an older step, that has never come back, as well."""
    shared = tmp_path / "a"
    with open_storage(shared, "a") as a, open_storage(tmp_path / "b", "b", ledger=shared) as b:
        first, second = NodeRun(a), NodeRun(b)
        for node_run in (first, second):
            node_run.step(opens(1), 50 * SECOND)
        for node_run in (first, second):
            node_run.step(opens(20), 50 * SECOND)
        for node_run in (first, second):
            node_run.step(opens(30), -50 * SECOND)
        assert kept(a) == [(opens(1), 50 * SECOND)]


def test_of_a_step_in_an_earlier_run_no_more_is_taken_back_than_the_clock_tells(tmp_path: Path) -> None:
    """What the clock did while nobody looked is not known; only that no time has passed backwards."""
    with open_storage(tmp_path) as storage:
        NodeRun(storage).step(opens(1), 50 * SECOND)
        NodeRun(storage).step(opens(9), -50 * SECOND)
        assert kept(storage) == [(opens(1), opens(9) - 50 * SECOND - opens(1))]


def test_a_node_that_died_while_its_clock_was_ahead_finds_its_budget_again(tmp_path: Path) -> None:
    """The payments of the hour before were blocked for an hour after the restart, and nobody could end that."""
    with open_storage(tmp_path, nano=10, slots=4) as storage:
        for slot in range(0, 40, 4):
            draw(storage, slot, nano=10)
        NodeRun(storage).step(opens(38), HOUR)
        NodeRun(storage).step(opens(40), 0)
        assert kept(storage) == [(opens(38), opens(40) - opens(38))]
        assert storage.ledger.allowance(opens(42)).counted == 0
        assert "was set back" in storage.events.all()[-1].text
        NodeRun(storage).step(opens(41), 0)
        assert kept(storage) == [(opens(38), opens(40) - opens(38))], "later the clock tells nothing new"


def test_a_step_that_cannot_be_written_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step back that is taken off two jumps: half of it, and payments would leave their window before their time."""
    with open_storage(tmp_path) as storage:
        node_run = NodeRun(storage)
        node_run.step(opens(1), 50 * SECOND)
        node_run.step(opens(9), 30 * SECOND)
        before = kept(storage)
        with monkeypatch.context() as full:
            add_event, calls = ledger.add_event, []

            def refuse_second(*given: Any) -> None:
                calls.append(1)
                if len(calls) == 2:
                    raise StorageError("full", "no space", "free some")
                add_event(*given)

            full.setattr(ledger, "add_event", refuse_second)
            with pytest.raises(StorageError):
                node_run.step(opens(20), -60 * SECOND)
        assert kept(storage) == before
        node_run.step(opens(20), -60 * SECOND)
        assert kept(storage) == [(opens(1), 20 * SECOND)]
