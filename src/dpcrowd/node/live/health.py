"""Whether the parts of a node still work: systemd's watchdog is told so only while they do.

    executor      takes what it is given: the state machine and storage go on
    transport   its port is looked after, and Zenoh answers
    API         somebody who connects gets an answer

A node whose part does not work any more says so in the log and keeps silent towards systemd, which ends and restarts it
after `WatchdogSec`; that is safe at any time. Limits of connections keep the node from running out of file descriptors;
should something else use them up, the transport, which holds most of the others, is opened anew before that happens.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from dpcrowd.node.config.node import ListenSection
from dpcrowd.node.connections.descriptors import limit, open_files
from dpcrowd.node.transport.base import Transport

__all__ = ["HealthMonitor", "api_check", "node_health", "notify", "watchdog_seconds"]

log = logging.getLogger("dpcrowd.node")

_EVERY = 10.0
_PATIENCE = 10.0  # seconds that a part has to show that it works
_FULL = 0.9  # of all file descriptors
_REOPEN_EVERY = 300.0

Check = Callable[[], Awaitable[None]]


class HealthMonitor:
    """Looks after the parts of one node.

    checks  by the name of a part: returns if it works, raises or does not return if it does not
    reopen  opens the transport anew
    tell    tells systemd
    """

    def __init__(
        self,
        checks: dict[str, Check],
        reopen: Callable[[], None],
        tell: Callable[[str], None],
        *,
        used: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checks, self._reopen, self._tell = checks, reopen, tell
        self._used, self._clock = used or _share_of_descriptors, clock
        self._full_before = False
        self._reopened = float("-inf")

    async def run(self) -> None:
        """Check the parts again and again, for ever."""
        watchdog = watchdog_seconds(os.environ)
        pause = _EVERY if watchdog is None else min(_EVERY, watchdog / 3)
        while True:
            self.look_at_descriptors()
            if watchdog is not None and await self.alive():
                self._tell("WATCHDOG=1")
            await asyncio.sleep(pause)

    async def alive(self) -> bool:
        """Whether all parts work; the log says which does not."""
        names = list(self._checks)
        results = await asyncio.gather(
            *(asyncio.wait_for(check(), _PATIENCE) for check in self._checks.values()), return_exceptions=True
        )
        broken = [name for name, result in zip(names, results, strict=True) if isinstance(result, BaseException)]
        for name in broken:
            text = "%s does not work; unless that passes, systemd restarts the node."
            log.error(text, name, extra={"event": "not-alive", "part": name})
        return not broken

    def look_at_descriptors(self) -> None:
        """Open the transport anew if nearly all file descriptors stay in use."""
        full = self._used() >= _FULL
        if full and self._full_before and self._clock() - self._reopened >= _REOPEN_EVERY:
            self._reopened = self._clock()
            text = "more than %.0f%% of the file descriptors are in use; the links to neighbours are opened anew."
            log.error(text, 100 * _FULL, extra={"event": "descriptors"})
            self._reopen()
        self._full_before = full


def node_health(
    listen: ListenSection, executor: Check, transport: Transport, reopen: Callable[[], None]
) -> HealthMonitor:
    """Return the checks of a node with these parts."""
    host, port = listen.http_address
    checks = {
        "executor": executor,
        "transport": transport.check_alive,
        "API": api_check(host, port, https=listen.http_certificate is not None),
    }
    return HealthMonitor(checks, reopen, notify)


def api_check(host: str, port: int, *, https: bool) -> Check:
    """Return a check that the API answers a request from this machine, whatever the answer is."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if https else None
    if context is not None:  # nothing is told to it, and nothing believed
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def check() -> None:
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            await reader.readuntil(b"\r\n")
        finally:
            writer.transport.abort()

    return check


def watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """Return after how many seconds without a sign of life systemd ends this process; None if it does not."""
    text, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not text.isdecimal() or int(text) == 0 or (process and process != str(os.getpid())):
        return None
    return int(text) / 1e6


def notify(text: str) -> None:
    """Tell systemd, where it has asked to be told (Type=notify)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.connect("\0" + address[1:] if address.startswith("@") else address)
        out.send(text.encode())


def _share_of_descriptors() -> float:
    return (open_files() or 0) / limit()
