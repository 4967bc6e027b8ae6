"""The live page of running nodes whose readers need a token, in a browser. The nodes end with these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from page_support import READ, Network, Opened, browser, network_of

__all__ = ["browser"]

pytestmark = pytest.mark.slow

HORIZON = 6


@pytest.fixture(scope="module")
def network(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Two servers whose readers need a token, and whose budget lasts for six slots; they run before the first."""
    folder = tmp_path_factory.mktemp("network")
    settings = {"kind": "finite", "length": HORIZON, "scheme": "dpcrowd", "interval": 1}
    with network_of(folder, 2, begins_in=8, **settings) as running:
        yield running


@pytest.fixture(scope="module")
def signed_out(browser: Any, network: Network) -> Iterator[Opened]:
    """The page of server-1, which asks for a token; each test signs out at its end."""
    opened = Opened(browser, network.addresses["server-1"])
    yield opened
    assert opened.outside == []
    opened.close()


def sign_out(opened: Opened) -> None:
    opened.page.get_by_role("button", name="Sign out").click()
    opened.page.get_by_label("Token").wait_for()


def sign_in(opened: Opened, token: str) -> None:
    opened.page.get_by_label("Token").fill(token)
    opened.page.get_by_role("button", name="Sign in").click()


def test_without_a_token_nothing_is_shown(signed_out: Opened) -> None:
    """The page is public, the numbers are not: without the right token there is no name and no number."""
    opened = signed_out
    opened.page.get_by_label("Token").wait_for()
    sign_in(opened, "a-token-that-nobody-has")
    opened.page.get_by_role("alert").wait_for()
    text = opened.page.locator("body").inner_text()
    assert "does not know this token" in text
    assert "server-1" not in text
    assert opened.page.locator("#total").count() == 0
    assert opened.page.evaluate("sessionStorage.length") == 0
    assert opened.outside == []
    opened.complaints.clear()  # the browser's own, of the refusal


def test_a_token_is_sent_in_a_header_and_never_in_an_address(signed_out: Opened) -> None:
    """Addresses are stored in histories and logs. After signing out the page has forgotten token and numbers."""
    opened = signed_out
    sign_in(opened, READ)
    opened.page.locator("#total").wait_for()
    opened.wait_for("document.querySelector('.live').dataset.connection === 'live'")
    assert not any(READ in url for url in opened.requests)
    assert READ not in opened.page.url
    assert opened.page.evaluate("localStorage.length + document.cookie.length") == 0
    assert opened.complaints == []
    opened.shot("node")
    sign_out(opened)
    assert opened.page.locator("#total").count() == 0
    assert opened.page.evaluate("sessionStorage.length") == 0


def test_a_spent_budget_is_shown(signed_out: Opened) -> None:
    """Operators have to see why there are no samples any more, and that the estimates go on."""
    opened = signed_out
    sign_in(opened, READ)
    opened.wait_for("document.querySelector('#no-sample')?.textContent.includes('Nothing is left to spend')")
    assert "nothing can be spent now" in opened.page.locator(".gauge").get_attribute("aria-label")
    assert "horizon" in opened.page.locator("#spent").inner_text()
    spent = opened.page.evaluate("Number(document.querySelector('#spent .value').textContent)")
    assert 0 < spent <= 1, "it was spent, and did not just run out of time"
    assert opened.page.locator(".gauge .big").text_content() == f"{round(100 * spent)}%"
    assert "budget of the horizon is spent" in opened.page.locator("#notices").inner_text()
    opened.shot("exhausted")
    sign_out(opened)


def test_a_killed_node_turns_red_and_returns(browser: Any, network: Network, signed_out: Opened) -> None:
    """The page of its neighbour shows it within seconds, by colour and in words; its own page says that it is gone."""
    neighbour, own = signed_out, Opened(browser, network.addresses["server-2"])
    for opened in (neighbour, own):
        sign_in(opened, READ)
    state = "document.querySelector('[data-server=\"server-2\"]')?.dataset.state"
    neighbour.wait_for(f"{state} === 'good'")
    own.wait_for("document.querySelector('.live')?.dataset.connection === 'live'")
    network.kill("server-2")
    neighbour.wait_for(f"{state} === 'bad'")
    assert "Not reachable: server-2" in neighbour.page.locator("#network-summary").inner_text()
    own.wait_for(
        "document.querySelector('#lost') !== null && document.querySelector('.live').classList.contains('bad')"
    )
    neighbour.shot("killed")
    network.start("server-2")
    neighbour.wait_for(f"{state} === 'good'")
    own.wait_for(
        "document.querySelector('.live').dataset.connection === 'live' && document.querySelector('#lost') === null"
    )
    sign_out(neighbour)
    own.close()
