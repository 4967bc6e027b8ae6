"""Generate the page docs/api.md from the OpenAPI document: python -m dpcrowd.node.api.reference > docs/api.md"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from dpcrowd.node.api.openapi import document
from dpcrowd.node.api.openapi_parts import Part, schema_of
from dpcrowd.node.api.rows import JSON
from dpcrowd.node.api.views import ErrorBody

__all__ = ["page"]

_RIGHTS = {right: f"a token with the right `{right}`" for right in ("checkin", "read", "admin")}
_HEAD = """\
# HTTP API

This page is generated from the OpenAPI document that every node serves at `/openapi.json`
(`python -m dpcrowd.node.api.reference > docs/api.md`). `dpcrowd.Client` and `dpcrowd.AsyncClient` use the API from
Python: see [below](#from-python).

The API belongs to one server of a network: it takes check-ins and returns estimates of the complete crowd. Times are
RFC 3339 in UTC. Where `[tokens]` of `node.toml` requires one, a token is sent as `Authorization: Bearer TOKEN`; its
three rights are separate, and none implies another.

Every answer that is not a success is an [ErrorBody](#errorbody): a reason for programs and a text for people, neither
of which quotes the request. [Failures](failures.md) lists the reasons.

    curl -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \\
         -d '[{"user": "ann", "region": "north"}]' http://127.0.0.1:8080/v1/checkins
    curl -H "Authorization: Bearer $TOKEN" -H "Accept: text/csv" "http://127.0.0.1:8080/v1/estimates?from=100&to=200"

## From Python

    import dpcrowd                                                    # pip install "dpcrowd[client]"

    client = dpcrowd.Client("http://127.0.0.1:8080", token="...")
    delivery = client.checkin(["ann", "bob"], ["north", "south"])     # or a list of {"user", "region", "time"?}
    for row, reason in delivery.refused:                              # empty if every row was taken
        print(f"row {row}: {reason}")
    client.idle()                                                     # nobody checked in, but the feed runs
    client.counts(4182, {"north": 120, "south": 88})
    client.latest().to_polars()                                       # also to_pandas, to_arrow, to_numpy, dict(...)
    table = client.estimates(4000, 4182, regions=["north"])           # columns are numpy arrays: table.estimate
    client.latest().nonnegative                                       # the same total, without negative numbers
    client.latest().median                                            # closest most often; not to be added up
    client.estimates(4000, 4182, smoothed=True)                       # the same slots, with what came later (relay)
    client.estimates(smoothed=True, measurements=True)                # for dpcrowd fit --releases
    for release in client.stream(seconds=3600):                       # reconnects by itself, misses nothing
        print(release.slot[0], release.estimate.sum())
    client.budget().remaining, client.network().neighbours, client.ready().problems
    client.totals(24).high                                            # the complete population, in the last 24 slots
    client.quality().coverage                                         # of the intervals; about 0.95 if all is well
    client.request("POST", "/v1/admin/reload")                        # any other path: the JSON answer

`dpcrowd.AsyncClient` has the same methods as coroutines, and `stream` as an async iterator. Temporary failures (no
connection, 429, 503) are retried with growing pauses, or after the node's `Retry-After`, with at most `patience`
seconds of waiting per request. After that, and for each refusal, a `dpcrowd.client.NodeError` is raised: `NotAllowed`,
`RequestRefused`, `NotTaken`, `NodeBusy`, `NodeFailed` or `NodeUnreachable`, with the node's `reason` and `text`. No
error contains a user id.

**Check-ins** are columns, rows, lines of NDJSON, or tables of pandas, polars and Arrow. Every row that can be taken is
taken; a wrong row does not affect the others. `checkin` returns a `Delivery`:

- `accepted`: the number of rows on the node's disk. The `Delivery` itself is this integer, too.
- `refused`: rows that were left out, as `(row, reason)`: the row's number in the argument, counted from 0, and `late`,
  `future`, `unknown-region`, `user`, `region`, `time` or `malformed`. A node names at most the first 1,000 rows of a
  request; with `batch=1000`, these are all.
- `refused_count`: the number of rows that were left out.

If some rows are refused, the `Delivery` says which; with `strict=True`, `RowsRefused` is raised after all others were
taken, and its `delivery` says which. If no row is taken, `NotTaken` or `RequestRefused` is raised, with `rows` and
`delivery`, or `BadInput` if no row could be sent. If the node fails during a delivery, the error's `delivery` says what
became of the rows before row `taken`; send `rows[error.taken:]` again. A node of 0.1.0 refuses a complete request for
one wrong row: the client leaves out the rows that the node names, and sends the others again.

Sending twice is harmless: a node counts the distinct users of a slot, so a request that is sent again because its
answer was lost counts nobody twice. But a check-in without a time counts when it arrives, so a retry may fall into the
next slot: give times where that matters. `compress=True` compresses bodies with gzip, for slow connections. The client
ignores proxies of the environment; `proxy=` names one, `ca=` the authority of a node with HTTPS.
"""


def page() -> str:
    """Return the complete page."""
    api = document()
    refusals: dict[str, str] = {}
    lines = [_HEAD, "## Paths", ""]
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            lines += _operation(path, method, operation, refusals)
    lines += ["## Refusals", "", "| status | |", "|---|---|"]
    lines += [f"| {status} | {text} |" for status, text in sorted(refusals.items())]
    lines += ["", "## Types", ""]
    for name, schema in sorted(api["components"]["schemas"].items()):
        lines += _type(name, schema)
    return "\n".join(lines).rstrip() + "\n"


def _operation(path: str, method: str, operation: Part, refusals: dict[str, str]) -> Iterator[str]:
    """Return a section; refusals, which are the same everywhere, are listed by status, and their texts collected."""
    rights = [_RIGHTS[right] for one in operation["security"] for right in one]
    yield from (f"### {method.upper()} {path}", "", _sentence(operation["summary"]))
    if "description" in operation:
        yield operation["description"]
    yield from (f"Needs {' or '.join(rights)}." if rights else "Open to everybody.", "")
    if "parameters" in operation:
        yield from ("| parameter | type | meaning |", "|---|---|---|")
        for one in operation["parameters"]:
            yield f"| `{one['name']}` | {_kind(one['schema'])} | {_cell(one['description'])} |"
        yield ""
    if "requestBody" in operation:
        yield from ("| body | |", "|---|---|")
        for kind, content in operation["requestBody"]["content"].items():
            yield f"| `{kind}` | {_content(content['schema'])} |"
        yield ""
    yield from ("| answer | | |", "|---|---|---|")
    statuses = []
    for status, answer in operation["responses"].items():
        if answer["content"].get(JSON) == {"schema": schema_of(ErrorBody)}:
            statuses.append(status)
            refusals[status] = _cell(answer["description"])
            continue
        content = [f"`{kind}`: {_content(one['schema'])}" for kind, one in answer["content"].items()]
        yield f"| {status} | {_cell(answer['description'])} | {'<br>'.join(content)} |"
    yield ""
    if statuses:
        yield from (f"Refused with {', '.join(sorted(statuses))}.", "")


def _type(name: str, schema: Part) -> Iterator[str]:
    yield from (f"### {name}", "", " ".join(schema.get("description", "").split()), "")
    if "properties" not in schema:
        yield from (f"A {_kind(schema)}.", "")
        return
    yield from ("| field | type | meaning |", "|---|---|---|")
    required = set(schema.get("required", ()))
    for field, part in schema["properties"].items():
        optional = "" if field in required else ", optional"
        parts = [part, *part.get("anyOf", ())]
        meaning = next((one["description"] for one in parts if "description" in one), "")
        yield f"| `{field}` | {_kind(part)}{optional} | {_cell(meaning)} |"
    yield ""


def _content(schema: Part) -> str:
    return _cell(schema["description"]) if "description" in schema else _kind(schema)


def _kind(schema: Part) -> str:
    """Return the type of a value in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"`{_literal(one)}`" for one in schema["enum"])
    if "prefixItems" in schema:
        return f"list of {len(schema['prefixItems'])}: {', '.join(map(_kind, schema['prefixItems']))}"
    if schema["type"] == "array":
        return f"list of {_kind(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        names = f" by {_kind(schema['propertyNames'])}" if "propertyNames" in schema else ""
        return f"object of {_kind(schema['additionalProperties'])}{names}"
    if schema.get("format") == "date-time":
        return "time"
    kind = {"string": "text", "integer": "whole number", "boolean": "true or false"}.get(schema["type"], schema["type"])
    bounds = [(low, high) for low, high in (("minimum", "maximum"), ("minLength", "maxLength")) if low in schema]
    ranges = [f"{schema[low]} to {schema[high]}" if high in schema else f"from {schema[low]}" for low, high in bounds]
    return f"{kind} ({ranges[0]}{' characters' if 'minLength' in schema else ''})" if ranges else str(kind)


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


if __name__ == "__main__":
    sys.stdout.write(page())
