"""The notebook of the documentation, executed from top to bottom in a kernel of its own."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

from project_support import ROOT

NOTEBOOK = ROOT / "docs" / "notebooks" / "first-steps.ipynb"


def _printed(cell: nbformat.NotebookNode) -> str:
    return "".join(output.get("text", "") for output in cell.get("outputs", []))


@pytest.fixture(scope="module")
def executed() -> nbformat.NotebookNode:
    """The notebook after a run; a cell that raises fails the tests with its traceback."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    return NotebookClient(notebook, timeout=300, kernel_name="python3").execute()


def test_notebook_is_stored_without_outputs() -> None:
    """Stored outputs would go stale unseen, and could hold paths of somebody's machine."""
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_notebook_runs_and_shows_all_schemes(executed: nbformat.NotebookNode) -> None:
    """Without a working Python interface the first thing that a new user tries would break."""
    printed = "\n".join(_printed(cell) for cell in executed.cells if cell.cell_type == "code")
    for scheme in ("fast", "dpcrowd", "central"):
        assert scheme in printed


def test_notebook_compares_in_pairs(executed: nbformat.NotebookNode) -> None:
    """The paired comparison must print a ratio and an interval, both finite numbers."""
    cell = next(cell for cell in executed.cells if "paired" in cell.metadata.get("tags", []))
    numbers = [float(word) for word in _printed(cell).split()]
    assert len(numbers) == 3
    ratio, low, high = numbers
    assert ratio > 0
    assert low <= high
