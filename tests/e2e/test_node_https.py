"""HTTPS of running servers: every kind of request, the tools, `dpcrowd.Client`, and certificates that are wrong."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.sync.client import connect

import dpcrowd
from dpcrowd.client.errors import NodeUnreachable
from node_support_tls import Authority, CertificateFiles
from node_support_trial import LONG, Trial, change, trial_of, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def _set_https(trial: Trial, name: str, files: CertificateFiles) -> None:
    if files.key.exists():
        files.key.chmod(0o600)
    setting = f'[listen]\nhttp_certificate = "{files.certificate}"\nhttp_key = "{files.key}"'
    change(trial.files[name], ("[listen]", setting))
    trial.apis[name] = trial.apis[name].replace("http:", "https:")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("https"), kind="ec")


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Trial]:
    """Two servers: the first with a certificate of the organisation's own authority, the second with plain HTTP."""
    with trial_of(tmp_path_factory.mktemp("net"), 2) as made:
        _set_https(made, "server-1", authority.mint("localhost"))
        made.tls = ssl.create_default_context(cafile=str(authority.path))
        made.start()
        made.all_ready()
        yield made


def test_clients_in_python_do_everything_over_https(trial: Trial, authority: Authority) -> None:
    """Check-ins and tokens would otherwise travel in the clear wherever the API is not on loopback."""
    url, tokens = trial.apis["server-1"], trial.tokens["server-1"]
    with dpcrowd.Client(url, tokens["checkin"], ca=authority.path) as client:
        assert client.checkin([f"person {number}" for number in range(30)], "north") == 30
        assert client.network().server == "server-1"
        assert client.budget().epsilon == 1.0
        first = next(iter(client.stream(seconds=LONG)))
        until(lambda: trial.released("server-1") > int(first.slot[0]), "a release over HTTPS")
        seen = [int(release.slot[0]) for release in client.stream(after=int(first.slot[0]) - 1, seconds=1.5)]
        assert seen == list(range(seen[0], seen[0] + len(seen)))
        assert seen[0] == first.slot[0]
        assert set(client.estimates(seen[0], seen[0]).slot) == {seen[0]}

    async def same() -> int:
        async with dpcrowd.AsyncClient(url, tokens["checkin"], ca=authority.path) as client:
            await client.checkin(["somebody"], "south")
            async for release in client.stream(after=seen[0] - 1, seconds=LONG):
                return int(release.slot[0])
        return -1

    assert asyncio.run(same()) == seen[0]
    address = url.replace("https:", "wss:") + "/v1/stream"
    with connect(address, ssl=trial.tls, proxy=None, open_timeout=LONG) as reader:
        assert '"event":"estimates"' in str(reader.recv(LONG))


def test_tools_speak_https(trial: Trial) -> None:
    """An operator with HTTPS has the same commands, by the certificate that node.toml names."""
    for command in ("status", "budget", "peers", "doctor"):
        told = trial.tool("server-1", command)
        assert told.returncode == 0, told.stdout + told.stderr
    assert "doctor: PASSED\n" in told.stdout
    assert "server-2" in trial.tool("server-1", "peers").stdout
    admin = trial.tokens["server-1"]["admin"]
    assert trial.tool("server-1", "log-level", "info", "--token", admin).returncode == 0


def test_the_doctor_compares_digests_over_https(trial: Trial) -> None:
    """A neighbour with another network.toml would otherwise be found by operators with plain HTTP alone."""
    told = trial.tool("server-1", "doctor").stdout
    assert "PASSED  digest" in told, told


def test_plain_http_gets_nothing_and_harms_nothing(trial: Trial) -> None:
    """A client with the wrong scheme, a port scan or a cut handshake: no answer, no traceback, the node goes on."""
    host, port = trial.config("server-1").listen.http_address
    for said in (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01", b""):
        with socket.create_connection((host, port), timeout=LONG) as plain:
            plain.sendall(said)
            plain.shutdown(socket.SHUT_WR)
            assert b"status" not in plain.recv(1000)
    assert trial.ask("server-1", "/healthz").json == {"status": "ok"}
    assert "Traceback" not in trial.log("server-1")


def test_another_certificate_is_an_error_that_says_so(trial: Trial, authority: Authority) -> None:
    """Whoever stands between must not be given a token, and the operator must learn why nothing works."""
    before = Path(trial.files["server-1"]).read_text(encoding="utf-8")
    config = trial.config("server-1")
    try:
        change(
            trial.files["server-1"], (str(config.listen.http_certificate), str(authority.mint("localhost").certificate))
        )
        assert trial.tool("server-1", "status").returncode == 0, "renewed, and not reloaded yet: the node has a copy"
        config.served_certificate.write_bytes(authority.mint("localhost").certificate.read_bytes())
        told = trial.tool("server-1", "status")
    finally:
        Path(trial.files["server-1"]).write_text(before, encoding="utf-8")
    assert told.returncode == 4
    assert "has another certificate than listen.http_certificate" in told.stderr


def test_the_client_says_that_the_certificate_is_the_trouble(trial: Trial, tmp_path: Path) -> None:
    """'is it running?' sends the analyst to the wrong place: it runs, and its certificate is of another authority."""
    other = Authority(tmp_path, kind="ec")
    with (
        dpcrowd.Client(trial.apis["server-1"], ca=other.path, retries=0) as client,
        pytest.raises(NodeUnreachable, match="certificate"),
    ):
        client.ready()


@pytest.mark.parametrize("fault", ["missing", "another key"])
def test_a_certificate_that_cannot_be_used_is_told_at_the_start(
    tmp_path: Path, authority: Authority, fault: str
) -> None:
    """Code 4 is keys and certificates: systemd must not start such a server again and again, as after a fault."""
    good, other = authority.mint("localhost"), authority.mint("localhost")
    key = tmp_path / "nowhere.key" if fault == "missing" else other.key
    with trial_of(tmp_path, 1) as made:
        _set_https(made, "server-1", CertificateFiles(key, good.certificate, good.ca))
        told = made.process("server-1", "run")
    assert told.returncode == 4, told.stderr
    assert "listen.http" in told.stderr
    assert "Traceback" not in told.stderr
