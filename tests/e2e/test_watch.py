"""`dpcrowd watch` with real servers: what it shows, and a server that goes away and comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpcrowd.cli.main import main
from dpcrowd.cli.watch_nodes import NodeWatch
from dpcrowd.node.config import token_hash
from node_support_trial import Trial, change, feeding, trial_of, until

pytestmark = pytest.mark.slow
TOKEN = "token of a reader"


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Two servers; the second is read with a token only."""
    with trial_of(tmp_path_factory.mktemp("watched"), 2) as it:
        change(it.files["server-2"], ('read = "open"', f'read = ["{token_hash(TOKEN)}"]'))
        it.readers = dict.fromkeys(it.files, TOKEN)
        it.start()
        with feeding(it, *it.files):
            it.all_ready()
            until(lambda: all(it.released(name) >= 3 for name in it.files), "both servers release")
            yield it


def test_once_for_scripts(trial: Trial, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two servers side by side, with the token from a file; exit code 0 and nothing on standard error."""
    (tmp_path / "token").write_text(f"{TOKEN}\n", encoding="utf-8")
    words = [*trial.apis.values(), "--once", "--token-file", str(tmp_path / "token")]
    assert main(["watch", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    header = next(line for line in out.splitlines() if line.startswith("region"))
    assert header.split()[:3] == ["region", "server-1", "server-2"]
    assert "1 of 1" in out
    assert "north" in out
    assert main(["watch", *words, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["server"] for row in rows] == ["server-1", "server-2"]
    assert all(row["ready"]["ready"] and row["estimates"] for row in rows)


def test_a_wrong_token_is_said(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """The address is right and the node runs: the operator must not look for a fault there."""
    assert main(["watch", trial.apis["server-2"], "--once"]) == 2
    out = capsys.readouterr().out
    assert "refuses since" in out
    assert "--token-file" in out


def test_a_server_that_goes_away_and_comes_back(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """It is asked again until it answers; its last estimates stay meanwhile, and history goes on without a gap."""
    watch = NodeWatch(trial.apis["server-2"], TOKEN, None, 0.2)
    watch.start()
    try:
        until(lambda: watch.state.last is not None, "an estimate")
        assert watch.state.last.total_half is not None, "the node says how wide the interval of the total is"
        trial.stop("server-2")
        until(lambda: watch.state.away_since is not None, "it is noticed")
        since, last = watch.state.away_since, watch.state.last
        assert last is not None
        assert watch.state.problem
        assert main(["watch", *trial.apis.values(), "--once", "--token", TOKEN]) == 4
        assert "away since" in capsys.readouterr().out
        assert watch.state.away_since == since, "since the first time"
        trial.start("server-2")
        until(lambda: watch.state.away_since is None, "it is back")
        until(lambda: watch.state.last is not None and watch.state.last.slot > last.slot, "a new estimate")
        slots = [release.slot for release in watch.state.releases]
        assert slots == sorted(set(slots))
    finally:
        watch.close()
