"""Tables of other libraries as check-ins."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest

from dpcrowd.client.delivery import explanation
from dpcrowd.client.rows import checkin_rows, encode
from dpcrowd.errors import BadInput
from dpcrowd.node.ingest.batch import LONGEST_USER, ROW_REASONS
from dpcrowd.node.ingest.bodies import decode_checkins

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
USERS, REGIONS, TIMES = ["ann", "bob"], ["north", "south"], [AT, None]
SECRET = "somebody-whom-nobody-may-know"


def sent(*given: Any) -> Any:
    checkins = checkin_rows(*given, *[None] * (3 - len(given)))
    if checkins.wrong:
        raise checkins.problem()
    return msgspec.msgpack.decode(encode(checkins.rows, "msgpack"))


EXPECTED = sent([{"user": "ann", "region": "north", "time": AT}, {"user": "bob", "region": "south"}])


def tables(library: str, columns: dict[str, Any]) -> list[Any]:
    made = pytest.importorskip(library)
    if library == "pyarrow":
        table = made.table(columns)
        return [table, table.combine_chunks().to_batches()[0], {name: table[name] for name in columns}]
    frame = made.DataFrame(columns)
    return [frame, {name: frame[name] for name in columns}]


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
@pytest.mark.slow
def test_tables_say_the_same_as_rows(library: str) -> None:
    """Whoever has a table would otherwise have to take it apart; nothing is a row without a time."""
    for table in tables(library, {"user": USERS, "region": REGIONS, "time": TIMES}):
        assert sent(table) == EXPECTED
    for table in tables(library, {"region": REGIONS, "user": [1, 2]}):
        assert sent(table) == [{"user": 1, "region": "north"}, {"user": 2, "region": "south"}]


def test_pandas() -> None:
    """Texts, categories and times of pandas' own classes."""
    pandas = pytest.importorskip("pandas")
    for table in tables("pandas", {"user": USERS, "region": REGIONS}):
        assert sent(table) == [{"user": "ann", "region": "north"}, {"user": "bob", "region": "south"}]
    frame = pandas.DataFrame({"user": USERS, "region": REGIONS, "time": [AT, AT]}, index=[5, 9])
    frame["region"] = frame["region"].astype("category")
    assert [row["time"] for row in sent(frame)] == [EXPECTED[0]["time"]] * 2
    frame["time"] = frame["time"].dt.tz_localize(None)  # as numpy's, which are UTC
    assert [row["time"] for row in sent(frame)] == [int(AT.timestamp() * 1000)] * 2


def test_arrow_s_nanoseconds_and_dictionaries() -> None:
    """pyarrow itself refuses to give Python a time with nanoseconds, and quotes the row."""
    pyarrow = pytest.importorskip("pyarrow")
    stamps = pyarrow.array([int(AT.timestamp()) * 10**9 + 1, None], pyarrow.timestamp("ns", "UTC"))
    regions = pyarrow.array(REGIONS).dictionary_encode()
    assert sent(pyarrow.table({"user": USERS, "region": regions, "time": stamps})) == EXPECTED
    assert sent(pyarrow.array(USERS), pyarrow.chunked_array([["north"], ["south"]]), stamps) == EXPECTED


def test_a_dict_of_columns() -> None:
    """Lists and arrays; one region stands for all."""
    assert sent({"user": np.array(USERS), "region": "north"}) == sent(USERS, "north")
    assert sent({"user": [], "region": []}) == []


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize(
    "columns",
    [
        {"user": [SECRET]},
        {"user": [SECRET], "region": ["north"], "mood": [SECRET]},
        {SECRET: ["ann"], "region": ["north"]},
        {"user": [SECRET, None], "region": ["north", "south"]},
        {"user": [SECRET], "region": ["north"], "time": [datetime(2026, 1, 1, 1, 1, 1, 1)]},
        {"user": [SECRET], "region": ["north"], "time": [1.5]},
    ],
)
def test_tables_that_are_not_of_check_ins(library: str, columns: dict[str, Any]) -> None:
    """One line, and nobody in it, not even as the name of a column; a time without a zone is somebody's guess."""
    for table in tables(library, columns):
        if library == "pandas" and isinstance(columns.get("time", [0])[0], datetime):
            continue  # of numpy's type, which is UTC
        with pytest.raises(BadInput) as refused:
            sent(table)
        assert SECRET not in str(refused.value)
        assert refused.value.__context__ is None


@pytest.mark.parametrize("given", [{"user": "ann", "region": "north"}, {"user": 5, "region": "north"}, "ann", 5, None])
def test_one_value_is_no_table(given: Any) -> None:
    """A single check-in without its list is a slip that can be told."""
    with pytest.raises(BadInput, match="users is a single value"):
        sent(given)


def test_a_table_has_its_regions() -> None:
    """Two columns of regions: one of them would be dropped without a word."""
    with pytest.raises(BadInput, match="beside a table"):
        sent({"user": USERS, "region": REGIONS}, "north")
    polars = pytest.importorskip("polars")
    with pytest.raises(BadInput):
        sent(polars.LazyFrame({"user": USERS, "region": REGIONS}))


@pytest.mark.slow
def test_no_library_is_imported_for_it() -> None:
    """pandas alone takes half a second and 60 MB."""
    code = (
        "import sys; from dpcrowd.client.rows import checkin_rows as c;"
        "c(['a'], 'north', None); c([{'user': 1, 'region': 'n'}], None, None);"
        "c({'user': [1], 'region': 'n'}, None, None);"
        "assert not {'pandas', 'polars', 'pyarrow'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("length", [0, 1, LONGEST_USER, LONGEST_USER + 1])
def test_client_and_node_agree_on_the_length_of_a_user_id(length: int) -> None:
    """With a shorter limit the client withholds rows that the node accepts; with a longer one it sends rows in vain."""
    row = {"user": "x" * length, "region": "north"}
    here = checkin_rows([row], None, None)
    there = decode_checkins("application/json", msgspec.json.encode([row]), {"north": 0})
    assert here.wrong == list(there.refused)
    if here.wrong:
        assert f"1 to {LONGEST_USER} characters" in str(here.problem())


@pytest.mark.parametrize("reason", ROW_REASONS)
def test_every_row_reason_of_a_node_is_explained(reason: str) -> None:
    """Whoever runs `dpcrowd feed` would see a word without its meaning."""
    assert explanation(reason).startswith(f"{reason}: ")
