"""What a live node tells of its network, and why it does not sample."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpcrowd.node.config import load_node
from dpcrowd.node.live.open import open_node
from dpcrowd.node.live.process import STORAGE, run_node
from dpcrowd.node.live.status import distrust, network_status
from dpcrowd.node.machine.instructions import SendKind
from dpcrowd.node.machine.records import Records
from dpcrowd.node.machine.trust import Trust
from dpcrowd.node.metrics.registry import Registry, render_all
from dpcrowd.node.metrics.state import set_network
from dpcrowd.node.slots import rfc3339
from dpcrowd.node.storage import StorageError
from dpcrowd.node.storage import lock as locks
from dpcrowd.schemes.server import Joined
from node_support_config import changed, network_of, tables
from node_support_doctor import change
from node_support_relay import facts_of, make_network

FUTURE = "2199-01-01T00:00:00Z"


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    root = logging.getLogger()
    handlers = list(root.handlers)
    yield
    root.handlers[:] = handlers


def before_the_epoch(net: Path) -> Path:
    """The node.toml of a network that has not begun."""
    network = net / "network.toml"
    (epoch,) = [line for line in network.read_text(encoding="utf-8").splitlines() if line.startswith("epoch")]
    change(network, epoch, f'epoch = "{FUTURE}"')
    return net / "server-1" / "node.toml"


def test_slot_and_grace_are_those_of_the_network() -> None:
    """A feed that does not know the grace holds lines until they are late."""
    network = network_of(changed(tables(), "network.grace", "250ms"))
    status = network_status(network, "a", set(), {}, Counter(), {}, network.clock().opens(3))
    assert (status.slot, status.slot_seconds, status.grace_seconds) == (3, 60.0, 0.25)


def test_what_relay_assumes_of_the_crowd_is_what_is_in_force() -> None:
    """Whoever compares two networks, or wonders about an interval, needs the values with which filters run."""
    relay = {"name": "relay", "process_var": 100.0}
    stated = {**tables(), "scheme": {**relay, "turnover": 0.05, "groups": "auto"}}
    for raw, expected in (
        (stated, ("auto", 0.05, 0.0, False)),
        ({**tables(), "scheme": relay}, ("off", 1.0, 0.0, False)),
        (tables(), (None, None, None, None)),
    ):
        network = network_of(raw)
        name = network.servers[0].name
        status = network_status(network, name, set(), {}, Counter(), {}, network.clock().opens(3))
        assert (status.groups, status.turnover, status.share_width, status.meetings) == expected
        assert status.learn is False, "there is no model"


@pytest.mark.parametrize(
    ("scheme", "learns"),
    [
        ({"name": "relay", "process_var": 100.0, "learn": True}, True),
        ({"name": "relay", "process_var": 100.0, "learn": False}, False),
        ({"name": "dpcrowd-w", "process_var": 100.0, "learn": True, "form": "matrix"}, False),
    ],
)
def test_whether_servers_learn_is_told(scheme: dict[str, Any], learns: bool) -> None:
    """The API did not say it, so that nobody could tell why two networks with one model differ."""
    network = network_of({**tables(), "scheme": scheme})
    status = network_status(network, network.servers[0].name, set(), {}, Counter(), {}, network.clock().opens(3))
    assert status.learn is learns


def test_when_a_message_was_last_refused_is_told() -> None:
    """Numbers since the start cannot tell a clock that is wrong from one that was."""
    network = network_of(tables())
    refused, at_ns = Counter({("b", "late"): 2, ("stranger", "stranger"): 1}), network.clock().opens(2)
    last = {("b", "late"): at_ns, ("stranger", "stranger"): at_ns}
    status = network_status(network, "a", set(), {}, refused, {}, network.clock().opens(3), refused_last=last)
    assert {one.name: one.refused_last for one in status.neighbours}["b"] == {"late": rfc3339(at_ns)}


def test_who_remembers_more_is_named_with_how_much() -> None:
    """Before a loss is confirmed, for good, the operator wants to ask that organisation."""
    trust = Trust(97)
    trust.start(10, 11)
    assert trust.hear_echo("clinic-b", 11, (9, 102), (9, 102)) == "lost"
    assert distrust(trust).startswith("'clinic-b' remembers 102 samples of this server, and its ledger knows 97")
    trust = Trust(97)
    trust.start(10, 11)
    trust.hear_echo("clinic-c", 11, (9, 99), None)
    trust.end_exchange(20)
    assert distrust(trust).startswith("'clinic-c' remembers 99 samples of this server, and its ledger knows 97")


def test_before_the_first_slot_nobody_is_blamed(net: Path) -> None:
    """An operator who is early would look for neighbours that do not vouch, and there is nothing to vouch for yet."""
    with open_node(before_the_epoch(net)) as live:
        ready, problems = live.ready()
        budget = asyncio.run(live.budget())
        assert (ready, budget.samples, budget.waits_for) == (False, False, None)
        assert problems == [f"the node may not sample yet (/v1/budget): the network's first slot opens at {FUTURE}."]
        assert budget.text == f"the network's first slot opens at {FUTURE}."
        live.executor.machine.server._slot = 3  # the clock was set back to before the epoch
        (problem,) = live.ready()[1]
        assert "the clock went back: slot 3 was sealed already" in problem
        assert "first slot" not in asyncio.run(live.budget()).text
        live.executor.machine.server._slot = -1
        live.executor.machine.trust.shown_at = 1  # a loss is the operator's business at any time
        assert asyncio.run(live.budget()).waits_for == "operator"
        assert "confirm the loss first" in live.ready()[1][0]


def test_after_it_a_neighbour_is_waited_for(net: Path) -> None:
    """The reason of every start: it must not be lost."""
    with open_node(net / "server-1" / "node.toml") as live:
        assert asyncio.run(live.budget()).waits_for == "vouching"
        assert "no neighbour has vouched" in live.ready()[1][0]


def test_only_a_folder_that_this_start_has_made_is_called_new(net: Path) -> None:
    """After a restart inside the first slot "the folder is new" would look as if the ledger were gone."""
    node = net / "server-1" / "node.toml"
    with open_node(node) as live:
        assert live.start_text == "the folder is new: nothing is known, nothing was spent."
    with open_node(node) as live:
        assert live.start_text == "no estimates are stored: begins anew. Nothing was spent."


def test_a_node_that_cannot_pay_does_not_claim_to_sample(net: Path) -> None:
    """A monitor of /v1/budget alone would be content while the disk is full."""
    with open_node(net / "server-1" / "node.toml") as live:
        live.executor.machine.trust.vouched = live.executor.machine.trust.settled = True
        assert asyncio.run(live.budget()).samples
        live._storage._database.failure = StorageError("full", "the disk is full", "free some space")
        budget = asyncio.run(live.budget())
        assert (budget.samples, budget.waits_for, budget.text) == (False, None, "the disk is full; free some space.")
        assert "the disk is full; free some space. The node then goes on by itself." in live.ready()[1]
        live._storage._database.failure = None
        assert asyncio.run(live.budget()).samples


def no_space(*_: object, **__: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("form", ["json", "pretty"])
@pytest.mark.parametrize("fault", ["network.toml", "the key", "the folder", "a fault"])
def test_a_start_that_fails_is_told_in_the_form_of_the_log(
    net: Path, fault: str, form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A collector that reads JSON cannot take the one line that says why there is no node."""
    node = net / "server-1" / "node.toml"
    change(node, 'format = "pretty"', f'format = "{form}"')
    match fault:
        case "network.toml":
            (net / "network.toml").write_text("", encoding="utf-8")
        case "the key":
            (net / "server-1" / "server-1.key").write_text("", encoding="utf-8")
        case "the folder":
            load_node(node).data.write_text("", encoding="utf-8")
        case _:
            monkeypatch.setattr("dpcrowd.node.live.process.raise_limit", lambda: 1 // 0)
    lines: list[str] = []
    assert run_node(node, lines.append) > 0
    logged = capsys.readouterr().err.splitlines()
    if form == "pretty":
        assert len(lines) == 1
        return
    assert lines == []
    parsed = [json.loads(line) for line in logged]
    assert (parsed[-1]["event"], parsed[-1]["level"]) == ("ended", "critical")
    assert parsed[-1]["message"].endswith(".")


@pytest.mark.parametrize("place", ["the lock", "the copy of network.toml"])
def test_a_start_on_a_full_disk_is_a_matter_of_storage(
    net: Path, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told "the node broke", an operator would report a fault instead of freeing space; a lock must not be left."""
    node = net / "server-1" / "node.toml"
    with monkeypatch.context() as full:
        if place == "the lock":
            full.setattr(locks.os, "write", no_space)
        else:
            full.setattr(Path, "write_text", no_space)
        lines: list[str] = []
        assert run_node(node, lines.append) == STORAGE
    assert lines[0].endswith("the disk is full (ENOSPC); free some space. Then start the node again.")
    assert "by itself" not in lines[0], "it has ended"
    assert "broke" not in capsys.readouterr().err
    with open_node(node):  # there is room again
        pass


def records_of_a_line() -> Records:
    """What b knows of a, b, c, d and e."""
    node = make_network(facts_of()).nodes[1]
    return Records(replace(node.view, names=tuple("abcde")), node.machine.server)


def test_what_records_show_of_servers_is_told() -> None:
    """Each number under its own name: what an origin is to blame for must not be held against a neighbour."""
    records = records_of_a_line()
    records.arrivals.received_by.update({("a", "d"): 3, ("c", "d"): 1, ("c", "e"): 2})
    records.arrivals.late_by["c", "e"] = 5
    records.forwarding.forwarded_to["a"] = 7
    records.arrivals.refused.update({("d", "above-account"): 2, ("c", "bad-signature"): 1})
    records.arrivals.equivocators["e"], records.suspects["d"] = 17, 12
    network, sent = network_of(tables(5)), Counter[SendKind]({"data": 4, "heartbeat": 20})
    now = network.clock().opens(30)
    status = network_status(network, "b", set(), {}, Counter(), {}, now, records=records, sent=sent)
    assert {one.name: (one.records_received, one.records_forwarded, one.records_late) for one in status.neighbours} == {
        "a": (3, 7, 0),
        "c": (3, 0, 5),
    }
    assert [one.name for one in status.servers] == list("abcde")
    assert [one.records for one in status.servers] == [0, 0, 0, 4, 2]
    assert [one.records_late for one in status.servers] == [0, 0, 0, 0, 5]
    refused = {one.name: one.records_refused for one in status.servers if one.records_refused}
    assert refused == {"c": {"bad-signature": 1}, "d": {"above-account": 2}}
    assert [one.suspected_since for one in status.servers] == [None, None, None, 12, None]
    assert [one.equivocation for one in status.servers] == [None, None, None, None, 17]
    assert status.messages_sent == {"heartbeat": 20, "data": 4, "forward": 0, "join": 0}
    assert status.lag == 5


def test_metrics_of_records_are_those_of_the_status() -> None:
    """An alert on a gauge that is never set never fires."""
    records = records_of_a_line()
    records.arrivals.refused.update({("d", "bad-signature"): 2, ("c", "bad-signature"): 1})
    records.arrivals.equivocators["e"], records.suspects["d"] = 17, 12
    network = network_of(tables(5))
    now, joined = network.clock().opens(30), Joined(("a", "c"), 17)
    status = network_status(
        network, "b", set(), {}, Counter(), {}, now, records=records, joined=joined, contradicting=["c"]
    )
    assert (status.joined_from, status.joined_slot) == (["a", "c"], 17)
    assert status.join_disagreement == ["c"]
    registry = Registry()
    set_network(registry, status, {})
    lines = render_all([registry], "reader").splitlines()
    assert 'dpcrowd_records_refused_total{reason="bad-signature"} 3' in lines
    assert 'dpcrowd_joined_slot{neighbour="c"} 17' in lines
    assert 'dpcrowd_join_disagreement{neighbour="c"} 1' in lines
    assert not any('dpcrowd_join_disagreement{neighbour="a"}' in line for line in lines)
    for name, family, value in [
        ("d", "suspected", 1),
        ("e", "suspected", 0),
        ("e", "equivocates", 1),
        ("a", "missing", 0),
    ]:
        assert f'dpcrowd_server_{family}{{server="{name}"}} {value}' in lines
