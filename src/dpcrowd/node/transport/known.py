"""Addresses from which neighbours call: those of their endpoints, and those from which they have called before.

They have places of their own while others crowd the port. An address proves nothing: the certificate shows who calls.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable

from dpcrowd.node.connections.listener import limited_address
from dpcrowd.node.transport.base import Peer

__all__ = ["KnownAddresses"]

_MOST_LEARNED = 4  # addresses per neighbour; the last ones are kept


class KnownAddresses:
    """The addresses of all neighbours; kept when a link ends, so that a neighbour that returns is known."""

    def __init__(self) -> None:
        self._learned: dict[str, dict[str, None]] = {}
        self._looked_up: dict[str, set[str]] = {}

    def __contains__(self, address: object) -> bool:
        return any(address in addresses for addresses in (*self._learned.values(), *self._looked_up.values()))

    def learn(self, name: str, address: str) -> None:
        """Remember an address at which a neighbour has authenticated."""
        addresses = self._learned.setdefault(name, {})
        addresses.pop(address, None)
        addresses[address] = None
        while len(addresses) > _MOST_LEARNED:
            del addresses[next(iter(addresses))]

    def look_up(self, neighbours: Iterable[Peer]) -> None:
        """Look up the addresses of endpoints in a background thread, since this may take long or fail."""
        hosts = {peer.name: peer.endpoint.partition("/")[2].rpartition(":")[0].strip("[]") for peer in neighbours}
        self._learned = {name: addresses for name, addresses in self._learned.items() if name in hosts}
        self._looked_up = {name: addresses for name, addresses in self._looked_up.items() if name in hosts}

        def resolve() -> None:
            for name, host in hosts.items():
                try:
                    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
                except OSError:
                    continue
                self._looked_up = {**self._looked_up, name: {limited_address(one[4]) for one in answers}}

        threading.Thread(target=resolve, name="dpcrowd-addresses", daemon=True).start()
