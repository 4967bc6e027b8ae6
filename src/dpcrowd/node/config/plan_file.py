"""The file of a plan (`dpcrowd plan --toml FILE`), from which `dpcrowd init --plan FILE` makes a network.

A plan has the tables of a network.toml, without what only the organisations know: identity, times, addresses and keys.
These get placeholders, so that everything else is checked as in a network.toml, with the same errors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput
from dpcrowd.models.file import model_digest, parse_model
from dpcrowd.node.config.kinds import Duration
from dpcrowd.node.config.network import NetworkConfig
from dpcrowd.node.config.read import convert_network, network_text, read_text, read_toml
from dpcrowd.node.config.revision import check_new
from dpcrowd.node.config.samples import placeholder_key

__all__ = ["PlannedNetwork", "read_plan"]

_GENERAL = {"id": "plan", "revision": 1, "epoch": "2026-01-01T00:00:00Z", "slot": "1m", "deadline": "500ms"}
_FIRST_PORT = 1024


@dataclass(frozen=True)
class PlannedNetwork:
    """A plan as a network with placeholders for id, times, endpoints and keys.

    has_slot    whether the plan gives the length of a slot; if not, it is a placeholder, too
    model_file  the file of the process model, if the plan has one; its text is in `network.method.model`
    model_changed  whether that file says something else than when the plan was made; plans of earlier versions do not
                tell
    """

    network: NetworkConfig
    has_slot: bool
    model_file: Path | None = None
    model_changed: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(server.name for server in self.network.servers)


def read_plan(path: str | os.PathLike[str]) -> PlannedNetwork:
    """Return the plan in a file."""
    where = os.fspath(path)
    model = _model_name(read_toml(read_text(path), where))
    raw = read_toml(network_text(path, is_plan=True), where)
    plan = raw.pop("plan", None)
    if not isinstance(plan, dict):
        raise BadInput(f"{where}: not a plan, since it has no table [plan]; write one with `dpcrowd plan --toml FILE`.")
    general = raw.get("network", {})
    if not raw.get("link") and len(raw.get("server", [])) > 1:
        raise BadInput(
            f"{where}: has no [[link]], since the planned network draws its links anew in every slot; plan again with "
            "--static, or with links of your own (--graph FILE)."
        )
    if isinstance(general, dict):
        raw["network"] = _GENERAL | _slot_of_model(raw) | general
    if isinstance(raw.get("server"), list):
        raw["server"] = [_with_placeholders(server, number) for number, server in enumerate(raw["server"])]
    network = convert_network(raw, where)
    check_new(network, where)
    planned_with = plan.get("model_digest")
    return PlannedNetwork(
        network,
        isinstance(general, dict) and "slot" in general,
        None if model is None else Path(path).absolute().parent / model,
        network.fitted is not None and planned_with not in (None, model_digest(network.fitted)),
    )


def _model_name(raw: dict[str, Any]) -> str | None:
    """Return how the plan names the file of its process model; None: it has no model."""
    scheme = raw.get("scheme")
    name = scheme.get("model") if isinstance(scheme, dict) else None
    return name if isinstance(name, str) else None


def _slot_of_model(raw: dict[str, Any]) -> dict[str, str]:
    """Return the length of the slots that the process model is for, as a placeholder; nothing if it does not say."""
    text = _model_name(raw)
    if text is None:
        return {}
    try:
        slot = parse_model(text, "the model").slot
    except BadInput:  # the network's own checks refuse it, with the name of the setting
        return {}
    return {} if slot is None else {"slot": str(Duration(slot * 1000))}


def _with_placeholders(server: Any, number: int) -> Any:
    if not isinstance(server, dict):
        return server
    return {"endpoint": f"tls/127.0.0.1:{_FIRST_PORT + number}", "keys": [placeholder_key(str(number))]} | server
