"""The doctor beside a running server: what that says of itself and has refused of its neighbours."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput, DpcrowdError
from dpcrowd.node.config import digest, load_pair
from dpcrowd.node.slots import rfc3339
from dpcrowd.node.storage import StorageError
from dpcrowd.node.storage.identity import restart_with_new_journal
from node_support_cli import NETWORK, answering
from node_support_doctor import look, of, problems

OTHER = "other-configuration"


def _runs(net: Path) -> None:
    """As if a node held the folder."""
    data = load_pair(net / "server-1" / "node.toml")[0].data
    data.mkdir(mode=0o700, exist_ok=True)
    (data / "node.lock").write_text(str(os.getpid()), encoding="ascii")


def _answers(net: Path, neighbour: dict[str, Any] | None = None, **changes: Any) -> Callable[[object, str], Any]:
    """How a node answers that has one neighbour; `changes` are of any of the three answers."""
    _, network = load_pair(net / "server-1" / "node.toml")
    slot = network.clock().slot_of(time.time_ns() - network.grace_ns) - 1
    heard = rfc3339(network.clock().closes(slot) + network.grace_ns)
    one = {"name": "server-2", "connected": True, "last_slot": slot, "last_heard": heard, "refused": {}}
    whole = {"server": "server-1", "digest": digest(network).hex(), "ready": True, "problems": [], "samples": True}
    return lambda _, path: {**whole, "neighbours": [{**one, **(neighbour or {})}], **changes}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("neighbour", "changes", "check", "outcome"),
    [
        ({}, {}, "digest", "passed"),
        ({}, {}, "clock", "passed"),
        ({}, {}, "running", "passed"),
        ({}, {"digest": "00"}, "digest", "note"),
        ({}, {"server": "server-2"}, "running", "problem"),
        ({"refused": {"other-configuration": 3}}, {}, "digest", "problem"),
        ({"refused": {"replay": 3}}, {}, "digest", "passed"),
        ({"refused": {"wrong-slot": 1}}, {}, "clock", "problem"),
        ({"refused": {"late": 50}}, {}, "clock", "problem"),
        ({"refused": {"late": 2}}, {}, "clock", "passed"),
        ({"last_slot": None}, {}, "clock", "skipped"),
        ({}, {"samples": False, "text": "no neighbour has vouched.", "ready": False}, "running", "note"),
        (
            {},
            {"samples": False, "waits_for": "operator", "text": "confirm the loss first.", "ready": False},
            "running",
            "problem",
        ),
        ({}, {"ready": False, "problems": ["the disk is full."]}, "running", "problem"),
        ({}, {"ready": False, "problems": ["the clock went back: 'dpcrowd node accept-clock'."]}, "running", "problem"),
        ({}, {"warnings": ["the certificate of 'server-1' expires in 3 days."]}, "running", "note"),
        ({}, {"warnings": ["samples of this server are paid for and not used since slot 3."]}, "running", "problem"),
    ],
)
def test_what_a_running_server_says(
    neighbour: dict[str, Any], changes: dict[str, Any], check: str, outcome: str, net: Path
) -> None:
    """It has seen its neighbours' messages; without this a neighbour is refused for ever, and both wonder why."""
    _runs(net)
    findings = of(look(net, ask=_answers(net, neighbour, **changes)), check)
    assert outcome in [one.outcome for one in findings]
    assert ("problem" in [one.outcome for one in findings]) == (outcome == "problem")


@pytest.mark.slow
def test_a_running_server_that_has_not_taken_a_renewed_certificate(net: Path) -> None:
    """The file is good, so every other check passes; only the process knows better, and 'Storage' would not help."""
    _runs(net)
    says = {"ready": False, "problems": ["the certificate of 'server-1' expired on 2026-05-01."]}
    (wrong,) = (one for one in of(look(net, ask=_answers(net, **says)), "running") if one.outcome == "problem")
    assert "dpcrowd node reload" in wrong.fix


@pytest.mark.slow
def test_a_running_server_whose_journal_is_gone_needs_a_restart_only(net: Path) -> None:
    """The page on storage speaks of backups and of losses to confirm, which would cost a window for nothing."""
    _runs(net)
    gone = restart_with_new_journal(StorageError("missing", "/data/journal was deleted", ""))
    says = {"ready": False, "problems": [str(gone)], "samples": False, "text": str(gone)}
    (wrong,) = (one for one in of(look(net, ask=_answers(net, **says)), "running") if one.outcome == "problem")
    assert wrong.fix.startswith("Restart the node: there is nothing to restore")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "check", "blame"),
    [("wrong-slot", "clock", "came before their slot"), ("late", "clock", "came after"), (OTHER, "digest", "differs")],
)
@pytest.mark.parametrize(("slots", "over"), [(0, False), (2, False), (10, True)])
def test_what_a_neighbour_was_refused_for_passes(
    reason: str, check: str, blame: str, slots: int, over: bool, net: Path
) -> None:
    """A clock that was corrected a week ago was called a problem until the restart, and so was a file."""
    _runs(net)
    _, network = load_pair(net / "server-1" / "node.toml")
    heard = network.clock().closes(network.clock().slot_of(time.time_ns() - network.grace_ns) - 1) + network.grace_ns
    last = rfc3339(heard - slots * network.clock().length_ns)
    findings = look(net, ask=_answers(net, {"refused": {reason: 9}, "refused_last": {reason: last}}))
    told = [one for one in of(findings, check) if blame in one.text]
    assert [one.outcome for one in told] == ["note" if over else "problem"]
    assert (f"the last one at {last}" in told[0].text) == over, "so that an operator can look for what it was"
    passed = [one for one in of(findings, check) if one.outcome == "passed" and "server-2" in one.text]
    assert bool(passed) == (over and check == "clock"), "the last message tells how the clocks stand now"


@pytest.mark.slow
def test_a_neighbour_that_is_refused_for_good_is_a_problem_however_long_ago(net: Path) -> None:
    """Nothing of it was used since: that nothing is refused any more only says that it is silent."""
    _runs(net)
    silent = {"refused": {"wrong-slot": 3}, "refused_last": {"wrong-slot": rfc3339(0)}, "last_slot": None}
    assert "clock" in problems(look(net, ask=_answers(net, {**silent, "last_heard": None})))


@pytest.mark.slow
def test_a_neighbour_whose_messages_were_not_used_was_heard(net: Path) -> None:
    """Right after 'server-2' had shown that the folder is an old copy, the doctor said that nothing was heard of it."""
    _runs(net)
    (told,) = [one for one in of(look(net, ask=_answers(net, {"last_slot": None})), "clock") if "server-2" in one.text]
    assert told.text == (
        "no message of 'server-2' was used in an exchange since the node started: its clock is not compared."
    )


@pytest.mark.slow
@pytest.mark.parametrize("runs", [False, True])
def test_a_file_in_the_journals_place_is_found_before_the_start(runs: bool, net: Path) -> None:
    """The doctor passed, and the start ended with code 3."""
    node, _ = load_pair(net / "server-1" / "node.toml")
    node.data.mkdir(mode=0o700)
    assert "disk" not in problems(look(net))
    (node.data / "journal").write_bytes(b"")
    if runs:
        _runs(net)
    (wrong,) = (one for one in of(look(net), "disk") if one.outcome == "problem")
    assert "is a file, but has to be the folder for check-ins" in wrong.text
    assert ("restart the node" in wrong.fix) == runs


@pytest.mark.slow
@pytest.mark.parametrize(("error", "outcome"), [(BadInput, "skipped"), (DpcrowdError, "problem")])
def test_a_running_server_that_does_not_say(error: type[DpcrowdError], outcome: str, net: Path) -> None:
    """Without a token it cannot be asked, which is no fault; one that does not answer at all is not well."""

    def ask(*_: object) -> Any:
        raise error("no.")

    _runs(net)
    assert [one.outcome for one in of(look(net, ask=ask), "running")] == [outcome]


@pytest.mark.slow
@pytest.mark.parametrize("far", [True, False])
def test_a_clock_that_went_back_is_not_called_a_problem_of_storage(far: bool, net: Path) -> None:
    """The operator would read about disks, and wait for an hour; nor is the same told twice, as it was."""
    _runs(net)
    more = " If the clock is right now, 'dpcrowd node accept-clock' lets slots begin again." if far else ""
    text = f"the clock went back by 1 h: slot 7 was sealed already.{more}"
    answers = _answers(net, {"refused": {"late": 9}}, ready=False, problems=[text], samples=False, text=text)
    findings = look(net, ask=answers)
    (found,) = of(findings, "running")
    assert found.outcome == "problem"
    assert ("accept-clock" in found.fix, "Storage" in found.fix) == (far, False)
    (late,) = [one for one in of(findings, "clock") if "server-2" in one.text]
    assert "or this one was ahead" in late.text, "the neighbour is not to blame for what this clock has refused"


@pytest.mark.slow
def test_a_node_that_answers_without_its_folder_is_named(net: Path) -> None:
    """With the folder the lock is gone, too: the doctor used to say that no node runs, and that all is well."""
    gone = ["'/data/dpcrowd.db' was deleted or moved away while the node was running; put it back as it was."]
    findings = of(look(net, ask=_answers(net, ready=False, problems=gone), listen=5), "running")
    assert [one.outcome for one in findings] == ["problem", "note"]
    assert "no process uses the data folder" in findings[0].text
    assert gone[0] in findings[1].text
    assert of(look(net, ask=lambda *_: {"error": "some other program"}), "running") == []


@pytest.mark.slow
def test_a_node_without_its_folder_is_not_blamed_for_its_own_ports(net: Path) -> None:
    """Told to stop what listens at its port, an operator would look for another program, and miss the folder."""
    node, _ = load_pair(net / "server-1" / "node.toml")
    with socket.create_server(node.listen.http_address):
        findings = look(net, ask=_answers(net, ready=False, problems=["it was deleted."]))
        assert "ports" not in problems(findings)
        assert "is in use by the node that has lost its data folder" in of(findings, "ports")[0].text
        assert f"the data folder '{node.data}', which does not exist" in problems(findings)["running"]
        checks = [one.check for one in findings]
        assert checks.index("running") < checks.index("ports"), "the cause comes first"
        assert "ports" in problems(look(net, ask=lambda *_: {"error": "some other program"}))


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True])
def test_the_command_asks_over_http_and_https(tls: bool, net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With HTTPS the check used to be left out; the certificate in the file is what is trusted."""
    file = net / "server-1" / "node.toml"
    _runs(net)
    with answering(file) as server:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(file.with_name("server-1.crt"), file.with_name("server-1.key"))
            server.socket = context.wrap_socket(server.socket, server_side=True)
            lines = '[listen]\nhttp_certificate = "server-1.crt"\nhttp_key = "server-1.key"'
            file.write_text(file.read_text(encoding="utf-8").replace("[listen]", lines), encoding="utf-8")
        main(["node", "doctor", str(file), "--token", "secret-secret-secret"])
        out = capsys.readouterr().out
    assert "running: the node is ready" in out
    assert f"the node runs with digest {NETWORK['digest']}" in out
    assert {token for _, _, token, _ in server.asked} == {"Bearer secret-secret-secret"}


@pytest.mark.parametrize(
    ("changes", "check", "outcome", "words"),
    [
        ({"servers": [{"name": "server-1", "suspected_since": 40}]}, "suspected", "problem", "of this server disagree"),
        ({"servers": [{"name": "server-2", "suspected_since": 40}]}, "suspected", "note", "Tell its operator"),
        ({"servers": [{"name": "server-2", "suspected_since": None}]}, "suspected", "passed", "no server's records"),
        (
            {"servers": [{"name": name, "suspected_since": 4} for name in ("server-2", "server-3")]},
            "suspected",
            "note",
            "shares in network.toml are probably wrong",
        ),
        ({"verdict": "narrow", "text": "23% of 48."}, "calibration", "problem", "23% of 48."),
        ({"verdict": "calibrated", "text": "95%."}, "calibration", "passed", "95%."),
        ({"verdict": "calibrated", "text": "far.", "caveats": ["far-off"]}, "calibration", "note", "far."),
        ({"verdict": "unknown", "text": "3 so far."}, "calibration", "skipped", "3 so far."),
    ],
)
def test_suspected_servers_and_narrow_intervals_are_found(
    changes: dict[str, Any], check: str, outcome: str, words: str, net: Path
) -> None:
    """The doctor called a server well whose estimates were far outside their intervals."""
    _runs(net)
    findings = of(look(net, ask=_answers(net, **changes)), check)
    assert [one.outcome for one in findings if words in one.text] == [outcome]
    assert all("share" in one.fix for one in findings if one.outcome == "problem"), "the likeliest cause"


def test_a_node_of_an_earlier_version_has_no_calibration(net: Path) -> None:
    """It refuses the question; nothing else may be left unchecked because of it."""
    _runs(net)
    answers = _answers(net)

    def ask(node: object, path: str) -> Any:
        if path == "/v1/quality":
            raise BadInput("the node refused (404): no such path.")
        return answers(node, path)

    findings = look(net, ask=ask)
    assert [one.outcome for one in of(findings, "running")] == ["passed"]
    assert not of(findings, "calibration")
