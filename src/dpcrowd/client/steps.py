"""The protocol of a client without I/O: generators that yield requests and waits, and receive replies.

`Client` and `AsyncClient` run the same generators, so that retries, batches and pages are the same in both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from dpcrowd.client.delivery import Delivery, RefusedRow
from dpcrowd.client.errors import NodeError, NodeFailed, NodeUnreachable, kind
from dpcrowd.client.rows import content_type, counts_body, encode
from dpcrowd.client.tables import Estimates, from_json, joined

__all__ = [
    "LASTING",
    "OTHER_AUTHORITY",
    "Ask",
    "Patience",
    "RefusedDetail",
    "Reply",
    "Silence",
    "Steps",
    "Wait",
    "read",
    "refused_rows",
    "send",
    "send_counts",
    "send_nothing",
    "silence_of",
]

T = TypeVar("T")
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0
_MOST_TEXT = 500
_SYSTEM_ERROR = re.compile(r"\[Errno -?\d+\] ([A-Za-z ]+)")


@dataclass(frozen=True, repr=False)
class Ask:
    """One request. It has no repr, since its content contains user ids."""

    method: str
    path: str
    params: Sequence[tuple[str, str]] = ()
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Wait:
    """A pause before the next request."""

    seconds: float


@dataclass(frozen=True)
class Reply:
    """The answer of a server; `following` is the address of the next page."""

    status: int
    content: bytes
    retry_after: str | None = None
    following: str | None = None


@dataclass(frozen=True)
class Silence:
    """A request without an answer.

    why     the kind of failure, such as ConnectError
    reason  a word for programs
    system  the error of the operating system, such as "connection refused"
    advice  what to do; empty: the advice for the reason
    """

    why: str
    reason: Literal["unreachable", "untrusted", "expired", "not-https", "not-http", "hung-up"] = "unreachable"
    system: str = ""
    advice: str = ""

    @property
    def temporary(self) -> bool:
        """Whether another attempt may succeed."""
        return self.reason in ("unreachable", "hung-up")


LASTING = frozenset({"untrusted", "not-https", "not-http"})
"""Reasons of `NodeUnreachable` that last until somebody changes an address or a file."""


_ADVICE = {
    "unreachable": "is it running, and is the address correct?",
    "untrusted": "its certificate is not signed by a known authority; give the certificate of its authority (ca).",
    "expired": "its certificate is not valid now; if the clock of this machine is correct, its operator has to renew "
    "it.",
    "not-http": "it speaks HTTPS; the address is https://..., not http://...",
    "not-https": "the server there does not speak HTTPS; is the address http://..., not https://...?",
    "hung-up": "it closed the connection without an answer; if the node has HTTPS, the address is https://..., not "
    "http://...",
}


_OTHER_NAME = "its certificate is for another name; use an address with a name of the certificate."
OTHER_AUTHORITY = (
    "its certificate is not signed by the given authority (ca); give the certificate of the authority that signed it, "
    "or that of the node."
)
"""The advice if a node's certificate is not trusted although an authority was given."""


def silence_of(error: Exception) -> Silence:
    """Return the name and the cause of an error, without the error itself, which contains the request."""
    why, text = type(error).__name__, str(error)
    if "certificate has expired" in text or "certificate is not yet valid" in text:
        return Silence("HTTPS", "expired")
    if "Hostname mismatch" in text or "IP address mismatch" in text:
        return Silence("HTTPS", "untrusted", _OTHER_NAME)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return Silence("HTTPS", "untrusted")
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return Silence("HTTPS", "not-https")
    if "disconnected without sending a response" in text and _url_scheme(error) == "http":
        return Silence("HTTP", "hung-up")
    system = _SYSTEM_ERROR.search(text)
    return Silence(why, system=system[1].lower() if system else "")


def _url_scheme(error: Exception) -> str:
    try:
        return str(error.request.url.scheme)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        return ""


Steps = Generator[Ask | Wait, Reply | Silence | None, T]


@dataclass(frozen=True)
class Patience:
    """How often and how long to retry.

    retries  number of retries after the first request
    seconds  of waiting between all of them
    jitter   returns numbers from 0 to 1, so that many clients do not retry at the same moment
    """

    retries: int
    seconds: float
    jitter: Callable[[], float]

    def wait(self, attempt: int, header: str | None, waited: float) -> float | None:
        """Return the seconds before the next attempt, from Retry-After if there is one; None: give up."""
        seconds = retry_after(header)
        if seconds is None:
            seconds = min(_FIRST_WAIT * 2**attempt, _LONGEST_WAIT) * (0.5 + 0.5 * self.jitter())
        return seconds if attempt < self.retries and waited + seconds <= self.seconds else None


def retry_after(header: str | None) -> float | None:
    """Return the seconds of a Retry-After header; dates, which proxies may send, are ignored."""
    return float(header) if header is not None and header.isascii() and header.isdecimal() and len(header) < 9 else None


def send(ask: Ask, patience: Patience, accepts: Sequence[int] = (200,)) -> Steps[Reply]:
    """Send a request until it succeeds or patience ends; every request of this API may be sent twice."""
    waited = 0.0
    attempt = 0
    while True:
        reply = yield ask
        if isinstance(reply, Reply) and reply.status in accepts:
            return reply
        error = problem(reply)
        temporary = (isinstance(reply, Silence) and reply.temporary) or (
            isinstance(reply, Reply) and reply.status in (429, 503)
        )
        header = reply.retry_after if isinstance(reply, Reply) else None
        wait = patience.wait(attempt, header, waited) if temporary else None
        if wait is None:
            raise error
        yield Wait(wait)
        waited += wait
        attempt += 1


def problem(reply: Reply | Silence | None) -> NodeError:
    """Return the error for a missing answer, or for one that is not a success."""
    if not isinstance(reply, Reply):
        silence = Silence("no answer") if reply is None else reply
        advice = silence.advice or _ADVICE[silence.reason]
        line = f"the node does not answer ({silence.why}): {advice}"
        return NodeUnreachable(line, reason=silence.reason, text=advice, cause=silence.system or silence.why)
    detail = _error_detail(reply.content)
    if detail is None:
        message = f"the server that answered with HTTP {reply.status} is not a dpcrowd node; check the URL."
        return NodeFailed(message, status=reply.status, reason="not-a-node", text=message)
    reason, text = _printable(detail.reason, 50), _printable(detail.text, _MOST_TEXT)
    return kind(reply.status)(
        f"{text} ({reason}, HTTP {reply.status})",
        status=reply.status,
        reason=reason,
        text=text,
        rows=detail.rows,
        retry_after=retry_after(reply.retry_after),
        delivery=Delivery(0, refused_rows(detail.refused), detail.refused_count),
    )


def read(reply: Reply, decode: Callable[[bytes], T]) -> T:
    """Decode an answer; one that cannot be decoded was not sent by a node."""
    try:
        return decode(reply.content)
    except (ValueError, OverflowError):  # of msgspec, or of numpy: a malformed time, a number beyond 64 bits
        text = "the answer was not sent by a dpcrowd node of a known version; check the URL."
    raise NodeFailed(text, status=reply.status, reason="not-a-node", text=text)


def send_nothing(patience: Patience) -> Steps[float]:
    """Send an empty list of check-ins; return the seconds until the next slot opens."""
    headers = {"content-type": content_type("msgpack")}
    ask = Ask("POST", "/v1/checkins", (), encode([], "msgpack"), headers)
    return read((yield from send(ask, patience, (202,))), _taken.decode).seconds_left


def send_counts(slot: int, counts: Mapping[str, Any], patience: Patience) -> Steps[None]:
    """Send the counts of one slot by region."""
    headers = {"content-type": content_type("msgpack")}
    yield from send(Ask("POST", "/v1/counts", (), counts_body(slot, counts), headers), patience, (202,))


def read_estimates(path: str, params: Sequence[tuple[str, str]], patience: Patience) -> Steps[Estimates]:
    """Read all pages of estimates."""
    pages: list[Estimates] = []
    ask = Ask("GET", path, params)
    decode = partial(from_json, measured=("measurements", "true") in params)
    while True:
        reply = yield from send(ask, patience)
        page = read(reply, decode)
        pages.append(page)
        if reply.following is None or not len(page):
            return joined(pages)
        ask = Ask("GET", path, _query(reply.following))


def _query(address: str) -> list[tuple[str, str]]:
    """Return the query of the next page. Its host is ignored: the token goes only to the node of this client."""
    from urllib.parse import parse_qsl, urlsplit

    return parse_qsl(urlsplit(address).query)


def _error_detail(content: bytes) -> _Detail | None:
    try:
        return msgspec.json.decode(content, type=dict[str, _Detail])["error"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        return None


def refused_rows(refused: Iterable[RefusedDetail]) -> tuple[RefusedRow, ...]:
    """Return the rows that an answer names, counted from 0 in the request."""
    return tuple(RefusedRow(one.row, _printable(one.reason, 50)) for one in refused)


class _Taken(msgspec.Struct):
    seconds_left: float = 1.0  # the shortest slot


_taken = msgspec.json.Decoder(_Taken)


class RefusedDetail(msgspec.Struct):
    """A row that an answer names as refused."""

    row: int
    reason: str


class _Detail(msgspec.Struct):
    reason: str
    text: str
    rows: list[int] | None = None
    refused: list[RefusedDetail] = []
    refused_count: int = 0


def _printable(text: str, most: int) -> str:
    """Return a text from outside as one line of at most `most` characters, without control characters."""
    return "".join(c if c.isprintable() else " " for c in text)[:most]
