"""Files of a trial network, made once: keys take time, and no test changes the first copy. And a package to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpcrowd.cli.main import main
from node_support_cli import copy_of
from node_support_doctor import on_free_ports
from plugin_support import install

__all__ = ["file", "install", "net", "trial"]


@pytest.fixture(scope="session")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `dpcrowd init --dev` makes it; to be copied."""
    folder = tmp_path_factory.mktemp("trial") / "net"
    assert main(["init", str(folder), "--dev"]) == 0
    return folder


@pytest.fixture
def file(trial: Path, tmp_path: Path) -> Path:
    """A node.toml of one's own, at ports where nobody listens."""
    return copy_of(trial, tmp_path)


@pytest.fixture
def net(trial: Path, tmp_path: Path) -> Path:
    """A trial of one's own, on free ports."""
    return on_free_ports(trial, tmp_path / "net")
