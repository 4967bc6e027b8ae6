"""The live page as people open it: in a browser, with crowds of any size, on a desk and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from page_support import WIDE, Crowd, DoubtfulCrowd, Opened, RelayCrowd, browser, served

__all__ = ["browser"]

pytestmark = pytest.mark.slow


# ------------------------------------------------------------------------------------------ a network of relay


COLOURED = """(name) => {
    const canvas = document.querySelector('#chart canvas');
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
    const wanted = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const parts = [1, 3, 5].map((at) => parseInt(wanted.slice(at, at + 2), 16));
    let pixels = 0;
    for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] > 200 && parts.every((part, color) => Math.abs(data[at + color] - part) < 12)) pixels++;
    }
    return pixels;
}"""


@pytest.mark.parametrize("width", [390, 1280])
def test_a_long_name_pushes_nothing_aside(browser: Any, width: int) -> None:
    """Regions are named by their organisations, some by a complete address without a space."""
    crowd = Crowd(6, 60, "district-of-the-very-long-name-without-any-space-in-it-{:02}")
    with served(crowd) as (address, _):
        opened = Opened(browser, address, width=width)
        opened.wait_for("document.querySelectorAll('.changes li').length === 5")
        opened.page.locator(".tile").nth(2).click()
        opened.wait_for("document.querySelectorAll('.chip').length > 0")
        assert opened.page.evaluate(WIDE) == []
        assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        overlaps = """[...document.querySelectorAll('.changes li')].filter(one => {
            const [name, change] = [...one.children].map(part => part.getBoundingClientRect());
            return name.right > change.left + 1;
        }).length"""
        assert opened.page.evaluate(overlaps) == 0
        opened.shot(f"long-names-{width}")
        opened.close()


@pytest.fixture(scope="module")
def relay(browser: Any) -> Iterator[Opened]:
    """The page of a server whose network passes records on, with a server of every kind."""
    with served(RelayCrowd(8, 200)) as (address, _):
        opened = Opened(browser, address)
        opened.wait_for("document.querySelector('#agreement') !== null")
        yield opened
        assert (opened.complaints, opened.outside) == ([], [])
        opened.close()


def test_records_of_other_servers_show_who_agrees(relay: Opened) -> None:
    """Servers that have the same records publish the same numbers; only records show that one of them is wrong."""
    text = relay.page.locator("#agreement").inner_text()
    assert "too-high 0 of 25, agrees 25 of 25" in text
    assert "Far too few of too-high" in text
    assert "Records are divided by learned shares." in text
    assert "records of agrees" in relay.page.locator(".readout").inner_text()
    relay.wait_for(f"({COLOURED})('--bad') > 20")
    relay.page.get_by_role("checkbox", name="Records of other servers").uncheck()
    relay.wait_for(f"document.querySelector('#agreement') === null && ({COLOURED})('--bad') === 0")
    relay.page.get_by_role("checkbox", name="Records of other servers").check()


def test_the_smoothed_history_is_drawn_over_the_live_one(relay: Opened) -> None:
    """An analyst compares both; the line comes and goes with its option, and its numbers are the smoothed ones."""
    assert relay.page.evaluate(f"({COLOURED})('--smoothed')") == 0
    relay.page.get_by_role("checkbox", name="Smoothed history").check()
    relay.wait_for("/smoothed [\\d,]+ \\(slot 198\\)/.test(document.querySelector('.readout').textContent)")
    relay.wait_for(f"({COLOURED})('--smoothed') > 100")
    relay.shot("relay")
    relay.page.get_by_role("checkbox", name="Smoothed history").uncheck()
    relay.wait_for(f"({COLOURED})('--smoothed') === 0")


def test_the_non_negative_view_of_a_region_is_drawn_where_it_is_asked_for(relay: Opened) -> None:
    """Nobody understands minus two people; the total, which the view keeps, has no such line, and the switch is off."""
    switch = relay.page.get_by_role("checkbox", name="Non-negative view")
    assert (switch.is_disabled(), switch.is_checked()) == (True, False)
    relay.page.locator(".tile").nth(2).click()
    relay.wait_for("document.querySelectorAll('.chip').length > 0")
    switch.check()
    relay.wait_for("/non-negative view [\\d,]+/.test(document.querySelector('.readout').textContent)")
    switch.uncheck()
    relay.wait_for("!document.querySelector('.readout').textContent.includes('non-negative view')")
    relay.page.locator(".tile").nth(2).click()


def test_broken_and_missing_servers_are_named(relay: Opened) -> None:
    """At night an operator has to see at once which organisation to call, and why."""
    notices = relay.page.locator("#notices").inner_text()
    assert "signed-twice is broken: it signed two different records for slot 196." in notices
    assert "too-high: since slot 169 its records disagree with those of the other servers, and count less." in notices
    assert "too-high is broken" not in notices, "nobody knows that: its crowd may be another one"
    assert "silent: its record of slot 159 is missing." in notices
    summary = relay.page.locator("#network-summary").inner_text()
    assert "Broken: signed-twice. Records disagree with those of the others: too-high." in summary
    states = {"agrees": "good", "signed-twice": "bad", "too-high": "warn", "silent": "warn"}
    for name, state in states.items():
        assert relay.page.locator(f"[data-server='{name}']").get_attribute("data-state") == state
    assert relay.page.title().startswith("✕ ")


def test_whose_word_the_estimate_is_and_who_contradicted(relay: Opened) -> None:
    """A server that joined late believes neighbours; whoever reads its numbers has to see whom, and whom it did not."""
    assert "The estimate began with the word of agrees, of slot 17" in relay.page.locator("#joined").inner_text()
    notices = relay.page.locator("#notices").inner_text()
    assert "the states of signed-twice, too-high contradicted each other, or the one that was taken" in notices


@pytest.mark.parametrize("width", [390, 1280])
def test_a_server_that_suspects_itself_says_so_and_what_it_assumes(browser: Any, width: int) -> None:
    """The log of a server named it, and its page called it well; nothing showed whether it learns, or which shares."""
    with served(DoubtfulCrowd(8, 200)) as (address, _):
        opened = Opened(browser, address, width=width)
        opened.wait_for("document.querySelector('#notices')?.textContent.includes('Calibration:')")
        notices = opened.page.locator("#notices").inner_text()
        assert "This server itself is suspected: since slot 179 its records disagree" in notices
        assert "Its share in network.toml, or that of a region, may not be what it counts" in notices
        assert "Calibration: nobody can say whether the intervals are right." in notices
        row = opened.page.locator("#servers [data-server='a']")
        assert row.get_attribute("data-state") == "warn"
        assert "this server; since slot 179 its records disagree" in row.inner_text()
        assert "a (this server), too-high" in opened.page.locator("#network-summary").inner_text()
        note = opened.page.locator("#calibration").inner_text()
        assert "nobody can say while a, too-high cannot be believed" in note
        assert "in the last 24 slots" in opened.page.locator("#privacy").inner_text()
        settings = opened.page.locator("#settings")
        assert "published by the city" not in settings.inner_text(), "it is folded"
        settings.locator("summary").click()
        text = settings.inner_text()
        for part in (
            'assert: "published by the city"; and of earlier models, of which it keeps a part: "a census"',
            "yes: from releases",
            "0.05: this part",
            "wrong by 10%",
            "as of slot 183",
        ):
            assert part in text
        first = opened.page.locator("#learned-shares tbody tr").first.inner_text().split("\t")
        assert first == ["a", "region 0000", "20.0%", "30.0% ±2.0%"]
        assert opened.page.evaluate(WIDE) == []
        opened.shot(f"doubtful-{width}")
        assert (opened.complaints, opened.outside) == ([], [])
        opened.close()


def test_a_number_explains_itself_and_leads_to_the_documentation(relay: Opened) -> None:
    """The explanation opens beside the number, closes with Escape, and its link ends at a heading of this server."""
    page = relay.page
    mark = page.get_by_role("button", name="What is: Privacy budget spent").first
    mark.click()
    dialog = page.get_by_role("dialog")
    assert "What this server has paid" in dialog.inner_text()
    with page.expect_popup() as popup:
        dialog.get_by_role("link").click()
    page.keyboard.press("Escape")
    assert dialog.count() == 0
    assert mark.evaluate("one => one === document.activeElement")
    help_page = popup.value
    help_page.locator("h2#the-guarantee").wait_for()
    assert help_page.title() == "The privacy promise · dpcrowd"
    assert help_page.get_by_role("link", name="Failures").first.get_attribute("href") == "/help/failures"
    help_page.close()


# ---------------------------------------------------------------------------------------------------- large crowds


def test_a_thousand_regions(browser: Any) -> None:
    """Every region has its tile, and each can be drawn with its complete past."""
    crowd = Crowd(1_000, 1_500)
    with served(crowd) as (address, call):
        opened = Opened(browser, address)
        opened.wait_for("document.querySelectorAll('.tile').length === 1000")
        opened.wait_for("document.querySelectorAll('.tile .number')[999].textContent !== '–'")
        opened.page.locator(".tile").nth(500).click()
        with opened.page.expect_response(lambda answer: "region=region" in answer.url):
            opened.page.get_by_role("button", name="Everything").click()
        opened.wait_for("document.querySelector('.readout').textContent.includes('region 0500')")
        call(crowd.publish)
        opened.wait_for(
            f"document.querySelector('.live').textContent.includes('slot {crowd.last + 1}')"
            f" || document.querySelector('.live').textContent.includes('slot {crowd.last}')"
        )
        assert opened.outside == []
        assert opened.complaints == []
        opened.page.wait_for_timeout(500)
        opened.shot("thousand")
        opened.close()


def test_many_servers_share_the_connections_of_a_browser(browser: Any) -> None:
    """A browser has six connections to one address: with eight streams every other request waits for ever."""
    crowd = Crowd(4, 60)
    with served(crowd) as (address, call):
        page = browser.new_page()
        listed = [{"path": "", "name": f"server-{number}"} for number in range(8)]
        described = {"token_needed": False, "servers": listed, "demo": None}
        page.route("**/page.json", lambda route: route.fulfill(json=described))
        streams: list[str] = []
        page.on("request", lambda request: streams.append(request.url) if "/v1/stream" in request.url else None)
        page.goto(address)
        page.locator("#ready", has_text="Ready").wait_for(timeout=15_000)
        page.locator(".live[data-connection=live]").wait_for(timeout=15_000)
        assert len(streams) == 1
        page.locator(".controls select").first.select_option("7")
        call(crowd.publish)
        page.locator(".live", has_text=f"slot {crowd.last + 1}").or_(
            page.locator(".live", has_text=f"slot {crowd.last}")
        ).wait_for(timeout=15_000)
        assert page.locator(".live").get_attribute("data-connection") == "live"
        assert len(streams) == 2, "the stream follows the server that is shown"
        page.close()


def test_zoom_pan_and_several_regions(browser: Any) -> None:
    """Looking back must stay where it is while new slots arrive, and the way to now is one step."""
    crowd = Crowd(8, 500)
    with served(crowd) as (address, call):
        opened = Opened(browser, address)
        opened.wait_for("document.querySelectorAll('.tile').length === 8")
        for region in (1, 2):
            opened.page.locator(".tile").nth(region).click()
        opened.wait_for("document.querySelectorAll('.chip').length === 2")
        opened.page.get_by_role("checkbox", name="Relative").check()
        opened.page.get_by_role("button", name="10 minutes").click()
        over = opened.page.locator("#chart .u-over")
        over.scroll_into_view_if_needed()
        box = over.bounding_box()
        assert box is not None
        axis = "document.querySelector('#chart canvas').toDataURL()"
        before = opened.page.evaluate(axis)
        opened.page.mouse.move(box["x"] + 200, box["y"] + 100)
        opened.page.mouse.wheel(0, -600)
        opened.wait_for(f"{axis} !== {before!r}")
        assert opened.page.locator("[aria-label='Time that is shown'] [aria-pressed='true']").count() == 0
        opened.page.mouse.down()
        opened.page.mouse.move(box["x"] + 400, box["y"] + 100, steps=4)
        opened.page.mouse.up()
        opened.page.mouse.move(5, 5)
        opened.page.wait_for_timeout(500)
        looking_back = opened.page.evaluate(axis)
        for _ in range(3):
            call(crowd.publish)
        opened.wait_for("document.querySelector('.live').textContent.includes('slot 502')")
        opened.page.wait_for_timeout(300)
        assert opened.page.evaluate(axis) == looking_back
        opened.page.get_by_role("button", name="1 minute").click()
        opened.wait_for(f"{axis} !== {looking_back!r}")
        assert opened.complaints == []
        opened.close()


def test_memory_does_not_grow(browser: Any) -> None:
    """An operator leaves the page open for days: 600 slots, as fast as they come, need no more memory than 300."""
    crowd = Crowd(50, 200)
    with served(crowd) as (address, call):
        opened = Opened(browser, address)
        opened.wait_for("document.querySelectorAll('.tile').length === 50")
        opened.wait_for("document.querySelector('.live').dataset.connection === 'live'")
        session = opened.page.context.new_cdp_session(opened.page)
        session.send("Performance.enable")

        def used() -> tuple[int, int]:
            session.send("HeapProfiler.collectGarbage")
            opened.page.wait_for_timeout(100)
            metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
            return int(metrics["JSHeapUsedSize"]), int(metrics["Nodes"])

        def settled() -> tuple[int, int]:
            """What is used when all is freed: after one collection, elements that were just removed still count."""
            heaps, nodes = zip(*(used() for _ in range(12)), strict=True)
            return min(heaps), min(nodes)

        def publish(slots: int) -> None:
            for _ in range(slots // 20):
                for _ in range(20):
                    call(crowd.publish)
                last = crowd.last
                opened.wait_for(
                    f"Number(/slot (\\d+)/.exec(document.querySelector('.live').textContent)?.[1]) >= {last} - 40"
                )

        publish(300)
        before, nodes_before = settled()
        publish(300)
        after, nodes_after = settled()
        assert after - before < 800_000
        assert nodes_after < nodes_before + 100
        assert opened.complaints == []
        opened.close()


def test_a_map_of_regions(browser: Any) -> None:
    """With coordinates in network.toml, regions are shown where they are."""
    crowd = Crowd(12, 50)
    crowd.coordinates = {name: (52.0 + place / 50, 13.0 + (place % 4) / 20) for place, name in enumerate(crowd.names)}
    with served(crowd) as (address, _):
        opened = Opened(browser, address)
        opened.wait_for("document.querySelectorAll('.place circle').length === 12")
        opened.page.locator(".place").nth(3).focus()
        opened.page.keyboard.press("Enter")
        opened.wait_for("document.querySelector('.readout').textContent.includes('region 0003')")
        opened.page.get_by_role("button", name="Tiles").click()
        opened.wait_for("document.querySelectorAll('.tile').length === 12")
        assert opened.complaints == []
        opened.shot("map")
        opened.close()


def test_shapes_of_a_file(browser: Any, tmp_path: Path) -> None:
    """A GeoJSON file draws the regions themselves, found by their names."""
    crowd = Crowd(2, 50)
    square = "[[[{0},0],[{1},0],[{1},1],[{0},1],[{0},0]]]"
    feature = (
        '{{"type":"Feature","properties":{{"name":"region {0:04}"}},"geometry":{{"type":"Polygon","coordinates":{1}}}}}'
    )
    features = ",".join(feature.format(place, square.format(place, place + 1)) for place in range(2))
    crowd.shapes = f'{{"type":"FeatureCollection","features":[{features}]}}'.encode()
    with served(crowd) as (address, _):
        opened = Opened(browser, address)
        opened.wait_for("document.querySelectorAll('.place path').length === 2")
        assert opened.page.locator("#not-on-map").count() == 0
        assert opened.complaints == []
        opened.close()


def test_a_map_that_cannot_be_read_costs_the_map_alone(browser: Any) -> None:
    """A file with a typing error in its name must not keep everybody from the numbers."""
    crowd = Crowd(3, 50)
    crowd.topology = lambda: msgspec.structs.replace(Crowd.topology(crowd), map=True)  # type: ignore[method-assign]
    with served(crowd) as (address, _):
        opened = Opened(browser, address)
        opened.wait_for("document.querySelector('.live')?.textContent.includes('Live') === true", 15)
        assert opened.page.locator(".tile").count() == 3
        assert [text for text in opened.complaints if "404" not in text] == []
        opened.close()
        crowd.shapes = (
            b'{"features":[null,{"properties":{"name":"region 0001"},"geometry":{"type":"Point","coordinates":[1,2]}}]}'
        )
        opened = Opened(browser, address)
        opened.wait_for("document.querySelectorAll('.place').length === 1", 15)
        assert "2 regions of 3 have no place on the map" in opened.page.locator("#not-on-map").inner_text()
        assert opened.complaints == []
        opened.close()
