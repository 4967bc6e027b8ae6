"""The list of words names each thing once; two rows for one word are two meanings."""

from __future__ import annotations

import re
from collections import Counter

from project_support import ROOT

PAGE = (ROOT / "docs" / "words.md").read_text(encoding="utf-8")
ROWS = [
    row.split("|")[1].strip() for row in PAGE.splitlines() if row.startswith("| ") and not row.startswith("| word |")
]


def test_every_word_is_listed_once() -> None:
    """A second row may say something else; `record`, `reach` and `lag` stood there twice."""
    words = Counter(word.strip() for row in ROWS for word in row.split(","))
    assert [word for word, number in words.items() if number > 1] == []
    assert len(words) > 60


def test_names_of_the_code_exist() -> None:
    """A name that was renamed in the code and not here sends its reader astray."""
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    known = {word for source in sources for word in re.findall(r"\w+", source)}
    columns = [
        row.split("|")[4] for row in PAGE.splitlines() if row.startswith("| ") and not row.startswith("| word |")
    ]
    names = {name.split(".")[-1] for column in columns for name in re.findall(r"`([A-Za-z_.]+)`", column)}
    assert sorted(names - known - {"toml"}) == []
