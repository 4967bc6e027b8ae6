"""Public keys as text, "ed25519:BASE64", as `network.toml` pins them: the only place where such a text is parsed.

Both the configuration and `signing` read pins here, so that a pin with which no message could be checked is refused
when the file is read, and not by a running server. Nothing here needs a cryptographic library: files can be checked
without.
"""

from __future__ import annotations

import base64

from dpcrowd.errors import BadInput

__all__ = ["ALGORITHM", "KEY_BYTES", "key_text", "read_key"]

ALGORITHM = "ed25519"
KEY_BYTES = 32

_WHERE_FROM = "'dpcrowd keys show FILE' prints the right line."
# The points of small order (without the sign bit, unreduced forms included). No private key has them, and OpenSSL
# accepts forged signatures for them: a pin of zeros, as a placeholder, would admit everybody.
_SMALL_ORDER = frozenset(
    bytes.fromhex(point)
    for point in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)


def key_text(raw: bytes) -> str:
    """Return the text of a public key."""
    return f"{ALGORITHM}:{base64.b64encode(raw).decode('ascii')}"


def read_key(text: str) -> bytes:
    """Return the public key that a text stands for; each key has exactly one text."""
    prefix, _, encoded = text.partition(":")
    if prefix != ALGORITHM:
        raise BadInput(f"the public key {_short(text)} does not begin with '{ALGORITHM}:'; {_WHERE_FROM}")
    try:
        raw = base64.b64decode(encoded, validate=True)
    except ValueError:
        raise BadInput(f"the public key {_short(text)} is not base64 after '{ALGORITHM}:'; {_WHERE_FROM}") from None
    if len(raw) != KEY_BYTES:
        raise BadInput(
            f"the public key {_short(text)} has {len(raw)} bytes; allowed: {KEY_BYTES} (44 characters). {_WHERE_FROM}"
        )
    if key_text(raw) != text:
        raise BadInput(f"the public key {_short(text)} is mistyped: its last character has stray bits; {_WHERE_FROM}")
    if raw[:-1] + bytes([raw[-1] & 0x7F]) in _SMALL_ORDER:
        raise BadInput(f"the public key {_short(text)} is one for which anybody can forge signatures; {_WHERE_FROM}")
    return raw


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")  # escapes what would move a terminal's cursor
