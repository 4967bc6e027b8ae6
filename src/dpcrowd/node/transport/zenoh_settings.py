"""Zenoh's settings for one session: pure data, so that each can be looked at and tested.

Zenoh's defaults connect whoever can be found and forward what they hear. Here every setting closes a door: no discovery
(multicast, gossip), explicit endpoints, TLS alone, certificates on both sides, and access control that denies all but
four things for each neighbour, by the common name of its certificate: it may put on its key to me, subscribe to my
key to it, and the same outwards. A key belongs to a pair, `dpcrowd/1/<network>/<from>/<to>`: even a server that
wanted to pass a message on would have no key on which its other neighbours take it.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dpcrowd.errors import BadInput
from dpcrowd.node.transport.base import Peer, TransportFailed

__all__ = ["MAX_MESSAGE", "TlsFiles", "check_endpoint", "key_of_pair", "session_settings"]

MAX_MESSAGE = 64 * 2**20
_LEAST_BUFFER = 2**20
"""Longest message in bytes. Zenoh would take 1 GiB from a neighbour; two matrices of 1,000 regions need 16 MB."""

_PATH_VERSION = "1"
# No '#' or '?': what stands behind them would override settings of this page, such as the check of names.
_ENDPOINT = re.compile(r"tls/(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")


@dataclass(frozen=True)
class TlsFiles:
    """This server's private key and certificate, and the certificate of the authority. PEM."""

    key: Path
    certificate: Path
    ca: Path

    def check(self) -> None:
        """Refuse files that cannot be used, by name: Zenoh names no file, and where it only dials it says nothing."""
        for what, path in (("private key", self.key), ("certificate", self.certificate), ("authority", self.ca)):
            try:
                text = path.read_bytes()
            except OSError as error:
                raise TransportFailed(f"{what} {path}: {error.strerror or error}; see `dpcrowd keys`.") from None
            if b"-----BEGIN " not in text:
                raise TransportFailed(f"{what} {path} is not a PEM file; see `dpcrowd keys`.")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(self.ca)
        except ssl.SSLError:
            raise TransportFailed(f"authority {self.ca} holds no certificate; see `dpcrowd keys`.") from None
        try:
            # An empty password, since without one OpenSSL would ask at the terminal.
            context.load_cert_chain(self.certificate, self.key, password=b"")
        except (ssl.SSLError, ValueError):
            raise TransportFailed(
                f"private key {self.key} and certificate {self.certificate} do not belong together, or one is damaged "
                "or encrypted; see `dpcrowd keys show`."
            ) from None


def check_endpoint(endpoint: str) -> str:
    """An address `tls/host:port` and nothing else: no other protocol would be encrypted."""
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or not 0 < int(match[2]) < 65536:
        raise BadInput(f"endpoint '{endpoint}'; allowed: tls/host:port, for example tls/clinic-a.example:7447.")
    return endpoint


def key_of_pair(network: str, sender: str, receiver: str) -> str:
    """The key on which one server speaks to one other; no name can hold a wildcard or a slash."""
    return "/".join(("dpcrowd", _PATH_VERSION, *(quote(part, safe="") for part in (network, sender, receiver))))


def _access(network: str, me: str, neighbours: Sequence[Peer]) -> dict[str, Any]:
    """Deny by default; for each neighbour its own key in and my key to it out, and nothing else."""
    rules, subjects, policies = [], [], []
    for peer in neighbours:
        to_me, to_it = key_of_pair(network, peer.name, me), key_of_pair(network, me, peer.name)
        allowed = (
            ("it speaks", "ingress", "put", to_me),
            ("it listens", "ingress", "declare_subscriber", to_it),
            ("I speak", "egress", "put", to_it),
            ("I listen", "egress", "declare_subscriber", to_me),
        )
        names = []
        for what, flow, message, key in allowed:
            names.append(f"{peer.name}: {what}")
            rules.append(
                {"id": names[-1], "permission": "allow", "flows": [flow], "messages": [message], "key_exprs": [key]}
            )
        subjects.append({"id": peer.name, "cert_common_names": [peer.certificate_name], "link_protocols": ["tls"]})
        policies.append({"rules": names, "subjects": [peer.name]})
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    }


def session_settings(
    network: str,
    me: str,
    neighbours: Sequence[Peer],
    tls: TlsFiles,
    *,
    listen: Sequence[str] = (),
    connect: Sequence[str] = (),
    most_bytes: int = MAX_MESSAGE,
) -> dict[str, str]:
    """Every setting of a session that serves these neighbours, as Zenoh's path -> JSON."""
    link = "transport/link/tls/"
    settings: dict[str, Any] = {
        "mode": "peer",
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "listen/endpoints": [check_endpoint(each) for each in listen],
        "connect/endpoints": [check_endpoint(each) for each in connect],
        # For ever: 0 would drop a link that is not up at the start, without a word.
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        # The default grows to 4 s, longer than a slot may be.
        "connect/retry": {"period_init_ms": 100, "period_max_ms": 500, "period_increase_factor": 1.5},
        # A host that was off, or a frozen server, is dialled anew after 3 s, not 10.
        "transport/unicast/open_timeout": 3000,
        # A port that is taken is an error now, not a thing to be tried for ever.
        "listen/timeout_ms": 0,
        "listen/exit_on_failure": True,
        # Opening does not wait for neighbours (0.5 s each time, if one is down).
        "open/return_conditions/connect_scouted": False,
        "open/return_conditions/declares": False,
        "scouting/delay": 0,
        "transport/link/protocols": ["tls"],
        "transport/unicast/max_links": 1,
        # Of all that a session puts together from fragments; the least that Zenoh is at ease with.
        "transport/link/rx/max_message_size": max(2 * most_bytes, _LEAST_BUFFER),
        "transport/shared_memory/enabled": False,
        "adminspace/enabled": False,
        "plugins_loading/enabled": False,
        "timestamping/enabled": False,
        link + "enable_mtls": True,
        link + "verify_name_on_connect": True,
        link + "close_link_on_expiration": True,
        link + "root_ca_certificate": str(tls.ca),
        "access_control": _access(network, me, neighbours),
    }
    for side in ("listen", "connect"):
        settings[f"{link}{side}_private_key"] = str(tls.key)
        settings[f"{link}{side}_certificate"] = str(tls.certificate)
    return {path: json.dumps(value) for path, value in settings.items()}
