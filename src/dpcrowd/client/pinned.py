"""TLS to a node with a pinned certificate, compared byte by byte: stricter than any check of a name or an authority.

Dates do not matter: the operator of a node with an expired certificate can still ask it what is wrong.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Container
from typing import Any

__all__ = ["PinnedCertificates", "first_certificate"]

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class PinnedCertificates(ssl.SSLContext):
    """A context for `ca` of a client; `pinned` returns the certificates (DER), and is called for each connection."""

    def __new__(cls, pinned: Callable[[], Container[bytes]]) -> PinnedCertificates:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, pinned: Callable[[], Container[bytes]]) -> None:
        self._pinned = pinned
        self.check_hostname = False
        self.verify_mode = ssl.CERT_NONE

    def wrap_socket(self, *arguments: Any, **settings: Any) -> ssl.SSLSocket:
        """Compare the certificate before anything is sent: only the holder of the key gets a token."""
        connection = super().wrap_socket(*arguments, **settings)
        try:
            if (connection.getpeercert(binary_form=True) or b"") in self._pinned():
                return connection
        except BaseException:
            connection.close()
            raise
        connection.close()
        raise ssl.SSLCertVerificationError("CERTIFICATE_VERIFY_FAILED: not the pinned certificate")


def first_certificate(pem: str) -> bytes:
    """Return the first certificate of a PEM text as DER; raise `ValueError` if there is none."""
    return ssl.PEM_cert_to_DER_cert(pem[pem.index(_BEGIN) : pem.index(_END) + len(_END)])
