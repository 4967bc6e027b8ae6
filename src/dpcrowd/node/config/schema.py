"""JSON schemas of both files, for editors that complete and check TOML (Taplo, Even Better TOML, PyCharm).

The schema comes from the same classes that read the files, so it cannot lag behind. Quantities may be written in
several ways (a duration as "30s" or 30); defaults are shown as they are written in a file. A schema cannot express
conditions that involve several settings; they are checked when a file is loaded.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec

from dpcrowd.node.config.kinds import Duration, Moment, NanoEpsilon, Size, field_type, meta_of
from dpcrowd.node.config.network import NetworkConfig
from dpcrowd.node.config.node import NodeConfig
from dpcrowd.node.config.read import fields_of, rows_of

__all__ = ["TUNING", "network_schema", "node_schema", "settings"]

TUNING = {
    "theta": "FAST's θ: how fast the interval reacts.",
    "xi": "FAST's ξ: the error at which the interval stays as it is.",
    "sample_fraction": "T_s/T: the largest part of the slots that may be sampled (pinned users).",
    "rescue_theta": "RescueDP's θ.",
    "gains": "The PID gains C_p, C_i, C_d.",
    "integral_window": "T_i: how many past errors the integral term averages.",
    "floor": "δ: the smallest denominator of a relative error.",
    "alpha": "The weight of the noise variance in the observation variance.",
    "phi": "RescueDP's φ: budget p = min(φ ln(I + 1), p_max) of what is left.",
    "p_max": "The largest part of the remaining budget for one sample.",
    "epsilon_max": "The largest part of epsilon for one sample.",
    "tau1": "Regions above τ1 stand alone; a group's sum stays below it.",
    "tau2": "Regions of a group correlate by more than τ2.",
    "tau3": "Regions of a group differ by less than τ3.",
    "history": "κ: how many past releases the grouping looks at.",
}
"""The meaning of the fields of `dpcrowd.schemes.tuning.Tuning`, in one line each."""

_KINDS: dict[type, dict[str, Any]] = {
    Duration: {"anyOf": [{"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?(ms|s|m|h|d)$"}, {"type": "number"}]},
    Size: {"anyOf": [{"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?([KkMmGg][Ii]?[Bb])?$"}, {"type": "number"}]},
    NanoEpsilon: {
        "anyOf": [{"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"}, {"type": "number", "exclusiveMinimum": 0}]
    },
    Moment: {"type": "string", "format": "date-time"},
    Path: {"type": "string", "minLength": 1},
}


def network_schema() -> dict[str, Any]:
    """Return the JSON schema of network.toml."""
    return _schema(NetworkConfig, "network.toml", "The public configuration of a network, the same for all servers.")


def node_schema() -> dict[str, Any]:
    """Return the JSON schema of node.toml."""
    return _schema(NodeConfig, "node.toml", "The private configuration of one server.")


def settings(kind: Any, table: str = "") -> dict[str, str]:
    """Return the description of every setting of a file by its dotted path ("server[].share"), without tables."""
    descriptions: dict[str, str] = {}
    for name, annotation in fields_of(kind).items():
        path = f"{table}.{name}" if table else name
        inner, rows = field_type(annotation), rows_of(annotation)
        if fields_of(inner):
            descriptions |= settings(inner, path)
        elif rows is not None:
            descriptions |= settings(rows, f"{path}[]")
        else:
            meta = meta_of(annotation)
            descriptions[path] = (meta.description if meta else None) or TUNING.get(name, "")
    return descriptions


def _schema(kind: type[msgspec.Struct], title: str, description: str) -> dict[str, Any]:
    schema = msgspec.json.schema(kind, schema_hook=_KINDS.__getitem__)
    definitions = schema.pop("$defs")
    for table in _tables(kind):
        _describe(table, definitions[table.__name__])
    root = definitions.pop(kind.__name__)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "title": title,
        "description": description,
        "$defs": definitions,
    }


def _tables(kind: Any) -> list[Any]:
    """Return a table and all tables inside it."""
    inner = [rows_of(annotation) or field_type(annotation) for annotation in fields_of(kind).values()]
    return [kind, *(table for part in inner if fields_of(part) for table in _tables(part))]


def _describe(table: Any, definition: dict[str, Any]) -> None:
    """Add what msgspec leaves out: defaults of quantities, descriptions and strictness of plain dataclasses."""
    definition["description"] = (table.__doc__ or "").split("\n")[0]
    properties = definition["properties"]
    if dataclasses.is_dataclass(table):
        definition["additionalProperties"] = False
        for name, entry in properties.items():
            entry["description"] = TUNING[name]
        return
    for field in msgspec.structs.fields(table):
        if field.default_factory is not msgspec.NODEFAULT:
            value = field.default_factory()
            if isinstance(value, Duration | Size):
                properties[field.encode_name]["default"] = str(value)
        if properties[field.encode_name].get("default", 0) in (None, ""):
            del properties[field.encode_name]["default"]  # TOML has no null: such a setting is omitted
