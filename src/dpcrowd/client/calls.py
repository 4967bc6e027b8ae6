"""The questions that a client asks, each as steps; and how it is set up."""

from __future__ import annotations

import os
import random
import socket
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from dpcrowd.__about__ import __version__
from dpcrowd.client.steps import OTHER_AUTHORITY, Ask, Patience, Silence, Steps, get, read, read_estimates
from dpcrowd.client.tables import Estimates
from dpcrowd.client.views import Budget, Network, Ready
from dpcrowd.errors import BadInput, MissingExtra

__all__ = []

Authority = str | os.PathLike[str] | ssl.SSLContext

_LONGEST_PROBE = 5.0
_budget = msgspec.json.Decoder(Budget)
_network = msgspec.json.Decoder(Network)
_ready = msgspec.json.Decoder(Ready)


def httpx_library() -> Any:
    """Imported when a client is made."""
    try:
        import httpx
    except ImportError:
        raise MissingExtra("httpx", "client", "dpcrowd.Client") from None
    return httpx


@dataclass(frozen=True)
class Settings:
    """How to reach a node; the token is in `options` only, and never shown."""

    url: str
    options: dict[str, Any]
    patience: Patience

    @classmethod
    def make(
        cls,
        url: str,
        token: str | None,
        timeout: float,
        retries: int,
        patience: float,
        ca: Authority | None,
        proxy: str | None,
    ) -> Settings:
        httpx = httpx_library()
        address = _address(httpx, url)
        if not timeout > 0 or not patience >= 0 or retries < 0:
            raise BadInput("timeout, patience, retries: allowed: above 0, and at least 0.")
        headers: dict[str, str | bytes] = {"user-agent": f"dpcrowd/{__version__}"}
        if token is not None:
            if not isinstance(token, str) or not token.isprintable() or not token or token != token.strip():
                raise BadInput("token: allowed: letters, digits and signs, without spaces around them.")
            headers["authorization"] = f"Bearer {token}".encode()
        # The environment is not looked at: a proxy set there would be given the token, and the check-ins.
        options = {
            "base_url": address,
            "headers": headers,
            "timeout": httpx.Timeout(timeout),
            "trust_env": False,
            "proxy": proxy,
            "verify": True if ca is None else ca if isinstance(ca, ssl.SSLContext) else _authority(ca),
        }
        return cls(address, options, Patience(retries, patience, random.random))

    def explained(self, silence: Silence) -> Silence:
        """With what is known of this client; where plain HTTP was hung up on, it connects once more to find out."""
        if silence.reason == "untrusted" and not silence.advice and self.options["verify"] is not True:
            return replace(silence, advice=OTHER_AUTHORITY)
        return self._hung_up() if silence.reason == "hung-up" else silence

    def _hung_up(self) -> Silence:
        """Unless there is a proxy."""
        address, timeout = httpx_library().URL(self.url), self.options["timeout"].connect
        https = self.options["proxy"] is None and speaks_tls(address.host, address.port or 80, timeout)
        return Silence("HTTP", "not-http" if https else "hung-up")


def latest(regions: Iterable[str], patience: Patience) -> Steps[Estimates]:
    """Empty before the first release."""
    return read_estimates("/v1/estimates/latest", region_params(regions), patience)


def estimates(
    first: int | datetime | None, last: int | datetime | None, regions: Iterable[str], patience: Patience
) -> Steps[Estimates]:
    """Both ends included."""
    span = [(name, _moment(name, given)) for name, given in (("from", first), ("to", last)) if given is not None]
    ends: tuple[Any, Any] = first, last
    # A slot and a time cannot be compared here: which slot was open then, only the node knows.
    if len(span) == 2 and isinstance(first, datetime) == isinstance(last, datetime) and ends[0] > ends[1]:
        raise BadInput("from, to: given an end that is before the beginning; allowed: a range, both ends included.")
    return read_estimates("/v1/estimates", [*span, *region_params(regions)], patience)


def budget(patience: Patience) -> Steps[Budget]:
    """Of the ledger on the node's disk."""
    return read((yield from get(Ask("GET", "/v1/budget"), patience)), _budget.decode)


def network(patience: Patience) -> Steps[Network]:
    """As the node sees it now."""
    return read((yield from get(Ask("GET", "/v1/network"), patience)), _network.decode)


def ready(patience: Patience) -> Steps[Ready]:
    """A node that is not ready says so with 503: an answer, not a reason to ask again."""
    return read((yield from get(Ask("GET", "/readyz"), patience, (200, 503))), _ready.decode)


def request(method: str, path: str, body: Any, accepts: Sequence[int], patience: Patience) -> Steps[Any]:
    """The JSON answer of any path."""
    content = None if body is None else msgspec.json.encode(body)
    headers = {} if body is None else {"content-type": "application/json"}
    reply = yield from get(Ask(method, path, (), content, headers), patience, accepts)
    return read(reply, msgspec.json.decode)


def metrics(patience: Patience) -> Steps[str]:
    """Prometheus' text format."""
    return read((yield from get(Ask("GET", "/metrics"), patience)), bytes.decode)


def region_params(regions: Iterable[str]) -> list[tuple[str, str]]:
    """One name, or several."""
    return [("region", name) for name in ([regions] if isinstance(regions, str) else regions)]


def _moment(name: str, given: int | datetime) -> str:
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise BadInput(f"{name}: given a datetime without a time zone; allowed: a slot, or a datetime with one.")
        return given.isoformat(timespec="microseconds")
    if isinstance(given, bool) or not hasattr(given, "__index__") or given < 0:
        raise BadInput(f"{name}: allowed: a slot (a whole number >= 0), or a datetime with a time zone.")
    return str(int(given))


def _address(httpx: Any, url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except (TypeError, httpx.InvalidURL):
        parsed = None
    if parsed is None or parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo or parsed.query:
        raise BadInput("url: allowed: the address of a node's HTTP API, such as http://127.0.0.1:8080, and no more.")
    return str(parsed).rstrip("/")


def _authority(path: str | os.PathLike[str]) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=os.fspath(path))
    except OSError as error:
        why = error.strerror or "not a certificate"
    raise BadInput(f"ca: '{os.fspath(path)}' cannot be used ({why}); allowed: a file of certificates in PEM.")


def speaks_tls(host: str, port: int, seconds: float) -> bool:
    """Whether a handshake is answered within some seconds, be it with an alert."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=min(seconds, _LONGEST_PROBE)) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in str(error.reason)  # it speaks TLS, and wants something else of it
    except (OSError, ValueError):
        return False
