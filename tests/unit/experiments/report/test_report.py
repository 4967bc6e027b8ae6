"""The report's page and claims.json: whole, escaped, the same for the same input, and needing nothing else."""

from __future__ import annotations

import itertools
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import MissingExtra
from dpcrowd.experiments.claims import Claim, Part, Verdict
from dpcrowd.experiments.draw import Drawn, draw
from dpcrowd.experiments.figures import FIGURES, Figure, Panel
from dpcrowd.experiments.points.plan import QUICK_RUNS, RUNS, RunPlan
from dpcrowd.experiments.report import Facts, write_report
from dpcrowd.experiments.report.facts import command
from dpcrowd.experiments.reproduce import reproduce
from dpcrowd.filters import ProcessModel
from dpcrowd.sim.data import DataSet
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.fit import fit
from dpcrowd.sim.tuned import Tuned
from experiments_support import curve_with, tiny_plan

PLAN = tiny_plan(runs=7, seed=11)
FIGURE = Figure(4, "epsilon", "Error <against> ε", "Fig. Trial", lambda _: [], lambda *_: [], "About & more.")
FACTS = Facts(
    seconds=3725.0, runs=196, runs_from_disk=30, versions={"dpcrowd": "9.9", "numpy": "2.0"}, cores=2, system="Any"
)
VOID = {"meta", "link", "br", "hr", "img"}


def _claim(name: str, statement: str, *figures: int, **more: Any) -> Claim:
    place = {"section": 'Section "Trial"', "quote": '"quoted & more"'}
    return Claim(name, statement, (), figures=figures, **{"rule": "By <rule>.", **place, **more})


def _part(case: str, outcome: Any, numbers: str = "1 against 2.") -> Part:
    return Part(case, outcome, numbers, "95% over 7 paired runs")


JUDGED = [
    (_claim("one", "DFAST <b>beats</b> FAST.", 4), Verdict("holds", (_part("Linear", "holds"),))),
    (
        _claim("two", "FAST is slow.", 4, ledger="per-region"),
        Verdict("does not hold", (_part("A", "holds"), _part("B", "does not hold", "8 > 3 & 2.")), "Likely: r < 1."),
    ),
    (_claim("two", "FAST is slow.", 4, ledger="sound"), Verdict("undecided", (_part("A", "undecided"),), "Few runs.")),
    (_claim("three", "Flooding agrees.", 1), None),
]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    curve = curve_with("fast", [0.1, 1.0], [3.0, 1.0], 0.1)
    panels = [Panel("Linear: ARE <1>", "ε", "ARE", (curve,)), Panel("Linear: ACE", "ε", "ACE", (curve,))]
    folder = tmp_path_factory.mktemp("drawn")
    (folder / "figure4-epsilon.parquet").touch()
    return draw(FIGURE, panels, folder)


def _page(drawn: Drawn, plan: RunPlan = PLAN, **more: Any) -> str:
    path, _ = write_report(drawn.svg.parent, plan, [drawn], more.get("judged", JUDGED), FACTS)
    return path.read_text(encoding="utf-8")


class _Outline(HTMLParser):
    """Checks that elements nest, and keeps what a test asks about."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((name, dict(attributes)))

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for seen, attributes in self.seen if seen == name]


@pytest.mark.slow
def test_text_is_escaped_and_drawings_are_not(drawn: Drawn) -> None:
    """A statement with an angle bracket would otherwise become an element, and a drawing a text."""
    page = _page(drawn)
    assert "DFAST &lt;b&gt;beats&lt;/b&gt; FAST." in page
    assert "&amp;lt;" not in page
    assert drawn.blocks[0].rows[0][0] in page


def test_a_cell_without_content_is_empty(drawn: Drawn) -> None:
    """On a phone, where a row is a card, the style hides cells that are `:empty`; a line break would be content."""
    claim = _claim("bare", "Nothing to unfold.", 4, rule="")
    page = _page(drawn, judged=[(claim, Verdict("holds", ()))])
    assert '<td role="cell" class="confidence"></td>' in page
    assert '<td colspan="3" role="cell"></td>' in page


def test_a_missing_template_library_is_said_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is written last: hours of simulation would end in an error."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtra, match=r"dpcrowd\[report\]"):
        reproduce(["1"], out=tmp_path / "report", progress=lambda tick: pytest.fail("it has begun"))


def test_page_nests_and_has_no_identifier_twice(drawn: Drawn) -> None:
    """Browsers mend broken HTML each in their own way, and a link to one of two places leads to the first."""
    outline = _Outline(_page(drawn))
    names = [attributes["id"] for _, attributes in outline.seen if "id" in attributes]
    assert len(names) == len(set(names))
    for link in outline.all("a"):
        target = link["href"] or ""
        assert target[1:] in names if target.startswith("#") else (drawn.svg.parent / target).is_file()
    assert outline.all("html") == [{"lang": "en"}]


def test_headings_go_down_one_step_at_a_time(drawn: Drawn) -> None:
    """Who navigates by headings would look for the level that is left out."""
    levels = [int(name[1]) for name, _ in _Outline(_page(drawn)).seen if re.fullmatch(r"h\d", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_table_headers_say_what_they_head(drawn: Drawn) -> None:
    """A screen reader could not say which column a number belongs to."""
    headers = _Outline(_page(drawn)).all("th")
    assert headers
    assert {header.get("scope") for header in headers} == {"col", "row"}


def test_page_needs_nothing_from_elsewhere(drawn: Drawn) -> None:
    """Opened without a network, or from an archive years later, it must look the same."""
    page = _page(drawn)
    assert "://" not in page
    assert "@import" not in page
    assert "<script" not in page
    outline = _Outline(page)
    for _, attributes in outline.seen:
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
    assert [link["href"] for link in outline.all("link")] == ["data:,"]
    policy = next(meta for meta in outline.all("meta") if "http-equiv" in meta)
    assert "default-src 'none'" in (policy["content"] or "")


def test_statements_numbers_and_reasons_are_escaped(drawn: Drawn) -> None:
    """Text of claims and figures is text, whatever is in it."""
    page = _page(drawn)
    assert "DFAST &lt;b&gt;beats&lt;/b&gt; FAST." in page
    assert "<b>beats" not in page
    assert "8 &gt; 3 &amp; 2." in page
    assert "Likely: r &lt; 1." in page
    assert "By &lt;rule&gt;." in page
    assert "Error &lt;against&gt; ε" in page
    assert "About &amp; more." in page
    assert "Linear: ARE &lt;1&gt;" in page


def test_same_input_gives_the_same_page(drawn: Drawn) -> None:
    """A report under version control would differ each time."""
    assert _page(drawn) == _page(drawn)


def test_summary_counts_every_outcome(drawn: Drawn) -> None:
    """Claims that were not judged must not vanish."""
    text = _Outline(_page(drawn)).text
    for told in ("✓1 holds", "✗1 does not hold", "~1 undecided", "–1 not judged"):
        assert told in text


def test_failing_claims_are_open_and_others_closed(drawn: Drawn) -> None:
    """A failure behind a click would be less visible than a success."""
    page = _page(drawn)
    opened = {
        body["id"]: "open" in details
        for body, details in zip(
            [body for body in _Outline(page).all("tbody") if "id" in body and body["id"] != "claim-three"],
            _Outline(page).all("details"),
            strict=True,
        )
    }
    assert opened == {"claim-one": False, "claim-two-per-region": True, "claim-two-sound": False}


def test_the_row_tells_what_decided(drawn: Drawn) -> None:
    """The first part of a failing claim may hold: its numbers would contradict the mark."""
    page = _page(drawn)
    row = page[page.index('id="claim-two-per-region"') : page.index('id="claim-two-sound"')]
    assert "<b>B</b>: 8 &gt; 3 &amp; 2.<i> (1 of 2 cases: does not hold)</i>" in row
    assert "the paper&#39;s ledger" in row
    assert "95% over 7 paired runs" in row


def test_a_claim_without_its_figure_says_which(drawn: Drawn) -> None:
    """ "Not judged" alone leaves a reader without a way to have it judged."""
    assert "Not judged: needs figure 1" in _Outline(_page(drawn)).text


def test_claims_json_has_everything(drawn: Drawn) -> None:
    """Programs read it; a key that is missing or renamed breaks them."""
    path, given = write_report(drawn.svg.parent, PLAN, [drawn], JUDGED, FACTS)
    read = json.loads((path.parent / "claims.json").read_text(encoding="utf-8"))
    assert read == given
    assert read["version"] == 1
    assert (read["seed"], read["runs"], read["quick"]) == (11, 7, False)
    assert read["missing"] == ["flu", "multi-flu"]
    assert read["summary"] == {"holds": 1, "does not hold": 1, "undecided": 1, "not judged": 1}
    assert [claim["outcome"] for claim in read["claims"]] == ["holds", "does not hold", "undecided", "not judged"]
    assert [claim["ledger"] for claim in read["claims"]] == [None, "per-region", "sound", None]
    second = read["claims"][1]
    assert {"name", "statement", "place", "ledger", "outcome", "reason", "parts"} <= set(second)
    assert second["parts"][1] == {
        "case": "B",
        "outcome": "does not hold",
        "numbers": "8 > 3 & 2.",
        "confidence": "95% over 7 paired runs",
    }
    assert "needs figure 1" in read["claims"][3]["reason"]


def test_only_a_quick_look_has_a_banner(drawn: Drawn) -> None:
    """Few runs must not be taken for the full evaluation, nor the other way round."""
    assert "Quick look: few runs (7), few values" in _page(drawn, replace(PLAN, quick=True))
    assert "Quick look" not in _page(drawn)


def test_missing_data_are_named_with_what_to_do(drawn: Drawn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures without Flu would look complete; and the folders of whoever made the report are nobody's business."""
    monkeypatch.setattr(Path, "home", lambda: Path("/home/someone"))
    plan = replace(
        PLAN, missing={"flu": "needs flu.csv, not in: /home/someone/.cache. Get it with 'dpcrowd data flu'."}
    )
    page = _page(drawn, plan)
    text = _Outline(page).text
    assert "Missing data: Flu." in text
    assert "needs flu.csv, not in: ~/.cache. Get it with 'dpcrowd data flu'." in text
    assert "someone" not in page
    assert "Missing" not in _Outline(_page(drawn, replace(PLAN, missing={}))).text


def test_parameters_show_both_values_where_they_differ(drawn: Drawn) -> None:
    """A reader compares with the paper's table: 60 slots are not its 1000."""
    text = _Outline(_page(drawn)).text
    assert "60 (paper: 1000)" in text
    assert "0.3 T" in text
    assert "0.3 T (paper: 0.3 T)" not in text
    assert "100,000" in text
    assert "1 (paper: 3)" not in text, "Multi-Flu is not there and has no column"
    assert "The shares sum to about 4 (U(0.05, 1), 8 servers; the paper's sum to 4, from U(0, 1))" in text


def test_figures_say_what_shares_sum_to(drawn: Drawn) -> None:
    """A user who counts at 26 servers at once is an assumption that all figures but the partition rest on."""
    label = "Shares sum to about 26 (U(0.05, 1), 50 servers; the paper's sum to 25)."
    assert label in _Outline(_page(drawn, replace(PLAN, servers=50))).text
    partition = replace(drawn, figure=replace(FIGURE, sweeps=FIGURES[7].sweeps))
    assert label not in _Outline(_page(partition, replace(PLAN, servers=50))).text


def test_origin_of_parameters_is_told(drawn: Drawn) -> None:
    """In-sample parameters that are not called so would flatter every filter."""
    series = np.arange(40) ** 2
    plan = replace(PLAN, data={**PLAN.data, "flu": counts_from_array(series)})
    text = _Outline(_page(drawn, plan)).text
    assert "complete series, all 40 slots that are reported here, including the future: it is in-sample" in text
    assert "those of the process that draws the data" in text


def _tuned(data: DataSet, first: int, last: int) -> Tuned:
    return Tuned(
        **{"version": "9.9", "scheme": "dpcrowd", "data": data.name, "regions": data.regions, "first": first},
        **{"last": last, "slots": 80, "method": "evolution", "on": "slots 0 to 39; <past> weeks", "epsilon": 1.0},
        **{"guarantee": "finite", "length": 40, "servers": 8, "runs": 2, "seed": 0, "are_before": 1.0},
        **{"are_after": 0.5, "sha256": "", "model": ProcessModel.of(1.0, [4.0]), "tuning": {"theta": 2.0}},
        file="my flu.toml",
    )


@pytest.mark.parametrize(
    ("first", "last", "told"),
    [
        (
            0,
            40,
            "20 of the 20 that this result scores, and the error in those is an in-sample one",
        ),
        (40, 80, "on slots 40 to 79, none of which this result scores."),
    ],
)
def test_tuning_on_the_span_reported_is_said(drawn: Drawn, first: int, last: int, told: str) -> None:
    """The report never shows an in-sample error without saying so."""
    data = counts_from_array(np.arange(40) ** 2)
    tuned = replace(_tuned(data, first, last), coverage_after=0.94)
    plan = replace(PLAN, data={"flu": data}, tuned={"flu": (tuned,)}, tuning=("past/my flu.toml",))
    text = _Outline(_page(drawn, plan)).text
    assert text.count(told) == 1
    assert "Q, theta of dpcrowd are from my flu.toml, tuned for dpcrowd by evolution" in text
    assert "It was tuned on slots 0 to 39; <past> weeks. Its 95% intervals covered 94% there." in text
    assert "Theta = 2. Other schemes do not get these parameters." in text
    assert "--tuning 'past/my flu.toml'" in text


def test_a_model_is_named_with_its_source_and_the_slots_that_it_has_seen(drawn: Drawn) -> None:
    """A model that was fitted on the reported slots makes errors look small, and it is public: both have to be said."""
    data = replace(counts_from_array(np.arange(60) % 7 + 20, regions=["all"]), name="flu")
    model = replace(fit(data, source="published weekly", span="0:40"), file="flu-model.toml")
    plan = replace(PLAN, data={"flu": data}, models={"flu": model}, model_files=("past/flu-model.toml",))
    text = _Outline(_page(drawn, plan)).text
    assert "All filters know flu-model.toml" in text
    assert "published weekly" in text
    assert "In-sample: flu-model.toml was fitted on 20 of the slots that are scored here" in text
    assert "--model past/flu-model.toml" in text


def test_a_tuned_transition_is_named(drawn: Drawn) -> None:
    """A from a file is as much a parameter as Q: without it nobody knows that the moves were looked at."""
    data = PLAN.data["multi-linear"]
    model = ProcessModel.of(np.eye(6) * 0.5 + 0.5 / 6, np.ones(6))
    tuned = replace(_tuned(data, 0, 40), model=model, tuning={"rescue_theta": 2.0}, file="ml.toml")
    text = _Outline(_page(drawn, replace(PLAN, tuned={"multi-linear": (tuned,)}))).text
    assert "A, Q, rescue_theta of dpcrowd are from ml.toml" in text


def test_a_tuning_file_without_its_data_is_not_claimed_to_be_used(drawn: Drawn) -> None:
    """Its parameters are in no result."""
    tuned = _tuned(counts_from_array(np.arange(40)), 0, 40)
    text = _Outline(_page(drawn, replace(PLAN, tuned={"flu": (tuned,)}))).text
    assert "Given but not used, since their data are missing: my flu.toml." in text


def test_how_it_was_made_is_told(drawn: Drawn) -> None:
    """Without seed, versions and command nobody can do it again."""
    text = _Outline(_page(drawn)).text
    for told in (
        "dpcrowd reproduce 4 --runs 7 --seed 11",
        "7 per point, 196 in total; 30 were on disk already, and 166 were done now",
        "1 h 2 min",
        "2 cores, Any",
        "dpcrowd 9.9, numpy 2.0",
    ):
        assert told in text


def test_the_command_leaves_out_what_is_the_default() -> None:
    """And never leaves out what is not."""
    everything = {figure.number for figure in FIGURES}
    assert command(tiny_plan(runs=RUNS), everything, relay=True) == "dpcrowd reproduce --seed 0"
    quick = tiny_plan(runs=QUICK_RUNS, quick=True)
    assert command(quick, everything, relay=True) == "dpcrowd reproduce --quick --seed 0"
    assert command(quick, set(), relay=True) == "dpcrowd reproduce relay --quick --seed 0"
    some = replace(quick, runs=77)
    assert command(some, {2, 1}, relay=False) == "dpcrowd reproduce 1 2 --quick --runs 77 --seed 0"
    assert command(some, {2, 1}, relay=True) == "dpcrowd reproduce 1 2 relay --quick --runs 77 --seed 0"


def test_the_command_has_paths_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them other data or parameters are found; a home that nobody else has is that of the reader."""
    monkeypatch.setattr(Path, "home", lambda: Path("/home/someone"))
    everything = {figure.number for figure in FIGURES}
    plan = tiny_plan(runs=RUNS, data_dir="../my data", tuning=("a.toml", "/home/someone/old tunings/b.toml"))
    assert command(plan, everything, relay=True) == (
        "dpcrowd reproduce --seed 0 --data-dir '../my data' --tuning a.toml --tuning ~/'old tunings/b.toml'"
    )


def test_versions_and_machine_are_found() -> None:
    """Facts that are not given are those of this machine."""
    facts = Facts(seconds=1.0, runs=1)
    assert {"dpcrowd", "Python", "numpy", "numba", "matplotlib"} <= set(facts.versions)
    assert facts.versions["numpy"] == np.__version__
    assert facts.cores >= 1
