"""The plan of a reproduction: what it covers, what is missing, and what it refuses."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.experiments.figures import FIGURES, RELAY_TABLE, find_figures
from dpcrowd.experiments.figures.rosters import AT_ONCE
from dpcrowd.experiments.points.plan import make_plan
from dpcrowd.experiments.points.run import config_of, key_of
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.data.places import ENVIRONMENT
from dpcrowd.sim.fit import fit

FLU = "slot,count\n" + "".join(f"{t},{1000 + t}\n" for t in range(60))


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place without any published data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_without_the_published_data_the_synthetic_sets_are_drawn(nowhere: Path) -> None:
    """Whoever has no copy of the data still gets a report, which says what is missing and how to get it."""
    plan = make_plan(quick=True)
    assert (plan.single, plan.multi) == (("linear",), ("multi-linear",))
    assert "dpcrowd data flu" in plan.missing["flu"]
    for figure in FIGURES:
        assert figure.points(plan), figure.name
        assert {point.data for point in figure.points(plan)} <= {"linear", "multi-linear"}


def test_a_damaged_file_is_an_error_not_missing_data(nowhere: Path) -> None:
    """Otherwise a typing mistake in a file would drop half of the report without a word."""
    (nowhere / "flu.csv").write_text("slot,count\n0,-5\n")
    with pytest.raises(BadInput, match=r"flu\.csv"):
        make_plan(data_dir=nowhere)


@pytest.mark.slow
def test_a_quick_look_is_a_part_of_the_full_report(nowhere: Path) -> None:
    """So that the full report goes on from it: every quick point has to be a point of the full plan."""
    quick, full = make_plan(quick=True), make_plan()
    assert quick.runs < full.runs
    for figure in FIGURES:
        wanted = {key_of(full, point) for point in figure.points(full)}
        assert {key_of(quick, point) for point in figure.points(quick)} <= wanted, figure.name


@pytest.mark.slow
def test_every_point_is_a_simulation_that_can_be_run(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window longer than the stream or a density too low would stop a long run in its middle.

    How often relay samples is planned for one point of each figure of a quick look; for all points that takes minutes
    of a report, and depends on nothing that could be wrong here.
    """
    module = import_module("dpcrowd.sim.configure")
    real = module.planned_samples
    for plan in (make_plan(quick=True), make_plan()):
        for figure in FIGURES:
            for place, point in enumerate(figure.points(plan)):
                planned = plan.quick and place == 0
                monkeypatch.setattr(module, "planned_samples", real if planned else lambda *_: 1)
                assert config_of(plan, point).runs == min(plan.runs, point.most_runs or plan.runs)


def test_the_two_ledgers_stand_side_by_side(nowhere: Path) -> None:
    """The paper's ledger alone would make a promise that it does not keep."""
    plan = make_plan(quick=True)
    for name in ("window", "epsilon-regions"):
        (figure,) = find_figures((name,))
        ledgers = [point.accounting for point in figure.points(plan) if point.entries != (AT_ONCE,)]
        assert ledgers.count("sound") == ledgers.count("per-region") > 0
        assert any(point.form == "matrix" for point in figure.points(plan)), "one point of the matrix form beside them"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"runs": 1}, "runs must be a whole number from 2"),
        ({"runs": 0}, "runs must be"),
        ({"seed": -1}, "seed must be"),
        ({"tuning": ["nowhere.toml"]}, "nowhere.toml"),
        ({"models": ["nowhere.toml"]}, "nowhere.toml"),
    ],
)
def test_wrong_settings_are_refused_before_any_work(nowhere: Path, given: dict[str, object], told: str) -> None:
    """One run has no interval, and no claim could be judged."""
    with pytest.raises(BadInput, match=told):
        make_plan(**given)  # type: ignore[arg-type]


def test_a_model_of_other_data_is_refused(nowhere: Path, tmp_path: Path) -> None:
    """A model that no figure uses would be taken for one that all filters know."""
    counts = counts_from_array(np.arange(30) % 5, regions=["all"])
    fit(counts, source="drawn for this test", out=tmp_path / "other.toml")
    with pytest.raises(BadInput, match="which no figure uses; allowed: models of flu, multi-flu"):
        make_plan(models=[tmp_path / "other.toml"])


def test_figures_are_found_by_number_and_by_name_in_their_own_order() -> None:
    """The same figure under two names is drawn once."""
    assert [figure.number for figure in find_figures(("7", "time", "1"))] == [1, 7]
    assert [figure.number for figure in find_figures(())] == [figure.number for figure in FIGURES]
    with pytest.raises(BadInput, match="Did you mean 'density'"):
        find_figures(("densty",))


def test_the_table_of_relay_is_asked_for_like_a_figure() -> None:
    """Whoever wants the table alone would get all figures with it, or an error."""
    assert find_figures((RELAY_TABLE,)) == ()
    assert [figure.number for figure in find_figures((RELAY_TABLE, "4"))] == [4]
    with pytest.raises(BadInput, match="Did you mean 'relay'"):
        find_figures(("realy",))
