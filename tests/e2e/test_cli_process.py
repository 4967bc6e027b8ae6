"""The command line as a process of its own: what a shell, a script and a terminal see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dpcrowd
from backends_support import alive
from sim_support import TINY, tiny_words

HEAVY = ("scipy", "numba", "opendp", "networkx", "joblib", "pyarrow", "matplotlib", "click", "rich")
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="terminals, pipes and signals of POSIX systems")


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _run(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dpcrowd", *words]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=folder)


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import dpcrowd` may cost at most 1.3 times `import numpy`: one careless import at the top would triple it."""
    code = f"import sys, dpcrowd; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert _python(code) == "[]"
    names = "simulate Guarantee SecureNoise SeededNoise Scheme DPCrowd Server load_data build_graph ProcessModel"
    code = f"import sys, dpcrowd; [getattr(dpcrowd, n) for n in {names.split()!r}]; "
    code += f"print([name for name in {HEAVY!r} if name in sys.modules])"
    assert _python(code) == "[]", "not even using the names: only running them"


@pytest.mark.parametrize("words", [["--help"], ["simulate", "--help"], ["--version"]])
def test_help_does_not_wait_for_numpy(words: list[str]) -> None:
    """Help has to be there in half a second; numpy alone takes a third of that."""
    code = f"import sys; from dpcrowd.cli.main import main; main({words!r}); print('numpy' in sys.modules)"
    assert _python(code).endswith("False")


def test_the_installed_command_is_the_module() -> None:
    """`dpcrowd` and `python -m dpcrowd` are one program; its exit code is that of `main`."""
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="dpcrowd")
    assert script.value == "dpcrowd.cli.main:main"
    done = _run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"dpcrowd {dpcrowd.__version__}\n", "")


def test_a_simulation_prints_the_object_and_nothing_else() -> None:
    """A script reads standard output to the end as one JSON object; warnings or progress there would break it."""
    done = _run(*tiny_words("non-private,dpcrowd", "--json", "--seed", "3"))
    assert done.returncode == 0
    assert done.stderr == ""
    rows = json.loads(done.stdout)["results"]
    wanted = dpcrowd.simulate("non-private,dpcrowd", seed=3, **TINY).summary()
    for row in (*rows, *wanted):
        row.pop("server_slots_per_second")
    assert rows == wanted


def test_a_mistake_is_one_line_and_two(tmp_path: Path) -> None:
    """The same as within a process: no traceback from the interpreter around it."""
    (tmp_path / "bad.csv").write_text("a\n1\n-2\n3\n")
    for words, text in (
        (tiny_words("dpcrwd"), "dpcrowd: error: unknown scheme 'dpcrwd'. Did you mean 'dpcrowd'?"),
        (["simulate", "--scheme", "dpcrowd", "--data", "bad.csv"], "dpcrowd: error: bad.csv line 3, column 'a' is -2;"),
    ):
        done = _run(*words, folder=tmp_path)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith(text)
        assert done.stderr.count("\n") == 1


@POSIX
def test_control_c_ends_it_with_one_line(tmp_path: Path) -> None:
    """The process waits for its network in a named pipe, so the signal meets it at work on any machine."""
    pipe = tmp_path / "net.txt"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "dpcrowd", *tiny_words("dpcrowd", "--graph", str(pipe))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    writer = None
    while writer is None and process.poll() is None:
        try:
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads yet
            time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert writer is not None
    os.close(writer)
    assert (process.returncode, out, err) == (130, "", "dpcrowd: interrupted\n")


@POSIX
def test_sigterm_ends_it_with_its_workers(tmp_path: Path) -> None:
    """`kill`, a batch system and `timeout` send it: workers that live on would hold the cores for minutes."""
    words = ["reproduce", "6", "--quick", "--out", str(tmp_path), "--jobs", "2", "--runs", "40"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-m", "dpcrowd", *words], text=True, **pipes)
    deadline = time.monotonic() + 120
    workers: list[int] = []
    while len(workers) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
        listed = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True).stdout
        rows = [line.split(maxsplit=2) for line in listed.splitlines()]
        workers = [int(row[0]) for row in rows if row[1] == str(process.pid) and "LokyProcess" in row[2]]
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert len(workers) >= 2
    assert (process.returncode, out) == (143, "")
    # The tracker of the workers' shared memory is a process of its own, and may have something to say after it.
    assert "dpcrowd: terminated" in err.splitlines()
    assert "Traceback" not in err
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, workers)), "workers outlive their caller"


@POSIX
def test_a_reader_that_goes_away_is_no_error() -> None:
    """`dpcrowd schemes | head -1` must not end in a traceback."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "dpcrowd", "schemes"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.stderr == ""


@POSIX
def test_progress_shows_on_a_terminal_and_the_table_stays_clean() -> None:
    """Standard error is a terminal, standard output a file: the bar goes to the one, the table to the other."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "dpcrowd", *tiny_words("dpcrowd", "--slots", "200")]
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:  # Linux says so when the other end of a terminal closes
        pass
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert b"simulating" in seen
    assert b"100%" in seen
    assert out.decode().startswith("scheme ")
    assert b"\x1b" not in out
