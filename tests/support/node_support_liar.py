"""A server of the test's own beside running nodes: it has keys, a link over Zenoh, and says whatever a test wants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.node.config import NetworkConfig, digest, load_network
from dpcrowd.node.keys.authority import Authority, sign_request
from dpcrowd.node.keys.files import read_pem, read_private_key
from dpcrowd.node.keys.identity import KeyFolder, request_key
from dpcrowd.node.keys.signing import PrivateKey, signer
from dpcrowd.node.keys.trial import LOOPBACK
from dpcrowd.node.transport.base import Peer
from dpcrowd.node.transport.zenoh import ZenohTransport
from dpcrowd.node.transport.zenoh_settings import TlsFiles
from dpcrowd.node.wire import VERSION, Body, encode, record_of
from dpcrowd.schemes.messages import InfoMessages
from node_support_trial import LONG, Trial

__all__ = ["Liar", "minted", "soon", "tls_of"]


def minted(trial: Trial, name: str, folder: Path) -> KeyFolder:
    """A new key with a certificate of the network's authority for a name: what the holder of the authority can do."""
    made = request_key(folder, name, LOOPBACK)
    authority = Authority(trial.network.parent / "ca")
    signed = sign_request(authority, read_pem(made.request, "request"), datetime.now(UTC), days=1, name=name)
    made.certificate.write_bytes(signed.pem)
    made.authority.write_bytes(authority.certificate.read_bytes())
    return made


def tls_of(files: KeyFolder) -> TlsFiles:
    return TlsFiles(files.key, files.certificate, files.authority)


async def soon(true: Callable[[], bool], what: str) -> None:
    """Wait, while messages of the transport are taken."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < LONG, f"waited {LONG:g} s in vain: {what}"
        await asyncio.sleep(0.02)


class Liar:
    """Speaks to one server as another, with the keys in a folder: its own, or others. Used as an async with block."""

    def __init__(self, trial: Trial, name: str, to: str, files: KeyFolder | None = None, network_id: str = "") -> None:
        self.network: NetworkConfig = load_network(trial.network)
        self.name, self.to = name, to
        self.files = KeyFolder(trial.network.parent / name, name) if files is None else files
        self.key: PrivateKey = read_private_key(self.files.key)
        listen = [self.network.server(name).endpoint]
        self.transport = ZenohTransport(network_id or self.network.id, tls_of(self.files), listen)
        self.heard: list[bytes] = []
        self.present = False

    async def __aenter__(self) -> Liar:
        one = self.network.server(self.to)
        peer = Peer(one.name, one.endpoint, one.certificate_name)
        await self.transport.open(self.name, [peer], lambda _, payload: self.heard.append(payload), self._see)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.transport.close()

    def _see(self, _: str, up: bool) -> None:
        self.present = up

    async def say(self, payload: bytes) -> None:
        await self.transport.send(payload, [self.to])

    def slot(self) -> int:
        """The first slot that is not sealed: whatever is said of it is looked at when it comes."""
        return self.network.clock().slot_of(time.time_ns() - self.network.grace_ns)

    def payload(self, *, message: InfoMessages | None = None, key: PrivateKey | None = None, **other: Any) -> bytes:
        """A true heartbeat, or with a sample; `other` replaces fields of the body."""
        mine = signer(self.network.id, self.key if key is None else key)
        number = self.network.number_of(self.name)
        fields: dict[str, Any] = {
            "version": VERSION,
            "digest": digest(self.network),
            "server": number,
            "slot": self.slot(),
            "round": 1,
            "counter": 0,
            "heard": {},
        }
        fields |= {name: value for name, value in other.items() if name in fields}
        if message is not None:
            signed = {"digest": fields["digest"], "slot": fields["slot"], "origin": number}
            record = record_of(message, sign=mine, **signed)
            fields["prior"] = message.prior.astype("<f8").tobytes()
            fields["prior_known"] = message.prior_known.astype("u1").tobytes()
            fields["records"] = (record,)
        return encode(Body(**(fields | other)), mine)

    def sample(
        self, vector: Sequence[float] | float = 1.0, matrix: Sequence[float] | float = 0.01, *, regions: int = 0
    ) -> InfoMessages:
        """What a server says that has sampled: information for each region, and nothing known before."""
        size = (1, regions or len(self.network.regions))
        zero = np.zeros(size)
        known = np.zeros(size, dtype=np.bool_)
        return InfoMessages(np.ones(1, dtype=np.bool_), zero + vector, zero + matrix, zero.copy(), known)
