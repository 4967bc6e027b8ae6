"""For tests of the doctor: a trial network on free ports, and what was found in it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from dpcrowd.node.config import load_pair
from dpcrowd.node.doctor import Finding, examine
from dpcrowd.node.storage import Storage
from ports_support import free_ports

__all__ = ["MINUTE", "change", "look", "of", "on_free_ports", "pay", "problems"]

MINUTE = 60 * 10**9


def on_free_ports(trial: Path, folder: Path) -> Path:
    """A copy of a trial of three servers."""
    shutil.copytree(trial, folder)
    free = free_ports(6)
    for file in (folder / "network.toml", *(folder / f"server-{number}" / "node.toml" for number in (1, 2, 3))):
        text = file.read_text(encoding="utf-8")
        for number in range(3):
            text = text.replace(f":{7447 + number}", f":{free[number]}").replace(
                f":{8080 + number}", f":{free[3 + number]}"
            )
        file.write_text(text, encoding="utf-8")
    return folder


def look(net: Path, server: str = "server-1", **settings: Any) -> list[Finding]:
    """Without listening to the neighbours, unless told to."""
    return examine(net / server / "node.toml", **{"timeout": 2.0, "listen": 0.0, **settings})


def problems(findings: list[Finding]) -> dict[str, str]:
    found = [one for one in findings if one.outcome == "problem"]
    assert all(one.fix for one in found), "a problem without a fix leaves the operator alone"
    return {one.check: one.text for one in found}


def of(findings: list[Finding], check: str) -> list[Finding]:
    return [one for one in findings if one.check == check]


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def pay(net: Path, opens: int, *, nano: int = 250_000_000, kind: str = "window") -> Path:
    """The folder of a server-1 that has paid for one slot; its promise is ε=1."""
    node, network = load_pair(net / "server-1" / "node.toml")
    with Storage.open(node.data, network_id=network.id) as storage:
        storage.ledger.declare(10**9, 100 * MINUTE if kind == "window" else None)
        storage.commit_sample(1, opens, MINUTE, nano, b"noisy", b"state")
    return node.data
