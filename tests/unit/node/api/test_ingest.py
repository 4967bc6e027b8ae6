"""POST /v1/checkins and /v1/counts: what is taken, and how everything else is refused."""

from __future__ import annotations

import json
import logging

import msgspec
import pytest

from dpcrowd.node.collect import IntakeRefused
from dpcrowd.node.config.tokens import TokensSection
from dpcrowd.node.ingest.batch import ROW_REASONS
from dpcrowd.node.slots import SECOND, rfc3339
from node_support_api import (
    ADMIN,
    CHECKIN,
    CLOCK,
    NOW,
    READ,
    Client,
    FakeService,
    app_of,
    bearer,
    client_of,
    reason_of,
)

JSON = {"Content-Type": "application/json", **bearer(CHECKIN)}
ONE = b'[{"user":"ann","region":"north"}]'


def checkin(**fields: object) -> bytes:
    return json.dumps([{"user": "ann", "region": "north", **fields}]).encode()


def test_check_ins_are_taken() -> None:
    """The point of the path: what was sent is counted, each user once, where it was last."""
    service = FakeService()
    body = [{"user": "ann", "region": "north"}, {"user": "bob", "region": "south"}, {"user": "ann", "region": "south"}]
    response = client_of(service).post("/v1/checkins", content=json.dumps(body), headers=JSON)
    assert (response.status_code, response.json()) == (202, {"taken": True, "accepted": 3})
    packed = msgspec.msgpack.encode([{"user": 7, "region": "north"}])
    headers = {"Content-Type": "application/msgpack", **bearer(CHECKIN)}
    assert client_of(service).post("/v1/checkins", content=packed, headers=headers).status_code == 202
    assert service.counted(100) == [1, 2, 0]
    assert service.refusals == []


def test_nothing_to_take_is_taken() -> None:
    """A silent crowd and a dead feed look the same unless nobody is told too; the answer says when to come again."""
    service = FakeService()
    response = client_of(service).post("/v1/checkins", content=b"[]", headers=JSON)
    assert (response.status_code, response.json()) == (202, {"taken": True, "accepted": 0, "seconds_left": 30.0})
    assert [len(batch) for batch in service.batches] == [0]
    assert service.collector.fed(100)
    assert not service.collector.fed(101)


def test_an_empty_list_at_the_end_of_a_slot_does_not_speak_for_the_next_one() -> None:
    """A slot that opened while the request was handled was passed over by feeds, and not sampled (needs_feed)."""
    service, times = FakeService(), iter([*[CLOCK.closes(3) - 1_000_000] * 2, *[CLOCK.closes(3) + 1_000_000] * 9])
    response = client_of(service, now=lambda: next(times)).post("/v1/checkins", content=b"[]", headers=JSON)
    assert (response.status_code, response.json()["seconds_left"]) == (202, 0.0)
    assert service.collector.fed(3)
    assert not service.collector.fed(4)


@pytest.mark.parametrize("path", ["/v1/checkins", "/v1/counts"])
@pytest.mark.parametrize(
    ("headers", "status", "why"),
    [
        ({}, 401, "no-token"),
        (bearer("a-token-that-is-not-known"), 401, "no-token"),
        ({"Authorization": f"Basic {CHECKIN}"}, 401, "no-token"),
        ({"Authorization": CHECKIN}, 401, "no-token"),
        ({"Authorization": "Bearer "}, 401, "no-token"),
        (bearer(READ), 403, "wrong-right"),
        (bearer(ADMIN), 403, "wrong-right"),
    ],
)
def test_tokens(path: str, headers: dict[str, str], status: int, why: str) -> None:
    """Whoever may read, or even operate the node, may not send check-ins: that would change what is counted."""
    service = FakeService()
    response = client_of(service).post(path, content=ONE, headers={"Content-Type": "application/json", **headers})
    assert (response.status_code, reason_of(response)) == (status, why)
    assert service.refusals == [why]
    assert not service.batches
    assert ("www-authenticate" in response.headers) == (status == 401)


def test_two_tokens_are_none() -> None:
    """A proxy that adds its own header must not decide by chance whose right counts."""
    service = FakeService()
    headers = [("Authorization", f"Bearer {CHECKIN}"), ("Authorization", f"Bearer {READ}")]
    assert client_of(service).post("/v1/checkins", content=ONE, headers=headers).status_code == 401


def test_open_reading_opens_nothing_else() -> None:
    """`read = "open"` gives everybody one right; a wrong token is still no token."""
    tokens = TokensSection(checkin=(CHECKIN,), read="open", admin=(ADMIN,))
    client = client_of(FakeService(), tokens=tokens)
    assert client.get("/v1/budget").status_code == 200
    assert client.post("/v1/checkins", content=ONE).status_code == 401
    assert client.post("/v1/checkins", content=ONE, headers=bearer("whatever-it-may-be")).status_code == 401
    assert client.post("/v1/checkins", content=ONE, headers=bearer(ADMIN)).status_code == 403
    assert client.post("/v1/admin/reload").status_code == 401


@pytest.mark.parametrize(
    ("content_type", "body", "status", "why"),
    [
        ("application/json", b"[{", 400, "malformed"),
        ("application/json", checkin(region="west"), 400, "unknown-region"),
        ("application/json", checkin(user=1.5), 400, "field"),
        ("application/json", checkin(time=rfc3339(NOW + 3 * SECOND)), 400, "future"),
        ("application/json", checkin(time=rfc3339(CLOCK.closes(98))), 409, "late"),
        ("application/json", checkin(time=rfc3339(CLOCK.opens(0) - SECOND)), 409, "late"),
        ("application/json", b"[" + b" " * 100_000 + b"]", 413, "too-large"),
        ("text/plain", ONE, 415, "content-type"),
        ("application/msgpack", ONE, 400, "malformed"),
    ],
)
def test_bad_bodies(content_type: str, body: bytes, status: int, why: str) -> None:
    """Each is refused with its reason, which is noted without a number, and the node goes on."""
    service = FakeService()
    client = client_of(service)
    headers = {"Content-Type": content_type, **bearer(CHECKIN)}
    response = client.post("/v1/checkins", content=body, headers=headers)
    assert (response.status_code, reason_of(response)) == (status, why)
    assert service.refusals == [why]
    assert client.post("/v1/checkins", content=ONE, headers=JSON).status_code == 202
    assert service.counted(100) == [1, 0, 0]


GOOD = {"user": "ann", "region": "north"}
UNKNOWN_REGION = {"user": "a", "region": "nowhere"}
USER_A_FRACTION = {"user": 1.5, "region": "north"}
NO_REGION = {"user": "a"}
LATE = {"user": "a", "region": "north", "time": 1_767_225_600_000}
WRONG = [
    pytest.param(UNKNOWN_REGION, "unknown-region", 400, "unknown-region", id="unknown region"),
    pytest.param(USER_A_FRACTION, "user", 400, "field", id="user a fraction"),
    pytest.param({"user": " \u00a0", "region": "north"}, "user", 400, "field", id="user all spaces"),
    pytest.param(NO_REGION, "region", 400, "field", id="no region"),
    pytest.param({"user": "a", "region": "north", "time": "noon"}, "time", 400, "field", id="time not RFC 3339"),
    pytest.param({"user": "a", "region": "north", "more": 1}, "malformed", 400, "field", id="unknown field"),
    pytest.param(
        {"user": "a", "region": "north", "time": rfc3339(NOW + 3 * SECOND)}, "future", 400, "future", id="future"
    ),
    pytest.param(LATE, "late", 409, "late", id="late"),
]


def test_every_row_reason_has_a_wrong_row_here() -> None:
    """A new reason that only the decoder knows was an internal error after the good rows had been counted."""
    assert {case.values[1] for case in WRONG} == set(ROW_REASONS)


@pytest.mark.parametrize(("wrong", "row_reason", "status", "why"), WRONG)
def test_good_rows_are_taken_and_the_others_named(
    wrong: dict[str, object], row_reason: str, status: int, why: str
) -> None:
    """One person's typing mistake, or telephone that was offline, must not cost the others their check-ins."""
    service = FakeService()
    other = {"user": "bob", "region": "south"}
    response = client_of(service).post("/v1/checkins", content=json.dumps([wrong, GOOD, wrong, other]), headers=JSON)
    assert (response.status_code, response.json()) == (
        207,
        {
            "taken": True,
            "accepted": 2,
            "refused": [{"row": 0, "reason": row_reason}, {"row": 2, "reason": row_reason}],
            "refused_count": 2,
        },
    )
    assert service.counted(100) == [1, 1, 0]
    assert service.refusals == [why]


@pytest.mark.parametrize(("wrong", "row_reason", "status", "why"), WRONG)
def test_a_body_of_which_nothing_is_taken_is_refused(
    wrong: dict[str, object], row_reason: str, status: int, why: str
) -> None:
    """A client that looks at the status only must not believe that something was counted; all rows are named."""
    service = FakeService()
    response = client_of(service).post("/v1/checkins", content=json.dumps([wrong, wrong]), headers=JSON)
    assert (response.status_code, reason_of(response)) == (status, why)
    error = response.json()["error"]
    assert error["text"].startswith("row 0: ")
    assert error["rows"] == [0, 1]
    assert error["refused"] == [{"row": 0, "reason": row_reason}, {"row": 1, "reason": row_reason}]
    assert error["refused_count"] == 2
    assert service.refusals == [why]
    assert service.counted(100) == [0, 0, 0]


def test_rows_are_numbered_by_the_body_whenever_they_are_refused() -> None:
    """Some are refused when they are read, some for their slot: numbered otherwise, a sender fixes the wrong ones."""
    service = FakeService()
    rows = [case.values[0] for case in WRONG]
    content = json.dumps([part for row in rows for part in (row, {**GOOD, "user": str(row)})])
    response = client_of(service).post("/v1/checkins", content=content, headers=JSON)
    assert response.status_code == 207
    expected = [{"row": 2 * place, "reason": case.values[1]} for place, case in enumerate(WRONG)]
    assert response.json() == {
        "taken": True,
        "accepted": len(WRONG),
        "refused": expected,
        "refused_count": len(WRONG),
    }
    assert service.counted(100) == [len(WRONG), 0, 0]
    assert sorted(service.refusals) == ["field", "future", "late", "unknown-region"]


def test_the_first_row_says_why_nothing_was_taken() -> None:
    """Of rows with different reasons each has its own; the status is one that a program can act on."""
    wrong = [LATE, UNKNOWN_REGION, USER_A_FRACTION]
    late = client_of(FakeService()).post("/v1/checkins", content=json.dumps(wrong), headers=JSON)
    assert (late.status_code, reason_of(late)) == (409, "late")
    field = client_of(FakeService()).post("/v1/checkins", content=json.dumps(wrong[::-1]), headers=JSON)
    assert (field.status_code, reason_of(field)) == (400, "field")
    assert [one["reason"] for one in field.json()["error"]["refused"]] == ["user", "unknown-region", "late"]


@pytest.mark.parametrize("good", [0, 1])
@pytest.mark.parametrize("wrong", [NO_REGION, UNKNOWN_REGION, LATE])
def test_no_more_than_a_thousand_rows_are_named(good: int, wrong: dict[str, object]) -> None:
    """A body of nothing but mistakes must not get an answer of its own size; their number is told."""
    content = json.dumps([GOOD] * good + [wrong] * 1_500)
    response = client_of(FakeService()).post("/v1/checkins", content=content, headers=JSON)
    told = response.json() if good else response.json()["error"]
    assert response.status_code == (207 if good else 409 if "time" in wrong else 400)
    assert [one["row"] for one in told["refused"]] == list(range(good, 1_000 + good))
    assert told["refused_count"] == 1_500
    if not good:
        assert told["rows"] == list(range(1_000))


def test_a_body_without_rows_names_none() -> None:
    """Bytes that are no list of check-ins have no rows to leave out."""
    error = client_of(FakeService()).post("/v1/checkins", content=b"[{", headers=JSON).json()["error"]
    assert set(error) == {"reason", "text"}


def test_one_person_counts_once_however_the_id_was_typed() -> None:
    """Two forms of an ë, spaces, a number and its text: otherwise a person counts twice, and the noise covers one."""
    service = FakeService()
    client = client_of(service)
    for user in ("Zoë", "Zoe\u0308", " Zoë", 42, "42", "42\n"):
        content = json.dumps([{"user": user, "region": "north"}])
        assert client.post("/v1/checkins", content=content, headers=JSON).status_code == 202
    packed = msgspec.msgpack.encode([{"user": "Zoe\u0308 ", "region": "south"}])
    headers = {"Content-Type": "application/msgpack", **bearer(CHECKIN)}
    assert client.post("/v1/checkins", content=packed, headers=headers).status_code == 202
    assert service.counted(100) == [1, 1, 0]


def test_numbers_are_milliseconds() -> None:
    """A clock in seconds, or in microseconds, is refused: it must not become a check-in of 1970, or of the arrival."""
    service = FakeService()
    at = NOW // 10**9
    rows = [{"user": place, "region": "north", "time": time} for place, time in enumerate((at * 1000, at, at * 10**6))]
    response = client_of(service).post("/v1/checkins", content=json.dumps(rows), headers=JSON)
    assert response.json()["refused"] == [{"row": 1, "reason": "time"}, {"row": 2, "reason": "time"}]
    assert service.counted(100) == [1, 0, 0]
    alone = client_of(service).post("/v1/checkins", content=json.dumps(rows[1:2]), headers=JSON)
    assert (alone.status_code, reason_of(alone)) == (400, "field")
    assert "milliseconds, not seconds" in alone.json()["error"]["text"]


def test_nobody_is_turned_away_because_others_are_there() -> None:
    """An answer that says "full" tells how many others there are, and one more user would displace another."""
    service = FakeService(capacity=2)
    client = client_of(service)
    for number in range(5):
        body = json.dumps([{"user": f"{number}-{row}", "region": "south"} for row in range(3)])
        response = client.post("/v1/checkins", content=body, headers=JSON)
        assert (response.status_code, response.json()) == (202, {"taken": True, "accepted": 3})
    assert service.collector.seal(100) is None  # more than memory holds: the journal is counted


def test_the_limit_of_a_token() -> None:
    """A feed that floods is told to wait, before its body is read; other tokens are served as before."""
    other = "a-second-token-for-feeds"
    tokens = TokensSection(checkin=(CHECKIN, other), read=(READ,))
    service, now = FakeService(), [NOW]
    client = client_of(service, tokens=tokens, requests_per_second=2, now=lambda: now[0])
    counts = b'{"slot":100,"counts":{}}'
    assert client.post("/v1/checkins", content=ONE, headers=JSON).status_code == 202
    assert client.post("/v1/counts", content=counts, headers=JSON).status_code == 202
    for path in ("/v1/checkins", "/v1/counts"):
        response = client.post(path, content=b"[{", headers=JSON)
        assert (response.status_code, reason_of(response)) == (429, "rate")
        assert response.headers["retry-after"] == "30"
    assert client.post("/v1/checkins", content=ONE, headers={**JSON, **bearer(other)}).status_code == 202
    assert client.get("/v1/budget", headers=bearer(READ)).status_code == 200
    assert service.refusals == ["rate", "rate"]
    now[0] += SECOND // 2
    assert client.post("/v1/checkins", content=ONE, headers=JSON).status_code == 202


def test_a_wrong_token_costs_the_right_one_nothing() -> None:
    """Whoever guesses tokens must neither use up a feed's requests nor fill the memory with names."""
    service = FakeService()
    client = client_of(service, requests_per_second=1)
    for number in range(20):
        assert client.post("/v1/checkins", content=ONE, headers=bearer(f"a-guessed-token-{number}")).status_code == 401
    assert client.post("/v1/checkins", content=ONE, headers=JSON).status_code == 202


def test_when_nothing_can_be_stored() -> None:
    """A full disk is not the client's fault: 503, and it may try again."""
    service = FakeService()
    service.fails = IntakeRefused("unavailable", "nothing can be stored at present.")
    response = client_of(service).post("/v1/checkins", content=ONE, headers=JSON)
    assert (response.status_code, reason_of(response), response.headers["retry-after"]) == (503, "unavailable", "30")


def test_an_unexpected_error_says_nothing_of_the_body(caplog: pytest.LogCaptureFixture) -> None:
    """A bug must not put a user into a log: neither by the error's text nor by its traceback."""
    service = FakeService()
    service.fails = KeyError("ann was in the north")
    with caplog.at_level(logging.DEBUG):
        response = client_of(service).post("/v1/checkins", content=ONE, headers=JSON)
    assert (response.status_code, reason_of(response)) == (500, "internal")
    ours = [record for record in caplog.records if record.name.startswith("dpcrowd")]
    assert [record.getMessage() for record in ours] == ["a request to /v1/checkins failed: KeyError"]
    assert all(record.exc_info is None for record in ours)


@pytest.mark.parametrize("path", ["/v1/checkins", "/v1/counts"])
def test_other_methods(path: str) -> None:
    """Check-ins cannot be read back."""
    response = client_of(FakeService()).get(path, headers=bearer(CHECKIN))
    assert (response.status_code, reason_of(response), response.headers["allow"]) == (405, "method", "POST")


def test_counts_are_taken() -> None:
    """Counts of a Spark or SQL job; given again, they replace the first."""
    service = FakeService()
    client = client_of(service)
    for north in (3, 4):
        body = json.dumps({"slot": 100, "counts": {"north": north, "south": 2}})
        assert client.post("/v1/counts", content=body, headers=JSON).status_code == 202
    assert service.counted(100) == [4, 2, 0]


@pytest.mark.parametrize(
    ("accepts", "path", "content"),
    [
        ("checkins", "/v1/counts", b'{"slot":100,"counts":{"north":3}}'),
        ("counts", "/v1/checkins", ONE),
        ("counts", "/v1/checkins", b"[]"),
    ],
)
def test_a_node_takes_check_ins_or_counts(accepts: str, path: str, content: bytes) -> None:
    """Their sum could count a user twice; and which is taken is a setting, not what somebody else sent first."""
    service = FakeService(accepts=accepts)
    client = client_of(service)
    for _ in range(2):
        response = client.post(path, content=content, headers=JSON)
        assert (response.status_code, reason_of(response)) == (403, "off")
        right = f"/v1/{accepts}"
        body = ONE if accepts == "checkins" else b'{"slot":100,"counts":{"north":3}}'
        assert client.post(right, content=body, headers=JSON).status_code == 202
    assert service.counted(100) == [1 if accepts == "checkins" else 3, 0, 0]
    assert service.refusals == ["off", "off"]


def test_counts_after_the_seal_and_wrong_counts() -> None:
    """The counts of a sealed slot have been read: new ones would be lost, or a second draw."""
    service = FakeService()
    client = client_of(service)
    late = client.post("/v1/counts", content=b'{"slot":98,"counts":{}}', headers=JSON)
    assert (late.status_code, reason_of(late)) == (409, "late")
    wrong = client.post("/v1/counts", content=b'{"slot":100,"counts":{"north":-1}}', headers=JSON)
    assert (wrong.status_code, reason_of(wrong)) == (400, "field")
    lines = client.post("/v1/counts", content=b"{}", headers={**JSON, "Content-Type": "application/x-ndjson"})
    assert (lines.status_code, reason_of(lines)) == (415, "content-type")
    assert service.refusals == ["late", "field", "content-type"]


def test_the_first_client_is_answered_as_it_knows() -> None:
    """The feed of 0.1.0 sends a batch again for ever if its answer is 207."""
    body = [{"user": "ann", "region": "north"}, {"user": "bob", "region": "nowhere"}]
    for agent, status in (("dpcrowd", 202), ("dpcrowd/0.2.0", 207), ("curl/8", 207)):
        client = Client(app_of(FakeService()))
        told = client.post("/v1/checkins", json=body, headers={**bearer(CHECKIN), "User-Agent": agent})
        assert (told.status_code, told.json()["accepted"]) == (status, 1)
