"""Bodies of check-ins and counts in JSON, NDJSON and MessagePack."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from dpcrowd.node.ingest import bodies
from dpcrowd.node.ingest.batch import ARRIVAL, BodyRefused
from dpcrowd.node.ingest.bodies import decode_checkins, decode_counts

REGIONS = {"north": 0, "süd": 1}
ROWS = [
    {"user": "ann", "region": "north"},
    {"user": 42, "region": "süd", "time": 1_767_225_600_123},
    {"user": "42", "region": "north", "time": "2026-01-01T01:00:00.5+01:00"},
    {"user": "ünal", "region": "north", "time": None},
]
JSON, LINES, MSGPACK = "application/json", "application/x-ndjson", "application/msgpack"


def encoded(kind: str, rows: object) -> bytes:
    if kind == LINES:
        assert isinstance(rows, list)
        return "\n".join(json.dumps(row) for row in rows).encode()
    return msgspec.msgpack.encode(rows) if kind == MSGPACK else json.dumps(rows).encode()


def refusal(kind: str | None, body: bytes) -> BodyRefused:
    with pytest.raises(BodyRefused) as caught:
        decode_checkins(kind, body, REGIONS)
    assert caught.value.__context__ is None  # a decoder's error may hold the body
    return caught.value


@pytest.mark.parametrize("kind", [JSON, LINES, MSGPACK, "Application/JSON; charset=UTF-8", "application/vnd.msgpack"])
def test_every_format_gives_the_same_batch(kind: str) -> None:
    """A feed that changes its format must not change what is counted."""
    plain = MSGPACK if "msgpack" in kind else LINES if kind == LINES else JSON
    batch = decode_checkins(kind, encoded(plain, ROWS), REGIONS)
    assert batch.users == [b"ann", b"42", b"42", "ünal".encode()]
    assert batch.regions == [0, 1, 0, 0]
    assert batch.times_ns is not None
    assert batch.times_ns.tolist() == [ARRIVAL, 1_767_225_600_123_000_000, 1_767_225_600_500_000_000, ARRIVAL]


def test_a_number_and_its_text_are_one_user() -> None:
    """Otherwise a user of two feeds, one with numbers and one with texts, counts twice and pays double."""
    batch = decode_checkins(JSON, b'[{"user":7,"region":"north"},{"user":"7","region":"north"}]', REGIONS)
    assert batch.users[0] == batch.users[1]


def test_without_times_there_are_none() -> None:
    """The common case costs no array of times."""
    assert decode_checkins(JSON, encoded(JSON, ROWS[:1]), REGIONS).times_ns is None
    assert len(decode_checkins(JSON, b"[]", REGIONS)) == len(decode_checkins(LINES, b"\n\n", REGIONS)) == 0


@pytest.mark.parametrize("kind", [JSON, LINES, MSGPACK])
@pytest.mark.parametrize(
    ("row", "reason", "field"),
    [
        ({"user": "ann", "region": "west"}, "unknown-region", "region"),
        ({"user": "ann", "region": 0}, "field", "region"),
        ({"user": "ann"}, "field", "region"),
        ({"region": "north"}, "field", "user"),
        ({"user": "", "region": "north"}, "field", "user"),
        ({"user": "a" * 257, "region": "north"}, "field", "user"),
        ({"user": 1.5, "region": "north"}, "field", "user"),
        ({"user": True, "region": "north"}, "field", "user"),
        ({"user": None, "region": "north"}, "field", "user"),
        ({"user": ["ann"], "region": "north"}, "field", "user"),
        ({"user": "ann", "region": "north", "time": "2026-01-01T00:00:00"}, "field", "time"),
        ({"user": "ann", "region": "north", "time": "yesterday"}, "field", "time"),
        ({"user": "ann", "region": "north", "time": 1.5}, "field", "time"),
        ({"user": "ann", "region": "north", "time": -1}, "field", "time"),
        ({"user": "ann", "region": "north", "time": 2**62}, "field", "time"),
        ({"user": "ann", "region": "north", "time": "1969-12-31T23:59:59Z"}, "field", "time"),
        ({"user": "ann", "region": "north", "time": "2262-12-31T23:59:59Z"}, "field", "time"),
        ({"user": "ann", "region": "north", "tmie": 5}, "field", "no other field"),
        (["ann", "north"], "field", "not a check-in"),
        ("ann", "field", "not a check-in"),
    ],
)
def test_a_wrong_row_is_named_by_its_place_and_field(kind: str, row: object, reason: str, field: str) -> None:
    """A feed of 1,000 rows must learn which one to mend; a row that is wrong must not be counted as something else."""
    refused = refusal(kind, encoded(kind, [*ROWS, row, ROWS[0], row]))
    assert (refused.status, refused.reason) == (400, reason)
    assert refused.rows == (len(ROWS), len(ROWS) + 2)
    assert refused.text.startswith(f"row {len(ROWS)}: ")
    assert field in refused.text
    assert "ann" not in refused.text
    assert "west" not in refused.text


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b""),
        (JSON, b"[{]"),
        (JSON, b'{"user":"ann","region":"north"}'),
        (JSON, b'[{"user":"ann","region":"north"}] []'),
        (JSON, b'[{"user":"\xff","region":"north"}]'),
        (JSON, b'[{"user":"\\ud800","region":"north"}]'),
        (JSON, b"[" * 100_000),
        (LINES, b'{"user":"ann","region":"north"}\n{"user":'),
        (MSGPACK, b"\xdd\xff\xff\xff\xff"),
        (MSGPACK, b"\x91\x82\xa4user\xa2\xff\xfe\xa6region\xa5north"),
        (MSGPACK, b"\xc1"),
    ],
)
def test_bytes_that_are_not_the_format(kind: str, body: bytes) -> None:
    """Garbage is the client's mistake: 400 with a reason, not an error of the node."""
    refused = refusal(kind, body)
    assert refused.status == 400
    assert refused.reason in ("malformed", "field")


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"]
)
def test_other_content_types_are_refused_with_the_list(kind: str | None) -> None:
    """Guessing a format could read users' ids as something else."""
    refused = refusal(kind, b"[]")
    assert (refused.status, refused.reason) == (415, "content-type")
    assert MSGPACK in refused.text


def test_too_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body within its size may still hold more rows than one request may keep the node busy with."""
    monkeypatch.setattr(bodies, "MOST_ROWS", 3)
    refused = refusal(JSON, encoded(JSON, ROWS))
    assert (refused.status, refused.reason) == (413, "too-large")


def test_a_name_made_to_look_like_a_place_cannot_lead_astray() -> None:
    """Rows are read from msgspec's text: an unknown field whose name imitates a place must not name another row."""
    row = {"user": "ann", "region": "north", "x` - at `$[77].user": 1}
    assert refusal(JSON, encoded(JSON, [ROWS[0], row])).text.startswith("row 1: not a check-in")


def test_counts() -> None:
    """Counts made distinct elsewhere, by name of region; what is wrong is refused without repeating a number."""
    body = {"slot": 7, "counts": {"süd": 12, "north": 0}}
    for kind in (JSON, MSGPACK):
        assert decode_counts(kind, encoded(kind, body), REGIONS) == (7, {1: 12, 0: 0})
    assert decode_counts(JSON, b'{"slot":7,"counts":{}}', REGIONS) == (7, {})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"slot":7,"counts":{"west":4711}}', "unknown-region"),
        (b'{"slot":7,"counts":{"north":-4711}}', "field"),
        (b'{"slot":7,"counts":{"north":4711.5}}', "field"),
        (b'{"slot":7,"counts":{"north":true}}', "field"),
        (b'{"slot":7,"counts":{"north":9007199254740993}}', "field"),
        (b'{"slot":-1,"counts":{}}', "field"),
        (b'{"slot":"7","counts":{}}', "field"),
        (b'{"counts":{}}', "field"),
        (b'{"slot":7}', "field"),
        (b'{"slot":7,"counts":[4711]}', "field"),
        (b'{"slot":7,"counts":{},"more":4711}', "field"),
        (b'{"slot":4711', "malformed"),
        (b'{"slot":7,"counts":{"\xff":4711}}', "malformed"),
    ],
)
def test_wrong_counts(body: bytes, reason: str) -> None:
    """A raw count must not come back in an error, where a log could keep it."""
    with pytest.raises(BodyRefused) as caught:
        decode_counts(JSON, body, REGIONS)
    assert (caught.value.status, caught.value.reason) == (400, reason)
    assert "4711" not in caught.value.text
    assert "west" not in caught.value.text
    assert caught.value.__context__ is None
    with pytest.raises(BodyRefused, match="Content-Type"):
        decode_counts(LINES, b"{}", REGIONS)


def test_parts_and_repr() -> None:
    """A slot's part keeps users and regions together; formatting a batch into a log shows nobody."""
    batch = decode_checkins(JSON, encoded(JSON, ROWS), REGIONS)
    assert batch.part(np.array([1, 3])) == ([b"42", "ünal".encode()], [1, 0])
    assert batch.part([0]) == ([b"ann"], [0])
    assert batch.part(np.arange(4)) == (batch.users, batch.regions)
    assert repr(batch) == f"{batch}" == "Batch(...)"


@pytest.mark.parametrize("kind", [JSON, LINES, MSGPACK])
@pytest.mark.parametrize("wrong", [{"user": "ann"}, {"user": "ann", "region": "west"}])
def test_no_more_than_a_thousand_rows_are_named(kind: str, wrong: object) -> None:
    """A body of nothing but mistakes must not get an answer of its own size."""
    refused = refusal(kind, encoded(kind, [wrong] * 1_500))
    assert refused.rows == tuple(range(1_000))


def test_what_is_garbage_behind_a_wrong_row_names_that_row_only() -> None:
    """Looking for further rows must not turn a refusal into an error of the node."""
    assert refusal(JSON, b'[{"user":1.5,"region":"north"},{]').rows == (0,)
    assert refusal(JSON, b'[{"user":1.5,"region":"north"},{"user":"\xff","region":"north"}]').rows == (0, 1)
