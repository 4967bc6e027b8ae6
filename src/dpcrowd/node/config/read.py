"""From a TOML file to a typed configuration; a mistake becomes one line: where, what was given, what is allowed.

    network.toml: server[2].share (of 'clinic-c'): given 1.5; allowed: above 0 and at most 1.
    network.toml: guarantee: unknown setting 'epsilo'. Did you mean 'epsilon'? Allowed: ...

Unknown names are checked first, since the nearest valid one explains most other errors, too. Then msgspec checks types
and limits; its messages about types are replaced by the field's own `allowed` text.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from dpcrowd.errors import BadInput, plain, unknown_name
from dpcrowd.models.file import parse_model
from dpcrowd.node.config.kinds import InvalidValue, field_type, meta_of
from dpcrowd.node.config.network import NetworkConfig
from dpcrowd.node.config.node import NodeConfig
from dpcrowd.node.config.revision import check_member
from dpcrowd.node.config.values import decoder

__all__ = [
    "convert_network",
    "fields_of",
    "load_network",
    "load_node",
    "load_pair",
    "network_text",
    "parse",
    "parse_network",
    "parse_node",
    "read_text",
    "read_toml",
    "rows_of",
]

T = TypeVar("T")
_WHERE = re.compile(r"^(?P<text>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_ONE_LINE = r"""("{3}[^"\n]*"{3}|'{3}[^'\n]*'{3}|"[^"\n]*"(?!")|'[^'\n]*'(?!'))"""
"""A text of TOML on one line, in any of its kinds of quotation marks."""
_MODEL = re.compile(rf"^[ \t]*model[ \t]*=[ \t]*{_ONE_LINE}", re.MULTILINE)
_BESIDE = 'copy the model into the folder of network.toml, and give its name there, such as "model.toml"'
_SHOWN = 60
_LONGEST = 1_500
_LARGEST = 64 << 20


def parse_network(text: str, where: str = "network.toml") -> NetworkConfig:
    """Return the network that a text describes; `where` is the name of the file in errors."""
    try:
        return _network_of(text)
    except BadInput as error:
        raise BadInput(f"{where}{error}") from None


@lru_cache(maxsize=4)
def _network_of(text: str) -> NetworkConfig:
    """Return the network that a text describes; errors begin where the name of the file ends.

    A node that starts, takes over a revision or replays a recording reads the same text from several files, and what
    follows from a text (the best reach, say) takes time. A `NetworkConfig` never changes, so one serves for all.
    """
    return parse(text, NetworkConfig, "", decoder(Path()))


def load_network(path: str | os.PathLike[str]) -> NetworkConfig:
    """Return the network that a file describes."""
    return parse_network(network_text(path), os.fspath(path))


def network_text(path: str | os.PathLike[str], *, is_plan: bool = False) -> str:
    """Return the text of a network.toml, in which the text of a model stands in the place of its file's name.

    So a copy of it is complete, wherever it is kept. A network.toml comes from somebody else, so it names no file
    outside its own folder; a plan, which its reader has made, may do so (`is_plan`).
    """
    text, where = read_text(path), os.fspath(path)
    scheme = read_toml(text, where).get("scheme")
    name = scheme.get("model") if isinstance(scheme, dict) else None
    if not isinstance(name, str) or "\n" in name:
        return text
    line = _MODEL.search(text, text.index("[scheme]") if "[scheme]" in text else 0)
    if line is None:
        raise BadInput(f"{where}: scheme.model: write it as a line of its own in [scheme]: model = {json.dumps(name)}")
    if not is_plan:
        _check_beside(name, where)
    file = Path(path).absolute().parent / name
    try:
        if not name.strip():
            raise BadInput(f"{json.dumps(name)} is not the name of a file; {_BESIDE}.")
        if not _is_regular(file):  # reading a pipe or a device may never end
            raise BadInput(f"{json.dumps(name)} is not a regular file; {_BESIDE}.")
        content = read_text(file).removeprefix("\ufeff")
        if "\n" in content:
            parse_model(content, str(file))  # here, since the text alone does not say where it comes from
    except BadInput as error:
        raise BadInput(f"{where}: scheme.model: {error}") from None
    if "\n" not in content:
        fault = "is empty" if not content.strip() else "is not a process model"
        raise BadInput(f"{where}: scheme.model: '{name}' {fault}; give a file that 'dpcrowd fit' wrote.")
    return f"{text[: line.start()]}model = {json.dumps(content, ensure_ascii=False)}{text[line.end() :]}"


def _check_beside(name: str, where: str) -> None:
    """Refuse the path of a model that leaves the folder of the network.toml that names it."""
    if os.path.isabs(name) or os.path.normpath(name).split(os.sep)[0] == os.pardir:
        raise BadInput(f"{where}: scheme.model: {json.dumps(name)} is not beside network.toml; {_BESIDE}.")


def _is_regular(file: Path) -> bool:
    """Whether a path is that of a file, and not of a folder, a pipe or a device; a missing one is refused later."""
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except (OSError, ValueError):
        return True


def parse_node(text: str, where: str = "node.toml", folder: str | os.PathLike[str] = ".") -> NodeConfig:
    """Return the node that a text describes; paths in it are relative to `folder`."""
    return parse(text, NodeConfig, where, decoder(Path(folder).absolute()))


def load_node(path: str | os.PathLike[str]) -> NodeConfig:
    """Return the node that a file describes, with absolute paths."""
    return parse_node(read_text(path), os.fspath(path), Path(path).absolute().parent)


def load_pair(path: str | os.PathLike[str]) -> tuple[NodeConfig, NetworkConfig]:
    """Return a node and the network that it names; the server has to belong to the network."""
    node = load_node(path)
    network = load_network(node.network)
    check_member(network, node.server, f"{os.fspath(path)}: server")
    if network.server(node.server).keep < 1 and node.ingest.accepts == "counts":
        raise BadInput(
            f'{os.fspath(path)}: ingest.accepts: given "counts", but network.toml has keep below 1 for '
            f"'{node.server}', so the server has to choose users one by one; allowed: \"checkins\", or keep = 1."
        )
    return node, network


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a configuration file."""
    where = os.fspath(path)
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise BadInput(f"{where}: cannot be read: {error.strerror or error}.") from None
    except ValueError:  # a NUL in the path
        raise BadInput(f"{where!r} is not a path.") from None
    if len(content) > _LARGEST:
        raise BadInput(f"{where}: larger than {_LARGEST >> 20} MiB, so it is not a configuration file.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{where}: not UTF-8 text, as a TOML file has to be.") from None


def read_toml(text: str, where: str) -> dict[str, Any]:
    """Return the plain tables of a TOML text."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise BadInput(f"{where}: not valid TOML: nested too deeply.") from None
    except ValueError as error:
        raise BadInput(f"{where}: not valid TOML: {plain(_one_line(str(error)))}.") from None


def parse(text: str, kind: type[T], where: str, decode: Callable[[type, Any], Any]) -> T:
    """Return the configuration of a kind that a TOML text describes; `where` is the name of the file in errors."""
    return _convert(read_toml(text, where), kind, where, decode)


def convert_network(raw: dict[str, Any], where: str) -> NetworkConfig:
    """Return the network that plain tables describe; `where` is the name of the file in errors."""
    return _convert(raw, NetworkConfig, where, decoder(Path()))


def _convert(raw: dict[str, Any], kind: type[T], where: str, decode: Callable[[type, Any], Any]) -> T:
    try:
        _check_names(raw, kind, "", kind)
        return msgspec.convert(raw, kind, dec_hook=decode)
    except InvalidValue as error:
        raise BadInput(_line(where, raw, error.path, error.problem)) from None
    except msgspec.ValidationError as error:
        path, problem = _explain(error, raw, kind)
        raise BadInput(_line(where, raw, path, problem)) from None


def fields_of(kind: Any) -> Mapping[str, Any]:
    """Return the annotations of a table's settings by their names in the file; empty if the kind is not a table."""
    return _fields_of_class(kind) if isinstance(kind, type) else _NO_FIELDS


_NO_FIELDS: Mapping[str, Any] = {}


@cache
def _fields_of_class(kind: type) -> Mapping[str, Any]:
    """Return what `fields_of` returns; evaluating the annotations takes far longer than reading a file."""
    if issubclass(kind, msgspec.Struct):
        return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return _NO_FIELDS


def rows_of(annotation: Any) -> Any:
    """Return the kind of the rows of an array of tables, or None."""
    plain = field_type(annotation)
    inner = get_args(plain)
    return inner[0] if getattr(plain, "__origin__", None) is tuple and inner and fields_of(inner[0]) else None


def _check_names(raw: Any, kind: Any, path: str, root: Any) -> None:
    """Refuse names that do not exist, and numbers that are too large for any setting."""
    fields = fields_of(kind)
    for name, value in raw.items():
        here = f"{path}.{name}" if path else name
        if fields and name not in fields:
            home = _tables_of_settings(root).get(name)
            if home is not None:
                raise InvalidValue(path, f"'{name}' is not a setting of this table; it belongs in {home}.")
            raise InvalidValue(path, str(unknown_name("setting", _shortened(name), fields)))
        _check_numbers(value, here)
        inner = field_type(fields.get(name))
        if isinstance(value, dict) and fields_of(inner):
            _check_names(value, inner, here, root)
        rows = rows_of(inner)
        if isinstance(value, list) and rows is not None:
            for number, row in enumerate(value):
                if isinstance(row, dict):
                    _check_names(row, rows, f"{here}[{number}]", root)


def _tables_of_settings(kind: Any, path: str = "") -> dict[str, str]:
    """Return the table of every setting, as it is written in a file: [guarantee], [[server]]."""
    tables: dict[str, str] = {}
    for name, annotation in fields_of(kind).items():
        inner, rows = field_type(annotation), rows_of(annotation)
        here = f"{path}{name}"
        if rows is not None:
            tables |= dict.fromkeys(fields_of(rows), f"[[{here}]]")
        elif fields_of(inner):
            tables |= dict.fromkeys(fields_of(inner), f"[{here}]") | _tables_of_settings(inner, f"{here}.")
    return tables


def _check_numbers(value: Any, path: str) -> None:
    if isinstance(value, list):
        for number, item in enumerate(value):
            _check_numbers(item, f"{path}[{number}]")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidValue(path, "given a whole number of more than 64 bits; no setting can be that large.")


def _explain(error: msgspec.ValidationError, raw: Any, kind: Any) -> tuple[str, str]:
    """Return the path of the setting, and what is wrong with it."""
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
        return path, f"missing; needed: {allowed or 'a value'}.{_beside_plural(raw, path)}"
    value = _value_at(raw, path)
    if allowed:
        if secret:
            return path, f"given a value that is not shown here; allowed: {allowed}."
        hint = _plural(kind, path) if isinstance(value, dict) else _nearest(allowed, value)
        return path, f"given {_text_of(value)}; allowed: {allowed}.{hint}"
    return path, _one_line(str(cause) if isinstance(cause, BadInput) else match["text"])


def _plural(kind: Any, path: str) -> str:
    """Suggest the setting of a table, such as `shares`, to whoever gives a table as that of a number, `share`."""
    table, _, name = path.rpartition(".")
    allowed, _ = _allowed(kind, f"{path}s")
    return f" A table belongs in '{name}s', beside '{name}'." if allowed not in ("", _allowed(kind, table)[0]) else ""


def _beside_plural(raw: Any, path: str) -> str:
    """Say that a setting, such as `share`, is needed beside its table, such as `shares`, if that is there."""
    table, _, name = path.rpartition(".")
    values = _value_at(raw, table)
    is_there = isinstance(values, dict) and f"{name}s" in values
    return f" '{name}s' stands beside '{name}', and not in its place." if is_there else ""


def _nearest(allowed: str, value: Any) -> str:
    """Suggest the allowed word that was probably meant."""
    words = re.findall(r'"([a-z-]+)"', allowed)
    near = difflib.get_close_matches(value.lower(), words, n=1, cutoff=0.5) if isinstance(value, str) else []
    return f" Did you mean '{near[0]}'?" if near else ""


def _steps(path: str) -> Iterator[str | int]:
    for name, number in _STEP.findall(path):
        yield int(number) if number else name


def _allowed(kind: Any, path: str) -> tuple[str, bool]:
    """Return the `allowed` text of the setting at a path, or of the table around it, and whether it is secret."""
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


def _value_at(raw: Any, path: str) -> Any:
    """Return what the file has at a path."""
    for step in _steps(path):
        raw = raw[step]
    return raw


def _line(where: str, raw: Any, path: str, problem: str) -> str:
    """Return the error as one line; a row is named as well as numbered, since people miscount rows."""
    name = None
    row = re.match(r"(\w+\[\d+\])", path)
    if row:
        table = _value_at(raw, row[1])
        name = table.get("name") if isinstance(table, dict) else None
    whose = f" (of '{name}')" if isinstance(name, str) and len(name) < _SHOWN and name.isprintable() else ""
    short = problem if len(problem) <= _LONGEST else f"{problem[:_LONGEST]}..."
    return f"{where}: {plain(f'{path}{whose}: {short}' if path else short)}"


def _text_of(value: Any) -> str:
    """Return a value as a short text on one line."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, bool):
        return str(value).lower()  # as TOML has it
    text = _one_line(value.isoformat() if hasattr(value, "isoformat") else repr(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _shortened(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."


def _one_line(text: str) -> str:
    return " ".join(text.split())
