"""What the journal holds of a slot: check-ins as hashes and numbers of regions, counts by name, and names by number.

A region's number is that of one process: it depends on the order in which revisions were learnt, and a restart may find
another order. So a slot's check-ins follow the list of names that their numbers mean, as often as it has grown, and
what is read back is numbered anew by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from dpcrowd.node.collect import HashedRows, pack_batch, unpack_batch

__all__ = ["checkins_blob", "counts_blob", "names_blob", "replay"]

_NAMES, _CHECKINS, _COUNTS = b"r", b"u", b"n"


def names_blob(names: Sequence[str]) -> bytes:
    """What the numbers of the check-ins that follow mean."""
    return _NAMES + msgspec.msgpack.encode(list(names))


def checkins_blob(hashes: Sequence[bytes], regions: Sequence[int]) -> bytes:
    """Of one request; an empty one says that the feed was there."""
    return _CHECKINS + pack_batch(hashes, regions)


def counts_blob(counts: Mapping[str, int]) -> bytes:
    """By the names of regions."""
    return _COUNTS + msgspec.msgpack.encode(dict(counts))


def replay(blobs: Iterable[bytes], regions: Mapping[str, int]) -> Iterator[HashedRows | dict[int, int]]:
    """Check-ins and counts of a slot in their order, by the numbers of now; a region that is not known is dropped."""
    numbers = np.empty(0, dtype=np.int64)
    for blob in blobs:
        kind, content = blob[:1], blob[1:]
        if kind == _NAMES:
            names = msgspec.msgpack.decode(content, type=list[str])
            numbers = np.array([regions.get(name, -1) for name in names], dtype=np.int64)
        elif kind == _COUNTS:
            counts = msgspec.msgpack.decode(content, type=dict[str, int])
            yield {regions[name]: count for name, count in counts.items() if name in regions}
        elif kind == _CHECKINS:
            users, places = unpack_batch(content)
            known = places < len(numbers)
            known[known] = numbers[places[known]] >= 0
            yield users[known], numbers[places[known]]
