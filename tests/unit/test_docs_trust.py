"""docs/trust.md names tests that exist, and says truly how often they try."""

from __future__ import annotations

import ast
import re

import pytest

from project_support import ROOT

PAGE = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "::" in line]


def function_of(name: str) -> ast.FunctionDef:
    """The test that a name such as tests/unit/test_x.py::test_y means."""
    file, _, test = name.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    (found,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == test]
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:40])
def test_every_row_is_shown_by_tests_that_exist(row: str) -> None:
    """A test that was renamed or removed leaves a claim that nothing shows."""
    cells = [cell.strip() for cell in row.strip("|").split(" | ")]
    assert len(cells) == 6
    names = re.findall(r"`(tests/[^`]+::test_[a-z0-9_]+)`", cells[5])
    assert names
    for function in map(function_of, names):
        sequences = re.search(r"(\d+) random sequences", cells[1])
        if sequences:
            decorators = " ".join(ast.unparse(decorator) for decorator in function.decorator_list)
            assert re.search(rf"max_examples=(examples\()?{sequences[1]}\b", decorators)


def test_all_faults_are_on_the_page() -> None:
    """Also those that only the trial tries: a fault that is left out looks as if nobody had thought of it."""
    assert len(ROWS) > 15
    words = "kill SIGSTOP copy full ahead back port certificate flood connections headers neighbour "
    words += "deleted expires reload renewed accepted"
    for word in words.split():
        assert re.search(rf"^\| [^|]*{word}", PAGE, flags=re.MULTILINE), word
