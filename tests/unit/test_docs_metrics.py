"""docs/metrics.md is true of the code: every metric is listed, and what the page uses exists."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest
import yaml

from dpcrowd.node.keys.checks import Holder
from dpcrowd.node.metrics.families import FAMILIES, MESSAGES_REFUSED, RECORDS_REFUSED, UNSAMPLED, Unsampled, table
from dpcrowd.node.transport.caller import Reason
from project_support import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
MONITORING = ROOT / "examples" / "monitoring"
RULES = MONITORING / "alerts.yml"
VALUES = {
    ("dpcrowd_connections_refused_total", "reason"): get_args(Reason),
    ("dpcrowd_certificate_expiry_timestamp_seconds", "certificate"): get_args(Holder),
    ("dpcrowd_certificate_days_left", "certificate"): get_args(Holder),
    ("dpcrowd_guarantee_info", "kind"): ("window", "finite"),
}
OF_PROMETHEUS = ("job", "instance")  # labels that every scraped series has
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
    claims = (ROOT / "src" / "dpcrowd" / "experiments" / "claims" / "claims.toml").read_text(encoding="utf-8")
    names |= set(re.findall(r"\bdpcrowd_[a-z_]+", claims))  # ids of claims may begin like a metric
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
            if label in OF_PROMETHEUS:
                continue
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
        'dpcrowd_guarantee_info{kind="endless"} == 1',
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
        "dpcrowd_certificate_expiry_timestamp_seconds",
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


def test_the_former_file_of_alerts_is_the_same() -> None:
    """Operators who load it by its former path would lose their alerts with an update, and not notice."""
    assert (ROOT / "examples" / "prometheus-alerts.yml").read_text(encoding="utf-8") == RULES.read_text(
        encoding="utf-8"
    )


def test_every_alert_has_a_test_that_sets_it_off() -> None:
    """An alert whose expression cannot be true is worse than none; promtool runs these tests (tests/e2e)."""
    tests = yaml.safe_load((MONITORING / "alerts-test.yml").read_text(encoding="utf-8"))["tests"]
    checks = [check for one in tests for check in one["alert_rule_test"]]
    assert {check["alertname"] for check in checks if check["exp_alerts"]} == set(alerts())
    assert {check["alertname"] for check in checks if not check["exp_alerts"]} == set(alerts())


def test_deprecated_metrics_have_a_replacement_and_are_used_nowhere() -> None:
    """Whoever copies an example today would lose it with 0.3."""
    names = {family.name for family in FAMILIES}
    deprecated = {family.name: family.replaced_by for family in FAMILIES if family.replaced_by}
    assert set(deprecated.values()) <= names
    for path in (*MONITORING.rglob("*.yml"), *MONITORING.rglob("*.json")):
        text = path.read_text(encoding="utf-8")
        assert not [name for name in deprecated if name in text], path.name


def test_every_reason_of_a_refused_message_is_counted_from_the_start() -> None:
    """A counter that appears with its first event at 1 has never increased: the alert on the increase stays silent."""
    text = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    section = text.split("\n## Messages that are refused\n", 1)[1].split("\n## ", 1)[0]
    explained = set(re.findall(r"^\| `([a-z-]+)` \|", section, flags=re.MULTILINE))
    assert explained == set(MESSAGES_REFUSED.known)
    assert set(RECORDS_REFUSED.known) - {"equivocation"} <= explained


def test_every_panel_is_of_what_a_node_has_and_explains_itself() -> None:
    """A panel on a metric or label that was renamed stays empty; one without a text sends its reader elsewhere."""
    dashboard = json.loads((MONITORING / "grafana" / "dashboards" / "dpcrowd.json").read_text(encoding="utf-8"))
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len(panels) > 20
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in panels:
        assert re.fullmatch(r"\S.{15,}\.", panel["description"]), panel["title"]
        for target in panel["targets"]:
            assert unknown_words(target["expr"]) == [], panel["title"]
            assert '{job=~"$job", instance=~"$instance"}' in target["expr"], panel["title"]
