"""Metrics of the process, under the names that the client libraries of Prometheus use.

Processor time, memory and open files grow with the number of check-ins, so that only the operator sees them; when the
process started, and how many files it may open, is public.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from dpcrowd.node.metrics import families
from dpcrowd.node.metrics.registry import Registry

__all__ = ["read_process"]

_STATM = Path("/proc/self/statm")
_FILES = ("/proc/self/fd", "/dev/fd")


def read_process(registry: Registry, started_ns: int) -> None:
    """Set all metrics of the process that this system provides."""
    registry.set(families.START_TIME, started_ns / 1e9)
    registry.set(families.CPU_SECONDS, time.process_time())
    if sys.platform != "win32":
        import resource

        registry.set(families.MAX_FDS, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    with suppress(OSError, ValueError):
        virtual, resident = _STATM.read_text(encoding="ascii").split()[:2]
        page = os.sysconf("SC_PAGE_SIZE")
        registry.set(families.VIRTUAL_BYTES, int(virtual) * page)
        registry.set(families.RESIDENT_BYTES, int(resident) * page)
    for folder in _FILES:
        with suppress(OSError):
            registry.set(families.OPEN_FDS, len(os.listdir(folder)) - 1)  # without the descriptor that lists them
            break
