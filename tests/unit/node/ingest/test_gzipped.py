"""Unpacking gzip gives exactly what was packed, however it is cut, and never more than is asked for."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from dpcrowd.node.ingest.gzipped import Unpacker

CONTENTS = {
    "zeros": bytes(700_000),
    "noise": np.random.default_rng(1).bytes(600_000),
    "rows": b"".join(b'{"user": "person %d", "region": "north"}\n' % number for number in range(20_000)),
    "nothing": b"",
}


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 7, 1 << 16, 1 << 30])
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_what_was_packed_is_unpacked(content: bytes, size: int) -> None:
    """A step that ends inside of a piece must lose nothing: what the decoder still holds comes with the next."""
    packed = gzip.compress(content, 9 if size > 1 else 1)
    unpacker = Unpacker()
    steps = [step for first in range(0, len(packed), size) for step in unpacker.unpack(packed[first : first + size])]
    unpacker.end()
    assert b"".join(steps) == content
    assert max(map(len, steps), default=0) <= 1 << 18


def test_whoever_has_enough_asks_for_no_more() -> None:
    """The decoder must not run ahead of its reader: 64 MiB would be in memory before anybody could say no."""
    steps = Unpacker().unpack(gzip.compress(bytes(64 << 20)))
    assert len(next(steps)) == 1 << 18
    steps.close()
