"""A scheme's state as named arrays and as bytes, exactly: what was saved is what comes back, bit for bit."""

from __future__ import annotations

import hashlib
import re
from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import BadInput
from dpcrowd.network.spread import Held
from dpcrowd.privacy import Ledger
from dpcrowd.schemes.base import Scheme, Setting

__all__ = ["fingerprint", "from_bytes", "load_into", "pack", "to_bytes", "unpack"]

Arrays = dict[str, NDArray[Any]]

_FORMER_FIELDS = {"form": "grouper", "phases": "pid_loop"}
"""By the field before it: fields that a `Setting` had, always as None, when the first fingerprints were saved."""


def pack(value: Any, name: str) -> Arrays:
    """Return all arrays and numbers inside a (nested) dataclass, by dotted names.

    Fields that are None, or that follow from the others (metadata `saved` is False), are left out.
    """
    arrays: Arrays = {}
    _pack_into(arrays, value, name)
    return arrays


def _pack_into(arrays: Arrays, value: Any, name: str) -> None:
    if isinstance(value, _NUMBERS):
        arrays[name] = np.asarray(value)
    elif value is None or isinstance(value, Setting):
        return
    elif isinstance(value, _WITH_ARRAYS):
        for key, array in value.arrays().items():
            arrays[f"{name}.{key}"] = array
    elif is_dataclass(value):
        kind: Any = type(value)
        for field, path in _saved_fields(kind, name):
            part = getattr(value, field)
            if type(part) is np.ndarray:  # most are: a server saves its state twice per slot
                arrays[path] = part
            elif part is not None:
                _pack_into(arrays, part, path)
    elif not isinstance(value, Scheme):
        raise TypeError(f"{name}: a state cannot hold {type(value).__name__}")


_NUMBERS = (np.ndarray, np.generic, int, float)
_WITH_ARRAYS = (Ledger, Held)


@cache
def _saved_fields(kind: type[Any], name: str) -> tuple[tuple[str, str], ...]:
    """Return the fields of a dataclass that are saved, with their dotted names."""
    return tuple((f.name, f"{name}.{f.name}") for f in fields(kind) if f.metadata.get("saved", True))


def unpack(kind: type[Any], arrays: Arrays, name: str) -> Any:
    """Return the flat dataclass that `pack` was given."""
    values: dict[str, Any] = {}
    for f in fields(kind):
        array = arrays.get(f"{name}.{f.name}")
        values[f.name] = None if array is None else int(array) if f.type == "int" else array
    return kind(**values)


def load_into(state: Any, arrays: Arrays, name: str) -> None:
    """Fill a fresh state with saved arrays; shapes must agree."""
    for f in fields(state):
        old, path = getattr(state, f.name), f"{name}.{f.name}"
        if isinstance(old, Ledger):
            old.restore({key.removeprefix(f"{path}."): a for key, a in arrays.items() if key.startswith(f"{path}.")})
        elif isinstance(old, np.ndarray):
            if f.metadata.get("later") and path not in arrays:
                setattr(state, f.name, np.zeros_like(old))
                continue
            _check(path, old, arrays)
            if type(state).__dataclass_params__.frozen:
                old[...] = arrays[path]
            else:
                setattr(state, f.name, arrays[path].copy())
        elif is_dataclass(old) and not isinstance(old, Setting):
            if f.metadata.get("later") and not any(name.startswith(f"{path}.") for name in arrays):
                continue  # saved before the field existed: it begins anew
            load_into(old, arrays, path)


def _check(path: str, old: NDArray[Any], arrays: Arrays) -> None:
    if path not in arrays:
        raise BadInput(f"the saved state has no '{path}': it belongs to another scheme or version.")
    if arrays[path].shape != old.shape or arrays[path].dtype != old.dtype:
        raise BadInput(
            f"saved '{path}' is {arrays[path].dtype}{arrays[path].shape}; this server needs {old.dtype}{old.shape}."
        )


def fingerprint(scheme: Scheme, setting: Setting, *more: object) -> NDArray[np.uint8]:
    """Return a digest of everything that a state depends on: the scheme's options, the setting, and more."""
    digest = hashlib.sha256()
    for value in (scheme, setting, *more):
        digest.update(repr(_plain(value)).encode())
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def _plain(value: Any) -> Any:
    """Return a value whose `repr` says everything: arrays by their content, dataclasses and schemes by their fields."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if is_dataclass(value) and not isinstance(value, type):
        pairs: list[tuple[str, Any]] = []
        for f in fields(value):
            if _counts(f, value):
                pairs.append((f.name, _plain(getattr(value, f.name))))
            if isinstance(value, Setting) and f.name in _FORMER_FIELDS:
                pairs.append((_FORMER_FIELDS[f.name], None))
        return tuple(pairs)
    if isinstance(value, dict):
        return tuple((key, _plain(item)) for key, item in sorted(value.items()))
    if isinstance(value, Scheme):
        return type(value).__name__, _plain(vars(value))
    return None if callable(value) else value


def _counts(one: Field[Any], value: Any) -> bool:
    """Whether a field is part of the fingerprint.

    A field that concerns speed alone is not. One that came later counts only where it is not the default: states
    that were saved before it existed are still good.
    """
    if not one.metadata.get("saved", True):
        return False
    if not one.metadata.get("later"):
        return True
    now = getattr(value, one.name)
    return not (now is one.default or (isinstance(now, int | float) and now == one.default))


def to_bytes(arrays: Arrays) -> bytes:
    """Return arrays as one block of bytes (MessagePack of type, shape and little-endian content)."""
    from msgspec import msgpack

    blocks = {}
    for name, array in arrays.items():
        kind, kind_text = _little_endian(array.dtype)
        plain = array if array.dtype == kind else array.astype(kind)
        blocks[name] = (kind_text, array.shape, plain.tobytes())
    return msgpack.encode(blocks)


@cache
def _little_endian(kind: np.dtype[Any]) -> tuple[np.dtype[Any], str]:
    """Return a kind of numbers in little-endian order, and its name."""
    little = kind.newbyteorder("<")
    return little, little.str


_KIND = re.compile(r"[<|][biufU][0-9]{1,6}")


def from_bytes(saved: bytes) -> Arrays:
    """Return the arrays that `to_bytes` was given."""
    from msgspec import msgpack

    try:
        blocks = msgpack.decode(saved, type=dict[str, tuple[str, tuple[int, ...], bytes]])
        for kind, _, _ in blocks.values():
            if not _KIND.fullmatch(kind):  # numpy reads more than plain kinds, and stumbles over some of it
                raise BadInput(f"not a saved server state: numbers of the kind {kind[:20]!r}.")
        return {
            name: np.frombuffer(content, dtype=kind).reshape(shape).copy()
            for name, (kind, shape, content) in blocks.items()
        }
    except (ValueError, TypeError) as error:
        raise BadInput(f"not a saved server state: {error}") from None
