"""The world that a simulation draws: shares, networks, counts and truth, as the schemes get them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.kernels.engine import best_engine
from dpcrowd.sim import engine
from dpcrowd.sim.data import draw_run, load
from dpcrowd.sim.result import SimulationResult
from dpcrowd.sim.simulate import configure, simulate
from sim_support import TINY, spy_on_engine, write_checkins


def tiny(schemes: Any, data: Any = "linear", **more: Any) -> SimulationResult:
    return simulate(schemes, data, **{**TINY, "jobs": 1, **more})


def test_shares_per_slot_and_partition_reach_the_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share of another slot or run in the filter would bias every estimate."""
    for kind in ("per-slot", "partition"):
        spy = spy_on_engine(monkeypatch)
        scheme = dpcrowd.NonPrivate()
        tiny(scheme, shares=kind)
        drawn = [draw_run(load("linear", slots=30), seed=0, run=run, servers=6, shares=kind) for run in range(2)]
        for slot, (shares, _, _, _) in enumerate(spy.inputs[id(scheme)]):
            now = [run.shares[slot] if kind == "per-slot" else run.shares for run in drawn]
            np.testing.assert_array_equal(shares[:, 0], np.concatenate(now))
        if kind == "partition":
            assert shares.sum() == pytest.approx(2.0), "each of the two runs is a partition"


def test_explicit_shares_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own shares are data about a real network, not a hint."""
    spy = spy_on_engine(monkeypatch)
    scheme = dpcrowd.NonPrivate()
    given = [0.1, 0.2, 0.3, 0.4, 0.5, 1.0]
    tiny(scheme, shares=given)
    assert spy.inputs[id(scheme)][3][0][:, 0].tolist() == given + given


def test_a_static_network_stays_and_a_dynamic_one_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--static` that draws anew, or `--dynamic` that does not, would simulate another system."""
    different = {}
    for dynamic in (True, False):
        spy = spy_on_engine(monkeypatch)
        scheme = dpcrowd.NonPrivate()
        tiny(scheme, dynamic=dynamic)
        seen = {hearing.matrix.indices.tobytes() for *_, hearing in spy.inputs[id(scheme)]}
        different[dynamic] = len(seen)
    assert different[False] == 1
    assert different[True] > 20


def test_kept_estimates_have_their_shape_and_give_the_reported_errors() -> None:
    """Whoever keeps the estimates wants to compute errors of their own; the axes must be what the text says."""
    result = tiny("dpcrowd,fast", "multi-linear", runs=3, keep_estimates=True)
    data = load("multi-linear", slots=30)
    for name in result.records:
        record = result[name]
        assert record.estimates is not None
        assert record.variances is not None
        assert record.estimates.shape == record.variances.shape == (3, 30, 6, 6)
        for run in range(3):
            truth = draw_run(data, seed=0, run=run, servers=6).truth[:, None, :]
            errors = np.abs(record.estimates[run] - truth) / np.maximum(truth, 1)
            by_slot = np.nanmean(errors, axis=(1, 2))
            np.testing.assert_allclose(record.are_by_slot[run], by_slot, rtol=1e-12)
            assert record.are[run] == pytest.approx(by_slot[5:].mean(), rel=1e-12)
            inside = np.abs(record.estimates[run] - truth) <= 1.959963984540054 * np.sqrt(record.variances[run])
            assert record.coverage95[run] == pytest.approx(inside[5:].mean(), rel=1e-12)
    assert tiny("dpcrowd")["dpcrowd"].estimates is None


@pytest.mark.slow
def test_check_ins_are_simulated_as_they_are(tmp_path: Path) -> None:
    """Counts of real people: the last check-in of a day wins, every user is at one server, truth is the file's."""
    file = write_checkins(tmp_path / "checkins.csv")
    last: dict[tuple[str, str], tuple[str, str]] = {}
    for line in file.read_text().splitlines()[1:]:
        user, when, place = line.split(",")
        last[user, when[:10]] = max(last.get((user, when[:10]), ("", "")), (when, place))
    truth: dict[str, dict[str, int]] = {}
    for (_, day), (_, place) in last.items():
        truth.setdefault(day, dict.fromkeys("abc", 0))[place] += 1
    expected = np.array([[truth[day][place] for place in "abc"] for day in sorted(truth)])

    servers = {}
    for users in ("pinned", "roaming"):
        settings = {**TINY, "slots": None, "users": users, "keep_estimates": True}
        config = configure("non-private,dpcrowd", str(file), **settings)
        assert config.data.slots == len(expected) == 40
        assert config.observation == "binomial"
        world = engine._World(config, [0, 1])
        np.testing.assert_array_equal(world.truth[:, 0], expected)
        np.testing.assert_array_equal(world.counts[:, :6].sum(axis=1), expected)
        servers[users] = world.counts
        result = simulate("non-private,dpcrowd", str(file), **settings)
        estimates = result["non-private"].estimates
        assert estimates is not None
        errors = np.abs(estimates[0] - expected[:, None, :]) / np.maximum(expected, 1)[:, None, :]
        np.testing.assert_allclose(result["non-private"].are_by_slot[0], errors.mean(axis=(1, 2)), rtol=1e-12)
        assert any("last check-in wins" in note for note in result.notes)
    assert not np.array_equal(servers["pinned"], servers["roaming"]), "who roams is counted elsewhere"


def test_a_file_of_counts_is_the_truth_of_every_run(tmp_path: Path) -> None:
    """A real series happened once; only shares, observation, network and noise differ between runs."""
    file = tmp_path / "counts.csv"
    file.write_text("week,north,south\n" + "".join(f"{t},{100 + 3 * t},{50 + t % 7}\n" for t in range(30)))
    world = engine._World(configure("non-private", str(file), **TINY), [0, 1])
    np.testing.assert_array_equal(world.truth[:, 0], world.truth[:, 1])
    assert world.truth[4, 0].tolist() == [112.0, 54.0]
    assert not np.array_equal(world.counts[:, :6], world.counts[:, 6:])


def test_schemes_start_with_the_settings_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that is lost between the command line and the scheme gives the results of another simulation."""
    given: list[dpcrowd.Setting] = []
    real = dpcrowd.DPCrowd.start

    def start(self: dpcrowd.DPCrowd, setting: dpcrowd.Setting) -> Any:
        given.append(setting)
        return real(self, setting)

    monkeypatch.setattr(dpcrowd.DPCrowd, "start", start)
    asked = {"observation": "binomial", "accounting": "per-region", "form": "matrix", "tuning": {"theta": 9.0}}
    tiny("dpcrowd", "multi-linear", epsilon=0.7, users="roaming", **asked)
    tiny("dpcrowd", interval=4, sampling="staggered", dynamic=True)
    own, plain = given
    assert (own.observation, own.accounting, own.form, own.tuning.theta) == ("binomial", "per-region", "matrix", 9.0)
    assert own.guarantee == dpcrowd.Guarantee.finite(30, 0.7, users="roaming")
    assert own.servers == plain.servers == 12, "a batch is one network of runs x servers"
    assert own.regions == 6
    assert own.engine == plain.engine == best_engine()
    assert own.phases is None
    assert (plain.observation, plain.accounting, plain.form) == ("paper", "sound", "diagonal")
    assert plain.phases is not None
    assert plain.phases.tolist() == [0, 1, 2, 3, 0, 1] * 2
