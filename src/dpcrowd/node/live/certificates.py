"""How long the certificates are valid that a node depends on: its own, its authority's, that of HTTPS, its neighbours'.

A node looks at them all the time, since it may run for longer than any of them is valid; it tells of each once per day,
from 30 days before its end on. Neighbours say in their messages when theirs expire; of one that runs an older version
nothing is known.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from dpcrowd.errors import BadInput
from dpcrowd.node.config import NodeConfig
from dpcrowd.node.keys.checks import Expiry, Holder, Problem, read_expiry

__all__ = ["Certificates", "utc"]

log = logging.getLogger("dpcrowd.node")

_DAY = 86_400
_LAST = 253_402_300_799  # the end of the year 9999, the last that can be written

ReportedExpiries = Mapping[str, int]
"""Name of a neighbour -> when its certificate expires, in seconds since 1970, by its own words."""


class Certificates:
    """The certificates of one node. Files are read by `read` alone; everything else is arithmetic."""

    def __init__(self, node: NodeConfig) -> None:
        self._own: tuple[Expiry, ...] = ()
        self._reported: dict[tuple[Holder, str], tuple[datetime, int, bool]] = {}
        self.read(node)

    def read(self, node: NodeConfig) -> None:
        """Read the files as they are now; whatever there is to report of them is reported again."""
        expiries = []
        for path, holder, name in (
            (node.keys.certificate, "server", node.server),
            (node.keys.ca, "authority", None),
            (node.listen.http_certificate, "https", None),
        ):
            try:
                if path is not None:
                    expiries.append(read_expiry(path, holder, name))  # type: ignore[arg-type]
            except BadInput as error:  # a start refuses such a file; a node that runs has the one before in use
                log.error(str(error), extra={"event": "certificate"})
        self._own = tuple(expiries)
        self._reported.clear()

    @property
    def expires(self) -> int:
        """When the server's own certificate expires, in seconds since 1970; 0 if it cannot be read."""
        return next((int(one.at.timestamp()) for one in self._own if one.holder == "server"), 0)

    def all_expiries(self, reported: ReportedExpiries) -> tuple[Expiry, ...]:
        """Return all certificates; what neighbours say of theirs is used as far as it can be a date."""
        others = (
            Expiry("neighbour", name, datetime.fromtimestamp(at, UTC))
            for name, at in sorted(reported.items())
            if 0 < at <= _LAST
        )
        return *self._own, *others

    def links_over(self, now_ns: int) -> bool:
        """Whether no neighbour may be linked with any more: TLS would refuse, but only new links."""
        now = utc(now_ns)
        return any(one.is_over(now) for one in self._own if one.holder in ("server", "authority"))

    def problems(self, now_ns: int) -> list[str]:
        """Return a sentence for each of this node's own certificates that has expired."""
        return [text for over, text in self._texts(now_ns, self._own) if over]

    def warnings(self, now_ns: int, reported: ReportedExpiries | None = None) -> list[str]:
        """Return a sentence for each own certificate that expires soon, and each neighbour's that does or has expired.

        A neighbour without a link is no reason to call this node not ready.
        """
        own = len(self._own)
        certificates = self.all_expiries(reported or {})
        others = [text for _, text in self._texts(now_ns, certificates[own:])]
        return [text for over, text in self._texts(now_ns, certificates[:own]) if not over] + others

    def _texts(self, now_ns: int, certificates: Sequence[Expiry]) -> Iterator[tuple[bool, str]]:
        now = utc(now_ns)
        for one in certificates:
            problem = one.problem(now)
            if problem is not None:
                yield one.is_over(now), f"{problem.what} {problem.fix}"

    def news(self, reported: ReportedExpiries, now_ns: int) -> list[tuple[Expiry, Problem]]:
        """Return what is to be logged now: each certificate once per day, and when it is new or has just expired."""
        now, day = utc(now_ns), now_ns // (_DAY * 1_000_000_000)
        news = []
        for one in self.all_expiries(reported):
            state, kind = (one.at, day, one.is_over(now)), (one.holder, one.name)
            if self._reported.get(kind) == state:
                continue
            self._reported[kind] = state
            problem = one.problem(now)
            if problem is not None:
                news.append((one, problem))
        return news


def utc(now_ns: int) -> datetime:
    return datetime.fromtimestamp(now_ns / 1e9, UTC)
