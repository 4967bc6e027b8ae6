"""One round in which records travel one hop, with sets of records as bits or as lists, and bits as lists.

`network.bit_spread` and `network.sparse_spread` define what is computed, and do the same in array operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["list_bits", "pass_on_bits", "pass_on_lists"]


def pass_on_bits(
    indptr: Any, indices: Any, places: Any, have: Any, fresh: Any, before: Any, servers: int, packets: Any,
    records: Any, learned: Any,
) -> None:  # fmt: skip
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


def list_bits(have: Any, servers: int) -> Any:
    count, words = have.shape
    indptr = np.zeros(count + 1, dtype=np.int64)
    for i in range(count):
        total = 0
        for w in range(words):
            x = have[i, w]
            while x:
                x &= x - np.uint64(1)
                total += 1
        indptr[i + 1] = indptr[i] + total
    indices = np.empty(indptr[count], dtype=np.int64)
    for i in range(count):
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
