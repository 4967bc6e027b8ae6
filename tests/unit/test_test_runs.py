"""How `make test` divides the tests: none is left out, and at most two of live servers run at the same time."""

from __future__ import annotations

import re

import pytest

from project_support import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_no_timed_test_is_left_out() -> None:
    """`make unit` looks for timed tests in tests/e2e only: one with this mark elsewhere would never run."""
    commands = re.findall(r"^\t\$\(BIN\)/python -m pytest (.*)$", MAKEFILE.partition("\nunit:")[2], flags=re.MULTILINE)
    assert [re.search(r'-m ("[^"]*"|\S+)(.*)', one).groups() for one in commands[:2]] == [  # type: ignore[union-attr]
        ('"not timed"', ""),
        ("timed", " tests/e2e"),
    ]
    mark = "mark." + "timed"
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if mark in path.read_text(encoding="utf-8")]
    assert marked
    assert {path.parent.name for path in marked} == {"e2e"}


def test_live_tests_run_in_two_lanes(pytestconfig: pytest.Config) -> None:
    """With a lane per file, all cores would be busy with servers, whose slots would then be late."""
    plugins = [one for one in pytestconfig.pluginmanager.get_plugins() if hasattr(one, "LANES")]
    (conftest,) = plugins
    lane_of = conftest.lanes()
    files = [f"tests/e2e/test_{letter}.py" for letter in "abcd"]
    scopes = [lane_of(f"{file}::test_{number}") for file in files for number in (1, 2)]
    assert scopes == ["lane 0"] * 2 + ["lane 1"] * 2 + ["lane 0"] * 2 + ["lane 1"] * 2
    assert lane_of("tests/unit/test_a.py::test_1") == "tests/unit/test_a.py::test_1"
