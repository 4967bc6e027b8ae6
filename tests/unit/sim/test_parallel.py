"""Runs spread over processes: the same numbers, all progress, and refusals that arrive as themselves."""

from __future__ import annotations

import os
from typing import Any

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.sim import simulate as simulate_module
from dpcrowd.sim.simulate import simulate
from sim_support import TINY, assert_same_records


@pytest.mark.slow
def test_two_processes_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results must not depend on the machine; progress has to reach the total; a refusal must not lose its text."""
    setting = {**TINY, "runs": 5, "keep_estimates": True}
    schemes = "non-private,central,dfast,dpcrowd"
    alone = simulate(schemes, jobs=1, **setting)
    monkeypatch.setattr(simulate_module, "_WORTH_A_WORKER", 0)
    monkeypatch.setattr(simulate_module, "_BATCH_VALUES", 12)

    heard: list[tuple[int, int]] = []
    spread = simulate(schemes, jobs=2, progress=lambda done, total: heard.append((done, total)), **setting)
    for scheme in alone.records:
        assert_same_records(alone[scheme], spread[scheme])
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    assert heard[-1] == (150, 150)
    assert len(heard) == 3, "one step a batch: the work was done by workers"
    with pytest.raises(BadInput, match="beta = 1 can diverge"):
        simulate("dpcrowd", jobs=2, beta=1.0, **setting)


def test_little_work_starts_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting workers takes longer than a small simulation."""

    def refuse(*arguments: object) -> None:
        raise AssertionError("workers were started")

    monkeypatch.setattr(simulate_module, "_run_parallel", refuse)
    simulate("dpcrowd", jobs=2, **TINY)
    monkeypatch.setattr(simulate_module, "_WORTH_A_WORKER", 0)
    with monkeypatch.context() as small:
        small.setattr(simulate_module, "_BATCH_VALUES", 1)
        simulate("dpcrowd", jobs=1, **TINY)
    simulate("dpcrowd", jobs=2, **{**TINY, "runs": 1})
    with pytest.raises(AssertionError, match="workers were started"):
        simulate("dpcrowd", jobs=2, **TINY)


@pytest.mark.parametrize(("jobs", "asked"), [(2, 2), (3, 3), (None, -1)])
def test_as_many_workers_start_as_were_asked_for(jobs: int | None, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """--jobs 2 on a shared machine means two; without it, all cores."""
    import joblib

    seen: list[dict[str, Any]] = []

    class Here(joblib.Parallel):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            seen.append(options)
            super().__init__(**{**options, "n_jobs": 1})

    monkeypatch.setattr(joblib, "Parallel", Here)
    monkeypatch.setattr(simulate_module, "_WORTH_A_WORKER", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    simulate("dpcrowd", jobs=jobs, **TINY)
    assert seen == [{"n_jobs": asked, "batch_size": 1, "return_as": "generator_unordered"}]


def test_without_jobs_every_core_gets_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of eight cores with one batch would leave seven idle."""
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    config = simulate_module.configure("dpcrowd", **{**TINY, "runs": 8})
    assert [len(batch) for batch in simulate_module.batches(config, range(config.runs), None)] == [2, 2, 2, 2]


def test_progress_reaches_the_total_and_never_goes_back() -> None:
    """A bar that ends at 60% or jumps back makes people think that something broke."""
    heard: list[tuple[int, int]] = []
    simulate("dpcrowd", jobs=1, **{**TINY, "runs": 5}, progress=lambda done, total: heard.append((done, total)))
    assert heard[-1] == (150, 150)
    assert heard == sorted(heard)
    assert {total for _, total in heard} == {150}


def test_progress_adds_up_over_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several batches of unequal size each counts for its runs."""
    monkeypatch.setattr(simulate_module, "_BATCH_VALUES", 12)
    heard: list[int] = []
    simulate("dpcrowd", jobs=1, **{**TINY, "runs": 5}, progress=lambda done, total: heard.append(done))
    assert heard == [*range(2, 121, 2), *range(121, 151)]


def test_work_is_cut_for_cores_cache_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches cover every run once; a core without work or an array beyond memory would be the price of a slip."""
    config = simulate_module.configure("dpcrowd", **{**TINY, "runs": 10})
    for jobs, sizes in ((1, [10]), (2, [5, 5]), (3, [4, 4, 2]), (40, [1] * 10)):
        batches = simulate_module.batches(config, range(config.runs), jobs)
        assert [len(batch) for batch in batches] == sizes
        assert [run for batch in batches for run in batch] == list(range(10))
    monkeypatch.setattr(simulate_module, "_BATCH_BYTES", 8 * 6 * 30 * 2 * 3)
    assert [len(batch) for batch in simulate_module.batches(config, range(config.runs), 1)] == [3, 3, 3, 1]
    kept = simulate_module.configure("dpcrowd", keep_estimates=True, **{**TINY, "runs": 4})
    sizes = [len(batch) for batch in simulate_module.batches(kept, range(kept.runs), 1)]
    assert sizes == [1] * 4, "kept estimates take as much again"
    monkeypatch.setattr(simulate_module, "_BATCH_BYTES", 1)
    assert [len(batch) for batch in simulate_module.batches(config, range(config.runs), 1)] == [1] * 10
