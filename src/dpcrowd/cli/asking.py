"""Requests to the running node of a node.toml, with its address, its certificate, and errors written for its operator.

`dpcrowd.Client` sends them; every request has a deadline and is sent once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dpcrowd.errors import BadInput, DpcrowdError

if TYPE_CHECKING:
    from dpcrowd.client.errors import NodeError
    from dpcrowd.client.pinned import PinnedCertificates
    from dpcrowd.node.config import NodeConfig

__all__ = ["NoAnswer", "ask"]

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_SILENCE = {
    "untrusted": "the server there has another certificate than listen.http_certificate",
    "not-https": "the server there does not speak HTTPS, although node.toml has http_certificate",
    "not-http": "the server there speaks HTTPS, although node.toml has no http_certificate",
    "hung-up": "it closed the connection; perhaps it is stopping",
    "not-a-node": "the server there is not a dpcrowd node",
}
_CAUSES = {"RemoteProtocolError": "the server there does not speak HTTP", "ReadError": "the connection broke"}


class NoAnswer(DpcrowdError):
    """The node does not answer at its address, or something else does."""


def ask(
    node: NodeConfig,
    path: str,
    *,
    token: str | None = None,
    timeout: float = 5.0,
    method: str = "GET",
    body: Any = None,
    accept: tuple[int, ...] = (200,),
) -> Any:
    """Return the JSON answer of a node; a refusal is raised as `BadInput` with the node's own sentence."""
    from dpcrowd.client.client import Client
    from dpcrowd.client.errors import NodeError

    if token is not None:
        token = token.strip()
        if not token or not token.isprintable():
            raise BadInput(
                "the token is empty or contains characters that cannot be sent; check --token or DPCROWD_TOKEN."
            )
    with Client(_address(node), token, timeout, retries=0, ca=_pinned(node)) as client:
        try:
            return client.request(method, path, body, accepts=accept)
        except NodeError as error:
            failure = error
    raise _error_for(node, failure, timeout, has_token=token is not None)


def _error_for(node: NodeConfig, error: NodeError, timeout: float, *, has_token: bool) -> DpcrowdError:
    if error.status is None or error.reason == "not-a-node":
        late = f"no answer within {timeout:g} s" if error.cause.endswith("Timeout") else ""
        why = _SILENCE.get(error.reason) or late or _CAUSES.get(error.cause, error.cause)
        return NoAnswer(f"'{node.server}' does not answer at {node.listen.http}: {why}; see 'dpcrowd node doctor'.")
    if error.status == 401 and has_token:  # the node says the same to whoever sends no token
        return BadInput(
            "the node refused (401): it does not know this token; compare --token or DPCROWD_TOKEN "
            "with [tokens] of its node.toml."
        )
    hint = " Give --token, or set DPCROWD_TOKEN." if error.status == 401 else ""
    return BadInput(f"the node refused ({error.status}): {error.text}{hint}")


def _address(node: NodeConfig) -> str:
    host, port = node.listen.http_address
    host = _ANY_ADDRESS.get(host, host)
    url_scheme = "http" if node.listen.http_certificate is None else "https"
    return f"{url_scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _pinned(node: NodeConfig) -> PinnedCertificates | None:
    """Pin the node's own certificate, and the one that it still serves if a renewed one was not reloaded yet."""
    from dpcrowd.client.pinned import PinnedCertificates, first_certificate

    path = node.listen.http_certificate
    if path is None:
        return None

    def certificates_now() -> set[bytes]:
        try:
            certificates = {first_certificate(path.read_text(encoding="ascii"))}
        except (OSError, ValueError):
            raise BadInput(
                f"listen.http_certificate: '{path}' is not a readable PEM certificate; see `dpcrowd keys show`."
            ) from None
        with suppress(OSError, ValueError):
            certificates.add(first_certificate(node.served_certificate.read_text(encoding="ascii")))
        return certificates

    return PinnedCertificates(certificates_now)
