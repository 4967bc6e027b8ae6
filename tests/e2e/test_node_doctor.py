"""The doctor of a stopped server listens to real neighbours, over TLS: the same files, the same time, or not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node_support_trial import change, trial_of, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and sockets of POSIX")


def test_a_stopped_server_hears_whether_neighbours_have_its_files(tmp_path: Path) -> None:
    """server-1 dials it, server-3 is dialled: both ways have to work, and the port is free again afterwards."""
    with trial_of(tmp_path) as trial:
        trial.start("server-1", "server-3")
        until(lambda: trial.get("server-3", "/readyz") is not None, "both run")
        told = trial.process("server-2", "doctor")
        assert told.returncode == 0, told.stdout
        for name in ("server-1", "server-3"):
            assert f"digest: '{name}' has the same network.toml" in told.stdout
            assert f"clock: the message of '{name}' for slot" in told.stdout
        assert not trial.config("server-2").data.exists(), "the doctor changes nothing"

        own = Path(trial.files["server-2"]).with_name("network.toml")
        own.write_text(trial.network.read_text(encoding="utf-8"), encoding="utf-8")
        change(trial.files["server-2"], ("../network.toml", "network.toml"))
        change(own, ("population = ", "population = 1"))
        told = trial.process("server-2", "doctor")
        assert told.returncode == 1
        assert "PROBLEM digest: 'server-1' has a different network.toml" in told.stdout
        assert "PROBLEM digest: 'server-3' has a different network.toml" in told.stdout

        change(trial.files["server-2"], ('"network.toml"', '"../network.toml"'))
        trial.start("server-2")
        trial.all_ready()
        trial.stop()
