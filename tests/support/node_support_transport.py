"""Small networks of real Zenoh transports on loopback, and strangers who try to break in.

Run as a program it is one server in a process of its own, which can be killed or frozen:
`python node_support_transport.py '{"me": ..., "ports": {...}, "links": [...], "files": [...]}'`
It prints `up NAME`, `down NAME` and `got NAME TEXT`, and answers every message with its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import ports_support
from dpcrowd.node.transport.base import Peer
from dpcrowd.node.transport.zenoh import ZenohTransport
from dpcrowd.node.transport.zenoh_settings import TlsFiles
from node_support_tls import Authority, CertificateFiles

NETWORK = "trial"
PATIENCE = 20.0  # far above any time that is measured, for a machine that does other things as well

__all__ = ["NETWORK", "Line", "Server", "free_ports", "raw_session", "tls_files", "until"]


def free_ports(names: Iterable[str]) -> dict[str, int]:
    """A port for each name that nobody listens on."""
    chosen = list(names)
    return dict(zip(chosen, ports_support.free_ports(len(chosen)), strict=True))


async def until(condition: Callable[[], bool], what: str) -> float:
    """Wait for a thing to become true; how long it took. Fails with what was awaited."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > PATIENCE:
            raise AssertionError(f"did not happen within {PATIENCE:g} s: {what}")
        await asyncio.sleep(0.005)
    return time.monotonic() - start


def tls_files(files: CertificateFiles) -> TlsFiles:
    return TlsFiles(files.key, files.certificate, files.ca)


def address(port: int) -> str:
    return f"tls/127.0.0.1:{port}"


class Server:
    """A transport that remembers what it heard."""

    def __init__(self, name: str, ports: dict[str, int], files: CertificateFiles) -> None:
        self.name, self.ports, self.files = name, ports, files
        self.transport = ZenohTransport(NETWORK, tls_files(files), [address(ports[name])])
        self.got: list[tuple[str, bytes]] = []
        self.present: set[str] = set()
        self.changes: list[tuple[str, bool]] = []

    async def open(self, neighbours: Sequence[str]) -> None:
        peers = [Peer(name, address(self.ports[name]), name) for name in neighbours]
        self.present.clear()
        await self.transport.open(self.name, peers, self._hear, self._see)

    async def close(self) -> None:
        await self.transport.close()

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()  # also when a test fails: an open session would keep the process from ending

    def heard(self, sender: str) -> list[bytes]:
        return [payload for name, payload in self.got if name == sender]

    def _hear(self, name: str, payload: bytes) -> None:
        self.got.append((name, payload))

    def _see(self, name: str, up: bool) -> None:
        self.changes.append((name, up))
        (self.present.add if up else self.present.discard)(name)


class Line:
    """Servers a, b, c in a line a-b-c (or others), opened on entry and closed on exit."""

    def __init__(self, folder: Path, names: str = "abc") -> None:
        self.authority = Authority(folder)
        self.names = names
        self.ports = free_ports(names)
        self.servers = {name: Server(name, self.ports, self.authority.mint(name)) for name in names}

    def neighbours(self, name: str) -> list[str]:
        at = self.names.index(name)
        return [self.names[i] for i in (at - 1, at + 1) if 0 <= i < len(self.names)]

    def __getitem__(self, name: str) -> Server:
        return self.servers[name]

    async def __aenter__(self) -> Line:
        try:
            for name, server in self.servers.items():
                await server.open(self.neighbours(name))
            await until(self.all_present, "all neighbours hear one another")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self.servers.values():
            await server.close()

    def all_present(self) -> bool:
        return all(server.present == set(self.neighbours(name)) for name, server in self.servers.items())

    async def round_trip(self, one: str, other: str, text: bytes) -> None:
        """A message each way between neighbours; after it, whatever was sent before has had its chance."""
        await self[one].transport.send(text, [other])
        await self[other].transport.send(text, [one])
        await until(lambda: text in self[other].heard(one) and text in self[one].heard(other), "a round trip")


def raw_session(files: CertificateFiles, port: int, **settings: Any) -> Any:
    """A Zenoh session of a stranger: of our settings only the certificate. Double underscores are slashes."""
    import zenoh

    config = zenoh.Config()
    defaults: dict[str, Any] = {
        "mode": "peer",
        "connect__endpoints": [address(port)],
        "connect__timeout_ms": 2000,
        "connect__exit_on_failure": False,
        "listen__endpoints": [],
        "scouting__multicast__enabled": False,
        "transport__link__tls__root_ca_certificate": str(files.ca),
        "transport__link__tls__enable_mtls": True,
        "transport__link__tls__connect_private_key": str(files.key),
        "transport__link__tls__connect_certificate": str(files.certificate),
    }
    for path, value in (defaults | settings).items():
        config.insert_json5(path.replace("__", "/"), json.dumps(value))
    return zenoh.open(config)


async def _serve(text: str) -> None:
    given = json.loads(text)
    files = CertificateFiles(*(Path(path) for path in given["files"]))
    server = ZenohTransport(NETWORK, tls_files(files), [address(given["ports"][given["me"]])])
    peers = [Peer(name, address(given["ports"][name]), name) for name in given["neighbours"]]
    waiting: set[asyncio.Task[None]] = set()

    def answer(name: str, payload: bytes) -> None:
        print("got", name, payload[:40].decode(), flush=True)
        waiting.add(asyncio.get_running_loop().create_task(server.send(b"answer " + payload[:40], [name])))

    await server.open(given["me"], peers, answer, lambda name, up: print("up" if up else "down", name, flush=True))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
