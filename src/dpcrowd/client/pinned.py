"""TLS to a node whose certificate is known: it is compared byte by byte, which is stricter than any name or authority.

Dates do not matter: the operator of a node whose certificate has expired can still ask it what is wrong.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Container
from typing import Any

__all__ = ["PinnedCertificates", "first_certificate"]

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class PinnedCertificates(ssl.SSLContext):
    """For `ca` of a client; `known` gives the certificates (DER), and is asked once there is one to compare."""

    def __new__(cls, known: Callable[[], Container[bytes]]) -> PinnedCertificates:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, known: Callable[[], Container[bytes]]) -> None:
        self._known = known
        self.check_hostname = False
        self.verify_mode = ssl.CERT_NONE

    def wrap_socket(self, *arguments: Any, **settings: Any) -> ssl.SSLSocket:
        """After the handshake, and before anything is sent: a token goes to whoever holds the key, and nobody else."""
        connection = super().wrap_socket(*arguments, **settings)
        try:
            if (connection.getpeercert(binary_form=True) or b"") in self._known():
                return connection
        except BaseException:
            connection.close()
            raise
        connection.close()
        raise ssl.SSLCertVerificationError("CERTIFICATE_VERIFY_FAILED: another certificate than the known one")


def first_certificate(pem: str) -> bytes:
    """The first certificate of a PEM text, as DER; ValueError if there is none."""
    return ssl.PEM_cert_to_DER_cert(pem[pem.index(_BEGIN) : pem.index(_END) + len(_END)])
