"""Servers that take new tokens, certificates and log levels while they run, by command and by SIGHUP."""

from __future__ import annotations

import contextlib
import http.client
import os
import pty
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpcrowd.node.config import token_hash
from node_support_tls import Authority, CertificateFiles
from node_support_trial import LONG, Trial, change, trial_of, until

pytest.importorskip("zenoh")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

ONE, TWO = "server-1", "server-2"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("https"), kind="ec")


@pytest.fixture
def trial(tmp_path: Path, authority: Authority) -> Iterator[Trial]:
    """Two servers; the first has HTTPS, with its files beside node.toml, where the sample puts them."""
    with trial_of(tmp_path, 2) as made:
        folder = Path(made.files[ONE]).parent
        put(authority.mint("localhost"), folder)
        change(made.files[ONE], ("[listen]", '[listen]\nhttp_certificate = "https.crt"\nhttp_key = "https.key"'))
        change(made.files[ONE], ('format = "pretty"', 'format = "json"'))
        made.apis[ONE] = made.apis[ONE].replace("http:", "https:")
        made.tls = ssl.create_default_context(cafile=str(authority.path))
        made.start()
        made.all_ready()
        yield made


def put(files: CertificateFiles, folder: Path) -> None:
    (folder / "https.key").write_bytes(files.key.read_bytes())
    (folder / "https.key").chmod(0o600)
    (folder / "https.crt").write_bytes(files.certificate.read_bytes())


def served(trial: Trial) -> str:
    host, port = trial.config(ONE).listen.http_address
    return ssl.get_server_certificate((host, port), timeout=LONG)


def set_tokens(trial: Trial, name: str, **tokens: str) -> None:
    text = Path(trial.files[name]).read_text(encoding="utf-8")
    for right, token in tokens.items():
        text = re.sub(rf"\n{right} = \S+", f'\n{right} = ["{token_hash(token)}"]', text)
    Path(trial.files[name]).write_text(text, encoding="utf-8")


def reload(trial: Trial, name: str, token: str) -> subprocess.CompletedProcess[str]:
    return trial.tool(name, "reload", "--token", token)


def test_tokens_certificate_and_log_level_change_without_a_restart(trial: Trial, authority: Authority) -> None:
    """A token that leaked, a certificate of 90 days: each would cost a restart, and with it a slot."""
    folder, process = Path(trial.files[ONE]).parent, trial.processes[ONE]
    before, admin = served(trial), trial.tokens[ONE]["admin"]
    host, port = trial.config(ONE).listen.http_address
    kept = http.client.HTTPSConnection(host, port, timeout=LONG, context=trial.tls)
    kept.request("GET", "/healthz")
    assert kept.getresponse().read()
    fresh = authority.mint("localhost")
    put(fresh, folder)
    set_tokens(trial, ONE, checkin="a fresh token for check-ins", admin="a fresh token for me", read="a token to read")
    change(trial.files[ONE], ('level = "info"', 'level = "warning"'), ("[log]", "[ingest]\ncapacity = 5\n\n[log]"))
    assert trial.checkin(ONE, []).status == 202, "nothing changes before the reload"
    done = reload(trial, ONE, admin)  # over HTTPS, whose file is newer than what is served
    assert done.returncode == 0, done.stderr
    assert "network.toml is that of revision 1, which is in use." in done.stdout
    assert "Changed by node.toml: tokens.checkin, tokens.read, tokens.admin, log.level." in done.stdout
    assert "New connections get the renewed certificate of HTTPS, which is valid until" in done.stdout
    assert "Not changed, since that needs a restart: ingest.capacity." in done.stdout
    assert "Links" not in done.stdout

    assert served(trial) != before
    assert served(trial).split() == fresh.certificate.read_text(encoding="ascii").split()
    kept.request("GET", "/healthz")
    assert kept.getresponse().status == 200, "a connection that is open stays open"
    kept.close()
    assert trial.checkin(ONE, []).status == 401
    assert trial.checkin(ONE, [], token="a fresh token for check-ins").status == 202
    assert trial.ask(ONE, "/v1/network").status == 401
    assert trial.ask(ONE, "/v1/network", token="a token to read").status == 200
    assert reload(trial, ONE, admin).returncode == 2
    log = len(trial.log(ONE))
    done = reload(trial, ONE, "a fresh token for me")
    assert done.stdout == (
        "network.toml is that of revision 1, which is in use. "
        "Not changed, since that needs a restart: ingest.capacity.\n"
    )
    assert '"level": "info"' not in trial.log(ONE)[log:], "level warning; a busy machine may warn of what was late"
    trial.readers[ONE] = "a token to read"
    until(lambda: trial.released(ONE) > 0 and trial.connected(ONE), "it goes on")
    assert trial.processes[ONE] is process
    assert process.poll() is None


def test_a_stream_ends_with_its_token(trial: Trial) -> None:
    """Whoever had a token would otherwise go on reading for as long as the connection holds."""
    host, port = trial.config(TWO).listen.http_address
    reader = http.client.HTTPConnection(host, port, timeout=LONG)
    reader.request("GET", "/v1/stream")
    answer = reader.getresponse()
    assert answer.status == 200
    set_tokens(trial, TWO, read="only who has this")
    assert reload(trial, TWO, trial.tokens[TWO]["admin"]).returncode == 0
    assert answer.read() is not None, "it comes to an end"
    reader.request("GET", "/v1/stream")
    assert reader.getresponse().status == 401
    reader.close()


def test_a_hangup_reloads_and_a_wrong_file_changes_nothing(trial: Trial, authority: Authority) -> None:
    """systemctl reload sends SIGHUP, which would otherwise end the server; and its log has to say what came of it."""
    folder, process = Path(trial.files[ONE]).parent, trial.processes[ONE]
    before, token = served(trial), trial.tokens[ONE]["checkin"]
    good = (folder / "https.crt").read_bytes()
    set_tokens(trial, ONE, checkin="a fresh token for check-ins")
    (folder / "https.crt").write_bytes(authority.mint("localhost").certificate.read_bytes())  # of another key
    process.send_signal(signal.SIGHUP)
    until(lambda: "nothing was reloaded" in trial.log(ONE), "a word on the wrong file")
    (line,) = (line for line in trial.log(ONE).splitlines() if "nothing was reloaded" in line)
    assert "do not belong together" in line
    assert '"event": "reload"' in line
    assert trial.checkin(ONE, [], token=token).status == 202
    assert served(trial) == before
    (folder / "https.crt").write_bytes(good)
    process.send_signal(signal.SIGHUP)
    until(lambda: "Changed by node.toml: tokens.checkin." in trial.log(ONE), "a word on what was taken")
    assert trial.checkin(ONE, [], token=token).status == 401
    assert trial.checkin(ONE, [], token="a fresh token for check-ins").status == 202
    assert process.poll() is None
    trial.stop()


def test_a_server_in_a_window_that_is_closed_ends(tmp_path: Path) -> None:
    """It had ended by SIGHUP before; nobody would see it, or know how to stop it."""
    with trial_of(tmp_path, 1) as made:
        master, slave = pty.openpty()
        command = [sys.executable, "-m", "dpcrowd.cli.main", "node", "run", made.files[ONE]]
        process = subprocess.Popen(command, stderr=slave)
        made.processes[ONE] = process
        os.close(slave)
        until(lambda: bool(made.get(ONE, "/healthz")), "the start")
        process.send_signal(signal.SIGHUP)  # the window is still there: a reload
        said = b""
        os.set_blocking(master, False)

        def reloaded() -> bool:
            nonlocal said
            with contextlib.suppress(BlockingIOError):
                said += os.read(master, 10_000)
            return b"which is in use" in said

        until(reloaded, "the reload")
        assert process.poll() is None
        os.close(master)
        process.send_signal(signal.SIGHUP)
        assert process.wait(LONG) == 0
    with pytest.raises(urllib.error.URLError):
        made.ask(ONE, "/healthz")
