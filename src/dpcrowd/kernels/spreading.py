"""One round in which records travel one hop, with sets of records as bits or as lists; and bits as lists.

`network.bit_spread` and `network.sparse_spread` define what is computed, and do the same in array operations. Over
links that stay, `pass_on_shells` computes what `pass_on_bits` would, from the distances alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "hop_shells",
    "list_bits",
    "list_speakers",
    "measure_records",
    "pass_on_bits",
    "pass_on_lists",
    "pass_on_shells",
]


def pass_on_bits(
    indptr: Any, indices: Any, places: Any, have: Any, fresh: Any, before: Any, servers: int, packets: Any,
    records: Any, learned: Any,
) -> None:  # fmt: skip
    """Play one round with sets as bits, as `network.bit_spread.pass_on` does."""
    count, words = fresh.shape[1], fresh.shape[2]
    for i in range(count):
        run = i // servers
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            sent = 0
            for p in range(places.shape[0]):
                place = places[p]
                for w in range(words):
                    x = fresh[place, i, w] & ~before[place, j, w]
                    while x:  # count the bits that are set
                        x &= x - np.uint64(1)
                        sent += 1
            if sent:
                packets[run] += 1
                records[run] += sent
    new = np.zeros((count, words), dtype=np.uint64)
    for p in range(places.shape[0]):
        place = places[p]
        for i in range(count):
            anything = False
            for w in range(words):
                x = np.uint64(0)
                for e in range(indptr[i], indptr[i + 1]):
                    x |= fresh[place, indices[e], w]
                x &= ~have[place, i, w]
                new[i, w] = x
                anything = anything or x != 0
            learned[p, i] = anything
        for i in range(count):
            for w in range(words):
                before[place, i, w] = fresh[place, i, w]
                fresh[place, i, w] = new[i, w]
                have[place, i, w] |= new[i, w]


def hop_shells(indptr: Any, indices: Any, servers: int, most: int) -> Any:  # noqa: PLR0912  (one loop)
    """Return bits (hops, N, words) of the origins that are exactly 0, 1, ... hops away, for up to `most` hops; and
    (hops, N) how often a record of each origin is sent by the servers that are this many hops away: over all their
    links but those over which they have received it."""
    count, words = indptr.shape[0] - 1, (servers + 63) // 64
    shells = np.zeros((8, count, words), dtype=np.uint64)
    ball = np.zeros((count, words), dtype=np.uint64)
    for i in range(count):
        shells[0, i, i % servers // 64] = ball[i, i % servers // 64] = np.uint64(1) << np.uint64(i % servers % 64)
    hops, growing = 0, True
    while growing and hops < most:
        if hops + 1 == shells.shape[0]:
            longer = np.zeros((2 * (hops + 1), count, words), dtype=np.uint64)
            for h in range(hops + 1):  # a slice would be compiled with the message of a wrong shape, for five seconds
                for i in range(count):
                    for w in range(words):
                        longer[h, i, w] = shells[h, i, w]
            shells = longer
        growing = False
        for i in range(count):
            for e in range(indptr[i], indptr[i + 1]):
                for w in range(words):
                    shells[hops + 1, i, w] |= shells[hops, indices[e], w]
            for w in range(words):
                shells[hops + 1, i, w] &= ~ball[i, w]
                growing = growing or shells[hops + 1, i, w] != 0
        hops += 1
        for i in range(count):
            for w in range(words):
                ball[i, w] |= shells[hops, i, w]
    copies = np.zeros((hops + 1, count), dtype=np.int64)
    for h in range(hops + 1):
        for i in range(count):
            first = i // servers * servers
            for e in range(indptr[i], indptr[i + 1]):
                for w in range(words):
                    x = shells[h, i, w]
                    if h > 0:
                        x &= ~shells[h - 1, indices[e], w]
                    bit = 0
                    while x:
                        copies[h, first + w * 64 + bit] += np.int64(x & np.uint64(1))
                        x >>= np.uint64(1)
                        bit += 1
    return shells[: hops + 1].copy(), copies


def pass_on_shells(  # noqa: PLR0912  (one loop)
    indptr: Any, indices: Any, shells: Any, copies: Any, depth: Any, places: Any, hops: Any, slots: Any, speaks: Any,
    have: Any, servers: int, packets: Any, records: Any, oldest: Any, senders: Any,
) -> None:  # fmt: skip
    """One round over links that have not changed since the oldest record was made.

    shells, copies  as `hop_shells` gives them
    depth    (runs,) the largest distance in each run
    hops     how many hops the records of each place have travelled, ascending
    slots    of the places
    speaks   (lag, runs, words) which servers have made a record
    oldest   (N,) the oldest slot of which each server has learned anything, lowered in place
    senders  (N,) which servers have anything to send, written in place
    """
    count, words, last = shells.shape[1], shells.shape[2], shells.shape[0] - 1
    fresh = np.empty((places.shape[0], words), dtype=np.uint64)  # what a server sends, by place
    likely = 0  # the place with a record for the last neighbour; it has one for the next neighbour most of the time
    run, number, own = -1, 0, servers
    for i in range(count):
        if own == servers:
            run, number, own = run + 1, 0, 0
            while number < places.shape[0] and hops[number] <= depth[run]:
                number += 1  # of places whose records still travel in this run
        word, bit = own >> 6, np.uint64(own & 63)  # of its own record
        own += 1
        sends = np.uint64(0)
        for p in range(number):
            place, hop = places[p], hops[p]
            records[run] += copies[hop, i] * np.int64(speaks[place, run, word] >> bit & np.uint64(1))
            anything = np.uint64(0)
            for w in range(words):
                spoken = speaks[place, run, w]
                fresh[p, w] = shells[hop, i, w] & spoken
                sends |= fresh[p, w]
                if hop < last:
                    learned = shells[hop + 1, i, w] & spoken
                    have[place, i, w] |= learned
                    anything |= learned
            if anything:
                oldest[i] = min(oldest[i], slots[p])
        senders[i] = sends != 0
        if not senders[i]:
            continue
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            sent = False
            for step in range(-1, number):
                p = likely if step < 0 else step
                if p >= number:
                    continue
                for w in range(words):
                    x = fresh[p, w]
                    if hops[p] > 0:
                        x &= ~shells[hops[p] - 1, j, w]
                    sent |= x != 0
                if sent:
                    likely = p
                    break
            packets[run] += sent


def measure_records(noisy: Any, speaks: Any, degree: Any, servers: int, totals: Any) -> None:
    """Count the records of a slot and the bytes of their integers, as `network.spread.record_totals` does."""
    regions, run, position = noisy.shape[1], 0, 0
    for i in range(noisy.shape[0]):
        if position == servers:
            run, position = run + 1, 0
        position += 1
        if not speaks[i]:
            continue
        size = 0
        for k in range(regions):
            zigzag = 2.0 * noisy[i, k] if noisy[i, k] >= 0.0 else -2.0 * noisy[i, k] - 1.0
            size += 1
            while zigzag >= 128.0 and zigzag < np.inf:
                zigzag /= 128.0
                size += 1
        totals[0, run] += size
        totals[1, run] += 1
        totals[2, run] += degree[i] * size
        totals[3, run] += degree[i]


def list_speakers(indptr: Any, indices: Any, speaks: Any) -> Any:
    """Return rows that list the speakers whom each server hears, ascending, as `network.spread.one_hop_holdings` does.

    Row j of the neighbour lists says whom j hears, and so, the network being mutual, who hears j.
    """
    count = indptr.shape[0] - 1
    starts = np.zeros(count + 1, dtype=np.uint32)
    for j in range(count):
        if speaks[j]:
            for e in range(indptr[j], indptr[j + 1]):
                starts[indices[e] + 1] += np.uint32(1)
    for i in range(count):
        starts[i + 1] += starts[i]
    ends = starts[:count].copy()
    speakers = np.empty(starts[count], dtype=np.uint32)
    for j in range(count):
        if speaks[j]:
            for e in range(indptr[j], indptr[j + 1]):
                i = indices[e]
                speakers[ends[i]] = j
                ends[i] += np.uint32(1)
    return starts, speakers


def list_bits(have: Any, servers: int, rows: Any) -> Any:
    """Return rows of bits as sparse rows of origins, as `network.bit_spread.list_bits` does."""
    count, words = have.shape
    indptr = np.zeros(count + 1, dtype=np.int64)
    for i in range(count):
        total = 0
        if not rows[i]:
            indptr[i + 1] = indptr[i]
            continue
        for w in range(words):
            x = have[i, w]
            while x:
                x &= x - np.uint64(1)
                total += 1
        indptr[i + 1] = indptr[i] + total
    indices = np.empty(indptr[count], dtype=np.int64)
    for i in range(count):
        if not rows[i]:
            continue
        at, first = indptr[i], i // servers * servers
        for w in range(words):
            x = have[i, w]
            bit = 0
            while x:
                if x & np.uint64(1):
                    indices[at] = first + w * 64 + bit
                    at += 1
                x >>= np.uint64(1)
                bit += 1
    return indptr, indices


def pass_on_lists(
    indptr: Any, indices: Any, fresh_indptr: Any, fresh: Any, before_indptr: Any, before: Any, have_indptr: Any,
    have: Any, sent: Any,
) -> Any:  # fmt: skip
    """Play one round with sets as lists, as `network.sparse_spread.spread_once` does."""
    count = len(indptr) - 1
    sent_by = np.full(count, -1, dtype=np.int64)  # the last receiver that has passed an origin's record on itself
    had_by = np.full(count, -1, dtype=np.int64)  # the last receiver that has it
    new_indptr = np.zeros(count + 1, dtype=np.int64)
    new = np.empty(1024, dtype=np.int32)
    number = 0
    for j in range(count):
        for b in range(before_indptr[j], before_indptr[j + 1]):
            sent_by[before[b]] = j
        for h in range(have_indptr[j], have_indptr[j + 1]):
            had_by[have[h]] = j
        first = number
        for e in range(indptr[j], indptr[j + 1]):
            i = indices[e]
            for f in range(fresh_indptr[i], fresh_indptr[i + 1]):
                o = fresh[f]
                sent[e] += sent_by[o] != j
                if had_by[o] != j:
                    had_by[o] = j
                    if number == len(new):
                        longer = np.empty(2 * number, dtype=np.int32)
                        longer[:number] = new
                        new = longer
                    new[number] = o
                    number += 1
        if number > first + 1:
            new[first:number].sort()
        new_indptr[j + 1] = number
    return new_indptr, new[:number].copy()
