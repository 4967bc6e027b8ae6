"""Listening to the neighbours in a stopped server's place, for a few seconds: who is there, and what they say.

A neighbour speaks once per slot, and again to whoever appears, inside an exchange or after it. One message tells much:
the digest of its network.toml, how its clock stands, and what it remembers of this server's ledger. Nothing is sent;
the neighbours' logs show a server that came up and went down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from dpcrowd.node.config import NetworkConfig, NodeConfig
from dpcrowd.node.transport.base import Peer
from dpcrowd.node.transport.zenoh import ZenohTransport
from dpcrowd.node.transport.zenoh_settings import TlsFiles

__all__ = ["Overheard", "listen"]

_STEP = 0.05
_PATIENCE = 2.5  # seconds in which a neighbour that runs has dialled, or was reached: it tries twice a second


@dataclass
class Overheard:
    """Who had a link to this server, and the last message of each with the time at which it came."""

    present: set[str] = field(default_factory=set)
    said: dict[str, tuple[bytes, int]] = field(default_factory=dict)


def listen(node: NodeConfig, network: NetworkConfig, slot: int, awaited: Collection[str], seconds: float) -> Overheard:
    """Until all that are awaited have spoken, nobody is there to speak, or the time is over.

    Raises `DpcrowdError` where the transport cannot be opened.
    """
    return asyncio.run(_listen(node, network, slot, awaited, seconds))


async def _listen(
    node: NodeConfig, network: NetworkConfig, slot: int, awaited: Collection[str], seconds: float
) -> Overheard:
    heard = Overheard()

    def take(sender: str, payload: bytes) -> None:
        heard.said[sender] = payload, time.time_ns()

    def see(neighbour: str, up: bool) -> None:
        if up:
            heard.present.add(neighbour)

    tls = TlsFiles(key=node.keys.key, certificate=node.keys.certificate, ca=node.keys.ca)
    transport = ZenohTransport(network.id, tls, node.listen.transport)
    named = [network.server(name) for name in network.neighbours(node.server, slot)]
    peers = [Peer(one.name, one.endpoint, one.certificate_name, tuple(one.keys)) for one in named]
    began = time.monotonic()
    await transport.open(node.server, peers, take, see)
    try:
        while (waited := time.monotonic() - began) < seconds:
            silent = {name for name in awaited if name not in heard.said}
            if not silent or (waited > _PATIENCE and not silent & heard.present):
                break
            await asyncio.sleep(_STEP)
    finally:
        await transport.close()
    return heard
