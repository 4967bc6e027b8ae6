"""docs/metrics.md is true of the code: every metric is listed, and what the page uses exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from dpcrowd.node.metrics.families import FAMILIES, UNSAMPLED, Unsampled, table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
KINDS = {"counter": [""], "gauge": [""], "histogram": ["", "_bucket", "_sum", "_count"]}


def test_the_table_is_that_of_the_code() -> None:
    """python -m dpcrowd.node.metrics.families prints it; a metric that is not there exists for nobody."""
    assert table() in PAGE


def test_every_reason_for_a_slot_without_a_sample_is_explained() -> None:
    """And no other one; the type, the counter's start values and the page have the same."""
    section = PAGE.split("\n## Why a slot has no sample\n", 1)[1].split("\n## ", 1)[0]
    explained = re.findall(r"^\| `([a-z]+)` \|", section, flags=re.MULTILINE)
    assert sorted(explained) == sorted(UNSAMPLED.known) == sorted(get_args(Unsampled))


def test_metrics_that_the_pages_name_exist() -> None:
    """An alert on a metric that was renamed never fires."""
    names = {family.name + suffix for family in FAMILIES for suffix in KINDS[family.kind]}
    for page in (ROOT / "docs").glob("*.md"):
        used = set(re.findall(r"\bdpcrowd_[a-z_]+", page.read_text(encoding="utf-8")))
        assert used <= names, page.name
    assert "dpcrowd_exchanges_total" in PAGE
