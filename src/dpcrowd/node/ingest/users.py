"""Users as bytes: one person is one user, however an id was typed.

A text is taken without spaces around it and in Unicode's normal form C, so that "Zoë" is one user whether the ë is one
character or two; the number 42 and the text "42" are the same user. Otherwise a person would count twice in a slot, and
the noise covers one.
"""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import normalize

import numpy as np

__all__ = ["LONGEST_USER", "are_plain", "user_bytes"]

LONGEST_USER = 256
"""Characters of a text, as it was sent."""


def user_bytes(users: Sequence[str | int]) -> list[bytes]:
    """Of each user; empty where nothing is left of a text, which is then no user."""
    if not users:
        return []
    try:
        joined = "\n".join(users)  # type: ignore[arg-type]
    except TypeError:
        return user_bytes([str(user) for user in users])
    # Ids are hardly ever anything but ASCII without a space: all of them at once cost less than a look at each.
    if joined.isascii() and _spaces(raw := joined.encode()) == len(users) - 1:
        return raw.split(b"\n")
    texts = [str(user).strip() for user in users]
    return [(text if text.isascii() else normalize("NFC", text).strip()).encode() for text in texts]


def are_plain(texts: list[bytes]) -> bool:
    """Whether `user_bytes` would change none of these texts in UTF-8."""
    joined = b"".join(texts)
    return joined.isascii() and not _spaces(joined)


def _spaces(raw: bytes) -> int:
    """How many of the bytes of an ASCII text could be spaces: all spaces are among the first 33 characters."""
    return int(np.count_nonzero(np.frombuffer(raw, dtype=np.uint8) <= ord(" ")))
