"""The files of the live page: public, small, the same bytes until they change, and allowed to ask this server only."""

from __future__ import annotations

import gzip
import re
from importlib.resources import files

import pytest

from dpcrowd.node.api.page import ASSETS
from dpcrowd.node.config.tokens import TokensSection
from node_support_api import READ, Client, FakeService, app_of

PATHS = sorted(ASSETS)
ALLOWED = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink", "http://www.w3.org/1999/xhtml"}
MATHML = "http://www.w3.org/1998/Math/MathML"


def content(name: str) -> bytes:
    return files("dpcrowd.node.api").joinpath("assets", name).read_bytes()


@pytest.mark.parametrize("path", PATHS)
def test_files_are_public_and_may_ask_nobody_else(path: str) -> None:
    """The form for the token has to load without one; the policy stops a script that was smuggled in."""
    response = Client(app_of(FakeService())).get(path, headers={"accept-encoding": "identity"})
    assert response.status_code == 200
    assert response.content == content(ASSETS[path][0])
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert re.search(r"https?:|\*", policy) is None
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-type"] == ASSETS[path][1]


def test_a_browser_keeps_its_copy_until_the_file_changes() -> None:
    """Every visit would load 150 KB again, or an old page would speak to a new node."""
    client = Client(app_of(FakeService()))
    tag = client.get("/assets/app.js").headers["etag"]
    again = client.get("/assets/app.js", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/assets/app.js", headers={"if-none-match": '"other"'}).status_code == 200
    assert client.get("/assets/app.js").headers["cache-control"] == "no-cache"


def test_a_browser_that_can_gets_a_compressed_file() -> None:
    """A phone waits three times as long otherwise; curl gets plain text."""
    client = Client(app_of(FakeService()))
    packed = client.get("/assets/app.css", headers={"accept-encoding": "br, gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == content("app.css")
    plain = client.get("/assets/app.css", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["etag"] == plain.headers["etag"]


def test_the_page_is_small_names_no_host_and_has_nothing_inline() -> None:
    """At most 150 KB compressed; an address in it could become a request; inline code would need a weaker policy."""
    assert sum(len(gzip.compress(content(name), 9)) for name, _ in ASSETS.values()) < 150_000
    for name, _ in ASSETS.values():
        hosts = set(re.findall(r"(?:https?:)?//[a-zA-Z0-9.-]+\.[a-z]{2,}[^\s\"'`)]*", content(name).decode()))
        assert hosts <= ALLOWED | {MATHML} | {
            one for one in hosts if one.startswith("https://github.com/leeoniya/uPlot")
        }
    html = content("index.html").decode()
    assert re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon[a-z]+=", html) is None


def test_the_description_says_whether_a_token_is_needed_and_nothing_more() -> None:
    """The page must not name the server or its network to whoever has no token."""
    closed = Client(app_of(FakeService())).get("/page.json").json()
    assert closed == {"token_needed": True, "servers": [{"path": "", "name": None}], "demo": None}
    opened = Client(app_of(FakeService(), TokensSection(read="open"))).get("/page.json").json()
    assert opened["token_needed"] is False


@pytest.mark.parametrize("path", ["/", "/page.json"])
def test_files_are_only_read(path: str) -> None:
    """Nothing of the page changes anything, so nothing but GET is taken."""
    response = Client(app_of(FakeService())).post(path, headers={"authorization": f"Bearer {READ}"}, content=b"{}")
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD"
