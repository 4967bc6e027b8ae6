"""The engine: results belong to (seed, run), whatever is simulated beside them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.network.gather import neighbour_sums
from dpcrowd.sim import engine
from dpcrowd.sim import simulate as simulate_module
from dpcrowd.sim.data import draw_run, load
from dpcrowd.sim.engine import run_batch
from dpcrowd.sim.result import SimulationResult
from dpcrowd.sim.simulate import configure, simulate
from sim_support import NAMES, TINY, WINDOW, assert_same_records, spy_on_engine

SOME = "non-private,central,dfast,dpcrowd"


def tiny(schemes: Any, data: Any = "linear", **more: Any) -> SimulationResult:
    return simulate(schemes, data, **{**TINY, "jobs": 1, **more})


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("shares", ["uniform", "per-slot", "partition"])
def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch, shares: str, dynamic: bool) -> None:
    """If a run's numbers depended on its batch, they would change with the machine's cores and cache."""
    setting: dict[str, Any] = {"runs": 5, "shares": shares, "dynamic": dynamic, "keep_estimates": True}
    together = tiny(SOME, **setting)
    monkeypatch.setattr(simulate_module, "_BATCH_VALUES", 12)
    config = configure(SOME, **{**TINY, **setting})
    assert [len(b) for b in simulate_module.batches(config, range(config.runs), 1)] == [2, 2, 1]
    apart = tiny(SOME, **setting)
    for scheme in together.records:
        assert_same_records(together[scheme], apart[scheme])


@pytest.mark.slow
def test_batches_change_nothing_for_window_schemes_of_many_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grouping, dissimilarity tests and budgets are per server: a neighbour in the batch must not matter."""
    setting: dict[str, Any] = {"data": "multi-linear", "runs": 3, "window": 10}
    together = tiny(",".join(WINDOW), **setting)
    monkeypatch.setattr(simulate_module, "_BATCH_VALUES", 1)
    apart = tiny(",".join(WINDOW), **setting)
    for scheme in WINDOW:
        assert_same_records(together[scheme], apart[scheme])


def test_fewer_runs_are_the_first_of_more_runs() -> None:
    """A user who adds runs wants to keep those that were already there."""
    few, many = tiny(SOME, runs=2), tiny(SOME, runs=4)
    for scheme in few.records:
        np.testing.assert_array_equal(few[scheme].are, many[scheme].are[:2])
        assert few[scheme].paid == many[scheme].paid[:2]


def test_any_runs_can_be_simulated_alone_and_in_any_order() -> None:
    """Workers take whatever runs are next; the third run must not need the first two."""
    config = configure(SOME, **{**TINY, "runs": 4})
    backwards = run_batch(config, [3, 1])
    for records, whole in zip(backwards, run_batch(config, range(4)), strict=True):
        assert records.runs.tolist() == [3, 1]
        np.testing.assert_array_equal(records.are, whole.are[[3, 1]])
        np.testing.assert_array_equal(records.latency_ms, whole.latency_ms[[3, 1]])


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    """Results that cannot be repeated, or a seed that changes nothing, are worth nothing."""
    one, again, other = (tiny(SOME, seed=seed) for seed in (11, 11, 12))
    for scheme in one.records:
        assert_same_records(one[scheme], again[scheme])
        assert not np.isclose(one[scheme].are, other[scheme].are).any()


@pytest.mark.parametrize("together", [("dpcrowd", "fast", "dfast"), ("dfast", "central", "non-private", "dpcrowd")])
def test_a_scheme_gives_the_same_whoever_runs_beside_it(together: tuple[str, ...]) -> None:
    """Comparisons are paired only if truth, counts, graph and noise do not depend on the other schemes."""
    beside = tiny(together, keep_estimates=True)
    for scheme in together:
        assert_same_records(beside[scheme], tiny(scheme, keep_estimates=True)[scheme])


def test_all_schemes_are_given_the_same_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same shares, counts and noise source for every scheme in every slot, and those of `draw_run`."""
    spy = spy_on_engine(monkeypatch)
    schemes = [dpcrowd.NonPrivate(), dpcrowd.FAST(), dpcrowd.DFAST()]
    tiny(schemes)
    first, *others = (spy.inputs[id(scheme)] for scheme in schemes)
    assert len(first) == TINY["slots"]
    drawn = [draw_run(load("linear", slots=30), seed=0, run=run, servers=6) for run in range(2)]
    for slot, (shares, counts, noise, _) in enumerate(first):
        for other in others:
            np.testing.assert_array_equal(other[slot][0], shares)
            np.testing.assert_array_equal(other[slot][1], counts)
            assert other[slot][2] is noise
        np.testing.assert_array_equal(counts, np.concatenate([run.counts[slot] for run in drawn]))
        np.testing.assert_array_equal(shares[:, 0], np.concatenate([run.shares for run in drawn]))


def test_noise_is_the_same_for_all_schemes() -> None:
    """Two copies of one scheme draw the same noise, whichever comes first; with luck of their own they would differ."""
    result = tiny(
        {"first": dpcrowd.DPCrowd(), "between": dpcrowd.FAST(), "last": dpcrowd.DPCrowd()}, keep_estimates=True
    )
    np.testing.assert_array_equal(result["first"].estimates, result["last"].estimates)
    result = tiny("fast,dfast", interval=1, graph="complete", keep_estimates=True)
    alone, flooded = result["fast"].estimates, result["dfast"].estimates
    assert alone is not None
    assert flooded is not None
    np.testing.assert_allclose(flooded[:, :, 0], alone.mean(axis=2), rtol=1e-12)


def test_numba_and_numpy_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba is optional: without it the same numbers come out, only later."""
    fast = tiny(SOME, keep_estimates=True)
    monkeypatch.setattr(engine, "best_engine", lambda: "numpy")
    plain = tiny(SOME, keep_estimates=True)
    for scheme in fast.records:
        assert_same_records(fast[scheme], plain[scheme])


def test_the_kernel_is_compiled_before_the_clock_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the first scheme of a comparison would look slow because it paid for the compiler."""
    events: list[str] = []
    engine.warm_up.cache_clear()

    def sums(*arguments: Any) -> Any:
        events.append("kernel")
        return neighbour_sums(*arguments)

    monkeypatch.setattr(engine, "neighbour_sums", sums)
    real = engine.run_slot
    monkeypatch.setattr(engine, "run_slot", lambda *a: (events.append("slot"), real(*a))[1])
    tiny("dpcrowd", runs=1)
    assert events[:2] == ["kernel", "slot"]


@pytest.mark.parametrize("name", NAMES)
def test_every_scheme_runs_and_fills_every_array(name: str) -> None:
    """A scheme that returns a wrong shape or leaves NaN in the errors would break the summary of all others."""
    more = {"window": 10} if name in WINDOW else {}
    record = tiny(name, **more)[name]
    assert np.isfinite(record.are).all()
    assert (record.are >= 0).all()
    assert np.isfinite(record.ace).all()
    assert ((record.frequency > 0) & (record.frequency <= 1)).all()
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, np.ndarray):
            assert len(value) == 2, f.name
    assert record.are_by_slot.shape == record.ace_by_slot.shape == (2, 30)
    assert record.server_slots == 2 * 6 * 30
    assert record.seconds > 0


@pytest.mark.parametrize("dynamic", [True, False])
def test_the_clock_of_a_scheme_holds_its_own_work_and_the_drawing(
    monkeypatch: pytest.MonkeyPatch, dynamic: bool
) -> None:
    """Speed is that of a scheme with networks and noise, as if it ran alone, and not that of all schemes together."""
    ticks = iter(range(10_000))
    monkeypatch.setattr(engine.time, "perf_counter", lambda: float(next(ticks)))
    result = tiny("dpcrowd,fast,dfast", runs=1, dynamic=dynamic)
    for record in result.records.values():
        assert record.seconds == 2 * 30, "one tick for the drawing and one for the scheme in each of 30 slots"
    assert result.summary()[0]["server_slots_per_second"] == 6 * 30 / 60
