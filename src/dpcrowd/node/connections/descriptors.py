"""File descriptors of this process: the limit is raised at the start, and each port gets a share of it.

    own        storage, journal, logs and Zenoh, and some per neighbour
    http       connections to the API
    waiting    connections to the port of the transport that have not authenticated as a neighbour yet

The shares add up to less than the limit, so that a flood of connections leaves enough for the node to work.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

__all__ = ["Shares", "limit", "open_files", "raise_limit", "shares"]

_TARGET = 1 << 16
_UNLIMITED = 1 << 20  # stands for the limit if there is none
_OWN, _OWN_PER_NEIGHBOUR = 64, 8
_MOST_HTTP, _MOST_WAITING = 4096, 256
_LEAST = 32


@dataclass(frozen=True)
class Shares:
    """The number of descriptors that each port may use."""

    http: int
    waiting: int


def raise_limit(target: int = _TARGET) -> int:
    """Raise the soft limit of open files as far as the hard limit allows; return the new limit."""
    try:
        import resource
    except ImportError:  # Windows
        return _UNLIMITED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (target, 10_240):  # macOS allows no more than the second, whatever its hard limit is
        number = most if hard == resource.RLIM_INFINITY else min(most, hard)
        if soft == resource.RLIM_INFINITY or soft >= number:
            break
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
            break
    return limit()


def limit() -> int:
    """Return the soft limit of open files."""
    try:
        import resource
    except ImportError:  # Windows
        return _UNLIMITED
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def open_files() -> int | None:
    """Return the number of open descriptors; None if the system does not provide it."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder)) - 1  # without the descriptor that lists them
        except FileNotFoundError:
            continue
        except OSError:  # no descriptor is left
            return limit()
    return None


def shares(limit: int, neighbours: int) -> Shares:
    """Divide a limit between the ports of a node with this many neighbours."""
    available = max(limit - _OWN - _OWN_PER_NEIGHBOUR * neighbours, _LEAST)
    return Shares(http=min(available // 2, _MOST_HTTP), waiting=min(available // 4, _MOST_WAITING))
