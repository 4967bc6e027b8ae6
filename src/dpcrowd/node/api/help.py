"""The documentation as every node serves it: /help and /help/NAME, public, of the version that runs.

The page may ask no other host, and an operator may have no other connection. So those pages of `docs/` that explain a
running node are part of the package, as Markdown; in a copy of the source they are read from `docs/` itself. A browser
gets the page's own files at /help/NAME, and its script draws /help/NAME.md.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from msgspec import Struct

__all__ = ["HelpPage", "help_pages", "read_help"]

_NAME = re.compile(r"[a-z][a-z0-9-]*")
_PACKAGED = "docs"
_SOURCE = Path(__file__).parents[4] / "docs"


class HelpPage(Struct, frozen=True):
    """A page of the documentation; its address is /help/NAME."""

    name: str
    title: str


@lru_cache(maxsize=1)
def help_pages() -> tuple[HelpPage, ...]:
    """Return the pages that this installation has, in the order of their titles; the start page comes first."""
    names = [name for name in _folder_names() if _NAME.fullmatch(name)]
    pages = [HelpPage(name, _title(read_help(name).decode(), name)) for name in names]
    return tuple(sorted(pages, key=lambda page: (page.name != "index", page.title.lower())))


def read_help(name: str) -> bytes:
    """Return a page as Markdown; the name is one of `help_pages`."""
    packaged = files("dpcrowd").joinpath(_PACKAGED)
    folder = packaged if packaged.is_dir() else _SOURCE
    return folder.joinpath(f"{name}.md").read_bytes()


def _folder_names() -> list[str]:
    packaged = files("dpcrowd").joinpath(_PACKAGED)
    if packaged.is_dir():
        return [one.name.removesuffix(".md") for one in packaged.iterdir() if one.name.endswith(".md")]
    return [path.stem for path in _SOURCE.glob("*.md")]


def _title(text: str, name: str) -> str:
    first = text.partition("\n")[0]
    return first.removeprefix("# ").strip() if first.startswith("# ") else name
