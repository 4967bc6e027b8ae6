"""Zenoh's settings, one by one: each default that would open a door is closed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.transport.base import Peer, check_neighbours, check_recipients
from dpcrowd.node.transport.zenoh import ZenohTransport
from dpcrowd.node.transport.zenoh_settings import TlsFiles, check_endpoint, key_of_pair, session_settings

TLS = TlsFiles(Path("node.key"), Path("node.crt"), Path("ca.crt"))
NEIGHBOURS = [Peer("a", "tls/a.example:7447", "a.example"), Peer("c", "tls/c.example:7447", "c")]


def settings(**more: Any) -> dict[str, Any]:
    return {path: json.loads(text) for path, text in session_settings("net", "b", NEIGHBOURS, TLS, **more).items()}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("mode", "peer"),
        ("scouting/multicast/enabled", False),
        ("scouting/gossip/enabled", False),
        ("connect/timeout_ms", -1),
        ("connect/exit_on_failure", False),
        ("transport/link/protocols", ["tls"]),
        ("transport/unicast/max_links", 1),
        ("transport/shared_memory/enabled", False),
        ("transport/link/tls/enable_mtls", True),
        ("transport/link/tls/verify_name_on_connect", True),
        ("transport/link/tls/close_link_on_expiration", True),
        ("adminspace/enabled", False),
        ("plugins_loading/enabled", False),
    ],
)
def test_every_door_that_zenoh_leaves_open_is_closed(path: str, value: object) -> None:
    """Some of these only show in a network of many machines, which no test on loopback has: they are pinned here."""
    assert settings()[path] == value


def test_attempts_to_connect_follow_one_another_quickly() -> None:
    """Slots may be one second long; Zenoh's own attempts are up to 4 s apart."""
    retry = settings()["connect/retry"]
    assert (retry["period_init_ms"], retry["period_max_ms"]) == (100, 500)


def test_access_control_denies_all_but_the_keys_of_the_pair() -> None:
    """One rule too many, or one without a subject, and a message travels further than one hop."""
    access = settings()["access_control"]
    assert access["enabled"] is True
    assert access["default_permission"] == "deny"
    assert [(each["id"], each["cert_common_names"]) for each in access["subjects"]] == [
        ("a", ["a.example"]),
        ("c", ["c"]),
    ]
    rules = {each["id"]: each for each in access["rules"]}
    assert len(rules) == 8
    granted = set()
    for policy in access["policies"]:
        (subject,) = policy["subjects"]
        for rule in (rules.pop(name) for name in policy["rules"]):
            assert rule["permission"] == "allow"
            granted.add((subject, *rule["flows"], *rule["messages"], *rule["key_exprs"]))
    assert rules == {}
    assert granted == {
        ("a", "ingress", "put", "dpcrowd/1/net/a/b"),
        ("a", "ingress", "declare_subscriber", "dpcrowd/1/net/b/a"),
        ("a", "egress", "put", "dpcrowd/1/net/b/a"),
        ("a", "egress", "declare_subscriber", "dpcrowd/1/net/a/b"),
        ("c", "ingress", "put", "dpcrowd/1/net/c/b"),
        ("c", "ingress", "declare_subscriber", "dpcrowd/1/net/b/c"),
        ("c", "egress", "put", "dpcrowd/1/net/b/c"),
        ("c", "egress", "declare_subscriber", "dpcrowd/1/net/c/b"),
    }


def test_sessions_that_dial_do_not_listen_and_serve_one_neighbour() -> None:
    """A session that did both would take a second link under a neighbour's session id (see the module's text)."""
    plans = ZenohTransport("net", TLS, ["tls/0.0.0.0:7447"])._plans("b", [*NEIGHBOURS, Peer("d", "tls/d:1", "d")])
    shapes = []
    for plan, peers in plans:
        listen, connect = (json.loads(plan[f"{side}/endpoints"]) for side in ("listen", "connect"))
        subjects = [each["id"] for each in json.loads(plan["access_control"])["subjects"]]
        assert subjects == [peer.name for peer in peers]
        shapes.append((listen, connect, subjects))
    assert shapes == [
        (["tls/0.0.0.0:7447"], [], ["a"]),
        ([], ["tls/c.example:7447"], ["c"]),
        ([], ["tls/d:1"], ["d"]),
    ]


def test_of_two_neighbours_exactly_one_dials() -> None:
    """If both waited there would be no link; if both dialled there would be two."""
    for one, other in (("a", "b"), ("clinic-10", "clinic-9"), ("a", "ab")):
        dialled = []
        for me, peer in ((one, other), (other, one)):
            plans = ZenohTransport("net", TLS, ["tls/h:1"])._plans(me, [Peer(peer, "tls/h:2", peer)])
            dialled += [json.loads(plan["connect/endpoints"]) for plan, _ in plans]
        assert sorted(dialled) == [[], ["tls/h:2"]]


@pytest.mark.parametrize("name", ["**", "a/b", "a*", "$*", "a?b", "#", "@x", "ä", ""])
def test_no_name_becomes_a_wildcard_or_a_second_part(name: str) -> None:
    """A network called '**' must not subscribe to every network."""
    key = key_of_pair(name, "a", "b")
    assert key.count("/") == 4
    assert not set(key) & set("*$?#@")


def test_keys_of_two_networks_or_pairs_differ() -> None:
    """Several networks may run on one machine, and a pair has a key for each direction."""
    keys = {key_of_pair(*names) for names in (("n", "a", "b"), ("n", "b", "a"), ("m", "a", "b"), ("n%2F", "a", "b"))}
    assert len(keys) == 4


@pytest.mark.parametrize("endpoint", ["tls/a.example:7447", "tls/[::1]:1", "tls/10.0.0.1:65535", "tls/a-b_c:7"])
def test_addresses_with_tls_are_allowed(endpoint: str) -> None:
    """The forms that an operator writes."""
    assert check_endpoint(endpoint) == endpoint


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp/a.example:7447",
        "quic/a.example:7447",
        "a.example:7447",
        "tls/a.example",
        "tls/a.example:0",
        "tls/a.example:65536",
        "tls/a.example:7447#verify_name_on_connect=false",
        "tls/a.example:7447?prio=1",
        "tls/a.example:7447;tcp/b:1",
        "tls/a b:1",
        "tls/a:1\n",
    ],
)
def test_other_addresses_are_refused(endpoint: str) -> None:
    """Another protocol would not be encrypted, and what follows '#' would override the settings of TLS."""
    with pytest.raises(BadInput, match="allowed: tls/host:port"):
        settings(connect=[endpoint])
    with pytest.raises(BadInput, match="allowed: tls/host:port"):
        settings(listen=[endpoint])


def test_neighbours_are_told_apart_by_name_and_certificate() -> None:
    """Two servers under one certificate name could speak for each other."""
    one = Peer("a", "tls/a:1", "same")
    with pytest.raises(BadInput, match="'a' and 'b' have the same certificate name 'same'"):
        check_neighbours("x", [one, Peer("b", "tls/b:1", "same")])
    with pytest.raises(BadInput, match="named twice"):
        check_neighbours("x", [one, one])
    with pytest.raises(BadInput, match="its own neighbour"):
        check_neighbours("a", [one])
    check_neighbours("x", [one])


def test_a_recipient_must_be_a_neighbour() -> None:
    """A slip in a name must not pass for a lost message."""
    check_recipients(["a"], ["a", "b"])
    with pytest.raises(BadInput, match=r"unknown neighbour 'clinc-a'\. Did you mean 'clinic-a'"):
        check_recipients(["clinc-a"], ["clinic-a", "clinic-b"])
