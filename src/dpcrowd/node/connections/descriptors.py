"""File descriptors of this process: the limit is raised at the start, and each port has a share of it.

    own        storage, journal, logs and Zenoh, and some for each neighbour
    http       connections to the API
    waiting    connections to the transport's port that have not shown yet that they are a neighbour's

The shares add up to less than the limit, so that a flood of connections leaves the node enough to work with.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

__all__ = ["Shares", "limit", "open_files", "raise_limit", "shares"]

_WANTED = 1 << 16
_UNLIMITED = 1 << 20  # what is taken for the limit where there is none
_OWN, _OWN_PER_NEIGHBOUR = 64, 8
_MOST_HTTP, _MOST_WAITING = 4096, 256
_LEAST = 32


@dataclass(frozen=True)
class Shares:
    """Descriptors that each port may use."""

    http: int
    waiting: int


def raise_limit(wanted: int = _WANTED) -> int:
    """Raise the soft limit of open files as far as the hard limit allows; the limit from now on."""
    try:
        import resource
    except ImportError:  # Windows
        return _UNLIMITED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (wanted, 10_240):  # macOS takes no more than the second, whatever its hard limit says
        target = most if hard == resource.RLIM_INFINITY else min(most, hard)
        if soft == resource.RLIM_INFINITY or soft >= target:
            break
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
            break
    return limit()


def limit() -> int:
    """The soft limit of open files."""
    try:
        import resource
    except ImportError:  # Windows
        return _UNLIMITED
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def open_files() -> int | None:
    """The number of open descriptors; None where the system does not tell."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder)) - 1  # one is open to list them
        except FileNotFoundError:
            continue
        except OSError:  # not one is left
            return limit()
    return None


def shares(limit: int, neighbours: int) -> Shares:
    """Divide a limit between the ports of a node with so many neighbours."""
    left = max(limit - _OWN - _OWN_PER_NEIGHBOUR * neighbours, _LEAST)
    return Shares(http=min(left // 2, _MOST_HTTP), waiting=min(left // 4, _MOST_WAITING))
