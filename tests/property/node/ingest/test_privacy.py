"""Whatever is wrong with a body, neither answer nor log nor error repeats a user, a region of a user, or a count.

And no answer depends on other people: neither on the other rows of a body, nor on what was sent before.
"""

from __future__ import annotations

import json
import logging
import traceback
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest import LogCaptureFixture  # noqa: PT013 - a type only

from dpcrowd.node.ingest.batch import ARRIVAL, Batch, BodyRefused, row_text
from dpcrowd.node.ingest.bodies import decode_checkins, decode_counts
from examples_support import examples
from node_support_api import CHECKIN, NOW, REGIONS, Client, FakeService, app_of, bearer

SECRET_USER, SECRET_REGION, SECRET_COUNT = "Zebedee-Quux", "Xanadu-Place", 918_273_645
SECRETS = (SECRET_USER, SECRET_REGION, str(SECRET_COUNT))

secret = st.sampled_from([SECRET_USER, SECRET_REGION, SECRET_COUNT, -SECRET_COUNT, SECRET_COUNT + 0.5])
value = st.one_of(secret, st.none(), st.booleans(), st.just("north"), st.lists(secret, max_size=2))
name = st.sampled_from(["user", "region", "time", "slot", "counts", SECRET_USER, SECRET_REGION, "x` - at `$[1].user"])
row = st.one_of(
    st.dictionaries(
        name, st.one_of(value, st.dictionaries(st.sampled_from(["north", *SECRETS]), value, max_size=2)), max_size=4
    ),
    value,
    st.just({"user": SECRET_USER, "region": "north"}),
    st.just({"user": SECRET_USER, "region": SECRET_REGION}),
    st.just({"user": SECRET_USER, "region": "north", "time": SECRET_COUNT}),
)
body = st.one_of(row, st.lists(row, max_size=4))
damage = st.one_of(st.none(), st.integers(0, 60))


def encoded(kind: str, what: Any, cut: int | None) -> bytes:
    if kind == "application/msgpack":
        raw = msgspec.msgpack.encode(what)
    elif kind == "application/x-ndjson":
        raw = "\n".join(json.dumps(one) for one in (what if isinstance(what, list) else [what])).encode()
    else:
        raw = json.dumps(what).encode()
    return raw if cut is None else raw[:cut] + b"\xff" + raw[cut:]


@settings(max_examples=examples(250))
@given(st.sampled_from(["application/json", "application/x-ndjson", "application/msgpack"]), body, damage)
def test_refusals_of_bodies(kind: str, what: Any, cut: int | None) -> None:
    """Also the error itself, with all that hangs on it: a logger somewhere may print it with its causes."""
    raw = encoded(kind, what, cut)
    told: list[str] = []
    chains: list[BaseException | None] = []
    for decode in (decode_checkins, decode_counts):
        try:
            found = decode(kind, raw, REGIONS)
            if isinstance(found, Batch):
                told += [repr(found), *map(row_text, found.refused), *map(repr, found.refused)]
        except BodyRefused as refused:
            told.append("".join(traceback.format_exception(refused)) + repr(refused.args) + refused.text)
            chains += [refused.__context__, refused.__cause__]
    assert not [secret for secret in SECRETS if secret in "".join(told)]
    assert not any(chains)


@pytest.mark.slow
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["/v1/checkins", "/v1/counts"]),
    st.sampled_from(["application/json", "application/x-ndjson", "application/msgpack", SECRET_USER]),
    body,
    damage,
    st.booleans(),
)
def test_answers_and_logs(
    caplog: LogCaptureFixture, path: str, kind: str, what: Any, cut: int | None, token: bool
) -> None:
    """What a client sent wrongly may be a person's; an answer ends up in other logs, a log in other hands."""
    caplog.clear()
    service = FakeService(capacity=1)
    headers = {"Content-Type": kind, **bearer(CHECKIN if token else SECRET_USER)}
    with caplog.at_level(logging.DEBUG):
        response = Client(app_of(service)).post(path, content=encoded(kind, what, cut), headers=headers)
    assert response.status_code in (202, 207, 400, 401, 409, 415)
    told = response.text + repr(response.headers) + caplog.text + repr(service.refusals)
    assert not [secret for secret in SECRETS if secret in told]


# ------------------------------------------------------------------------------------------------- other people

LINES, JSON, MSGPACK = "application/x-ndjson", "application/json", "application/msgpack"
people = st.sampled_from(
    ["ann", "bob", "Zoë", "Zoe\u0308", " ann ", "", "\u00a0", 42, "42", "x" * 257, "\ud83d", "a\nb"]
)
times = st.sampled_from([None, NOW // 10**6, NOW // 10**6 + 1_000, 5, -1, 2**60, "noon", "2026-01-01T01:40:00Z", 1.5])
checkin = st.builds(
    lambda user, region, time: {"user": user, "region": region} | ({} if time is None else {"time": time}),
    people,
    st.sampled_from([*REGIONS, "west", "", 0]),
    times,
)
anything = st.one_of(checkin, checkin, checkin, row)


def joined(kind: str, parts: list[bytes]) -> bytes:
    if kind == LINES:
        return b"\n".join(parts)
    return b"[" + b",".join(parts) + b"]" if kind == JSON else b"\xdc" + len(parts).to_bytes(2, "big") + b"".join(parts)


def packed(kind: str, what: Any) -> bytes:
    """One row; a lone surrogate, which no UTF-8 has, is left in JSON and made foreign bytes in MessagePack."""
    if kind != MSGPACK:
        return json.dumps(what).encode()
    if isinstance(what, dict) and what.get("user") == "\ud83d":
        return msgspec.msgpack.encode({**what, "user": "?!?"}).replace(b"?!?", b"\xed\xa0\xbd")
    return msgspec.msgpack.encode(what)


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.sampled_from([JSON, LINES, MSGPACK]), st.lists(anything, max_size=6))
def test_no_row_of_a_body_decides_about_another(kind: str, rows: list[Any]) -> None:
    """Otherwise one person's name could keep everybody in a batch from being counted, and the answer would tell."""
    parts = [packed(kind, one) for one in rows]
    together = decode_checkins(kind, joined(kind, parts), REGIONS)
    alone = [decode_checkins(kind, joined(kind, [part]), REGIONS) for part in parts]
    assert together.refused == tuple((place, one.refused[0][1]) for place, one in enumerate(alone) if one.refused)
    assert together.users == [user for one in alone for user in one.users]
    assert together.regions == [region for one in alone for region in one.regions]
    wanted = [ARRIVAL if one.times_ns is None else int(one.times_ns[0]) for one in alone if len(one)]
    assert (wanted if together.times_ns is None else together.times_ns.tolist()) == wanted
    assert together.times_ns is not None or set(wanted) <= {ARRIVAL}


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(
    st.lists(st.lists(checkin, max_size=4), max_size=3),
    st.lists(checkin, min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_no_answer_depends_on_what_was_sent_before(before: list[list[Any]], rows: list[Any], capacity: int) -> None:
    """Answers that tell of a slot that is full, or mixed, tell how many others there are, or that there are some."""
    headers = {"Content-Type": JSON, **bearer(CHECKIN)}
    counts = json.dumps({"slot": 100, "counts": {"north": 1}})

    def answers(earlier: list[list[Any]]) -> list[tuple[int, Any]]:
        client = Client(app_of(FakeService(capacity=capacity)))
        for one in earlier:
            client.post("/v1/checkins", content=json.dumps(one), headers=headers)
        asked = [("/v1/checkins", json.dumps(rows)), ("/v1/checkins", "[]"), ("/v1/counts", counts)]
        replies = [client.post(path, content=content, headers=headers) for path, content in asked]
        return [(reply.status_code, reply.json()) for reply in replies]

    assert answers(before) == answers([])
