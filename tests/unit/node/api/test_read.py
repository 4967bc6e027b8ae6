"""Reading: estimates in every format, budget, network, health, metrics; and the operator's commands."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys
import tempfile
from typing import Any

import pytest

from dpcrowd.filters.median import median_view
from dpcrowd.node.api.estimates import accepted
from dpcrowd.node.api.prometheus import Metric, render
from dpcrowd.node.api.rows import ENCODERS, VIEWS
from dpcrowd.node.config.tokens import TokensSection
from node_support_api import (
    ADMIN,
    CHECKIN,
    CLOCK,
    READ,
    REGIONS,
    Client,
    FakeService,
    app_of,
    bearer,
    client_of,
    estimates_of,
)

LAST_SLOT = (2**63 - 1 - CLOCK.epoch_ns) // CLOCK.length_ns - 1
"""The last one whose end a node's storage can hold: 64 bits of nanoseconds."""
READER = bearer(READ)
BOTH = "a-token-with-two-rights-"
LIMITS = {"estimate", "low", "high"}


def reason(response: Any) -> str:
    return str(response.json()["error"]["reason"])


def slots_in(response: Any) -> list[int]:
    assert response.status_code == 200, response.text
    return list(dict.fromkeys(row["slot"] for row in response.json()))


def test_the_latest_release() -> None:
    """One row a region with the fields of the issue; negative estimates stay negative, unknown ones are null."""
    service = FakeService(slots=[4, 5])
    assert client_of(FakeService()).get("/v1/estimates/latest", headers=READER).json() == []
    service.stored.append(estimates_of(6, unknown=True))
    rows = client_of(service).get("/v1/estimates/latest", headers=READER).json()
    assert rows[0] == {
        "slot": 6,
        "start": "2026-01-01T00:06:00Z",
        "region": "north",
        "estimate": 2.5,
        "low": 0.5,
        "high": 4.5,
        "sampled": True,
    }
    assert [row["region"] for row in rows] == list(REGIONS)
    assert {name: rows[2][name] for name in LIMITS} == dict.fromkeys(LIMITS)
    service.stored.append(estimates_of(1))
    assert client_of(service).get("/v1/estimates/latest", headers=READER).json()[0]["estimate"] == -2.5
    chosen = client_of(service).get("/v1/estimates/latest?region=south", headers=READER).json()
    assert [row["region"] for row in chosen] == ["south"]


@pytest.mark.parametrize(
    ("query", "slots"),
    [
        ("", [1, 2, 3, 4, 5]),
        ("from=2&to=4", [2, 3, 4]),
        ("from=4", [4, 5]),
        ("to=2", [1, 2]),
        ("from=2026-01-01T00:02:30Z&to=2026-01-01T00:03:59Z", [2, 3]),
        ("from=2026-01-01T01:04:00%2B01:00", [4, 5]),
        ("from=2026-01-01T01:04:00+01:00", [4, 5]),
        ("from=9", []),
        (f"from={LAST_SLOT}&to={LAST_SLOT}", []),
        ("to=2262-04-11T23:47:16Z", [1, 2, 3, 4, 5]),
    ],
)
def test_ranges(query: str, slots: list[int]) -> None:
    """By slot, or by time for the slot that was open then; both ends are included. A '+' may be sent as it is."""
    assert (
        slots_in(client_of(FakeService(slots=[1, 2, 3, 4, 5])).get(f"/v1/estimates?{query}", headers=READER)) == slots
    )


def test_pages_follow_one_another() -> None:
    """A long range comes in pages of whole slots, and the link keeps the other parameters."""
    client = client_of(FakeService(slots=range(7)))
    address, seen = "/v1/estimates?to=5&region=south&region=north&limit=5", []
    while address:
        response = client.get(address, headers=READER)
        assert {row["region"] for row in response.json()} == {"south", "north"}
        seen += slots_in(response)
        link = response.headers.get("link", "")
        address = link[1:].partition(">")[0]
    assert seen == [0, 1, 2, 3, 4, 5]
    one = client.get("/v1/estimates?limit=1", headers=READER)
    assert slots_in(one) == [0]
    assert len(one.json()) == len(REGIONS)


@pytest.mark.parametrize(
    "query",
    [
        "from=x",
        "from=-1",
        "from=1&from=2",
        "to=2026-01-01",
        "to=2026-01-01T00:00:00",
        "limit=0",
        "limit=1e3",
        "limit=99999999",
        "region=west",
        "form=2",
        "smoothed=yes",
        "smoothed=true&smoothed=true",
        "measurements=true",
        "smoothed=true&measurements=1",
        "view=smooth",
        "view=nonnegative&view=nonnegative",
        "view=nonnegative&view=median",
        "view=",
        "from=1" + "0" * 20,
        f"from={LAST_SLOT + 1}",
        f"to={LAST_SLOT + 1}",
    ],
)
def test_wrong_queries(query: str) -> None:
    """A misspelt parameter must not mean all slots; the answer says what is allowed and does not repeat what came."""
    response = client_of(FakeService(slots=[1])).get(f"/v1/estimates?{query}", headers=READER)
    assert (response.status_code, reason(response)) == (400, "query")
    assert "west" not in response.text
    assert "allowed" in response.text


@pytest.mark.parametrize("kind", list(ENCODERS))
def test_the_smoothed_history_in_every_format(kind: str) -> None:
    """Slots as estimated with later records: a format that gave the released values would be believed all the same."""
    client, headers = client_of(FakeService(slots=[3, 4, 5])), {**READER, "Accept": kind}
    smoothed = client.get("/v1/estimates?smoothed=true&region=north", headers=headers)
    released = client.get("/v1/estimates?smoothed=false&region=north", headers=headers)
    assert smoothed.headers["content-type"].startswith(kind)
    numbers = {"estimate": [0.0, 1.0], "low": [-1.0, 0.0], "high": [1.0, 2.0]}
    assert columns_of(smoothed, kind) == {"slot": [3, 4], **numbers}
    assert columns_of(released, kind)["slot"] == [3, 4, 5]
    assert columns_of(released, kind)["estimate"] == [-0.5, 0.5, 1.5]


@pytest.mark.parametrize("kind", list(ENCODERS))
def test_measurements_beside_the_smoothed_history_in_every_format(kind: str) -> None:
    """A model is fitted on them; where the records of a slot say nothing, there must be no number at all."""
    client, headers = client_of(FakeService(slots=[3, 4])), {**READER, "Accept": kind}
    smoothed = client.get("/v1/estimates?smoothed=true&measurements=true", headers=headers)
    names = ("measurement", "measurement_variance")
    columns = columns_of(smoothed, kind, names)
    assert columns == {"measurement": [3.25, 7.0, None], "measurement_variance": [9.0, 16.0, None]}
    plain = client.get("/v1/estimates?smoothed=true&measurements=false", headers=headers)
    assert b"measurement" not in plain.content


def columns_of(
    response: Any, kind: str, names: tuple[str, ...] = ("slot", "estimate", "low", "high")
) -> dict[str, list[Any]]:
    """The numbers of an answer in any format."""
    if kind == "application/json":
        rows = response.json()
    elif kind == "text/csv":
        texts = csv.DictReader(io.StringIO(response.text))
        rows = [{name: json.loads(row[name] or "null") for name in names} for row in texts]
    else:
        import pyarrow

        source = pyarrow.BufferReader(response.content)
        table = pyarrow.ipc.open_stream(source).read_all() if "arrow" in kind else _parquet(source)
        rows = table.to_pylist()
    return {name: [row[name] for row in rows] for name in names}


def _parquet(source: Any) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(source).read()


@pytest.mark.parametrize("path", ["/v1/estimates", "/v1/estimates/latest"])
def test_the_non_negative_view_keeps_the_total_of_all_regions(path: str) -> None:
    """A view of some regions alone would change with what is asked for; the estimates beside it must stay."""
    client = client_of(FakeService(slots=[3]))
    plain = client.get(path, headers=READER).json()
    rows = client.get(f"{path}?view=nonnegative", headers=READER).json()
    assert [{name: row[name] for name in plain[0]} for row in rows] == plain
    view = [row["estimate_nonnegative"] for row in rows]
    assert all(value is None or value >= 0.0 for value in view)
    total = sum(row["estimate"] or 0.0 for row in rows)
    assert sum(value or 0.0 for value in view) == pytest.approx(max(total, 0.0))
    one = client.get(f"{path}?view=nonnegative&region=north", headers=READER).json()
    assert one == [row for row in rows if row["region"] == "north"]
    assert "estimate_nonnegative" not in plain[0]


@pytest.mark.parametrize("view", list(VIEWS))
@pytest.mark.parametrize("kind", list(ENCODERS))
def test_views_in_every_format(kind: str, view: str) -> None:
    """A format without the column would send its readers to a page of their own to compute it."""
    client, headers, name = client_of(FakeService(slots=[3, 4])), {**READER, "Accept": kind}, f"estimate_{view}"
    response = client.get(f"/v1/estimates?view={view}", headers=headers)
    expected = [row[name] for row in client.get(str(response.url), headers=READER).json()]
    if kind == "text/csv":
        values = [row[name] for row in csv.DictReader(io.StringIO(response.text))]
        assert [float(value) if value else None for value in values] == expected
        return
    if kind == "application/json":
        return
    import pyarrow

    source = pyarrow.BufferReader(response.content)
    table = pyarrow.ipc.open_stream(source).read_all() if "arrow" in kind else _parquet(source)
    assert table.column(name).to_pylist() == expected


@pytest.mark.parametrize("path", ["/v1/estimates", "/v1/estimates/latest"])
def test_the_median_view_beside_the_estimates(path: str) -> None:
    """A reader of small counts gets the number that is closest most often, and the estimates as they were."""
    client = client_of(FakeService(slots=[3]))
    plain = client.get(path, headers=READER).json()
    rows = client.get(f"{path}?view=median", headers=READER).json()
    assert [{name: row[name] for name in plain[0]} for row in rows] == plain
    release = estimates_of(3)
    view = median_view(release.estimate, release.variance).tolist()
    assert [row["estimate_median"] for row in rows] == view
    assert view != release.estimate.tolist()
    assert "estimate_nonnegative" not in rows[0]
    one = client.get(f"{path}?view=median&region=north", headers=READER).json()
    assert one == [row for row in rows if row["region"] == "north"]


def test_pages_of_the_smoothed_history() -> None:
    """A next page without the parameter would go on with released values, in the same table."""
    response = client_of(FakeService(slots=range(5))).get("/v1/estimates?smoothed=true&limit=6", headers=READER)
    assert slots_in(response) == [0, 1]
    assert "smoothed=true" in response.headers["link"]
    assert "from=2" in response.headers["link"]


def test_a_network_without_records_has_no_smoothed_history() -> None:
    """An empty answer would look as if nothing had been estimated yet; the text says what to do instead."""
    service = FakeService(slots=[3])
    service.smoothed_slots = None
    response = client_of(service).get("/v1/estimates?smoothed=true", headers=READER)
    assert (response.status_code, reason(response)) == (400, "no-records")
    assert "leave smoothed out" in response.text
    assert "relay" in response.text
    assert slots_in(client_of(service).get("/v1/estimates?smoothed=false", headers=READER)) == [3]


def test_csv() -> None:
    """Region names may hold commas and quotes; unknown numbers are empty."""
    service = FakeService(slots=[3])
    service.stored.append(estimates_of(4, unknown=True))
    response = client_of(service).get("/v1/estimates", headers={**READER, "Accept": "text/csv"})
    assert response.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert [row["region"] for row in rows] == [*REGIONS, *REGIONS]
    assert rows[0] == {
        "slot": "3",
        "start": "2026-01-01T00:03:00Z",
        "region": "north",
        "estimate": "-0.5",
        "low": "-2.5",
        "high": "1.5",
        "sampled": "false",
    }
    assert [rows[5][name] for name in sorted(LIMITS)] == ["", "", ""]


@pytest.mark.slow
def test_columns_cost_no_more_memory_than_pyarrow_itself() -> None:
    """pyarrow imports pandas where it can, and its own functions: 60 MB for good in a node that has no use for them."""
    pytest.importorskip("pyarrow")
    program = """if True:
        import sys
        import numpy as np
        from dpcrowd.node.api.rows import to_arrow, to_parquet
        from dpcrowd.node.ingest.bodies import decode_checkins
        from dpcrowd.node.release import SlotRelease
        numbers = np.array([1.0, float("nan")])
        slots = [SlotRelease(1, 10**18, 10**9, ("a", "b"), numbers, numbers, True, 7)]
        assert to_arrow(slots) and to_parquet(slots)
        body = open(sys.argv[1], "rb").read()
        assert len(decode_checkins("application/vnd.apache.arrow.stream", body, {"north": 0})) == 3
        print([name for name in ("pandas", "pyarrow.compute", "pyarrow.dataset") if name in sys.modules])
    """
    import pyarrow

    table = pyarrow.table({"user": ["a", "b", "c"], "region": ["north"] * 3, "time": [None, 1, 2]})
    with tempfile.NamedTemporaryFile() as file:
        with pyarrow.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        file.flush()
        found = subprocess.run(
            [sys.executable, "-c", program, file.name], capture_output=True, text=True, timeout=60, check=True
        )
    assert found.stdout == "[]\n"


@pytest.mark.parametrize("kind", ["application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"])
def test_arrow_and_parquet(kind: str) -> None:
    """Tables for polars and pandas hold the same rows as JSON, an empty one has the same columns."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def table(body: bytes) -> Any:
        if kind.endswith("parquet"):
            return parquet.read_table(pyarrow.BufferReader(body))
        with pyarrow.ipc.open_stream(body) as reader:
            return reader.read_all()

    service = FakeService(slots=[3])
    service.stored.append(estimates_of(4, unknown=True))
    client = client_of(service)
    response = client.get("/v1/estimates", headers={**READER, "Accept": kind})
    assert response.headers["content-type"] == kind
    found = table(response.content)
    starts = found["start"].cast(pyarrow.timestamp("ms", "UTC")).to_pylist()
    rows = found.set_column(1, "start", [[start.strftime("%Y-%m-%dT%H:%M:%SZ") for start in starts]]).to_pylist()
    assert rows == client.get("/v1/estimates", headers=READER).json()
    empty = table(client.get("/v1/estimates?from=9", headers={**READER, "Accept": kind}).content)
    assert empty.schema == found.schema
    assert empty.num_rows == 0


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ("*/*", "application/json"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "application/json"),
        ("text/csv", "text/csv"),
        ("text/*", "text/csv"),
        ("application/json;q=0.5, text/csv", "text/csv"),
        ("text/csv;q=0, application/json;q=0.1", "application/json"),
        ("text/csv;q=0", None),
        ("image/png", None),
        ("", None),
    ],
)
def test_accept(header: str, kind: str | None) -> None:
    """The reader's first choice of what there is."""
    assert accepted(header) == kind


def test_no_such_format() -> None:
    """406 with the list, instead of JSON that is then read as something else."""
    response = client_of(FakeService()).get("/v1/estimates/latest", headers={**READER, "Accept": "image/png"})
    assert (response.status_code, reason(response)) == (406, "accept")
    assert "text/csv" in response.text


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without the extra says so."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    headers = {**READER, "Accept": "application/vnd.apache.parquet"}
    response = client_of(FakeService(slots=[1])).get("/v1/estimates", headers=headers)
    assert response.status_code == 406
    assert "pip install" in response.text


def test_state() -> None:
    """Budget, network, metrics need the right to read; health and readiness are for any supervisor."""
    service = FakeService()
    client = client_of(service)
    assert client.get("/v1/budget", headers=READER).json()["remaining"] == 0.75
    network = client.get("/v1/network", headers=READER).json()
    assert network["neighbours"][0]["refused"] == {"late": 2}
    assert network["refused_checkins"] == []
    assert client.get("/v1/quality", headers=READER).json()["coverage"] == 0.95
    assert client.get("/metrics", headers=READER).text == "up 1\n"
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"ready": True, "problems": []}
    service.soon = ["the certificate of 'a' expires in 3 days."]
    response = client.get("/readyz")
    assert (response.status_code, response.json()["ready"]) == (200, True), "what still works is not drained"
    assert response.json()["warnings"] == service.soon
    service.problems = ["the disk is full."]
    response = client.get("/readyz")
    assert (response.status_code, response.json()["problems"]) == (503, ["the disk is full."])


@pytest.mark.parametrize("read", [(READ,), "open"])
def test_why_check_ins_were_refused_is_for_the_operator(read: Any) -> None:
    """It may be one person's check-in: whoever may read, everybody if reading is open, must not learn of it."""
    client = Client(
        app_of(
            FakeService(),
            TokensSection(checkin=(CHECKIN,), read=read if read == "open" else (*read, BOTH), admin=(ADMIN, BOTH)),
        )
    )
    shown = [{"slot": 99, "reasons": ["late"]}]
    for token in (ADMIN, BOTH):
        assert client.get("/v1/network", headers=bearer(token)).json()["refused_checkins"] == shown
    assert client.get("/v1/network", headers=READER).json()["refused_checkins"] == []
    if read == "open":
        assert client.get("/v1/network").json()["refused_checkins"] == []
        assert client.get("/v1/network", headers=bearer(CHECKIN)).json()["refused_checkins"] == []
    else:
        assert client.get("/v1/network").status_code == 401
        assert client.get("/v1/network", headers=bearer(CHECKIN)).status_code == 403


@pytest.mark.parametrize("read", [(READ, BOTH), "open"])
def test_how_busy_the_node_is_is_for_the_operator(read: Any) -> None:
    """Processor time and open connections tell how many check-ins come; a reader must not learn that."""
    client = Client(app_of(FakeService(), TokensSection(checkin=(CHECKIN,), read=read, admin=(ADMIN, BOTH))))
    assert client.get("/metrics", headers=bearer(BOTH)).text == "up 1\nload 5\n"
    assert client.get("/metrics", headers=READER).text == "up 1\n"
    if read == "open":
        assert client.get("/metrics", headers=bearer(ADMIN)).text == "up 1\nload 5\n"
        assert client.get("/metrics").text == client.get("/metrics", headers=bearer(CHECKIN)).text == "up 1\n"


@pytest.mark.parametrize(
    "path", ["/v1/budget", "/v1/quality", "/metrics", "/v1/estimates", "/v1/estimates/latest", "/v1/stream"]
)
def test_reading_needs_a_token_of_its_own(path: str) -> None:
    """A feed's token and an operator's do not read."""
    client = client_of(FakeService())
    assert client.get(path).status_code == 401
    for token in (CHECKIN, ADMIN):
        assert client.get(path, headers=bearer(token)).status_code == 403


@pytest.mark.parametrize("path", ["/v1/quality", "/v1/proofs", "/v1/estimates/latest"])
def test_unknown_parameters_are_refused(path: str) -> None:
    """Whoever asks /v1/quality for one region would take the answer on all of them for that of the region."""
    client = client_of(FakeService())
    headers = bearer(ADMIN) if path == "/v1/proofs" else READER
    assert client.get(path, headers=headers).status_code == 200
    refused = client.get(f"{path}?x=1", headers=headers)
    assert (refused.status_code, refused.json()["error"]["reason"]) == (400, "query")
    assert "unknown parameter; allowed: " in refused.text


def test_commands() -> None:
    """Done with a sentence, or refused with the reason; the level is one of four."""
    service = FakeService()
    client = client_of(service)
    done = client.post("/v1/admin/reload", headers=bearer(ADMIN))
    assert (done.status_code, done.json()) == (200, {"text": "revision 2 is valid from slot 200."})
    refused = client.post("/v1/admin/confirm-loss", headers=bearer(ADMIN))
    assert (refused.status_code, refused.json()["error"]["text"]) == (409, "nothing was lost.")
    assert client.post("/v1/admin/log-level", json={"level": "debug"}, headers=bearer(ADMIN)).status_code == 200
    assert service.level == "debug"
    for wrong in (b"", b'{"level":"loud"}', b'{"level":"info","x":1}', b"\xff", b" " * 2_000 + b'{"level":"info"}'):
        response = client.post("/v1/admin/log-level", content=wrong, headers=bearer(ADMIN))
        assert (response.status_code, reason(response)) == (400, "field")
    assert service.level == "debug"


@pytest.mark.parametrize("command", ["reload", "confirm-loss", "accept-clock", "log-level"])
def test_commands_need_the_operator(command: str) -> None:
    """Nobody else stops, reloads or silences a node; and a link that is followed commands nothing."""
    client = client_of(FakeService())
    assert client.post(f"/v1/admin/{command}").status_code == 401
    for token in (CHECKIN, READ):
        assert client.post(f"/v1/admin/{command}", headers=bearer(token)).status_code == 403
    assert client.get(f"/v1/admin/{command}", headers=bearer(ADMIN)).status_code == 405


def test_other_paths_are_refused_as_json() -> None:
    """A program that reads errors has one form to read."""
    response = client_of(FakeService()).get("/v2/secret")
    assert (response.status_code, reason(response)) == (404, "not-found")
    assert "secret" not in response.text
    assert client_of(FakeService()).post("/v1/budget", headers=READER).status_code == 405


def test_prometheus_text() -> None:
    """Quotes, line ends and NaN in labels and values must not break the scrape of all other metrics."""
    text = render(
        [
            Metric("a_total", "counter", "All\nof it.", [({"who": 'b "c"\\\n'}, 3.0), ({}, 0.5)]),
            Metric("nothing", "gauge", "Left out.", []),
            Metric("b", "gauge", "Odd.", [({}, math.nan), ({"x": "1"}, math.inf), ({"x": "2"}, -math.inf)]),
        ]
    )
    assert text == (
        '# HELP a_total All\\nof it.\n# TYPE a_total counter\na_total{who="b \\"c\\"\\\\\\n"} 3\na_total 0.5\n'
        '# HELP b Odd.\n# TYPE b gauge\nb NaN\nb{x="1"} +Inf\nb{x="2"} -Inf\n'
    )
