"""Points: what is simulated, and a key that is equal only where results are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.experiments.points import point as point_module
from dpcrowd.experiments.points.point import Knowledge, Point, SchemeEntry, code_digest
from dpcrowd.filters import ProcessModel
from dpcrowd.sim.data import load
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.fit import fit
from dpcrowd.sim.tuned import Tuned

LINEAR = load("linear", slots=60)
POINT = Point(
    "linear", (SchemeEntry("dpcrowd", "dpcrowd"), SchemeEntry("uniform", "uniform", stream_window=True)), density=0.3
)
WHERE = {"seed": 0, "servers": 8}


def test_a_baseline_on_a_finite_stream_promises_what_the_finite_schemes_do() -> None:
    """With its default window of 100, Uniform would protect less than DPCrowd and look better than it is."""
    config = POINT.config(LINEAR, runs=2, **WHERE)
    lengths = {entrant.label: entrant.guarantee.length for entrant in config.entrants if entrant.guarantee}
    assert lengths == {"dpcrowd": 60, "uniform": 60}


def test_settings_reach_the_simulation() -> None:
    """A setting that is dropped on the way would draw the same curve at every x."""
    swept = replace(POINT, epsilon=0.5, density=1.0, shares="partition", accounting="per-region")
    config = swept.config(LINEAR, runs=2, seed=3, servers=8)
    assert (config.network.density, config.shares, config.accounting, config.seed) == (
        1.0,
        "partition",
        "per-region",
        3,
    )
    assert all(entrant.guarantee is not None and entrant.guarantee.epsilon == 0.5 for entrant in config.entrants)
    fixed = Point("linear", (SchemeEntry("fixed", "dpcrowd", interval=7),), density=0.3).config(LINEAR, runs=2, **WHERE)
    assert fixed.entrants[0].scheme.interval == 7  # type: ignore[attr-defined]


def test_a_slow_point_may_have_fewer_runs_but_never_more() -> None:
    """The matrix form would take longer than all the rest."""
    slow = replace(POINT, most_runs=2)
    assert slow.config(LINEAR, runs=50, **WHERE).runs == 2
    assert slow.config(LINEAR, runs=1, **WHERE).runs == 1


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.5},
        {"density": 0.5},
        {"window": 10},
        {"accounting": "per-region"},
        {"form": "matrix"},
        {"shares": "partition"},
        {"by_slot": True},
        {"entries": POINT.entries[:1]},
    ],
)
def test_another_setting_is_another_key(change: dict[str, object]) -> None:
    """Results of another setting would be taken for these."""
    assert replace(POINT, **change).key(LINEAR, **WHERE) != POINT.key(LINEAR, **WHERE)  # type: ignore[arg-type]


def test_other_data_models_seeds_servers_and_code_are_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an update of the data, a new tuning or a mended scheme, old results must not be used again."""
    tuned = replace(LINEAR, tuning=replace(LINEAR.tuning, theta=1.0))
    keys = {
        POINT.key(LINEAR, **WHERE),
        POINT.key(load("linear", slots=61), **WHERE),
        POINT.key(load("linear", slots=60, process_var=1.0), **WHERE),
        POINT.key(tuned, **WHERE),
        POINT.key(LINEAR, seed=1, servers=8),
        POINT.key(LINEAR, seed=0, servers=9),
    }
    monkeypatch.setattr(point_module, "code_digest", lambda: "another version")
    keys.add(POINT.key(LINEAR, **WHERE))
    assert len(keys) == 7


def _tuned_for(scheme: str) -> Tuned:
    return Tuned(
        **{"version": "9.9", "scheme": scheme, "data": "linear", "regions": LINEAR.regions, "first": 0, "last": 60},
        **{"slots": 60, "method": "evolution", "on": "other runs", "epsilon": 1.0, "guarantee": "finite", "length": 60},
        **{"servers": 8, "runs": 2, "seed": 0, "are_before": 1.0, "are_after": 0.5, "sha256": ""},
        **{"model": ProcessModel.of(1.0, [4.0]), "tuning": {"theta": 2.0}},
    )


def test_what_was_tuned_for_one_scheme_is_given_to_no_other() -> None:
    """Whoever tunes DPCrowd and compares it with FAST would give FAST parameters that nobody has tuned for it."""
    point = Point("linear", (SchemeEntry("dpcrowd", "dpcrowd"), SchemeEntry("fast", "fast")), density=0.3)
    known = Knowledge((_tuned_for("dpcrowd"),))
    config = point.config(LINEAR, runs=2, knowledge=known, **WHERE)
    theta = {entrant.label: config.tuning_of(entrant).theta for entrant in config.entrants}
    assert theta == {"dpcrowd": 2.0, "fast": LINEAR.tuning.theta}
    assert point.key(LINEAR, knowledge=known, **WHERE) != point.key(LINEAR, **WHERE)
    others = replace(point, entries=point.entries[1:])
    assert others.key(LINEAR, knowledge=known, **WHERE) == others.key(LINEAR, **WHERE), "its results are the same"


def test_a_model_is_known_to_all_filters_of_a_point() -> None:
    """A comparison in which one filter knows the past and another does not compares knowledge, not schemes."""
    data = counts_from_array(np.arange(60) % 7 + 20)
    known = Knowledge(model=fit(data, source="drawn for this test"))
    config = POINT.config(data, runs=2, knowledge=known, **WHERE)
    assert config.learn
    assert all(config.model_of(entrant).course is not None for entrant in config.entrants)
    assert POINT.key(data, knowledge=known, **WHERE) != POINT.key(data, **WHERE)
    relative = Knowledge(model=replace(known.model, variance="relative"))
    assert POINT.key(data, knowledge=relative, **WHERE) != POINT.key(data, knowledge=known, **WHERE)
    tuned = replace(_tuned_for("dpcrowd"), data=data.name, regions=data.regions)
    both = POINT.config(data, runs=2, knowledge=Knowledge((tuned,), known.model), **WHERE)
    assert both.model_of(both.entrants[0]).course is not None, "a tuned Q must not take the place of the model silently"
    assert both.tuning_of(both.entrants[0]).theta == 2.0


def test_the_number_of_runs_is_not_part_of_the_key() -> None:
    """More runs go on from those that are there."""
    assert replace(POINT, most_runs=2).key(LINEAR, **WHERE) == POINT.key(LINEAR, **WHERE)
    assert len(code_digest()) == 64


def test_settings_that_came_later_do_not_change_older_keys() -> None:
    """A report folder of an earlier version would be simulated again from the start."""
    settings = POINT._settings()
    names = {"data", "entries", "epsilon", "density", "window", "accounting", "form", "shares", "by_slot"}
    assert set(settings) == names, "what a key was made of before there were hops per slot and static links"
    assert [set(entry) for entry in settings["entries"]] == [{"label", "scheme", "interval", "whole"}] * 2
    later = [
        replace(POINT, dynamic=False),
        replace(POINT, entries=(SchemeEntry("relay", "relay", hops_per_slot=3),)),
        replace(POINT, entries=(SchemeEntry("relay", "relay"),)),
    ]
    assert len({point.key(LINEAR, **WHERE) for point in (POINT, *later)}) == 4


def test_hops_per_slot_and_links_reach_the_simulation() -> None:
    """Every variant of relay would be the same curve, and static links would be drawn anew."""
    entries = (SchemeEntry("three", "relay", hops_per_slot=3), SchemeEntry("all", "relay", hops_per_slot="all"))
    config = replace(POINT, entries=entries, dynamic=False).config(LINEAR, runs=2, **WHERE)
    assert [entrant.scheme.rounds for entrant in config.entrants] == [3, None]  # type: ignore[attr-defined]
    assert not config.network.dynamic
    assert POINT.config(LINEAR, runs=2, **WHERE).network.dynamic
