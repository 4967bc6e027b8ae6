"""What changes in a node while it runs: certificates that expire, and files that were replaced.

TLS looks at certificates when a link is made, and never again. So a node closes its links itself when its own
certificate has expired, or that of a neighbour who is linked all the same.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from abc import abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput
from dpcrowd.node.api.serve import ApiServer
from dpcrowd.node.config import NetworkConfig, NodeConfig, Right, digest
from dpcrowd.node.keys.checks import minute
from dpcrowd.node.keys.expiry import Holder
from dpcrowd.node.live.certificates import utc
from dpcrowd.node.live.reload import Changes, Content, Running, read_changes
from dpcrowd.node.live.revisions import differences, keep_next
from dpcrowd.node.live.service import Served
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import rfc3339
from dpcrowd.node.wire import Sign

__all__ = ["CurrentTokens", "Renewing", "keep_served"]

log = logging.getLogger("dpcrowd.node")

_LAST_SECOND = 1.5  # TLS accepts a certificate until the second in which it expires is over
_APART = 1.2  # seconds after which a neighbour that dials takes a link for a new one, and does not make it once more


class CurrentTokens:
    """Who may do what by the tokens of a node as they are now; a reload may change them."""

    def __init__(self, node: Served) -> None:
        self._node = node

    def rights_of(self, token: str | None) -> frozenset[Right]:
        return self._node.config.tokens.rights_of(token)


class Renewing(Served):
    """A node that takes what its files hold now, and parts with certificates that have expired."""

    _path: Path | None
    _http: ApiServer | None
    _content: Content  # of the key files that are in use
    _reloading: asyncio.Lock

    @abstractmethod
    def _signing(self, sign: Sign) -> Sign:
        """The same, written down if a recording is made."""

    @abstractmethod
    def _start(self, work: Coroutine[Any, Any, None]) -> None: ...

    # --------------------------------------------------------------------------------------------- certificates

    def _look_at_certificates(self) -> None:
        """Tell of those that expire; a link does not outlive the certificate of either end."""
        now = self._wall.now()
        for one, problem in self.certificates.news(self.expiries(), now):
            over = one.over(utc(now))
            log.log(
                logging.ERROR if over else logging.WARNING,
                f"{problem.what} {problem.fix}",
                extra={"event": "certificate", "certificate": one.holder, "subject": one.name},
            )
            if over and one.holder == "neighbour":
                self._start(self._part_with(one.name))
            elif over:
                self.executor.give(on.LinksExpired(self._wall.now()))

    async def _part_with(self, neighbour: str) -> None:
        """A neighbour whose certificate has expired and who is linked all the same: another handshake refuses it."""
        await asyncio.sleep(_LAST_SECOND)
        if neighbour in self.executor.machine.present:
            self.executor.give(on.LinksExpired(self._wall.now(), anew=True))

    # --------------------------------------------------------------------------------------------------- reload

    async def reload(self) -> str:
        """Take what the files hold now; everything is read and checked before anything is changed."""
        async with self._reloading:
            running = Running(self._path, self.config, self.revision, self._content)
            changes = await asyncio.to_thread(read_changes, running, utc(self._wall.now()))
            told = [await self._take_revision(changes.following)]  # may refuse, too
            told += self._take_settings(changes)
            self.certificates.read(self.config)
            self._content = changes.content
            if changes.https is not None:
                told.append(self._take_https(changes.https))
            if changes.sign is not None:
                told.append(self._take_key(changes.sign))
            text = " ".join(told)
            log.info(text, extra={"event": "reload"})
            return text

    async def _take_revision(self, following: NetworkConfig | None) -> str:
        if following is None:
            return f"network.toml is that of revision {self.revision.revision}, which is in use."
        try:
            await asyncio.to_thread(keep_next, self.config, following)
        except OSError as error:
            raise BadInput(f"{self.config.data}: {error.strerror}; the next revision cannot be kept there.") from None
        await self.expect(following)
        sealing = self.executor.machine.view.next_seal(self._wall.now())
        first = max(following.valid_from_slot, sealing)
        late = (
            f", late: it is valid since slot {following.valid_from_slot}" if first > following.valid_from_slot else ""
        )
        return (
            f"revision {following.revision} takes over with slot {first}, at {rfc3339(self.clock.opens(first))}{late}; "
            f"digest {digest(following).hex()}{differences(self.revision, following)}."
        )

    def _take_settings(self, changes: Changes) -> list[str]:
        told = []
        self.config = changes.config
        if changes.taken:
            told.append(f"Taken from node.toml: {', '.join(changes.taken)}.")
            for text in changes.config.warnings():
                log.warning(text, extra={"event": "configuration"})
        if "log.level" in changes.taken:
            self.set_log_level(changes.config.log.level)
        if "tokens.read" in changes.taken:
            self.broadcast.end_streams()  # whoever may still read opens another one
        if changes.left:
            told.append(f"Not taken, since a change needs a restart: {', '.join(changes.left)}.")
        return told

    def _take_https(self, context: ssl.SSLContext) -> str:
        if self._http is not None:
            self._http.renew(context)
        keep_served(self.config)
        return f"New connections get the renewed certificate of HTTPS{self._until('https')}."

    def _take_key(self, sign: Sign) -> str:
        """With links that are made with it; not in the middle of an exchange, whose messages would be lost."""
        machine = self.executor.machine
        busy = machine.exchanging if machine.linked else None
        self.executor.give(on.KeyRenewed(self._wall.now(), self._signing(sign), self.certificates.expires))
        when = "now" if busy is None else f"after the exchange of slot {busy}"
        return f"Links are opened anew {when}, with the server's renewed certificate{self._until('server')}."

    def _until(self, holder: Holder) -> str:
        ends = [one.at for one in self.certificates.known({}) if one.holder == holder]
        return f", which is valid until {minute(ends[0])}" if ends else ""


def keep_served(node: NodeConfig) -> None:
    """For the tools, which trust the certificate in the file and no other: the one that is served until a reload."""
    certificate, copy = node.listen.http_certificate, node.served_certificate
    with suppress(OSError):  # they can do without
        if certificate is None:
            copy.unlink(missing_ok=True)
        else:
            fresh = copy.with_suffix(".part")
            fresh.write_bytes(certificate.read_bytes())
            fresh.replace(copy)
