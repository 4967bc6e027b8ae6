"""Requests that schemathesis makes from the OpenAPI document, to the application without a server between.

Whatever is sent, the answer is one that the document describes: its status, its content type, its body. Examples come
from the document alone and are the same in every run. `/v1/stream` does not end, so it has tests of its own.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dpcrowd.node.config.tokens import TokensSection
from examples_support import examples
from node_support_api import ADMIN, CHECKIN, READ, FakeService, app_of, bearer

SLOT = 100
"""The slot that is open."""
CONFORMANCE = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
APP = app_of(FakeService(slots=range(90, SLOT)), TokensSection(checkin=(CHECKIN,), read=(READ,), admin=(ADMIN,)))
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP, headers=bearer(READ)).exclude(path="/v1/stream")
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}
reproducible = settings(
    max_examples=examples(30),
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def token_for(path: str) -> str:
    if path.startswith("/v1/admin"):
        return ADMIN
    return CHECKIN if path in ("/v1/checkins", "/v1/counts") else READ


def kinds() -> list[Any]:
    """Each operation with requests that its description allows, and, if it can be got wrong, with others."""
    plain = [pytest.param(label, GenerationMode.POSITIVE, id=f"{label} as described") for label in OPERATIONS]
    return plain + [
        pytest.param(label, GenerationMode.NEGATIVE, id=f"{label} otherwise")
        for label, operation in OPERATIONS.items()
        if operation.path not in ("/healthz", "/readyz")  # no parameters, no body, no token
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("label", "mode"), kinds())
def test_every_answer_is_one_that_the_document_describes(label: str, mode: GenerationMode) -> None:
    """A client that was generated from the document must be able to read whatever comes, of refusals as well."""
    operation = OPERATIONS[label]

    few = operation.method == "get"  # a path with a few parameters; the others have bodies

    @settings(reproducible, max_examples=examples(8 if few else 15))  # there are 38 kinds of requests
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        case.call_and_validate(headers=bearer(token_for(operation.path)), checks=CONFORMANCE)

    ask()


def now(case: Any) -> set[str]:
    """Have a request speak of the present, since no document can say which slots are open; the regions that it names.

    Whole numbers are written as such: for JSON Schema 5.0 is one, but programs that send a count write 5.
    """
    case.query = {name: value for name, value in case.query.items() if name == "region"}
    match case.body:
        case list(rows):
            case.body = [{name: _whole(value) for name, value in row.items() if name != "time"} for row in rows]
            return {row["region"] for row in rows}
        case {"counts": counts}:
            case.body = {"slot": SLOT, "counts": {name: _whole(count) for name, count in counts.items()}}
            return set(counts)
    return set(case.query.get("region", ()))


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) else value


@pytest.mark.parametrize(
    "label", ["POST /v1/checkins", "POST /v1/counts", "GET /v1/estimates/latest", "GET /v1/estimates"]
)
def test_what_the_document_allows_is_taken(label: str) -> None:
    """Only if the document lists the regions: otherwise programs that are made from it send what is refused."""
    operation = OPERATIONS[label]
    regions: set[str] = set()

    @reproducible
    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    def ask(case: Any) -> None:
        assume(case.media_type in (None, "application/json"))  # what other formats hold, a schema cannot say
        regions.update(now(case))
        answer = case.call(headers=bearer(token_for(operation.path)))
        case.validate_response(answer, checks=[positive_data_acceptance, *CONFORMANCE])
        assert answer.status_code < 300

    ask()
    assert regions == set(FakeService.regions)
