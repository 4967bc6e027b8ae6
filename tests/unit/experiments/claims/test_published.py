"""How many claims hold, as the pages say it: against the list of claims, against each other, and against the script."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dpcrowd.experiments.claims.claim import CLAIMS
from project_support import ROOT

SENTENCE = re.compile(
    r"Of the paper's (\d+) claims (\d+) hold, (\d+) do not, and (\d+) (?:is|are) undecided \(`dpcrowd reproduce"
)


def verdicts(page: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.split("<!-- verdicts -->\n")[1].split("\n<!-- end of verdicts -->")[0]


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verdicts", ROOT / "scripts" / "verdicts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_says_how_many_of_the_claims_hold() -> None:
    """A number that nobody holds against the verdicts stays when they change."""
    page = verdicts("docs/claims.md")
    match = SENTENCE.search(verdicts("README.md"))
    assert match is not None
    assert page.startswith(verdicts("README.md")), "both pages say the same"
    marks = Counter(re.findall(r"\| ([✓✗~–]) \|$", page, flags=re.MULTILINE))
    claims, holds, fails, undecided = (int(number) for number in match.groups())
    assert (marks["✓"], marks["✗"], marks["~"], marks["–"]) == (holds, fails, undecided, 0)
    assert claims == holds + fails + undecided == len(CLAIMS)


def test_every_claim_has_its_verdict() -> None:
    """A claim that is new or renamed has no verdict yet: run `dpcrowd reproduce`, then scripts/verdicts.py."""
    rows = re.findall(r"^\| `(\w+)` \| ([\w-]*) \|", verdicts("docs/claims.md"), flags=re.MULTILINE)
    assert rows == [(claim.name, claim.ledger or "") for claim in CLAIMS]


def test_the_script_writes_what_the_result_says(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next complete run replaces the numbers of both pages, and an incomplete one is refused."""
    report: dict[str, Any] = {
        "runs": 50,
        "quick": False,
        "missing": [],
        "summary": {"holds": 1, "does not hold": 1, "undecided": 0, "not judged": 0},
        "claims": [
            {"name": "a_holds", "ledger": None, "outcome": "holds"},
            {"name": "b_fails", "ledger": "sound", "outcome": "does not hold"},
        ],
    }
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "docs/claims.md"):
        (tmp_path / page).write_text(
            "before\n<!-- verdicts -->\nold\n<!-- end of verdicts -->\nafter\n", encoding="utf-8"
        )
    file = tmp_path / "claims.json"
    file.write_text(json.dumps(report), encoding="utf-8")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["verdicts.py", str(file)])
    script.main()
    sentence = (
        "Of the paper's 2 claims 1 hold, 1 do not, and 0 are undecided (`dpcrowd reproduce`: 50 runs of every point)."
    )
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert readme == f"before\n<!-- verdicts -->\n{sentence}\n<!-- end of verdicts -->\nafter\n"
    page = (tmp_path / "docs" / "claims.md").read_text(encoding="utf-8")
    assert "| `a_holds` |  | ✓ |\n| `b_fails` | sound | ✗ |\n<!--" in page
    file.write_text(json.dumps({**report, "missing": ["flu"]}), encoding="utf-8")
    with pytest.raises(SystemExit, match="not complete: missing data"):
        script.main()
