"""`dpcrowd schemes`: the table of all schemes, for people and for programs."""

from __future__ import annotations

import json

import pytest

from dpcrowd.cli.main import main
from sim_support import NAMES


def test_json_has_every_scheme_and_column(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs choose schemes from here: every name of the command line, in one order."""
    assert main(["schemes", "--json"]) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)["schemes"]
    assert tuple(row["scheme"] for row in rows) == (*NAMES, "past")
    for row in rows:
        assert list(row) == ["scheme", "architecture", "sampling", "fusion", "guarantee", "live", "claimed_by"]
        assert isinstance(row["live"], bool)
        assert row["claimed_by"] is None
        assert row["guarantee"] in ("none", "finite", "window", "both")
    assert [row["scheme"] for row in rows if row["live"]] == ["dpcrowd", "dpcrowd-w", "dpcrowd-plus", "relay"]
    assert out.count("\n") == 1
    assert err == ""


def test_the_table_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """One line a scheme where there is room, and every word of the JSON in it."""
    main(["schemes", "--json"])
    rows = json.loads(capsys.readouterr().out)["schemes"]
    assert main(["schemes"]) == 0
    out, err = capsys.readouterr()
    head, *lines = out.splitlines()
    assert head.split() == "scheme architecture sampling and budget fusion guarantee live node".split()
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        for column in ("scheme", "architecture", "sampling", "fusion", "guarantee"):
            assert row[column] in line
        assert line.rstrip().endswith("yes") == row["live"]
    assert err == ""


def test_the_guarantee_of_the_table_is_the_one_that_a_scheme_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """The table is what a user goes by when choosing between --window and --horizon."""
    from dpcrowd.schemes.registry import SCHEMES

    main(["schemes", "--json"])
    words = {frozenset(): "none", frozenset({"finite"}): "finite", frozenset({"window"}): "window"}
    for row in json.loads(capsys.readouterr().out)["schemes"]:
        assert words.get(SCHEMES[row["scheme"]].kinds, "both") == row["guarantee"]
