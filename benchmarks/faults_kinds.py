"""Faults of the trial: each happens to a running network, ends, and tells what it saw. All of them on loopback."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from faults_servers import HOST, Relays, Server, Trial, hold_port, until
from faults_watch import Watch

from dpcrowd.node.keys.authority import Authority, sign_request
from dpcrowd.node.keys.files import read_pem
from dpcrowd.node.storage import Storage

__all__ = ["FAULTS", "Fault", "Scene", "Unexpected", "small_disk"]

_CONNECTIONS, _HEADERS = 1_200, 1_100
_LINKS = 4  # the exit code for keys, certificates, ports and transport
_SECONDS_TO_REFUSE = 30.0


class Unexpected(Exception):
    """A server did something else than it should."""


@dataclass(frozen=True)
class Scene:
    """Where a fault happens; `disks` says whether each data folder is a small file system of its own."""

    trial: Trial
    relays: Relays
    watch: Watch
    chance: random.Random
    disks: bool

    def victim(self, *, listening: bool = False) -> Server:
        """Any server, or one whose transport port is open: the first one dials all others, and listens to nobody."""
        return self.chance.choice(self.trial.servers[1:] if listening else self.trial.servers)

    def pause(self, low: float, high: float) -> None:
        time.sleep(self.chance.uniform(low, high))


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    title  for the table
    does   what the servers should do, in words
    work   happens when it returns; `Unexpected` if a server does something else
    """

    title: str
    does: str
    work: Callable[[Scene], None]


# ------------------------------------------------------------------------------------------------------ processes


def kill(scene: Scene) -> None:
    victim = scene.victim()
    scene.pause(0, 2)
    victim.kill()
    scene.pause(0, 3)
    victim.start()


def freeze(scene: Scene) -> None:
    with _frozen(scene, [scene.victim()]):
        scene.pause(3, 12)


def freeze_all(scene: Scene) -> None:
    with _frozen(scene, list(scene.trial.servers)):
        scene.pause(3, 6)


@contextlib.contextmanager
def _frozen(scene: Scene, victims: list[Server]) -> Iterator[None]:
    for victim in victims:
        victim.expect(False)
        victim.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for victim in victims:
            victim.signal(signal.SIGCONT)
            if until(victim.healthy, 10) is not None:
                victim.expect(True)


# -------------------------------------------------------------------------------------------------------- storage


def put_back(scene: Scene) -> None:
    """An old copy of the ledger: it must not sample before the operator has confirmed the loss."""
    victim = scene.victim()
    length = scene.trial.network.clock().length_ns / 1e9
    copy = scene.trial.folder / f"{victim.name}-{time.time_ns()}.db"
    with Storage.inspect(victim.data, network_id=scene.trial.network.id) as storage:
        storage.backup(copy)
    time.sleep(4 * length)
    victim.kill()
    scene.watch.collect(victim)
    for file in victim.data.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    shutil.move(copy, victim.data / "dpcrowd.db")
    victim.start()

    def noticed() -> bool:
        budget = victim.json("/v1/budget")
        return budget is not None and budget["waits_for"] == "operator"

    if until(noticed, 30) is None:
        raise Unexpected(f"{victim.name} runs on an old copy, and nobody has noticed.")
    time.sleep(2 * length)
    status, text = victim.ask("/v1/admin/confirm-loss", b"")
    if status != 200:
        raise Unexpected(f"{victim.name} does not let the loss be confirmed: {text[:200]!r}")


def fill_disk(scene: Scene) -> None:
    victim = scene.victim()
    ballast = victim.data / "ballast"
    try:
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        if until(lambda: (victim.json("/readyz") or {"ready": True})["ready"] is False, 10) is None:
            raise Unexpected(f"{victim.name} is ready although its disk is full.")
        scene.pause(2, 6)
    finally:
        ballast.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------------- the clock


def clock_ahead(scene: Scene) -> None:
    _set_clock(scene, scene.chance.uniform(3, 9))


def clock_back(scene: Scene) -> None:
    _set_clock(scene, -scene.chance.uniform(3, 9))


def _set_clock(scene: Scene, ahead: float) -> None:
    victim = scene.victim()
    try:
        victim.set_clock(ahead)
        scene.pause(3, 6)
    finally:
        victim.set_clock(0.0)


# ---------------------------------------------------------------------------------------------- ports, certificates


def take_port(scene: Scene) -> None:
    transport = scene.chance.random() < 0.5
    victim = scene.victim(listening=transport)
    victim.kill()
    with _starting_again(victim), contextlib.closing(hold_port(victim.transport if transport else victim.http)):
        _refuses_to_start(victim)


def expire(scene: Scene) -> None:
    """A certificate that expired yesterday."""
    victim = scene.victim()
    good = victim.keys.certificate.read_bytes()
    authority = Authority(scene.trial.folder / "keys" / "ca")
    request = read_pem(victim.keys.request, "request")
    past = datetime.now(UTC) - timedelta(days=2)
    signed = sign_request(authority, request, past, days=1, name=victim.name)
    victim.kill()
    with _starting_again(victim):
        try:
            victim.keys.certificate.write_bytes(signed.pem)
            _refuses_to_start(victim)
        finally:
            victim.keys.certificate.write_bytes(good)


@contextlib.contextmanager
def _starting_again(victim: Server) -> Iterator[None]:
    """At the end, whatever it did meanwhile."""
    try:
        yield
    finally:
        victim.start()


def _refuses_to_start(victim: Server) -> None:
    process = victim.launch()
    try:
        code = process.wait(_SECONDS_TO_REFUSE)
    except subprocess.TimeoutExpired:
        victim.kill()
        raise Unexpected(f"{victim.name} started all the same.") from None
    if code != _LINKS:
        raise Unexpected(f"{victim.name} ended with code {code}, not {_LINKS}: {victim.last_words()}")


# ------------------------------------------------------------------------------------------------------ the network


def isolate(scene: Scene) -> None:
    """The last server: all of its links go through its own relay."""
    _cut(scene, scene.trial.outside[-1])


def cut_all(scene: Scene) -> None:
    _cut(scene, *scene.trial.outside)


def _cut(scene: Scene, *ports: int) -> None:
    scene.relays.cut(*ports)
    try:
        scene.pause(4, 10)
    finally:
        scene.relays.mend()


def connect_much(scene: Scene) -> None:
    """Connections to the transport port that say nothing sensible, held for five seconds."""
    victim = scene.victim(listening=True)
    with _connections(victim.transport, _CONNECTIONS, scene.chance.randbytes(64)):
        time.sleep(5)


def half_headers(scene: Scene) -> None:
    """Requests to the API that are never finished, held for eight seconds."""
    victim = scene.victim()
    with _connections(victim.http, _HEADERS, b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: "):
        time.sleep(8)


@contextlib.contextmanager
def _connections(port: int, count: int, first: bytes) -> Iterator[None]:
    held: list[socket.socket] = []
    try:
        end = time.monotonic() + 10
        while len(held) < count and time.monotonic() < end:
            one = socket.socket()
            one.settimeout(0.5)
            held.append(one)
            with contextlib.suppress(OSError):  # refused, or not accepted any more: that is an answer as well
                one.connect((HOST, port))
                one.sendall(first)
        yield
    finally:
        for one in held:
            one.close()


FAULTS = (
    Fault("kill -9", "Starts again, sends stored values again, never draws twice.", kill),
    Fault("SIGSTOP for 3 to 12 s", "Skips the slots that it missed; after 10 s a neighbour vouches first.", freeze),
    Fault("SIGSTOP of all servers", "Go on with the slot that is open, as after a sleep of the machine.", freeze_all),
    Fault("old copy of the data folder", "Does not sample until the operator has confirmed the loss.", put_back),
    Fault("disk full", "Stops sampling, says so, goes on by itself once there is room.", fill_disk),
    Fault("clock ahead by 3 to 9 s", "Skips slots; no slot twice, no budget back earlier.", clock_ahead),
    Fault("clock back by 3 to 9 s", "Waits until its last slot has passed again.", clock_back),
    Fault("port in use at the start", "Refuses to start, with exit code 4.", take_port),
    Fault("expired certificate at the start", "Refuses to start, with exit code 4.", expire),
    Fault("one server cut off", "All go on with what they hear; links come back by themselves.", isolate),
    Fault("all links cut", "All go on alone; links come back by themselves.", cut_all),
    Fault(f"{_CONNECTIONS:,} connections to the transport port", "Answers, and keeps its links.", connect_much),
    Fault(f"{_HEADERS:,} half-sent HTTP headers", "Answers others, and ends them.", half_headers),
)


def small_disk(folder: Path, size: str = "24m") -> bool:
    """A file system of its own for a data folder; False if this user may not."""
    folder.mkdir(mode=0o700, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
