"""The operator's pages are true of the code: every event and reason is explained, every command and file works."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import click
import pytest

import dpcrowd
from dpcrowd.cli.main import cli
from dpcrowd.errors import BadInput
from dpcrowd.node.api.app import _REASONS
from dpcrowd.node.api.reference import page
from dpcrowd.node.config import load_pair, token_hash
from dpcrowd.node.ingest.batch import ROW_REASONS
from dpcrowd.node.live.executor import FLOOD, STRANGER
from dpcrowd.node.live.logs import LIBRARY
from dpcrowd.node.storage.failures import StorageFailure
from dpcrowd.node.transport.caller import Reason
from dpcrowd.node.wire import MessageReason
from project_support import ROOT

SOURCE = Path(dpcrowd.__file__).parent / "node"
DOCS = ROOT / "docs"
FAILURES = (DOCS / "failures.md").read_text(encoding="utf-8")
OPERATE = (DOCS / "operate.md").read_text(encoding="utf-8")

# The place of the reason among the arguments of whatever refuses or reports.
MESSAGES = {"MessageRefused": 0, "RefuseMessage": 2, "_refuse": 2}
REQUESTS = {
    "IntakeRefused": 0,
    "BodyRefused": 1,
    "Denied": 1,
    "QueryRefused": 1,
    "refusal": 1,
    "refusal_bytes": 0,
}

LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
LOGGERS = {"log", "_log"}


def calls(*folders: str) -> Iterator[ast.Call]:
    for folder in folders:
        place = SOURCE / folder
        for file in [place] if place.is_file() else place.rglob("*.py"):
            yield from calls_in(file)


@cache
def calls_in(file: Path) -> tuple[ast.Call, ...]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Call))


def words(places: dict[str, int], *folders: str) -> set[str]:
    """Texts that stand where reasons stand, also as one of two in a condition."""
    reasons = set()
    for call in calls(*folders):
        name = getattr(call.func, "id", None) or getattr(call.func, "attr", "")
        if name in places and len(call.args) > places[name]:
            argument = call.args[places[name]]
            choices = [argument.body, argument.orelse] if isinstance(argument, ast.IfExp) else [argument]
            reasons |= {one.value for one in choices if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return reasons


@pytest.mark.slow
def test_the_names_that_reasons_are_looked_up_by_exist() -> None:
    """A name that no call has any more finds nothing, and hides that its reasons are no longer looked at."""
    names = {getattr(call.func, "id", None) or getattr(call.func, "attr", "") for call in calls("")}
    assert (MESSAGES.keys() | REQUESTS.keys()) - names == set()


def log_calls() -> Iterator[ast.Call]:
    for call in calls(""):
        called = call.func
        if isinstance(called, ast.Attribute) and called.attr in LEVELS and getattr(called.value, "id", "") in LOGGERS:
            yield call


def events_of(call: ast.Call) -> set[str] | None:
    """Of `extra={"event": ...}`: a text, one of two in a condition, or the event of a report; None: there is none."""
    extras = [keyword.value for keyword in call.keywords if keyword.arg == "extra"]
    if not extras or not isinstance(extras[0], ast.Dict):
        return None
    for key, value in zip(extras[0].keys, extras[0].values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "event":
            choices = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
            return {one.value for one in choices if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return None


def test_every_line_of_the_log_has_an_event() -> None:
    """A monitor filters by it: a line without one is found by its wording alone, which may change."""
    found = list(log_calls())
    assert len(found) > 20
    assert [ast.unparse(call) for call in found if events_of(call) is None] == []


def table(heading: str) -> set[str]:
    """The first column of the table below a heading."""
    section = FAILURES.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return set(re.findall(r"^\| `([a-z-]+)` \|", section, flags=re.MULTILINE))


def test_every_event_of_the_log_is_explained() -> None:
    """An operator who sees one has nowhere else to look."""
    events = words({"Report": 0}, "machine") | {LIBRARY}.union(*(events_of(call) or set() for call in log_calls()))
    assert {"ledger-rolled-back", "storage-failed", "clock-behind", "clock", "broke", "neighbour-down"} <= events
    assert table("Events in the log") == events


def test_every_reason_of_a_refused_message_is_explained() -> None:
    """Nor is a reason explained that no longer exists."""
    reasons = words(MESSAGES, "wire.py", "machine") | {STRANGER, FLOOD}
    assert {"late", "replay", "bad-signature", "other-configuration", "absurd"} <= reasons
    assert table("Messages that are refused") == reasons == set(get_args(MessageReason))


def test_every_reason_of_a_failed_connection_is_explained() -> None:
    """The log and a metric have nothing but the word."""
    assert table("Connections that fail") == set(get_args(Reason))


def test_every_reason_of_a_refused_request_is_explained() -> None:
    """Those of check-ins and those of everything else; between them, all that the API can answer."""
    reasons = words(REQUESTS, "api", "ingest", "live", "collect.py") | {reason for reason, _ in _REASONS.values()}
    reasons |= {texts.request for texts in ROW_REASONS.values()}  # of a request of which every row is refused
    reasons |= {"refused"}  # a status that `_REASONS` does not have
    assert {"late", "future", "unknown-region", "field", "no-token", "query", "internal"} <= reasons
    assert table("Check-ins and counts that are refused") | table("Other requests that are refused") == reasons


def test_every_reason_of_a_refused_row_is_explained() -> None:
    """Of a row the answer has nothing but its number and the word; no word is listed that no longer exists."""
    sentence = FAILURES.split("- The reasons of rows are ", 1)[1].split(". ", 1)[0]
    assert set(re.findall("`([a-z-]+)`", sentence)) == ROW_REASONS.keys()


def test_every_kind_of_storage_failure_is_explained() -> None:
    """The type lists the kinds; the page explains each."""
    kinds = set(get_args(StorageFailure))
    assert table("Storage") == kinds
    assert words({"StorageError": 0}, "storage") <= kinds


def test_the_api_reference_is_that_of_the_code() -> None:
    """python -m dpcrowd.node.api.reference > docs/api.md"""
    assert (DOCS / "api.md").read_text(encoding="utf-8") == page()


def commands() -> Iterator[str]:
    for name in ("operate.md", "failures.md", "keys.md", "node-tools.md"):
        for line in (DOCS / name).read_text(encoding="utf-8").splitlines():
            found = re.match(r"(?: {4}|\t)+(dpcrowd .*)", line)
            if found and "..." not in line and not re.search(r" {3,}[a-z]|COMMAND| DIR ", found[1]):
                yield found[1]


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_every_command_on_the_pages_exists(line: str) -> None:
    """With these options and arguments: what is copied from the page must not end in "unknown option"."""
    arguments = shlex.split(line, comments=True)[1:]
    command: click.Command = cli
    context = click.Context(cli, info_name="dpcrowd")
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        found = command.get_command(context, name)
        assert found is not None, name
        command, context = found, click.Context(found, parent=context, info_name=name)
    command.make_context(command.name, arguments)  # parses, and does nothing


def blocks() -> list[str]:
    return re.findall(r"^```toml\n(.*?)^```", OPERATE, flags=re.MULTILINE | re.DOTALL)


def test_the_files_on_the_page_load(tmp_path: Path) -> None:
    """Both, and the second network's ledger with them, once there are tokens: those of the page open no door."""
    network, node, shared = blocks()
    (tmp_path / "network.toml").write_text(network, encoding="utf-8")
    (tmp_path / "node.toml").write_text(f"{node}\n{shared}", encoding="utf-8")
    with pytest.raises(BadInput, match="not 64 hexadecimal digits after 'sha256:'"):
        load_pair(tmp_path / "node.toml")
    filled = node.replace("sha256:PUT-THE-HASH-OF-YOUR-TOKEN-HERE", token_hash("a token of sixteen and more"))
    (tmp_path / "node.toml").write_text(f"{filled}\n{shared}", encoding="utf-8")
    loaded, of_all = load_pair(tmp_path / "node.toml")
    assert loaded.ledger.shared == Path("/var/lib/dpcrowd/flu")
    assert of_all.warnings() == ()
    assert loaded.warnings() == ()
    assert of_all.neighbours("clinic-b", 0) == ("clinic-a", "clinic-c")


def test_links_between_the_pages_lead_somewhere() -> None:
    """A heading that is renamed would leave a reader at the top of the wrong page."""
    for name in ("operate.md", "failures.md", "api.md"):
        text = (DOCS / name).read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([a-z-]*\.md)?(?:#([a-z0-9-]+))?\)", text):
            there = (DOCS / (target or name)).read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.*)$", there, flags=re.MULTILINE)
            anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
            assert not anchor or anchor in anchors, (name, target, anchor)
