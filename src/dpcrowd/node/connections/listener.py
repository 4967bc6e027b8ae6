"""Listening sockets that accept a few connections at a time, so that limits hold.

The server of an event loop accepts all connections that have arrived before a limit is checked, and 2,000 at once would
use up the descriptors that the limits protect. Here each connection is decided upon before the next few are accepted;
the others wait in the kernel. They are so few that a connection which sends its request at once is read, which takes
some turns of the event loop, before those that come after it could displace it.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["Listener", "bind", "limited_address"]

_TURNS = 8
_BACKLOG = 1024
_PAUSE = 0.1  # seconds, if no descriptor is left
_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}  # the host name has an address that this machine has not

OnConnection = Callable[[socket.socket, str], None]
"""(connection, address); called in the event loop's thread. The callee owns the socket."""


class Listener:
    """Accepts connections of bound sockets, from `start` to `close`.

    places  number of places for connections that have sent nothing yet
    """

    def __init__(self, sockets: Iterable[socket.socket], on_connection: OnConnection, *, places: int) -> None:
        self.sockets: Sequence[socket.socket] = list(sockets)
        self._on_connection = on_connection
        self._loop = asyncio.get_running_loop()
        self._at_once = max(places // _TURNS, 1)
        self._open = False
        self.starved = 0
        """Number of times that nothing could be accepted for lack of descriptors or memory."""

    def start(self) -> None:
        """Begin to accept connections."""
        self._open = True
        for one in self.sockets:
            one.setblocking(False)
            one.listen(_BACKLOG)
            self._loop.add_reader(one, self._accept, one)

    def close(self) -> None:
        """Stop listening; accepted connections stay open."""
        if self._open:
            for one in self.sockets:
                self._loop.remove_reader(one)
        self._open = False
        for one in self.sockets:
            one.close()

    async def wait_closed(self) -> None:
        """Return at once; for compatibility with the server of an event loop."""

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(self._at_once):
            if not self._open:
                return
            try:
                connection, peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # it disconnected before it was accepted
                continue
            except OSError:
                self.starved += 1
                self._loop.remove_reader(listening)
                self._loop.call_later(_PAUSE, self._resume, listening)
                return
            connection.setblocking(False)
            self._on_connection(connection, limited_address(peer))

    def _resume(self, listening: socket.socket) -> None:
        if self._open:
            self._loop.add_reader(listening, self._accept, listening)


def bind(host: str, port: int, *, both_versions: bool = False) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host; raise `OSError` if that is not possible.

    both_versions  an IPv6 socket takes connections over IPv4, too
    """
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, kind, protocol, _, address in dict.fromkeys(addresses):
            try:
                sockets.append(_listening(family, kind, protocol, address, both_versions))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
        if not sockets:
            raise missing or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


def _listening(family: int, kind: int, protocol: int, address: Any, both_versions: bool) -> socket.socket:
    one = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # a port whose last connections are in TIME_WAIT counts as free
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both_versions)
        one.setblocking(False)
        one.bind(address)
        one.listen(_BACKLOG)
    except OSError:
        one.close()
        raise
    return one


def limited_address(peer: object) -> str:
    """Return the address to which limits apply: an IPv4 address, or the /64 network of an IPv6 address."""
    text = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        if not address.is_loopback:
            return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
