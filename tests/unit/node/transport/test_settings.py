"""Zenoh's settings, one by one: each default that would open a door is closed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.transport.base import Peer, check_neighbours, check_recipients
from dpcrowd.node.transport.zenoh import ZenohTransport
from dpcrowd.node.transport.zenoh_settings import (
    TlsFiles,
    check_endpoint,
    dialling_settings,
    key_of_pair,
    listening_settings,
)

TLS = TlsFiles(Path("node.key"), Path("node.crt"), Path("ca.crt"))
SOCKET = Path("/private/folder/0")
CALLER, CALLED = Peer("a", "tls/a.example:7447", "a.example"), Peer("c", "tls/c.example:7447", "c.example")


def listening() -> dict[str, Any]:
    return {path: json.loads(text) for path, text in listening_settings("net", "b", CALLER, SOCKET).items()}


def dialling() -> dict[str, Any]:
    return {path: json.loads(text) for path, text in dialling_settings("net", "b", CALLED, TLS).items()}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("mode", "peer"),
        ("scouting/multicast/enabled", False),
        ("scouting/gossip/enabled", False),
        ("connect/timeout_ms", -1),
        ("connect/exit_on_failure", False),
        ("transport/unicast/max_links", 1),
        ("transport/shared_memory/enabled", False),
        ("adminspace/enabled", False),
        ("plugins_loading/enabled", False),
    ],
)
def test_everything_that_zenoh_leaves_open_is_closed(path: str, value: object) -> None:
    """Some of these only show in a network of many machines, which no test on loopback has: they are pinned here."""
    assert dialling()[path] == value
    assert listening()[path] == value


def test_a_session_that_dials_demands_the_certificate_of_its_neighbour() -> None:
    """Without TLS, or without a look at the name, anybody on the way could answer in the neighbour's place."""
    settings = dialling()
    assert settings["transport/link/protocols"] == ["tls"]
    for name in ("enable_mtls", "verify_name_on_connect", "close_link_on_expiration"):
        assert settings[f"transport/link/tls/{name}"] is True


def test_a_session_that_listens_does_so_on_its_private_socket_alone() -> None:
    """Zenoh on a port could be reached without the front, and stopped by whoever connects to it often enough."""
    settings = listening()
    assert settings["listen/endpoints"] == ["unixsock-stream//private/folder/0"]
    assert settings["transport/link/protocols"] == ["unixsock-stream"]
    assert not [path for path in settings if path.startswith("transport/link/tls/")]


def test_attempts_to_connect_follow_one_another_quickly() -> None:
    """Slots may be one second long; Zenoh's own attempts are up to 4 s apart."""
    retry = dialling()["connect/retry"]
    assert (retry["period_init_ms"], retry["period_max_ms"]) == (100, 500)


@pytest.mark.parametrize(
    ("settings", "name", "subject"),
    [
        (listening(), "a", {"id": "a", "link_protocols": ["unixsock-stream"]}),
        (dialling(), "c", {"id": "c", "link_protocols": ["tls"], "cert_common_names": ["c.example"]}),
    ],
    ids=["listening", "dialling"],
)
def test_access_control_denies_all_but_the_keys_of_the_pair(
    settings: dict[str, Any], name: str, subject: dict[str, Any]
) -> None:
    """One rule too many, or one without a subject, and a message travels further than one hop."""
    access = settings["access_control"]
    assert access["enabled"] is True
    assert access["default_permission"] == "deny"
    assert access["subjects"] == [subject]
    rules = {each["id"]: each for each in access["rules"]}
    assert len(rules) == 4
    (policy,) = access["policies"]
    assert policy["subjects"] == [name]
    granted = set()
    for rule in (rules.pop(each) for each in policy["rules"]):
        assert rule["permission"] == "allow"
        granted.add((*rule["flows"], *rule["messages"], *rule["key_exprs"]))
    assert rules == {}
    assert granted == {
        ("ingress", "put", f"dpcrowd/1/net/{name}/b"),
        ("ingress", "declare_subscriber", f"dpcrowd/1/net/b/{name}"),
        ("egress", "put", f"dpcrowd/1/net/b/{name}"),
        ("egress", "declare_subscriber", f"dpcrowd/1/net/{name}/b"),
    }


def test_sessions_dial_or_listen_and_serve_one_neighbour() -> None:
    """A session that did both would take a second link under a neighbour's session id (see the module's text)."""
    assert (dialling()["listen/endpoints"], dialling()["connect/endpoints"]) == ([], ["tls/c.example:7447"])
    assert listening()["connect/endpoints"] == []


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
        dialling_settings("net", "b", Peer("c", endpoint, "c"), TLS)
    with pytest.raises(BadInput, match="allowed: tls/host:port"):
        ZenohTransport("net", TLS, [endpoint])._bind()


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
