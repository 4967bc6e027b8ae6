"""The GeoJSON file with the shapes of the regions, which [map] of network.toml may name; read when somebody asks."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

__all__ = ["read_shapes"]

log = logging.getLogger("dpcrowd.node")

_MOST_BYTES = 16 << 20


def read_shapes(path: Path) -> bytes | None:
    """Return the file as it is; None, and a line in the log, if it cannot be read or is not GeoJSON."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ValueError(f"it is larger than {_MOST_BYTES >> 20} MiB")
        if not isinstance(msgspec.json.decode(content).get("features"), list):
            raise ValueError("it has no list 'features'")
    except (OSError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        log.warning("the map %s is not shown: %s", path, error, extra={"event": "map"})
        return None
    return content
