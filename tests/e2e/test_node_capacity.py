"""Refused check-ins of running servers: each with its status and reason, visible by reason, and never by number."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from node_support_trial import Answer, Trial, change, trial_of, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

SMALL, LARGE = "server-1", "server-2"
CAPACITY = 100


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """A server with little memory, and one with the usual; both say all that they ever say."""
    with trial_of(tmp_path_factory.mktemp("net"), 2) as made:
        for name in made.files:
            change(made.files[name], ('level = "info"', 'level = "debug"'), ('format = "pretty"', 'format = "json"'))
        change(made.files[SMALL], ("[log]", f'[ingest]\ncapacity = {CAPACITY}\nmax_body = "16KiB"\n\n[log]'))
        made.start()
        made.all_ready()
        yield made


def _people(number: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"user": f"person {first + each}", "region": "north"} for each in range(number)]


def _early_in_a_slot(trial: Trial, name: str) -> int:
    """Wait until a slot has just opened, so that several requests are of one slot."""
    slot = trial.slot(name)
    until(lambda: trial.slot(name) > slot, "the next slot")
    return slot + 1


def _happened(trial: Trial, name: str, reason: str) -> bool:
    """Whether check-ins were refused for it in any slot."""
    assert trial.ask(name, "/v1/network").json["refused_checkins"] == [], "it may be one person's: not for readers"
    told = trial.ask(name, "/v1/network", token=trial.tokens[name]["admin"])
    return any(reason in one["reasons"] for one in told.json["refused_checkins"])


def test_nobody_is_told_how_many_others_there_are(trial: Trial) -> None:
    """Stepping the size of a batch down until it was taken told a client the exact number of other users."""
    _early_in_a_slot(trial, SMALL)
    for first in range(0, 5 * CAPACITY, CAPACITY):
        told = trial.checkin(SMALL, _people(CAPACITY, first=first))
        assert (told.status, told.json) == (202, {"taken": True, "accepted": CAPACITY})
    again = trial.checkin(SMALL, _people(1))
    new = trial.checkin(SMALL, _people(1, first=10**6))
    assert (again.status, again.text) == (new.status, new.text), "whether somebody is there already is not said"
    slot = trial.slot(SMALL)
    until(lambda: trial.released(SMALL) >= slot, "the slot is counted from the disk, and released")


def test_good_rows_are_taken_beside_bad_ones(trial: Trial) -> None:
    """One late row in a batch of a thousand would remove a thousand people."""
    late = {**_people(1)[0], "time": _at(-3600)}
    nowhere = {"user": "somebody", "region": "a secret place"}
    told = trial.checkin(LARGE, [*_people(10), late, *_people(10, first=20), nowhere])
    assert told.status == 207
    assert told.json == {
        "taken": True,
        "accepted": 20,
        "refused": [{"row": 10, "reason": "late"}, {"row": 21, "reason": "unknown-region"}],
        "refused_count": 2,
    }


def test_an_oversized_body_is_refused_whole(trial: Trial) -> None:
    """One request cannot fill the memory, whether it says its length or not."""
    told = trial.checkin(SMALL, _people(1000))
    assert (told.status, told.reason) == (413, "too-large")
    assert re.search("16KiB|16384", told.json["error"]["text"])
    assert trial.checkin(SMALL, _people(5)).status == 202, "the next one is taken"
    until(lambda: _happened(trial, SMALL, "too-large"), "the refusal is visible")


def _at(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


Refused = tuple[int, str, Callable[[Trial], Answer]]
ROW = {"user": "a secret name", "region": "north"}
REFUSED: list[Refused] = [
    (400, "future", lambda t: t.checkin(LARGE, [{**ROW, "time": _at(3600)}])),
    (409, "late", lambda t: t.checkin(LARGE, [{**ROW, "time": _at(-3600)}])),
    (400, "unknown-region", lambda t: t.checkin(LARGE, [{**ROW, "region": "a secret place"}])),
    (401, "no-token", lambda t: t.checkin(LARGE, [ROW], token="not-a-token-of-this-node")),
    (403, "wrong-right", lambda t: t.checkin(LARGE, [ROW], token=t.tokens[LARGE]["admin"])),
    (400, "field", lambda t: t.checkin(LARGE, [{"user": "a secret name"}])),
    (400, "malformed", lambda t: t.ask(LARGE, "/v1/checkins", b"[{", token=t.tokens[LARGE]["checkin"])),
    (
        415,
        "content-type",
        lambda t: t.ask(LARGE, "/v1/checkins", b"a secret name", token=t.tokens[LARGE]["checkin"], content_type="x/y"),
    ),
]


def test_every_refusal_has_its_reason_and_repeats_nothing(trial: Trial) -> None:
    """A sender learns what to correct; the answer, which proxies may log, holds nothing of what was sent."""
    for status, reason, send in REFUSED:
        told = send(trial)
        assert (told.status, told.reason) == (status, reason)
        assert "secret" not in told.text
    until(lambda: all(_happened(trial, LARGE, reason) for _, reason, _ in REFUSED), "all reasons are visible")
    assert "secret" not in trial.log(LARGE)


def test_the_number_of_people_is_nowhere(trial: Trial) -> None:
    """Logs, metrics, status and errors go to monitors: an exact number there is a raw count for which nobody paid."""
    slot = _early_in_a_slot(trial, LARGE)
    number = 7919 if abs(slot - 7919) > 1000 else 6007  # slots are numbers, too
    here = re.compile(rf"(?<![\d.]){number}(?![\d.])")
    assert here.search(f'"count": {number},')
    # In one body, in several, and as counts of a job; and one that is refused after it was read whole.
    assert trial.checkin(LARGE, _people(number)).status == 202
    token = trial.tokens[LARGE]["checkin"]
    for body in ({"slot": slot, "counts": {"north": number}}, {"slot": slot - 100, "counts": {"north": number}}):
        told = trial.ask(LARGE, "/v1/counts", json.dumps(body).encode(), token=token)
        assert (told.status, told.reason) == (403, "off")
        assert not here.search(told.text)
    after = trial.slot(LARGE)
    until(lambda: trial.released(LARGE) > after, "their slots are released")
    journal = trial.config(LARGE).data / "journal"
    left = sum(one.stat().st_size for one in journal.iterdir() if one.exists())
    assert left < number, "nothing is left of their slots, while the server runs"
    for path in ("/metrics", "/v1/network", "/v1/budget", "/readyz", "/healthz"):
        assert not here.search(trial.ask(LARGE, path).text), path
    for command in ("status", "peers", "doctor"):
        assert not here.search(trial.tool(LARGE, command, "--json").stdout), command
    trial.stop()
    for name in trial.files:
        assert not here.search(trial.log(name)), name
        assert "person" not in trial.log(name)
