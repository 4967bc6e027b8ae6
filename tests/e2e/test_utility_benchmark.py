"""The benchmark of relay's usefulness, in its smallest size: every part runs, and its report can be read."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from project_support import ROOT

BENCHMARKS = ROOT / "benchmarks"
_PARTS = ("table", "staggered", "frontier", "coverage", "ledger", "promise", "speed")


@pytest.mark.slow
def test_a_smoke_run_writes_tables_and_the_figure(tmp_path: Path) -> None:
    """It takes an hour in full: nobody should learn after that hour that the report cannot be written."""
    command = [sys.executable, str(BENCHMARKS / "utility.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    parts = {part: json.loads((tmp_path / f"{part}.json").read_text()) for part in _PARTS}
    schemes = {row["scheme"] for row in parts["table"]}
    assert {"relay, K=1", "relay, K=3", "everything at once", "dpcrowd", "dsample"} <= schemes
    for row in parts["table"]:
        assert row["ratio"][0] > 0
    report = (tmp_path / "utility.md").read_text(encoding="utf-8")
    for heading in ("Ratios to DPCrowd", "staggered sampling", "the frontier", "One promise", "Speed"):
        assert heading in report
    for heading in ("flooding schemes", "other schemes that send", "Coverage of relay", "a ledger per region"):
        assert heading in report
    for figure in ("utility", "communication"):
        assert "<svg" in (tmp_path / f"{figure}.svg").read_text(encoding="utf-8")


def _ledger_row(ratio: float) -> dict[str, object]:
    more = {"data": "multi-flu", "epsilon": 1.0, "links": "static", "paid": 1.0, "ratio": [ratio, None, None]}
    return {"scheme": "relay, K=3", **more}


def test_the_report_says_missed_only_where_a_target_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """“These are missed” above an empty table reads as a failure of the report."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    report = importlib.import_module("utility_report")
    plus = {**_ledger_row(1.0), "scheme": "dpcrowd-plus, ledger per region", "paid": 17.0}
    texts = []
    for ratio in (0.5, 1.5):
        report.write_report({"ledger": [_ledger_row(ratio), plus]}, tmp_path / "utility.md")
        texts.append((tmp_path / "utility.md").read_text(encoding="utf-8"))
    assert "Targets: all 1 reached" in texts[0]
    assert "missed" not in texts[0]
    assert "Targets: 0 of 1 reached; these are missed" in texts[1]
    report.write_report({}, tmp_path / "utility.md")
    assert "Targets" not in (tmp_path / "utility.md").read_text(encoding="utf-8")


def test_the_frontier_leaves_out_what_costs_more_for_a_larger_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that another one beats in both would be recommended to readers."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    undominated = importlib.import_module("utility_communication").undominated
    numbers = [(100, 0.5), (200, 0.6), (200, 0.4), (300, 0.4), (0, 0.1), (400, 0.3)]
    rows = [{"bytes": cost, "are": error} for cost, error in numbers]
    assert [(row["bytes"], row["are"]) for row in undominated(rows)] == [(100, 0.5), (200, 0.4), (400, 0.3)]
