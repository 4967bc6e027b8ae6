"""The OpenAPI document: complete, consistent, and true of what the API answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from starlette.routing import Route, WebSocketRoute

from dpcrowd.node.api.openapi import document
from dpcrowd.node.ingest.batch import ROW_REASONS
from node_support_api import ADMIN, CHECKIN, READ, Client, FakeService, app_of, bearer, estimates_of

DOCUMENT = document()
METHODS = {"get", "post"}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref":
                yield value
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def test_every_route_is_described_and_nothing_else() -> None:
    """A path that is missing here does not exist for whoever builds a client from the document."""
    app = app_of(FakeService())
    routes = {(route.path, method.lower()) for route in app.routes if isinstance(route, Route)
              for method in (route.methods or ()) if method != "HEAD"}  # fmt: skip
    plain = {route.path for route in app.routes if isinstance(route, Route) and not route.methods}
    described = {(path, method) for path, method, _ in operations()}
    assert plain == {"/v1/checkins", "/v1/counts", "/v1/stream"}
    assert described == routes | {("/v1/checkins", "post"), ("/v1/counts", "post"), ("/v1/stream", "get")}
    assert [route.path for route in app.routes if isinstance(route, WebSocketRoute)] == ["/v1/stream"]
    assert "WebSocket" in DOCUMENT["paths"]["/v1/stream"]["get"]["description"]


def test_the_document_is_consistent() -> None:
    """References lead somewhere, names are unique, every operation says who may use it."""
    schemas = DOCUMENT["components"]["schemas"]
    for found in references(DOCUMENT):
        assert found.removeprefix("#/components/schemas/") in schemas
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    for path, method, operation in operations():
        assert method in METHODS
        assert operation["summary"]
        assert all(answer["description"] for answer in operation["responses"].values())
        rights = [name for one in operation["security"] for name in one]
        assert set(rights) <= set(DOCUMENT["components"]["securitySchemes"])
        assert (not rights) == (path in ("/healthz", "/readyz", "/openapi.json"))
        if rights:
            assert {"401", "403"} <= operation["responses"].keys()
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_it_is_served_to_everybody() -> None:
    """As JSON, byte for byte the document."""
    response = Client(app_of(FakeService())).get("/openapi.json")
    assert response.status_code == 200
    assert response.json() == json.loads(json.dumps(DOCUMENT))
    assert "north" not in response.text  # names of regions are for those who have a right here


@pytest.mark.parametrize("token", [CHECKIN, READ, ADMIN])
def test_a_running_node_lists_its_regions_where_a_request_may_name_one(token: str) -> None:
    """Programs that are made from the document, and those who fill in forms, would have to guess them."""
    served = Client(app_of(FakeService())).get("/openapi.json", headers=bearer(token)).json()
    listed = {"$ref": "#/components/schemas/Region"}
    schemas = served["components"]["schemas"]
    assert schemas["Region"]["enum"] == list(FakeService.regions)
    assert "enum" not in DOCUMENT["components"]["schemas"]["Region"]
    assert schemas["CheckIn"]["properties"]["region"] == listed
    assert schemas["Counts"]["properties"]["counts"]["propertyNames"] == listed
    for path in ("/v1/estimates", "/v1/estimates/latest", "/v1/stream"):
        (region,) = [one for one in served["paths"][path]["get"]["parameters"] if one["name"] == "region"]
        assert region["schema"]["items"] == listed
    # Of an earlier revision releases may have regions that are gone; they are still answered.
    assert schemas["EstimateRow"]["properties"]["region"] == {"type": "string"}


def test_regions_of_the_next_revision_are_listed_when_the_node_takes_them() -> None:
    """A document that was made at the start would forbid what the node takes by now."""
    service = FakeService()
    client = Client(app_of(service))
    client.get("/openapi.json", headers=bearer(READ))
    service.regions = {**FakeService.regions, "west": 3}
    served = client.get("/openapi.json", headers=bearer(READ)).json()
    assert served["components"]["schemas"]["Region"]["enum"][-1] == "west"


@pytest.mark.parametrize(
    ("method", "path", "token", "content", "status"),
    [
        ("post", "/v1/checkins", CHECKIN, b'[{"user":"ann","region":"north"}]', 202),
        ("post", "/v1/checkins", CHECKIN, b"[]", 202),
        ("post", "/v1/checkins", CHECKIN, b'[{"user":"ann","region":"north"},{"user":"ann"},5]', 207),
        ("post", "/v1/checkins", CHECKIN, b'[{"user":"ann","region":"north","time":5}]', 409),
        ("post", "/v1/checkins", CHECKIN, b'[{"user":"ann","region":"west"},{"user":" ","region":"north"}]', 400),
        ("post", "/v1/checkins", CHECKIN, b"[{", 400),
        ("post", "/v1/checkins", READ, b"[{", 403),
        ("post", "/v1/counts", CHECKIN, b'{"slot":100,"counts":{"north":1}}', 202),
        ("get", "/v1/estimates", READ, None, 200),
        ("get", "/v1/estimates?smoothed=true", READ, None, 200),
        ("get", "/v1/estimates?smoothed=maybe", READ, None, 400),
        ("get", "/v1/estimates/latest", READ, None, 200),
        ("get", "/v1/budget", READ, None, 200),
        ("get", "/v1/budget", "", None, 401),
        ("get", "/v1/network", READ, None, 200),
        ("get", "/v1/quality", READ, None, 200),
        ("get", "/v1/quality", "", None, 401),
        ("get", "/v1/network", ADMIN, None, 200),
        ("get", "/v1/proofs", ADMIN, None, 200),
        ("get", "/v1/proofs", READ, None, 403),
        ("get", "/healthz", "", None, 200),
        ("get", "/readyz", "", None, 200),
        ("post", "/v1/admin/reload", ADMIN, b"", 200),
        ("post", "/v1/admin/confirm-loss", ADMIN, b"", 409),
        ("post", "/v1/admin/accept-clock", ADMIN, b"", 409),
        ("post", "/v1/admin/log-level", ADMIN, b'{"level":"error"}', 200),
    ],
)
def test_answers_are_as_described(method: str, path: str, token: str, content: bytes | None, status: int) -> None:
    """The document is made from the same classes as the answers; this is what would notice if one were not."""
    service = FakeService(slots=[3])
    service.stored.append(estimates_of(4, unknown=True))
    headers = {**(bearer(token) if token else {}), "Content-Type": "application/json"}
    response = Client(app_of(service)).request(method.upper(), path, content=content, headers=headers)
    assert response.status_code == status
    described = DOCUMENT["paths"][path.partition("?")[0]][method]["responses"][str(status)]
    schema = {**described["content"]["application/json"]["schema"], "components": DOCUMENT["components"]}
    jsonschema.validate(response.json(), schema, cls=jsonschema.Draft202012Validator)


def test_the_limit_of_a_page_is_that_of_the_code() -> None:
    """A client that was made from the document asked for more, and was refused."""
    parameters = DOCUMENT["paths"]["/v1/estimates"]["get"]["parameters"]
    (limit,) = [one["schema"] for one in parameters if one["name"] == "limit"]
    client = Client(app_of(FakeService(slots=[3])))
    for rows, status in ((limit["minimum"], 200), (limit["maximum"], 200), (limit["maximum"] + 1, 400)):
        assert client.get(f"/v1/estimates?limit={rows}", headers=bearer(READ)).status_code == status


def test_reasons_are_those_of_the_code() -> None:
    """A client that switches over the reasons of the document must meet no other one."""
    reason = DOCUMENT["components"]["schemas"]["RefusedRow"]["properties"]["reason"]
    assert set(reason["enum"]) == set(ROW_REASONS)
    assert [word for word in ROW_REASONS if f"`{word}`" not in reason["description"]] == []


def test_limits_and_the_other_kind_are_described() -> None:
    """Too many requests, and a node that takes the other kind, are answers that a feed has to expect."""
    for path, some in (("/v1/checkins", True), ("/v1/counts", False)):
        operation = DOCUMENT["paths"][path]["post"]
        assert {"202", "403", "429", "503"} <= operation["responses"].keys()
        assert ("207" in operation["responses"]) == some
        assert "Retry-After" in operation["responses"]["429"]["headers"]
        assert "accepts" in operation["description"]
    assert DOCUMENT["paths"]["/v1/network"]["get"]["security"] == [{"read": []}, {"admin": []}]
