"""Running the points of figures: resumed, shared, interrupted, and the same as a plain simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.experiments.figures import FIGURES
from dpcrowd.experiments.figures.rosters import AT_ONCE
from dpcrowd.experiments.points import run as run_module
from dpcrowd.experiments.points.run import Tick, run_points
from dpcrowd.experiments.points.store import Store
from dpcrowd.sim.backends import Backend
from experiments_support import tiny_plan

ALONE = Backend("local", 1, None)
PLAN = tiny_plan(slots=24)
POINTS = [point for point in FIGURES[3].points(PLAN) if point.epsilon > 0.1 and point.entries != (AT_ONCE,)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "points")


def test_a_point_is_what_simulate_gives(store: Store) -> None:
    """Figures that came from anything but the simulator that users run would prove nothing about it."""
    results = run_points(PLAN, {"4": POINTS}, store, ALONE)
    direct = dpcrowd.simulate("dpcrowd", PLAN.data["linear"], servers=8, density=0.3, epsilon=0.5, runs=3, seed=0)
    np.testing.assert_array_equal(results[POINTS[0]]["dpcrowd"].are, direct["dpcrowd"].are)
    assert results[POINTS[0]].guarantees["dpcrowd"] == direct.guarantees["dpcrowd"]


def test_work_on_disk_is_not_done_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed report would take as long as a new one."""
    first = run_points(PLAN, {"4": POINTS}, store, ALONE)[POINTS[0]]["dpcrowd"].are
    ticks: list[Tick] = []
    monkeypatch.setattr(run_module, "run_batch", lambda *_: pytest.fail("everything is on disk"))
    again = run_points(PLAN, {"4": POINTS}, store, ALONE, ticks.append)
    np.testing.assert_array_equal(again[POINTS[0]]["dpcrowd"].are, first)
    assert [(tick.runs_done, tick.runs) for tick in ticks] == [(6, 6)]
    assert ticks[0].work_done == ticks[0].work


def test_what_was_finished_before_an_interruption_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control-C, a crash or a lost cluster costs the batches under way and no others."""

    def stopped(function: Any, tasks: Sequence[Any], backend: Backend) -> Iterator[tuple[int, Any]]:
        yield 0, function(*tasks[0])
        raise KeyboardInterrupt

    plain = run_module.run_tasks
    monkeypatch.setattr(run_module, "run_tasks", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_points(PLAN, {"4": POINTS}, store, ALONE)
    ticks: list[Tick] = []
    monkeypatch.setattr(run_module, "run_tasks", plain)
    results = run_points(PLAN, {"4": POINTS}, store, ALONE, ticks.append)
    assert ticks[0].runs_done > 0, "the first batch was kept"
    assert [len(results[point]["dpcrowd"].runs) for point in POINTS] == [3, 3]


@pytest.mark.slow
def test_more_runs_go_on_from_fewer(tmp_path: Path) -> None:
    """A full report after a quick look repeats nothing, and gives what a full report at once gives."""
    grown, fresh = Store(tmp_path / "grown"), Store(tmp_path / "fresh")
    run_points(tiny_plan(slots=24, runs=2), {"4": POINTS}, grown, ALONE)
    ticks: list[Tick] = []
    later = run_points(PLAN, {"4": POINTS}, grown, ALONE, ticks.append)
    assert ticks[0].runs_done == 4
    at_once = run_points(PLAN, {"4": POINTS}, fresh, ALONE)
    for label, record in at_once[POINTS[0]].records.items():
        np.testing.assert_array_equal(later[POINTS[0]][label].are, record.are)


def test_a_point_of_two_figures_is_done_once(store: Store) -> None:
    """Figure 5 shows the points of figures 2 and 3; doing them again would cost minutes."""
    ticks: list[Tick] = []
    run_points(PLAN, {"4": POINTS, "again": [POINTS[0], POINTS[0]]}, store, ALONE, ticks.append)
    assert ticks[-1].runs == 6
    assert {tick.figure for tick in ticks} == {"4"}


@pytest.mark.slow
def test_two_workers_give_the_same_bits_as_one(tmp_path: Path) -> None:
    """Seeds belong to runs, not to workers."""
    alone = run_points(PLAN, {"4": POINTS}, Store(tmp_path / "one"), ALONE)
    two = run_points(PLAN, {"4": POINTS}, Store(tmp_path / "two"), Backend("local", 2, None))
    for point in POINTS:
        for label, record in alone[point].records.items():
            np.testing.assert_array_equal(two[point][label].are, record.are)
            np.testing.assert_array_equal(two[point][label].packets_per_slot, record.packets_per_slot)
