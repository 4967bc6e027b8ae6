"""Servers of the trial of faults: their files, their processes, the relays between them, and requests to them."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpcrowd.demo.files import free_ports
from dpcrowd.node.config import load_network, token_hash
from dpcrowd.node.config.network import NetworkConfig
from dpcrowd.node.config.samples import sample_network, sample_node
from dpcrowd.node.keys.identity import KeyFolder
from dpcrowd.node.keys.signing import key_of_certificate
from dpcrowd.node.keys.trial import make_trial
from dpcrowd.node.slots import rfc3339

__all__ = ["HOST", "TOKEN", "Relays", "Server", "Trial", "make_trial_network", "until"]

HOST = "127.0.0.1"
TOKEN = "a-token-for-this-trial"
CHILD = Path(__file__).with_name("faults_child.py")
NAMES = ("server-1", "server-2", "server-3")
_SECONDS_TO_START = 40.0
_ANSWER = 3.0
_INGEST = "\n[ingest]\nneeds_feed = true\n"


def until(true: Any, seconds: float, every: float = 0.1) -> float | None:
    """Seconds until something was true; None if it was not in time."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if true():
            return time.monotonic() - began
        time.sleep(every)
    return None


@dataclass
class Server:
    """One server and its process.

    expected  whether its API has to answer now, and since when, by the monotonic clock
    """

    name: str
    home: Path
    http: int
    transport: int
    keys: KeyFolder
    process: subprocess.Popen[bytes] | None = None
    expected: tuple[bool, float] = (False, 0.0)
    starts: int = field(default=0)

    @property
    def config(self) -> Path:
        return self.home / "node.toml"

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "node.log"

    def expect(self, up: bool) -> None:
        self.expected = up, time.monotonic()

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process, and wait for nothing."""
        assert self.process is None or self.process.poll() is not None
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(CHILD), str(self.config), str(self.home / "clock")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.starts += 1
        return self.process

    def start(self) -> None:
        """Start it, until it answers."""
        self.launch()
        if until(self.healthy, _SECONDS_TO_START) is None:
            raise RuntimeError(f"{self.name} does not answer: {self.last_words()}")
        self.expect(True)

    def kill(self) -> None:
        """As a power cut would: nothing is said goodbye to."""
        self.expect(False)
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def set_clock(self, ahead: float) -> None:
        (self.home / "clock").write_text(f"{ahead}", encoding="ascii")

    def last_words(self) -> str:
        """The end of the log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        return lines[-1][:300] if lines else "it wrote nothing"

    # ------------------------------------------------------------------------------------------------- requests

    def ask(self, path: str, body: bytes | None = None, seconds: float = _ANSWER) -> tuple[int, bytes]:
        """A request over a connection of its own; `OSError` if it is not answered in time."""
        connection = http.client.HTTPConnection(HOST, self.http, timeout=seconds)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/msgpack"}
        try:
            connection.request("GET" if body is None else "POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from None
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        """The answer; None if there is none."""
        try:
            return json.loads(self.ask(path)[1])
        except (OSError, ValueError):
            return None

    def healthy(self) -> bool:
        try:
            return self.ask("/healthz", seconds=2.0)[0] == 200
        except OSError:
            return False

    def well(self) -> bool:
        """Whether it is ready, hears all neighbours, and releases slot after slot."""
        ready, network, latest = (self.json(path) for path in ("/readyz", "/v1/network", "/v1/estimates/latest"))
        if not (ready and network and latest):
            return False
        connected = all(one["connected"] for one in network["neighbours"])
        return bool(ready["ready"] and connected and latest[0]["slot"] >= network["slot"] - 2)


class Relays:
    """A relay before the transport port of each server: neighbours dial it, and links can be cut there.

    Servers whose name comes first dial, so all links of the last server go through its own relay.
    """

    def __init__(self, ports: Sequence[tuple[int, int]]) -> None:
        self._ports = ports
        self._cut: set[int] = set()
        self._open: dict[int, set[asyncio.StreamWriter]] = {outside: set() for outside, _ in ports}
        self._loop, self._end = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="relays", daemon=True)

    def __enter__(self) -> Relays:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut(*self._open)
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def cut(self, *ports: int) -> None:
        """Break these links, and refuse to connect them."""

        def cut() -> None:
            self._cut.update(ports)
            for writer in [one for port in ports for one in self._open[port]]:
                writer.transport.abort()

        self._loop.call_soon_threadsafe(cut)

    def mend(self) -> None:
        self._loop.call_soon_threadsafe(self._cut.clear)

    def _run(self) -> None:
        async def serve() -> None:
            listening = [
                await asyncio.start_server(self._relay(outside, inside), HOST, outside)
                for outside, inside in self._ports
            ]
            await self._end.wait()
            for one in listening:
                one.close()
            links = asyncio.all_tasks() - {asyncio.current_task()}
            if links:
                await asyncio.wait(links, timeout=6)

        self._loop.run_until_complete(serve())
        self._loop.close()

    def _relay(self, outside: int, inside: int) -> Any:
        async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                while chunk := await reader.read(65536):
                    writer.write(chunk)
                    await writer.drain()
            writer.transport.abort()

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if outside in self._cut:
                writer.transport.abort()
                return
            try:
                far_reader, far_writer = await asyncio.wait_for(asyncio.open_connection(HOST, inside), 5)
            except (OSError, TimeoutError):
                writer.transport.abort()
                return
            self._open[outside] |= {writer, far_writer}
            try:
                await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))
            finally:
                self._open[outside] -= {writer, far_writer}

        return relay


@dataclass(frozen=True)
class Trial:
    """Three servers that are linked with each other; `outside` are the ports of their relays."""

    folder: Path
    network: NetworkConfig
    servers: tuple[Server, ...]
    outside: tuple[int, ...]

    def slot(self) -> int:
        return self.network.clock().slot_of(time.time_ns())

    def stop(self) -> None:
        """End every process that still runs; one that is stopped is ended too."""
        for server in self.servers:
            server.kill()


def make_trial_network(
    folder: Path,
    *,
    regions: Sequence[str],
    people: int,
    process_var: Sequence[float],
    window: int,
    epsilon: str,
    seconds: float,
) -> Trial:
    """Files of the network; every slot is sampled, and slot 0 opens some seconds from now."""
    keys = make_trial(folder / "keys", NAMES, datetime.now(UTC), days=2)
    ports = free_ports(3 * len(NAMES))
    outside, inside, api = (ports[place :: len(NAMES)] for place in range(3))
    text = sample_network(
        NAMES,
        network_id="faults",
        epoch=rfc3339((int(time.time()) + 8) * 10**9),
        slot=f"{round(seconds * 1000)}ms",
        grace=f"{round(seconds * 100)}ms",
        deadline=f"{round(seconds * 500)}ms",
        population=people,
        regions=regions,
        length=window,
        epsilon=epsilon,
        process_var=process_var,
        keys={name: key_of_certificate(keys[name].certificate.read_bytes()) for name in NAMES},
        endpoints={name: f"tls/{HOST}:{port}" for name, port in zip(NAMES, outside, strict=True)},
    )
    assert "interval = 1" in text, "every slot is to be sampled: otherwise no sample is known to be lost"
    (folder / "network.toml").write_text(text, encoding="utf-8")
    servers = []
    for name, transport, port in zip(NAMES, inside, api, strict=True):
        server = Server(name, folder / name, port, transport, keys[name])
        server.home.mkdir()
        server.set_clock(0.0)
        text = sample_node(
            name,
            network="../network.toml",
            key=str(keys[name].key),
            certificate=str(keys[name].certificate),
            ca=str(keys[name].authority),
            transport=f"tls/{HOST}:{transport}",
            http=f"{HOST}:{port}",
            checkin=[token_hash(TOKEN)],
            read="open",
            admin=[token_hash(TOKEN)],
        )
        server.config.write_text(text + _INGEST, encoding="utf-8")
        servers.append(server)
    return Trial(folder, load_network(folder / "network.toml"), tuple(servers), tuple(outside))


def hold_port(port: int) -> socket.socket:
    """Listen where a server wants to."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((HOST, port))
    held.listen(1)
    return held
