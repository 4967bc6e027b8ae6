"""For tests of `dpcrowd node`: the files of a trial network, and a small web server that answers like a node."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from dpcrowd.cli.main import main
from dpcrowd.node.config import load_node
from dpcrowd.node.config.samples import sample_network
from dpcrowd.node.storage import Storage
from ports_support import free_ports

__all__ = ["BUDGET", "MINUTE", "NETWORK", "Node", "answering", "copy_of", "free_port", "paid", "run", "set_ports"]

MINUTE = 60 * 10**9
NETWORK: dict[str, Any] = {
    **{"network": "trial", "server": "server-1", "version": "0", "revision": 1, "digest": "00", "slot": 7},
    **{"epoch": "2026-01-01T00:00:00Z", "slot_seconds": 1.0, "regions": ["north"]},
    "neighbours": [
        {"name": "server-2", "connected": True, "last_slot": 6, "last_heard": "2026-01-01T00:00:06Z", "refused": {}},
        {"name": "server-3", "connected": False, "last_slot": None, "last_heard": None, "refused": {"replay": 2}},
    ],
}
BUDGET: dict[str, Any] = {
    **{"guarantee": "Pure.", "kind": "window", "length": 100, "epsilon": 1.0, "spent": 0.25, "remaining": 0.75},
    **{"returns": 0.1, "returns_slot": 9, "returns_at": "2026-01-01T00:00:09Z", "total_spent": 3.5},
    **{"samples": True, "text": ""},
}


class Node(HTTPServer):
    """Answers like a node, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ready = True
        self.warnings: list[str] = []
        self.asked: list[tuple[str, str, str | None, bytes]] = []
        self.junk = False


class _Handler(BaseHTTPRequestHandler):
    server: Node

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = self.headers.get("Authorization")
        self.server.asked.append((self.command, self.path, token, body))
        status, answer = 200, {"text": "done."}
        if self.path == "/readyz":
            status, answer = (200 if self.server.ready else 503), {"ready": self.server.ready, "problems": ["full."]}  # type: ignore[dict-item]
            if self.server.warnings:
                answer["warnings"] = self.server.warnings  # type: ignore[assignment]
        elif self.path == "/v1/network":
            answer = NETWORK
        elif self.path == "/v1/budget":
            answer = BUDGET
        elif self.path == "/v1/quality":
            answer = {"verdict": "calibrated", "text": "the intervals are about right."}
        elif token != "Bearer secret-secret-secret":
            status, answer = 401, {"error": {"reason": "no-token", "text": "send a token."}}  # type: ignore[dict-item]
        content = b"<html>" if self.server.junk else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def answering(file: Path) -> Iterator[Node]:
    """A node at the address of a node.toml, which is changed to it."""
    server = Node()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    set_ports(file, server.server_port, free_port())
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def copy_of(trial: Path, folder: Path) -> Path:
    """The node.toml of server-1 in a copy of a trial, at ports where nobody listens."""
    shutil.copytree(trial, folder / "net")
    path = folder / "net" / "server-1" / "node.toml"
    set_ports(path, free_port(), free_port())
    return path


def free_port() -> int:
    return free_ports(1)[0]


def set_ports(path: Path, http: int, transport: int) -> None:
    node = load_node(path)
    text = path.read_text(encoding="utf-8").replace(f'"{node.listen.http}"', f'"127.0.0.1:{http}"')
    path.write_text(text.replace(node.listen.transport[0], f"tls/127.0.0.1:{transport}"), encoding="utf-8")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["node", *words])
    out, err = capsys.readouterr()
    return code, out, err


def paid(file: Path, kind: str = "window", nano: int = 250_000_000) -> Path:
    """Make the folder of a node that has paid ε=0.25 a minute ago."""
    path = file.parent.parent / "network.toml"
    scheme = "dpcrowd" if kind == "finite" else "dpcrowd-w"
    path.write_text(sample_network(3, network_id="trial", kind=kind, scheme=scheme), encoding="utf-8")
    opens = time.time_ns() // MINUTE * MINUTE - MINUTE
    with Storage.open(load_node(file).data, network_id="trial") as storage:
        storage.ledger.declare(10**9, None if kind == "finite" else 100 * MINUTE)
        storage.commit_sample(1, opens, MINUTE, nano, b"noisy", b"state")
    return load_node(file).data
