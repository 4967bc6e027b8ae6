"""The node processes of a demo, which are started, watched and stopped together."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dpcrowd.demo.files import DemoNode
from dpcrowd.errors import DpcrowdError

__all__ = ["NodeProcessFailed", "Processes", "last_lines"]

_SECONDS_TO_STOP = 10.0
_LINES = 15
_TAIL_BYTES = 16_384


class NodeProcessFailed(DpcrowdError):
    """A node process ended, or never answered; `log` has the last lines that it wrote."""

    def __init__(self, message: str, log: Sequence[str]) -> None:
        super().__init__(message)
        self.log = tuple(log)

    def __reduce__(self) -> tuple[type[NodeProcessFailed], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.log)


class Processes:
    """The nodes run inside the with block, and none runs after it."""

    def __init__(self, nodes: Sequence[DemoNode], *, module: str = "dpcrowd.demo.child") -> None:
        self._nodes, self._module = tuple(nodes), module
        self._running: list[tuple[DemoNode, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Processes:
        try:
            for node in self._nodes:
                self._start(node)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> dict[str, int]:
        return {node.name: process.pid for node, process in self._running}

    def check(self, seconds: float = 0.0) -> None:
        """Raise `NodeProcessFailed` if a process has ended, or ends within this many seconds."""
        end = time.monotonic() + seconds
        while True:
            self._check_now()
            if time.monotonic() >= end:
                return
            time.sleep(0.05)

    def _check_now(self) -> None:
        for node, process in self._running:
            code = process.poll()
            if code is not None:
                raise NodeProcessFailed(
                    f"the process of {node.name} has ended (exit code {code}).", last_lines(node.log)
                )

    def stop(self) -> None:
        """Stop all processes; those that still run after ten seconds are killed. Control-C is ignored meanwhile."""
        with _interrupts_ignored():
            for _, process in self._running:
                with contextlib.suppress(OSError):
                    process.terminate()
            end = time.monotonic() + _SECONDS_TO_STOP
            for _, process in self._running:
                try:
                    process.wait(max(0.1, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                if process.stdin is not None:
                    process.stdin.close()
            self._running.clear()

    def _start(self, node: DemoNode) -> None:
        command = [sys.executable, "-m", self._module, str(node.config)]
        with node.log.open("wb") as log:
            # A process group of its own: Control-C in the terminal reaches only the demo, which then stops the nodes.
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=None if sys.platform == "win32" else 0,
            )
        self._running.append((node, process))


def last_lines(log: Path) -> list[str]:
    """Return the last lines of a log file."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()[-_LINES:]
    except OSError:
        return []


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
