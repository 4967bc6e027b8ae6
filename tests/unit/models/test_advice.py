"""Advice to fit a model again says on what: raw counts of people whom the promise covers would be an unpaid release."""

from __future__ import annotations

import re
from pathlib import Path

import dpcrowd

ADVICE = re.compile(r"\bfit (?:(?:the|its|a) model |it |one |another one )?(?:again|anew|another one)\b", re.IGNORECASE)
PAID = re.compile(r"public|releases|later ones", re.IGNORECASE)
SOURCE = Path(dpcrowd.__file__).parent
DOCS = Path(__file__).parents[3] / "docs"


def sentences(path: Path) -> list[str]:
    """The sentences of a file, with literals of successive lines joined."""
    text = re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8"))
    return re.split(r"(?<=[.])\s+(?=[A-Z*`|-])", text)


def test_advice_to_fit_again_names_public_counts_or_releases() -> None:
    """An operator who is told to fit again takes the counts at hand, which are those that nobody may publish."""
    files = [*SOURCE.rglob("*.py"), *DOCS.glob("*.md")]
    advice = [(path.name, text) for path in files for text in sentences(path) if ADVICE.search(text)]
    assert len(advice) > 8, "the search finds what it is meant to find"
    assert [(name, text) for name, text in advice if not PAID.search(text)] == []
