"""The folder for sockets: nobody else's start may take it away."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from dpcrowd.node.transport import folder as module
from dpcrowd.node.transport.folder import PrivateFolder


def test_a_start_at_the_same_moment_leaves_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five servers that start at once: one of them took the folder of another, not locked yet, for a leftover."""
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(module, "_LONGEST", 10_000)
    lock = fcntl.flock

    def lock_while_another_starts(file: object, how: int) -> None:
        monkeypatch.setattr(module.fcntl, "flock", lock)
        module._clear(tmp_path)
        lock(file, how)  # type: ignore[arg-type]

    monkeypatch.setattr(module.fcntl, "flock", lock_while_another_starts)
    made = PrivateFolder()
    assert made.path.is_dir()
    assert made.path.parent == tmp_path
    module._clear(tmp_path)
    assert made.path.is_dir(), "it is locked"
    made.close()
    assert not list(tmp_path.iterdir())
