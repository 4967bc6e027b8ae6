"""Addresses from which neighbours call: where their endpoints are, and wherever they have called from before.

They have places of their own while others crowd the port. An address is no proof of anything: who calls is shown by
the certificate.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable

from dpcrowd.node.connections.listener import shown_address
from dpcrowd.node.transport.base import Peer

__all__ = ["KnownAddresses"]

_MOST_LEARNED = 4  # addresses of one neighbour; the last ones count


class KnownAddresses:
    """Of all neighbours; it outlives the links, so that whoever comes back is known."""

    def __init__(self) -> None:
        self._learned: dict[str, dict[str, None]] = {}
        self._looked_up: dict[str, set[str]] = {}

    def __contains__(self, address: object) -> bool:
        return any(address in found for found in (*self._learned.values(), *self._looked_up.values()))

    def learn(self, name: str, address: str) -> None:
        """A neighbour has shown its certificate at an address."""
        known = self._learned.setdefault(name, {})
        known.pop(address, None)
        known[address] = None
        while len(known) > _MOST_LEARNED:
            del known[next(iter(known))]

    def look_up(self, neighbours: Iterable[Peer]) -> None:
        """Find the addresses of endpoints, in a thread that nobody waits for: names may take long, or fail."""
        hosts = {peer.name: peer.endpoint.partition("/")[2].rpartition(":")[0].strip("[]") for peer in neighbours}
        self._learned = {name: found for name, found in self._learned.items() if name in hosts}
        self._looked_up = {name: found for name, found in self._looked_up.items() if name in hosts}

        def ask() -> None:
            for name, host in hosts.items():
                try:
                    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
                except OSError:
                    continue
                self._looked_up = {**self._looked_up, name: {shown_address(one[4]) for one in found}}

        threading.Thread(target=ask, name="dpcrowd-addresses", daemon=True).start()
