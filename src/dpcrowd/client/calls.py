"""The requests of a client, each as steps without I/O, and its settings.

`speaks_tls` finds out why plain HTTP got no answer. A server with HTTPS closes the connection of a client that speaks
HTTP, and so does one that is being stopped, or a load balancer without servers. Only the first lasts however long one
waits, so a TLS handshake is tried; no data is sent, and the certificate does not matter.
"""

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
from dpcrowd.client.steps import OTHER_AUTHORITY, Ask, Patience, Silence, Steps, read, read_estimates, send
from dpcrowd.client.tables import Estimates, from_history
from dpcrowd.client.views import Budget, Network, Proof, Proofs, Quality, Ready
from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.node.api.page_views import MOST_SLOTS

__all__ = []

Authority = str | os.PathLike[str] | ssl.SSLContext

_LONGEST_PROBE = 5.0
_budget = msgspec.json.Decoder(Budget)
_network = msgspec.json.Decoder(Network)
_quality = msgspec.json.Decoder(Quality)
_proofs = msgspec.json.Decoder(Proofs)
_ready = msgspec.json.Decoder(Ready)


def httpx_library() -> Any:
    """Import httpx, when a client is created."""
    try:
        import httpx
    except ImportError:
        raise MissingExtra("httpx", "client", "dpcrowd.Client") from None
    return httpx


@dataclass(frozen=True)
class Settings:
    """How to reach a node; only `options` contains the token, and it is never printed."""

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
            raise BadInput(
                f"timeout is {timeout}, patience {patience} and retries {retries}; allowed: "
                "a timeout above 0, the others at least 0."
            )
        headers: dict[str, str | bytes] = {"user-agent": f"dpcrowd/{__version__}"}
        if token is not None:
            if not isinstance(token, str) or not token.isprintable() or not token or token != token.strip():
                raise BadInput(
                    "the token is empty or contains characters that cannot be sent; allowed: printable characters "
                    "without spaces around them."
                )
            headers["authorization"] = f"Bearer {token}".encode()
        # Proxies of the environment are ignored: they would get the token and the check-ins.
        options = {
            "base_url": address,
            "headers": headers,
            "timeout": httpx.Timeout(timeout),
            "trust_env": False,
            "proxy": proxy,
            "verify": _verification(address, ca, proxy),
        }
        return cls(address, options, Patience(retries, patience, random.random))

    def explain(self, silence: Silence) -> Silence:
        """Add what the settings tell about a failure; if plain HTTP was cut off, connect once more to find out why."""
        if silence.reason == "untrusted" and not silence.advice and self.options["verify"] is not True:
            return replace(silence, advice=OTHER_AUTHORITY)
        return self._explain_cut() if silence.reason == "hung-up" else silence

    def _explain_cut(self) -> Silence:
        """Tell whether the node speaks HTTPS; with a proxy, that cannot be found out."""
        address, timeout = httpx_library().URL(self.url), self.options["timeout"].connect
        https = self.options["proxy"] is None and speaks_tls(address.host, address.port or 80, timeout)
        return Silence("HTTP", "not-http" if https else "hung-up")


def latest(regions: Iterable[str], patience: Patience) -> Steps[Estimates]:
    """Read the latest release; an empty table before the first one."""
    return read_estimates("/v1/estimates/latest", region_params(regions), patience)


def estimates(
    first: int | datetime | None,
    last: int | datetime | None,
    regions: Iterable[str],
    patience: Patience,
    *,
    smoothed: bool = False,
    measurements: bool = False,
) -> Steps[Estimates]:
    """Read the releases, or the smoothed history, of a range of slots, both ends included."""
    if measurements and not smoothed:
        raise BadInput("measurements belong to the smoothed history, since late records change them: smoothed=True.")
    span = [(name, _moment(name, value)) for name, value in (("from", first), ("to", last)) if value is not None]
    ends: tuple[Any, Any] = first, last
    # A slot and a time cannot be compared here: only the node knows which slot was open then.
    if len(span) == 2 and isinstance(first, datetime) == isinstance(last, datetime) and ends[0] > ends[1]:
        raise BadInput("the last slot or time is before the first one; allowed: a range, both ends included.")
    flags = [(name, "true") for name, on in (("smoothed", smoothed), ("measurements", measurements)) if on]
    params = [*span, *region_params(regions), *flags]
    return read_estimates("/v1/estimates", params, patience)


def totals(slots: int, patience: Patience) -> Steps[Estimates]:
    """Read the totals of the latest slots."""
    if isinstance(slots, bool) or not hasattr(slots, "__index__") or not 1 <= slots <= MOST_SLOTS:
        raise BadInput(f"slots is {slots!r}; allowed: how many of the latest slots, from 1 to {MOST_SLOTS}.")
    params = (("slots", str(int(slots))), ("total_only", "true"))
    return read((yield from send(Ask("GET", "/v1/history", params), patience)), from_history)


def budget(patience: Patience) -> Steps[Budget]:
    """Read the budget, as the ledger on the node's disk has it."""
    return read((yield from send(Ask("GET", "/v1/budget"), patience)), _budget.decode)


def network(patience: Patience) -> Steps[Network]:
    """Read the network, as the node sees it now."""
    return read((yield from send(Ask("GET", "/v1/network"), patience)), _network.decode)


def proofs(patience: Patience) -> Steps[list[Proof]]:
    """Read the proofs that servers have signed two different records for one slot."""
    return read((yield from send(Ask("GET", "/v1/proofs"), patience)), _proofs.decode).proofs


def quality(patience: Patience) -> Steps[Quality]:
    """Read the running calibration of the intervals."""
    return read((yield from send(Ask("GET", "/v1/quality"), patience)), _quality.decode)


def ready(patience: Patience) -> Steps[Ready]:
    """Read the readiness; a node that is not ready answers with 503, which is not a reason to try again."""
    return read((yield from send(Ask("GET", "/readyz"), patience, (200, 503))), _ready.decode)


def request(method: str, path: str, body: Any, accepts: Sequence[int], patience: Patience) -> Steps[Any]:
    """Read the JSON answer of any path."""
    content = None if body is None else msgspec.json.encode(body)
    headers = {} if body is None else {"content-type": "application/json"}
    reply = yield from send(Ask(method, path, (), content, headers), patience, accepts)
    return read(reply, msgspec.json.decode)


def metrics(patience: Patience) -> Steps[str]:
    """Read the metrics, in the text format of Prometheus."""
    return read((yield from send(Ask("GET", "/metrics"), patience)), bytes.decode)


def region_params(regions: Iterable[str]) -> list[tuple[str, str]]:
    """Return the query for one region or several."""
    return [("region", name) for name in ([regions] if isinstance(regions, str) else regions)]


def _moment(name: str, value: int | datetime) -> str:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise BadInput(f"{name}: {value} has no time zone; allowed: a slot, or a datetime with a time zone.")
        return value.isoformat(timespec="microseconds")
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 0:
        raise BadInput(f"{name} is {value!r}; allowed: a slot (a whole number >= 0), or a datetime with a time zone.")
    return str(int(value))


def _address(httpx: Any, url: str) -> str:
    try:
        address = httpx.URL(url)
    except (TypeError, httpx.InvalidURL):
        address = None
    usable = address is not None and address.scheme in ("http", "https") and address.host
    usable = usable and 0 < (address.port or 80) < 65536
    if not usable or address.userinfo or address.query:  # not repeated: it may contain a password
        raise BadInput(
            "the URL is not the address of a node; allowed: http:// or https://, a host and a port, such as "
            "http://127.0.0.1:8080."
        )
    return str(address).rstrip("/")


def _verification(address: str, ca: Authority | None, proxy: str | None) -> ssl.SSLContext | bool:
    """Return how certificates are checked; True: against all authorities of the system.

    Reading these takes a tenth of a second, which plain HTTP does not need. Its context knows no authority, so that it
    would trust nobody.
    """
    if ca is not None:
        return ca if isinstance(ca, ssl.SSLContext) else _authority(ca)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if address.startswith("http:") and proxy is None else True


def _authority(path: str | os.PathLike[str]) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=os.fspath(path))
    except ssl.SSLError:
        reason = "it contains no PEM certificate"
    except OSError as error:
        reason = error.strerror or str(error)
    raise BadInput(f"the authority's file (ca) '{os.fspath(path)}' cannot be used: {reason}; give a PEM certificate.")


def speaks_tls(host: str, port: int, seconds: float) -> bool:
    """Whether the server answers a TLS handshake within this many seconds, even with an alert."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=min(seconds, _LONGEST_PROBE)) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in str(error.reason)  # it speaks TLS, but expects other parameters
    except (OSError, ValueError):
        return False
