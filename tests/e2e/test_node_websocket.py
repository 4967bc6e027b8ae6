"""/v1/stream of a running server, as WebSocket and as server-sent events, up to the stop of the server."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosedOK, InvalidStatus
from websockets.sync.client import ClientConnection, connect

import dpcrowd
from node_support_trial import LONG, Trial, change, trial_of, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

READER = "a-token-for-readers"


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """One server, which needs no neighbour to begin, with some releases."""
    with trial_of(tmp_path_factory.mktemp("net"), 1) as made:
        change(made.files["server-1"], ('read = "open"', f'read = ["{READER}"]'))
        made.reader = READER
        made.start()
        made.all_ready()
        first = made.slot("server-1")
        until(lambda: made.released("server-1") > first, "two releases")
        yield made


def _socket(trial: Trial, query: str = "", token: str | None = READER) -> ClientConnection:
    address = trial.apis["server-1"].replace("http:", "ws:") + "/v1/stream" + query
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return connect(address, additional_headers=headers, proxy=None, open_timeout=LONG)


def _told(reader: ClientConnection) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(reader.recv(LONG))
    assert said["event"] == "estimates"
    return said


def _rest(reader: ClientConnection) -> None:
    while True:
        reader.recv(LONG)


def _events(lines: Iterator[str]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """(id, rows) of each event of a stream."""
    slot = -1
    for line in lines:
        if line.startswith("id: "):
            slot = int(line[4:])
        elif line.startswith("data: "):
            yield slot, json.loads(line[6:])


def test_releases_arrive_in_order_over_both(trial: Trial) -> None:
    """A page that follows a server draws every slot once: the latest at once, then each new one, with its rows."""
    headers = {"Authorization": f"Bearer {READER}"}
    stream = trial.apis["server-1"] + "/v1/stream"
    with (
        _socket(trial) as reader,
        httpx.stream("GET", stream, headers=headers, timeout=LONG, trust_env=False) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        events = _events(response.iter_lines())
        by_socket = [_told(reader) for _ in range(2)]
        by_events = [next(events) for _ in range(2)]
    slots = [said["slot"] for said in by_socket]
    assert slots == [slots[0], slots[0] + 1]
    ids = [slot for slot, _ in by_events]
    assert ids == [ids[0], ids[0] + 1]
    rows = {said["slot"]: said["rows"] for said in by_socket}
    for slot, same in by_events:
        assert {row["slot"] for row in same} == {slot}
        assert [row["region"] for row in same] == ["north", "east", "south", "west"]
        assert rows.get(slot, same) == same, "both tell the same"


def test_whoever_was_away_gets_what_it_missed(trial: Trial) -> None:
    """`after=`, and a browser's Last-Event-ID, replay what is stored, without a gap before the new ones."""
    last = trial.released("server-1")
    with _socket(trial, f"?after={last - 2}&region=south") as reader:
        said = [_told(reader) for _ in range(3)]
    assert [one["slot"] for one in said] == [last - 1, last, last + 1]
    assert {row["region"] for one in said for row in one["rows"]} == {"south"}
    headers = {"Authorization": f"Bearer {READER}", "Last-Event-ID": str(last - 1)}
    stream = trial.apis["server-1"] + "/v1/stream"
    with httpx.stream("GET", stream, headers=headers, timeout=LONG, trust_env=False) as response:
        events = _events(response.iter_lines())
        assert [next(events)[0] for _ in range(2)] == [last, last + 1]
    with _socket(trial, "?after=99999999") as reader, pytest.raises(TimeoutError):
        reader.recv(0.1)  # nothing of the past, and the connection stays


def test_a_wrong_token_or_question_is_refused_before_anything_is_told(trial: Trial) -> None:
    """The stream holds what the read right protects; the handshake itself says why there is none."""
    checkin = trial.tokens["server-1"]["checkin"]
    asked = (("", None, 401), ("", "another-token-for-readers", 401), ("", checkin, 403))
    for query, token, status in (*asked, ("?after=now", READER, 400), ("?region=nowhere", READER, 400)):
        with pytest.raises(InvalidStatus) as caught:
            _socket(trial, query, token)
        assert caught.value.response.status_code == status
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        told = httpx.get(trial.apis["server-1"] + "/v1/stream" + query, headers=headers, trust_env=False)
        assert (told.status_code, told.headers["content-type"]) == (status, "application/json")


def test_a_stop_closes_streams_cleanly_and_a_client_goes_on_after_the_restart(trial: Trial) -> None:
    """SIGTERM inside a slot: readers get a proper end, not a broken connection, and nobody keeps the server alive."""
    seen: list[int] = []

    def follow() -> None:
        with dpcrowd.Client(trial.apis["server-1"], READER) as client:
            for release in client.stream(seconds=LONG):
                seen.append(int(release.slot[0]))
                if seen[-1] > stopped:
                    return

    stopped = trial.slot("server-1") + 1
    following = threading.Thread(target=follow)
    headers = {"Authorization": f"Bearer {READER}"}
    stream = trial.apis["server-1"] + "/v1/stream"
    with (
        _socket(trial) as reader,
        httpx.stream("GET", stream, headers=headers, timeout=LONG, trust_env=False) as response,
    ):
        lines = response.iter_lines()
        next(_events(lines))
        _told(reader)
        following.start()
        until(lambda: bool(seen), "the client follows")
        trial.stop()
        list(lines)  # raises if the answer is cut off
        with pytest.raises(ConnectionClosedOK):
            _rest(reader)
        assert reader.close_code == 1001
    trial.start()
    following.join(LONG)
    assert seen == sorted(set(seen))
    assert seen[-1] > stopped
    assert "Traceback" not in trial.log("server-1")
