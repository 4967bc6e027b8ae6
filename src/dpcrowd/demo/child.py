"""One node process of a demo: `dpcrowd node run NODE.TOML`, which ends when the demo ends.

Its standard input is a pipe that the demo keeps open. However the demo ends, even by kill -9, the system closes that
pipe, and the node stops as it does on SIGTERM: no process stays behind.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading

__all__ = ["main"]


def main() -> None:
    """Run the node; this never returns, since the command exits with the node's exit code."""
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    sys.argv = ["dpcrowd", "node", "run", *sys.argv[1:]]
    runpy.run_module("dpcrowd.cli.main", run_name="__main__", alter_sys=True)  # by name: the CLI is a layer above


def _stop_with_parent() -> None:
    while os.read(0, 1024):  # not sys.stdin: its lock would be held while the interpreter ends
        pass
    signal.raise_signal(signal.SIGTERM)


if __name__ == "__main__":
    main()
