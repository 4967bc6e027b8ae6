"""What a running node may take from its files without a restart: read and checked here, before anything is changed.

    network.toml   the next revision
    node.toml      tokens, the log level, certificate and key of HTTPS
    key files      those of the server, and of HTTPS, if their content has changed

Everything else of node.toml needs a restart; it is named and left as it is. Whatever is wrong with any of the files,
none of them is taken.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from dpcrowd.errors import BadInput
from dpcrowd.node.config import NetworkConfig, NodeConfig, check_member, check_next, digest, load_network, load_node
from dpcrowd.node.config.kinds import Section
from dpcrowd.node.keys.checks import Problem, certificate_problems, https_problem
from dpcrowd.node.keys.files import read_pem, read_private_key
from dpcrowd.node.keys.signing import public_text, signer
from dpcrowd.node.wire import Sign

__all__ = ["Changes", "Content", "Running", "key_problem", "read_changes"]

_FREE = ("tokens.", "log.level", "listen.http_certificate", "listen.http_key")


@dataclass(frozen=True)
class Content:
    """Stands for what key files hold: equal if they hold the same.

    server  key, certificate and authority of the server
    https   certificate and key of HTTPS
    """

    server: bytes
    https: bytes

    @classmethod
    def of(cls, node: NodeConfig) -> Content:
        """As they are now; what cannot be read counts as empty."""
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
    """What is to be taken, all of it checked.

    config     to run with from now on; what needs a restart is still as it was
    taken      names of settings of node.toml that have changed
    left       names of those that need a restart
    following  the next revision of the network, if there is one
    sign       with the server's renewed key, or with the same one if only certificates were renewed; None: neither was
    https      with the renewed certificate of HTTPS
    content    of the key files
    """

    config: NodeConfig
    taken: tuple[str, ...]
    left: tuple[str, ...]
    following: NetworkConfig | None
    sign: Sign | None
    https: ssl.SSLContext | None
    content: Content


def read_changes(running: Running, now: datetime) -> Changes:
    """Read all files; `BadInput` says what is wrong with one of them."""
    current = running.config
    new = current if running.path is None else load_node(running.path)
    taken, left = _sorted_out(current, new)
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
        taken=taken,
        left=left,
        following=following,
        sign=None if content.server == before.server else _renewed_key(running, following, now),
        https=None if content.https == before.https else _renewed_https(config, now),
        content=content,
    )


def _next_revision(running: Running) -> NetworkConfig | None:
    following = load_network(running.config.network)
    if digest(following) == digest(running.revision):
        return None
    check_next(running.revision, following)
    check_member(following, running.config.server)
    return following


def _sorted_out(current: NodeConfig, new: NodeConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of settings that differ: those that may be taken, and those that need a restart."""
    names = list(_differences(current, new))
    left = tuple(name for name in names if _needs_restart(name, current, new))
    return tuple(name for name in names if name not in left), left


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
    """Why no neighbour would accept the server's key and certificate; `BadInput` if they cannot be read."""
    me = network.server(node.server)
    key = public_text(read_private_key(node.keys.key))
    certificate = read_pem(node.keys.certificate, "certificate")
    authority = read_pem(node.keys.ca, "authority's certificate")
    found = certificate_problems(certificate, authority, name=me.certificate_name, now=now, key=key, pins=me.keys)
    return found[0] if found else None


def _renewed_key(running: Running, following: NetworkConfig | None, now: datetime) -> Sign:
    node = running.config
    found = key_problem(node, running.revision, now)
    if found is not None:
        fix = found.fix
        if following is not None and key_problem(node, following, now) is None:
            fix = f"Revision {following.revision} does, from slot {following.valid_from_slot} on: reload again then."
        raise BadInput(f"the server's renewed key and certificate cannot be used: {found.what} {fix}")
    return signer(running.revision.id, read_private_key(node.keys.key))


def _renewed_https(node: NodeConfig, now: datetime) -> ssl.SSLContext | None:
    certificate, key = node.listen.http_certificate, node.listen.http_key
    if certificate is None or key is None:
        return None
    found = https_problem(certificate, key, now)
    if found is not None:
        raise BadInput(f"{found.what} {found.fix}")
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
