"""The table of mutants fits the code: whoever moves code that keeps the promise moves its mutants with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutants import ROOT, apply, place
from mutants_table import MUTANTS, Mutant

by_name = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)


@by_name
def test_its_text_occurs_exactly_once(mutant: Mutant) -> None:
    """A mutant whose text is gone changes nothing, and would be forgotten."""
    assert place(mutant).read_text(encoding="utf-8").count(mutant.old) == 1
    assert mutant.new != mutant.old
    assert mutant.tests
    assert all((ROOT / "tests" / test).is_file() for test in mutant.tests)


def test_names_are_used_once_and_all_parts_have_some() -> None:
    """`--only` would run another mutant than was meant; a part without mutants is a part without a safety net."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
    for part in ("privacy/", "node/machine/", "node/storage/", "node/live/"):
        assert any(mutant.file.startswith(part) for mutant in MUTANTS), part


def test_a_text_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """The script would report that the tests are bad, when the table is."""
    mutant = MUTANTS[0]
    file = place(mutant, tmp_path)
    file.parent.mkdir(parents=True)
    file.write_text(mutant.old)
    apply(mutant, tmp_path)
    assert file.read_text() == mutant.new
    with pytest.raises(LookupError, match=mutant.name):
        apply(mutant, tmp_path)
