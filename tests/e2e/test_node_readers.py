"""Two running servers and everybody who asks them: over HTTPS, by /v1/stream as WebSocket and as server-sent events.

The network is started once, since most of these tests only read; the last test stops a server.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosedOK, InvalidStatus
from websockets.sync.client import ClientConnection, connect

import dpcrowd
from dpcrowd.client.errors import NodeUnreachable
from node_support_tls import Authority, CertificateFiles
from node_support_trial import LONG, Trial, change, trial_of, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

STREAMING = "server-2"
READER = "a-token-for-readers"


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
    """Two servers: the first with a certificate of the organisation's own authority, and open to all readers; the
    second with plain HTTP, and a token for readers."""
    with trial_of(tmp_path_factory.mktemp("net"), 2) as made:
        _set_https(made, "server-1", authority.mint("localhost"))
        made.tls = ssl.create_default_context(cafile=str(authority.path))
        change(made.files[STREAMING], ('read = "open"', f'read = ["{READER}"]'))
        made.readers[STREAMING] = READER
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

    async def first_message() -> str:
        # Not by websockets.sync: it reads in a thread of its own, and Python's TLS may lose a request that another
        # thread sends while session tickets arrive. The node waits ten seconds for it, and then ends the connection.
        async with connect_async(address, ssl=trial.tls, proxy=None, open_timeout=LONG) as reader:
            return str(await asyncio.wait_for(reader.recv(), LONG))

    assert '"event":"estimates"' in asyncio.run(first_message())


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


# ------------------------------------------------------------------------------------------------------- /v1/stream


def _socket(trial: Trial, query: str = "", token: str | None = READER) -> ClientConnection:
    address = trial.apis[STREAMING].replace("http:", "ws:") + "/v1/stream" + query
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return connect(address, additional_headers=headers, proxy=None, open_timeout=LONG)


def _told(reader: ClientConnection) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(reader.recv(LONG))
    assert said["event"] == "estimates"
    return said


def _rest(reader: ClientConnection) -> None:
    while True:
        reader.recv(LONG)


def _events(lines: Iterator[str]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """(id, rows) of each event of a stream."""
    slot = -1
    for line in lines:
        if line.startswith("id: "):
            slot = int(line[4:])
        elif line.startswith("data: "):
            yield slot, json.loads(line[6:])


def test_releases_arrive_in_order_over_both(trial: Trial) -> None:
    """A page that follows a server draws every slot once: the latest at once, then each new one, with its rows."""
    headers = {"Authorization": f"Bearer {READER}"}
    stream = trial.apis[STREAMING] + "/v1/stream"
    with (
        _socket(trial) as reader,
        httpx.stream("GET", stream, headers=headers, timeout=LONG, trust_env=False) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        events = _events(response.iter_lines())
        by_socket = [_told(reader) for _ in range(2)]
        by_events = [next(events) for _ in range(2)]
    slots = [said["slot"] for said in by_socket]
    assert slots == [slots[0], slots[0] + 1]
    ids = [slot for slot, _ in by_events]
    assert ids == [ids[0], ids[0] + 1]
    rows = {said["slot"]: said["rows"] for said in by_socket}
    for slot, same in by_events:
        assert {row["slot"] for row in same} == {slot}
        assert [row["region"] for row in same] == ["north", "east", "south", "west"]
        assert rows.get(slot, same) == same, "both tell the same"


def test_whoever_was_away_gets_what_it_missed(trial: Trial) -> None:
    """`after=`, and a browser's Last-Event-ID, replay what is stored, without a gap before the new ones."""
    until(lambda: trial.released(STREAMING) > 2, "some releases")
    last = trial.released(STREAMING)
    with _socket(trial, f"?after={last - 2}&region=south") as reader:
        said = [_told(reader) for _ in range(3)]
    assert [one["slot"] for one in said] == [last - 1, last, last + 1]
    assert {row["region"] for one in said for row in one["rows"]} == {"south"}
    headers = {"Authorization": f"Bearer {READER}", "Last-Event-ID": str(last - 1)}
    stream = trial.apis[STREAMING] + "/v1/stream"
    with httpx.stream("GET", stream, headers=headers, timeout=LONG, trust_env=False) as response:
        events = _events(response.iter_lines())
        assert [next(events)[0] for _ in range(2)] == [last, last + 1]
    with _socket(trial, "?after=99999999") as reader, pytest.raises(TimeoutError):
        reader.recv(0.1)  # nothing of the past, and the connection stays


def test_a_wrong_token_or_question_is_refused_before_anything_is_told(trial: Trial) -> None:
    """The stream holds what the read right protects; the handshake itself says why there is none."""
    checkin = trial.tokens[STREAMING]["checkin"]
    asked = (("", None, 401), ("", "another-token-for-readers", 401), ("", checkin, 403))
    for query, token, status in (*asked, ("?after=now", READER, 400), ("?region=nowhere", READER, 400)):
        with pytest.raises(InvalidStatus) as caught:
            _socket(trial, query, token)
        assert caught.value.response.status_code == status
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        told = httpx.get(trial.apis[STREAMING] + "/v1/stream" + query, headers=headers, trust_env=False)
        assert (told.status_code, told.headers["content-type"]) == (status, "application/json")


def test_a_stop_closes_streams_cleanly_and_a_client_goes_on_after_the_restart(trial: Trial) -> None:
    """SIGTERM inside a slot: readers get a proper end, not a broken connection, and nobody keeps the server alive."""
    seen: list[int] = []

    def follow() -> None:
        with dpcrowd.Client(trial.apis[STREAMING], READER) as client:
            for release in client.stream(seconds=LONG):
                seen.append(int(release.slot[0]))
                if seen[-1] > stopped:
                    return

    stopped = trial.slot(STREAMING) + 1
    following = threading.Thread(target=follow)
    headers = {"Authorization": f"Bearer {READER}"}
    stream = trial.apis[STREAMING] + "/v1/stream"
    with (
        _socket(trial) as reader,
        httpx.stream("GET", stream, headers=headers, timeout=LONG, trust_env=False) as response,
    ):
        lines = response.iter_lines()
        next(_events(lines))
        _told(reader)
        following.start()
        until(lambda: bool(seen), "the client follows")
        trial.stop(STREAMING)
        list(lines)  # raises if the answer is cut off
        with pytest.raises(ConnectionClosedOK):
            _rest(reader)
        assert reader.close_code == 1001
    trial.start(STREAMING)
    following.join(LONG)
    assert seen == sorted(set(seen))
    assert seen[-1] > stopped
    assert "Traceback" not in trial.log(STREAMING)
