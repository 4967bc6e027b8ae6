"""How `make test` divides the tests: none is left out, at most two of live servers run at the same time, and what runs
beside them fails it as well."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from project_support import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_no_timed_test_is_left_out() -> None:
    """`make unit` looks for files with timed tests in tests/e2e only: one with this mark elsewhere would never run."""
    commands = re.findall(r"^\t\$\(BIN\)/python -m pytest (.*)$", MAKEFILE.partition("\nunit:")[2], flags=re.MULTILINE)
    assert [re.search(r'-m ("[^"]*"|\S+)(.*)', one).groups() for one in commands[:2]] == [  # type: ignore[union-attr]
        ('"not timed"', ""),
        ("timed", " $(TIMED)"),
    ]
    mark = "mark." + "timed"
    assert f"\nTIMED = $(shell grep -lw {mark} tests/e2e/test_*.py)\n" in MAKEFILE
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if mark in path.read_text(encoding="utf-8")]
    assert marked
    assert {path.parent.name for path in marked} == {"e2e"}


def _conftest(pytestconfig: pytest.Config) -> Any:
    (conftest,) = [one for one in pytestconfig.pluginmanager.get_plugins() if hasattr(one, "LANES")]
    return conftest


def test_live_tests_run_in_two_lanes(pytestconfig: pytest.Config) -> None:
    """If every worker could take them, all cores would be busy with servers, whose slots would then be late."""
    next_unit = _conftest(pytestconfig).next_unit
    waiting = ["tests/e2e/test_node_a.py", "tests/e2e/test_demo.py", "tests/e2e/test_report.py", "tests/unit/test_a.py"]
    assert [next_unit(waiting, busy) for busy in (0, 1, 2)] == [waiting[0], waiting[0], waiting[2]]
    assert [next_unit(waiting[:2], busy) for busy in (1, 2)] == [waiting[0], None]
    assert [next_unit(waiting[3:], busy) for busy in (1, 2)] == [waiting[3], waiting[3]]


def test_tests_of_one_file_share_its_fixtures(pytestconfig: pytest.Config) -> None:
    """Divided over three workers, the tests of a file would make its fixtures three times; property tests have none
    that take long, and are long themselves."""
    unit_of = _conftest(pytestconfig).unit_of
    for folder in ("unit", "e2e", "statistical"):
        file = f"tests/{folder}/test_a.py"
        assert {unit_of(f"{file}::test_{name}") for name in ("1", "2[x::y]")} == {file}
    assert unit_of("tests/property/test_a.py::test_1") != unit_of("tests/property/test_a.py::test_2")
    assert unit_of("tests/property/test_a.py::test_1[x]") == unit_of("tests/property/test_a.py::test_2[x]")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("target", ["check", "test"])
@pytest.mark.parametrize("broken", ["", "ruff", "mypy", "lint-imports", "python", "python mypy"])
def test_whatever_fails_fails_the_run_and_is_shown(tmp_path: Path, target: str, broken: str) -> None:
    """Types and layers run beside the tests: a failure that is lost in the background would let everything pass."""
    for tool in ("ruff", "mypy", "lint-imports", "mkdocs", "python"):
        command = tmp_path / "bin" / tool
        command.parent.mkdir(exist_ok=True)
        command.write_text(f'#!/bin/sh\ncase " $BROKEN " in *" {tool} "*) echo "{tool} is broken"; exit 3;; esac\n')
        command.chmod(0o755)
    (tmp_path / ".installed").touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    ran = subprocess.run(
        ["make", f"VENV={tmp_path}", target],
        cwd=ROOT,
        env={**environment, "BROKEN": broken},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode != 0) == bool(broken), ran.stdout + ran.stderr
    assert set(re.findall(r"(\S+) is broken", ran.stdout)) == set(broken.split())
    assert (f"make {target}: " in ran.stdout.splitlines()[-1]) != (broken == "ruff")
