"""Zenoh's settings for one session: pure data, so that each can be inspected and tested.

By default Zenoh connects to everybody it can find and forwards messages. These settings restrict it: no discovery
(multicast, gossip), one endpoint, and access control that denies everything but four operations: the session's
neighbour may put on its key to this server and subscribe to this server's key to it, and the reverse. A key belongs to
a pair, `dpcrowd/1/<network>/<from>/<to>`: even a server that tried to forward a message would have no key on which its
other neighbours accept it.

A session has one neighbour. Either it dials that neighbour, over TLS with certificates on both sides, and identifies it
by the common name of its certificate; or it listens on a Unix socket, to which the `Front` connects that neighbour.
"""

from __future__ import annotations

import json
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dpcrowd.errors import BadInput
from dpcrowd.node.transport.base import Peer, TransportFailed

__all__ = [
    "MAX_MESSAGE",
    "TlsFiles",
    "check_endpoint",
    "dialling_settings",
    "key_of_pair",
    "listening_settings",
]

MAX_MESSAGE = 64 * 2**20
"""Upper bound on the size of a message, in bytes. Zenoh allows 1 GiB; two matrices of 1,000 regions need 16 MB."""
_LEAST_BUFFER = 2**20
_UNIX = "unixsock-stream"

_PATH_VERSION = "1"
# No '#' or '?': what follows them would override settings of this module, such as the check of names.
_ENDPOINT = re.compile(r"tls/(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")


@dataclass(frozen=True)
class TlsFiles:
    """The PEM files of this server's private key and certificate, and of the certificate of the authority."""

    key: Path
    certificate: Path
    ca: Path

    def check(self) -> None:
        """Refuse files that cannot be used, by name: Zenoh does not name them, and is silent if it only dials."""
        for what, path in (
            ("private key", self.key),
            ("certificate", self.certificate),
            ("certificate of the authority", self.ca),
        ):
            try:
                text = path.read_bytes()
            except OSError as error:
                raise TransportFailed(
                    f"cannot read the {what} {path}: {error.strerror or error}; see `dpcrowd keys`."
                ) from None
            if b"-----BEGIN " not in text:
                raise TransportFailed(f"the {what} {path} is not a PEM file; see `dpcrowd keys`.")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(self.ca)
        except ssl.SSLError:
            raise TransportFailed(f"{self.ca} is not a PEM certificate of an authority; see `dpcrowd keys`.") from None
        try:
            # An empty password, since without one OpenSSL would ask at the terminal.
            context.load_cert_chain(self.certificate, self.key, password=b"")
        except (ssl.SSLError, ValueError):
            raise TransportFailed(
                f"the private key {self.key} and the certificate {self.certificate} do not match, or one is damaged "
                "or encrypted; see `dpcrowd keys show`."
            ) from None


def check_endpoint(endpoint: str) -> str:
    """Return an endpoint if it is `tls/host:port`; refuse all others, which would not be encrypted."""
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or not 0 < int(match[2]) < 65536:
        raise BadInput(f"endpoint is '{endpoint}'; allowed: tls/host:port, for example tls/clinic-a.example:7447.")
    return endpoint


def key_of_pair(network: str, sender: str, receiver: str) -> str:
    """Return the key on which one server sends to another; wildcards and slashes in names are escaped."""
    return "/".join(("dpcrowd", _PATH_VERSION, *(quote(part, safe="") for part in (network, sender, receiver))))


def _access(network: str, me: str, peer: Peer, subject: dict[str, Any]) -> dict[str, Any]:
    """Return the access control: the neighbour's key in, the key to it out, and nothing else."""
    to_me, to_it = key_of_pair(network, peer.name, me), key_of_pair(network, me, peer.name)
    allowed = (
        ("it speaks", "ingress", "put", to_me),
        ("it listens", "ingress", "declare_subscriber", to_it),
        ("I speak", "egress", "put", to_it),
        ("I listen", "egress", "declare_subscriber", to_me),
    )
    rules = [
        {"id": what, "permission": "allow", "flows": [flow], "messages": [message], "key_exprs": [key]}
        for what, flow, message, key in allowed
    ]
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": [{"id": peer.name, **subject}],
        "policies": [{"rules": [rule["id"] for rule in rules], "subjects": [peer.name]}],
    }


def dialling_settings(
    network: str, me: str, peer: Peer, tls: TlsFiles, *, most_bytes: int = MAX_MESSAGE
) -> dict[str, str]:
    """Return the settings of a session that dials a neighbour, as JSON by Zenoh's path."""
    link = "transport/link/tls/"
    subject = {"cert_common_names": [peer.certificate_name], "link_protocols": ["tls"]}
    return _as_json(
        _common(most_bytes)
        | {
            "connect/endpoints": [check_endpoint(peer.endpoint)],
            "transport/link/protocols": ["tls"],
            link + "enable_mtls": True,
            link + "verify_name_on_connect": True,
            link + "close_link_on_expiration": True,
            link + "root_ca_certificate": str(tls.ca),
            link + "connect_private_key": str(tls.key),
            link + "connect_certificate": str(tls.certificate),
            "access_control": _access(network, me, peer, subject),
        }
    )


def listening_settings(
    network: str, me: str, peer: Peer, socket: Path, *, most_bytes: int = MAX_MESSAGE
) -> dict[str, str]:
    """Return the settings of a session for a neighbour that calls; only that neighbour is connected to the socket."""
    return _as_json(
        _common(most_bytes)
        | {
            "listen/endpoints": [f"{_UNIX}/{socket}"],
            "transport/link/protocols": [_UNIX],
            "access_control": _access(network, me, peer, {"link_protocols": [_UNIX]}),
        }
    )


def _common(most_bytes: int) -> dict[str, Any]:
    return {
        "mode": "peer",
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "listen/endpoints": [],
        "connect/endpoints": [],
        # For ever: 0 would silently drop a link that is not up at the start.
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        # The default grows to 4 s, longer than a slot may be.
        "connect/retry": {"period_init_ms": 100, "period_max_ms": 500, "period_increase_factor": 1.5},
        # A host that was off, or a frozen server, is dialled again after 3 s, not 10.
        "transport/unicast/open_timeout": 3000,
        # A socket that cannot be created is an error at once, and not retried for ever.
        "listen/timeout_ms": 0,
        "listen/exit_on_failure": True,
        # Opening does not wait for neighbours (0.5 s each time, if one is down).
        "open/return_conditions/connect_scouted": False,
        "open/return_conditions/declares": False,
        "scouting/delay": 0,
        "transport/unicast/max_links": 1,
        # For messages that are assembled from fragments; not below what Zenoh works well with.
        "transport/link/rx/max_message_size": max(2 * most_bytes, _LEAST_BUFFER),
        "transport/shared_memory/enabled": False,
        "adminspace/enabled": False,
        "plugins_loading/enabled": False,
        "timestamping/enabled": False,
    }


def _as_json(settings: dict[str, Any]) -> dict[str, str]:
    return {path: json.dumps(value) for path, value in settings.items()}
