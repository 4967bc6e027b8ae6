"""The digest of a network's configuration: every message carries it, and a neighbour with a different one is refused.

It is computed from the values, not from the text: comments, order of settings, layout, "60s" or "1m", the order of
links, of the two names of a link and of the keys of a server make no difference. The order of servers and of regions
does: it numbers them. The table [map], which says how a page draws the regions, makes no difference either.

A setting that a later version adds must be left out of the encoding while it has its default: otherwise that version
could not talk to this one. A test pins the digest of a fixed file.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from dpcrowd.models.file import model_digest
from dpcrowd.node.config.network import NetworkConfig
from dpcrowd.node.config.sections import usual_send_offset

__all__ = ["DIGEST_BYTES", "canonical", "digest"]

DIGEST_BYTES = 16


def digest(network: NetworkConfig) -> bytes:
    """Return 16 bytes that two configurations share only if they mean the same."""
    return hashlib.sha256(b"dpcrowd network 1\n" + canonical(network)).digest()[:DIGEST_BYTES]


def canonical(network: NetworkConfig) -> bytes:
    """Return one encoding for all files that mean the same: JSON with sorted keys, quantities as whole numbers."""
    plain: dict[str, Any] = msgspec.to_builtins(network, enc_hook=int)
    del plain["map"]  # how regions are drawn, from which nothing is computed
    if not plain["guarantee"]["horizon_from_slot"]:
        del plain["guarantee"]["horizon_from_slot"]
    general = network.general
    if general.send_offset == usual_send_offset(len(general.regions), general.deadline):
        del plain["network"]["send_offset"]  # not known to version 0.1.0
    for name in ("samples", "reach", "lag", "guard"):
        if plain["scheme"][name] is None:
            del plain["scheme"][name]  # not known to earlier versions
    if network.relay is not None:
        # Whoever computes another number, on another machine say, must not take part with another price.
        hops = network.relay.max_hops
        computed = {"samples": network.relay.samples_per(network.guarantee().length), "reach": hops}
        plain["scheme"] |= {name: value for name, value in computed.items() if value is not None}
    scheme = plain["scheme"]
    if network.fitted is None:
        del scheme["model"]
    else:
        scheme["model"] = model_digest(network.fitted)  # what it says, not how its file is laid out
        del scheme["process_var"]
    for name, usual in (
        ("learn", None),
        ("turnover", 1.0),
        ("share_width", 0.0),
        ("groups", "off"),
        ("meetings", False),
    ):
        if scheme[name] in (None, usual):
            del scheme[name]
    for server in plain["server"]:
        _simplify_server(server)
    for link in plain["link"]:
        link["between"] = sorted(link["between"])
        link["from_slot"] = link["from_slot"] or 0
    plain["link"] = sorted(plain["link"], key=lambda link: (link["between"], link["from_slot"]))
    return msgspec.json.encode(plain, order="sorted")


def _simplify_server(server: dict[str, Any]) -> None:
    """Sort the keys of a server, and leave out settings that were not known to earlier versions, in place."""
    server["keys"] = sorted(server["keys"])
    for name, default in (("keep", 1.0), ("shares", {})):
        if server[name] == default:
            del server[name]
