"""What the tests of the backends share: how a script is run, and what it has to say of any backend."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("backends_script.py")
SQUARES = [[number, number * number] for number in range(12)]


def run_script(*words: str, environment: Mapping[str, str] | None = None, quiet: bool = True) -> Any:
    """What the script says; nothing but its JSON may be printed, neither by it nor by its workers.

    quiet  False: workers of a cluster of somebody else may complain, such as of an end that came while they started
    """
    command = [sys.executable, "-W", "error", str(SCRIPT), *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, **(environment or {})}
    )
    assert done.returncode == 0, done.stderr
    assert not (quiet and done.stderr), done.stderr
    return json.loads(done.stdout)


def check_started(said: dict[str, Any]) -> None:
    """Of twelve tasks only those that a killed worker left unfinished ran again."""
    assert said["survived"] == SQUARES
    assert said["begun"][2] == 2
    assert sum(said["begun"]) <= 12 + 1 + 3, "more than the tasks that were under way ran again"


def check_running(said: dict[str, Any]) -> None:
    """Workers do the work, bit for bit; errors arrive as themselves; a task that kills every worker is given up."""
    assert said["same"] == ["dfast", "dpcrowd", "dpcrowd-plus"]
    assert said["squares"] == SQUARES
    assert said["elsewhere"], "the caller's process did the work"
    assert said["refused"] == ["BadInput", "three is not allowed; take four."]
    assert said["stumbled"][:2] == ["ZeroDivisionError", "division by zero"]
    assert "return 1 / number" in said["stumbled"][2], "where it happened is lost"
    kind, text = said["dying"]
    assert kind == "WorkersLost"
    assert "0 of 3 tasks are finished and keep their results" in text


def check_control_c(backend: str, folder: Path) -> None:
    """A signal to the whole group, as a terminal sends it: one line, no result, and no process is left."""
    command = [sys.executable, str(SCRIPT), "interrupt", backend, str(folder)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, start_new_session=True, **pipes)
    deadline = time.monotonic() + 120
    while len(list(folder.glob("at-work-*"))) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "interrupted\n", "")
    workers = [int(file.name.removeprefix("at-work-")) for file in folder.glob("at-work-*")]
    assert len(workers) >= 2
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, workers)), "workers outlive their caller"


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended but whose parent has not looked yet does not."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True).stdout.strip()
    return state != "" and not state.startswith("Z")
