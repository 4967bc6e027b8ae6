"""GET /v1/history, /v1/neighbours, /v1/topology, /v1/map and /v1/readiness: what the live page reads."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.node.api.history import history_of
from dpcrowd.node.api.rows import VIEWS
from dpcrowd.node.release import SlotRelease
from node_support_api import (
    CHECKIN,
    CLOCK,
    READ,
    REGIONS,
    Caller,
    Client,
    FakeService,
    app_of,
    bearer,
    estimates_of,
    going_together,
)

READER = bearer(READ)


def test_columns_say_what_rows_say() -> None:
    """A page that draws columns and a program that reads rows must not disagree; the total is that of all regions."""
    service = FakeService(slots=[4, 5, 6])
    client = Client(app_of(service))
    columns = client.get("/v1/history", headers=READER).json()
    rows = client.get("/v1/estimates", headers=READER).json()
    assert columns["slots"] == [4, 5, 6]
    assert columns["opens"] == [CLOCK.opens(slot) / 1e9 for slot in (4, 5, 6)]
    assert columns["regions"] == list(REGIONS)
    for place, region in enumerate(REGIONS):
        own = [row for row in rows if row["region"] == region]
        assert columns["estimate"][place] == [row["estimate"] for row in own]
        assert columns["half_width"][place] == [(row["high"] - row["low"]) / 2 for row in own]
    assert columns["total"] == [1e6 + 6.75 + 3 * slot for slot in (4, 5, 6)]
    assert columns["total_half_width"] == pytest.approx([2 * 3**0.5] * 3, abs=1e-3)
    assert columns["sampled"] == [True, False, True]
    assert columns["epsilon"] == [7e-9, 0.0, 7e-9]


def test_a_query_chooses_slots_and_regions() -> None:
    """A page with a thousand regions asks for the few that it draws; the total is still that of all."""
    client = Client(app_of(FakeService(slots=range(10))))
    columns = client.get("/v1/history?slots=3&to=7&region=south", headers=READER).json()
    assert columns["slots"] == [5, 6, 7]
    assert columns["regions"] == ["south"]
    assert columns["estimate"] == [[15.25, 16.25, 17.25]]
    totals = client.get("/v1/history?slots=2&total_only=true", headers=READER).json()
    assert (totals["slots"], totals["regions"], totals["estimate"]) == ([8, 9], [], [])
    assert totals["total"][1] == 1e6 + 6.75 + 27
    assert Client(app_of(FakeService())).get("/v1/history", headers=READER).json()["slots"] == []


@pytest.mark.parametrize(
    "query",
    [
        "slots=0",
        "slots=10001",
        "slots=x",
        "slots=1&slots=2",
        "to=-1",
        "to=x",
        "total_only=yes",
        "view=smooth",
        "region=nowhere",
        "limit=5",
    ],
)
def test_a_wrong_query_is_refused(query: str) -> None:
    """A page that misspells a parameter must not draw something else than it says."""
    response = Client(app_of(FakeService(slots=[1]))).get(f"/v1/history?{query}", headers=READER)
    assert (response.status_code, response.json()["error"]["reason"]) == (400, "query")


def test_many_regions_get_fewer_slots() -> None:
    """Ten thousand slots of ten thousand regions would be a gigabyte of JSON, made beside a slot's release."""
    regions = {f"region {number}": number for number in range(5_000)}

    class Large(FakeService):
        asked = 0

        async def estimates(self, first, last, regions, limit):  # type: ignore[no-untyped-def]
            self.asked = limit
            return []

    service = Large(slots=[9])
    service.regions = regions
    Client(app_of(service)).get("/v1/history?slots=10000", headers=READER)
    assert service.asked == 200
    Client(app_of(service)).get("/v1/history?slots=10000&total_only=true", headers=READER)
    assert service.asked == 10_000


def test_a_release_of_another_revision() -> None:
    """Regions that came later have no past, and those that are gone are still part of the past's total."""
    old = SlotRelease(3, CLOCK.opens(3), CLOCK.length_ns, ("gone", "south"), np.array([1.0, 2.0]), np.ones(2), False, 0)
    columns = history_of([old, estimates_of(4)], ["north", "south"])
    assert columns.estimate == [[None, 0.5], [2.0, 14.25]]
    assert columns.total[0] == 3.0


@pytest.mark.parametrize("view", list(VIEWS))
def test_views_in_columns_are_those_of_the_rows(view: str) -> None:
    """A page that draws one region must get the view of all: that of one region alone would only be cut off at 0."""
    client = Client(app_of(FakeService(slots=[3, 4])))
    rows = client.get(f"/v1/estimates?view={view}", headers=READER).json()
    columns = client.get(f"/v1/history?view={view}", headers=READER).json()
    added = f"estimate_{view}"
    for place, region in enumerate(REGIONS):
        expected = [row[added] for row in rows if row["region"] == region]
        assert columns[added][place] == pytest.approx(expected, abs=1e-3)
    one = client.get(f"/v1/history?view={view}&region=north", headers=READER).json()
    assert one[added] == columns[added][:1]
    plain = client.get("/v1/history", headers=READER).json()
    assert plain == {name: value for name, value in columns.items() if name != added}


def test_views_of_releases_with_other_regions() -> None:
    """After a revision the releases of both are in one answer, and each view keeps the total of its own regions."""
    negative = SlotRelease(
        3, CLOCK.opens(3), CLOCK.length_ns, ("gone", "south"), np.array([-1.0, 4.0]), np.ones(2), False, 0
    )
    columns = history_of([negative, estimates_of(4)], ["north", "south"], view="nonnegative")
    assert columns.estimate_nonnegative == [[None, 0.5], [3.0, 14.25]]
    assert history_of([], ["north"], view="nonnegative").estimate_nonnegative == [[]]
    medians = history_of([negative, estimates_of(4)], ["gone", "south"], view="median")
    assert (medians.estimate_median[0], medians.estimate_nonnegative) == ([0.0, None], [])
    assert medians.estimate_median[1][0] == 4.0


def test_an_unknown_region_leaves_the_total_unknown() -> None:
    """A total without one of its regions would look like a smaller crowd."""
    columns = history_of([estimates_of(4, unknown=True)], list(REGIONS))
    assert columns.total == [None]
    assert columns.estimate[2] == [None]


def test_the_total_of_regions_that_go_together() -> None:
    """The headline of the page contained half of the true totals where a crowd rises and falls in all regions."""
    client = Client(app_of(going_together([4, 5])))
    columns = client.get("/v1/history?total_only=true", headers=READER).json()
    assert columns["total_half_width"] == pytest.approx([2 * (3 + 0.5 * (9 - 3)) ** 0.5] * 2, abs=1e-3)


def test_the_model_is_that_of_its_own_regions() -> None:
    """After a revision it says nothing of a release with other regions, or with the same in another order."""
    process = going_together([]).process
    old = replace(estimates_of(3), regions=tuple(reversed(REGIONS)))
    columns = history_of([old, estimates_of(4)], list(REGIONS), process=process)
    assert columns.total_half_width == pytest.approx([2 * 3**0.5, 2 * 6**0.5], abs=1e-3)


def first_event(query: str, service: FakeService | None = None) -> dict[str, Any]:
    """Return the first release of a stream of columns."""
    service = service or FakeService(slots=[5])

    async def run() -> bytes:
        caller = Caller("/v1/stream", query=query, headers=bearer(READ))
        app = asyncio.ensure_future(app_of(service)(caller.scope, caller.receive, caller.send))
        await caller.heard.get()
        await caller.body()
        event = await asyncio.wait_for(caller.body(), 10)
        caller.leave()
        await app
        return event

    lines = asyncio.run(run()).decode().splitlines()
    assert lines[:2] == ["id: 5", "event: estimates"]
    data: dict[str, Any] = json.loads(lines[2].removeprefix("data: "))
    return data


def test_a_stream_of_columns() -> None:
    """The page reads the same columns live: rows of a thousand regions would repeat their names in every slot."""
    data = first_event("columns=true")
    assert (data["slots"], data["regions"]) == ([5], list(REGIONS))
    assert "estimate_nonnegative" not in data


@pytest.mark.parametrize("view", list(VIEWS))
@pytest.mark.parametrize("region", ["", "&region=south"])
def test_a_stream_of_columns_is_what_the_history_is(region: str, view: str) -> None:
    """With some regions, the total of a stream was that of these regions, and that of the history that of all."""
    service = going_together([5])
    columns = Client(app_of(service)).get(f"/v1/history?view={view}{region}", headers=READER)
    assert first_event(f"columns=true&view={view}{region}", service) == columns.json()


def test_what_neighbours_estimated() -> None:
    """Thin lines beside the own one show whether servers agree."""
    client = Client(app_of(FakeService()))
    answer = client.get("/v1/neighbours?slots=1", headers=READER).json()
    assert answer == {"region": None, "slots": [99], "neighbours": {"b": [7.5]}, "records": {}}
    assert client.get("/v1/neighbours?region=north", headers=READER).json()["region"] == "north"
    assert client.get("/v1/neighbours?region=north&region=south", headers=READER).status_code == 400


def test_the_plan_of_the_network_and_its_map() -> None:
    """The graph is drawn from it; without a map the answer says where one would be configured."""
    service = FakeService()
    client = Client(app_of(service))
    plan = client.get("/v1/topology", headers=READER).json()
    assert (plan["links"], plan["map"]) == ([["a", "b"]], False)
    missing = client.get("/v1/map", headers=READER)
    assert (missing.status_code, missing.json()["error"]["reason"]) == (404, "no-map")
    service.shapes = b'{"type": "FeatureCollection", "features": []}'
    shapes = client.get("/v1/map", headers=READER)
    assert (shapes.content, shapes.headers["content-type"]) == (service.shapes, "application/geo+json")


def test_a_node_that_is_not_ready_says_so_without_an_error() -> None:
    """A browser reports a status of 503 as an error of the page; the page shows the problem itself."""
    service = FakeService()
    service.problems.append("the disk is full.")
    client = Client(app_of(service))
    response = client.get("/v1/readiness", headers=READER)
    assert response.status_code == 200
    assert response.json() == client.get("/readyz").json() == {"ready": False, "problems": ["the disk is full."]}


@pytest.mark.parametrize("path", ["/v1/history", "/v1/neighbours", "/v1/topology", "/v1/map", "/v1/readiness"])
def test_data_needs_the_right_to_read(path: str) -> None:
    """The page is public; what it shows is not."""
    client = Client(app_of(FakeService(slots=[1])))
    assert client.get(path).status_code == 401
    assert client.get(path, headers=bearer(CHECKIN)).status_code == 403
