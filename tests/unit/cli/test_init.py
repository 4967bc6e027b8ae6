"""`dpcrowd init`: a network that works at once, tokens that are nowhere on disk, and nothing ever overwritten."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.cli.main import main
from dpcrowd.node.config import load_pair
from dpcrowd.node.live.process import check_keys
from dpcrowd.privacy.units import utc_text
from ports_support import ports_in_a_row

SERVERS = ["server-1", "server-2", "server-3"]


def _made(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["init", *words, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_a_trial_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trial with a missing key, a wrong pin or two servers on a port would fail at the first command."""
    made = _made(capsys, str(tmp_path / "net"), "--servers", "4", "--dev", "--slot", "1s")
    assert [server["server"] for server in made["servers"]] == [f"server-{number}" for number in (1, 2, 3, 4)]
    addresses = set()
    for server in made["servers"]:
        node, network = load_pair(server["node"])
        check_keys(node, network, datetime.now(UTC))
        assert network.server(node.server).endpoint == node.listen.transport[0]
        assert server["api"] == f"http://{node.listen.http}"
        addresses |= {node.listen.http, *node.listen.transport}
        assert network.grace_ns + network.deadline_ns <= network.clock().length_ns == 10**9
        assert len(network.neighbours(node.server, 0)) == 2
    assert len(addresses) == 8


def test_tokens_work_and_stand_in_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plain token on disk can be used by whoever reads a backup."""
    made = _made(capsys, str(tmp_path / "net"), "--servers", "2")
    everything = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "net").rglob("*.toml"))
    seen = set()
    for server in made["servers"]:
        node, _ = load_pair(server["node"])
        assert set(server["tokens"]) == {"checkin", "read", "admin"}
        for right, token in server["tokens"].items():
            assert node.tokens.rights_of(token) == {right}
            assert token not in everything
            seen.add(token)
    assert len(seen) == 6, "no token is used twice"


def test_reading_is_open_in_a_trial_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Estimates, budget and neighbours are for those whom the operator chose; a trial has nobody to hide them from."""
    for server in _made(capsys, str(tmp_path / "net"), "--advanced")["servers"]:
        tokens = load_pair(server["node"])[0].tokens
        assert tokens.rights_of(None) == frozenset()
        assert tokens.rights_of(server["tokens"]["read"]) == {"read"}
    for server in _made(capsys, str(tmp_path / "dev"), "--dev")["servers"]:
        node = load_pair(server["node"])[0]
        assert node.tokens.rights_of(None) == {"read"}
        assert node.listen.http_address[0] == "127.0.0.1"
        assert set(server["tokens"]) == {"checkin", "admin"}
    assert main(["init", str(tmp_path / "told")]) == 0
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("server-1 ")] == [
        "checkin",
        "read",
        "admin",
    ]
    assert "DPCROWD_TOKEN" in out


@pytest.mark.parametrize("slot", ["1s", "7s", "1m", "1h", "1d", "90"])
def test_grace_and_deadline_fit_into_any_slot(slot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample's own 15 seconds do not fit into a slot of one."""
    for server in _made(capsys, str(tmp_path / "net"), "--slot", slot)["servers"]:
        _, network = load_pair(server["node"])
        assert network.grace_ns > 0
        assert network.deadline_ns > 0
        assert network.grace_ns + network.deadline_ns <= network.clock().length_ns


@pytest.mark.parametrize("dev", [True, False])
@pytest.mark.parametrize("slot", ["2s", "1m", "15m", "1d"])
def test_a_horizon_begins_ahead(dev: bool, slot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At midnight, as a window does, it was over before the first server could start, and nothing said so."""
    before = datetime.now(UTC).timestamp()
    words = ["init", str(tmp_path / "net"), "--scheme", "dpcrowd", "--slot", slot, *(["--dev"] if dev else [])]
    assert main(words) == 0
    clock = load_pair(tmp_path / "net" / "server-1" / "node.toml")[1].clock()
    ahead = clock.epoch_ns / 1e9 - before
    unit = max(clock.length_ns // 10**9, 60) if dev else 86400
    assert clock.epoch_ns % (unit * 10**9) == 0, "slots begin at full minutes, quarters of an hour, or midnight"
    assert (120 if dev else 3600) - 1 <= ahead <= unit + (120 if dev else 3600)
    out = capsys.readouterr().out
    begins, ends = (utc_text(clock.opens(slot)) for slot in (0, 100))
    assert f"The horizon of 100 slots begins at {begins} and ends at {ends}." in out
    assert _made(capsys, str(tmp_path / "again"), "--scheme", "dpcrowd", "--slot", slot)["epoch"].endswith("Z")


def test_a_window_has_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trial with a window would have nothing to show for minutes."""
    assert main(["init", str(tmp_path / "net"), "--dev"]) == 0
    assert "horizon" not in capsys.readouterr().out
    clock = load_pair(tmp_path / "net" / "server-1" / "node.toml")[1].clock()
    assert clock.epoch_ns % (86400 * 10**9) == 0
    assert clock.epoch_ns <= datetime.now(UTC).timestamp() * 1e9


def test_advanced_shows_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the option nobody needs, the basic sample would not be basic."""
    _made(capsys, str(tmp_path / "basic"))
    _made(capsys, str(tmp_path / "advanced"), "--advanced")
    for file in ("network.toml", "server-1/node.toml"):
        lines = [
            len((tmp_path / kind / file).read_text(encoding="utf-8").splitlines()) for kind in ("basic", "advanced")
        ]
        assert lines[0] < lines[1]


def test_people_are_told_what_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next command has to be on the screen, with the right path."""
    assert main(["init", str(tmp_path / "net")]) == 0
    out = capsys.readouterr().out
    for command in (
        "keys init-ca",
        "keys request --name server-1",
        "keys sign server-1.csr",
        "keys show",
        "node doctor",
    ):
        assert f"dpcrowd {command}" in out
    assert main(["init", str(tmp_path / "dev"), "--dev"]) == 0
    assert f"dpcrowd node run {tmp_path / 'dev' / 'server-3' / 'node.toml'}" in capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="files have modes on POSIX only")
def test_the_folder_is_its_owners(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It holds private keys."""
    _made(capsys, str(tmp_path / "net"), "--dev")
    assert stat.S_IMODE((tmp_path / "net").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "net" / "server-1" / "server-1.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", [".", "net"])
def test_an_empty_folder_is_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`mkdir net && cd net && dpcrowd init .` is what many type."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir(exist_ok=True)
    _made(capsys, name)
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["network.toml", *SERVERS]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["full"], "'full' exists already and is not replaced; choose a new or an empty folder."),
        (["file"], "'file' exists already and is not replaced"),
        (["net", "--servers", "0"], "a sample network has 1 to 1000 servers; given 0."),
        (["net", "--slot", "0.5s"], "--slot is 0.5s; allowed: a duration from 1s to 1d"),
        (["net", "--slot", "2d"], "--slot is 2d; allowed: a duration from 1s to 1d"),
        (["net", "--slot", "soon"], "--slot is soon; allowed: a duration from 1s to 1d, such as 30s or 1m."),
        (["net", "--port", "0"], "--port is 0; allowed: 1 to 65533 for 3 servers."),
        (["net", "--http-port", "65534"], "--http-port is 65534; allowed: 1 to 65533 for 3 servers."),
        (["net", "--port", "8082"], "--port 8082 and --http-port 8080: 3 ports from each on would overlap; set them"),
        (["file/net"], "cannot write 'file/net': Not a directory."),
        (["net", "--scheme", "reley"], "unknown scheme 'reley'. Did you mean 'relay'?"),
        (["net", "--plan", "none.toml"], "none.toml: cannot be read: No such file or directory."),
    ],
)
def test_a_refusal_is_one_line_and_leaves_nothing(
    words: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a network, or somebody's files gone, would be worse than none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("mine", encoding="utf-8")
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    assert main(["init", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert text in err
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_the_next_steps_stand_below_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And name the fingerprint, without which the authority signs whatever arrives."""
    assert main(["init", str(tmp_path / "net")]) == 0
    steps = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  dpcrowd keys ")]
    assert len(steps) == 4
    assert len({line.index("  # ") + len("  # ") for line in steps}) == 1
    assert any("keys sign" in line and "--fingerprint" in line for line in steps)


def _planned(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> Path:
    """Write a plan for four servers in a ring, and return its file."""
    file = folder / "plan.toml"
    levels = ["--level", "north=5000,old town=800", "--process-var", "400,90.5", "--epsilons", "0.5"]
    network = ["--servers", "4", "--graph", "ring", "--shares", "partition", "--window", "48", "--epsilon", "0.5"]
    assert main(["plan", *levels, *network, *words, "--toml", str(file)]) == 0
    capsys.readouterr()
    return file


@pytest.mark.slow
def test_a_network_has_the_numbers_of_its_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan that is copied by hand is copied wrongly; and what it leads to has to be ready to run."""
    file = _planned(tmp_path, capsys, "--slot", "15m", "--users", "roaming", "--hops-per-slot", "all")
    plan = tomllib.loads(file.read_text(encoding="utf-8"))
    servers = len(plan["server"])
    port, http_port = (str(ports_in_a_row(servers)) for _ in range(2))
    made = _made(capsys, str(tmp_path / "net"), "--dev", "--plan", str(file), "--port", port, "--http-port", http_port)
    written = tomllib.loads((tmp_path / "net" / "network.toml").read_text(encoding="utf-8"))
    assert {**written["network"], **plan["network"]} == written["network"]
    for table in ("guarantee", "scheme"):
        for name, value in plan[table].items():
            default = {"servers_per_slot": 1, "regions_per_slot": 1, "correlation": 1.0, "observation": "binomial"}
            assert written[table].get(name, default.get(name)) == value, name
    assert [(server["name"], server["share"]) for server in written["server"]] == [
        (server["name"], server["share"]) for server in plan["server"]
    ]
    assert written["link"] == plan["link"]
    for server in made["servers"]:
        node, network = load_pair(server["node"])
        check_keys(node, network, datetime.now(UTC))
        assert network.relay is not None
        assert network.relay.samples == plan["scheme"]["samples"]
        assert main(["node", "doctor", server["node"]]) == 0
        assert "PROBLEM" not in capsys.readouterr().out


def test_a_network_has_the_groups_of_its_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan that recommends groups of small regions made a network without them, and nobody was told."""
    file = _planned(tmp_path, capsys, "--slot", "15m")
    text = file.read_text(encoding="utf-8")
    for name, settings in (("grouped", 'groups = "auto"'), ("learning", "share_width = 0.1")):
        file.write_text(text.replace("[scheme]\n", f"[scheme]\n{settings}\n"), encoding="utf-8")
        _made(capsys, str(tmp_path / name), "--plan", str(file))
        written = tomllib.loads((tmp_path / name / "network.toml").read_text(encoding="utf-8"))["scheme"]
        assert tomllib.loads(settings).items() <= written.items()


def test_a_network_has_the_turnover_of_its_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Live filters assumed a crowd that is new in every slot, where simulations had users who stay."""
    file = _planned(tmp_path, capsys, "--slot", "15m")
    text = file.read_text(encoding="utf-8")
    assert "\nturnover = 0.05\n" in text
    without = text.replace("turnover = 0.05\n", "")  # a plan of an earlier version, whose servers assumed 1
    for name, plan, turnover in (("new", text, 0.05), ("own", text.replace("0.05", "0.2"), 0.2), ("old", without, 1.0)):
        file.write_text(plan, encoding="utf-8")
        _made(capsys, str(tmp_path / name), "--plan", str(file))
        network = (tmp_path / name / "network.toml").read_text(encoding="utf-8")
        assert tomllib.loads(network)["scheme"]["turnover"] == turnover
    roaming = _planned(tmp_path, capsys, "--slot", "15m", "--users", "roaming").read_text(encoding="utf-8")
    assert "turnover" not in roaming


def test_a_plan_without_a_slot_needs_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A minute would be a guess, and the promise would cover another time than anybody meant."""
    file = _planned(tmp_path, capsys)
    assert main(["init", str(tmp_path / "net"), "--plan", str(file)]) == 2
    assert "does not give the length of a slot; give it here (--slot 15m)" in capsys.readouterr().err
    _made(capsys, str(tmp_path / "net"), "--plan", str(file), "--slot", "30s")
    assert 'slot = "30s"' in (tmp_path / "net" / "network.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--servers", "3"], "--servers is 3, but '{}' has 4 servers; leave --servers out, or plan again."),
        (["--scheme", "dpcrowd-w"], "--scheme is dpcrowd-w, but '{}' has the scheme 'relay'; leave --scheme out"),
        (["--slot", "1m"], "--slot is 1m, but '{}' has slots of 15m; leave --slot out, or plan again."),
        (["--servers", "4", "--slot", "15m", "--scheme", "relay"], None),
    ],
)
def test_options_must_not_contradict_a_plan(
    words: list[str], text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever of the two were taken, half of the readers would expect the other."""
    file = _planned(tmp_path, capsys, "--slot", "15m")
    assert main(["init", str(tmp_path / "net"), "--plan", str(file), *words]) == (0 if text is None else 2)
    assert (text or "").format(file) in capsys.readouterr().err
    assert (tmp_path / "net").exists() == (text is None)


def test_a_plan_that_observes_as_the_paper_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Live servers would claim intervals that contain the truth far less often than 95%, and nobody would know."""
    file = _planned(tmp_path, capsys, "--slot", "15m", "--observation", "paper")
    assert main(["init", str(tmp_path / "net"), "--plan", str(file)]) == 0
    err = capsys.readouterr().err
    assert err.startswith(f"warning: '{file}' has observation = \"paper\"")
    assert err.count("\n") == 1
    text = (tmp_path / "net" / "network.toml").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("observation"))
    assert line.startswith('observation = "paper"')
    assert "# the paper's model" in line
    other = _planned(tmp_path, capsys, "--slot", "15m")
    assert main(["init", str(tmp_path / "other"), "--plan", str(other)]) == 0
    assert capsys.readouterr().err == ""


def test_a_plan_whose_model_has_no_times_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A season of slots would begin at whatever epoch the new network has, and slots of any length be accepted."""
    counts = dpcrowd.counts_from_array(np.random.default_rng(0).poisson(50, (40, 2)))
    dpcrowd.fit(counts, source="made up", season=4, out=tmp_path / "model.toml")
    words = ["plan", "--model", str(tmp_path / "model.toml"), "--servers", "3", "--graph", "ring", "--window", "20"]
    assert main([*words, "--slot", "1h", "--toml", str(tmp_path / "plan.toml")]) == 0
    capsys.readouterr()
    assert main(["init", str(tmp_path / "NET"), "--plan", str(tmp_path / "plan.toml")]) == 0
    warnings = capsys.readouterr().err
    assert "a season of 4 slots and no times, so servers take slot 0" in warnings
    assert "nothing checks that its slots are 1h long" in warnings


def test_a_plan_with_links_that_change_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody can connect servers by links that are drawn anew in every slot."""
    file = tmp_path / "plan.toml"
    words = ["--level", "500", "--process-var", "9", "--servers", "6", "--density", "0.6", "--epsilons", "1"]
    assert main(["plan", *words, "--slot", "1m", "--toml", str(file)]) == 0
    assert main(["init", str(tmp_path / "net"), "--plan", str(file)]) == 2
    assert "has no [[link]], since the planned network draws its links anew" in capsys.readouterr().err


def test_relay_is_written_with_what_the_planner_recommends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings that are not in the file are not seen by those who agree on it."""
    samples = {}
    for servers in (1, 2, 5):
        folder = tmp_path / str(servers)
        _made(capsys, str(folder), "--servers", str(servers))
        method = tomllib.loads((folder / "network.toml").read_text(encoding="utf-8"))["scheme"]
        assert (method["name"], method["reach"], method["lag"]) == ("relay", "all", 16)
        samples[servers] = method["samples"]
    assert samples[1] > samples[5] > 1, "more servers have to sample less often each"


@pytest.mark.parametrize(
    ("scheme", "kind"), [("dpcrowd", "finite"), ("dpcrowd-w", "window"), ("dpcrowd-plus", "window")]
)
def test_the_other_schemes_can_be_chosen(
    scheme: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Networks of the paper's schemes go on, and new ones may be set up beside them."""
    server, *_ = _made(capsys, str(tmp_path / "net"), "--scheme", scheme)["servers"]
    network = load_pair(server["node"])[1]
    assert (network.method.name, network.guarantee().kind) == (scheme, kind)
    assert network.relay is None
    if scheme == "dpcrowd-w":
        assert (network.method.sampling, network.method.interval) == ("fixed", 1)


@pytest.mark.parametrize("scheme", ["relay", "dpcrowd-plus"])
def test_a_new_network_with_relay_learns_its_process_variance(
    scheme: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The number in the sample is a guess from the population; without learning, every interval would rest on it."""
    made = _made(capsys, str(tmp_path / "net"), "--servers", "3", "--scheme", scheme)
    _, network = load_pair(made["servers"][0]["node"])
    assert network.learns == (scheme == "relay")
    assert network.fitted is None


def test_a_model_that_was_replaced_after_planning_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The network got samples and a reach that were computed for another model, and nobody was told."""
    plan, model = tmp_path / "plan.toml", tmp_path / "model.toml"

    def put(level: int) -> None:
        counts = dpcrowd.counts_from_array(np.random.default_rng(0).poisson(level, (40, 2)))
        dpcrowd.fit(counts, source="made up", slot_length="1h", out=model)

    def init(folder: str) -> str:
        assert main(["init", str(tmp_path / folder), "--plan", str(plan)]) == 0
        return capsys.readouterr().err

    put(50)
    words = ["plan", "--model", str(model), "--servers", "3", "--graph", "ring", "--window", "20"]
    assert main([*words, "--toml", str(plan)]) == 0
    capsys.readouterr()
    assert init("same") == ""
    put(5)
    assert f"the model '{model}' is not the one with which '{plan}' was planned" in init("other")
    lines = plan.read_text(encoding="utf-8").splitlines()
    plan.write_text("\n".join(one for one in lines if not one.startswith("model_digest")), encoding="utf-8")
    assert init("earlier") == "", "plans of earlier versions do not tell"
