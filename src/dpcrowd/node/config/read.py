"""From TOML text to a typed configuration; a mistake becomes one line: where, what was given, what is allowed.

    network.toml: server[2].share (of 'clinic-c'): given 1.5; allowed: above 0 and at most 1.
    network.toml: guarantee: unknown setting 'epsilo'. Did you mean 'epsilon'? Allowed: ...

Unknown names are looked for first, since the nearest valid one explains most other errors, too. Then msgspec checks
types and limits; what it says about types is replaced by the field's own `allowed` text.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.node.config.kinds import InvalidValue, field_type, meta_of
from dpcrowd.node.config.network import NetworkConfig
from dpcrowd.node.config.node import NodeConfig
from dpcrowd.node.config.revision import check_member
from dpcrowd.node.config.values import decoder

__all__ = [
    "fields_of",
    "load_network",
    "load_node",
    "load_pair",
    "parse",
    "parse_network",
    "parse_node",
    "read_toml",
    "rows_of",
]

T = TypeVar("T")
_WHERE = re.compile(r"^(?P<text>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_SHOWN = 60
_LONGEST = 1_500
_LARGEST = 64 << 20


def parse_network(text: str, where: str = "network.toml") -> NetworkConfig:
    """A network from the text of its file; `where` is what errors call it."""
    return parse(text, NetworkConfig, where, decoder(Path()))


def load_network(path: str | os.PathLike[str]) -> NetworkConfig:
    """A network from its file."""
    return parse_network(_text(path), os.fspath(path))


def parse_node(text: str, where: str = "node.toml", folder: str | os.PathLike[str] = ".") -> NodeConfig:
    """A node from the text of its file; paths in it are relative to `folder`."""
    return parse(text, NodeConfig, where, decoder(Path(folder).absolute()))


def load_node(path: str | os.PathLike[str]) -> NodeConfig:
    """A node from its file, with absolute paths."""
    return parse_node(_text(path), os.fspath(path), Path(path).absolute().parent)


def load_pair(path: str | os.PathLike[str]) -> tuple[NodeConfig, NetworkConfig]:
    """A node and the network that it names; the server has to be one of the network's."""
    node = load_node(path)
    network = load_network(node.network)
    check_member(network, node.server, f"{os.fspath(path)}: server")
    if network.server(node.server).keep < 1 and node.ingest.accepts == "counts":
        raise BadInput(
            f'{os.fspath(path)}: ingest.accepts: given "counts", but network.toml has keep below 1 for '
            f"'{node.server}', which chooses users one by one; allowed: \"checkins\", or keep = 1."
        )
    return node, network


def _text(path: str | os.PathLike[str]) -> str:
    where = os.fspath(path)
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise BadInput(f"{where}: cannot be read: {error.strerror or error}.") from None
    except ValueError:  # a NUL in the path
        raise BadInput(f"{where!r}: not a path.") from None
    if len(content) > _LARGEST:
        raise BadInput(f"{where}: larger than {_LARGEST >> 20} MiB; this is no configuration file.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{where}: not UTF-8 text; TOML files are.") from None


def read_toml(text: str, where: str) -> dict[str, Any]:
    """The plain tables of a TOML text."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise BadInput(f"{where}: not valid TOML: nested too deeply.") from None
    except ValueError as error:
        raise BadInput(f"{where}: not valid TOML: {_printable(_one_line(str(error)))}.") from None


def parse(text: str, kind: type[T], where: str, decode: Callable[[type, Any], Any]) -> T:
    """A configuration of the given kind from a TOML text; `where` is what errors call the file."""
    raw = read_toml(text, where)
    try:
        _check_names(raw, kind, "", kind)
        return msgspec.convert(raw, kind, dec_hook=decode)
    except InvalidValue as refused:
        raise BadInput(_line(where, raw, refused.path, refused.problem)) from None
    except msgspec.ValidationError as error:
        path, problem = _explain(error, raw, kind)
        raise BadInput(_line(where, raw, path, problem)) from None


def fields_of(kind: Any) -> dict[str, Any]:
    """The settings of a table by the names they have in the file, with their annotations; empty if it is no table."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return {}


def rows_of(annotation: Any) -> Any:
    """The kind of the rows of an array of tables, or None."""
    plain = field_type(annotation)
    inner = get_args(plain)
    return inner[0] if getattr(plain, "__origin__", None) is tuple and inner and fields_of(inner[0]) else None


def _check_names(raw: Any, kind: Any, path: str, root: Any) -> None:
    """Refuse names that do not exist, and numbers that nothing here can hold."""
    known = fields_of(kind)
    for name, value in raw.items():
        here = f"{path}.{name}" if path else name
        if known and name not in known:
            home = _homes(root).get(name)
            if home is not None:
                raise InvalidValue(path, f"'{name}' is no setting of this table; it belongs in {home}.")
            raise InvalidValue(path, str(unknown_name("setting", _shown_name(name), known)))
        _check_numbers(value, here)
        inner = field_type(known.get(name))
        if isinstance(value, dict) and fields_of(inner):
            _check_names(value, inner, here, root)
        rows = rows_of(inner)
        if isinstance(value, list) and rows is not None:
            for number, row in enumerate(value):
                if isinstance(row, dict):
                    _check_names(row, rows, f"{here}[{number}]", root)


def _homes(kind: Any, path: str = "") -> dict[str, str]:
    """The table of every setting that is in some table, as a file writes it: [guarantee], [[server]]."""
    found: dict[str, str] = {}
    for name, annotation in fields_of(kind).items():
        inner, rows = field_type(annotation), rows_of(annotation)
        here = f"{path}{name}"
        if rows is not None:
            found |= dict.fromkeys(fields_of(rows), f"[[{here}]]")
        elif fields_of(inner):
            found |= dict.fromkeys(fields_of(inner), f"[{here}]") | _homes(inner, f"{here}.")
    return found


def _check_numbers(value: Any, path: str) -> None:
    if isinstance(value, list):
        for number, item in enumerate(value):
            _check_numbers(item, f"{path}[{number}]")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidValue(path, "given a whole number of more than 64 bits; no setting is that large.")


def _explain(error: msgspec.ValidationError, raw: Any, kind: Any) -> tuple[str, str]:
    """The path of the setting, and what is wrong with it."""
    match = _WHERE.match(str(error))
    assert match is not None
    path = (match["path"] or "").lstrip(".")
    cause = error.__cause__
    if isinstance(cause, InvalidValue):
        return f"{path}.{cause.path}".strip("."), cause.problem
    missing = _MISSING.match(match["text"])
    if missing:
        path = f"{path}.{missing[1]}".strip(".")
    allowed, secret = _allowed(kind, path)
    if missing:
        return path, f"missing; needed: {allowed or 'a value'}."
    given = _given(raw, path)
    if allowed:
        if secret:
            return path, f"given a value that is not shown here; allowed: {allowed}."
        return path, f"given {_shown(given)}; allowed: {allowed}.{_nearest(allowed, given)}"
    return path, _one_line(str(cause) if isinstance(cause, BadInput) else match["text"])


def _nearest(allowed: str, given: Any) -> str:
    """For a word that is none of the allowed ones: the one that was probably meant."""
    words = re.findall(r'"([a-z-]+)"', allowed)
    near = difflib.get_close_matches(given.lower(), words, n=1, cutoff=0.5) if isinstance(given, str) else []
    return f" Did you mean '{near[0]}'?" if near else ""


def _steps(path: str) -> Iterator[str | int]:
    for name, number in _STEP.findall(path):
        yield int(number) if number else name


def _allowed(kind: Any, path: str) -> tuple[str, bool]:
    """The `allowed` text of the setting at a path, or of the nearest one around it."""
    allowed, secret = "", False
    for step in _steps(path):
        if isinstance(step, int):
            kind = rows_of(kind) or kind
            continue
        annotation = fields_of(field_type(kind)).get(step)
        if annotation is None:
            break
        meta = meta_of(annotation)
        extra = (meta.extra if meta else None) or {}
        allowed, secret = str(extra.get("allowed", "")), bool(extra.get("secret", False))
        kind = annotation
    return allowed, secret


def _given(raw: Any, path: str) -> Any:
    for step in _steps(path):
        raw = raw[step]
    return raw


def _line(where: str, raw: Any, path: str, problem: str) -> str:
    """One line; a row is named as well as numbered, since people count rows badly."""
    name = None
    row = re.match(r"(\w+\[\d+\])", path)
    if row:
        found = _given(raw, row[1])
        name = found.get("name") if isinstance(found, dict) else None
    whose = f" (of '{name}')" if isinstance(name, str) and len(name) < _SHOWN and name.isprintable() else ""
    short = problem if len(problem) <= _LONGEST else f"{problem[:_LONGEST]}..."
    return f"{where}: {_printable(f'{path}{whose}: {short}' if path else short)}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    text = _one_line(value.isoformat() if hasattr(value, "isoformat") else repr(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _shown_name(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."


def _printable(text: str) -> str:
    """What a file holds must not move a terminal's cursor, nor make a second line in a log."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _one_line(text: str) -> str:
    return " ".join(text.split())
