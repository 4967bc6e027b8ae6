"""The OpenAPI document, made from the classes that are decoded and encoded.

A WebSocket cannot be described in OpenAPI; it is told in words with the path that it shares.

A running node knows its regions, and its document lists them wherever a request may name one. Releases that are stored
may have regions of an earlier revision, so an answer's region is any text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from dpcrowd.node.api import views
from dpcrowd.node.api.openapi_parts import (
    Part,
    errors,
    json_answer,
    listed,
    operation,
    parameter,
    reference,
    rows_answer,
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
    _, schemas = msgspec.json.schema_components(_CLASSES, ref_template="#/components/schemas/{name}")
    region: Part = {"title": "Region", "type": "string", "description": "The name of a region of network.toml."}
    if regions is not None:
        region["enum"] = list(regions)
    schemas["Region"] = region
    schemas["CheckIn"]["properties"]["region"] = reference("Region")
    schemas["Counts"]["properties"]["counts"]["propertyNames"] = reference("Region")
    return schemas


def _ingest() -> Part:
    rows = {
        "application/json": {"schema": listed("CheckIn")},
        "application/x-ndjson": {"schema": {"type": "string", "description": "One CheckIn a line."}},
        "application/msgpack": {"schema": listed("CheckIn")},
    }
    binary = {"schema": {"type": "string", "format": "binary", "description": "A table of user, region, time."}}
    refusals = errors(400, 401, 403, 405, 408, 409, 413, 415, 429, 503)
    all_taken = {"202": json_answer("On disk; a crash does not lose it.", "Taken")}
    some_taken = {"207": json_answer("Some rows are on disk; the others are named, each with its reason.", "Taken")}
    checkins = operation(
        "sendCheckins",
        "Send check-ins",
        _CHECKINS,
        {**all_taken, **some_taken, **refusals},
        right="checkin",
        body={kind: rows.get(kind, binary) for kind in CHECKIN_TYPES},
    )
    counts = operation(
        "sendCounts",
        "Send counts that were made distinct elsewhere",
        _COUNTS,
        {**all_taken, **refusals},
        right="checkin",
        body={kind: {"schema": reference("Counts")} for kind in COUNTS_TYPES},
    )
    return {"/v1/checkins": {"post": checkins}, "/v1/counts": {"post": counts}}


def _estimates() -> Part:
    region = parameter("region", "Only these regions.", {"type": "array", "items": reference("Region")})
    when = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "date-time"}]}
    span = [
        parameter("from", "First slot, or a time: the slot that was open then.", when),
        parameter("to", "Last slot, included.", when),
        region,
        parameter("limit", "About how many rows at most; whole slots.", {"type": "integer", "minimum": 1}),
    ]
    seen = {"type": "integer", "minimum": 0}
    after = parameter("after", "The last slot that was seen; Last-Event-ID does the same.", seen)
    refusals = errors(400, 401, 403, 406)
    events = {
        "200": {
            "description": "Events: `estimates` (id: the slot; data: an array of EstimateRow) and `lost` (data: "
            '{"slots": n}, releases that a slow reader did not get).',
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
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
                {"200": {**rows_answer(), "headers": {"Link": {"schema": {"type": "string"}}}}, **refusals},
                span,
            )
        },
        "/v1/stream": {"get": operation("stream", "Releases as they are published", about, events, [region, after])},
    }


def _state() -> Part:
    def read(name: str, text: str, answers: Part, right: str | Sequence[str] | None = "read", more: str = "") -> Part:
        return {"get": operation(name, text, more, answers, right=right)}

    closed = errors(401, 403)
    metrics = {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    description = {"description": "This.", "content": {"application/json": {"schema": {"type": "object"}}}}
    ready = {code: json_answer(text, "Readiness") for code, text in (("200", "Ready."), ("503", "Not ready."))}
    return {
        "/v1/budget": read("budget", "The privacy budget", {"200": json_answer("Amounts.", "BudgetView"), **closed}),
        "/v1/network": read(
            "network",
            "The network",
            {"200": json_answer("State.", "NetworkStatus"), **closed},
            ("read", "admin"),
            "`refused_checkins` is shown to a token of `admin` only, since it may be one person's check-in.",
        ),
        "/metrics": read(
            "metrics",
            "Metrics",
            {"200": metrics, **closed},
            more="Those that depend on how busy the node is are shown to a token that has the right `admin` as well.",
        ),
        "/healthz": read("health", "Whether the process answers", {"200": json_answer("It does.", "Health")}, None),
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
        answers = {"200": json_answer("Done.", "Done"), **errors(401, 403), **more}
        return {"post": operation(name, text, "", answers, right="admin", body=body)}

    level = {"application/json": {"schema": reference("LogLevel")}}
    return {
        "/v1/admin/reload": command("reload", "Take the files of the node as they are now", errors(409)),
        "/v1/admin/confirm-loss": command("confirmLoss", "Book what the ledger has lost as spent", errors(409)),
        "/v1/admin/accept-clock": command(
            "acceptClock", "Let slots begin again that a clock which was ahead has sealed", errors(409)
        ),
        "/v1/admin/log-level": command("logLevel", "Change what is logged", errors(400), level),
    }
