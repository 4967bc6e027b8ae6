"""PeGaSus' grouper and smoother (`dpcrowd.schemes.pegasus`), for each open group of slots of a server and region.

There are no array operations for them: where Numba is missing, these loops run as they are.
"""

from __future__ import annotations

from dpcrowd.arrays import Bools, Floats, Ints

__all__ = ["scaled_deviation", "smooth"]


def scaled_deviation(raw: Ints, size: Ints, counts: Ints, out: Ints) -> None:
    """Set `out` (N, d) to n Sum|c - mean| of each open group with the new count; n is its size with that count."""
    servers, regions = counts.shape
    for i in range(servers):
        for k in range(regions):
            n = size[i, k] + 1
            total = counts[i, k]
            for j in range(n - 1):
                total += raw[i, k, j]
            spread = abs(n * counts[i, k] - total)
            for j in range(n - 1):
                spread += abs(n * raw[i, k, j] - total)
            out[i, k] = spread


def smooth(raw: Ints, ordered: Floats, size: Ints, fresh: Bools, counts: Ints, noisy: Floats, out: Floats) -> None:
    """Put the new slot into its group (a new one where `fresh`) and set `out` to the median of its noisy counts."""
    servers, regions = counts.shape
    for i in range(servers):
        for k in range(regions):
            n = 0 if fresh[i, k] else size[i, k]
            raw[i, k, n] = counts[i, k]
            place = n
            while place > 0 and ordered[i, k, place - 1] > noisy[i, k]:
                ordered[i, k, place] = ordered[i, k, place - 1]
                place -= 1
            ordered[i, k, place] = noisy[i, k]
            n += 1
            size[i, k] = n
            out[i, k] = 0.5 * (ordered[i, k, (n - 1) // 2] + ordered[i, k, n // 2])
