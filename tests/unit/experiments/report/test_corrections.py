"""The report says what its schemes do otherwise than the paper, under the numbers that reasons refer to."""

from __future__ import annotations

import re
from pathlib import Path

from dpcrowd.experiments.claims import CLAIMS, Verdict
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.report.claims import Judged
from dpcrowd.experiments.report.corrections import CORRECTIONS
from dpcrowd.experiments.report.facts import Facts
from dpcrowd.experiments.report.page import write_report
from project_support import ROOT

NOTES = ROOT / "docs" / "paper-notes.md"


def _page(folder: Path, plan: RunPlan, judged: Judged) -> str:
    path, _ = write_report(folder, plan, [], judged, Facts(seconds=1.0, runs=0, runs_from_disk=0))
    return path.read_text(encoding="utf-8")


def test_corrections_are_those_of_the_notes_in_their_order() -> None:
    """A reason that names correction 8 would send the reader to another one."""
    titles = dict(re.findall(r"^## (\d+)\. (.+)$", NOTES.read_text(encoding="utf-8"), re.MULTILINE))
    assert list(titles) == [str(n + 1) for n in range(len(CORRECTIONS))]
    for number, word in {
        1: "raw count",
        3: "ledger",
        5: "25",
        8: "posterior variance",
        9: "first prior",
        13: "ratio",
    }.items():
        assert word in CORRECTIONS[number - 1]


def test_corrections_are_a_numbered_list(tmp_path: Path) -> None:
    """Without numbers the references to them lead nowhere."""
    page = _page(tmp_path, RunPlan(data={}), [])
    html = page[page.index('id="corrections"') : page.index('id="claims"')]
    assert html.count("<li>") == len(CORRECTIONS)
    assert html.count("<ol>") == 1
    assert "docs/paper-notes.md" in html


def test_page_says_at_its_top_that_the_schemes_are_corrected(tmp_path: Path) -> None:
    """A reader of a failed claim must know that it is not the printed scheme that failed."""
    page = _page(tmp_path, RunPlan(data={}), [])
    top = page[: page.index("<main>")]
    assert 'The schemes are <a href="#corrections">' in top
    assert "No seed, window or data set was chosen to make a claim hold." in top
    assert page.index('id="corrections"') < page.index('id="claims"')


def test_what_holds_by_construction_is_marked_on_the_page(tmp_path: Path) -> None:
    """A tick that could not have been a cross must be seen to be one."""
    page = _page(tmp_path, RunPlan(data={}), [(claim, Verdict("holds", ())) for claim in CLAIMS])
    for claim in CLAIMS:
        name = f"claim-{claim.name}" + (f"-{claim.ledger}" if claim.ledger else "")
        row = page[page.index(f'id="{name}"') :].partition("</tbody>")[0]
        assert (">by construction</span>" in row) == claim.by_construction
