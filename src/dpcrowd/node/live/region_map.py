"""The GeoJSON file with the shapes of the regions, which [map] of network.toml may name; read when somebody asks."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

__all__ = ["read_shapes", "shapes_problem"]

log = logging.getLogger("dpcrowd.node")

_MOST_BYTES = 16 << 20


def read_shapes(path: Path) -> bytes | None:
    """Return the file as it is; None, and a line in the log, if it cannot be read or is not GeoJSON."""
    try:
        return _load(path)
    except ValueError as error:
        log.warning("the map %s is not shown: %s", path, error, extra={"event": "map"})
        return None


def shapes_problem(path: Path) -> str:
    """Return why a file cannot be shown as a map; empty: it can."""
    try:
        _load(path)
    except ValueError as error:
        return str(error)
    return ""


def _load(path: Path) -> bytes:
    """Return the file as it is; raise a ValueError that says what is wrong with it."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ValueError(f"it is larger than {_MOST_BYTES >> 20} MiB")
        collection = msgspec.json.decode(content)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(collection, dict) or not isinstance(collection.get("features"), list):
        raise ValueError("it has no list 'features'")
    return content
