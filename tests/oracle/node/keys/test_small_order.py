"""The list of keys for which anybody can sign, held against the curve itself (RFC 8032, 5.1)."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.signing import parse_public, public_text

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int]
NEUTRAL: Point = (0, 1)


def add(one: Point, other: Point) -> Point:
    (x1, y1), (x2, y2) = one, other
    mixed = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + y1 * x2) * pow(1 + mixed, -1, P)
    y = (y1 * y2 + x1 * x2) * pow(1 - mixed, -1, P)
    return x % P, y % P


def point_of_order_eight() -> Point:
    """Found by solving the curve's own equations, not taken from anybody's table."""
    for y in _candidates():
        squared = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
        x = _root(squared)
        if x is None:
            continue
        point = (x, y)
        four = add(add(point, point), add(point, point))
        if four != NEUTRAL and add(four, four) == NEUTRAL:
            return point
    raise AssertionError("the curve has a point of order eight")


def _candidates() -> list[int]:
    # Doubling gives y3 = (y^2 + x^2) / (1 - d x^2 y^2) = 0, so x^2 = -y^2; in the curve -x^2 + y^2 = 1 + d x^2 y^2
    # that is 2 y^2 = 1 - d y^4, a quadratic equation in y^2.
    root = _root((1 + D) % P)
    assert root is not None
    found = []
    for sign in (1, -1):
        y = _root((-1 + sign * root) * pow(D, -1, P) % P)
        if y is not None:
            found += [y, P - y]
    return found


def _root(square: int) -> int | None:
    root = pow(square, (P + 3) // 8, P)
    if root * root % P != square:
        root = root * pow(2, (P - 1) // 4, P) % P
    return root if root * root % P == square else None


def text(y: int, sign: int) -> str:
    raw = (y | sign << 255).to_bytes(32, "little")
    return "ed25519:" + base64.b64encode(raw).decode()


def test_every_point_of_small_order_is_refused_in_every_form() -> None:
    """Without this, a pin could be one that accepts anybody's signature. There are eight such points."""
    point, found = NEUTRAL, []
    step = point_of_order_eight()
    for _ in range(8):
        found.append(point)
        point = add(point, step)
    assert point == NEUTRAL
    assert len(set(found)) == 8
    for _, y in found:
        for form in (y, y + P):  # a decoder that does not reduce takes both
            for sign in (0, 1):
                if form < 2**255:
                    with pytest.raises(BadInput, match="anybody can forge signatures"):
                        parse_public(text(form, sign))


def test_the_danger_is_real_in_openssl() -> None:
    """If the library ever refuses such keys by itself, this fails and the list can go."""
    neutral = (1).to_bytes(32, "little")
    Ed25519PublicKey.from_public_bytes(neutral).verify(neutral + bytes(32), b"anything at all")


def test_real_keys_are_not_refused() -> None:
    """A list that catches too much would shut a server out."""
    for seed in range(200):
        pin = public_text(Ed25519PrivateKey.from_private_bytes(seed.to_bytes(32, "little")))
        assert public_text(parse_public(pin)) == pin
