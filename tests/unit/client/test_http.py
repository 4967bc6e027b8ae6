"""The client against the real API: everything that is sent is understood, and everything that is answered is read."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import pytest
from starlette.types import Receive, Scope, Send

import dpcrowd
from client_support import inside, serving
from dpcrowd.client import (
    Budget,
    Neighbour,
    Network,
    NetworkServer,
    NodeBusy,
    NodeFailed,
    NodeUnreachable,
    NotAllowed,
    NotTaken,
    Ready,
    RefusedCheckins,
    RequestRefused,
)
from dpcrowd.errors import BadInput, DpcrowdError, MissingExtra
from dpcrowd.node.api import views
from dpcrowd.node.collect import IntakeRefused
from dpcrowd.node.keys.trial import make_trial
from node_support_api import ADMIN, CHECKIN, CLOCK, NOW, READ, FakeService, app_of, estimates_of, going_together

T = TypeVar("T")
SECRET = "somebody-whom-nobody-may-know"


def use(service: FakeService, token: str | None, call: Callable[[dpcrowd.AsyncClient], Awaitable[T]], **more: Any) -> T:
    async def run() -> T:
        async with inside(app_of(service, max_body=more.pop("max_body", 100_000)), token, **more) as client:
            return await call(client)

    return asyncio.run(run())


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_check_ins_as_columns_and_rows(encoding: Any) -> None:
    """Columns, arrays and rows say the same; times in every form fall into the same slot."""
    service = FakeService()
    at = datetime.fromtimestamp(NOW // 10**9, UTC)

    async def call(client: dpcrowd.AsyncClient) -> list[int]:
        sent = [await client.checkin(["ann", 42], ["north", "south"], encoding=encoding)]
        sent += [await client.checkin(np.array(["cid", "dan"]), "south", at, encoding=encoding)]
        rows = [{"user": "eve", "region": "north", "time": at.isoformat()}, {"user": 7, "region": "north"}]
        sent += [await client.checkin(rows, encoding=encoding)]
        stamps = np.array([NOW, NOW], dtype="datetime64[ns]")
        sent += [await client.checkin([1, 2], ["north", "north"], stamps, encoding=encoding)]
        return [*sent, await client.checkin([3], "south", [NOW // 10**6], encoding=encoding)]

    assert use(service, CHECKIN, call) == [2, 2, 2, 2, 1]
    assert [batch.users for batch in service.batches][:3] == [[b"ann", b"42"], [b"cid", b"dan"], [b"eve", b"7"]]
    assert service.collector.seal(100).tolist() == [5, 4, 0]


def test_check_ins_that_are_packed() -> None:
    """Over a narrow line a day's backlog would come late; what was packed in vain would be refused."""
    service = FakeService()
    seen: list[int] = []

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(int(dict(scope["headers"])[b"content-length"]))
        await app_of(service)(scope, receive, send)

    async def send(*, compress: bool) -> None:
        async with inside(counting, CHECKIN) as client:
            users = [f"a long name {number}" for number in range(1_000)]
            assert await client.checkin(users, "north", compress=compress) == 1_000

    for compress in (False, True):
        asyncio.run(send(compress=compress))
    assert seen[1] < seen[0] / 5
    assert service.counted(100) == [1_000, 0, 0]


def test_batches_and_bodies_that_are_too_large() -> None:
    """A long list is sent in parts; a part that the node finds too large is halved, not given up."""
    service = FakeService()
    users = [f"user-{number:04}" for number in range(100)]
    assert use(service, CHECKIN, lambda client: client.checkin(users, "north", batch=40)) == 100
    assert [len(batch) for batch in service.batches] == [40, 40, 20]
    small = FakeService()
    assert use(small, CHECKIN, lambda client: client.checkin(users, "north", batch=100), max_body=1200) == 100
    assert sorted(user for batch in small.batches for user in batch.users) == [user.encode() for user in users]
    assert set(small.refusals) == {"too-large"}


def test_nobody_at_all_is_told_too() -> None:
    """An empty list that is not sent would look to the node like a feed that has died."""
    service = FakeService()
    assert use(service, CHECKIN, lambda client: client.idle()) == 30.0
    assert use(service, CHECKIN, lambda client: client.checkin([])) == 0
    assert [len(batch) for batch in service.batches] == [0, 0]
    assert service.collector.fed(100)


def test_counts() -> None:
    """Numbers of numpy are numbers; a region that is not named has 0."""
    service = FakeService()
    use(service, CHECKIN, lambda client: client.counts(100, {"north": np.int64(5), "south": 2}))  # type: ignore[dict-item]
    assert service.collector.seal(100).tolist() == [5, 2, 0]


def test_estimates_over_pages_and_of_some_regions() -> None:
    """The pages of a long answer become one table, and only the regions that were asked for are in it."""
    service = FakeService(slots=range(5))
    service.stored.append(estimates_of(5, unknown=True))
    whole = use(service, READ, lambda client: client.estimates())
    assert whole.slot.tolist() == [slot for slot in range(6) for _ in range(3)]
    assert np.isnan(whole.estimate[-1])
    assert whole.start[0] == np.datetime64("2026-01-01T00:00:00")
    some = use(service, READ, lambda client: client.estimates(1, CLOCK_TIME(3), "south"))
    assert some.slot.tolist() == [1, 2, 3]
    assert some.estimate.tolist() == [11.25, 12.25, 13.25]
    assert use(service, READ, lambda client: client.latest(["north"])).region.tolist() == ["north"]
    assert len(use(FakeService(), READ, lambda client: client.latest())) == 0


def test_measurements_are_columns_of_every_table() -> None:
    """A table that lost them on its way into a file could not be fitted on."""
    service = FakeService(slots=range(3))
    table = use(service, READ, lambda client: client.estimates(smoothed=True, measurements=True))
    assert table["measurement"][:2].tolist() == [0.25, 7.0]
    assert np.isnan(table["measurement_variance"][2])
    assert table.keys()[-2:] == ("measurement", "measurement_variance")
    assert table.to_numpy()["measurement_variance"][:2].tolist() == [9.0, 16.0]
    assert table.to_polars()["measurement"].to_list()[:3] == [0.25, 7.0, None]
    assert table.to_pandas()["measurement"][0] == 0.25
    assert table.to_arrow()["measurement_variance"].to_pylist()[:3] == [9.0, 16.0, None]
    assert len(next(iter(table))) == 7
    with pytest.raises(BadInput, match="smoothed=True"):
        use(service, READ, lambda client: client.estimates(measurements=True))


def test_the_smoothed_history() -> None:
    """Both clients ask for it, over all pages; a network without records answers with a reason for programs."""
    service = FakeService(slots=range(5))
    table = use(service, READ, lambda client: client.estimates(1, regions="south", smoothed=True))
    assert table.slot.tolist() == [1, 2, 3]
    assert table.estimate.tolist() == [11.75, 12.75, 13.75]
    assert "measurement" not in table
    service.smoothed_slots = None
    error = failing(lambda client: client.estimates(smoothed=True), service, READ)
    assert isinstance(error, RequestRefused)
    assert (error.status, error.reason) == (400, "no-records")
    assert len(use(service, READ, lambda client: client.estimates())) == 15


def test_totals() -> None:
    """An analyst who adds up the intervals of regions that go together gets one that is far too narrow."""
    table = use(going_together([4, 5, 6]), READ, lambda client: client.totals(2))
    assert table.slot.tolist() == [5, 6]
    assert table.region.tolist() == ["all regions"] * 2
    rows = use(FakeService(slots=[6]), READ, lambda client: client.latest())
    assert table.estimate[1] == pytest.approx(rows.estimate.sum())
    assert (table.high - table.low)[1] == pytest.approx(4 * 6**0.5, abs=2e-3)
    assert table.start.tolist()[1] == rows.start.tolist()[0]
    assert table.sampled.tolist()[1] == rows.sampled.tolist()[0]
    assert len(use(FakeService(slots=[]), READ, lambda client: client.totals())) == 0
    for slots in (0, 10_001, True, "3"):
        with pytest.raises(BadInput, match="how many of the latest slots, from 1 to 10000"):
            use(FakeService(), READ, lambda client, slots=slots: client.totals(slots))  # type: ignore[misc]


def CLOCK_TIME(slot: int) -> datetime:  # noqa: N802
    return datetime.fromtimestamp(CLOCK.opens(slot) // 10**9, UTC)


def test_the_next_page_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node gives whole slots and an address of the rest; only its query is used, never its host."""
    monkeypatch.setattr("dpcrowd.node.api.estimates.DEFAULT_ROWS", 6)
    service = FakeService(slots=range(7))
    table = use(service, READ, lambda client: client.estimates(regions=["north", 'far, "east"']))
    assert table.slot.tolist() == [slot for slot in range(7) for _ in range(2)]
    assert set(table.region.tolist()) == {"north", 'far, "east"'}


def test_state() -> None:
    """Budget, network and readiness, typed; a node that is not ready answers, and is not asked again."""
    service = FakeService()
    budget = use(service, READ, lambda client: client.budget())
    assert (budget.spent, budget.remaining, budget.samples) == (0.25, 0.75, True)
    network = use(service, READ, lambda client: client.network())
    assert network.epoch == datetime(2026, 1, 1, tzinfo=UTC)
    assert network.neighbours[0].refused == {"late": 2}
    quality = use(service, READ, lambda client: client.quality())
    assert (quality.verdict, quality.coverage, quality.since_slot) == ("calibrated", 0.95, None)
    (proof,) = use(service, ADMIN, lambda client: client.proofs())
    assert (proof.server, proof.slot, proof.first.signed, proof.first.signature) == ("b", 98, b"signed", bytes(64))
    assert use(service, None, lambda client: client.ready())
    service.problems = ["the disk is full."]
    ready = use(service, None, lambda client: client.ready())
    assert not ready
    assert ready.problems == ["the disk is full."]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Budget, views.BudgetView),
        (Network, views.NetworkStatus),
        (Neighbour, views.NeighbourStatus),
        (NetworkServer, views.ServerStatus),
        (RefusedCheckins, views.SlotRefusals),
        (Ready, views.Readiness),
    ],
)
def test_views_have_the_fields_of_the_api(ours: Any, theirs: Any) -> None:
    """A field that the API gains would otherwise never reach Python's users."""
    assert ours.__struct_fields__ == theirs.__struct_fields__


def failing(call: Callable[[dpcrowd.AsyncClient], Awaitable[object]], service: FakeService, token: str | None) -> Any:
    with pytest.raises(DpcrowdError) as caught:
        use(service, token, call, retries=0)
    return caught.value


def test_refusals_have_the_node_s_reason_and_text() -> None:
    """A program can tell them apart by class and reason, a person by the sentence."""
    service = FakeService()
    error = failing(lambda client: client.checkin([SECRET], "nowhere"), service, CHECKIN)
    assert isinstance(error, RequestRefused)
    assert (error.status, error.reason) == (400, "unknown-region")
    assert "row 0: region" in error.text
    assert error.rows == [0]
    error = failing(lambda client: client.checkin([SECRET], "north", 5), service, CHECKIN)
    assert isinstance(error, NotTaken)
    assert (error.reason, error.rows) == ("late", [0])
    service.fails = IntakeRefused("unavailable", "nothing can be stored.")
    error = failing(lambda client: client.checkin([SECRET, "b"], "north"), service, CHECKIN)
    assert isinstance(error, NodeBusy)
    assert (error.reason, error.retry_after) == ("unavailable", 30.0)
    assert isinstance(failing(lambda client: client.checkin([SECRET], "north"), service, READ), NotAllowed)
    assert failing(lambda client: client.budget(), service, None).reason == "no-token"
    assert failing(lambda client: client.estimates(regions="nowhere"), service, READ).reason == "query"


def test_one_late_row_does_not_cost_the_others() -> None:
    """Of the node that this version has: whatever it answers, four of five people are counted, and row 3 is named."""
    service = FakeService()
    times = [NOW // 10**6] * 5
    times[3] = 5
    users = ["ann", "bob", "cid", "dan", "eve"]
    delivery = use(service, CHECKIN, lambda client: client.checkin(users, "north", times, batch=2))
    assert (delivery, list(delivery.refused)) == (4, [(3, "late")])
    assert service.collector.seal(100).tolist() == [4, 0, 0]


@pytest.mark.parametrize(
    "rows",
    [
        [{"user": SECRET}],
        [{"user": SECRET, "region": "north", "mood": SECRET}],
        [{"user": SECRET * 20, "region": "north"}],
        [{"user": SECRET + "\ud800", "region": "north"}],
        [{"user": SECRET, "region": "north", "time": datetime(2026, 1, 1)}],
        [{"user": SECRET, "region": "north", "time": -1}],
        [{"user": True, "region": "north"}],
        [{"user": 2**70, "region": "north"}],
        [{"user": SECRET, "region": SECRET}],
        [SECRET],
        SECRET,
    ],
)
def test_no_user_id_in_any_error(rows: Any) -> None:
    """Neither in the text, nor in a cause or context, whose errors would hold the request or the text."""
    error = failing(lambda client: client.checkin(rows), FakeService(), CHECKIN)
    shown = "".join(traceback.format_exception(error))
    assert SECRET not in shown
    assert SECRET not in repr(error.__dict__)


def test_what_cannot_be_meant_is_not_sent() -> None:
    """A time without a zone, or columns of different lengths, would be somebody's guess."""
    service = FakeService()
    for regions, times in (("north", datetime(2026, 1, 1)), (["north", "south"], None), (None, NOW // 10**6)):
        call = functools.partial(dpcrowd.AsyncClient.checkin, users=[SECRET], regions=regions, times=times)
        assert isinstance(failing(call, service, CHECKIN), BadInput)
    assert service.batches == []
    assert service.refusals == []


def test_a_node_that_is_away() -> None:
    """One line after the retries, and the HTTP library's error, which holds the body, is nowhere in it."""

    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no", request=request)

    async def run() -> None:
        async with inside(httpx.MockTransport(away), retries=2, patience=1) as client:
            await client.checkin([SECRET], "north")

    with pytest.raises(NodeUnreachable) as caught:
        asyncio.run(run())
    error: BaseException | None = caught.value
    assert "ConnectError" in str(error)
    while error is not None:
        assert not isinstance(error, httpx.HTTPError)
        error = error.__cause__ or error.__context__


def test_any_path_of_the_api_and_the_metrics() -> None:
    """Operators' commands have no methods of their own; the tools of a node ask for them by path."""
    service = FakeService()

    async def operate(client: dpcrowd.AsyncClient) -> Any:
        return await client.request("POST", "/v1/admin/log-level", {"level": "debug"})

    assert "debug" in use(service, ADMIN, operate)["text"]
    with pytest.raises(NotAllowed, match="may not operate"):
        use(service, READ, operate)
    with pytest.raises(RequestRefused, match="level"):
        use(service, ADMIN, lambda client: client.request("POST", "/v1/admin/log-level", {"level": "loud"}))
    service.problems = ["the disk is full."]
    ready = use(service, None, lambda client: client.request("GET", "/readyz", accepts=(200, 503)))
    assert ready["ready"] is False
    assert use(service, READ, lambda client: client.metrics()) == "up 1\n"


@pytest.mark.parametrize("answer", [b"<html>hello", b"{}", b'{"error": 5}', b"\xff"])
@pytest.mark.parametrize("status", [200, 302, 400, 500])
def test_what_is_not_a_node(answer: bytes, status: int) -> None:
    """A proxy's page or another program: said in one line, whatever it sends."""

    async def run() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(status, content=answer))
        async with inside(transport, retries=0) as client:
            await client.budget()

    with pytest.raises(NodeFailed, match="not"):
        asyncio.run(run())


@pytest.mark.parametrize(("field", "value"), [("slot", 2**70), ("start", '"yesterday"')])
def test_numbers_and_times_that_no_node_sends(field: str, value: object) -> None:
    """They are valid JSON of the right type: numpy's own error would come out of the client."""
    row = {"slot": 1, "start": '"2026-01-01T00:00:00Z"', "region": '"a"', "estimate": 1, "low": 0, "high": 2}
    text = ",".join(f'"{name}":{text}' for name, text in {**row, "sampled": "true", field: value}.items())

    async def run() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, content=f"[{{{text}}}]".encode()))
        async with inside(transport, retries=0) as client:
            await client.latest()

    with pytest.raises(NodeFailed, match="not sent by a dpcrowd node"):
        asyncio.run(run())


@pytest.mark.parametrize(
    "url", ["", "node:8080", "ftp://a", "http://", "http://ann:word@a", "http://a/?b=1", "http://a:99999", 5]
)
def test_addresses_that_are_none(url: Any) -> None:
    """Refused at once; a password in an address is not shown."""
    with pytest.raises(BadInput, match="the URL is not the address of a node") as caught:
        dpcrowd.Client(url)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize("token", [" a", "a\x7fb", "a\nb", ""])
def test_tokens_that_are_none(token: str) -> None:
    """A line break in a token would otherwise be a header of its own; the token is not shown."""
    with pytest.raises(BadInput, match="token"):
        dpcrowd.Client("http://a", token)


def test_the_token_is_not_shown() -> None:
    """A client in a log line or a notebook."""
    with dpcrowd.Client("http://a/", "a-secret-token-0000") as client:
        assert repr(client) == "Client('http://a')"


@pytest.mark.slow
def test_the_client_without_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a socket, with the same steps; a proxy of the environment would be given the token and the check-ins."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    service = FakeService(slots=[1, 2])
    with serving(service) as served:
        with dpcrowd.Client(served.url, CHECKIN) as sender:
            assert sender.checkin(["ann"], ["north"]) == 1
            with pytest.raises(NotTaken):
                sender.counts(10, {"north": 1})
        with dpcrowd.Client(served.url + "/", READ) as reader:
            assert reader.estimates(2).slot.tolist() == [2, 2, 2]
            assert reader.estimates(smoothed=True).slot.tolist() == [1, 1, 1]
            assert reader.latest("south").slot.tolist() == [2]
            assert reader.budget().epsilon == 1.0
            assert reader.network().server == "a"
            assert reader.quality().calibration == 1.02
            assert reader.ready()


@pytest.mark.slow
def test_https_with_an_authority_of_its_own(tmp_path: Path) -> None:
    """Whoever is not signed by it gets neither the token nor a check-in; a stream over TLS ends in time, too."""
    files = make_trial(tmp_path, ["a"], datetime.now(UTC))["a"]
    with serving(FakeService(slots=[1]), files.certificate, files.key) as served:
        with dpcrowd.Client(served.url, READ, ca=files.authority) as client:
            assert client.ready()
            assert len(list(client.stream(seconds=0.3))) == 1
        with (
            dpcrowd.Client(served.url, READ, retries=5) as client,
            pytest.raises(NodeUnreachable, match="certificate is not signed by a known authority"),
        ):
            client.ready()
    with pytest.raises(BadInput, match="ca"):
        dpcrowd.Client(served.url, ca=tmp_path / "nothing.crt")


@pytest.mark.slow
def test_without_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what to install; and nobody pays for the import who does not use it."""
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtra, match=r"dpcrowd\[client\]"):
        dpcrowd.Client("http://a")
    code = "import sys, dpcrowd; assert 'httpx' not in sys.modules and 'dpcrowd.client' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.slow
def test_a_client_needs_nothing_of_a_server() -> None:
    """`dpcrowd[client]` has neither Starlette nor Zenoh; sharing a type with the API must not ask for them."""
    wanted = {"starlette", "uvicorn", "zenoh", "cryptography"}
    code = f"import sys, dpcrowd.client; print({wanted} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.slow
def test_plain_http_where_there_is_https(tmp_path: Path) -> None:
    """A client asked again for half a minute, and a stream with endless patience for ever; it cannot pass."""
    files = make_trial(tmp_path, ["a"], datetime.now(UTC))["a"]
    service = FakeService(slots=[1])
    with serving(service, files.certificate, files.key) as served:
        plain = served.url.replace("https://", "http://")
        with dpcrowd.Client(plain, READ, retries=1000, patience=1e9) as client:
            for call in (client.ready, lambda: list(client.stream(patience=None))):
                with pytest.raises(NodeUnreachable, match=r"it speaks HTTPS; the address is https://") as told:
                    call()
                assert (told.value.reason, "Error" in str(told.value)) == ("not-http", False)

        async def asynchronous() -> None:
            async with dpcrowd.AsyncClient(plain, READ, retries=1000, patience=1e9) as client:
                with pytest.raises(NodeUnreachable, match="it speaks HTTPS"):
                    await client.ready()
                with pytest.raises(NodeUnreachable, match="it speaks HTTPS"):
                    async for _ in client.stream(patience=None):
                        pass

        asyncio.run(asynchronous())


@pytest.mark.slow
def test_whoever_hangs_up_without_speaking_https_may_come_back() -> None:
    """A load balancer whose node is down hangs up on everybody; a client that gave up at once would lose check-ins."""
    calls: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    calls.append(len(connection.recv(100_000)))
                    connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        with dpcrowd.Client(address, READ, retries=1) as client, pytest.raises(NodeUnreachable) as told:
            client.ready()
        server.shutdown(socket.SHUT_RDWR)
        thread.join(20)
    assert told.value.reason == "hung-up"
    assert len(calls) == 4, "each of the two attempts, and whether HTTPS is spoken there"


@pytest.mark.slow
def test_https_where_there_is_none() -> None:
    """OpenSSL's own words ("wrong version number") send people to the wrong place; asking again would not help."""
    with serving(FakeService()) as served, dpcrowd.Client(served.url.replace("http://", "https://")) as client:
        for call in (client.ready, lambda: list(client.stream(seconds=20))):
            with pytest.raises(NodeUnreachable, match="does not speak HTTPS; is the address http://") as told:
                call()
            assert told.value.reason == "not-https"
            assert "_ssl" not in str(told.value)


@pytest.mark.parametrize(("first", "last"), [(2, 1), (CLOCK_TIME(2), CLOCK_TIME(1))])
def test_an_end_before_the_beginning_is_refused(first: Any, last: Any) -> None:
    """An empty table would say that nothing was released."""
    error = failing(lambda client: client.estimates(first, last), FakeService(slots=[1, 2]), READ)
    assert isinstance(error, BadInput)
    assert len(use(FakeService(slots=[1, 2]), READ, lambda client: client.estimates(last, last))) == 3


def test_plain_http_reads_no_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """All certificates of the system would be read for a link that has none: a tenth of a second for every client."""
    read: list[object] = []
    monkeypatch.setattr("ssl.SSLContext.load_verify_locations", lambda *_, **given: read.append(given))
    dpcrowd.Client("http://127.0.0.1:8080").close()
    assert not read
    dpcrowd.Client("https://127.0.0.1:8080").close()
    assert read, "HTTPS without an authority of its own trusts those of the system"
