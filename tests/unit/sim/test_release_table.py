"""The table of releases: what no server writes is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpcrowd.cli.main import main

HEADER = "slot,region,estimate,low,high,measurement,measurement_variance"


def written(path: Path, *changed: str) -> Path:
    """A table of ten slots of one region, followed by the lines of `changed`."""
    rows = [f"{slot},hall,{50 + slot % 3},40,60,{48 + slot % 5},25" for slot in range(10)]
    path.write_text("\n".join([HEADER, *rows, *changed]) + "\n", encoding="utf-8")
    return path


def test_a_table_without_rows_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that has released nothing exports a header: the fit ended in a traceback."""
    path = tmp_path / "releases.csv"
    path.write_text(HEADER + "\n", encoding="utf-8")
    assert main(["fit", str(path), "--releases", "--source", "ours"]) == 2
    message = "releases.csv has a header but no data; expected one line for each slot and region."
    assert message in capsys.readouterr().err
