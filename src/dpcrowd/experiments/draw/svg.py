"""Make matplotlib's SVG small, and suitable for an HTML page.

Drawings in a page must not contain addresses and take the width of their container; dates and names of tools are
removed.
"""

from __future__ import annotations

import re
from html import escape

__all__ = ["inline_svg", "small_svg"]

_PRELUDE = re.compile(r"\A.*?(?=<svg\b)", re.DOTALL)
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_OPENING = re.compile(r"<svg\b([^>]*)>", re.DOTALL)
_VIEW = re.compile(r'viewBox="([^"]*)"')
_ID = re.compile(r'\sid="([^"]*)"')
_USED = re.compile(r'(?:url\(|href=")#([^")]+)')
_PATH = re.compile(r'(?<=\sd=")[^"]*')
_HUNDREDTHS, _TENTHS = (re.compile(rf"(\.\d{{{digits}}})\d+") for digits in (2, 1))
_LONG_PATH = 2000  # characters; a curve over time, where a tenth of a point is invisible
_COMMENT = re.compile(r"\s*<!--.*?-->", re.DOTALL)
_BREAKS = re.compile(r"\s*\n\s*")


def small_svg(svg: str, title: str, text: str) -> str:
    """Return the content of an SVG file with a title and a text alternative, in a size that a viewer may change."""
    body = _shrink(svg)
    head = f"<title>{escape(title)}</title><desc>{escape(text)}</desc>"
    return _OPENING.sub(lambda match: f'<svg{match[1]} role="img">{head}', body, count=1) + "\n"


def inline_svg(svg: str, text: str) -> str:
    """Return an element of a page: as wide as its container, described by `text`."""
    body = _shrink(svg).replace("xlink:href=", "href=")
    opening = _OPENING.search(body)
    view = _VIEW.search(opening[1]) if opening else None
    if opening is None or view is None:
        raise ValueError("the drawing is not an SVG with a viewBox")
    tag = f'<svg viewBox="{view[1]}" role="img" aria-label="{escape(text)}">'
    return body[: opening.start()] + tag + body[opening.end() :]


def _shrink(svg: str) -> str:
    """Remove prelude, metadata, comments, unused identifiers, and decimals that nobody can see."""
    body = _COMMENT.sub("", _METADATA.sub("", _PRELUDE.sub("", svg, count=1)))
    used = set(_USED.findall(body))
    body = _ID.sub(lambda match: match[0] if match[1] in used else "", body)
    body = _PATH.sub(lambda match: _shorten_path(match[0]), body)
    return _BREAKS.sub("\n", body).strip()


def _shorten_path(path: str) -> str:
    decimals = _TENTHS if len(path) > _LONG_PATH else _HUNDREDTHS
    return _BREAKS.sub(" ", decimals.sub(r"\1", path)).strip()
