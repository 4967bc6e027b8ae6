"""Processes of `dpcrowd node run` that are forked from one process, which has loaded the code of a server before.

A server needs half a second of processor time to load its libraries and next to nothing to run for a minute; tests
start dozens. A forked server is a process like any other one: it has its own memory, files and signals and runs the
same command. `tests/e2e/test_node_process.py` starts servers by the command itself.

`python node_support_fork.py` is the process that forks. It reads one JSON object per line, forks a server for each and
writes one for every server that has started or ended. When its standard input is closed, it kills what still runs.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["ForkedServer"]

_LOADED = ("dpcrowd.cli.main", "dpcrowd.cli.node", "dpcrowd.node.live.process", "dpcrowd.node.live.open", "uvloop")
_LONG = 60.0


class ForkedServer:
    """A server with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, file: str, log: Path, environment: Mapping[str, str]) -> None:
        self._forker = _forker()
        self.pid = self._forker.start(["node", "run", file], log, environment)

    def poll(self) -> int | None:
        """Return the exit code, negative after a signal; None while the server runs."""
        self._forker.read(0.0)
        return self._forker.codes.get(self.pid)

    def wait(self, timeout: float = _LONG) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(["dpcrowd", "node", "run"], timeout)
            self._forker.read(0.1)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ends at this moment
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Forker:
    """The process that forks, seen from the tests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._reports = self._process.stdin, self._process.stdout
        os.set_blocking(self._reports.fileno(), False)
        self._rest = b""
        self._started: list[int] = []
        self.codes: dict[int, int] = {}

    def start(self, words: list[str], log: Path, environment: Mapping[str, str]) -> int:
        request = {"words": words, "log": str(log), "environment": dict(environment), "folder": os.getcwd()}
        self._requests.write(json.dumps(request).encode() + b"\n")
        self._requests.flush()
        end = time.monotonic() + _LONG
        while not self._started:
            assert time.monotonic() < end, "no server was forked"
            self.read(0.1)
        pid = self._started.pop()
        self.codes.pop(pid, None)  # of an earlier process with this number
        return pid

    def read(self, seconds: float) -> None:
        """Take what is reported, and wait for a report for at most so long."""
        if not select.select([self._reports], [], [], seconds)[0]:
            return
        piece = os.read(self._reports.fileno(), 65536)
        assert piece, "the process that forks servers has ended"
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            report = json.loads(line)
            if "code" in report:
                self.codes[report["pid"]] = report["code"]
            else:
                self._started.append(report["pid"])

    def close(self) -> None:
        self._requests.close()
        self._process.wait(_LONG)
        self._reports.close()


@cache
def _forker() -> _Forker:
    forker = _Forker()
    atexit.register(forker.close)
    return forker


# ------------------------------------------------------------------------------------------ the process that forks


def _serve() -> int:
    """Fork a server per request; return its exit code in each server, and 0 when there are no more requests."""
    for name in _LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or each server copies the memory that a search for garbage touches
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Control-C is meant for the tests, which close the input
    running: set[int] = set()
    rest = b""
    while True:
        ready = select.select([0, woken], [], [])[0]
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            _report_ended(running)
        if 0 not in ready:
            continue
        piece = os.read(0, 65536)
        if not piece:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            return 0
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                os.close(woken)
                os.close(wake)
                return _become_server(json.loads(line))
            running.add(pid)
            _report({"pid": pid})


def _report_ended(running: set[int]) -> None:
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            running.discard(pid)
            _report({"pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _report(content: dict[str, int]) -> None:
    os.write(1, json.dumps(content).encode() + b"\n")


def _become_server(request: dict[str, Any]) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    with open(os.devnull, "r+b") as nothing, open(request["log"], "ab") as log:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
        os.dup2(log.fileno(), 2)
    from dpcrowd.cli.main import main

    return main(request["words"])


if __name__ == "__main__":
    sys.exit(_serve())
