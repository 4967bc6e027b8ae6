"""The live page of a running demo, in a browser: on a desk and on a phone. The demo ends with these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dpcrowd.demo.run import make_source, open_demo
from page_support import AXE, WIDE, Opened, browser

__all__ = ["browser"]

pytestmark = pytest.mark.slow

TOTAL = "document.querySelector('#total').textContent"


@pytest.fixture(scope="module")
def demo(browser: Any) -> Iterator[str]:
    """The address of the page of a running demo of three servers."""
    source = make_source(5_000, None, "1d", 0)
    with open_demo(source, servers=3, slot="1s", seed=0, keep=None, report=lambda _: None) as running:
        yield running.page


@pytest.fixture(scope="module")
def page_of_demo(browser: Any, demo: str) -> Iterator[Opened]:
    """The page after some releases; at the end it has neither complained nor asked another host.

    Opening it costs more than most tests, so they share it; whoever changes an option changes it back.
    """
    opened = Opened(browser, demo)
    opened.wait_for(f"document.querySelectorAll('.tile').length === 7 && !{TOTAL}.startsWith('–')")
    yield opened
    assert opened.outside == []
    assert opened.complaints == []
    opened.close()


def test_tiles_and_total_change_with_every_slot(page_of_demo: Opened) -> None:
    """A page that shows the state of its first second is a picture, not a live page."""
    tiles = "[...document.querySelectorAll('.tile .number')].map(one => one.textContent).join()"
    before, total = page_of_demo.page.evaluate(tiles), page_of_demo.page.evaluate(TOTAL)
    page_of_demo.wait_for(f"{tiles} !== {before!r} && {TOTAL} !== {total!r}")


def test_a_band_is_drawn_around_the_line(page_of_demo: Opened) -> None:
    """Without the interval, nobody sees how certain an estimate is: it is a shade that ends with its option."""
    pixels = """(() => {
        const canvas = document.querySelector('#chart canvas');
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
        copy.drawImage(canvas, 0, 0);
        const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
        let shaded = 0;  // a fifth of 255 is 51
        for (let place = 3; place < data.length; place += 4) {
            if (data[place] > 45 && data[place] < 57 && data[place - 3] < 40) shaded++;
        }
        return shaded;
    })()"""
    page_of_demo.wait_for(f"{pixels} > 500")
    page_of_demo.page.get_by_role("checkbox", name="95% interval").uncheck()
    page_of_demo.wait_for(f"{pixels} < 100")
    page_of_demo.page.get_by_role("checkbox", name="95% interval").check()


def test_only_the_demo_tells_the_truth_and_says_so(page_of_demo: Opened) -> None:
    """A visitor must not think that a network knows the truth; the errors of all three ways are shown."""
    page = page_of_demo.page
    assert page.locator(".only-demo").is_visible()
    assert "Only this demo knows" in page.locator(".only-demo").inner_text()
    page_of_demo.wait_for(
        "[...document.querySelectorAll('.methods .number')].filter(one => one.textContent.includes('%')).length === 3"
    )
    assert page.locator(".readout").get_by_text("the truth").is_visible()
    servers = [f"server-{number}" for number in range(1, 4)]
    assert page.locator("header select").first.locator("option").all_inner_texts() == servers


def test_another_server_of_the_demo_is_shown(page_of_demo: Opened) -> None:
    """One page shows all nodes at once: choosing another one shows its own numbers in the tiles that are there.

    New tiles would take the focus from whoever is using the keyboard.
    """
    page_of_demo.page.evaluate("window.tileBefore = document.querySelector('.tile')")
    page_of_demo.page.locator("header select").first.select_option(label="server-2")
    page_of_demo.wait_for("document.querySelector('.live strong').textContent === 'server-2'")
    page_of_demo.wait_for("document.querySelector('[data-server=\"server-2\"]').dataset.state === 'own'")
    page_of_demo.page.locator("header select").first.select_option(label="server-1")
    page_of_demo.wait_for("document.querySelector('.live strong').textContent === 'server-1'")
    page_of_demo.wait_for("document.querySelector('[data-server=\"server-1\"]').dataset.state === 'own'")
    assert page_of_demo.page.evaluate("window.tileBefore.isConnected")


def test_a_region_is_drawn_with_the_keyboard_alone(page_of_demo: Opened) -> None:
    """Whoever cannot use a mouse reaches every tile: arrows move between tiles, Enter draws one over time."""
    page = page_of_demo.page
    page.locator(".tile").first.focus()
    page.keyboard.press("ArrowRight")
    name = page.evaluate("document.activeElement.matches('.tile') && document.activeElement.title")
    assert name == "station"
    page.keyboard.press("Enter")
    page_of_demo.wait_for(f"[...document.querySelectorAll('.chip')].some(one => one.textContent.includes({name!r}))")
    page.locator("#chart").focus()
    for key in ("ArrowLeft", "+", "-", "0"):
        page.keyboard.press(key)
    assert name in page.locator("#detail").inner_text() or page.locator("#chart").is_visible()


@pytest.mark.parametrize(
    ("name", "width", "scheme"), [("light", 1280, "light"), ("dark", 1280, "dark"), ("phone", 390, "light")]
)
def test_nothing_is_cut_off_and_everybody_can_read_it(
    browser: Any, demo: str, name: str, width: int, scheme: str
) -> None:
    """axe-core finds nothing serious, nothing is wider than the screen; the screenshots are for people."""
    opened = Opened(browser, demo, width=width, color_scheme=scheme, bypass_csp=True)
    opened.wait_for(f"document.querySelectorAll('.tile').length === 7 && !{TOTAL}.startsWith('–')")
    opened.wait_for(
        "document.querySelector('#spent') !== null && document.querySelector('#ready').textContent.includes('Ready')"
    )
    assert opened.page.evaluate(WIDE) == []
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    opened.shot(f"demo-{name}")
    if not AXE.exists():
        opened.close()
        pytest.skip("axe-core is not installed (make page)")
    opened.page.add_script_tag(path=str(AXE))
    findings = opened.page.evaluate("axe.run().then(result => result.violations)")
    serious = [
        (one["id"], [node["html"][:200] for node in one["nodes"]][:5])
        for one in findings
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
    opened.close()
