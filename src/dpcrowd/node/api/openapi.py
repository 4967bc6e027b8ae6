"""The OpenAPI document, made from the types that are decoded and encoded.

A WebSocket cannot be described in OpenAPI; it is told in words with the path that it shares.

A running node knows its regions, and its document lists them wherever a request may name one. Releases that are stored
may have regions of an earlier revision, so an answer's region is any text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any

from msgspec import Meta

from dpcrowd.node.api import views
from dpcrowd.node.api.estimates import MOST_ROWS
from dpcrowd.node.api.openapi_parts import (
    Part,
    answer,
    components,
    content,
    errors,
    operation,
    parameter,
    rows_answer,
    schema_of,
)
from dpcrowd.node.ingest.bodies import CHECKIN_TYPES, COUNTS_TYPES, CheckIn, Counts

__all__ = ["document"]

_CLASSES = (
    CheckIn,
    Counts,
    views.EstimateRow,
    views.BudgetView,
    views.NetworkStatus,
    views.Taken,
    views.Health,
    views.Readiness,
    views.LogLevel,
    views.Done,
    views.ErrorBody,
)
_Slot = Annotated[int, Meta(ge=0)]
_Moment = Annotated[str, Meta(description="RFC 3339 with an offset.", extra_json_schema={"format": "date-time"})]
_Limit = Annotated[int, Meta(ge=1, le=MOST_ROWS)]
_Region = Annotated[str, Meta(title="Region", description="The name of a region of network.toml.")]
_Lines = Annotated[str, Meta(description="One CheckIn per line.")]
_Arrow = Annotated[str, Meta(description="A table of user, region, time.", extra_json_schema={"format": "binary"})]
_REGION: Part = {"$ref": "#/components/schemas/Region"}

_ABOUT = """\
Check-ins in, estimates of a crowd out, of one server of a network.

Tokens have three separate rights: check-in, read, admin. Every refusal has a reason and a text, and repeats nothing \
of the request. Times are RFC 3339 in UTC."""

_CHECKINS = """\
A user counts once a slot, and the last region wins: sending a batch again is harmless. An empty list says that \
whoever counts is there, and saw nobody.

Each row is taken or refused by itself, by its own content and the clock; no answer depends on what others have sent. \
If only some rows are taken, the answer is 207 and names the others: `{"taken": true, "accepted": 998, "refused": \
[{"row": 4, "reason": "late"}, {"row": 17, "reason": "user"}], "refused_count": 2}`. If none is taken, the request is \
refused for the reason of its first row (`field` if that is `user`, `region`, `time` or `malformed`), with the same \
list in `error.refused`.

A user is a text or a whole number. A text is taken without spaces around it and in Unicode's normal form C (NFC), \
and the number 42 is the same user as the text "42": one person counts once, however the id was typed. Upper and lower \
case differ. `time` is RFC 3339 with an offset, or a whole number of milliseconds (not seconds) since 1970.

A body may be packed (`Content-Encoding: gzip`); what it is unpacked to must not be larger than `max_body` either. \
Arrow's formats need the extra `parquet` on the node.

A node with `accepts = "counts"` in `[ingest]` of node.toml takes no check-ins (403, `off`)."""
_COUNTS = """\
The counts of one slot, all or none. Sending a slot's counts again replaces them. A body may be packed \
(`Content-Encoding: gzip`). Only a node with \
`accepts = "counts"` in `[ingest]` of node.toml takes them (otherwise 403, `off`): a sum of counts and check-ins could \
count a person twice."""


@lru_cache(maxsize=8)
def document(regions: tuple[str, ...] | None = None) -> Part:
    """The description of every path; `regions` are those that a request may name, if they are known."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "dpcrowd node", "version": "1", "description": _ABOUT, "license": {"name": "Apache-2.0"}},
        "paths": {**_ingest(), **_estimates(), **_state(), **_admin()},
        "components": {
            "schemas": _schemas(regions),
            "securitySchemes": {
                right: {"type": "http", "scheme": "bearer", "description": f"A token with the right '{right}'."}
                for right in ("checkin", "read", "admin")
            },
        },
    }


def _schemas(regions: tuple[str, ...] | None) -> dict[str, Any]:
    """Of all classes; that of a region knows the regions, which no type does, and stands wherever one is named."""
    schemas = components(_CLASSES)
    schemas["Region"] = schema_of(_Region) | ({} if regions is None else {"enum": list(regions)})
    schemas["CheckIn"]["properties"]["region"] = _REGION
    schemas["Counts"]["properties"]["counts"]["propertyNames"] = _REGION
    return schemas


def _ingest() -> Part:
    rows = {"application/json": list[CheckIn], "application/x-ndjson": _Lines, "application/msgpack": list[CheckIn]}
    refusals = errors(400, 401, 403, 405, 408, 409, 413, 415, 429, 503)
    all_taken = {"202": answer("On disk; a crash does not lose it.", views.Taken)}
    some_taken = {"207": answer("Some rows are on disk; the others are named, each with its reason.", views.Taken)}
    checkins = operation(
        "sendCheckins",
        "Send check-ins",
        _CHECKINS,
        {**all_taken, **some_taken, **refusals},
        right="checkin",
        body=content({name: rows.get(name, _Arrow) for name in CHECKIN_TYPES}),
    )
    counts = operation(
        "sendCounts",
        "Send counts that were made distinct elsewhere",
        _COUNTS,
        {**all_taken, **refusals},
        right="checkin",
        body=content(dict.fromkeys(COUNTS_TYPES, Counts)),
    )
    return {"/v1/checkins": {"post": checkins}, "/v1/counts": {"post": counts}}


def _estimates() -> Part:
    region = parameter("region", "Only these regions.", list[str])
    region["schema"]["items"] = _REGION
    span = [
        parameter("from", "First slot, or a time: the slot that was open then.", _Slot | _Moment),
        parameter("to", "Last slot, included.", _Slot | _Moment),
        region,
        parameter("limit", "About how many rows at most; whole slots.", _Limit),
    ]
    after = parameter("after", "The last slot that was seen; Last-Event-ID does the same.", _Slot)
    refusals = errors(400, 401, 403, 406)
    events = {
        "200": answer(
            "Events: `estimates` (id: the slot; data: an array of EstimateRow) and `lost` (data: "
            '{"slots": n}, releases that a slow reader did not get).',
            str,
            "text/event-stream",
        ),
        **errors(400, 401, 403, 405),
    }
    about = (
        "The latest release, or those since `after`, and then each new one. The same path takes a WebSocket, whose "
        'text messages are {"event": "estimates", "slot": n, "rows": [EstimateRow]} and {"event": "lost", "slots": n}.'
    )
    return {
        "/v1/estimates/latest": {
            "get": operation("latestEstimates", "The latest release", "", {"200": rows_answer(), **refusals}, [region])
        },
        "/v1/estimates": {
            "get": operation(
                "estimates",
                "Releases of a range of slots, oldest first",
                "If there is more, the header Link gives the address of the next page.",
                {"200": {**rows_answer(), "headers": {"Link": {"schema": schema_of(str)}}}, **refusals},
                span,
            )
        },
        "/v1/stream": {"get": operation("stream", "Releases as they are published", about, events, [region, after])},
    }


def _state() -> Part:
    def read(name: str, text: str, answers: Part, right: str | Sequence[str] | None = "read", more: str = "") -> Part:
        return {"get": operation(name, text, more, answers, right=right)}

    closed = errors(401, 403)
    metrics = answer("Prometheus' text format.", str, "text/plain")
    description = answer("This.", dict[str, Any])
    ready = {code: answer(text, views.Readiness) for code, text in (("200", "Ready."), ("503", "Not ready."))}
    return {
        "/v1/budget": read("budget", "The privacy budget", {"200": answer("Amounts.", views.BudgetView), **closed}),
        "/v1/network": read(
            "network",
            "The network",
            {"200": answer("State.", views.NetworkStatus), **closed},
            ("read", "admin"),
            "`refused_checkins` is shown to a token of `admin` only, since it may be one person's check-in.",
        ),
        "/metrics": read(
            "metrics",
            "Metrics",
            {"200": metrics, **closed},
            more="Those that depend on how busy the node is are shown to a token that has the right `admin` as well.",
        ),
        "/healthz": read("health", "Whether the process answers", {"200": answer("It does.", views.Health)}, None),
        "/readyz": read("ready", "Whether the node can work", ready, None),
        "/openapi.json": read(
            "openapi",
            "This document",
            {"200": description},
            None,
            "With any token, or where reading is open, it lists the regions that a request may name.",
        ),
    }


def _admin() -> Part:
    def command(name: str, text: str, more: Part, body: Part | None = None) -> Part:
        answers = {"200": answer("Done.", views.Done), **errors(401, 403), **more}
        return {"post": operation(name, text, "", answers, right="admin", body=body)}

    return {
        "/v1/admin/reload": command("reload", "Take the files of the node as they are now", errors(409)),
        "/v1/admin/confirm-loss": command("confirmLoss", "Book what the ledger has lost as spent", errors(409)),
        "/v1/admin/accept-clock": command(
            "acceptClock", "Let slots begin again that a clock which was ahead has sealed", errors(409)
        ),
        "/v1/admin/log-level": command(
            "logLevel", "Change what is logged", errors(400), content({"application/json": views.LogLevel})
        ),
    }
