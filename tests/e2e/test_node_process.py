"""`dpcrowd node run` for real: three processes, links with TLS, kill -9, signals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpcrowd.cli.main import main

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and sockets of POSIX")

LONG = 30.0


class Trial:
    """Servers of a trial network as processes."""

    def __init__(self, folder: Path, made: dict[str, Any]) -> None:
        self.folder = folder
        self.files = {one["server"]: one["node"] for one in made["servers"]}
        self.apis = {one["server"]: one["api"] for one in made["servers"]}
        self.tokens = {one["server"]: one["tokens"] for one in made["servers"]}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "dpcrowd.cli.main", "node", "run", self.files[name]],
                stderr=log,
                env={**os.environ, **environment},
            )
        return self.processes[name]

    def get(self, name: str, path: str) -> Any:
        """The answer; None while there is none."""
        try:
            with urllib.request.urlopen(self.apis[name] + path, timeout=2) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def ready(self, name: str) -> bool:
        answer = self.get(name, "/readyz")
        return bool(answer and answer["ready"])

    def connected(self, name: str) -> bool:
        answer = self.get(name, "/v1/network")
        return bool(answer) and all(one["connected"] for one in answer["neighbours"])

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def tool(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dpcrowd.cli.main", "node", words[0], self.files[name], *words[1:]]
        return subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)


def _free_base(count: int) -> int:
    """The first of so many ports in a row that are free now."""
    for base in range(20_000 + os.getpid() % 10_000, 60_000, count):
        try:
            for held in [socket.create_server(("127.0.0.1", base + number)) for number in range(count)]:
                held.close()
        except OSError:
            continue
        return base
    raise AssertionError("no free ports")


@pytest.fixture
def trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Trial]:
    base = _free_base(6)
    ports = ["--port", str(base), "--http-port", str(base + 3)]
    assert main(["init", str(tmp_path / "net"), "--dev", "--slot", "1s", "--json", *ports]) == 0
    made = Trial(tmp_path, json.loads(capsys.readouterr().out))
    yield made
    for process in made.processes.values():
        if process.poll() is None:
            process.kill()
        process.wait(LONG)


def _until(true: Callable[[], bool], what: str) -> float:
    """Seconds until it was true."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < LONG, f"waited {LONG:g} s in vain: {what}"
        time.sleep(0.02)
    return time.monotonic() - began


def test_a_network_survives_the_death_of_a_server_and_stops_cleanly(trial: Trial) -> None:
    """Everything an operator does on the first day."""
    names = list(trial.files)
    for name in names:
        trial.start(name)
    _until(lambda: all(trial.ready(name) and trial.connected(name) for name in names), "three servers are ready")

    # Tools, beside the running server.
    told = trial.tool("server-2", "doctor")
    assert told.returncode == 0, told.stdout
    assert "and the node runs" in told.stdout
    assert trial.tool("server-2", "status").returncode == 0
    loud = trial.tool("server-2", "log-level", "debug", "--token", trial.tokens["server-2"]["admin"])
    assert loud.stdout == "the log level is debug.\n", loud.stderr
    second = trial.tool("server-2", "run")
    assert second.returncode == 3
    assert f"in use by process {trial.processes['server-2'].pid}" in second.stderr

    # kill -9: the others go on; back within two slots of its restart.
    _until(lambda: trial.get("server-2", "/v1/budget")["total_spent"] > 0, "server-2 has paid for something")
    trial.processes["server-2"].kill()
    trial.processes["server-2"].wait(LONG)
    _until(lambda: not trial.connected("server-1"), "the death is noticed")
    assert trial.ready("server-1")
    spent = json.loads(trial.tool("server-2", "budget", "--json").stdout)["total_spent"]
    trial.start("server-2")
    _until(lambda: trial.get("server-2", "/readyz") is not None, "the API is back")
    began = trial.get("server-2", "/v1/network")["slot"]
    _until(lambda: trial.ready("server-2") and trial.connected("server-2"), "server-2 is back")
    assert trial.get("server-2", "/v1/network")["slot"] <= began + 2
    assert "goes on after slot" in trial.log("server-2")
    assert trial.get("server-2", "/v1/budget")["total_spent"] >= spent > 0, "what was paid stays paid"

    # Both signals end a server inside a slot.
    for name, number in zip(names, (signal.SIGTERM, signal.SIGINT, signal.SIGTERM), strict=True):
        trial.processes[name].send_signal(number)
    for name in names:
        assert trial.processes[name].wait(LONG) == 0, trial.log(name)
        assert "node stopped" in trial.log(name)
        assert "Traceback" not in trial.log(name)


def test_systemd_is_told(trial: Trial, tmp_path: Path) -> None:
    """Type=notify would otherwise wait until it gives up, and kill a good server."""
    address = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(address))
        told.settimeout(LONG)
        process = trial.start("server-1", NOTIFY_SOCKET=str(address))
        assert told.recv(100) == b"READY=1"
        assert trial.get("server-1", "/healthz") == {"status": "ok"}
        process.terminate()
        assert told.recv(100) == b"STOPPING=1"
    assert process.wait(LONG) == 0
