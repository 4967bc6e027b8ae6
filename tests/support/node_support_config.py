"""Network configurations for tests: a plain dictionary, and TOML text of it in any order and layout."""

from __future__ import annotations

import copy
import random
from typing import Any

from dpcrowd.node.config import NetworkConfig, parse_network
from dpcrowd.node.config.samples import placeholder_key, quoted

__all__ = ["changed", "network_of", "tables", "toml"]


def tables(servers: int = 3, regions: int = 3) -> dict[str, Any]:
    """A line of servers a, b, c, ... with everything that is needed and nothing more."""
    names = [chr(ord("a") + number) for number in range(servers)]
    return {
        "network": {
            "id": "trial",
            "revision": 1,
            "epoch": "2026-01-01T00:00:00Z",
            "slot": "1m",
            "grace": "5s",
            "deadline": "10s",
            "population": 1000,
            "regions": [f"region {number}" for number in range(regions)],
        },
        "guarantee": {"kind": "window", "length": 100, "epsilon": "1"},
        "scheme": {"name": "dpcrowd-plus", "process_var": 100.0},
        "server": [
            {
                "name": name,
                "share": 1 / (servers + 1),
                "endpoint": f"tls/{name}.example:7447",
                "keys": [placeholder_key(name)],
            }
            for name in names
        ],
        "link": [{"between": [names[i], names[i + 1]]} for i in range(servers - 1)],
    }


def changed(plain: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the value at "server.2.share" replaced; a value of ... takes it out."""
    whole = copy.deepcopy(plain)
    steps: list[Any] = [int(step) if step.isdigit() else step for step in path.split(".")]
    *way, last = steps
    place: Any = whole
    for step in way:
        place = place[step] if isinstance(place, list) else place.setdefault(step, {})
    if value is ...:
        if isinstance(place, list) or last in place:
            del place[last]
    else:
        place[last] = value
    return whole


def network_of(plain: dict[str, Any]) -> NetworkConfig:
    return parse_network(toml(plain))


def toml(plain: dict[str, Any], shuffle: random.Random | None = None) -> str:
    """TOML text; with `shuffle` in another order, with other spaces and with comments."""
    loose = {key: value for key, value in plain.items() if not _is_table(value)}
    parts = [_body(loose, shuffle)]
    inner = [(key, value) for key, value in plain.items() if _is_table(value)]
    if shuffle:
        shuffle.shuffle(inner)
    for key, value in inner:
        for row in value if isinstance(value, list) else [value]:
            head = f"[[{key}]]" if isinstance(value, list) else f"[{key}]"
            flat = {name: item for name, item in row.items() if not isinstance(item, dict)}
            parts += [head, _body(flat, shuffle)]
            for name, item in row.items():
                if isinstance(item, dict):
                    parts += [f"[{key}.{name}]", _body(item, shuffle)]
    return "\n".join(parts) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _body(flat: dict[str, Any], shuffle: random.Random | None) -> str:
    pairs = list(flat.items())
    if shuffle is None:
        return "\n".join(f"{key} = {_value(value)}" for key, value in pairs)
    shuffle.shuffle(pairs)
    blank = [" " * shuffle.randrange(4) for _ in pairs]
    remark = [shuffle.choice(["", "  # a remark"]) for _ in pairs]
    return "\n".join(
        f"{b}{key}{b}={b}{_value(value)}{r}" for (key, value), b, r in zip(pairs, blank, remark, strict=True)
    )


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + "}"
    return str(value)
