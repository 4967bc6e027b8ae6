"""`dpcrowd node run` for real: three processes, links with TLS, kill -9, signals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from node_support_trial import LONG, Trial, change, feeding, trial_of, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and sockets of POSIX")


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    with trial_of(tmp_path) as made:
        yield made


def _heavy_libraries(process: int) -> set[str]:
    """Return which libraries that a server does not need are loaded all the same: each delays its first slot."""
    maps = Path(f"/proc/{process}/maps")
    text = maps.read_text(encoding="utf-8") if maps.exists() else ""
    return {name for name in ("scipy", "numba", "pyarrow", "matplotlib", "opendp", "pandas") if f"/{name}/" in text}


def test_a_network_survives_the_death_of_a_server_and_stops_cleanly(trial: Trial) -> None:
    """Everything an operator does on the first day, with servers that are started by the command itself."""
    trial.forked = False
    names = list(trial.files)
    for name in names:
        trial.start(name)
    until(lambda: all(trial.ready(name) and trial.connected(name) for name in names), "three servers are ready")

    # Tools, beside the running server.
    told = trial.process("server-2", "doctor")
    assert told.returncode == 0, told.stdout
    assert "is in use by the running node" in told.stdout
    assert trial.tool("server-2", "status").returncode == 0
    loud = trial.tool("server-2", "log-level", "debug", "--token", trial.tokens["server-2"]["admin"])
    assert loud.stdout == "the log level is debug.\n", loud.stderr
    second = trial.process("server-2", "run")
    assert second.returncode == 3
    assert f"in use by process {trial.processes['server-2'].pid}" in second.stderr

    # kill -9: the others go on; back within two slots of its restart.
    until(lambda: trial.get("server-2", "/v1/budget")["total_spent"] > 0, "server-2 has paid for something")
    assert not _heavy_libraries(trial.processes["server-2"].pid), "a server that has sampled, sent and released"
    trial.processes["server-2"].kill()
    trial.processes["server-2"].wait(LONG)
    until(lambda: not trial.connected("server-1"), "the death is noticed")
    assert trial.ready("server-1")
    spent = json.loads(trial.tool("server-2", "budget", "--json").stdout)["total_spent"]
    trial.start("server-2")
    until(lambda: trial.get("server-2", "/readyz") is not None, "the API is back")
    began = trial.get("server-2", "/v1/network")["slot"]
    until(lambda: trial.ready("server-2") and trial.connected("server-2"), "server-2 is back")
    assert trial.get("server-2", "/v1/network")["slot"] <= began + 2
    assert "the estimates go on after slot" in trial.log("server-2")
    assert trial.get("server-2", "/v1/budget")["total_spent"] >= spent > 0, "what was paid stays paid"

    # Both signals end a server inside a slot.
    for name, number in zip(names, (signal.SIGTERM, signal.SIGINT, signal.SIGTERM), strict=True):
        trial.processes[name].send_signal(number)
    for name in names:
        assert trial.processes[name].wait(LONG) == 0, trial.log(name)
        assert "node stopped" in trial.log(name)
        assert "Traceback" not in trial.log(name)


def test_a_stop_in_the_middle_of_a_slot_draws_nothing_twice(tmp_path: Path) -> None:
    """An update of the machine: SIGTERM at any moment of a slot, and a start at once, as often as one likes."""
    with trial_of(tmp_path, 1) as trial:
        lengths = [0]
        with feeding(trial, "server-1"):
            for moment in (0.1, 0.45):  # before the last slot is sealed, and after
                process = trial.start()
                trial.all_ready()
                until(lambda: len(trial.ledger("server-1")) > lengths[-1], "a sample of this run")
                time.sleep((moment - time.time()) % 1.0)
                process.terminate()
                assert process.wait(10) == 0, trial.log("server-1")
                lengths.append(len(trial.ledger("server-1")))
        paid = trial.ledger("server-1")
        slots = [one.slot or 0 for one in paid]
        assert slots == sorted(set(slots)), "one payment a slot, in order"
        assert [one.number for one in paid] == list(range(1, len(paid) + 1))
        log = trial.log("server-1")
        assert (log.count("the estimates go on after slot"), log.count("node stopped")) == (1, 2)
        assert "Traceback" not in log
        assert "clock" not in log
        assert trial.released("server-1") == -1, "nothing answers"


def _has_paid(trial: Trial, network: str) -> bool:
    return any(one.network == network for one in trial.ledger("server-1"))


def _spent(trial: Trial) -> int:
    return round(float(trial.ask("server-1", "/v1/budget").json["spent"]) * 1e9)


def _refused_without(heat: Trial, shared: Path) -> str:
    """What the second network says of a ledger that is not there; its file names it from now on."""
    change(heat.files["server-1"], ("[log]", f'[ledger]\nshared = "{shared}"\n\n[log]'))
    told = heat.process("server-1", "run")
    assert told.returncode == 3
    return told.stderr


def test_two_networks_on_one_ledger_keep_the_smaller_promise(tmp_path: Path) -> None:
    """The same people pay for both networks: on two accounts they would pay the sum of both promises."""
    for name in ("flu", "heat"):
        (tmp_path / name).mkdir()
    with trial_of(tmp_path / "flu", 1) as flu, trial_of(tmp_path / "heat", 1) as heat:
        change(flu.network, ('id = "trial"', 'id = "flu"'))
        change(heat.network, ('id = "trial"', 'id = "heat"'), ('epsilon = "1"', 'epsilon = "0.1"'))
        change(heat.network, ('grace = "200ms"', 'grace = "450ms"'))  # or both would pay at the same moment
        shared = flu.config("server-1").data
        assert "ledger.shared" in _refused_without(heat, shared)
        shared.mkdir(mode=0o700)
        with feeding(flu, "server-1"), feeding(heat, "server-1"):
            for each, network in ((heat, "heat"), (flu, "flu")):
                each.start()
                each.all_ready()
                until(partial(_has_paid, each, network), f"{network} has paid")
            until(lambda: not flu.get("server-1", "/v1/budget")["samples"], "flu has nothing left that heat allows")
            began = {each: each.slot("server-1") for each in (flu, heat)}
            until(lambda: all(each.released("server-1") >= began[each] for each in began), "both go on releasing")
        paid = flu.ledger("server-1")
        assert 0 < sum(one.nano for one in paid) <= 100_000_000, "all of this is within one window of either"
        assert heat.ledger("server-1")[: len(paid)] == paid, "one account"
        assert len({(one.network, one.slot) for one in paid}) == len(paid)

        # Each operator is told what both have spent and promised, and why there is no sample.
        until(lambda: _spent(flu) == _spent(heat) == sum(one.nano for one in flu.ledger("server-1")), "the same sum")
        told = flu.ask("server-1", "/v1/budget").json
        assert told["epsilon"] == 1.0
        assert told["remaining"] < 0.01
        assert "network 'heat' shares this ledger and promises ε=0.1" in told["text"]
        assert "event=budget-spent" in flu.log("server-1")
        for each in (flu, heat):
            examined = each.tool("server-1", "doctor").stdout
            assert "network 'flu' promises ε=1" in examined
            assert "network 'heat' promises ε=0.1" in examined
            assert "storage-failed" not in each.log("server-1"), "they ask for what is left, not in vain for more"

        # A second sampler of a network is one too many, from whatever folder.
        change(heat.files["server-1"], ('data = "data"', 'data = "copied"'))
        assert heat.process("server-1", "run").returncode == 3
        for each in (flu, heat):
            each.stop()
