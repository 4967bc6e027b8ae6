"""The doctor and the neighbours: the certificates that they show, and what they say to a stopped server."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dpcrowd.node.config import NetworkConfig, digest, load_pair
from dpcrowd.node.doctor import Finding, message_checks
from dpcrowd.node.doctor.clock_checks import compare_clocks
from dpcrowd.node.doctor.message_checks import Received
from dpcrowd.node.keys.authority import Authority, sign_request
from dpcrowd.node.keys.files import read_private_key
from dpcrowd.node.keys.identity import KeyFolder, request_key
from dpcrowd.node.keys.signing import signer
from dpcrowd.node.keys.trial import LOOPBACK, make_trial
from dpcrowd.node.transport.base import TransportFailed
from dpcrowd.node.wire import VERSION, Body, encode
from node_support_doctor import change, look, of, pay, problems
from node_support_wire import proof_in


@contextmanager
def _listening(net: Path, certificate: Path, key: Path) -> Iterator[None]:
    """A TLS server at server-2's endpoint."""
    _, network = load_pair(net / "server-1" / "node.toml")
    port = int(network.server("server-2").endpoint.rpartition(":")[2])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", port)) as plain:
        plain.settimeout(5)

        def serve() -> None:
            try:
                link, _ = plain.accept()
                with link, context.wrap_socket(link, server_side=True) as tls:
                    tls.settimeout(5)
                    tls.recv(1)
            except OSError:
                pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


def _server_2(net: Path) -> list[Finding]:
    return [one for one in of(look(net), "neighbours") if "server-2" in one.text]


@pytest.mark.slow
def test_a_neighbour_shows_the_pinned_certificate(net: Path) -> None:
    """The only proof before the first slot that both sides have the right files."""
    keys = net / "server-2"
    with _listening(net, keys / "server-2.crt", keys / "server-2.key"):
        (found,) = _server_2(net)
    assert found.outcome == "passed"


@pytest.mark.slow
def test_a_neighbour_shows_another_certificate(net: Path, tmp_path: Path) -> None:
    """Somebody else at that address, or a key that was renewed without telling."""
    other = make_trial(tmp_path / "other", ["server-2"], datetime.now(UTC))["server-2"]
    with _listening(net, other.certificate, other.key):
        (found,) = _server_2(net)
    assert found.outcome == "problem"
    assert "was not signed by this authority" in found.text


@pytest.mark.slow
def test_a_neighbour_with_a_key_that_is_not_pinned(net: Path, tmp_path: Path) -> None:
    """The authority could make such a certificate for anybody: the pin is what tells."""
    made = request_key(tmp_path / "impostor", "server-2", LOOPBACK)
    signed = sign_request(Authority(net / "ca"), made.request.read_bytes(), datetime.now(UTC), days=10, name="server-2")
    made.certificate.write_bytes(signed.pem)
    with _listening(net, made.certificate, made.key):
        (found,) = _server_2(net)
    assert found.outcome == "problem"
    assert "does not pin" in found.text


@pytest.mark.slow
def test_a_neighbour_whose_certificate_expires_soon(net: Path) -> None:
    """That organisation may not look at its own log; it is not this server's problem, but it will be its loss."""
    keys = KeyFolder(net / "server-2", "server-2")
    signed = sign_request(Authority(net / "ca"), keys.request.read_bytes(), datetime.now(UTC), days=10)
    keys.certificate.write_bytes(signed.pem)
    with _listening(net, keys.certificate, keys.key):
        (found,) = _server_2(net)
    assert found.outcome == "note"
    assert "the certificate of the neighbour 'server-2' expires in 9 days" in found.text


@pytest.mark.slow
def test_a_neighbour_that_does_not_listen_is_not_tried(net: Path) -> None:
    """The first name dials everybody and listens nowhere: 'connection refused' would be a false alarm."""
    (found,) = [one for one in of(look(net, "server-2"), "neighbours") if "server-1" in one.text]
    assert found.outcome == "skipped"
    assert "dials all its neighbours, this server among them, and none of them dials it" in found.text
    assert "does not open its own listen.transport" in found.text
    (own,) = [one for one in of(look(net, "server-1"), "ports") if "listen.transport" in one.text]
    assert "none of them dials it, so that it does not listen there" in own.text, "it called the port free, and no more"
    (dialled,) = [one for one in of(look(net, "server-2"), "ports") if "listen.transport" in one.text]
    assert dialled.text.endswith(" is free.")


@pytest.mark.slow
def test_a_port_that_stays_closed_may_be_in_use(net: Path) -> None:
    """It was called a problem, and by a running node its own port."""
    node, _ = load_pair(net / "server-1" / "node.toml")
    host, _, port = node.listen.transport[0].partition("/")[2].rpartition(":")
    with socket.create_server((host, int(port))):
        (own,) = [one for one in of(look(net, "server-1"), "ports") if "listen.transport" in one.text]
    assert own.outcome == "note"
    assert "cannot be opened (address already in use), which does not matter now" in own.text


# -------------------------------------------------------------------------------------------- a stopped server


def _slot(network: NetworkConfig) -> int:
    """The last one that was sealed."""
    return network.clock().slot_of(time.time_ns() - network.grace_ns) - 1


def _say(net: Path, *, by: str = "server-2", **changes: Any) -> bytes:
    """A heartbeat of server-2, signed by a server."""
    _, network = load_pair(net / "server-1" / "node.toml")
    fields = {"version": VERSION, "digest": digest(network), "server": 1, "slot": _slot(network), "round": 1}
    key = read_private_key(net / by / f"{by}.key")
    return encode(Body(**{**fields, "counter": 0, "heard": {}, **changes}), signer(network.id, key))


def _remembering(net: Path, *, counter: int) -> dict[str, Any]:
    """What server-2 echoes and shows of a server-1 that said a counter once."""
    return {"heard": {0: (5, counter)}, "proofs": {0: proof_in(_say(net, by="server-1", server=0, counter=counter))}}


def _hearing(monkeypatch: pytest.MonkeyPatch, net: Path, payload: bytes | None) -> list[Finding]:
    """What the doctor finds when server-2 says this, as its slot is sealed; None: it is there and silent."""
    _, network = load_pair(net / "server-1" / "node.toml")
    came = network.clock().closes(_slot(network)) + network.grace_ns + 10**8
    heard = Received({"server-2"}, {} if payload is None else {"server-2": (payload, came)})
    monkeypatch.setattr(message_checks, "listen", lambda *_: heard)
    keys = net / "server-2"
    with _listening(net, keys / "server-2.crt", keys / "server-2.key"):
        return look(net, listen=1.0)


@pytest.mark.slow
def test_a_neighbour_with_the_same_file(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first start this is the proof that everybody has the same network.toml and the same time."""
    findings = _hearing(monkeypatch, net, _say(net))
    assert not problems(findings)
    assert [one.outcome for one in of(findings, "digest")] == ["passed"]
    assert "the message of 'server-2' for slot" in of(findings, "clock")[-1].text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "check", "text"),
    [
        ({"digest": bytes(16)}, "digest", "has a different network.toml: digest 0000"),
        ({"by": "server-3"}, "neighbours", "would be refused (bad-signature)"),
    ],
    ids=["another file", "another key"],
)
def test_what_a_neighbour_says_shows_what_is_wrong(
    changes: dict[str, Any], check: str, text: str, net: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would otherwise show after the start only, as a refusal in somebody's log."""
    assert text in problems(_hearing(monkeypatch, net, _say(net, **changes)))[check]


@pytest.mark.slow
def test_a_neighbour_that_proves_an_old_copy(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the start, not after it; but a word without this server's signature is no problem of this server."""
    pay(net, time.time_ns() - 5 * 60 * 10**9)
    text = "remembers 7 samples of this server and proves it by its signature, but the ledger has 1"
    remembering = _remembering(net, counter=7)
    assert text in problems(_hearing(monkeypatch, net, _say(net, **remembering)))["budget"]
    for shown in ({}, {0: b"nonsense"}, _remembering(net, counter=1)["proofs"]):
        findings = _hearing(monkeypatch, net, _say(net, **{**remembering, "proofs": shown}))
        assert not problems(findings)
        assert [one.text for one in of(findings, "budget") if one.outcome == "note" and "no proof" in one.text]
    known = _hearing(monkeypatch, net, _say(net, **_remembering(net, counter=1)))
    assert "remembers no sample of this server that the ledger does not have" in of(known, "budget")[-1].text


@pytest.mark.slow
def test_a_neighbour_whose_clock_differs(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour off, by a wrong time zone say: every message would be refused."""
    file = net / "network.toml"  # a trial begins at midnight, so in its first hour there is no slot an hour ago
    (epoch,) = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("epoch")]
    change(file, epoch, 'epoch = "2026-01-01T00:00:00Z"')
    _, network = load_pair(net / "server-1" / "node.toml")
    ahead = _hearing(monkeypatch, net, _say(net, slot=_slot(network) + 60))
    assert "s behind 'server-2'" in problems(ahead)["clock"]
    behind = _hearing(monkeypatch, net, _say(net, slot=_slot(network) - 60))
    assert "s ahead of 'server-2'" in problems(behind)["clock"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after_seal", "outcome"), [(0.0, "passed"), (10.5, "passed"), (-0.5, "passed"), (12, "problem"), (-2, "problem")]
)
def test_when_a_message_was_due(after_seal: float, outcome: str, net: Path) -> None:
    """It may come any time between the seal and the end of the exchange, here of 10 s, and is a moment on its way."""
    _, network = load_pair(net / "server-1" / "node.toml")
    assert network.deadline_ns == 10 * 10**9
    seals = network.clock().closes(7) + network.grace_ns
    assert compare_clocks("b", network, 7, seals + int(after_seal * 10**9)).outcome == outcome


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after_seal", "outcome"), [(10.0, "passed"), (59.0, "passed"), (8.0, "problem"), (62.0, "problem")]
)
def test_when_a_message_was_due_that_is_told_to_a_newcomer(after_seal: float, outcome: str, net: Path) -> None:
    """It is of the slot before, and comes when the doctor does: that must not look like a clock that is behind."""
    _, network = load_pair(net / "server-1" / "node.toml")
    seals = network.clock().closes(7) + network.grace_ns
    found = compare_clocks("b", network, 7, seals + int(after_seal * 10**9), after=True)
    assert found.outcome == outcome


@pytest.mark.slow
def test_silence_is_no_problem(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots are longer than anybody waits: what was not compared is said, and how to wait longer."""
    (found,) = of(_hearing(monkeypatch, net, None), "digest")
    assert found.outcome == "skipped"
    assert "--listen" in found.text

    def refuse(*_: object) -> Received:
        raise TransportFailed("the port is taken.")

    monkeypatch.setattr(message_checks, "listen", refuse)
    (found,) = of(look(net, "server-2", listen=1.0), "digest")
    assert (found.outcome, found.text) == ("skipped", "the doctor cannot listen to the neighbours: the port is taken.")


@pytest.mark.slow
def test_nobody_is_waited_for_in_vain(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor is called most while the others are not up yet: it must not be slow for nothing."""
    monkeypatch.setattr(message_checks, "listen", lambda *_: pytest.fail("nobody could be there"))
    assert "no neighbour can be reached" in of(look(net, listen=1.0), "digest")[0].text
