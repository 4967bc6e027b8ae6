"""docs/metrics.md is true of the code: every metric is listed, and what the page uses exists."""

from __future__ import annotations

import re
from typing import get_args

import pytest
import yaml

from dpcrowd.node.keys.checks import Holder
from dpcrowd.node.metrics.families import FAMILIES, UNSAMPLED, Unsampled, table
from dpcrowd.node.transport.caller import Reason
from project_support import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
RULES = ROOT / "examples" / "prometheus-alerts.yml"
VALUES = {
    ("dpcrowd_connections_refused_total", "reason"): get_args(Reason),
    ("dpcrowd_certificate_days_left", "certificate"): get_args(Holder),
}
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


def alerts() -> dict[str, str]:
    """Name -> expression, of the file that the page tells operators to load."""
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def unknown_words(expression: str) -> list[str]:
    """Metrics, labels and values of labels in an expression that no node has."""
    families = {family.name + suffix: family for family in FAMILIES for suffix in KINDS[family.kind]}
    found = []
    for name, selector in re.findall(r"\b((?:dpcrowd|process)_[a-z_]+)(?:\{(.*?)\})?", expression):
        if name not in families:
            found.append(name)
            continue
        for label, values in re.findall(r'(\w+)\s*[!=]=?~?\s*"(.*?)"', selector):
            known = VALUES.get((name, label)) or families[name].known
            found += [label] if label not in families[name].labels else []
            found += [value for value in values.split("|") if known and value not in known]
    return found


def test_every_alert_is_of_what_a_node_has() -> None:
    """An alert on a metric, label or reason that was renamed never fires, and nobody notices that it does not."""
    rules = alerts()
    assert len(rules) > 10
    assert {name: unknown_words(expression) for name, expression in rules.items()} == {name: [] for name in rules}
    section = PAGE.split("\n## What to alert on\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| .*? \| `(.*?)`.*? \| .*? \|$", section, flags=re.MULTILINE)
    assert {unused for row in rows for unused in unknown_words(row)} == set()
    assert sorted(rows) == sorted(rules.values()), "the page and the file have the same alerts"


@pytest.mark.parametrize(
    "wrong",
    [
        "dpcrowd_certificates_days_left < 21",
        'increase(dpcrowd_connections_refused_total{why="expired"}[1h]) > 0',
        'increase(dpcrowd_connections_refused_total{reason=~"expired|old"}[1h]) > 0',
        'dpcrowd_certificate_days_left{certificate="own"} < 21',
    ],
)
def test_a_wrong_alert_is_found(wrong: str) -> None:
    """The test above would otherwise pass whatever the rules say."""
    assert len(unknown_words(wrong)) == 1


@pytest.mark.parametrize(
    "name",
    [
        "dpcrowd_certificate_days_left",
        "dpcrowd_api_limited",
        "dpcrowd_connections_refused_total",
        "dpcrowd_epsilon_blocked",
        "dpcrowd_slots_missed_total",
        "dpcrowd_storage_up",
        "dpcrowd_storage_failures_total",
        "dpcrowd_storage_free_bytes",
    ],
)
def test_what_an_operator_has_to_know_has_an_alert(name: str) -> None:
    """A certificate that expires unseen ends all links; a new operator finds that out on the day."""
    assert any(re.search(rf"\b{name}\b", expression) for expression in alerts().values())
