"""The OpenAPI document, generated from the types that are decoded and encoded.

OpenAPI cannot describe a WebSocket; the description of the path explains it.

The document of a running node lists its regions wherever a request may name one. Stored releases may have regions of an
earlier revision, so that the region of an answer is any text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any

from msgspec import Meta

from dpcrowd.node.api import views
from dpcrowd.node.api.estimates import MOST_ROWS
from dpcrowd.node.api.openapi_page import page_paths
from dpcrowd.node.api.openapi_parts import (
    VIEW,
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
from dpcrowd.node.api.page_views import History, NeighbourHistory, Topology
from dpcrowd.node.api.proofs import ProofsView
from dpcrowd.node.ingest.bodies import CHECKIN_TYPES, COUNTS_TYPES, CheckIn, Counts

__all__ = ["document"]

_CLASSES = (
    CheckIn,
    Counts,
    views.EstimateObject,
    History,
    NeighbourHistory,
    Topology,
    views.BudgetView,
    views.NetworkStatus,
    views.QualityView,
    ProofsView,
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
The API of one server of a network: it takes check-ins and returns estimates of the complete crowd.

Tokens have three separate rights: checkin, read, admin. Every refusal has a reason and a text, and does not quote the \
request. Times are RFC 3339 in UTC."""

_CHECKINS = """\
A user counts once per slot, in the last region: sending a batch again is harmless. An empty list reports that the \
feed runs and that nobody has checked in.

Each row is taken or refused by its own content and the clock; no answer depends on what others have sent. \
If only some rows are taken, the answer is 207 and names the others: `{"taken": true, "accepted": 998, "refused": \
[{"row": 4, "reason": "late"}, {"row": 17, "reason": "user"}], "refused_count": 2}`. If none is taken, the request is \
refused for the reason of its first row (`field` if that is `user`, `region`, `time` or `malformed`), with the same \
list in `error.refused`.

A user is a text or a whole number. Spaces around a text are removed, and it is converted to Unicode normal form C \
(NFC); the number 42 is the same user as the text "42": one person counts once, however the id was typed. Upper and \
lower case differ. `time` is RFC 3339 with an offset, or a whole number of milliseconds (not seconds) since 1970.

A body may be compressed (`Content-Encoding: gzip`); uncompressed, it must not be larger than `max_body` either. \
The formats of Arrow need the extra `parquet` on the node.

A node with `accepts = "counts"` in `[ingest]` of node.toml takes no check-ins (403, `off`)."""
_COUNTS = """\
The counts of one slot are taken all or none; sending them again replaces them. A body may be compressed \
(`Content-Encoding: gzip`). Only a node with `accepts = "counts"` in `[ingest]` of node.toml takes counts (otherwise \
403, `off`): a sum of counts and check-ins could count a person twice."""


_SMOOTHED = """\
If there are more, the header Link has the address of the next page.

With `smoothed=true` the answer has the same slots, estimated again with the records that came later, at no cost in \
privacy: errors are smaller, and intervals narrower. A slot changes after each release, for `lag` slots; then it is \
final. Slots from before a revision of the network are final when it takes over. Only slots that were smoothed are in \
the answer, so that it never mixes both kinds: slots from before the network ran relay are left out, and slots that \
the server has missed are there if it was back within the lag (`sampled` is false then). Ask without `smoothed` for \
what was released, which never changes. In a network whose scheme keeps no records, and never did, the request is \
refused (400, `no-records`)."""


_PROOFS = """\
Each proof is two records of one server and slot that differ, as the bytes that the server has signed, and its \
signatures: `dpcrowd node verify-proof` checks them with nothing but network.toml. A node has the proofs of the last \
`lag` slots; the list is empty if the scheme does not pass records on. It takes the right `admin`, since two records \
of one slot may be two draws of the same counts, which together tell more than either."""


_QUALITY = """\
Each record of another server that was used is compared with what this server had expected of it from other records. \
The difference, divided by the standard deviation that the server had claimed for it, is a normalised innovation. If \
the intervals are right, the mean square is about 1 and about 95% are within 1.96 (94% where the noise of privacy \
dominates). Records of servers that are suspected are left out; \
`suspected` names them. The raw counts of this server do not enter, and its \
own records only as part of the estimates that it released. The sum of several regions is one value, which counts in \
the total and not in `regions`. A server that has never been heard is in no innovation: if it counts more or fewer \
people than its public share says, the estimate may be wrong by more than its interval, and the calibration looks \
right."""


@lru_cache(maxsize=8)
def document(regions: tuple[str, ...] | None = None) -> Part:
    """Return the description of every path; `regions` are those that a request may name, if they are known."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "dpcrowd node", "version": "1", "description": _ABOUT, "license": {"name": "Apache-2.0"}},
        "paths": {**_ingest(), **_estimates(), **page_paths(_REGION), **_state(), **_admin()},
        "components": {
            "schemas": _schemas(regions),
            "securitySchemes": {
                right: {"type": "http", "scheme": "bearer", "description": f"A token with the right '{right}'."}
                for right in ("checkin", "read", "admin")
            },
        },
    }


def _schemas(regions: tuple[str, ...] | None) -> dict[str, Any]:
    """Return the schemas of all classes; that of a region lists the regions, and is used wherever one is named."""
    schemas = components(_CLASSES)
    schemas["Region"] = schema_of(_Region) | ({} if regions is None else {"enum": list(regions)})
    schemas["CheckIn"]["properties"]["region"] = _REGION
    schemas["Counts"]["properties"]["counts"]["propertyNames"] = _REGION
    return schemas


def _ingest() -> Part:
    rows = {"application/json": list[CheckIn], "application/x-ndjson": _Lines, "application/msgpack": list[CheckIn]}
    refusals = errors(400, 401, 403, 405, 408, 409, 413, 415, 429, 503)
    complete = {"202": answer("All rows are on disk; a crash does not lose them.", views.Taken)}
    partial = {"207": answer("Some rows are on disk; the others are named, each with its reason.", views.Taken)}
    checkins = operation(
        "sendCheckins",
        "Send check-ins",
        _CHECKINS,
        {**complete, **partial, **refusals},
        right="checkin",
        body=content({name: rows.get(name, _Arrow) for name in CHECKIN_TYPES}),
    )
    counts = operation(
        "sendCounts",
        "Send the numbers of distinct users of a slot, counted elsewhere",
        _COUNTS,
        {**complete, **refusals},
        right="checkin",
        body=content(dict.fromkeys(COUNTS_TYPES, Counts)),
    )
    return {"/v1/checkins": {"post": checkins}, "/v1/counts": {"post": counts}}


def _estimates() -> Part:
    region = parameter("region", "Return only these regions.", list[str])
    region["schema"]["items"] = _REGION
    span = [
        parameter("from", "The first slot, or a time: the slot that was open then.", _Slot | _Moment),
        parameter("to", "The last slot (included), or a time.", _Slot | _Moment),
        region,
        parameter(
            "limit", "Upper bound on the number of rows per page, rounded to complete slots, at least one.", _Limit
        ),
        parameter("smoothed", "Return the smoothed history instead of the values that were released.", bool),
        parameter(
            "measurements",
            "With `smoothed=true`: add `measurement` and `measurement_variance` to each row, what the records of the "
            "slot say of the region by themselves, without earlier slots or a model. `dpcrowd fit --releases` needs "
            "them. They are null where no record of the slot tells of the region alone (none was made, or several "
            "regions shared one draw of noise), and for slots that were final before version 0.2.",
            bool,
        ),
        VIEW,
    ]
    columns = parameter("columns", "Send each release as a History of one slot, which is shorter than rows.", bool)
    after = parameter("after", "The slot that was received last; Last-Event-ID does the same.", _Slot)
    refusals = errors(400, 401, 403, 406)
    events = {
        "200": answer(
            "Events: `estimates` (id: the slot; data: an array of EstimateRow, or a History with `columns=true`) and "
            '`lost` (data: {"slots": n}, releases that a slow reader did not get).',
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
            "get": operation(
                "latestEstimates", "Get the latest release", "", {"200": rows_answer(), **refusals}, [region, VIEW]
            )
        },
        "/v1/estimates": {
            "get": operation(
                "estimates",
                "Get the releases of a range of slots, oldest first",
                _SMOOTHED,
                {"200": {**rows_answer(), "headers": {"Link": {"schema": schema_of(str)}}}, **refusals},
                span,
            )
        },
        "/v1/stream": {
            "get": operation(
                "stream", "Get releases as they are published", about, events, [region, after, columns, VIEW]
            )
        },
    }


def _state() -> Part:
    def get(name: str, text: str, answers: Part, right: str | Sequence[str] | None = "read", more: str = "") -> Part:
        return {"get": operation(name, text, more, answers, right=right)}

    closed, refused = errors(401, 403), errors(400, 401, 403)
    metrics = answer("The metrics in the text format of Prometheus.", str, "text/plain")
    description = answer("The OpenAPI document.", dict[str, Any])
    ready = {
        code: answer(text, views.Readiness)
        for code, text in (("200", "The node is ready."), ("503", "The node is not ready."))
    }
    return {
        "/v1/budget": get(
            "budget", "Get the privacy budget", {"200": answer("The budget.", views.BudgetView), **closed}
        ),
        "/v1/network": get(
            "network",
            "Get the state of the network",
            {"200": answer("The state.", views.NetworkStatus), **closed},
            ("read", "admin"),
            "Only a token with the right `admin` gets `refused_checkins`, since it may be about a single person.",
        ),
        "/v1/quality": get(
            "quality",
            "Get the running calibration of the intervals",
            {"200": answer("The calibration.", views.QualityView), **refused},
            more=_QUALITY,
        ),
        "/v1/proofs": get(
            "proofs",
            "Get the proofs that servers have signed two different records",
            {"200": answer("The proofs.", ProofsView), **refused},
            ("admin",),
            _PROOFS,
        ),
        "/metrics": get(
            "metrics",
            "Get the metrics",
            {"200": metrics, **closed},
            more="Metrics that depend on the load of the node need a token that also has the right `admin`.",
        ),
        "/healthz": get(
            "health", "Check that the process answers", {"200": answer("The process answers.", views.Health)}, None
        ),
        "/readyz": get("ready", "Check that the node can do all of its work", ready, None),
        "/openapi.json": get(
            "openapi",
            "Get the OpenAPI document",
            {"200": description},
            None,
            "With any token, or if everybody may read, it lists the regions that a request may name.",
        ),
    }


def _admin() -> Part:
    def command(name: str, text: str, more: Part, body: Part | None = None) -> Part:
        answers = {"200": answer("The command was carried out.", views.Done), **errors(401, 403), **more}
        return {"post": operation(name, text, "", answers, right="admin", body=body)}

    return {
        "/v1/admin/reload": command("reload", "Read the files of the node again", errors(409)),
        "/v1/admin/confirm-loss": command(
            "confirmLoss", "Confirm that payments are lost, and book them as spent", errors(409)
        ),
        "/v1/admin/accept-clock": command(
            "acceptClock", "Accept the clock after it was ahead: slots that it has sealed begin again", errors(409)
        ),
        "/v1/admin/log-level": command(
            "logLevel", "Set the log level", errors(400), content({"application/json": views.LogLevel})
        ),
    }
