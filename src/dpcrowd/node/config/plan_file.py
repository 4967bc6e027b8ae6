"""The file of a plan (`dpcrowd plan --toml FILE`), from which `dpcrowd init --plan FILE` makes a network.

A plan has the tables of a network.toml, without what only the organisations know: identity, times, addresses and keys.
These get placeholders, so that everything else is checked as in a network.toml, with the same errors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from dpcrowd.errors import BadInput
from dpcrowd.node.config.network import NetworkConfig
from dpcrowd.node.config.read import convert_network, read_text, read_toml
from dpcrowd.node.config.samples import placeholder_key

__all__ = ["NetworkPlan", "read_plan"]

_GENERAL = {"id": "plan", "revision": 1, "epoch": "2026-01-01T00:00:00Z", "slot": "1m", "deadline": "500ms"}
_FIRST_PORT = 1024


@dataclass(frozen=True)
class NetworkPlan:
    """A plan as a network with placeholders for id, times, endpoints and keys.

    has_slot  whether the plan gives the length of a slot; if not, it is a placeholder, too
    """

    network: NetworkConfig
    has_slot: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(server.name for server in self.network.servers)


def read_plan(path: str | os.PathLike[str]) -> NetworkPlan:
    """Return the plan in a file."""
    where = os.fspath(path)
    raw = read_toml(read_text(path), where)
    if not isinstance(raw.pop("plan", None), dict):
        raise BadInput(f"{where}: not a plan, since it has no table [plan]; write one with `dpcrowd plan --toml FILE`.")
    general = raw.get("network", {})
    if not raw.get("link") and len(raw.get("server", [])) > 1:
        raise BadInput(
            f"{where}: has no [[link]], since the planned network draws its links anew in every slot; plan again with "
            "--static, or with links of your own (--graph FILE)."
        )
    if isinstance(general, dict):
        raw["network"] = _GENERAL | general
    if isinstance(raw.get("server"), list):
        raw["server"] = [_with_placeholders(server, number) for number, server in enumerate(raw["server"])]
    return NetworkPlan(convert_network(raw, where), isinstance(general, dict) and "slot" in general)


def _with_placeholders(server: Any, number: int) -> Any:
    if not isinstance(server, dict):
        return server
    return {"endpoint": f"tls/127.0.0.1:{_FIRST_PORT + number}", "keys": [placeholder_key(str(number))]} | server
