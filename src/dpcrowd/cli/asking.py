"""Asking a running node over its HTTP API, with the standard library alone; every request has a deadline."""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpcrowd.errors import BadInput, DpcrowdError

if TYPE_CHECKING:
    from dpcrowd.node.config import NodeConfig

__all__ = ["NoAnswer", "ask"]

_MOST = 64 << 20
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class NoAnswer(DpcrowdError):
    """Nothing, or nothing sensible, answers where the node should listen."""


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
    """The JSON answer of a node; a refusal is `BadInput` with the node's own sentence."""
    headers: dict[str, bytes | str] = {"Accept": "application/json"}
    if token is not None:
        if not token.strip() or not token.isprintable():
            raise BadInput("the token is empty or holds characters that cannot be sent; check --token, DPCROWD_TOKEN.")
        headers["Authorization"] = b"Bearer " + token.strip().encode()
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection = _connection(node, timeout)
    try:
        connection.connect()
        _check_certificate(node, connection)  # before the token is sent
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        status, content = response.status, response.read(_MOST)
    except TimeoutError:
        raise _no_answer(node, f"no answer within {timeout:g} s") from None
    except ssl.SSLError:  # its text is OpenSSL's, with a line of C
        raise _no_answer(node, "what answers there does not speak HTTPS, and node.toml has http_certificate") from None
    except http.client.RemoteDisconnected:
        raise _no_answer(node, "it hung up; perhaps it speaks HTTPS, while node.toml has no http_certificate") from None
    except http.client.HTTPException:
        raise _no_answer(node, "what answers there does not speak HTTP") from None
    except OSError as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise _no_answer(node, str(reason).lower()) from None
    finally:
        connection.close()
    try:
        answer = json.loads(content)
    except ValueError:
        raise _no_answer(node, "what answers there is no dpcrowd node") from None
    if status not in accept:
        detail = answer.get("error") if isinstance(answer, dict) else None
        text = detail.get("text") if isinstance(detail, dict) else None
        if status == 401 and token is not None:  # it says the same to whoever sends none
            raise BadInput(
                "the node refused (401): it does not know the token that was given; compare --token or DPCROWD_TOKEN "
                "with [tokens] of its node.toml."
            )
        hint = " Give --token, or set DPCROWD_TOKEN." if status == 401 else ""
        raise BadInput(f"the node refused ({status}): {text or 'without a reason.'}{hint}")
    return answer


def _no_answer(node: NodeConfig, why: str) -> NoAnswer:
    return NoAnswer(f"'{node.server}' does not answer at {node.listen.http}: {why}; see 'dpcrowd node doctor'.")


def _connection(node: NodeConfig, timeout: float) -> http.client.HTTPConnection:
    host, port = node.listen.http_address
    host = _ANY_ADDRESS.get(host, host)
    if node.listen.http_certificate is None:
        return http.client.HTTPConnection(host, port, timeout=timeout)
    # The node's own certificate is known: it is compared byte by byte, which is stricter than any name.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)


def _check_certificate(node: NodeConfig, connection: http.client.HTTPConnection) -> None:
    path: Path | None = node.listen.http_certificate
    if path is None or not isinstance(connection.sock, ssl.SSLSocket):
        return
    shown = connection.sock.getpeercert(binary_form=True)
    try:
        known = _first_certificate(path)
    except (OSError, ValueError):
        raise BadInput(f"listen.http_certificate {path} cannot be read as a certificate.") from None
    if shown == known:
        return
    with suppress(OSError, ValueError):  # renewed, and not reloaded yet: the node keeps a copy of what it serves
        if shown == _first_certificate(node.served_certificate):
            return
    raise _no_answer(node, "what answers there has another certificate than listen.http_certificate")


def _first_certificate(path: Path) -> bytes:
    text, end = path.read_text(encoding="ascii"), "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERT") : text.index(end) + len(end)])
