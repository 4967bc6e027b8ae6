"""A process model in a few lines."""

from __future__ import annotations

import numpy as np
import pytest

import dpcrowd
from dpcrowd.cli.main import main


def test_a_model_prints_what_it_says() -> None:
    """At a Python prompt thousands of characters of a dataclass would scroll by, with every profile."""
    counts = np.random.default_rng(0).poisson([300, 80, 12], (60, 3))
    model = dpcrowd.fit(counts, source="published", season=7)
    text = str(model)
    assert repr(model) == "Model(3 regions, season 7, slots 0 to 59 of 'array')"
    lines = text.splitlines()
    assert lines[0] == "process model of slots 0 to 59 of 'array'"
    assert lines[-1] == '  source: "published"'
    assert len(text) < 800
    levels = sorted(region.level for region in model.regions)
    (level,) = (line for line in lines if line.split()[0] == "level")
    assert level.split(maxsplit=1)[1] == f"{levels[0]:.4g} to {levels[-1]:.4g}"


def test_a_range_that_is_printed_as_one_number_is_one() -> None:
    """'0.00495 to 0.00495' looks like a mistake, or like a range that was rounded away."""
    model = dpcrowd.fit(np.tile([[5], [7], [6]], (20, 2)), source="published", season="none")
    (level,) = (line for line in str(model).splitlines() if line.split()[0] == "level")
    assert level.split()[1:] == ["6"]


def test_print_and_the_command_say_the_same(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Two tables of one model would sooner or later say different things."""
    file = f"{tmp_path}/counts.csv"
    counts = np.random.default_rng(0).poisson([300, 80], (60, 2))
    rows = "".join(f"{slot},{row[0]},{row[1]}\n" for slot, row in enumerate(counts.tolist()))
    with open(file, "w", encoding="utf-8") as out:
        out.write(f"slot,north,south\n{rows}")
    assert main(["fit", file, "--source", "published", "--season", "none"]) == 0
    printed = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    for line in str(dpcrowd.fit(file, source="published", season="none")).splitlines()[1:-1]:
        assert " ".join(line.split()) in printed
