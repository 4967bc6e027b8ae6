"""What a client does, without I/O: generators that yield requests and waits and are sent replies.

`Client` and `AsyncClient` drive the same generators, so that retries, batches and pages are the same in both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    "get",
    "read",
    "send_counts",
    "send_nothing",
    "silence_of",
    "told_rows",
]

T = TypeVar("T")
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0
_MOST_TEXT = 500
_SYSTEM = re.compile(r"\[Errno -?\d+\] ([A-Za-z ]+)")


@dataclass(frozen=True, repr=False)
class Ask:
    """One request. It has no repr: its content holds user ids."""

    method: str
    path: str
    params: Sequence[tuple[str, str]] = ()
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Wait:
    """Seconds before the next request."""

    seconds: float


@dataclass(frozen=True)
class Reply:
    """An answer; `following` is the address of the next page."""

    status: int
    content: bytes
    retry_after: str | None = None
    following: str | None = None


@dataclass(frozen=True)
class Silence:
    """No answer.

    why     the kind of failure, such as ConnectError
    reason  a word if more is known
    system  what the operating system says of it, such as "connection refused"
    advice  what to do; empty: what the reason says
    """

    why: str
    reason: Literal["unreachable", "untrusted", "expired", "not-https", "not-http", "hung-up"] = "unreachable"
    system: str = ""
    advice: str = ""

    @property
    def passing(self) -> bool:
        """Whether asking again may help."""
        return self.reason in ("unreachable", "hung-up")


LASTING = frozenset({"untrusted", "not-https", "not-http"})
"""Reasons of `NodeUnreachable` that stay however long one waits, unless somebody changes an address or a file."""


_ADVICE = {
    "unreachable": "is it running, and is the address right?",
    "untrusted": "its certificate is of no authority known here; give that one's certificate (ca).",
    "expired": "its certificate is not valid now; if this machine's clock is right, its operator has to renew it.",
    "not-http": "it speaks HTTPS; the address is https://..., not http://...",
    "not-https": "what listens there does not speak HTTPS; is the address http://..., not https://...?",
    "hung-up": "it hung up without a word; if the node has HTTPS, the address is https://..., not http://...",
}


_OTHER_NAME = "its certificate is for another name; the address has to hold a name that the certificate is for."
OTHER_AUTHORITY = (
    "its certificate is not of the authority that was given (ca); give the certificate of the one that has signed it, "
    "or the node's own."
)
"""The advice where a node's certificate is not trusted although an authority was given."""


def silence_of(error: Exception) -> Silence:
    """Only the error's name, and what its text gives away of the cause: the error itself holds the request."""
    why, text = type(error).__name__, str(error)
    if "certificate has expired" in text or "certificate is not yet valid" in text:
        return Silence("HTTPS", "expired")
    if "Hostname mismatch" in text or "IP address mismatch" in text:
        return Silence("HTTPS", "untrusted", _OTHER_NAME)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return Silence("HTTPS", "untrusted")
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return Silence("HTTPS", "not-https")
    if "disconnected without sending a response" in text and _scheme(error) == "http":
        return Silence("HTTP", "hung-up")
    system = _SYSTEM.search(text)
    return Silence(why, system=system[1].lower() if system else "")


def _scheme(error: Exception) -> str:
    try:
        return str(error.request.url.scheme)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        return ""


Steps = Generator[Ask | Wait, Reply | Silence | None, T]


@dataclass(frozen=True)
class Patience:
    """How long to go on asking.

    retries  after the first request
    seconds  of waiting altogether
    jitter   gives numbers from 0 to 1, so that many clients do not come back at once
    """

    retries: int
    seconds: float
    jitter: Callable[[], float]

    def wait(self, attempt: int, asked: str | None, waited: float) -> float | None:
        """Before the next attempt; None if it is not to be."""
        wanted = retry_after(asked)
        if wanted is None:
            wanted = min(_FIRST_WAIT * 2**attempt, _LONGEST_WAIT) * (0.5 + 0.5 * self.jitter())
        return wanted if attempt < self.retries and waited + wanted <= self.seconds else None


def retry_after(header: str | None) -> float | None:
    """Seconds; dates, which proxies may send, are not read."""
    return float(header) if header is not None and header.isascii() and header.isdecimal() and len(header) < 9 else None


def get(ask: Ask, patience: Patience, accepts: Sequence[int] = (200,)) -> Steps[Reply]:
    """Ask until there is an answer that is a success. Every request of this API may be sent twice."""
    waited = 0.0
    attempt = 0
    while True:
        reply = yield ask
        if isinstance(reply, Reply) and reply.status in accepts:
            return reply
        error = problem(reply)
        passing = (isinstance(reply, Silence) and reply.passing) or (
            isinstance(reply, Reply) and reply.status in (429, 503)
        )
        asked = reply.retry_after if isinstance(reply, Reply) else None
        wait = patience.wait(attempt, asked, waited) if passing else None
        if wait is None:
            raise error
        yield Wait(wait)
        waited += wait
        attempt += 1


def problem(reply: Reply | Silence | None) -> NodeError:
    """The error of an answer that is none, or no success."""
    if not isinstance(reply, Reply):
        silence = Silence("no answer") if reply is None else reply
        advice = silence.advice or _ADVICE[silence.reason]
        line = f"the node does not answer ({silence.why}): {advice}"
        return NodeUnreachable(line, reason=silence.reason, text=advice, cause=silence.system or silence.why)
    told = _told(reply.content)
    if told is None:
        message = f"what answered with HTTP {reply.status} is not a dpcrowd node."
        return NodeFailed(message, status=reply.status, reason="not-a-node", text=message)
    reason, text = _line(told.reason, 50), _line(told.text, _MOST_TEXT)
    return kind(reply.status)(
        f"{text} ({reason}, HTTP {reply.status})",
        status=reply.status,
        reason=reason,
        text=text,
        rows=told.rows,
        retry_after=retry_after(reply.retry_after),
        delivery=Delivery(0, told_rows(told.refused), told.refused_count),
    )


def read(reply: Reply, kind_of: Callable[[bytes], T]) -> T:
    """Decode; what cannot be decoded was not sent by a node."""
    try:
        return kind_of(reply.content)
    except (ValueError, OverflowError):  # of msgspec, or of numpy: a time that is none, a number beyond 64 bits
        problem_text = "the answer is not one of a dpcrowd node of this version."
    raise NodeFailed(problem_text, status=reply.status, reason="not-a-node", text=problem_text)


def send_nothing(patience: Patience) -> Steps[float]:
    """An empty list; seconds until the next slot opens."""
    headers = {"content-type": content_type("msgpack")}
    ask = Ask("POST", "/v1/checkins", (), encode([], "msgpack"), headers)
    return read((yield from get(ask, patience, (202,))), _taken.decode).seconds_left


def send_counts(slot: int, counts: Mapping[str, Any], patience: Patience) -> Steps[None]:
    """All regions of one slot."""
    headers = {"content-type": content_type("msgpack")}
    yield from get(Ask("POST", "/v1/counts", (), counts_body(slot, counts), headers), patience, (202,))


def read_estimates(path: str, params: Sequence[tuple[str, str]], patience: Patience) -> Steps[Estimates]:
    """All pages."""
    pages: list[Estimates] = []
    ask = Ask("GET", path, params)
    while True:
        reply = yield from get(ask, patience)
        page = read(reply, from_json)
        pages.append(page)
        if reply.following is None or not len(page):
            return joined(pages)
        ask = Ask("GET", path, _query(reply.following))


def _query(address: str) -> list[tuple[str, str]]:
    """Of the next page. Only the query is used: the token goes to the node that was named, and nowhere else."""
    from urllib.parse import parse_qsl, urlsplit

    return parse_qsl(urlsplit(address).query)


def _told(content: bytes) -> _Detail | None:
    try:
        return msgspec.json.decode(content, type=dict[str, _Detail])["error"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        return None


def told_rows(refused: Iterable[RefusedDetail]) -> tuple[RefusedRow, ...]:
    """Rows that an answer names, counted from 0 in the request."""
    return tuple(RefusedRow(one.row, _line(one.reason, 50)) for one in refused)


class _Taken(msgspec.Struct):
    seconds_left: float = 1.0  # the shortest slot


_taken = msgspec.json.Decoder(_Taken)


class RefusedDetail(msgspec.Struct):
    """A row that an answer names."""

    row: int
    reason: str


class _Detail(msgspec.Struct):
    reason: str
    text: str
    rows: list[int] | None = None
    refused: list[RefusedDetail] = []
    refused_count: int = 0


def _line(text: str, most: int) -> str:
    """From outside: one line, and nothing that moves the cursor of a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)[:most]
