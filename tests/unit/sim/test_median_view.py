"""The median view in results of simulations: its errors, and the note where a guess of 0 would be closer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.filters.median import median_view
from dpcrowd.sim.data.counts import counts_from_array

SETTINGS: dict[str, Any] = {
    **{"servers": 4, "density": 1.0, "window": 10, "runs": 2, "jobs": 1, "burn_in": 5, "shares": "partition"}
}
CLOSER = "a guess of 0 everywhere, whose total error is 1, would be closer than "


def sparse(mean: float = 0.2) -> np.ndarray:
    return np.random.default_rng(1).poisson(mean, (120, 6))


def closer_notes(result: dpcrowd.SimulationResult) -> list[str]:
    return [note for note in result.notes if note.startswith(CLOSER)]


@pytest.mark.slow
def test_the_median_view_is_scored_beside_the_estimates() -> None:
    """An error of other numbers than those of the view would recommend it where it is worse, or the reverse."""
    counts = sparse(0.9)
    result = dpcrowd.simulate("relay", counts, median=True, keep_estimates=True, **SETTINGS)
    record = result["relay"]
    assert record.estimates is not None
    assert record.variances is not None
    assert record.median_mae is not None
    errors = np.abs(median_view(record.estimates, record.variances) - counts[None, :, None])[:, 5:]
    assert record.median_mae == pytest.approx(errors.mean(axis=(1, 2, 3)))
    (row,) = result.summary()
    assert row["median"]["total_error"]["mean"] == pytest.approx(errors.sum() / (8 * counts[5:].sum()))
    assert row["median"]["total_error"]["mean"] < row["total_error"]["mean"]
    table = result.table()
    assert table["median_mae"] == record.median_mae.tolist()
    assert len(table["median_total_error"]) == 2
    without = dpcrowd.simulate("relay", counts, **SETTINGS)
    assert "median" not in without.summary()[0]
    assert "median_mae" not in without.table()


def test_a_scheme_without_variances_has_no_median_view() -> None:
    """How skewed its counts are is not known; an error of 0 would look perfect."""
    result = dpcrowd.simulate("bd", sparse(), median=True, nonnegative=True, **SETTINGS)
    (row,) = result.summary()
    assert row["median"] == {name: {"mean": None, "ci95": None} for name in ("total_error", "mae")}
    assert row["nonnegative"]["mae"]["mean"] > 0.0, "it needs no variances"
    assert result.table()["median_mae"] == [None, None]


@pytest.mark.slow
def test_the_model_alone_has_a_median_view_and_a_note() -> None:
    """Even a model that is right looks worse than a guess of 0 by absolute error, which readers took for a defect."""
    counts = sparse()
    model = dpcrowd.fit(counts_from_array(counts[:60]), source="made up")
    result = dpcrowd.simulate("relay,past", counts[60:], model=model, median=True, **SETTINGS)
    scores = {row["scheme"]: row["median"]["total_error"]["mean"] for row in result.summary()}
    assert scores["past"] == pytest.approx(1.0), "nobody, everywhere"
    assert result.summary()[1]["total_error"]["mean"] > 1.2
    (note,) = closer_notes(result)
    assert note.startswith(f"{CLOSER}relay, past: estimates are expected counts, and most counts here (")
    assert "the median view has the number that is closest most often" in note
    (note,) = closer_notes(dpcrowd.simulate("past", counts[60:], model=model, **SETTINGS))
    assert "--median (in Python: median=True) shows" in note


def test_noise_that_is_larger_than_the_crowd_gets_another_note() -> None:
    """No note said that nobody would have been closer; one on counts of 0 would be wrong where none is."""
    noisy = dpcrowd.simulate("uniform", sparse(6.0) + 1, epsilon=0.01, **SETTINGS)
    assert noisy.summary()[0]["total_error"]["mean"] > 1.0
    (note,) = closer_notes(noisy)
    assert note.startswith(
        f"{CLOSER}uniform: these errors are larger than the crowd itself, because of noise (a larger epsilon"
    )
    assert "most counts" not in note
    few = np.zeros((60, 4), dtype=np.int64)
    few[:, 0] = 5000
    close = dpcrowd.simulate("uniform", few, epsilon=10.0, **SETTINGS)
    assert close.summary()[0]["total_error"]["mean"] < 1.0
    assert not closer_notes(close)


def test_it_is_a_warning_where_estimates_have_intervals() -> None:
    """--quiet hid it, although it kept the remark that intervals are wider than they need to be."""
    settings = {**SETTINGS, "epsilon": 0.01}
    relay = dpcrowd.simulate("relay,bd", sparse(6.0) + 1, **settings)
    assert closer_notes(relay)
    assert set(closer_notes(relay)) <= set(relay.warnings)
    without = dpcrowd.simulate("bd", sparse(6.0) + 1, **settings)
    assert closer_notes(without), "it is said of others, too"
    assert not set(closer_notes(without)) & set(without.warnings)
