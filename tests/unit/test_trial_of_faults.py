"""The trial of faults (benchmarks/faults.py) would notice what it is there to notice."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from project_support import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import faults_watch

    return faults_watch


def test_a_slot_that_two_lives_have_drawn_is_found(watch: ModuleType) -> None:
    """The second life's ledger does not know the first one's draw: only both together show it."""
    draws = [
        watch.Draw("a", 3, 50, "first life", 0.0),
        watch.Draw("a", 4, 50, "first life", 2.0),
        watch.Draw("b", 4, 50, "another server", 2.0),
    ]
    assert watch.double_draws(draws) == []
    assert watch.double_draws([*draws, watch.Draw("a", 4, 50, "second life", 9.0)]) == [("a", 4)]


def test_a_window_that_costs_too_much_is_found(watch: ModuleType) -> None:
    """Over all lives, by slots; a window that is a slot too short or too long would miss it or cry wolf."""
    draws = [watch.Draw("a", slot, 10, str(slot), 2.0 * slot) for slot in range(10)]
    assert watch.overspent(draws, 50, 5) == []
    assert watch.overspent(draws, 50, 6) == [("a", slot) for slot in range(5, 10)]
    assert watch.overspent([*draws, watch.Draw("a", 4, 10, "again", 9.0)], 50, 5) == [
        ("a", slot) for slot in range(4, 9)
    ]
    assert watch.overspent([*draws, watch.Draw("b", 4, 50, "b", 9.0)], 50, 5) == []


def test_budget_that_a_wrong_clock_gave_back_is_found(watch: ModuleType) -> None:
    """By their numbers the slots of a clock that was set ahead are in windows of their own."""
    draws = [watch.Draw("a", slot, 10, str(slot), float(slot)) for slot in range(5)]
    draws += [watch.Draw("a", 100 + slot, 10, str(slot), 5.0 + slot) for slot in range(3)]
    assert watch.overspent(draws, 50, 5) == []
    assert watch.overspent_in_time(draws, 50, 5.0) == []
    assert watch.overspent_in_time(draws, 50, 6.0) == [("a", 100), ("a", 101), ("a", 102)]


def test_intervals_are_held_against_the_truth(watch: ModuleType) -> None:
    """Slots that were not fed have no truth, and slots outside of a fault are not part of it."""
    seen = watch.Watch(trial=None)
    seen.estimates = {
        ("a", 1, "north"): (5.0, 15.0),
        ("a", 1, "south"): (5.0, 15.0),
        ("b", 2, "south"): (18.0, 22.0),
        ("b", 9, "south"): (0.0, 1.0),
    }
    truth = {1: np.array([10, 16]), 2: np.array([0, 20])}
    assert seen.covered(truth, ["north", "south"]) == (2, 3)
    assert seen.covered(truth, ["north", "south"], range(2, 3)) == (1, 1)
