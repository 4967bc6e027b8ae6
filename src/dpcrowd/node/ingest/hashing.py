"""Users become keyed hashes at once: BLAKE2b with the slot's key, 16 bytes.

The key is new in each slot and deleted with it, so that hashes of two slots cannot be matched, and those of a slot
that is over cannot be tried out against a list of users.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from dpcrowd.node.collect import HASH_BYTES

__all__ = ["hash_users"]


def hash_users(users: Iterable[bytes], key: bytes) -> list[bytes]:
    """A hash of 16 bytes for each user; `key` has 16 to 64 bytes."""
    if not 16 <= len(key) <= blake2b.MAX_KEY_SIZE:
        raise ValueError("a key for hashing users has 16 to 64 bytes.")
    # Copying the state that has the key is a quarter faster than a new keyed state for each user.
    keyed = blake2b(key=key, digest_size=HASH_BYTES).copy
    hashes: list[bytes] = []
    append = hashes.append
    for user in users:
        state = keyed()
        state.update(user)
        append(state.digest())
    return hashes
