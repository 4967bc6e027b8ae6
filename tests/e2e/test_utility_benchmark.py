"""The benchmark of relay's usefulness, in its smallest size: every part runs, and its report can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from project_support import ROOT

BENCHMARKS = ROOT / "benchmarks"


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
    for heading in ("Ratios to DPCrowd", "staggered sampling", "Communication per slot", "One promise", "Speed"):
        assert heading in report
    assert "<svg" in (tmp_path / "utility.svg").read_text(encoding="utf-8")


_PARTS = ("table", "staggered", "frontier", "promise", "speed")
