"""`dpcrowd feed` and its node: one that is away is waited for, one that can never be reached ends the feed."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import dpcrowd.cli.feed  # noqa: F401 - the module, which the command of the same name hides
from client_support import serving
from dpcrowd.cli.feed import Stop
from dpcrowd.cli.main import main
from dpcrowd.client.client import Client
from dpcrowd.client.delivery import Delivery
from dpcrowd.client.errors import NodeBusy, NodeUnreachable
from dpcrowd.client.lines import Undelivered, deliver_lines
from dpcrowd.client.rows import CheckinRow
from dpcrowd.node.keys.trial import make_trial
from feed_support import CHECKINS, REGION, LeftOut, line_of
from node_support_api import CHECKIN, READ, FakeService

feed_module = sys.modules["dpcrowd.cli.feed"]


class _Certificates:
    """A client and its trust."""

    renewals = 0

    def renew(self) -> None:
        self.renewals += 1


@pytest.mark.slow
def test_a_node_that_is_away_has_its_own_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script can tell it from wrong input, as with other commands; and where to go on is told."""
    (tmp_path / "day.ndjson").write_text("\n" + line_of(2) + line_of(3))
    with serving(FakeService()) as served:
        url = served.url
    assert main(["feed", url, str(tmp_path / "day.ndjson"), "--token", CHECKIN]) == 4
    err = capsys.readouterr().err
    assert err.startswith("dpcrowd: error: the node does not answer (ConnectError)")
    assert err.endswith("Lines from 2 on were not taken.\n")


@pytest.mark.slow
def test_a_feed_that_may_not_send_is_told_before_its_first_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a wrong token it would otherwise wait in vain, for hours, and fail with the first check-in."""
    reading, writing = os.pipe()
    monkeypatch.setattr("sys.stdin", os.fdopen(reading))
    with serving(FakeService()) as served:
        assert main(["feed", served.url, "--token", READ]) != 0
    os.close(writing)
    assert "wrong-right" in capsys.readouterr().err


@pytest.mark.slow
def test_the_authority_is_an_option_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`(ca)` is a word of Python's client; here it is `--ca`."""
    files = make_trial(tmp_path / "keys", ["a"], datetime.now(UTC))["a"]
    (tmp_path / "day.ndjson").write_text(line_of(1))
    with serving(FakeService(), files.certificate, files.key) as served:
        assert main(["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN]) == 2
        assert "(--ca)" in capsys.readouterr().err
        words = ["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN, "--ca", str(files.authority)]
        assert main(words) == 0


@pytest.mark.slow
def test_a_wrong_authority_and_none_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Told to give a certificate that was given, an operator would look for the fault in the command line."""
    ours, theirs = (make_trial(tmp_path / name, ["a"], datetime.now(UTC))["a"] for name in ("ours", "theirs"))
    (tmp_path / "day.ndjson").write_text(line_of(1))
    with serving(FakeService(), ours.certificate, ours.key) as served:
        words = ["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN]
        told = []
        for more in ([], ["--ca", str(theirs.authority)]):
            assert main([*words, *more]) == 2
            told.append(capsys.readouterr().err)
    assert "its certificate is not signed by a known authority" in told[0]
    assert "its certificate is not signed by the given authority (--ca)" in told[1]


@pytest.mark.slow
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("wrong", ["http", "ca", "https"])
def test_what_cannot_pass_ends_a_feed_at_its_first_connection(
    wrong: str, empty: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It waited for ever, and without a word if there was no line yet; nobody knew that nothing was ever sent."""
    ours, theirs = (make_trial(tmp_path / name, ["a"], datetime.now(UTC))["a"] for name in ("ours", "theirs"))
    (tmp_path / "day.ndjson").write_text("" if empty else line_of(1))
    service = FakeService()
    words = [str(tmp_path / "day.ndjson"), "--follow", "--token", CHECKIN, "--ca", str(theirs.authority)]
    secured = () if wrong == "https" else (ours.certificate, ours.key)
    with serving(service, *secured) as served:
        scheme = {"http": "http", "ca": "https", "https": "https"}[wrong]
        assert main(["feed", f"{scheme}://{served.url.split('://')[1]}", *words]) == 2
    # The server of this test may log to standard error as well, if a test before has set that up.
    (told,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dpcrowd:")]
    assert told.startswith("dpcrowd: error: the node does not answer (HTTP")
    assert {"http": "https://", "ca": "(--ca)", "https": "http://"}[wrong] in told
    assert service.batches == []


@pytest.mark.slow
def test_once_the_node_has_answered_the_same_is_waited_for(tmp_path: Path) -> None:
    """A certificate may be renewed before the file of --ca is: a feed that ended then would need a hand to start it."""
    old, new = (make_trial(tmp_path / name, ["a"], datetime.now(UTC))["a"] for name in ("old", "new"))
    ca = tmp_path / "ca.crt"
    ca.write_bytes(old.authority.read_bytes())
    with serving(FakeService(), old.certificate, old.key) as served:
        sender = feed_module._Sender(lambda: Client(served.url, CHECKIN, ca=ca))
        assert sender.send([CheckinRow("person-1", REGION)]).accepted == 1
        sender.renew()  # a connection that is open would outlive the certificate
        served.stop()
        served._tls = {"certificate": new.certificate, "key": new.key}
        served.start()
        with pytest.raises(NodeUnreachable) as told:
            sender.send([CheckinRow("person-2", REGION)])
        assert told.value.reason == "untrusted"
        ca.write_bytes(new.authority.read_bytes())
        assert sender.send_idle() == feed_module._RETRY, "tried again soon, and with the file as it is now"
        assert sender.send([CheckinRow("person-2", REGION)]).accepted == 1
        sender.close()


def test_a_feed_reads_its_authority_again_and_tells_each_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a node's certificate the file of --ca is renewed: the feed would wait for good, and tell an old reason."""
    monkeypatch.setattr(feed_module, "_RETRY", 0.01)
    errors = [
        NodeUnreachable("nobody answers"),
        NodeUnreachable("its certificate is not trusted (ca)", reason="untrusted"),
        NodeUnreachable("its certificate is not trusted (ca)", reason="untrusted"),
    ]

    def away(rows: list[CheckinRow]) -> Delivery:
        if errors:
            raise errors.pop(0)
        return Delivery(len(rows))

    sender = _Certificates()
    waiting = feed_module._WaitForNode(Stop(), sender, patient=True)  # type: ignore[arg-type]
    assert deliver_lines(away, CHECKINS, LeftOut(), waiting.retry) == 40
    assert sender.renewals == 2
    assert capsys.readouterr().err.splitlines() == [
        "dpcrowd: waiting: nobody answers",
        "dpcrowd: waiting: its certificate is not trusted (--ca)",
    ]


def test_a_feed_that_follows_waits_for_its_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If it ended, whoever starts it again would send the whole file once more."""
    monkeypatch.setattr(feed_module, "_RETRY", 0.01)
    tries: list[int] = []

    def away(rows: list[CheckinRow]) -> Delivery:
        tries.append(len(rows))
        if len(tries) < 3:
            raise NodeUnreachable("nobody answers")
        return Delivery(len(rows))

    stop = Stop()
    waiting = feed_module._WaitForNode(stop, _Certificates(), patient=True)
    assert deliver_lines(away, CHECKINS, LeftOut(), waiting.retry) == 40
    waiting.end()
    assert tries == [40] * 3
    assert capsys.readouterr().err.splitlines() == [
        "dpcrowd: waiting: nobody answers",
        "dpcrowd: the node takes check-ins again",
    ]
    tries.clear()
    with pytest.raises(Undelivered):
        deliver_lines(away, CHECKINS, LeftOut(), feed_module._WaitForNode(stop, _Certificates(), patient=False).retry)
    monkeypatch.setattr(stop, "requested", lambda: True)
    tries.clear()
    with pytest.raises(Undelivered):
        deliver_lines(away, CHECKINS, LeftOut(), feed_module._WaitForNode(stop, _Certificates(), patient=True).retry)


@pytest.mark.parametrize(("asked", "waited"), [(None, 1.0), (1.5, 1.5), (30.0, 2.0), (3600.0, 2.0)])
def test_a_feed_that_follows_never_pauses_for_long(
    asked: float | None, waited: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was to wait for an hour may go on at once (accept-clock): the feed slept through its first slots."""
    stop, pauses = Stop(), list[float]()
    monkeypatch.setattr(stop, "sleep", pauses.append)
    waiting = feed_module._WaitForNode(stop, _Certificates(), patient=True)  # type: ignore[arg-type]
    assert waiting.retry(NodeBusy("the clock went back.", status=503, reason="unavailable", retry_after=asked))
    assert pauses == [waited]
