"""Whose promise is printed: dpcrowd's own as such, that of another package with its name and what the checks found."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd import DirectState, Noise, Plan, Reading
from dpcrowd.cli.main import main
from dpcrowd.schemes.base import Scheme
from dpcrowd.schemes.flooding import Flooding
from dpcrowd.schemes.past import Past
from dpcrowd.schemes.uniform import Uniform
from dpcrowd.sim.config import Entrant
from dpcrowd.sim.configure import configure
from dpcrowd.sim.notes import promise
from dpcrowd.sim.simulate import simulate
from dpcrowd.testing import Failure, Report
from plugin_support import Install
from sim_support import TINY, tiny_words

SOURCE = '''
import numpy as np
import dpcrowd

class Raw(dpcrowd.Uniform):
    """Raw counts, and nothing charged."""
    name = "raw"
    def perturb(self, state, plan, counts, noise):
        state.last, state.last_share = counts.astype(float), plan.shares
        return dpcrowd.Reading(state.last, plan.noise_var, np.zeros((len(counts), 1), dtype=np.int64))

class Honest(dpcrowd.Uniform):
    name = "honest"
'''
SCHEMES = {"raw": "crowd_extras:Raw", "honest": "crowd_extras:Honest"}


@pytest.mark.slow
def test_a_scheme_that_publishes_raw_counts_is_never_vouched_for(install: Install) -> None:
    """It used to be printed as "Pure 40-event differential privacy with ε = 1", in dpcrowd's name."""
    install("crowd-extras", SOURCE, schemes=SCHEMES)
    result = simulate("raw,honest,uniform", window=10, **TINY)
    raw, honest, uniform = (str(result.guarantees[name]) for name in ("raw", "honest", "uniform"))
    assert raw.startswith("claimed by crowd-extras, whose scheme does not pass dpcrowd's checks (")
    assert "depends on raw counts that did not pass through the noise" in raw
    assert honest.startswith(
        "promised by crowd-extras, whose scheme passes dpcrowd's checks; the proof is theirs: Pure"
    )
    assert uniform.startswith("Pure 10-event differential privacy")


@pytest.fixture
def no_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scheme fails the checks but `honest`; what they find is tested elsewhere, and takes a second."""
    fault = Failure("noise", "window", "it is raw")

    def report(scheme: Scheme) -> Report:
        return Report(scheme.name, failures=() if scheme.name == "honest" else (fault,))

    monkeypatch.setattr("dpcrowd.sim.notes.examine_scheme", report)
    monkeypatch.setattr("dpcrowd.sim.notes._REPORTS", {})


@pytest.mark.usefixtures("no_checks")
def test_the_table_says_so_too(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line is where most people read a promise, and an ε of 0 beside a scheme that leaks everything."""
    install("crowd-extras", SOURCE, schemes=SCHEMES)
    assert main(tiny_words("crowd_extras:Raw,uniform", "--window", "10")) == 0
    out = capsys.readouterr().out
    assert "promise of raw: claimed by crowd-extras" in out
    assert "promise of raw: Pure" not in out
    assert "\nraw * " in out
    assert "\n* does not pass dpcrowd's checks: " in out
    assert main(tiny_words("honest", "--window", "10")) == 0
    assert "*" not in capsys.readouterr().out


@pytest.mark.usefixtures("no_checks")
def test_programs_read_it_too(install: Install, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """JSON and files had the ε of a scheme that leaks everything, and no word about whose it is."""
    install("crowd-extras", SOURCE, schemes=SCHEMES)
    file = tmp_path / "runs.csv"
    words = tiny_words("raw,honest,uniform,non-private", "--window", "10", "--out", str(file))
    assert main([*words, "--wide"]) == 0
    text = capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [(row["claimed_by"], row["passes_checks"]) for row in content["results"]] == [
        ("crowd-extras", False),
        ("crowd-extras", True),
        (None, None),
        (None, None),
    ]
    for row in content["results"]:
        assert f"promise of {row['scheme']}: {row['promise']}\n" in text
    assert content["notes"]
    printed = [line for line in text.splitlines() if line.startswith(("note: ", "warning: "))]
    assert sorted(line.partition(": ")[2] for line in printed) == sorted(content["notes"])
    assert main(words) == 0
    short = capsys.readouterr().out
    for row in content["results"][:2]:
        assert f"promise of {row['scheme']}: {row['promise']}\n" in short, "whose claim it is, and what it is, stays"
    with file.open(newline="", encoding="utf-8") as lines:
        claims = {row["scheme"]: row["claimed_by"] for row in csv.DictReader(lines)}
    assert claims == {"raw": "crowd-extras", "honest": "crowd-extras", "uniform": "", "non-private": ""}


def test_a_past_that_reads_counts_is_not_said_to_read_none() -> None:
    """Every subclass of `past`, and `past` with another method, had the line that no count is read."""
    config = configure("uniform", window=10, **TINY)
    scheme = Past()
    assert "no count is read" in str(promise(config, Entrant("past", scheme, None)))
    scheme.perturb = Uniform().perturb  # type: ignore[assignment, method-assign]
    assert promise(config, Entrant("past", scheme, None)) is None


class Mine(Uniform):
    """A subclass of ours, from a user's script, that promises twice as much as it keeps."""

    name = "mine"

    def perturb(self, state: DirectState, plan: Plan, counts: Any, noise: Noise) -> Reading:
        state.ledger.spend(plan.slot, plan.due * plan.amount)
        state.last = noise.noisy(plan.slot, counts, 2 * plan.amount, 1, np.ones(counts.shape, dtype=np.bool_))
        return Reading(state.last, plan.noise_var, plan.due * plan.amount)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [Mine(), Flooding(Mine())])
def test_a_subclass_or_a_wrapper_does_not_inherit_the_good_name(scheme: Uniform | Flooding) -> None:
    """One changed method is enough to break a promise; whoever changed it answers for it."""
    result = simulate({"x": scheme}, window=10, **TINY)
    assert str(result.guarantees["x"]).startswith("claimed by ")


@pytest.mark.slow
def test_check_on_the_command_line(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """Authors of a scheme check it before they publish it: exit code 0 or 1, and the reasons."""
    install("crowd-extras", SOURCE, schemes=SCHEMES)
    assert main(["schemes", "--check", "honest"]) == 0
    assert "passed  composition" in capsys.readouterr().out
    assert main(["schemes", "--check", "crowd_extras:Raw", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)["report"]
    assert {"noise", "unpaid counts"} <= {failure["check"] for failure in report["failures"]}
    assert main(["schemes", "--check", "crowd_extras:Nothing"]) == 2
    assert "of the package crowd_extras cannot be used" in capsys.readouterr().err
