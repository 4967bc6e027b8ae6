"""What changes in a running node without a restart: files that were replaced, and certificates that expire.

    network.toml   the next revision
    node.toml      tokens, the log level, certificate and key of HTTPS
    key files      those of the server, and of HTTPS, if their content has changed

A reload reads and checks everything (`read_changes`) before anything is changed (`Renewing.reload`). Everything else of
node.toml needs a restart; it is named and left as it is. Whatever is wrong with any of the files, none of them is used.

TLS looks at certificates when a link is made, and never again. So a node closes its links itself when its own
certificate has expired, or that of a neighbour who is linked all the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from abc import abstractmethod
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from dpcrowd.errors import BadInput
from dpcrowd.node.api.serve import ApiServer
from dpcrowd.node.config import (
    NetworkConfig,
    NodeConfig,
    Right,
    check_member,
    check_new,
    check_next,
    digest,
    load_network,
    load_node,
)
from dpcrowd.node.config.kinds import Section
from dpcrowd.node.keys.checks import Holder, Problem, certificate_problems, https_problem, minute
from dpcrowd.node.keys.files import read_pem, read_private_key
from dpcrowd.node.keys.signing import public_text, signer
from dpcrowd.node.live.certificates import utc
from dpcrowd.node.live.revisions import changes_text, keep_next
from dpcrowd.node.live.service import NodeService
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import rfc3339
from dpcrowd.node.wire import Sign

__all__ = ["Changes", "Content", "CurrentTokens", "Renewing", "Running", "keep_served", "key_problem", "read_changes"]

log = logging.getLogger("dpcrowd.node")

_FREE = ("tokens.", "log.level", "listen.http_certificate", "listen.http_key")
_LAST_SECOND = 1.5  # TLS accepts a certificate until the second in which it expires is over


@dataclass(frozen=True)
class Content:
    """Hashes of what key files hold: equal if they hold the same.

    server  key, certificate and authority of the server
    https   certificate and key of HTTPS
    """

    server: bytes
    https: bytes

    @classmethod
    def of(cls, node: NodeConfig) -> Content:
        """Hash the files as they are now; what cannot be read counts as empty."""
        listen = node.listen
        return cls(
            _hash(node.keys.key, node.keys.certificate, node.keys.ca), _hash(listen.http_certificate, listen.http_key)
        )


@dataclass(frozen=True)
class Running:
    """What a node runs with, and where its files are.

    path      of node.toml; None: it was not read from a file
    revision  of the network that is in use
    content   of its key files when they were taken
    """

    path: Path | None
    config: NodeConfig
    revision: NetworkConfig
    content: Content


@dataclass(frozen=True)
class Changes:
    """What a reload changes, all of it checked.

    config     to run with from now on; what needs a restart is still as it was
    applied    names of settings of node.toml that have changed
    waiting    names of those that need a restart
    following  the next revision of the network, if there is one
    sign       with the server's renewed key, or with the same one if only certificates were renewed; None: neither was
    https      with the renewed certificate of HTTPS
    content    of the key files
    """

    config: NodeConfig
    applied: tuple[str, ...]
    waiting: tuple[str, ...]
    following: NetworkConfig | None
    sign: Sign | None
    https: ssl.SSLContext | None
    content: Content


def read_changes(running: Running, now: datetime) -> Changes:
    """Read all files; `BadInput` says what is wrong with one of them."""
    current = running.config
    new = current if running.path is None else load_node(running.path)
    accepted, waiting = _split_changes(current, new)
    config = msgspec.structs.replace(
        current, tokens=new.tokens, log=msgspec.structs.replace(current.log, level=new.log.level)
    )
    if not _needs_restart("listen.http_certificate", current, new):
        files = {"http_certificate": new.listen.http_certificate, "http_key": new.listen.http_key}
        config = msgspec.structs.replace(config, listen=msgspec.structs.replace(current.listen, **files))
    following = _next_revision(running)
    before, content = running.content, Content.of(config)  # if they change once more from here on, the next reload sees
    return Changes(
        config=config,
        applied=accepted,
        waiting=waiting,
        following=following,
        sign=None if content.server == before.server else _renewed_key(running, following, now),
        https=None if content.https == before.https else _renewed_https(config, now),
        content=content,
    )


def _next_revision(running: Running) -> NetworkConfig | None:
    following = load_network(running.config.network)
    if digest(following) == digest(running.revision):
        return None
    check_new(following, str(running.config.network))
    check_next(running.revision, following)
    check_member(following, running.config.server)
    return following


def _split_changes(current: NodeConfig, new: NodeConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of settings that differ: those that can be used now, and those that need a restart."""
    names = list(_differences(current, new))
    waiting = tuple(name for name in names if _needs_restart(name, current, new))
    return tuple(name for name in names if name not in waiting), waiting


def _needs_restart(name: str, current: NodeConfig, new: NodeConfig) -> bool:
    if name.startswith("listen.") and (current.listen.http_key is None) != (new.listen.http_key is None):
        return True  # a socket speaks HTTP or HTTPS from its first byte on
    return not name.startswith(_FREE)


def _differences(current: Section, new: Section, before: str = "") -> Iterator[str]:
    for name in current.__struct_fields__:
        one, other = getattr(current, name), getattr(new, name)
        if isinstance(one, Section):
            yield from _differences(one, other, f"{before}{name}.")
        elif one != other:
            yield f"{before}{name}"


def key_problem(node: NodeConfig, network: NetworkConfig, now: datetime) -> Problem | None:
    """Return why no neighbour would accept the server's key and certificate; `BadInput` if they cannot be read."""
    me = network.server(node.server)
    key = public_text(read_private_key(node.keys.key))
    certificate = read_pem(node.keys.certificate, "certificate")
    authority = read_pem(node.keys.ca, "authority's certificate")
    problems = certificate_problems(certificate, authority, name=me.certificate_name, now=now, key=key, pins=me.keys)
    return problems[0] if problems else None


def _renewed_key(running: Running, following: NetworkConfig | None, now: datetime) -> Sign:
    node = running.config
    problem = key_problem(node, running.revision, now)
    if problem is not None:
        fix = problem.fix
        if following is not None and key_problem(node, following, now) is None:
            fix = f"Revision {following.revision} does, from slot {following.valid_from_slot} on: reload again then."
        raise BadInput(f"the server's renewed key and certificate cannot be used: {problem.what} {fix}")
    return signer(running.revision.id, read_private_key(node.keys.key))


def _renewed_https(node: NodeConfig, now: datetime) -> ssl.SSLContext | None:
    certificate, key = node.listen.http_certificate, node.listen.http_key
    if certificate is None or key is None:
        return None
    problem = https_problem(certificate, key, now)
    if problem is not None:
        raise BadInput(f"{problem.what} {problem.fix}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=b"")
    except (OSError, ValueError):  # changed since it was checked
        raise BadInput(f"listen.http_certificate {certificate} is just being changed; try again.") from None
    return context


def _hash(*paths: Path | None) -> bytes:
    total = hashlib.sha256()
    for path in paths:
        try:
            content = b"" if path is None else path.read_bytes()
        except OSError:
            content = b""
        total.update(hashlib.sha256(content).digest())
    return total.digest()


class CurrentTokens:
    """The rights that the tokens of a node give as they are now; a reload may change them."""

    def __init__(self, node: NodeService) -> None:
        self._node = node

    def rights_of(self, token: str | None) -> frozenset[Right]:
        return self._node.config.tokens.rights_of(token)


class Renewing(NodeService):
    """A node that can reload its files, and closes links whose certificates have expired."""

    _path: Path | None
    _http: ApiServer | None
    _content: Content  # of the key files that are in use
    _reloading: asyncio.Lock

    @abstractmethod
    def _signing(self, sign: Sign) -> Sign:
        """Return the same signatures, recorded if a recording is made."""

    @abstractmethod
    def _start(self, work: Coroutine[Any, Any, None]) -> None: ...

    # --------------------------------------------------------------------------------------------- certificates

    def _look_at_certificates(self) -> None:
        """Log certificates that expire; a link does not outlive the certificate of either end."""
        now = self._wall.now()
        for one, problem in self.certificates.news(self.expiries(), now):
            over = one.is_over(utc(now))
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
        """Open links anew if a neighbour whose certificate has expired is still linked: the handshake refuses it."""
        await asyncio.sleep(_LAST_SECOND)
        if neighbour in self.executor.machine.present:
            self.executor.give(on.LinksExpired(self._wall.now(), anew=True))

    # --------------------------------------------------------------------------------------------------- reload

    async def reload(self) -> str:
        """Use what the files hold now; everything is read and checked before anything is changed."""
        async with self._reloading:
            running = Running(self._path, self.config, self.revision, self._content)
            changes = await asyncio.to_thread(read_changes, running, utc(self._wall.now()))
            sentences = [await self._take_revision(changes.following)]  # may refuse, too
            sentences += self._take_settings(changes)
            self.certificates.read(self.config)
            self._content = changes.content
            if changes.https is not None:
                sentences.append(self._take_https(changes.https))
            if changes.sign is not None:
                sentences.append(self._take_key(changes.sign))
            text = " ".join(sentences)
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
        known = self.revision.warnings()
        mistakes = [text for text in following.warnings() if text not in known]
        for text in mistakes:
            log.warning("revision %d: %s", following.revision, text, extra={"event": "configuration"})
        doubtful = "".join(f" Note: {text}" for text in mistakes)
        return (
            f"revision {following.revision} takes over with slot {first}, at {rfc3339(self.clock.opens(first))}{late}; "
            f"digest {digest(following).hex()}; {changes_text(self.revision, following)}{doubtful}"
        )

    def _take_settings(self, changes: Changes) -> list[str]:
        sentences = []
        self.config = changes.config
        if changes.applied:
            sentences.append(f"Changed by node.toml: {', '.join(changes.applied)}.")
            for text in changes.config.warnings():
                log.warning(text, extra={"event": "configuration"})
        if "log.level" in changes.applied:
            self.set_log_level(changes.config.log.level)
        if "tokens.read" in changes.applied:
            self.broadcast.end_streams()  # whoever may still read opens another one
        if changes.waiting:
            sentences.append(f"Not changed, since that needs a restart: {', '.join(changes.waiting)}.")
        return sentences

    def _take_https(self, context: ssl.SSLContext) -> str:
        if self._http is not None:
            self._http.renew(context)
        keep_served(self.config)
        return f"New connections get the renewed certificate of HTTPS{self._until('https')}."

    def _take_key(self, sign: Sign) -> str:
        """Use a renewed key, with links that are made with it, after the exchange that is open."""
        machine = self.executor.machine
        busy = machine.exchanging if machine.linked else None
        self.executor.give(on.KeyRenewed(self._wall.now(), self._signing(sign), self.certificates.expires))
        when = "now" if busy is None else f"after the exchange of slot {busy}"
        return f"Links are opened anew {when}, with the server's renewed certificate{self._until('server')}."

    def _until(self, holder: Holder) -> str:
        ends = [one.at for one in self.certificates.all_expiries({}) if one.holder == holder]
        return f", which is valid until {minute(ends[0])}" if ends else ""


def keep_served(node: NodeConfig) -> None:
    """Keep a copy of the certificate that is served, for the tools, which trust that file and no other."""
    certificate, copy = node.listen.http_certificate, node.served_certificate
    with suppress(OSError):  # they can do without
        if certificate is None:
            copy.unlink(missing_ok=True)
        else:
            fresh = copy.with_suffix(".part")
            fresh.write_bytes(certificate.read_bytes())
            fresh.replace(copy)
