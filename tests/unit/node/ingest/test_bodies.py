"""Bodies of check-ins and counts in JSON, NDJSON and MessagePack."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from dpcrowd.node.ingest import bodies
from dpcrowd.node.ingest.batch import ARRIVAL, BodyRefused, hash_users, row_text
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


WRONG = [
    ({"user": "ann", "region": "west"}, "unknown-region"),
    ({"user": "ann", "region": ""}, "unknown-region"),
    ({"user": "ann", "region": 0}, "region"),
    ({"user": "ann"}, "region"),
    ({"region": "north"}, "user"),
    ({}, "user"),
    ({"user": "", "region": "north"}, "user"),
    ({"user": " \t ", "region": "north"}, "user"),
    ({"user": "\u2003\u00a0", "region": "north"}, "user"),
    ({"user": "a" * 257, "region": "north"}, "user"),
    ({"user": 1.5, "region": "north"}, "user"),
    ({"user": True, "region": "north"}, "user"),
    ({"user": None, "region": "north"}, "user"),
    ({"user": ["ann"], "region": "north"}, "user"),
    ({"user": "ann", "region": "north", "time": "2026-01-01T00:00:00"}, "time"),
    ({"user": "ann", "region": "north", "time": "yesterday"}, "time"),
    ({"user": "ann", "region": "north", "time": 1.5}, "time"),
    ({"user": "ann", "region": "north", "time": -1}, "time"),
    ({"user": "ann", "region": "north", "time": 2**62}, "time"),
    ({"user": "ann", "region": "north", "time": "1969-12-31T23:59:59Z"}, "time"),
    ({"user": "ann", "region": "north", "time": "2262-12-31T23:59:59Z"}, "time"),
    ({"user": "ann", "region": "north", "tmie": 5}, "malformed"),
    (["ann", "north"], "malformed"),
    ("ann", "malformed"),
    (None, "malformed"),
]


@pytest.mark.parametrize("kind", [JSON, LINES, MSGPACK])
@pytest.mark.parametrize(("row", "reason"), WRONG)
def test_a_wrong_row_is_left_out_and_named(kind: str, row: object, reason: str) -> None:
    """One person's mistake must not cost the others their check-ins, nor be counted as something else."""
    batch = decode_checkins(kind, encoded(kind, [row, *ROWS, row, ROWS[0], row]), REGIONS)
    assert batch.refused == ((0, reason), (5, reason), (7, reason))
    assert batch.users == [b"ann", b"42", b"42", "ünal".encode(), b"ann"]
    assert batch.regions == [0, 1, 0, 0, 0]
    assert batch.places == [1, 2, 3, 4, 6]
    assert batch.times_ns is not None
    assert batch.times_ns.tolist() == [ARRIVAL, 1_767_225_600_123_000_000, 1_767_225_600_500_000_000, ARRIVAL, ARRIVAL]


@pytest.mark.parametrize("kind", [JSON, LINES, MSGPACK])
@pytest.mark.parametrize(("row", "reason"), WRONG)
def test_nothing_is_left_of_a_body_of_wrong_rows(kind: str, row: object, reason: str) -> None:
    """Who sends nothing that can be taken learns why; the text names the field and repeats nothing of the row."""
    batch = decode_checkins(kind, encoded(kind, [row]), REGIONS)
    assert (len(batch), batch.refused) == (0, ((0, reason),))
    text = row_text(batch.refused[0])
    assert text.startswith("row 0: ")
    assert text.endswith(".")
    field = {"unknown-region": "region", "malformed": "no other field"}.get(reason, reason)
    assert field in text
    assert "ann" not in text
    assert "west" not in text


@pytest.mark.parametrize("kind", [JSON, LINES, MSGPACK])
def test_every_wrong_row_has_its_own_reason(kind: str) -> None:
    """A feed must learn which rows to mend, and what in each."""
    rows: list[object] = []
    for row, _ in WRONG:
        rows += [row, ROWS[0]]
    batch = decode_checkins(kind, encoded(kind, rows), REGIONS)
    assert batch.refused == tuple((2 * place, reason) for place, (_, reason) in enumerate(WRONG))
    assert batch.users == [b"ann"] * len(WRONG)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b""),
        (JSON, b"[{]"),
        (JSON, b'[{"user":1.5,"region":"north"},{]'),
        (JSON, b'{"user":"ann","region":"north"}'),
        (JSON, b'[{"user":"ann","region":"north"}] []'),
        (JSON, b"[" * 100_000),
        (MSGPACK, b"\xdd\xff\xff\xff\xff"),
        (MSGPACK, b"\x82\xa4user\xa1a\xa6region\xa5north"),
        (MSGPACK, b"\xc1"),
    ],
)
def test_bytes_that_are_not_the_format(kind: str, body: bytes) -> None:
    """Without rows nothing can be taken: that is the client's mistake, 400 with a reason, not an error of the node."""
    refused = refusal(kind, body)
    assert (refused.status, refused.reason) == (400, "malformed")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b'[{"user":"eve","region":"north"},{"user":"\xff","region":"north"}]'),
        (JSON, b'[{"user":"eve","region":"north"},{"user":"\\ud83d","region":"north"}]'),
        (JSON, b'[{"user":"eve","region":"north"},{"user":"\\uDE00\\uD83D","region":"north"}]'),
        (LINES, b'{"user":"eve","region":"north"}\n{"user":"\\ud83d","region":"north"}'),
        (LINES, b'{"user":"eve","region":"north"}\n{"user":'),
        (LINES, b'{"user":"eve","region":"north"}\n[{"user":"ann","region":"north"}]\n'),
        (LINES, b'{"user":"eve","region":"north"}\n\xff'),
        (MSGPACK, b"\x92\x82\xa4user\xa3eve\xa6region\xa5north\x82\xa4user\xa2\xff\xfe\xa6region\xa5north"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused_alone(kind: str, body: bytes) -> None:
    """A name that was cut off in the middle of an emoji must not cost all others of the body their check-ins."""
    batch = decode_checkins(kind, body, REGIONS)
    assert (batch.users, batch.refused) == ([b"eve"], ((1, "malformed"),))


def test_pairs_of_surrogates_are_read_as_one_character() -> None:
    """JSON writes an emoji in two halves: beside a row with one half only, the others have to stay whole."""
    rows = [r'{"user":"\ud83d\ude00","region":"north"}', r'{"user":"\\ud83d","region":"north"}']
    good = decode_checkins(JSON, f"[{','.join(rows)}]".encode(), REGIONS)
    assert good.users == ["😀".encode(), rb"\ud83d"]
    mixed = decode_checkins(JSON, f'[{",".join(rows)},{{"user":"\\ud83d","region":"north"}}]'.encode(), REGIONS)
    assert (mixed.users, mixed.refused) == (good.users, ((2, "malformed"),))


@pytest.mark.parametrize(
    "line",
    [
        b'{"user":"ann","region":"north"} {"user":"bob","region":"north"}',
        b'{"user":"ann","region":"north"}\r{"user":"bob","region":"north"}',
        b'{"user":"ann",\n"region":"north"}',
    ],
)
@pytest.mark.parametrize("more", [b"", b'{"user":"eve","region":"north"}\n', b'{"user":"eve"}\n'])
def test_a_row_is_a_line_whatever_the_others_are(line: bytes, more: bytes) -> None:
    """If rows that share a line were taken while all others are right, another's mistake would decide about them."""
    batch = decode_checkins(LINES, more + line, REGIONS)
    assert set(batch.users) <= {b"eve"}
    assert {reason for row, reason in batch.refused if row >= bool(more)} == {"malformed"}


def test_line_ends_of_every_kind() -> None:
    """Windows, a last line without its end, and empty lines, which are no rows."""
    good, bad = b'{"user":"ann","region":"north"}', b'{"user":"ann"}'
    for lines in ([good, good], [good, good, b""], [b"", good, b" ", good, b"", b""]):
        for end in (b"\n", b"\r\n"):
            assert len(decode_checkins(LINES, end.join(lines), REGIONS)) == 2
    assert decode_checkins(LINES, b"\r\n\r\n".join([good, bad, good]), REGIONS).refused == ((1, "region"),)


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"]
)
def test_other_content_types_are_refused_with_the_list(kind: str | None) -> None:
    """Guessing a format could read users' ids as something else."""
    refused = refusal(kind, b"[]")
    assert (refused.status, refused.reason) == (415, "content-type")
    assert MSGPACK in refused.text


@pytest.mark.parametrize("rows", [ROWS, [*ROWS[:3], {}]])
@pytest.mark.parametrize("kind", [JSON, LINES, MSGPACK])
def test_too_many_rows(kind: str, rows: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """A body within its size may still hold more rows than one request may keep the node busy with, good or bad."""
    monkeypatch.setattr(bodies, "MOST_ROWS", 3)
    refused = refusal(kind, encoded(kind, rows))
    assert (refused.status, refused.reason) == (413, "too-large")


@pytest.mark.parametrize("name", ["x` - at `$.user", "x` - at `$[77].user", "Object missing required field `user`"])
def test_a_name_made_to_look_like_a_place_cannot_lead_astray(name: str) -> None:
    """Reasons are read from msgspec's text: an unknown field whose name imitates it must not name another field."""
    row = {"user": "ann", "region": "north", name: 1}
    assert decode_checkins(JSON, encoded(JSON, [ROWS[0], row]), REGIONS).refused == ((1, "malformed"),)


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
    key = bytes(32)
    for rows in ([1, 3], [0], [0, 1, 2, 3]):
        part = batch.hashed(np.array(rows), key)
        assert part.rows == rows
        assert part.users == hash_users([batch.users[row] for row in rows], key)
        assert part.regions == [batch.regions[row] for row in rows]
    assert repr(batch) == f"{batch}" == "Batch(...)"


def test_refused_rows_are_told_by_their_place_in_the_body() -> None:
    """Rows that are late are known by their place among those that are left: the sender knows only the body."""
    batch = decode_checkins(JSON, encoded(JSON, [{}, ROWS[0], "x", ROWS[0], ROWS[0]]), REGIONS)
    assert batch.in_body([]) == [(0, "user"), (2, "malformed")]
    assert batch.in_body([(0, "late"), (2, "future")]) == [(0, "user"), (1, "late"), (2, "malformed"), (4, "future")]
    whole = decode_checkins(JSON, encoded(JSON, ROWS), REGIONS)
    assert whole.places is None
    assert whole.in_body([(3, "late")]) == [(3, "late")]


def test_counts_that_add_up_to_too_much_are_refused() -> None:
    """A server takes less than 2^53 people in all regions: refused at the seal only, they would stop the node."""
    many = {f"r{number}": number for number in range(2**13)}
    body = {"slot": 7, "counts": dict.fromkeys(many, 2**40)}
    with pytest.raises(BodyRefused) as caught:
        decode_counts(JSON, encoded(JSON, body), many)
    assert (caught.value.status, caught.value.reason) == (400, "field")
    assert str(2**40) not in caught.value.text
    body["counts"]["r0"] -= 1
    assert decode_counts(JSON, encoded(JSON, body), many)[0] == 7


def test_the_largest_count_is_named() -> None:
    """ "A whole number >= 0" does not tell whoever sent 10^15 what is wrong; the number itself is not repeated."""
    with pytest.raises(
        BodyRefused, match=r"gives regions a whole number from 0 to 1,099,511,627,776, and no"
    ) as refused:
        decode_counts(JSON, b'{"slot":7,"counts":{"north":1000000000000000}}', REGIONS)
    assert "000000" not in str(refused.value)
    assert decode_counts(JSON, b'{"slot":7,"counts":{"north":1099511627776}}', REGIONS) == (7, {0: 2**40})
