"""Pieces of which the OpenAPI document is put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpcrowd.node.api.rows import ENCODERS, JSON

__all__ = ["Part", "errors", "json_answer", "listed", "operation", "parameter", "reference", "rows_answer"]

Part = dict[str, Any]

_ERRORS = {
    400: "Not understood; or not a single check-in could be taken: a wrong field, an unknown region, from the future.",
    401: "No token, or an unknown one.",
    403: "The token has another right, or the node takes counts instead of check-ins, or the reverse.",
    405: "Another method.",
    406: "No such format.",
    408: "The body did not come within a minute.",
    409: "The slot is sealed, or the command cannot be carried out.",
    413: "Too large.",
    415: "No such Content-Type, or no such Content-Encoding.",
    429: "This token makes more requests than `requests_per_second` of node.toml allows (`rate`); see Retry-After.",
    503: "Nothing can be taken at present; see Retry-After.",
}


def reference(name: str) -> Part:
    """Of a class."""
    return {"$ref": f"#/components/schemas/{name}"}


def listed(name: str) -> Part:
    """An array of a class."""
    return {"type": "array", "items": reference(name)}


def json_answer(text: str, name: str) -> Part:
    """An answer of a class."""
    return {"description": text, "content": {JSON: {"schema": reference(name)}}}


def rows_answer() -> Part:
    """Estimates in every format."""
    table = {"schema": {"type": "string", "description": "The columns are the fields of EstimateRow."}}
    content = {kind: {"schema": listed("EstimateRow")} if kind == JSON else table for kind in ENCODERS}
    return {"description": "Estimates.", "content": content}


def errors(*codes: int) -> Part:
    """Refusals by their codes."""
    answers: Part = {str(code): json_answer(_ERRORS[code], "ErrorBody") for code in codes}
    for code in ("429", "503"):
        if code in answers:
            answers[code]["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    return answers


def parameter(name: str, text: str, schema: Part) -> Part:
    """In the query; a list is the name repeated."""
    return {"name": name, "in": "query", "required": False, "description": text, "schema": schema, "explode": True}


def operation(
    name: str,
    summary: str,
    text: str,
    answers: Part,
    parameters: Sequence[Part] = (),
    *,
    right: str | Sequence[str] | None = "read",
    body: Part | None = None,
) -> Part:
    """One method of a path; `right` None: open to everybody; several: any of them will do."""
    made: Part = {"operationId": name, "summary": summary, "responses": answers}
    if text:
        made["description"] = text
    if parameters:
        made["parameters"] = list(parameters)
    if body is not None:
        made["requestBody"] = {"required": True, "content": body}
    rights = [right] if isinstance(right, str) else right or ()
    made["security"] = [{one: []} for one in rights]
    return made
