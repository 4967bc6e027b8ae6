"""Check-ins as Arrow tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.node.ingest import arrow
from dpcrowd.node.ingest.batch import ARRIVAL, Batch, BodyRefused, row_text
from dpcrowd.node.ingest.bodies import decode_checkins

pa = pytest.importorskip("pyarrow")

REGIONS = {"north": 0, "south": 1}
USERS, PLACES = ["ann", "bob", "42", "eve"], ["north", "south", "south", "north"]
STREAM, FILE = "application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file"
MILLIS = 1_767_225_600_123


def written(table: Any, kind: str = STREAM, *, rows: int | None = None, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=kind == STREAM)
    new = pa.ipc.new_stream if kind == STREAM else pa.ipc.new_file
    with new(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return bytes(sink.getvalue())


def table(user: Any = USERS, region: Any = PLACES, **more: Any) -> Any:
    return pa.table({"user": user, "region": region, **more})


def refusal(body: bytes, kind: str = STREAM) -> BodyRefused:
    with pytest.raises(BodyRefused) as caught:
        decode_checkins(kind, body, REGIONS)
    assert caught.value.__context__ is None
    return caught.value


@pytest.mark.parametrize("kind", [STREAM, FILE])
@pytest.mark.parametrize("rows", [None, 3])
@pytest.mark.parametrize("how", ["string", "large_string", "string_view", "dictionary"])
def test_text_columns_of_every_kind(kind: str, rows: int | None, how: str) -> None:
    """pandas, polars and Spark write texts in different types and pieces; all mean the same check-ins."""

    def column(values: list[str]) -> Any:
        return pa.array(values).dictionary_encode() if how == "dictionary" else pa.array(values, getattr(pa, how)())

    batch = decode_checkins(kind, written(table(column(USERS), column(PLACES)), kind, rows=rows), REGIONS)
    assert batch.users == [b"ann", b"bob", b"42", b"eve"]
    assert batch.regions == [0, 1, 1, 0]
    assert batch.times_ns is None


def test_pieces_with_other_dictionaries_and_slices() -> None:
    """A dictionary may differ from piece to piece, and a slice keeps values that none of its rows has."""
    first, second = pa.array(["north", "south"]), pa.array(["south", "west", "north"])
    chunks = pa.chunked_array([first.dictionary_encode(), second.dictionary_encode().slice(0, 1)])
    body = written(table(USERS[:3], chunks))
    assert decode_checkins(STREAM, body, REGIONS).regions == [0, 1, 1]
    assert decode_checkins(STREAM, written(table().slice(1, 2)), REGIONS).users == [b"bob", b"42"]


def test_numbers_as_users() -> None:
    """A number means the user of that text, as in JSON."""
    for kind in (pa.int64(), pa.uint64(), pa.int32()):
        assert decode_checkins(STREAM, written(table(pa.array([1, 2, 3, 42], kind))), REGIONS).users[3] == b"42"
    assert decode_checkins(STREAM, written(table(pa.array([5, 5, 6, 5]).dictionary_encode())), REGIONS).users == [
        b"5", b"5", b"6", b"5"
    ]  # fmt: skip


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times(unit: str) -> None:
    """A timestamp of any unit, milliseconds or text; null is the arrival."""
    moment = datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)
    at_ns = 1_767_225_605 * 10**9
    column = pa.array([moment, None, moment, moment], pa.timestamp(unit, "Europe/Berlin"))
    millis = pa.array([at_ns // 10**6, None, at_ns // 10**6, at_ns // 10**6])
    texts = pa.array(["2026-01-01T00:00:05Z", None, "2026-01-01T02:00:05+02:00", "2026-01-01T00:00:05Z"])
    for times in (column, millis, texts):
        batch = decode_checkins(STREAM, written(table(time=times)), REGIONS)
        assert batch.times_ns is not None
        assert batch.times_ns.tolist() == [at_ns, ARRIVAL, at_ns, at_ns]
    assert decode_checkins(STREAM, written(table(time=pa.nulls(4))), REGIONS).times_ns is None


TEXT = "2026-01-01T00:00:00Z"
WRONG = [
    ({"user": pa.array(["ann", None, "bob", "eve"])}, 1, "user"),
    ({"user": pa.array(["ann", "", "bob", "eve"])}, 1, "user"),
    ({"user": pa.array(["ann", "\t \u00a0", "bob", "eve"])}, 1, "user"),
    ({"user": pa.array(["ann", "bob", "x" * 257, "eve"])}, 2, "user"),
    ({"user": pa.array(["ann", "bob", "ü" * 257, "eve"])}, 2, "user"),
    ({"user": pa.array(["ann", "bob", "x" * 1025, "eve"])}, 2, "user"),
    ({"user": pa.array(["ann", "bob", "x" * 1025, "eve"], pa.string_view())}, 2, "user"),
    ({"user": pa.array(["ann", None, "bob", "eve"], pa.string_view())}, 1, "user"),
    ({"user": pa.array(["ann", None, "bob", "eve"], pa.large_string())}, 1, "user"),
    ({"user": pa.array(["ann", None, "bob", "eve"]).dictionary_encode()}, 1, "user"),
    ({"user": pa.array(["ann", "bob", "x" * 1025, "eve"]).dictionary_encode()}, 2, "user"),
    ({"user": pa.array([1, 2, None, 3])}, 2, "user"),
    ({"region": pa.array(["north", "south", "north", None])}, 3, "region"),
    ({"region": pa.array(["north", "", "south", "north"])}, 1, "region"),
    ({"region": pa.array(["north", "x" * 1025, "south", "north"], pa.string_view())}, 1, "region"),
    ({"region": pa.array(["north", None, "south", "north"]).dictionary_encode()}, 1, "region"),
    ({"region": pa.array(["north", "south", "secret", "north"])}, 2, "unknown-region"),
    ({"region": pa.array(["north", "south", "secret", "north"], pa.string_view())}, 2, "unknown-region"),
    ({"region": pa.array(["north", "south", "secret", "north"]).dictionary_encode()}, 2, "unknown-region"),
    ({"time": pa.array([None, None, "2026-01-01T00:00:00." + "0" * 1025 + "Z", None])}, 2, "time"),
    ({"time": pa.array([MILLIS, MILLIS, -1, MILLIS])}, 2, "time"),
    ({"time": pa.array([MILLIS, 2**63, MILLIS, MILLIS], pa.uint64())}, 1, "time"),
    ({"time": pa.array([MILLIS, MILLIS // 1000, MILLIS, None])}, 1, "time"),
    ({"time": pa.array([5, 10**13, 5, 5], pa.timestamp("s", "UTC"))}, 1, "time"),
    ({"time": pa.array([TEXT, "2026-01-01T00:00:00", None, None])}, 1, "time"),
    ({"time": pa.array([TEXT, "", None, None])}, 1, "time"),
    ({"time": pa.array([None, "yesterday", None, None])}, 1, "time"),
    ({"time": pa.array([TEXT, "1969-12-31T23:59:59Z", None, TEXT])}, 1, "time"),
]


@pytest.mark.parametrize("pieces", [None, 3])
@pytest.mark.parametrize(("wrong", "row", "reason"), WRONG)
def test_a_wrong_row_is_left_out_and_named(wrong: dict[str, Any], row: int, reason: str, pieces: int | None) -> None:
    """As for JSON: one person's mistake must not cost the others their check-ins, nor move them to another place."""
    given = table(**wrong)
    rest = [place for place in range(4) if place != row]
    without = pa.concat_tables([given.slice(0, row), given.slice(row + 1)])
    expected = decode_checkins(STREAM, written(without), REGIONS)
    batch = decode_checkins(STREAM, written(given, rows=pieces), REGIONS)
    assert batch.refused == ((row, reason),)
    assert batch.places == rest
    assert (batch.users, batch.regions) == (expected.users, expected.regions)
    assert len(batch.users) == 3
    times = [ARRIVAL] * 3 if expected.times_ns is None else expected.times_ns.tolist()
    assert ([ARRIVAL] * 3 if batch.times_ns is None else batch.times_ns.tolist()) == times
    assert "secret" not in row_text(batch.refused[0])


@pytest.mark.parametrize(
    ("wrong", "reasons"),
    [
        ({"user": pa.array(["ann", None, "bob", None])}, ("user", "user")),
        ({"user": pa.array(["ann", "", "bob", "x" * 1025])}, ("user", "user")),
        ({"region": pa.array(["north", "secret", "south", None])}, ("unknown-region", "region")),
        ({"region": pa.array(["north", "secret", "south", "secret"]).dictionary_encode()}, ("unknown-region",) * 2),
        ({"time": pa.array([MILLIS, -1, MILLIS, -2])}, ("time", "time")),
        ({"time": pa.array([None, "yesterday", TEXT, "2026-01-01T00:00:00"])}, ("time", "time")),
        ({"time": pa.array([None, "1969-12-31T23:59:59Z", None, "2263-01-01T00:00:00Z"])}, ("time", "time")),
        (
            {"user": pa.array(["ann", None, "bob", "eve"]), "time": pa.array([None, -1, None, -2], pa.int64())},
            ("user", "time"),
        ),
    ],
)
def test_all_wrong_rows_are_named(wrong: dict[str, Any], reasons: tuple[str, str]) -> None:
    """Whoever sends them can fix all of them at once, not one per request; a row with two mistakes is named once."""
    batch = decode_checkins(STREAM, written(table(**wrong)), REGIONS)
    assert batch.refused == ((1, reasons[0]), (3, reasons[1]))
    assert batch.places == [0, 2]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.int64()])
@pytest.mark.parametrize("encoded", [False, True])
def test_rows_without_any_user(kind: Any, encoded: bool) -> None:
    """A column of nothing may have no buffers and no dictionary: its rows are refused, the node does not fail."""
    column = pa.array([None] * 4, kind)
    if encoded and kind != pa.string_view():
        column = column.dictionary_encode()
    batch = decode_checkins(STREAM, written(table(user=column)), REGIONS)
    assert batch.refused == tuple((row, "user") for row in range(4))
    assert len(batch) == 0


def test_rows_without_any_region_or_a_right_time() -> None:
    """The same for the other columns; and a wrong time must not become the time of arrival."""
    for region in (pa.array([None] * 4, pa.string()), pa.array([None] * 4, pa.string()).dictionary_encode()):
        batch = decode_checkins(STREAM, written(table(region=region)), REGIONS)
        assert batch.refused == tuple((row, "region") for row in range(4))
    for time in (pa.array(["x", "y", None, "z"]), pa.array([-1, -2, None, 2**60])):
        batch = decode_checkins(STREAM, written(table(time=time)), REGIONS)
        assert batch.refused == ((0, "time"), (1, "time"), (3, "time"))
        assert batch.users == [b"42"]
        assert batch.times_ns is None or batch.times_ns.tolist() == [ARRIVAL]


def test_what_stands_behind_a_null_is_not_looked_at() -> None:
    """The index of a null row may be any number: used, it would be an error of the node, or another person's value."""
    indices = pa.Array.from_buffers(pa.int8(), 4, [pa.py_buffer(bytes([0b1101])), pa.py_buffer(bytes([1, 99, 0, 1]))])
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["north", "south"]))
    for name in ("user", "region"):
        batch = decode_checkins(STREAM, written(table(**{name: column})), REGIONS)
        assert batch.refused == ((1, name),)
    assert batch.regions == [1, 0, 1]


@pytest.mark.parametrize("how", ["string", "large_string", "string_view", "dictionary"])
def test_users_are_normalised(how: str) -> None:
    """A feed that changes its format must not count a person twice, by a space or by another form of an ë."""
    texts = ["Zoë", "Zoe\u0308", " Zoë\n", "ann "]
    column = pa.array(texts).dictionary_encode() if how == "dictionary" else pa.array(texts, getattr(pa, how)())
    batch = decode_checkins(STREAM, written(table(user=column)), REGIONS)
    assert batch.users == ["Zoë".encode()] * 3 + [b"ann"]
    plain = pa.array(["ann", " bob", "42", "eve\t"])
    assert decode_checkins(STREAM, written(table(user=plain)), REGIONS).users == [b"ann", b"bob", b"42", b"eve"]


def test_the_longest_user() -> None:
    """256 characters, however many bytes they take: as in JSON."""
    longest = ["x" * 256, "ü" * 256, "😀" * 256, "e\u0308" * 128]
    assert len(decode_checkins(STREAM, written(table(user=longest)), REGIONS)) == 4
    too_long = ["x" * 257, "ü" * 257, "😀" * 257, "e\u0308" * 128 + "e"]
    assert len(decode_checkins(STREAM, written(table(user=too_long)), REGIONS)) == 0


def test_texts_that_are_not_utf8_are_no_arrow() -> None:
    """pyarrow would hand them over unchecked, and the first one that is read would be an error of the node."""
    offsets = np.arange(5, dtype="<i4")
    texts = pa.Array.from_buffers(pa.string(), 4, [None, pa.py_buffer(offsets), pa.py_buffer(b"a\xffcd")])
    for column in (texts, pa.DictionaryArray.from_arrays(pa.array([0, 2, 0, 0], pa.int8()), texts)):
        refused = refusal(written(table(user=column)))
        assert (refused.status, refused.reason) == (400, "malformed")


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": pa.array([1.0, 2.0, 3.0, 4.0])},
        {"user": pa.array([b"a", b"b", b"c", b"d"])},
        {"user": pa.nulls(4)},
        {"region": pa.array([0, 1, 1, 0])},
        {"time": pa.array([datetime(2026, 1, 1)] * 4)},
        {"time": pa.array([1.0] * 4)},
    ],
)
def test_wrong_types_of_columns(wrong: dict[str, Any]) -> None:
    """A time without a zone would be guessed to be UTC; a region's number could be another network's."""
    refused = refusal(written(table(**wrong)))
    assert (refused.status, refused.reason) == (400, "field")
    assert refused.text.startswith(f"column {next(iter(wrong))}: ")


def test_other_columns_are_refused_by_what_is_allowed() -> None:
    """A misspelt time must not mean the arrival, and what a feed knows besides is none of the node's business."""
    for other in (
        table(name=USERS),
        pa.table({"user": USERS}),
        pa.table([USERS, USERS, PLACES], names=["user", "user", "region"]),
    ):
        refused = refusal(written(other))
        assert (refused.status, refused.reason) == (400, "malformed")
        assert "user, region" in refused.text


@pytest.mark.parametrize("kind", [STREAM, FILE])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_buffers_are_refused(kind: str, codec: str) -> None:
    """A compressed buffer may say that it becomes any size: a small body could take all memory."""
    long = table(pa.array(["ann"] * 5000), pa.array(["north"] * 5000).dictionary_encode())
    assert "compressed" in refusal(written(long, kind, compression=codec), kind).text
    assert len(decode_checkins(kind, written(long, kind), REGIONS)) == 5000


@pytest.mark.parametrize("packed", [1, 2])
def test_one_compressed_message_is_enough(packed: int) -> None:
    """A dictionary alone, or a batch alone, may be the one that grows."""
    long = table(pa.array(["ann"] * 500), pa.array(["north", "x" * 9_000] * 250).dictionary_encode())
    plain, small = written(long), written(long, compression="zstd")
    messages = [list(pa.ipc.MessageReader.open_stream(raw)) for raw in (plain, small)]
    assert [message.type for message in messages[0]] == ["schema", "dictionary", "record batch"]
    sink = pa.BufferOutputStream()
    for place in range(3):
        messages[place == packed][place].serialize_to(sink)
    assert "compressed" in refusal(bytes(sink.getvalue())).text


def test_long_values_that_no_row_has() -> None:
    """A dictionary may hold what no row uses, a slice of a larger table for one: it is nobody's mistake."""
    for kind in (pa.string(), pa.large_string()):
        values = pa.array(["north", "x" * 1025, None, "west"], kind)
        column = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0, 0], pa.int8()), values)
        for name in ("user", "region"):
            batch = decode_checkins(STREAM, written(table(**{name: column})), REGIONS)
            assert (len(batch), batch.refused) == (4, ())


def test_too_many_rows_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one byte each fit into a body by the million."""
    assert (
        len(
            decode_checkins(
                STREAM, written(table([], []).cast(pa.schema({"user": pa.string(), "region": pa.string()}))), REGIONS
            )
        )
        == 0
    )
    monkeypatch.setattr(arrow, "MOST_ROWS", 3)
    refused = refusal(written(table()))
    assert (refused.status, refused.reason) == (413, "too-large")


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without the extra says how to get it, and goes on with other formats."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(BodyRefused, match="pip install") as caught:
        decode_checkins(STREAM, b"", REGIONS)
    assert caught.value.status == 415


_SEEDS = [
    written(table(region=pa.array(PLACES).dictionary_encode(), time=pa.array([MILLIS] * 4))),
    written(table(pa.array(USERS, pa.string_view()))),
    written(table(pa.array(["ann", None, "", "Zoe\u0308"]), time=pa.array([None, TEXT, "x", TEXT]))),
    written(table(pa.array([1, None, 2, 3]), pa.array(["north", None, "west", "south"]).dictionary_encode())),
]


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.sampled_from(_SEEDS),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4),
    st.floats(0, 1),
)
def test_any_bytes_give_a_batch_or_a_refusal(seed: bytes, changes: list[tuple[float, int]], cut: float) -> None:
    """pyarrow trusts offsets in a body unless told to check them: a wrong one would read foreign memory, or crash."""
    body = bytearray(seed)
    for place, value in changes:
        body[int(place * len(body))] = value
    raw = bytes(body[: int(len(body) * cut)] if cut < 0.1 else body)
    for kind in (STREAM, FILE):
        found: Batch | BodyRefused
        try:
            found = decode_checkins(kind, raw, REGIONS)
        except BodyRefused as refused:
            found = refused
        if isinstance(found, Batch):
            assert len(found.users) == len(found.regions)
            assert set(found.regions) <= {0, 1}
            assert all(found.users)
            places = range(len(found)) if found.places is None else found.places
            assert sorted([*places, *(row for row, _ in found.refused)]) == list(range(len(found) + len(found.refused)))
        else:
            assert found.status in (400, 413)


@pytest.mark.parametrize("nulls", [0, 1])
def test_many_views_of_one_text_are_refused(nulls: int) -> None:
    """16 bytes per row may stand for a long text: a small body would become gigabytes; a null makes up for none."""
    text, size = b"x" * 1000, 70_000
    views = np.zeros(size, dtype=[("length", "<i4"), ("prefix", "S4"), ("buffer", "<i4"), ("offset", "<i4")])
    views["length"], views["prefix"] = len(text), text[:4]
    views["length"][:nulls] = -(2**31)
    valid = np.packbits(np.arange(size) >= nulls, bitorder="little")
    buffers = [pa.py_buffer(valid) if nulls else None, pa.py_buffer(views), pa.py_buffer(text)]
    users = pa.Array.from_buffers(pa.string_view(), size, buffers)
    body = written(table(users, pa.array(["north"] * size).dictionary_encode()))
    assert len(body) < 2 << 20
    assert refusal(body).reason == "too-large"
