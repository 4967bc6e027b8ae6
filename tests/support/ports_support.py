"""Ports for the servers of tests that nobody else takes before they listen.

A port that the system chooses is one of those for outgoing connections: between the choice and the start of a server
any connection of any other test may get it, and the server does not start. These lie below that range, each worker of
a run has its own, and none comes twice before all others had their turn.
"""

from __future__ import annotations

import itertools
import os
import socket
from functools import cache

__all__ = ["free_ports", "ports_in_a_row"]

_FIRST, _PER_WORKER, _WORKERS = 12_000, 2_000, 10


@cache
def _turns() -> itertools.cycle[int]:
    """The ports of this worker, beginning somewhere: those of a run that has just ended may still be in use."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    begin = os.getpid() * 37 % _PER_WORKER
    ports = [_FIRST + worker * _PER_WORKER + (begin + step) % _PER_WORKER for step in range(_PER_WORKER)]
    return itertools.cycle(ports)


def free_ports(number: int) -> list[int]:
    """Return different ports on which nobody listens."""
    ports: list[int] = []
    for port in itertools.islice(_turns(), _PER_WORKER):
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == number:
            return ports
    raise AssertionError(f"{number} free ports are needed; this machine has {len(ports)} from {_FIRST} on.")


def ports_in_a_row(number: int) -> int:
    """Return the first of so many ports, one after the other, on which nobody listens."""
    for _ in range(_PER_WORKER // number):
        ports = free_ports(number)
        if ports == list(range(ports[0], ports[0] + number)):
            return ports[0]
    raise AssertionError(f"{number} free ports in a row are needed; this machine has none from {_FIRST} on.")
