"""Check-ins as Arrow tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.node.ingest import arrow
from dpcrowd.node.ingest.batch import ARRIVAL, Batch, BodyRefused
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


@pytest.mark.parametrize(
    ("wrong", "row", "field", "reason"),
    [
        ({"user": pa.array(["ann", None, "bob", "eve"])}, 1, "user", "field"),
        ({"user": pa.array(["ann", "", "bob", "eve"])}, 1, "user", "field"),
        ({"user": pa.array(["ann", "bob", "x" * 1025, "eve"])}, 2, "user", "field"),
        ({"user": pa.array(["ann", "bob", "x" * 1025, "eve"], pa.string_view())}, 2, "user", "field"),
        ({"user": pa.array(["ann", None, "bob", "eve"]).dictionary_encode()}, 1, "user", "field"),
        ({"region": pa.array(["north", "south", "north", None])}, 3, "region", "field"),
        ({"region": pa.array(["north", "x" * 1025, "south", "north"], pa.string_view())}, 1, "region", "field"),
        ({"time": pa.array([None, None, "2026-01-01T00:00:00." + "0" * 1025 + "Z", None])}, 2, "time", "field"),
        ({"region": pa.array(["north", "south", "secret", "north"])}, 2, "region", "unknown-region"),
        ({"region": pa.array(["north", "south", "secret", "north"], pa.string_view())}, 2, "region", "unknown-region"),
        (
            {"region": pa.array(["north", "south", "secret", "north"]).dictionary_encode()},
            2,
            "region",
            "unknown-region",
        ),
        ({"time": pa.array([MILLIS, MILLIS, -1, MILLIS])}, 2, "time", "field"),
        ({"time": pa.array([MILLIS, 2**63, MILLIS, MILLIS], pa.uint64())}, 1, "time", "field"),
        ({"time": pa.array([5, 10**13, 5, 5], pa.timestamp("s", "UTC"))}, 1, "time", "field"),
        ({"time": pa.array(["2026-01-01T00:00:00Z", "2026-01-01T00:00:00", None, None])}, 1, "time", "field"),
    ],
)
def test_wrong_rows(wrong: dict[str, Any], row: int, field: str, reason: str) -> None:
    """As for JSON: the row and the field, and nothing of what was in it."""
    refused = refusal(written(table(**wrong)))
    assert (refused.status, refused.reason) == (400, reason)
    assert refused.text.startswith(f"row {row}: {field}: ")
    assert "secret" not in refused.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": pa.array(["ann", None, "bob", None])},
        {"user": pa.array(["ann", "", "bob", "x" * 1025])},
        {"region": pa.array(["north", "secret", "south", "other"])},
        {"region": pa.array(["north", "secret", "south", "secret"]).dictionary_encode()},
        {"time": pa.array([MILLIS, -1, MILLIS, -2])},
        {"time": pa.array([None, "yesterday", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00"])},
        {"time": pa.array([None, "1969-12-31T23:59:59Z", None, "2263-01-01T00:00:00Z"])},
    ],
)
def test_all_wrong_rows_are_named(wrong: dict[str, Any]) -> None:
    """Whoever sends can leave them out at once, not one a request."""
    assert refusal(written(table(**wrong))).rows == (1, 3)


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
    """A dictionary's values are made into objects whether they are used or not."""
    for values in (pa.array(["north", "x" * 1025]), pa.array(["north", "x" * 1025], pa.large_string())):
        column = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0, 0], pa.int8()), values)
        for name in ("user", "region"):
            refused = refusal(written(table(**{name: column})))
            assert (refused.reason, refused.text[:8]) == ("field", "a row: " + name[0])


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
]


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
        else:
            assert found.status in (400, 413)


def test_many_views_of_one_text_are_refused() -> None:
    """16 bytes a row may each stand for a long text: a small body would become gigabytes."""
    text, size = b"x" * 1000, 70_000
    views = np.zeros(size, dtype=[("length", "<i4"), ("prefix", "S4"), ("buffer", "<i4"), ("offset", "<i4")])
    views["length"], views["prefix"] = len(text), text[:4]
    users = pa.Array.from_buffers(pa.string_view(), size, [None, pa.py_buffer(views), pa.py_buffer(text)])
    body = written(table(users, pa.array(["north"] * size).dictionary_encode()))
    assert len(body) < 2 << 20
    assert refusal(body).reason == "too-large"
