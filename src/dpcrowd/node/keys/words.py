"""Signing the words of one network, and checking them against the keys that it pins.

The network's id is signed with every word. One key may serve in several networks: what was said in one of them, a
ledger's counter say, must prove nothing in another. The digest of a revision would not do for that: it changes, and a
proof of an earlier revision is still one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpcrowd.node.keys.signing import PrivateKey, sign, verify

__all__ = ["signer", "verifier"]

_NETWORK = b"dpcrowd network"


def signer(network_id: str, key: PrivateKey) -> Callable[..., bytes]:
    """sign(*parts) -> signature"""
    named = _NETWORK, network_id.encode()
    return lambda *parts: sign(key, *named, *parts)


def verifier(network_id: str, pins: Sequence[Sequence[str]]) -> Callable[..., bool]:
    """verify(server number, signature, *parts) -> whether one of its pinned keys made it; pins by server number."""
    named = _NETWORK, network_id.encode()

    def check(number: int, signature: bytes, *parts: bytes) -> bool:
        return 0 <= number < len(pins) and verify(pins[number], signature, *named, *parts)

    return check
