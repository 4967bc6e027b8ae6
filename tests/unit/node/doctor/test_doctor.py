"""The doctor: each thing that can be wrong with a server is made wrong, and has to be found, named and given a fix."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.cli.main import main
from dpcrowd.node.config import load_pair
from dpcrowd.node.config.samples import REGIONS
from dpcrowd.node.doctor import examine, has_problem
from dpcrowd.node.doctor.host_checks import running_process
from dpcrowd.node.keys.signing import key_of_certificate
from dpcrowd.node.keys.trial import make_trial
from dpcrowd.node.storage import Storage
from dpcrowd.sim.data.counts import counts_from_array
from node_support_doctor import MINUTE, change, look, of, pay, problems
from node_support_tls import Authority as Minter

DAY = 86_400 * 10**9


@pytest.mark.slow
def test_a_fresh_trial_passes_and_nothing_is_written(net: Path) -> None:
    """A doctor that cries wolf is not called again; one that changes things is none."""
    before = sorted(net.rglob("*"))
    findings = look(net)
    assert not has_problem(findings)
    checks = [one.check for one in findings]
    wanted = ("configuration", "certificate", "files", "clock", "disk", "ports", "database", "neighbours", "digest")
    assert set(wanted) <= set(checks)
    assert [one.outcome for one in of(findings, "database")] == ["skipped"]
    assert {one.outcome for one in of(findings, "neighbours")} == {"skipped"}, "who is down is not our problem"
    assert sorted(net.rglob("*")) == before


def test_a_wrong_configuration_ends_the_examination(net: Path) -> None:
    """Everything else would be judged by guesses."""
    change(net / "network.toml", "share = ", "shear = ")
    (only,) = look(net)
    assert only.outcome == "problem"
    assert "shear" in only.text
    assert only.fix.startswith("Correct the file")


def test_a_missing_file_is_not_to_be_corrected(tmp_path: Path) -> None:
    """Whoever mistypes the path looks for a mistake in a file that does not exist."""
    (only,) = examine(tmp_path / "node.toml")
    assert (only.outcome, only.check) == ("problem", "configuration")
    assert str(tmp_path / "node.toml") in only.text
    assert only.fix == "Give the path of an existing node.toml."


def test_a_missing_network_file_is_not_to_be_corrected_either(net: Path) -> None:
    """There is nothing to correct in a file that somebody has forgotten to copy."""
    (net / "network.toml").unlink()
    (only,) = look(net)
    assert "network.toml" in only.text
    assert only.fix == "Put the file there, or correct the path to it in node.toml."


def test_a_missing_model_is_named_in_the_network_file(net: Path) -> None:
    """The path of a model is in network.toml: whoever looked for it in node.toml would not find it."""
    change(net / "network.toml", "\nprocess_var = ", '\nmodel = "model.toml"\nprocess_var = ')
    (only,) = look(net)
    assert "scheme.model: " in only.text
    assert only.fix == "Put the file there, or correct 'model' in [scheme] of network.toml."


def test_a_broken_model_is_not_fixed_by_settings(net: Path) -> None:
    """The schema of settings says nothing about the file of a model."""
    change(net / "network.toml", "\nprocess_var = ", '\nmodel = "model.toml"\nprocess_var = ')
    (net / "model.toml").write_text("[model\n", encoding="utf-8")
    (only,) = look(net)
    assert "model.toml" in only.text
    assert only.fix.startswith("Put a model there that 'dpcrowd fit' wrote")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("days", "text"),
    [(340, "expires in"), (400, "expired on"), (-5, "is valid only from")],
    ids=["soon", "late", "early"],
)
def test_dates_of_the_certificate(days: int, text: str, net: Path) -> None:
    """A certificate that runs out at night takes the server off the network."""
    assert text in problems(look(net, now_ns=time.time_ns() + days * DAY))["certificate"]


@pytest.mark.slow
def test_dates_of_the_other_certificates(net: Path, tmp_path: Path) -> None:
    """That of HTTPS and that of the authority expire, too, and take the clients, or everybody, off the server."""
    file = net / "server-1" / "node.toml"
    web = Minter(tmp_path / "web").mint("localhost", valid=(-1, 35))
    web.key.chmod(0o600)
    change(file, "[listen]", f'[listen]\nhttp_certificate = "{web.certificate}"\nhttp_key = "{web.key}"')
    assert not has_problem(look(net, now_ns=time.time_ns() + 20 * DAY)), "the last third of its life has not begun"
    soon = problems(look(net, now_ns=time.time_ns() + 25 * DAY))["https"]
    assert "HTTPS (localhost, listen.http_certificate) expires in 9 days" in soon
    assert "is valid only from" in problems(look(net, now_ns=time.time_ns() + 40 * DAY))["https"]
    root = Minter(tmp_path / "other")  # 30 days
    mine = root.mint("server-1", valid=(-1, 29.9))
    shutil.copy(root.path, net / "server-1" / "ca.crt")
    for path, name in ((mine.key, "server-1.key"), (mine.certificate, "server-1.crt")):
        shutil.copy(path, net / "server-1" / name)
    (net / "server-1" / "server-1.key").chmod(0o600)
    old = load_pair(file)[1].server("server-1").keys[0]
    change(net / "network.toml", old, key_of_certificate(mine.certificate.read_bytes()))
    texts = [one.text for one in of(look(net), "certificate")]
    assert [text.split(" expires")[0] for text in texts] == [
        "the certificate of 'server-1'",
        "the certificate of the authority 'test authority'",
    ]


@pytest.mark.slow
def test_a_key_that_is_not_pinned(net: Path, tmp_path: Path) -> None:
    """Neighbours would refuse every message, and say so in their logs only."""
    other = make_trial(tmp_path / "other", ["server-1"], datetime.now(UTC))["server-1"]
    for path in (other.key, other.certificate, other.authority):
        shutil.copy(path, net / "server-1" / path.name)
    assert "does not pin" in problems(look(net))["certificate"]


@pytest.mark.slow
def test_a_certificate_for_another_host(net: Path) -> None:
    """TLS would refuse it, with a message about a handshake."""
    change(net / "network.toml", "tls/127.0.0.1", "tls/clinic.invalid")
    assert "the endpoint is at 'clinic.invalid'" in problems(look(net))["certificate"]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="files have modes on POSIX only")
def test_files_that_others_may_read(net: Path) -> None:
    """A private key that is open to others is not private."""
    (net / "server-1" / "server-1.key").chmod(0o640)
    assert "server-1.key' (mode 640)" in problems(look(net))["files"]
    (net / "server-1" / "server-1.key").chmod(0o600)
    (net / "server-1" / "data").mkdir()
    (net / "server-1" / "data").chmod(0o755)
    assert "data' (mode 755)" in problems(look(net))["files"]


@pytest.mark.slow
def test_files_that_are_not_there_are_not_called_private(net: Path) -> None:
    """Before the first start there is no data folder, and perhaps no key: neither was looked at."""
    told = {one.outcome: one.text for one in of(look(net), "files")}
    assert told == {
        "passed": "only the owner can read the private key.",
        "skipped": "the data folder does not exist yet.",
    }
    (net / "server-1" / "server-1.key").unlink()
    (only,) = of(look(net), "files")
    assert (only.outcome, only.text) == ("skipped", "the private key and the data folder do not exist yet.")


@pytest.mark.slow
def test_a_clock_that_cannot_be_right(net: Path) -> None:
    """A machine without a battery wakes up in 1970; one that was set back would open slots again."""
    assert "1970" in problems(look(net, now_ns=1000))["clock"]
    opens = time.time_ns() // MINUTE * MINUTE
    pay(net, opens)
    assert "has sealed a slot" in problems(look(net, now_ns=opens - MINUTE))["clock"]
    assert "clock" not in problems(look(net, now_ns=opens + MINUTE))


@pytest.mark.slow
def test_no_room_on_the_disk(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot write cannot pay."""
    usage = shutil.disk_usage(net)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10 << 20))
    assert "has 10 MiB free" in problems(look(net))["disk"]


def test_a_map_that_cannot_be_shown(net: Path) -> None:
    """The page shows tiles then, and nobody would know why."""
    assert of(look(net), "map") == []
    with (net / "network.toml").open("a", encoding="utf-8") as file:
        file.write('\n[map]\ngeojson = "regions.geojson"\n')
    (missing,) = of(look(net), "map")
    assert (missing.outcome, "regions.geojson' is not shown, since it cannot be read" in missing.text) == ("note", True)
    (net / "regions.geojson").write_text('{"features": []}', encoding="utf-8")
    (shown,) = of(look(net), "map")
    assert shown.outcome == "passed"


@pytest.mark.slow
def test_more_people_than_the_limits_hold(net: Path) -> None:
    """A slot that is not sampled, or whose message is late, for its many people tells that they were there."""
    assert "ingest" not in problems(look(net))
    file = net / "server-1" / "node.toml"
    change(file, "[log]", '[ingest]\njournal_limit = "1MiB"\ncapacity = 5000\n\n[log]')
    change(net / "network.toml", "population = 20000", "population = 60000")
    findings = [one for one in of(look(net), "ingest") if one.outcome == "problem"]
    assert [("journal_limit" in one.text, "capacity" in one.text) for one in findings] == [(True, False), (False, True)]
    change(file, 'journal_limit = "1MiB"', 'journal_limit = "2MiB"')  # what the fix says
    change(file, "capacity = 5000", "capacity = 20000")
    assert 'journal_limit = "2MiB"' in findings[0].fix
    assert "capacity = 20000" in findings[1].fix
    assert "ingest" not in problems(look(net))
    change(file, "capacity = 20000", 'capacity = 5\naccepts = "counts"')
    assert of(look(net), "ingest") == [], "counts take no room"


@pytest.mark.slow
def test_more_people_than_the_limits_hold_as_a_model_expects_them(net: Path) -> None:
    """A model of another crowd than the population's is used by the filters: they come, whatever the file says."""
    change(net / "server-1" / "node.toml", "[log]", "[ingest]\ncapacity = 10000\n\n[log]")
    crowd = np.random.default_rng(0).poisson(9_000, (40, len(REGIONS)))
    dpcrowd.fit(counts_from_array(crowd, regions=REGIONS), source="published", out=net / "model.toml")
    assert "ingest" not in problems(look(net))
    change(net / "network.toml", "process_var", 'model = "model.toml"  #')
    assert [one.text.split(" people")[0] for one in of(look(net), "ingest")] == ["up to 12019"]


@pytest.mark.slow
def test_ports_in_use(net: Path) -> None:
    """By a stranger it is a problem, by the node itself none."""
    node, _ = load_pair(net / "server-1" / "node.toml")
    with socket.create_server(node.listen.http_address):
        assert "listen.http" in problems(look(net, timeout=0.1))["ports"]
        node.data.mkdir(mode=0o700)
        (node.data / "node.lock").write_text(str(os.getpid()), encoding="ascii")
        findings = look(net, timeout=0.1)
        assert "ports" not in problems(findings)
        http, transport = of(findings, "ports")
        assert "is in use by the running node" in http.text
        assert "dials all its neighbours" in transport.text, "a free port of a running server asks for a word"


@pytest.mark.parametrize(
    ("answer", "code", "outcome"),
    [("yes\n", 0, "passed"), ("no\n", 0, "note"), ("", 1, "skipped"), (None, 0, "skipped")],
    ids=["synchronised", "not", "no systemd", "no answer"],
)
def test_the_system_is_asked_about_ntp(
    answer: str | None, code: int, outcome: str, net: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator sees before the first slot that nothing keeps the clock right; where nobody knows, that is said."""

    def told(command: Any, **settings: Any) -> Any:
        if answer is None:
            raise subprocess.TimeoutExpired(command, settings["timeout"])
        return subprocess.CompletedProcess(command, code, answer, "")

    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/timedatectl")
    monkeypatch.setattr(subprocess, "run", told)
    assert [one.outcome for one in of(look(net), "clock")][-1] == outcome
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert of(look(net), "clock")[-1].outcome == "skipped"


def test_a_promise_that_cannot_follow_the_last_one(net: Path) -> None:
    """`run` would refuse it; a doctor that passes it sends the operator away with a server that does not start."""
    data = net / "server-1" / "data"
    data.mkdir(mode=0o700)
    shutil.copy(net / "network.toml", data / "network.current.toml")
    change(net / "network.toml", "revision = 1", "revision = 2")
    change(net / "network.toml", "epsilon = ", "epsilon = 7 # ")
    (only,) = look(net)
    assert only.outcome == "problem"
    assert "valid_from_slot" in only.text


def test_an_older_file_is_not_to_be_corrected(net: Path) -> None:
    """Whoever restored it from a copy would raise its number, and bring old settings back."""
    data = net / "server-1" / "data"
    data.mkdir(mode=0o700)
    text = (net / "network.toml").read_text(encoding="utf-8")
    newer = text.replace("revision = 1", "revision = 6\nvalid_from_slot = 60")
    (data / "network.current.toml").write_text(newer, encoding="utf-8")
    (only,) = look(net)
    assert "network.revision: given 1, but revision 6 is in use: this is an older file" in only.text
    assert only.fix == "Put the network.toml there, and the model that it names, that the other servers have."


@pytest.mark.skipif(os.name != "posix", reason="asks with a signal")
def test_the_id_of_a_killed_node_does_not_count(tmp_path: Path) -> None:
    """kill -9 leaves the id in the file."""
    assert running_process(tmp_path) is None
    (tmp_path / "node.lock").write_text("", encoding="ascii")
    assert running_process(tmp_path) is None
    (tmp_path / "node.lock").write_text("999999999", encoding="ascii")
    assert running_process(tmp_path) is None
    (tmp_path / "node.lock").write_text(str(os.getpid()), encoding="ascii")
    assert running_process(tmp_path) == os.getpid()


@pytest.mark.slow
def test_the_command_prints_problem_and_fix(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 or 1, for people and for programs."""
    file = str(net / "server-1" / "node.toml")
    assert main(["node", "doctor", file, "--listen", "0"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("doctor: PASSED\n")
    assert "PROBLEM" not in out
    (net / "server-1" / "server-1.crt").unlink()
    assert main(["node", "doctor", file, "--listen", "0"]) == 1
    out = capsys.readouterr().out
    lines = out.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("doctor: PROBLEM certificate: "))
    assert lines[place + 1].startswith("        FIX     ")
    assert lines[-1] == "doctor: 1 problem"
    assert main(["node", "doctor", file, "--json", "--listen", "0"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["passed"] is False
    assert {"check", "outcome", "text", "fix"} == set(answer["findings"][0])


@pytest.mark.slow
def test_another_user_may_notlook(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's own account against the folder of the service: one line, no traceback."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "data")

    monkeypatch.setattr(Storage, "inspect", refuse)
    assert "cannot be read: Permission denied" in problems(look(net))["database"]


@pytest.mark.slow
def test_a_sampler_that_is_not_installed(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node would not start; the doctor says so beforehand, and says what a snapshot does to this sampler."""
    file = net / "server-1" / "node.toml"
    assert of(look(net), "noise") == []
    file.write_text(file.read_text(encoding="utf-8") + '\n[noise]\nsampler = "opendp"\n', encoding="utf-8")
    findings = look(net)
    assert "noise" not in problems(findings)
    assert any(one.outcome == "note" and "repeats its noise" in one.text for one in of(findings, "configuration"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "opendp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opendp", None)
    assert "needs opendp, which is not installed" in problems(look(net))["noise"]
