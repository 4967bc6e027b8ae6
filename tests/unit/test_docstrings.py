"""The examples in docstrings run, and the parts that a reader begins with have one."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import dpcrowd

PACKAGE = Path(dpcrowd.__file__).parent
MODULES = sorted(
    ".".join(("dpcrowd", *path.relative_to(PACKAGE).with_suffix("").parts))
    for path in PACKAGE.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)
WITH_EXAMPLES = (
    "Graph Guarantee ObserverLedger ProcessModel SeededNoise Server SimulationResult Tuning build_graph "
    "counts_from_array load_data make_scheme noise_var open_ledger perturb_counts simulate"
).split()


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    """An example that no longer works is worse than none: it is what people copy."""
    module = import_module(name)
    done = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert done.attempted > 0
    assert done.failed == 0, "see the captured output"


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_public_api_has_examples(name: str) -> None:
    """`help(dpcrowd.simulate)` should show how it is called."""
    assert ">>>" in (getattr(dpcrowd, name).__doc__ or "")
