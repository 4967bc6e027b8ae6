"""Whatever is wrong with a body, neither answer nor log nor error repeats a user, a region of a user, or a count."""

from __future__ import annotations

import json
import logging
import traceback
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest import LogCaptureFixture  # noqa: PT013 - a type only

from dpcrowd.node.ingest.batch import BodyRefused
from dpcrowd.node.ingest.bodies import decode_checkins, decode_counts
from node_support_api import CHECKIN, REGIONS, Client, FakeService, app_of, bearer

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


@settings(max_examples=250)
@given(st.sampled_from(["application/json", "application/x-ndjson", "application/msgpack"]), body, damage)
def test_refusals_of_bodies(kind: str, what: Any, cut: int | None) -> None:
    """Also the error itself, with all that hangs on it: a logger somewhere may print it with its causes."""
    raw = encoded(kind, what, cut)
    told: list[str] = []
    chains: list[BaseException | None] = []
    for decode in (decode_checkins, decode_counts):
        try:
            decode(kind, raw, REGIONS)
        except BodyRefused as refused:
            told.append("".join(traceback.format_exception(refused)) + repr(refused.args) + refused.text)
            chains += [refused.__context__, refused.__cause__]
    assert not [secret for secret in SECRETS if secret in "".join(told)]
    assert not any(chains)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    assert response.status_code in (202, 400, 401, 409, 415, 429)
    told = response.text + repr(response.headers) + caplog.text + repr(service.refusals)
    assert not [secret for secret in SECRETS if secret in told]
