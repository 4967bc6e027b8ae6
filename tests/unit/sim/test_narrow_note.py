"""Why intervals are too narrow: the reason that a result names has to be one that the scheme can have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.sim.fit import fit
from dpcrowd.sim.simulate import simulate


@pytest.mark.slow
def test_what_moves_cost_is_said_as_measured() -> None:
    """Learning was recommended where it was on, and intervals that cover 97% were called too narrow."""
    settings: dict[str, Any] = {
        **{"servers": 8, "shares": "partition", "share_width": 0.1, "window": 20, "slots": 80, "hops_per_slot": "all"},
        **{"burn_in": 20, "runs": 1, "jobs": 1},
    }
    notes = {}
    for learn in (True, False):
        result = simulate("relay", "multi-linear", learn=learn, **settings)
        (note,) = (note for note in result.notes if "people move between" in note)
        assert "by a full matrix A, and the diagonal form predicts that each region stays as it is (A = 1)" in note
        assert ("intervals of relay too narrow" in note) == (result.summary()[0]["coverage95"] < 0.94)
        notes[learn] = note
    assert notes[True].endswith("its filters are less accurate.")
    assert notes[False].endswith("intervals of relay too narrow (learn=True makes them wider).")
    without = simulate("relay", "multi-linear", **{**settings, "share_width": None, "reach": 1})
    assert any(note.endswith("(form=matrix can).") for note in without.notes)
    matrix = simulate("relay", "multi-linear", **{**settings, "share_width": None, "reach": 1}, form="matrix")
    (note,) = (note for note in matrix.notes if "people move between" in note)
    assert note.endswith("which the matrix form knows.")


@pytest.mark.slow
def test_the_model_alone_has_no_shares(tmp_path: Path) -> None:
    """`past` reads no counts: that shares differ by region cannot be why it is wrong."""
    rng = np.random.default_rng(4)
    counts = rng.poisson(np.where(np.arange(120)[:, None] < 60, 800, 1600), (120, 4))
    fit(counts, source="drawn", span="0:0.5", out=tmp_path / "model.toml")
    result = simulate(
        "relay,past",
        counts,
        servers=6,
        shares="partition",
        composition=0.5,
        epsilon=20.0,
        window=10,
        model=tmp_path / "model.toml",
        hops_per_slot="all",
        burn_in=70,
        runs=1,
        jobs=1,
    )
    reasons = {note.partition(":")[0]: note for note in result.notes if "too narrow" in note}
    assert "the model does not fit" in reasons["past"]
    assert "shares" not in reasons["past"]
    assert "share_width=0.1 it learns them" in reasons["relay"]


def test_schemes_whose_intervals_are_too_narrow_for_one_reason_share_a_warning() -> None:
    """Two lines that differed by a name and a number alone were read as two problems."""
    settings: dict[str, Any] = {"servers": 6, "density": 0.5, "window": 10, "runs": 1, "jobs": 1, "burn_in": 5}
    counts = np.cumsum(np.random.default_rng(0).choice([-300, 300], (60, 1)), axis=0) + 20_000
    result = simulate("dkalman-uniform,kalman-uniform", counts, process_var=1.0, epsilon=10.0, **settings)
    first, second = (f"{row['coverage95']:.1%}" for row in result.summary())
    (warning,) = (text for text in result.warnings if "too narrow" in text)
    assert warning == (
        f"dkalman-uniform, kalman-uniform: only {first} and {second} of their 95% intervals contain the truth. They "
        "are too narrow: the model does not fit these data."
    )
