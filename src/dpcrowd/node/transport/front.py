"""The port on which neighbours call: a connection needs a certificate of a neighbour before it reaches Zenoh.

Zenoh's own listener is not made for strangers. It keeps every connection until its handshake has failed, drops only one
failed handshake per 100 ms, accepts nobody meanwhile, and when the descriptors are used up it drops none at all: 1,500
connections with a few random bytes stopped a node permanently (Zenoh 1.10; eclipse-zenoh/zenoh issue 2685). So Zenoh
listens on Unix sockets in a folder that only this user can open, one for each neighbour that calls, and TLS ends here:

- a limited number of connections may wait, and the newest is always accepted (`WaitingConnections`), so that a
  neighbour gets in while others crowd the port;
- a handshake has to finish within some seconds;
- a certificate has to be valid, signed by the authority, and that of a neighbour that calls this server; its common
  name decides to which session the connection goes, and that session has only the rights of this neighbour;
- a link ends when the neighbour's certificate expires.

Failures are counted by reason and address, and logged once per minute.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

from dpcrowd.errors import BadInput
from dpcrowd.node.connections.listener import Listener
from dpcrowd.node.connections.tally import Tally
from dpcrowd.node.connections.waiting import WaitingConnections
from dpcrowd.node.transport.caller import Caller, Reason
from dpcrowd.node.transport.known import KnownAddresses
from dpcrowd.node.transport.zenoh_settings import TlsFiles

__all__ = ["Front", "report_failures", "server_context"]

log = logging.getLogger("dpcrowd.node")

HANDSHAKE_SECONDS = 5.0
_SWEEP = 0.5
_FAREWELL = 1.0
_GOODBYE_SECONDS = 5.0
_PER_NEIGHBOUR = 4  # links of one neighbour: an old one may not have noticed its end yet
_KNOWN_PLACES = 16
_MOST_STRANGERS = 20
_SHOWN_ADDRESSES = 10


class Front:
    """Accepts callers from `start` to `close`.

    sessions    by certificate name, the path at which the session of this neighbour listens
    neighbours  certificate names of all neighbours, also of those that do not call
    waiting     number of connections that may wait for their handshake
    rate        bytes per second that one caller may send
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        context: ssl.SSLContext,
        sessions: Mapping[str, str],
        neighbours: Set[str],
        *,
        waiting: int,
        rate: float,
        known: KnownAddresses,
        tally: Tally,
    ) -> None:
        self._context, self._sessions, self._neighbours = context, sessions, neighbours
        self._rate, self._known_addresses, self._tally = rate, known, tally
        self._listener = Listener(sockets, self._accepted, places=_KNOWN_PLACES)
        self._waiting: WaitingConnections[Caller] = WaitingConnections(
            waiting, per_address=max(waiting // 4, _KNOWN_PLACES), is_known=lambda address: address in known
        )
        self._callers: set[Caller] = set()
        self._linked: dict[str, list[Caller]] = {name: [] for name in sessions}
        self._strangers: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to accept callers."""
        self._listener.start()
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep(), name="front")

    def stop_listening(self) -> None:
        """Accept no more callers, and end those that wait; links stay open."""
        self._listener.close()
        for caller in list(self._callers):
            if caller.name is None:
                caller.end()

    async def close(self) -> None:
        """End all connections; links have a moment to send what is queued."""
        self.stop_listening()
        until = time.monotonic() + _FAREWELL
        while self._callers and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for caller in list(self._callers):
            caller.end()
        for task in (*self._tasks, *([self._sweeping] if self._sweeping else [])):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @property
    def alive(self) -> bool:
        """Whether the task that watches the connections still runs."""
        return self._sweeping is not None and not self._sweeping.done()

    def names(self) -> list[str]:
        """Return the certificate names of all links."""
        return [name for name, callers in self._linked.items() for _ in callers]

    def strangers(self) -> list[str]:
        """Return the certificate names of callers that are not neighbours, since the last call of this method."""
        names, self._strangers = sorted(self._strangers), {}
        return names

    # ---------------------------------------------------------------------------------- what callers tell (`Owner`)

    def greeted(self, caller: Caller) -> None:
        self._waiting.advance(caller)

    def authenticated(self, caller: Caller, certificate: bytes) -> None:
        self._waiting.leave(caller)
        try:
            name, expires = _name_and_expiry(certificate)
        except BadInput:
            self.failed(caller, "certificate")
            return
        path = self._sessions.get(name)
        if path is None:
            if name in self._neighbours:  # this server calls it; its doctor may still look at our certificate
                caller.finish()
                return
            if len(self._strangers) < _MOST_STRANGERS:
                self._strangers[name] = None
            self.failed(caller, "stranger")
            return
        caller.name, caller.expires = name, expires
        self._known_addresses.learn(name, caller.address)
        links = self._linked[name]
        links.append(caller)
        if len(links) > _PER_NEIGHBOUR:
            self._tally.add("crowded", links[0].address)
            links[0].end()
        self._start(self._link(caller, path))

    def failed(self, caller: Caller, reason: Reason) -> None:
        self._waiting.leave(caller)
        self._tally.add(reason, caller.address)
        caller.finish()

    def lost(self, caller: Caller) -> None:
        self._callers.discard(caller)
        if caller.name is not None:
            with suppress(ValueError):
                self._linked[caller.name].remove(caller)
        elif self._waiting.leave(caller) and caller.has_sent:
            self._tally.add("unfinished", caller.address)

    # ------------------------------------------------------------------------------------------------------ inside

    def _accepted(self, connection: socket.socket, address: str) -> None:
        caller = Caller(self, self._context, address, self._rate)
        self._callers.add(caller)
        displaced = self._waiting.enter(caller, address, time.monotonic())
        if displaced is not None:
            self._tally.add("crowded", displaced.address)
            displaced.end()
        self._start(self._take(caller, connection))

    async def _take(self, caller: Caller, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: caller, connection)
        except OSError:  # it has disconnected already
            connection.close()
            caller.has_sent = False
            self.lost(caller)

    async def _link(self, caller: Caller, path: str) -> None:
        try:
            await caller.link(path, HANDSHAKE_SECONDS)
        except OSError:  # the session is being closed
            caller.end()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            self._check_connections()

    def _check_connections(self) -> None:
        now, today = time.monotonic(), time.time()
        for caller in self._waiting.overdue(now - HANDSHAKE_SECONDS):
            self.failed(caller, "unfinished")
        for caller in list(self._callers):
            if caller.name is not None and caller.expires < today and caller.closing_since is None:
                self._tally.add("expired", caller.address)
                caller.end()
            elif caller.closing_since is not None and caller.closing_since < now - _GOODBYE_SECONDS:
                caller.end()
        self._tally.report_if_due(now)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def server_context(tls: TlsFiles) -> ssl.SSLContext:
    """Return a context with TLS 1.3 that requires a certificate of the authority from callers.

    Without tickets: a resumed session would not show its certificate again, which may have expired meanwhile.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= (
        ssl.VERIFY_X509_PARTIAL_CHAIN
    )  # the authority is trusted, whoever has signed its certificate
    context.num_tickets = 0
    context.load_verify_locations(tls.ca)
    context.load_cert_chain(tls.certificate, tls.key, password=b"")
    return context


def report_failures(reasons: Counter[str], addresses: Counter[str]) -> None:
    """Log one line about the connections that failed since the last one."""
    kinds = ", ".join(f"{number} {reason}" for reason, number in reasons.most_common())
    frequent = dict(addresses.most_common(_SHOWN_ADDRESSES))
    log.warning(
        "connections to the port of the transport failed: %s.",
        kinds,
        extra={"event": "handshake", "addresses": frequent, "more_addresses": len(addresses) - len(frequent)},
    )


def _name_and_expiry(certificate: bytes) -> tuple[str, float]:
    """Return the common name of a certificate, and when it expires."""
    from cryptography import x509

    from dpcrowd.node.keys.names import common_name

    try:
        parsed_certificate = x509.load_der_x509_certificate(certificate)
    except ValueError:
        raise BadInput("the certificate of the caller cannot be read.") from None
    return common_name(parsed_certificate, "the certificate"), parsed_certificate.not_valid_after_utc.timestamp()
