"""Unpacking a body with `Content-Encoding: gzip`, piece by piece, so that it never becomes larger than is allowed.

A packed body can be a thousand times smaller than what it holds. So no more is asked of the decoder than there is room
for, and whatever goes beyond it is not unpacked at all.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator

from dpcrowd.node.ingest.batch import refuse_malformed

__all__ = ["CODINGS", "Unpacker"]

CODINGS = ("gzip", "x-gzip")
_GZIP = 16 + zlib.MAX_WBITS
_STEP = 1 << 18
_MOST_MEMBERS = 1_000
"""Files of gzip may be joined (`cat a.gz b.gz`); without a limit, a body of empty ones would cost much time."""


class Unpacker:
    """Unpacks one body. `BodyRefused` if it is not gzip; nothing of it is in the text."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(_GZIP)
        self._members = 1

    def unpack(self, packed: bytes) -> Generator[bytes]:
        """Give what a piece holds, in steps of at most 256 KiB; a caller who has enough does not ask for the next."""
        while packed:
            if self._decoder.eof:
                self._members += 1
                if self._members > _MOST_MEMBERS:
                    raise refuse_malformed(f"gzip of at most {_MOST_MEMBERS} members")
                self._decoder = zlib.decompressobj(_GZIP)
            try:
                step = self._decoder.decompress(packed, _STEP)
            except zlib.error:
                step = None
            if step is None:  # raised here, the refusal does not carry the decoder's error
                raise refuse_malformed("valid gzip")
            packed = self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail
            if step:
                yield step

    def end(self) -> None:
        """Refuse, after the last piece, a body that was cut off."""
        if not self._decoder.eof:
            raise refuse_malformed("complete gzip; it ends too early")
