"""[tokens] of node.toml: who may do what over HTTP.

Tokens are hashed as soon as they are read: no object, log line or error contains a plain one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Annotated, Literal

from msgspec.structs import force_setattr

from dpcrowd.node.config.kinds import InvalidValue, Section, about

__all__ = ["Right", "TokensSection", "token_hash"]

Right = Literal["checkin", "read", "admin"]
_HASHED = re.compile(r"sha256:([0-9a-f]{64})")
_SHORTEST_TOKEN = 16
_TOKENS = (
    f'a list of tokens, each "sha256:" and 64 hexadecimal digits, or plain with at least {_SHORTEST_TOKEN} characters'
)


class TokensSection(Section, frozen=True, kw_only=True):
    """[tokens]: who may do what over HTTP. The three rights are separate; a token may be in several lists."""

    checkin: Annotated[tuple[str, ...], about("May send check-ins and counts.", _TOKENS, secret=True)] = ()
    read: Annotated[
        Literal["open"] | tuple[str, ...],
        about('May read estimates and state; "open": everybody may.', f'"open", or {_TOKENS}', secret=True),
    ] = ()
    admin: Annotated[tuple[str, ...], about("May operate the node.", _TOKENS, secret=True)] = ()

    def __post_init__(self) -> None:
        for right in ("checkin", "read", "admin"):
            tokens = getattr(self, right)
            if not isinstance(tokens, str):
                hashed = tuple(_hashed(f"{right}[{number}]", token) for number, token in enumerate(tokens))
                force_setattr(self, right, hashed)

    def rights_of(self, token: str | None) -> frozenset[Right]:
        """Return what the bearer of a token may do; every wrong token takes the same time."""
        digest = "" if token is None else token_hash(token)
        lists: tuple[tuple[Right, str | tuple[str, ...]], ...] = (
            ("checkin", self.checkin),
            ("read", self.read),
            ("admin", self.admin),
        )
        rights: set[Right] = set()
        for right, hashes in lists:
            if hashes == "open" or sum(hmac.compare_digest(digest, one) for one in hashes):  # any() would stop early
                rights.add(right)
        return frozenset(rights)


def token_hash(token: str) -> str:
    """Return a token as it is written in node.toml: "sha256:" and the hash of its UTF-8 bytes."""
    return "sha256:" + hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _hashed(path: str, token: str) -> str:
    """Return the hash of a plain token, or a hash in its usual form; refuse anything else."""
    if token.startswith("sha256:"):
        if not _HASHED.fullmatch(token.lower()):
            raise InvalidValue(
                path, "given a text with not 64 hexadecimal digits after 'sha256:'; allowed: the SHA-256 of a token."
            )
        return token.lower()
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidValue(
            path,
            f"given a plain token of {len(token)} characters; allowed: at least {_SHORTEST_TOKEN} printable ASCII "
            'characters without spaces, as a header can carry them, or "sha256:" and the hash of one.',
        )
    return token_hash(token)
