"""A trial network of `dpcrowd init --dev` with slots of one second; its servers are processes of `dpcrowd node run`."""

from __future__ import annotations

import contextlib
import io
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dpcrowd.cli.main import main
from dpcrowd.node.config import NodeConfig, load_pair
from dpcrowd.node.storage import Storage
from dpcrowd.privacy.payments import Payment
from node_support_fork import ForkedServer
from ports_support import ports_in_a_row

__all__ = ["LONG", "Answer", "Trial", "change", "feeding", "trial_of", "until"]

LONG = 30.0


class Answer:
    """Of the API: what it said, whatever the status."""

    def __init__(self, status: int, headers: Any, content: bytes) -> None:
        self.status, self.headers, self.text = status, headers, content.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def reason(self) -> str:
        """Of a refusal."""
        return str(self.json["error"]["reason"])


class Trial:
    """Servers of one network as processes.

    They are forked from a process that has loaded their code (`node_support_fork`), or are processes of the command
    itself if `forked` is false.
    """

    forked = True

    def __init__(self, folder: Path, made: dict[str, Any]) -> None:
        self.folder = folder
        self.network = Path(made["network"])
        self.files = {one["server"]: one["node"] for one in made["servers"]}
        self.apis = {one["server"]: one["api"] for one in made["servers"]}
        self.tokens = {one["server"]: one["tokens"] for one in made["servers"]}
        self.processes: dict[str, subprocess.Popen[bytes] | ForkedServer] = {}
        self.tls: ssl.SSLContext | None = None  # for servers with HTTPS
        self.readers: dict[str, str] = {}  # tokens to read with, of servers where reading is not open

    def start(self, *names: str, **environment: str) -> subprocess.Popen[bytes] | ForkedServer:
        """Start servers by name, or all; return the last one."""
        everything = {**os.environ, **environment}
        for name in names or self.files:
            file, path = self.files[name], self.folder / f"{name}.log"
            if self.forked:
                self.processes[name] = ForkedServer(file, path, everything)
                continue
            command = [sys.executable, "-m", "dpcrowd.cli.main", "node", "run", file]
            with path.open("ab") as log:
                self.processes[name] = subprocess.Popen(command, stderr=log, env=everything)
        return self.processes[name]

    def stop(self, *names: str) -> None:
        """By SIGTERM; a server that does not end so, and cleanly, fails the test."""
        for name in names or self.processes:
            self.processes[name].terminate()
        for name in names or self.processes:
            assert self.processes[name].wait(LONG) == 0, self.log(name)

    def kill(self) -> None:
        """Whatever still runs."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(LONG)

    def ask(
        self, name: str, path: str, body: bytes | None = None, *, token: str | None = None, **headers: str
    ) -> Answer:
        """A request; with a body it is a POST, of JSON unless `content_type` says otherwise."""
        token = token or self.readers.get(name)
        request = urllib.request.Request(self.apis[name] + path, body)
        if body is not None:
            request.add_header("Content-Type", "application/json")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        for header, value in headers.items():
            request.add_header(header.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.tls) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read())

    def checkin(self, name: str, rows: list[dict[str, Any]], *, token: str | None = None) -> Answer:
        token = self.tokens[name]["checkin"] if token is None else token
        return self.ask(name, "/v1/checkins", json.dumps(rows).encode(), token=token)

    def get(self, name: str, path: str) -> Any:
        """The answer; None while there is none."""
        try:
            answer = self.ask(name, path)
            return answer.json if answer.status < 400 or path == "/readyz" else None
        except (OSError, ValueError):
            return None

    def slot(self, name: str) -> int:
        return int(self.ask(name, "/v1/network").json["slot"])

    def released(self, name: str) -> int:
        """The last slot; -1 before the first."""
        rows = self.get(name, "/v1/estimates/latest")
        return int(rows[0]["slot"]) if rows else -1

    def refused(self, name: str) -> dict[str, int]:
        """Messages by reason."""
        return dict(self.ask(name, "/v1/network").json["refused_messages"])

    def ready(self, name: str) -> bool:
        answer = self.get(name, "/readyz")
        return bool(answer and answer["ready"])

    def connected(self, name: str) -> bool:
        answer = self.get(name, "/v1/network")
        return bool(answer) and all(one["connected"] for one in answer["neighbours"])

    def all_ready(self, *names: str) -> None:
        """Wait for servers by name, or for all."""
        wanted = names or tuple(self.files)
        until(lambda: all(self.ready(name) and self.connected(name) for name in wanted), f"{wanted} are ready")

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def config(self, name: str) -> NodeConfig:
        return load_pair(Path(self.files[name]))[0]

    def ledger(self, name: str) -> list[Payment]:
        """All payments, oldest first."""
        node, network = load_pair(Path(self.files[name]))
        with Storage.inspect(node.data, network_id=network.id, ledger_folder=node.ledger.shared) as storage:
            return storage.ledger.payments_since(0)

    def tool(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `dpcrowd node COMMAND node.toml ...` in this process, which has loaded everything already."""
        arguments = ["node", words[0], self.files[name], *words[1:]]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def process(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `dpcrowd node COMMAND node.toml ...` as a process of its own, as an operator does."""
        command = [sys.executable, "-m", "dpcrowd.cli.main", "node", words[0], self.files[name], *words[1:]]
        return subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)


@contextlib.contextmanager
def trial_of(folder: Path, servers: int = 3, *options: str) -> Iterator[Trial]:
    """The files of a network; its servers are started by the test and killed at the end.

    Its scheme samples in every slot, so that tests do not wait for the next sample; `options` may choose another one.
    """
    base = ports_in_a_row(2 * servers)
    ports = ["--port", str(base), "--http-port", str(base + servers)]
    words = ["init", str(folder / "net"), "--dev", "--servers", str(servers), "--slot", "1s", "--json", *ports]
    words += [] if "--scheme" in options else ["--scheme", "dpcrowd-w"]
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        assert main([*words, *options]) == 0
    trial = Trial(folder, json.loads(told.getvalue()))
    try:
        yield trial
    finally:
        trial.kill()


def change(path: Path | str, *changes: tuple[str, str]) -> None:
    """Replace texts in a file; each has to be there."""
    text = Path(path).read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, f"'{old}' is not in {path}"
        text = text.replace(old, new, 1)
    Path(path).write_text(text, encoding="utf-8")


@contextlib.contextmanager
def feeding(trial: Trial, *names: str) -> Iterator[None]:
    """A few people, checked in several times per slot at each server, as long as it answers."""
    over = threading.Event()

    def feed(name: str) -> None:
        rows = [{"user": f"{name} {number}", "region": "north"} for number in range(20)]
        while not over.wait(0.25):
            with contextlib.suppress(OSError):
                trial.checkin(name, rows)

    threads = [threading.Thread(target=feed, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(LONG)


def until(true: Callable[[], bool], what: str) -> float:
    """Seconds until it was true.

    Long waits look less often: servers that answer fifty questions per second take the time of other tests.
    """
    began, pause = time.monotonic(), 0.02
    while not true():
        assert time.monotonic() - began < LONG, f"waited {LONG:g} s in vain: {what}"
        time.sleep(pause)
        pause = min(1.3 * pause, 0.15)
    return time.monotonic() - began
