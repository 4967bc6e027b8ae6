"""The report as a reader opens it: in a browser, on a phone, on a desk and on paper, without a network."""

from __future__ import annotations

import functools
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.experiments.claims import Claim, Part, Verdict
from dpcrowd.experiments.draw import draw
from dpcrowd.experiments.figures import FIGURES, Panel
from dpcrowd.experiments.relay_table import Cell, Ratio, RelayTable, Row
from dpcrowd.experiments.report import Facts, write_report
from experiments_support import curve_with, tiny_plan
from page_support import Opened, browser

__all__ = ["browser"]

WIDTHS = {"phone": 390, "desk": 1280}
LONG = "Multi-Flu,ε=0.1,DPCrowd+/DPCrowd_w/DPeGaSus/DBD/DBA/DRescueDP/RescueDP/Uniform/Sample/central"


def _panels() -> list[Panel]:
    """Two ledgers side by side, and a second row over time: what is widest, and what is longest."""
    x = np.array([0.1, 0.5, 1.0])
    labels = ("rescuedp", "drescuedp", "dpcrowd-w", "dpcrowd-plus", "dpegasus", "dbd", "dba", "uniform", "central")
    high = np.array([3e6, 5e4, 2.0])  # the numbers of the axis need room, too
    curves = [curve_with(name, x, high + n, x, f"pays at w = 9 (at most): 1{n}.25×ε") for n, name in enumerate(labels)]
    slots = np.arange(800.0)
    time = curve_with("dsample", slots, 2.0 + np.sin(slots / 50.0), 0.2)
    return [
        Panel("Multi-Flu, the paper's ledger: ARE", "privacy budget ε", "ARE", tuple(curves)),
        Panel("Multi-Flu, sound ledger: ARE", "privacy budget ε", "ARE", tuple(curves)),
        Panel("Linear: ARE over time", "slot", "ARE", (time,), row=1),
    ]


def _judged() -> list[tuple[Claim, Verdict | None]]:
    part = Part(LONG, "does not hold", f"{LONG}: 0.38 against 0.52 (difference −0.14).", "95% over 50 paired runs")
    verdicts = (Verdict("does not hold", (part, part), "Likely: none."), Verdict("holds", (part,)), None)
    place = {"section": 'Section "Overall Performance of DPCrowd+"', "quote": '"quoted"'}
    return [
        (Claim(f"claim{n}", f"Claim {n} holds.", (), figures=(6,), ledger="sound", **place), verdict)
        for n, verdict in enumerate(verdicts)
    ]


def _relay_table() -> RelayTable:
    """One cell whose numbers are as long as they get."""
    ratio = Ratio(0.123, 0.101, 1.234)
    names = ("dpcrowd-plus", "relay, K=1", "relay, K=3", "everything at once")
    rows = tuple(Row(name, "diagonal", 768, 0.1234, 0.951, None, 1123.0, 1_093_968.0, ratio) for name in names)
    return (Cell("multi-linear", 0.1, "dynamic", 50, "dpcrowd-plus", rows, ratio),)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with two figures, of which one could be any; a long path of missing data must break somewhere."""
    place = tmp_path_factory.mktemp("report")
    plan = tiny_plan(quick=True, missing={"flu": f"needs flu.csv, not in: {'/very/long/folder' * 12}."})
    drawn = [draw(figure, _panels(), place) for figure in FIGURES[5:7]]
    write_report(place, plan, drawn, _judged(), Facts(seconds=1.0, runs=6), _relay_table())
    return place


@pytest.fixture(params=WIDTHS, scope="module")
def opened(request: pytest.FixtureRequest, browser: Any, folder: Path) -> Iterator[Opened]:
    seen = Opened(browser, (folder / "index.html").as_uri(), width=WIDTHS[request.param])
    yield seen
    seen.close()


def test_nothing_is_wider_than_the_screen(opened: Opened) -> None:
    """A page that has to be pushed sideways cannot be read on a phone; details are opened, and tables scroll alone."""
    opened.page.evaluate(
        """window.folded = [...document.querySelectorAll('details:not([open])')];
           folded.forEach(one => { one.open = true })"""
    )
    wide, screen = opened.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= screen
    # Nor may anything be cut off at the edge, except in boxes that scroll.
    outside = opened.page.evaluate(
        """[...document.querySelectorAll('body *')]
           .filter(one => !one.closest('.scroll, svg, thead') && one.getBoundingClientRect().right > innerWidth + 1)
           .map(one => one.tagName + ' ' + one.className)"""
    )
    assert outside == []
    opened.page.evaluate("folded.forEach(one => { one.open = false })")  # other tests read the same page


def test_no_request_leaves_the_page(opened: Opened) -> None:
    """It would tell somebody who reads it, and fail without a network."""
    assert [address for address in opened.requests if not address.startswith(("data:", opened.page.url))] == []
    assert opened.complaints == []


def test_every_panel_is_seen_and_large_enough_to_read(opened: Opened) -> None:
    """Text in a drawing shrinks with it: below some size it is there and cannot be read."""
    boxes = opened.page.evaluate(
        "[...document.querySelectorAll('.panels svg')].map(one => one.getBoundingClientRect().toJSON())"
    )
    assert len(boxes) == 6
    for box in boxes:
        assert box["width"] > 330
        assert box["height"] > 200
    heights = opened.page.evaluate(
        "[...document.querySelectorAll('.panels svg text')].map(one => one.getBoundingClientRect().height)"
    )
    assert len(heights) > 100
    assert min(heights) > 7


def test_text_in_drawings_stays_inside(opened: Opened) -> None:
    """A legend that is wider than its panel is cut off at the edge, and nobody sees what is missing."""
    cut = opened.page.evaluate(
        """[...document.querySelectorAll('.card svg text')].filter(one => {
             const own = one.getBoundingClientRect(), box = one.closest('svg').getBoundingClientRect();
             return own.left < box.left - 1 || own.right > box.right + 1 || own.bottom > box.bottom + 1;
           }).map(one => one.textContent)"""
    )
    assert cut == []


def test_failing_claims_show_their_reason_at_once(opened: Opened) -> None:
    """The reason for a failure is not behind a click; that of a success may be."""
    assert opened.page.locator("text=Likely: none.").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_enough(browser: Any, folder: Path, scheme: str) -> None:
    """Grey on grey is invisible to many; 4.5 to 1 is what WCAG asks of text (AA)."""
    seen = Opened(browser, (folder / "index.html").as_uri(), width=390, color_scheme=scheme)
    worst = seen.page.evaluate(
        """(() => {
          const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
          const light = colour => {
            const [r, g, b] = numbers(colour).map(c => c / 255)
              .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const behind = one => {
            for (; one; one = one.parentElement) {
              const back = getComputedStyle(one).backgroundColor, parts = numbers(back);
              if (parts.length < 4 || parts[3] > 0) return back;
            }
            return 'rgb(255, 255, 255)';
          };
          return [...document.querySelectorAll('body *')].filter(one => !one.closest('svg') &&
              [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())).map(one => {
            const a = light(getComputedStyle(one).color), b = light(behind(one));
            return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.tagName + ' ' + one.className];
          }).sort((a, b) => a[0] - b[0])[0];
        })()"""
    )
    seen.close()
    assert worst[0] >= 4.5, worst


def test_prints_to_paper_with_everything_open(browser: Any, folder: Path, tmp_path: Path) -> None:
    """What is folded on the screen cannot be unfolded on paper."""
    seen = Opened(browser, (folder / "index.html").as_uri())
    seen.page.pdf(path=str(tmp_path / "report.pdf"), format="A4")
    paper = (tmp_path / "report.pdf").read_bytes()
    assert paper.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) <= 5, "one figure per page, and the rest on three"
    seen.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = false })")
    visible = "document.querySelector('details .reason').checkVisibility()"
    assert not seen.page.evaluate(visible)
    seen.page.emulate_media(media="print")
    assert seen.page.evaluate(visible)
    seen.close()


def test_page_works_behind_a_web_server_too(browser: Any, folder: Path) -> None:
    """A published report asks the server for the page itself, and for nothing else."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        seen = Opened(browser, f"http://127.0.0.1:{server.server_port}/index.html", width=390)
        seen.close()
        server.shutdown()
    assert [address for address in seen.requests if not address.startswith("data:")] == [seen.requests[0]]
    assert seen.complaints == []


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""
