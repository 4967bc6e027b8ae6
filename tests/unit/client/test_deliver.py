"""Check-ins to a node that refuses some of them: the others arrive, in their order, and each refusal is told once."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import JSONResponse

import dpcrowd
from client_support import FUTURE, LATE, NewNode, OldNode, inside, serving
from dpcrowd.client import (
    Delivery,
    NodeBusy,
    NodeError,
    NodeFailed,
    NodeUnreachable,
    NotAllowed,
    NotTaken,
    RefusedRow,
    RequestRefused,
    RowsRefused,
)
from dpcrowd.client import deliver as module
from dpcrowd.errors import BadInput, DpcrowdError
from examples_support import examples

BAD: dict[str, dict[str, Any]] = {
    "late": {"time": LATE},
    "future": {"time": FUTURE},
    "unknown-region": {"region": "nowhere"},
    "time": {"time": "yesterday"},
}
"""What a node has to find out: nobody else can."""
HERE: dict[str, dict[str, Any]] = {"user": {"user": ""}, "region": {"region": 5}, "malformed": {"mood": "good"}}
"""What the client can tell without asking."""
NODES: dict[str, Callable[[], NewNode]] = {"new": NewNode, "0.1.0": OldNode, "names one": lambda: OldNode(names=1)}


def rows_of(wrong: dict[int, str], size: int = 40) -> list[dict[str, Any]]:
    """Rows whose users are their numbers; some of them are wrong for a reason."""
    return [
        {"user": row, "region": "north", **(BAD | HERE)[wrong[row]]}
        if row in wrong
        else {"user": row, "region": "north"}
        for row in range(size)
    ]


def send(node: Any, *given: Any, **options: Any) -> Delivery:
    async def run() -> Delivery:
        settings = {name: options.pop(name) for name in ("retries", "patience") if name in options}
        async with inside(node, **settings) as client:
            return await client.checkin(*given, **options)

    return asyncio.run(run())


def failure(node: Any, *given: Any, **options: Any) -> Any:
    with pytest.raises(DpcrowdError) as caught:
        send(node, *given, **options)
    return caught.value


@pytest.mark.parametrize("kind", NODES)
@settings(max_examples=examples(60))
@given(st.dictionaries(st.integers(0, 18), st.sampled_from([*BAD, *HERE])), st.sampled_from([1, 7, 1000]))
@pytest.mark.slow
def test_every_row_that_can_be_taken_is_taken(kind: str, wrong: dict[int, str], batch: int) -> None:
    """One late row once cost the 999 others of its request; out of order, the wrong region of a user would win."""
    node = NODES[kind]()
    good = [row for row in range(20) if row not in wrong]
    delivery = send(node, rows_of(wrong, 20), batch=batch)
    assert node.taken == good
    assert (delivery.accepted, delivery.refused_count) == (len(good), len(wrong))
    assert [refused.row for refused in delivery.refused] == sorted(wrong)
    if kind == "new":
        assert dict(delivery.refused) == wrong


def test_a_node_that_names_no_row_is_asked_for_halves() -> None:
    """Whatever a node of 0.1.0 does not name is found by cutting, and in few requests."""
    node = OldNode(lambda row: "mixed" if row["user"] == 17 else None)
    delivery = send(node, rows_of({}))
    assert node.taken == [row for row in range(40) if row != 17]
    assert delivery.refused == (RefusedRow(17, "mixed"),)
    assert len(node.sizes) < 15


def test_one_request_is_enough_where_the_node_names_the_rows() -> None:
    """A thousand rows, each refused by a request of its own, would take longer than the slot."""
    wrong = {3: "late", 7: "unknown-region", 9: "time"}
    node = NewNode()
    send(node, rows_of(wrong))
    assert node.sizes == [40], "nothing that was taken is sent again"
    old = OldNode()
    send(old, rows_of(wrong))
    assert old.sizes == [40, 39, 38, 37]
    none = NewNode()
    failure(none, rows_of(dict.fromkeys(range(40), "late")))
    assert none.sizes == [40], "a node that has judged every row is not asked again"


def test_a_node_that_refuses_everything_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it answers, and whichever rows it names: nobody is left out without a word."""
    monkeypatch.setattr(module, "_MOST_REQUESTS", 7)

    class Contrary(NewNode):
        def judged(self, rows: list[Any]) -> JSONResponse:
            return self.refusal(400, "field", rows=[-1, 99_999])

    node = Contrary()
    error = failure(node, rows_of({}))
    assert [refused.row for refused in error.delivery.refused] == list(range(40))
    assert len(node.sizes) <= 7 + 8, "after the last one whatever still waits is sent once"


def test_of_several_wrong_fields_only_the_first_is_known() -> None:
    """The sentence of a 0.1.0 node is of one row: told of another, somebody would correct the wrong field."""
    delivery = send(OldNode(), rows_of({2: "time", 5: "time", 7: "late"}))
    assert delivery.refused == (RefusedRow(2, "time"), RefusedRow(5, "field"), RefusedRow(7, "late"))


def test_more_are_refused_than_a_node_names() -> None:
    """It names a thousand of a request; how many there were is told all the same."""
    wrong = dict.fromkeys(range(0, 2400, 2), "late")
    delivery = send(NewNode(), rows_of(wrong, 2400))
    assert (delivery.accepted, delivery.refused_count, len(delivery.refused)) == (1200, 1200, 1000)
    none = NewNode()
    error = failure(none, rows_of(dict.fromkeys(range(2400), "late"), 2400))
    assert (error.delivery.refused_count, len(error.rows), none.sizes) == (2400, 1000, [2400])
    small = send(NewNode(), rows_of(wrong, 2400), batch=1000)
    assert (small.refused_count, len(small.refused)) == (1200, 1200)


@pytest.mark.parametrize("node", [NewNode(), OldNode()])
def test_a_row_that_is_wrong_here_does_not_stop_the_others(node: NewNode) -> None:
    """A typing mistake in a list of a thousand; numbers are those of the list that was given."""
    delivery = send(node, rows_of({0: "user", 3: "late", 5: "malformed", 6: "region", 39: "unknown-region"}), batch=10)
    told = [(0, "user"), (3, "late"), (5, "malformed"), (6, "region"), (39, "unknown-region")]
    assert list(delivery.refused) == told
    assert delivery.accepted == len(node.taken) == 35


def test_where_no_row_is_taken_the_error_is_that_of_0_1_0() -> None:
    """A program of 0.1.0 catches these classes, and reads these attributes."""
    error = failure(NewNode(), rows_of({0: "unknown-region", 1: "late"}, 2))
    assert (type(error), error.status, error.reason, error.rows) == (RequestRefused, 400, "unknown-region", [0, 1])
    error = failure(OldNode(), rows_of({0: "late", 1: "late"}, 2))
    assert (type(error), error.status, error.reason, error.rows, error.taken) == (NotTaken, 409, "late", [0, 1], 0)
    assert isinstance(failure(NewNode(), rows_of({0: "user", 1: "region"}, 2)), BadInput)
    error = failure(NewNode(), rows_of({0: "user", 1: "late"}, 2))
    assert (type(error), error.rows) == (NotTaken, [0, 1])
    assert error.text == "row 1: no.", "the row of the list, not of the request"


def test_a_batch_that_is_refused_whole_does_not_stop_the_next() -> None:
    """The hour that came too late must not cost the hour that did not."""
    node = NewNode()
    delivery = send(node, rows_of(dict.fromkeys(range(10), "late")), batch=10)
    assert (delivery.accepted, delivery.refused_count) == (30, 10)


def test_what_is_returned_is_a_number_as_in_0_1_0() -> None:
    """`sent += client.checkin(...)`, `== len(rows)`, a log line or a JSON document of such a program still work."""
    all_of_them = send(NewNode(), ["ann", "bob"], "north")
    assert all_of_them == 2
    some = send(NewNode(), rows_of({3: "late"}))
    assert some + all_of_them == 41
    assert (str(some), f"{some:d}", json.dumps(some)) == ("39", "39", "39")
    assert repr(some) == "Delivery(accepted=39, refused=(RefusedRow(row=3, reason='late'),), refused_count=1)"
    for copied in (pickle.loads(pickle.dumps(some)), copy.copy(some), copy.deepcopy(some)):
        assert (copied, copied.refused, copied.refused_count) == (39, some.refused, 1)
    with pytest.raises(AttributeError):
        some.accepted = 5  # type: ignore[misc]
    assert not send(NewNode(), [])


def test_strict_delivers_first_and_then_raises() -> None:
    """Whoever must not lose a row without noticing; the others are taken nevertheless."""
    node = NewNode()
    error = failure(node, rows_of({3: "late", 7: "unknown-region"}), strict=True)
    assert isinstance(error, RowsRefused)
    assert len(node.taken) == error.delivery.accepted == 38
    assert error.rows == [3, 7]
    assert str(error) == "refused: row 3 (late), row 7 (unknown-region); all other rows were taken."
    many = failure(NewNode(), rows_of(dict.fromkeys(range(9), "late")), strict=True)
    assert str(many).startswith("refused: row 0 (late), ")
    assert str(many).endswith("row 4 (late) and 4 more (see `delivery`); all other rows were taken.")
    assert isinstance(failure(NewNode(), rows_of({0: "late"}, 1), strict=True), NotTaken)
    assert send(NewNode(), rows_of({}), strict=True) == 40
    assert isinstance(failure(NewNode(), rows_of({3: "user"}), strict=True), RowsRefused)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.delivery.refused) == (RowsRefused, str(error), error.delivery.refused)


AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOME = {"user": ["ann", None, "cid", "dan"], "region": ["north", "north", "nowhere", "south"]}


@pytest.mark.parametrize("node", [NewNode(), OldNode()])
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "numpy", "lists", "lines"])
def test_tables_of_every_library(library: str, node: NewNode) -> None:
    """A hole in one row of a table once made the whole table one that is not of check-ins."""
    if library == "lists":
        given: Any = SOME
    elif library == "numpy":
        given = {name: np.array(column, dtype=object) for name, column in SOME.items()}
    elif library == "lines":
        rows = zip(SOME["user"], SOME["region"], strict=True)
        given = [json.dumps({"user": user, "region": region}) + "\n" for user, region in rows]
    else:
        made = pytest.importorskip(library)
        given = made.table(SOME) if library == "pyarrow" else made.DataFrame(SOME)
    node.taken.clear()
    delivery = send(node, given)
    assert node.taken == ["ann", "dan"]
    assert delivery.refused == (RefusedRow(1, "user"), RefusedRow(2, "unknown-region"))


def test_times_that_are_none() -> None:
    """One entry that is not a time, or not one that Python can hold, is one row."""
    stamps = np.array([AT.replace(tzinfo=None), "NaT", AT.replace(tzinfo=None)], dtype="datetime64[ns]")
    users = ["ann", "bob", "cid"]
    told = (RefusedRow(1, "time"),)
    assert send(NewNode(), users, "north", stamps).refused == told
    assert send(NewNode(), stamps, "north").refused == (RefusedRow(1, "user"),)
    pandas = pytest.importorskip("pandas")
    for column in (pandas.Series(stamps), pandas.Series(stamps).dt.tz_localize("UTC")):
        assert send(NewNode(), users, "north", column).refused == told
    now = int(AT.timestamp()) * 10**6
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    far = polars.Series([now, 2**62, now]).cast(polars.Datetime("us", "UTC"))
    assert send(NewNode(), users, "north", far).refused == told
    assert send(NewNode(), users, "north", pyarrow.array([now, 2**62, now], pyarrow.timestamp("us", "UTC"))) == 2


def test_lines_of_ndjson() -> None:
    """An open file is a list of lines; an empty one is not a check-in, nor a wrong one."""
    lines = ['{"user": "ann", "region": "north"}\n', "\n", b'{"user": 5, "region": "south"}\n', "{", '["ann"]', b"\xff"]
    node = NewNode()
    delivery = send(node, lines)
    assert node.taken == ["ann", 5]
    assert list(delivery.refused) == [(3, "malformed"), (4, "malformed"), (5, "malformed")]


def test_a_request_that_is_sent_again_counts_nobody_twice() -> None:
    """The answer was lost, not the rows: the node counts distinct users, and the delivery counts rows once."""
    node = NewNode()
    lost = 1

    class Forgetful(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            nonlocal lost
            answer = await httpx.ASGITransport(app=node).handle_async_request(request)
            if lost:
                lost -= 1
                raise httpx.ReadError("gone", request=request)
            return answer

    delivery = send(Forgetful(), rows_of({3: "late"}), batch=20)
    assert node.sizes == [20, 20, 20]
    assert (delivery.accepted, delivery.refused) == (39, (RefusedRow(3, "late"),))
    assert sorted(set(node.taken)) == [row for row in range(40) if row != 3]


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_node_is_asked_again_when_it_says(status: int) -> None:
    """A limit on requests, or a disk that is behind: it passes, and the wait is the node's own."""
    node = NewNode()
    node.failures = [None, (status, {"retry-after": "0"}), (status, {"retry-after": "0"})]
    assert send(node, rows_of({3: "late"}), batch=20).accepted == 39
    assert node.sizes == [20, 20, 20, 20]


def test_a_failure_on_the_way_says_where_to_go_on() -> None:
    """What was taken is not lost, what was refused is told, and the rest can be sent later."""
    node = NewNode()
    node.failures = [None, None, (503, {"retry-after": "3600"})]
    rows = rows_of({3: "late", 12: "late", 25: "user", 33: "late"})
    error = failure(node, rows, batch=10)
    assert isinstance(error, NodeBusy)
    assert (error.taken, error.retry_after) == (20, 3600.0)
    assert error.delivery.accepted == 18
    assert list(error.delivery.refused) == [(3, "late"), (12, "late"), (25, "user")]
    assert str(error).startswith("rows from 20 on were not taken: ")
    rest = send(node, rows[error.taken :], batch=10)
    assert node.taken == [row for row in range(40) if row not in (3, 12, 25, 33)]
    assert list(rest.refused) == [(5, "user"), (13, "late")]


def test_an_old_node_that_goes_away_between_two_tries() -> None:
    """It had named rows already: they are told with the failure, and everything else is still to be sent."""
    node = OldNode()
    node.failures = [None, (503, {"retry-after": "3600"})]
    error = failure(node, rows_of({3: "late"}))
    assert (error.taken, error.delivery.accepted, list(error.delivery.refused)) == (0, 0, [(3, "late")])


def test_bodies_that_are_too_large() -> None:
    """A body is halved, and so are those after it; a single row that does not fit is named, and the others go on."""
    node = NewNode()
    node.most = 12
    assert send(node, rows_of({3: "late"})).refused == (RefusedRow(3, "late"),)
    assert node.sizes == [40, 20, 10, 10, 10, 10]
    assert node.taken == [row for row in range(40) if row != 3]

    class Narrow(NewNode):
        def judged(self, rows: list[Any]) -> JSONResponse:
            big = any(row["user"] == 17 for row in rows)
            return self.refusal(413, "too-large") if big else super().judged(rows)

    assert send(Narrow(), rows_of({})).refused == (RefusedRow(17, "too-large"),)


@pytest.mark.parametrize("status", [401, 403, 404, 405, 415, 500])
def test_what_is_not_about_rows_is_not_asked_again(status: int) -> None:
    """A path that does not exist once made a feed leave out every single line."""
    node = NewNode()
    node.failures = [(status, {})] * 50
    error = failure(node, rows_of({}))
    assert isinstance(error, NodeError)
    assert (error.status, len(node.sizes), error.delivery.refused_count) == (status, 1, 0)
    if status == 403:
        assert isinstance(error, NotAllowed)


def answering(content: bytes, status: int = 207) -> httpx.MockTransport:
    return httpx.MockTransport(lambda _: httpx.Response(status, content=content))


def test_what_a_stranger_answers() -> None:
    """Rows that were not sent, one row twice, a reason that draws on a terminal, and numbers that do not fit."""
    refused = (
        b'[{"row":-1,"reason":"a"},{"row":1,"reason":"b\\u001b[31m"},{"row":1,"reason":"c"},{"row":9,"reason":"d"}]'
    )
    odd = send(
        answering(b'{"taken":true,"accepted":2,"refused":' + refused + b',"refused_count":77}'), [1, 2, 3], "north"
    )
    assert (odd.accepted, odd.refused_count) == (2, 1)
    assert odd.refused == (RefusedRow(1, "b [31m"),)
    for content in (b"<html>", b"{}", b'{"accepted": "x"}', b'{"taken":true,"accepted":5}'):
        error = failure(answering(content), [1, 2, 3], "north")
        assert (error.reason, error.delivery.accepted) == ("not-a-node", 0)
    for status in (400, 409, 413):
        error = failure(answering(b"<html>", status), [1, 2, 3], "north")
        assert (type(error), error.delivery.refused) == (NodeFailed, ()), "a proxy's page is no row's fault"


def test_an_answer_of_success_is_read_to_the_end() -> None:
    """Whatever its status: rows that the node names were not taken."""
    content = b'{"taken":true,"accepted":2,"refused":[{"row":1,"reason":"late"}],"refused_count":1}'
    for status in (202, 207):
        assert send(answering(content, status), [1, 2, 3], "north").refused == (RefusedRow(1, "late"),)
    assert send(answering(b'{"taken":true}', 202), [1, 2, 3], "north") == 3


def test_the_client_without_asyncio() -> None:
    """The same steps over a socket."""
    node = NewNode()
    with serving(node) as served, dpcrowd.Client(served.url) as client:
        delivery = client.checkin(rows_of({3: "late"}), batch=20)
        assert delivery.refused == (RefusedRow(3, "late"),)
        with pytest.raises(RowsRefused):
            client.checkin(rows_of({3: "late"}), strict=True)
    with dpcrowd.Client(served.url, retries=0) as client, pytest.raises(NodeUnreachable) as gone:
        client.checkin(rows_of({3: "user"}))
    assert list(gone.value.delivery.refused) == [(3, "user")]
