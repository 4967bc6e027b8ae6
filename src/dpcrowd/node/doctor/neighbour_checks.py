"""Checks of the neighbours' certificates, as far as they can be reached.

A neighbour that is down is not this server's problem, so it is skipped with a note; one that shows a wrong certificate
is. Of two neighbours the one whose name comes first dials, so a server whom nobody dials listens nowhere.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import datetime

from dpcrowd.node.config import NetworkConfig, NodeConfig
from dpcrowd.node.config.address import host_and_port
from dpcrowd.node.config.sections import ServerSection
from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped
from dpcrowd.node.keys.checks import certificate_problems, expires_soon

__all__ = ["try_neighbours"]


def try_neighbours(
    node: NodeConfig, network: NetworkConfig, slot: int, now: datetime, timeout: float
) -> Iterator[tuple[str, Finding]]:
    """Speak TLS with each neighbour that listens, and judge the certificate that it shows: its name, the finding."""
    names = network.neighbours(node.server, slot)
    try:
        context = _context(node)
        authority = node.keys.ca.read_bytes()
    except (OSError, ssl.SSLError):
        yield "", skipped("neighbours", "they cannot be asked without this server's own key and certificates.")
        return
    if not names:
        yield "", note("neighbours", "this server has no neighbour in the present slot.")
    for name in names:
        if min(network.neighbours(name, slot)) > name:
            text = f"'{name}' dials this server and listens nowhere itself: nothing to try."
            yield name, skipped("neighbours", text)
        else:
            yield name, _try(context, authority, network.server(name), now, timeout)


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
    soon = expires_soon(shown, server.certificate_name, now)
    if soon is not None:
        return note("neighbours", f"'{server.name}' answers at {host}:{port}, but {soon.what} Tell that organisation.")
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
