"""Whether HTTPS is spoken where plain HTTP got no answer.

A server of HTTPS hangs up on whoever speaks HTTP, and so does one that is being stopped, or a load balancer with nobody
behind it. Only the first of these stays as it is however long one waits, so it is asked: a handshake of TLS, by which
nothing is told and nothing believed.
"""

from __future__ import annotations

import socket
import ssl

__all__ = ["speaks_tls"]

_LONGEST = 5.0


def speaks_tls(host: str, port: int, seconds: float) -> bool:
    """Whether a handshake is answered within some seconds, be it with an alert."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=min(seconds, _LONGEST)) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in str(error.reason)  # it speaks TLS, and wants something else of it
    except (OSError, ValueError):
        return False
