"""Pieces of which the OpenAPI document is put together. Every schema is made by msgspec, from a type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dpcrowd.node.api.rows import ENCODERS, JSON
from dpcrowd.node.api.views import ErrorBody, EstimateRow

__all__ = ["Part", "answer", "components", "content", "errors", "operation", "parameter", "rows_answer", "schema_of"]

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

_PLACE = "#/components/schemas/{name}"
_Table = Annotated[str, Meta(description="The columns are the fields of EstimateRow.")]


def schema_of(kind: Any) -> Part:
    """The schema of a type; of a class, a reference to it."""
    (schema,), _ = msgspec.json.schema_components((kind,), ref_template=_PLACE)
    return schema


def components(classes: Sequence[type]) -> Part:
    """The schemas that references lead to: of these classes, and of all that are in them."""
    _, schemas = msgspec.json.schema_components(classes, ref_template=_PLACE)
    return schemas


def content(kinds: Mapping[str, Any]) -> Part:
    """Types by the formats (of MIME) in which they are written."""
    return {name: {"schema": schema_of(kind)} for name, kind in kinds.items()}


def answer(text: str, kind: Any, format_name: str = JSON) -> Part:
    """An answer of a type, in one format."""
    return {"description": text, "content": content({format_name: kind})}


def rows_answer() -> Part:
    """Estimates in every format."""
    kinds = {name: list[EstimateRow] if name == JSON else _Table for name in ENCODERS}
    return {"description": "Estimates.", "content": content(kinds)}


def errors(*codes: int) -> Part:
    """Refusals by their codes."""
    answers: Part = {str(code): answer(_ERRORS[code], ErrorBody) for code in codes}
    for code in ("429", "503"):
        if code in answers:
            answers[code]["headers"] = {"Retry-After": {"schema": schema_of(int), "description": "Seconds."}}
    return answers


def parameter(name: str, text: str, kind: Any) -> Part:
    """In the query; a list is the name repeated."""
    schema = schema_of(kind)
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
