"""The report of benchmarks/real.py, from rows that were not measured."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from project_support import ROOT


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import real

    return real


def _row(scheme: str, model: str, error: float) -> dict[str, Any]:
    cell = {"series": "flu", "shares": "partition", "epsilon": 1.0, "scheme": scheme, "model": model}
    return {**cell, "total_error": error, "total_errors": [error], "are": error, "mae": 1.0, "coverage": 0.95}


def test_nothing_is_said_of_schemes_that_were_not_measured(real: ModuleType) -> None:
    """With relay alone, "below every other private scheme: 0 of 0 cells" read as a failure."""
    rows = [_row("relay", "model, groups", 0.2), _row("past", "model", 0.3)]
    alone = real.report(rows, markdown=False)
    assert "below past: 1 of 1 cells" in alone
    assert "every other private scheme" not in alone
    assert "best other" not in alone
    both = real.report([*rows, _row("dsample", "none", 0.4)], markdown=False)
    assert "below every other private scheme: 1 of 1 cells" in both
    assert "best other" in both


def test_relay_without_a_model_has_a_line_of_its_own(real: ModuleType) -> None:
    """Relay without a model is not among the other schemes: a reader could not see that a model had made it worse."""
    rows = [_row("relay", "model, groups", 0.2), _row("past", "model", 0.3)]
    assert "without a model" not in real.report(rows, markdown=False)
    worse = real.report([*rows, _row("relay", "none", 0.1)], markdown=False)
    assert "below relay without a model: 0 of 1 cells; not flu partition 1" in worse
    assert "below relay without a model: 1 of 1 cells" in real.report(
        [*rows, _row("relay", "none", 0.4)], markdown=False
    )


def test_every_scheme_has_its_errors(real: ModuleType) -> None:
    """Of schemes other than relay the report had the coverage only; whoever doubted a rank had to read the JSON."""
    rows = [_row("relay", "model, groups", 0.2), _row("dsample", "none", float("nan")), _row("past", "model", 0.1)]
    rows[1]["coverage"] = None
    text = real.report(rows, markdown=True)
    assert text.splitlines()[2:5] == [
        "| flu | partition | 1 | past | model | 0.1 | 0.1 | 1 | 0.95 |",
        "| flu | partition | 1 | relay | model, groups | 0.2 | 0.2 | 1 | 0.95 |",
        "| flu | partition | 1 | dsample | none | nan | nan | 1 |  |",
    ]


def test_a_ratio_has_its_standard_error(real: ModuleType) -> None:
    """Two runs decided cells that more runs decide otherwise, and the table did not show how far they differ."""
    ours, past = _row("relay", "model, groups", 0.2), _row("past", "model", 0.2)
    ours["total_errors"], past["total_errors"] = [0.19, 0.21], [0.2, 0.2]
    assert real.ratio_error(ours, past) == pytest.approx(0.05, rel=0.01), "half of the difference of 0.95 and 1.05"
    assert real.ratio_error(_row("relay", "model", 0.2), _row("past", "model", 0.2)) is None
    assert "| / past | ± |" in real.report([ours, past], markdown=True)
