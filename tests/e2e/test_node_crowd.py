"""Crowds of connections without a right to be there: the node answers, keeps its neighbours, and recovers by itself.

`server-2` has a low limit of open files, so that a few hundred connections are many. The attacker is this process; all
of it stays on loopback and ends after some seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from node_support_fork import ForkedServer
from node_support_trial import Trial, change, trial_of, until

T = TypeVar("T")

pytest.importorskip("zenoh")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits of another process, and /proc, are Linux's own"),
]

CALLER, VICTIM = "server-1", "server-2"
FILES, CROWD = 512, 600
ANSWERS, PAUSE = 20, 2.0


def _limit_files(process: subprocess.Popen[bytes] | ForkedServer) -> None:
    """Before the node has loaded: it raises its soft limit as far as the hard limit allows."""
    import resource

    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))


def _open_files(trial: Trial) -> int:
    return len(os.listdir(f"/proc/{trial.processes[VICTIM].pid}/fd"))


def _port(trial: Trial, which: str) -> int:
    listen = trial.config(VICTIM).listen
    return listen.http_address[1] if which == "API" else int(listen.transport[0].rpartition(":")[2])


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    with trial_of(tmp_path_factory.mktemp("net"), 2) as made:
        change(made.files[VICTIM], ('format = "pretty"', 'format = "json"'))
        _limit_files(made.start(VICTIM))
        made.start(CALLER)
        made.all_ready()
        yield made


class Crowd:
    """Connections that are made at once and held, each with the same first bytes; whoever is thrown out comes again."""

    def __init__(self, port: int, first: bytes, *, tls: bool = False) -> None:
        self._port, self._first = port, first
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if tls else None
        if self._context is not None:
            self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self._over = threading.Event()
        self.made = 0

    def run(self) -> None:
        asyncio.run(self._run())

    def stop(self) -> None:
        self._over.set()

    async def _run(self) -> None:
        await asyncio.gather(*(self._one() for _ in range(CROWD)))

    async def _one(self) -> None:
        while not self._over.is_set():
            self.made += 1
            try:
                connecting = asyncio.open_connection("127.0.0.1", self._port, ssl=self._context)
                reader, writer = await asyncio.wait_for(connecting, 2)
            except (OSError, TimeoutError):
                await asyncio.sleep(PAUSE)
                continue
            try:
                writer.write(self._first)
                while not self._over.is_set():
                    try:
                        if not await asyncio.wait_for(reader.read(4096), 0.2):
                            break
                    except TimeoutError:
                        continue
            except OSError:
                pass
            finally:
                writer.transport.abort()
            await asyncio.sleep(PAUSE)


@contextlib.contextmanager
def crowded(port: int, first: bytes, *, tls: bool = False) -> Iterator[Crowd]:
    crowd = Crowd(port, first, tls=tls)
    thread = threading.Thread(target=crowd.run)
    thread.start()
    try:
        yield crowd
    finally:
        crowd.stop()
        thread.join(30)


def _patiently(ask: Callable[[], T]) -> T:
    """Ask like a client that tries again: the crowd has this machine's address, and the oldest of it gives way."""
    for _ in range(4):
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            return ask()
    return ask()


def _hello() -> bytes:
    """The first message of TLS, after which nothing comes."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    ("which", "first", "tls"),
    [
        ("transport", b"\x99" * 20, False),
        ("transport", b"", False),
        ("transport", _hello(), False),
        ("transport", b"", True),
        ("API", b"GET /healthz HTTP/1.1\r\nHost: here\r\nX-Long: ", False),
        ("API", b"GET /v1/stream HTTP/1.1\r\nHost: here\r\n\r\n", False),
    ],
    ids=["random bytes", "silence", "half a handshake", "no certificate", "half a header", "streams"],
)
def test_a_crowd_neither_stops_the_api_nor_keeps_neighbours_out(
    trial: Trial, which: str, first: bytes, tls: bool
) -> None:
    """Zenoh's and uvicorn's own listeners take whatever comes until no file can be opened, and Zenoh's keeps it."""
    before = _open_files(trial)
    lines = len(trial.log(VICTIM).splitlines())
    with crowded(_port(trial, which), first, tls=tls) as crowd:
        until(lambda: crowd.made >= CROWD, "more connections than files can be open")
        for _ in range(ANSWERS):
            assert _patiently(lambda: trial.ask(VICTIM, "/healthz").status) == 200
        assert _patiently(lambda: trial.connected(VICTIM)), "a neighbour that is connected stays connected"
        assert _open_files(trial) < FILES - 16, "there are files left for what the node has to do"
        trial.processes[CALLER].kill()
        trial.processes[CALLER].wait(30)
        until(lambda: not _patiently(lambda: trial.connected(VICTIM)), "the neighbour is missed")
        trial.start(CALLER)
        until(lambda: _patiently(lambda: trial.connected(VICTIM)), "a neighbour that comes during the attack gets in")
        released = _patiently(lambda: trial.released(VICTIM))
        until(lambda: _patiently(lambda: trial.released(VICTIM)) > released, "slots go on")
    until(lambda: _open_files(trial) <= before + 4, "the node has recovered")
    events = [json.loads(line).get("event") for line in trial.log(VICTIM).splitlines()[lines:]]
    assert "broke" not in events
    if which == "transport":
        counter = r'dpcrowd_connections_refused_total\{port="transport",reason=".*?"\} [1-9]'
        assert re.search(counter, trial.ask(VICTIM, "/metrics").text)
    else:
        assert "dpcrowd_api_limited 1" in trial.ask(VICTIM, "/metrics").text


def test_the_log_says_who_failed_and_why_and_not_too_often(trial: Trial) -> None:
    """An operator has to see an attack, or a certificate that is not taken; an attack must not fill the disk."""
    lines = [json.loads(line) for line in trial.log(VICTIM).splitlines()]
    told = [line for line in lines if line.get("event") == "handshake"]
    assert told, "six crowds are told of"
    assert all(set(line["addresses"]) == {"127.0.0.1"} for line in told)
    assert len(told) <= 4, "once per minute"
    assert any(line.get("event") == "connections" for line in lines)


def test_a_half_open_connection_holds_no_place_for_long(trial: Trial) -> None:
    """Who says nothing, or stops in the middle of a header, is not waited for."""
    with (
        socket.create_connection(("127.0.0.1", _port(trial, "transport"))) as silent,
        socket.create_connection(("127.0.0.1", _port(trial, "API"))) as half,
    ):
        half.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        silent.settimeout(20)
        half.settimeout(20)
        for one in (silent, half):
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(1) == b""


def test_files_that_something_else_uses_up_lead_to_new_links(trial: Trial) -> None:
    """Should the transport leak files, the node gets them back by opening it anew, before it has none.

    It looks every ten seconds, and more often if the watchdog of systemd is to be fed more often.
    """
    import resource

    trial.stop(VICTIM)
    _limit_files(trial.start(VICTIM, WATCHDOG_USEC="3000000"))
    trial.all_ready()
    ups = trial.log(VICTIM).count("neighbour up")
    process = trial.processes[VICTIM].pid
    resource.prlimit(process, resource.RLIMIT_NOFILE, (_open_files(trial) + 2, FILES))
    try:
        until(lambda: '"event": "descriptors"' in trial.log(VICTIM), "the node notices")
    finally:
        resource.prlimit(process, resource.RLIMIT_NOFILE, (FILES, FILES))
    until(lambda: trial.log(VICTIM).count("neighbour up") > ups, "the neighbour is linked anew")
    until(lambda: trial.connected(VICTIM), "and stays")
