"""The documentation that every node serves, so that a number of the page leads to its explanation."""

from __future__ import annotations

import re
import tomllib

import pytest
from markdown.extensions.toc import slugify

from dpcrowd.node.api.help import HelpPage, help_pages, read_help
from node_support_api import Client, FakeService, app_of
from project_support import ROOT

WORDS = re.compile(r'page: "([a-z-]+)(?:#([a-z0-9-]+))?"')
EXPLAINED = WORDS.findall((ROOT / "web" / "src" / "explain.tsx").read_text(encoding="utf-8"))


def anchors_of(name: str) -> set[str]:
    text = re.sub(r"^```.*?^```", "", (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"), flags=re.S | re.M)
    return {slugify(heading, "-") for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}


def test_pages_are_public_and_bound_by_the_same_policy() -> None:
    """An operator who has lost the token still has to read how to make a new one."""
    client = Client(app_of(FakeService()))
    html, text = client.get("/help/privacy"), client.get("/help/privacy.md")
    assert html.content == client.get("/").content
    assert text.content == (ROOT / "docs" / "privacy.md").read_bytes()
    assert text.headers["content-type"] == "text/markdown; charset=utf-8"
    assert "default-src 'none'" in text.headers["content-security-policy"]
    contents = client.get("/help/contents.json").json()
    assert contents[0] == {"name": "index", "title": "dpcrowd"}
    assert {"name": "privacy", "title": "The privacy promise"} in contents


def test_a_slash_at_the_end_is_as_good() -> None:
    """People type addresses, and some add a slash: an error in JSON helps none of them."""
    client = Client(app_of(FakeService()))
    assert client.get("/help/").content == client.get("/help").content


@pytest.mark.parametrize(
    "path", ["/help/nothing", "/help/nothing.md", "/help/../pyproject.toml", "/help/images/page.png"]
)
def test_nothing_else_is_served(path: str) -> None:
    """A path in the request must never become a path on the disk."""
    assert Client(app_of(FakeService())).get(path).status_code == 404


@pytest.mark.parametrize("page", help_pages(), ids=lambda page: page.name)
def test_pages_have_only_the_html_that_the_page_draws(page: HelpPage) -> None:
    """The page creates elements for these tags and comments alone; any other would be shown as it is written."""
    text = read_help(page.name).decode()
    text = re.sub(r"^```.*?^```|^ {4}.*?$|`[^`]+`|^<!--.*-->$|<https?:[^>]*>", "", text, flags=re.S | re.M)
    assert set(re.findall(r"</?[a-z!][^>]*>", text)) <= {"<sub>", "</sub>", "<sup>", "</sup>", "<br>"}


def test_every_explanation_leads_to_a_section_that_exists_and_ships() -> None:
    """A link to a heading that was renamed ends at the top of a long page; in a wheel only listed pages exist."""
    assert len(EXPLAINED) > 25
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    shipped = wheel["force-include"]
    for name, anchor in EXPLAINED:
        assert shipped.get(f"docs/{name}.md") == f"dpcrowd/docs/{name}.md", name
        assert not anchor or anchor in anchors_of(name), f"{name}#{anchor}"
    assert {path.removeprefix("docs/").removesuffix(".md") for path in shipped} <= {page.name for page in help_pages()}
