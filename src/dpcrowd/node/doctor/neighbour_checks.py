"""Checks of the neighbours, as far as they can be reached: their certificates, and whether they have the same files.

A neighbour that is down is not this server's problem, so it is skipped with a note; one that shows a wrong certificate
is. Of two neighbours the one whose name comes first dials, so a server whom nobody dials listens nowhere.
"""

from __future__ import annotations

import json
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from dpcrowd.node.config import NetworkConfig, NodeConfig, digest
from dpcrowd.node.config.address import host_and_port
from dpcrowd.node.config.members import ServerSection
from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped
from dpcrowd.node.keys.checks import certificate_problems

__all__ = ["check_digest", "check_neighbours"]

_OTHER = "other-configuration"  # the reason for which `dpcrowd.node.wire` refuses another digest
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def check_neighbours(
    node: NodeConfig, network: NetworkConfig, slot: int, now: datetime, timeout: float
) -> Iterator[Finding]:
    """Speak TLS with each neighbour that listens, and judge the certificate that it shows."""
    names = network.neighbours(node.server, slot)
    try:
        context = _context(node)
        authority = node.keys.ca.read_bytes()
    except (OSError, ssl.SSLError):
        yield skipped("neighbours", "they cannot be asked without this server's own key and certificates.")
        return
    if not names:
        yield note("neighbours", "this server has no neighbour in the present slot.")
    for name in names:
        if min(network.neighbours(name, slot)) > name:
            yield skipped("neighbours", f"'{name}' dials this server and listens nowhere itself: nothing to try.")
        else:
            yield _try(context, authority, network.server(name), now, timeout)


def _try(context: ssl.SSLContext, authority: bytes, server: ServerSection, now: datetime, timeout: float) -> Finding:
    host, port = host_and_port("endpoint", server.endpoint.partition("/")[2])
    try:
        shown = _certificate_of(context, host, port, timeout)
    except ssl.SSLError as error:
        reason = error.reason or "TLS failed"
        fix = "Check that both certificates are of the same authority; it may also be another program's port."
        return problem("neighbours", f"'{server.name}' at {host}:{port} does not speak TLS with us: {reason}.", fix)
    except OSError as error:
        why = (error.strerror or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)).lower()
        return skipped("neighbours", f"'{server.name}' cannot be reached at {host}:{port} now ({why}).")
    found = certificate_problems(
        shown,
        authority,
        name=server.certificate_name,
        now=now,
        pins=server.keys,
        host=host,
    )
    if found:
        return problem("neighbours", f"'{server.name}' at {host}:{port}: {found[0].what}", found[0].fix)
    return passed("neighbours", f"'{server.name}' answers at {host}:{port} with the certificate that is pinned.")


def _context(node: NodeConfig) -> ssl.SSLContext:
    """The certificate of the other side is judged by us, since TLS would only say that something is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(node.keys.certificate, node.keys.key)
    return context


def _certificate_of(context: ssl.SSLContext, host: str, port: int, timeout: float) -> bytes:
    """What the other side shows, in PEM."""
    with (
        socket.create_connection((host, port), timeout=timeout) as plain,
        context.wrap_socket(plain, server_hostname=host) as link,
    ):
        shown = link.getpeercert(binary_form=True)
    if shown is None:
        raise ssl.SSLError("no certificate")
    return ssl.DER_cert_to_PEM_cert(shown).encode()


def check_digest(node: NodeConfig, network: NetworkConfig, token: str | None, timeout: float) -> Iterator[Finding]:
    """What the running node says: which revision it uses, and whose messages it refused for having another one."""
    answer = _network_of(node, token, timeout)
    if answer is None:
        yield skipped("digest", f"the node does not say at {node.listen.http}: neighbours' files are not compared.")
        return
    if answer.get("server") != node.server:
        fix = "Set another listen.http: a different node answers there."
        yield problem("digest", f"{answer.get('server')!r} answers at {node.listen.http}.", fix)
        return
    mine = digest(network).hex()
    if answer.get("digest") != mine:
        text = f"the node runs with digest {answer.get('digest')}, network.toml has {mine}."
        yield note("digest", f"{text} 'dpcrowd node reload' or a restart takes the file.")
    others = [one["name"] for one in answer.get("neighbours", []) if _OTHER in one.get("refused", {})]
    for name in others:
        text = f"messages of '{name}' were refused: its network.toml differs."
        yield problem("digest", text, f"Compare with '{name}': this file has revision {network.revision}, {mine}.")
    if not others:
        yield passed("digest", f"no neighbour was refused for another network.toml (digest {mine}).")


def _network_of(node: NodeConfig, token: str | None, timeout: float) -> dict[str, Any] | None:
    if node.listen.http_certificate is not None:
        return None  # a token must not go to whoever answers; `dpcrowd node peers` compares the certificate
    host, port = node.listen.http_address
    host = _ANY_ADDRESS.get(host, host)
    request = urllib.request.Request(f"http://{f'[{host}]' if ':' in host else host}:{port}/v1/network")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout) as response:
            answer = json.load(response)
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None
