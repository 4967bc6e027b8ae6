"""Checks of the neighbours' certificates, as far as they can be reached.

A neighbour that is down is not this server's problem and is skipped; one that shows a wrong certificate is a problem.
Of two neighbours the one whose name comes first dials, so a server that nobody dials does not listen.
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
from dpcrowd.node.keys.checks import certificate_problems, expiry_of

__all__ = ["try_neighbours"]


def try_neighbours(
    node: NodeConfig, network: NetworkConfig, slot: int, now: datetime, timeout: float
) -> Iterator[tuple[str, Finding]]:
    """Open TLS with each neighbour that listens, and judge its certificate; yield its name and the finding."""
    names = network.neighbours(node.server, slot)
    try:
        context = _context(node)
        authority = node.keys.ca.read_bytes()
    except (OSError, ssl.SSLError):
        yield (
            "",
            skipped("neighbours", "the neighbours cannot be tried without this server's own key and certificates."),
        )
        return
    if not names:
        yield "", note("neighbours", "this server has no neighbours in the present slot.")
    for name in names:
        if min(network.neighbours(name, slot)) > name:
            text = (
                f"'{name}' dials all its neighbours, this server among them, and none of them dials it, so that it "
                "does not open its own listen.transport: there is nothing to try."
            )
            yield name, skipped("neighbours", text)
        else:
            yield name, _try(context, authority, network.server(name), now, timeout)


def _try(context: ssl.SSLContext, authority: bytes, server: ServerSection, now: datetime, timeout: float) -> Finding:
    host, port = host_and_port("endpoint", server.endpoint.partition("/")[2])
    try:
        certificate = _certificate_of(context, host, port, timeout)
    except ssl.SSLError as error:
        reason = error.reason or "TLS failed"
        fix = "Check that both certificates are signed by the same authority, and that no other program has this port."
        return problem("neighbours", f"'{server.name}' at {host}:{port} refuses TLS with this server: {reason}.", fix)
    except OSError as error:
        why = (error.strerror or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)).lower()
        return skipped("neighbours", f"'{server.name}' cannot be reached at {host}:{port} now ({why}).")
    problems = certificate_problems(
        certificate,
        authority,
        name=server.certificate_name,
        now=now,
        pins=server.keys,
        host=host,
    )
    if problems:
        return problem("neighbours", f"'{server.name}' at {host}:{port}: {problems[0].what}", problems[0].fix)
    expiry = expiry_of(certificate, "the certificate", "neighbour", server.certificate_name).problem(now)
    if expiry is not None:
        return note("neighbours", f"'{server.name}' answers at {host}:{port}, but {expiry.what} {expiry.fix}")
    return passed("neighbours", f"'{server.name}' answers at {host}:{port} with a certificate whose key is pinned.")


def _context(node: NodeConfig) -> ssl.SSLContext:
    """Return a context that accepts any certificate: `certificate_problems` gives better reasons than TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(node.keys.certificate, node.keys.key)
    return context


def _certificate_of(context: ssl.SSLContext, host: str, port: int, timeout: float) -> bytes:
    """Return the certificate of the other side, as PEM."""
    with (
        socket.create_connection((host, port), timeout=timeout) as plain,
        context.wrap_socket(plain, server_hostname=host) as link,
    ):
        certificate = link.getpeercert(binary_form=True)
    if certificate is None:
        raise ssl.SSLError("no certificate")
    return ssl.DER_cert_to_PEM_cert(certificate).encode()
