"""One server of the trial of faults: `dpcrowd node run NODE.TOML` with the usual limits, and a clock that can be set.

    python faults_child.py NODE.TOML CLOCK

CLOCK is a file with a number of seconds by which this server's clock is ahead; the trial writes it. The time that has
really passed is not touched, as if somebody had set the system's clock. The process dies with the trial, whatever
happens to that, also while it is stopped.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
import runpy
import signal
import sys
import threading
import time
from pathlib import Path

from dpcrowd.node.live.timing import WallClock

FILES = 1024  # the soft limit that most systems give a service
_SET_DEATH_SIGNAL = 1
_LOOK_EVERY = 0.05


class SettableClock:
    """Seconds that the clock is ahead, in nanoseconds."""

    ahead_ns = 0


def follow(path: Path) -> None:
    """Read the file again and again."""
    while True:
        with contextlib.suppress(OSError, ValueError):  # it is just being written
            SettableClock.ahead_ns = round(float(path.read_text(encoding="ascii")) * 1e9)
        time.sleep(_LOOK_EVERY)


def main() -> None:
    """Never returns: the command exits with the node's exit code."""
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, most), most))
    config, clock = sys.argv[1:]
    threading.Thread(target=follow, args=(Path(clock),), daemon=True).start()
    WallClock.now = lambda _: time.time_ns() + SettableClock.ahead_ns  # type: ignore[method-assign]
    sys.argv = ["dpcrowd", "node", "run", config]
    runpy.run_module("dpcrowd.cli.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
