"""`dpcrowd demo` for real: five node processes, a crowd, and nothing left of them afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX systems"),
]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """With a temporary folder of its own, so that what is left can be seen."""
    command = [sys.executable, "-m", "dpcrowd", "demo", "--json", *words]
    environment = os.environ | {"TMPDIR": str(folder)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment
    )


def nodes_in(folder: Path) -> list[psutil.Process]:
    """Node processes whose files are in a folder: those of this test, and of no other."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "dpcrowd.demo.child" in words and words[-1].startswith(str(folder)):
            found.append(process)
    return found


def nothing_left(folder: Path, within: float = 0.0) -> bool:
    end = time.monotonic() + within
    while nodes_in(folder) and time.monotonic() < end:
        time.sleep(0.1)
    return not nodes_in(folder)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=30)[1]  # it has ended: why?
    return line


@pytest.mark.timed
def test_twelve_seconds(tmp_path: Path) -> None:
    """The README's main command: real estimates of all servers, exit code 0, and no process or file left."""
    process = start(tmp_path, "--seconds", "12")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    last = r"dpcrowd demo: In \d+ slots the estimates were off by .*%.* intervals .* ε = .* messages\."
    assert re.fullmatch(last, err.splitlines()[-1]), "the demo ends with one sentence that sums it up"
    rows = [json.loads(line) for line in out.splitlines()]
    full = [row for row in rows if all(one["estimate"] is not None for one in row["servers"])]
    assert len(full) >= 3, err
    names = [f"server-{number}" for number in range(1, 6)]
    for row in full:
        assert set(row) == {"slot", "truth", "servers"}
        assert [one["server"] for one in row["servers"]] == names
        for one in row["servers"]:
            assert set(one) == {"server", "estimate", "low", "high", "epsilon_spent", "messages"}
            assert one["low"] < one["estimate"] < one["high"]
            assert 0 <= one["epsilon_spent"] <= 1
            assert one["messages"] > 0
        assert any(one["epsilon_spent"] > 0 for one in row["servers"]), "an estimate has been paid for by somebody"
    slots = [row["slot"] for row in rows]
    assert slots == list(range(slots[0], slots[0] + len(slots))), "no slot is left out"
    # A server that saw a fifth of the people only would be off by 80%; these are within 30% of all of them.
    for row in full:
        if row["truth"] is not None:
            assert all(abs(one["estimate"] - row["truth"]) < 0.3 * row["truth"] for one in row["servers"])
    assert nothing_left(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_control_c(tmp_path: Path) -> None:
    """The usual way to end a demo: no traceback, exit code 0, nothing left."""
    process = start(tmp_path, "--servers", "2")
    assert first_line(process).startswith('{"slot":'), process.stderr
    assert len(nodes_in(tmp_path)) == 2
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert nothing_left(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_is_killed_ends_the_demo(tmp_path: Path) -> None:
    """Exit code 5 and the node's name; the other one is stopped."""
    process = start(tmp_path, "--servers", "2")
    assert first_line(process).startswith('{"slot":')
    nodes_in(tmp_path)[0].kill()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 5, err
    assert "has ended (exit code -9)" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert nothing_left(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nodes_do_not_outlive_a_demo_that_is_killed(tmp_path: Path) -> None:
    """kill -9 runs no clean-up; the nodes notice that their standard input is closed."""
    process = start(tmp_path, "--servers", "2")
    assert first_line(process).startswith('{"slot":')
    assert len(nodes_in(tmp_path)) == 2
    process.kill()
    process.communicate(timeout=30)
    assert nothing_left(tmp_path, within=20)
