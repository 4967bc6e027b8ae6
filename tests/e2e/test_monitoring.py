"""What examples/monitoring promises, with a real Prometheus: it scrapes real servers, and every expression has data.

Grafana is not started: its dashboard is checked by evaluating every expression in it.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpcrowd.node.config import token_hash
from dpcrowd.node.metrics.families import FAMILIES
from node_support_trial import Trial, feeding, trial_of, until
from ports_support import free_ports
from project_support import ROOT

MONITORING = ROOT / "examples" / "monitoring"
TOKEN = "token of the operator's monitor"
PATIENCE = 90.0
CONDITION = re.compile(r"(==|!=|>=|<=|>|<) (?=[\d(]|time)")
"""A comparison of an alert, which filters. With `bool` after it, it gives 0 or 1 instead."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("promtool") is None or shutil.which("prometheus") is None,
        reason="needs prometheus and promtool (Debian: apt-get install prometheus)",
    ),
]


def promtool(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *words], input=text, capture_output=True, text=True, encoding="utf-8", cwd=MONITORING, timeout=120
    )


@pytest.mark.parametrize(
    "words",
    [
        ("check", "config", "--syntax-only", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts-test.yml"),
    ],
)
def test_the_rules_are_valid_and_fire_when_they_should(words: tuple[str, ...]) -> None:
    """A rule that Prometheus refuses keeps all others from being loaded; one that never fires is found too late."""
    answer = promtool(*words)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_a_rule_that_cannot_fire_is_found(tmp_path: Path) -> None:
    """The test above would otherwise pass whatever the rules say; the test of this one rule is enough to show it."""
    rules = (MONITORING / "alerts.yml").read_text(encoding="utf-8")
    assert "dpcrowd_ready == 0" in rules
    cases = yaml.safe_load((MONITORING / "alerts-test.yml").read_text(encoding="utf-8"))
    cases["tests"] = [case for case in cases["tests"] if case["name"] == "DpcrowdNotReady"]
    (tmp_path / "alerts-test.yml").write_text(yaml.safe_dump(cases), encoding="utf-8")
    for expression, fires in (("dpcrowd_ready == 0", True), ("dpcrowd_ready == 2", False)):
        (tmp_path / "alerts.yml").write_text(rules.replace("dpcrowd_ready == 0", expression), encoding="utf-8")
        assert (promtool("test", "rules", str(tmp_path / "alerts-test.yml")).returncode == 0) == fires


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Two servers that pass records on, and are fed; one token may read all of their metrics."""
    with trial_of(tmp_path_factory.mktemp("monitored"), 2, "--scheme", "relay") as it:
        for path in map(Path, it.files.values()):
            text, hashed = path.read_text(encoding="utf-8"), json.dumps([token_hash(TOKEN)])
            text = re.sub(r"^read = .*$", f"read = {hashed}", text, flags=re.MULTILINE)
            text = re.sub(r"^admin = .*$", f"admin = {hashed}", text, flags=re.MULTILINE)
            path.write_text(text, encoding="utf-8")
        it.readers = dict.fromkeys(it.files, TOKEN)
        it.start()
        with feeding(it, *it.files):
            it.all_ready()
            until(lambda: all(it.released(name) >= 0 for name in it.files), "both servers release")
            yield it


def test_metrics_follow_the_conventions_of_prometheus(trial: Trial) -> None:
    """promtool names what other tools would misread: units that are not base units, counters without _total, ...

    Deprecated metrics are the exception: they keep their names until they end.
    """
    name = next(iter(trial.files))
    text = trial.ask(name, "/metrics").text
    assert "process_cpu_seconds_total" in text, "the operator's metrics are checked as well"
    answer = promtool("check", "metrics", text=text)
    problems = answer.stdout + answer.stderr
    deprecated = [family.name for family in FAMILIES if family.replaced_by]
    assert [line for line in problems.splitlines() if line.split(" ")[0] not in deprecated] == []
    kept = [line for line in text.splitlines() if not any(name in line.split(" use ")[0] for name in deprecated)]
    answer = promtool("check", "metrics", text="\n".join([*kept, ""]))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert promtool("check", "metrics", text="# TYPE a_days gauge\na_days 1\n").returncode != 0, "it does look"


class Monitor:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def get(self, path: str, **params: str) -> Any:
        url = f"{self._address}{path}?{urllib.parse.urlencode(params)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 503:  # it is starting
                    raise
                raise AssertionError(f"{params}: {error.read().decode()}") from None

    def is_up(self) -> bool:
        try:
            return bool(self.get("/api/v1/targets")["activeTargets"])
        except OSError:
            return False

    def has_data(self, expression: str) -> bool:
        return bool(self.get("/api/v1/query", query=expression)["result"])


@contextlib.contextmanager
def monitoring(folder: Path, trial: Trial) -> Iterator[Monitor]:
    """Prometheus with the example's own files: only addresses, the token's place and the intervals are others."""
    (folder / "token").write_text(TOKEN, encoding="utf-8")
    shutil.copy(MONITORING / "alerts.yml", folder)
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    job["authorization"]["credentials_file"] = str(folder / "token")
    job["static_configs"] = [{"targets": [api.removeprefix("http://") for api in trial.apis.values()]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (port,) = free_ports(1)
    words = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*words, f"--web.listen-address=127.0.0.1:{port}"], stderr=log, stdout=log)
    try:
        monitor, end = Monitor(port), time.monotonic() + PATIENCE
        while not monitor.is_up():
            assert process.poll() is None, (folder / "log").read_text(encoding="utf-8")
            assert time.monotonic() < end, "Prometheus does not answer"
            time.sleep(0.2)
        yield monitor
    finally:
        process.terminate()
        process.wait(30)


def dashboard_expressions() -> dict[str, str]:
    """Title of the panel and expression, with the dashboard's variables filled in as Grafana does."""
    dashboard = json.loads((MONITORING / "grafana" / "dashboards" / "dpcrowd.json").read_text(encoding="utf-8"))
    texts = {}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$job", ".*").replace("$instance", ".*").replace("$__rate_interval", "1m")
            assert "$" not in text, text
            texts[f"panel {panel['title']}, {target['refId']}"] = text
    return texts


def alert_expressions() -> dict[str, str]:
    """Alert and expression, with conditions as values: in a healthy network the alerts themselves have no data."""
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    texts = {}
    for rule in group["rules"]:
        text = CONDITION.sub(r"\1 bool ", rule["expr"]).replace('kind="finite"', 'kind="window"')
        assert " bool " in text, text
        texts[rule["alert"]] = text
    return texts


def test_every_expression_of_dashboard_and_alerts_has_data(trial: Trial, tmp_path: Path) -> None:
    """A query that is valid but matches nothing shows an empty panel, and an alert on it never fires."""
    waiting = {**dashboard_expressions(), **alert_expressions()}
    assert len(waiting) > 60
    with monitoring(tmp_path, trial) as monitor:
        end = time.monotonic() + PATIENCE
        while waiting:
            waiting = {name: text for name, text in waiting.items() if not monitor.has_data(text)}
            assert not waiting or time.monotonic() < end, waiting
            time.sleep(1.0)
        targets = monitor.get("/api/v1/targets")["activeTargets"]
        assert {target["health"] for target in targets} == {"up"}, targets
        (group,) = monitor.get("/api/v1/rules")["groups"]
        assert {rule["health"] for rule in group["rules"]} == {"ok"}
