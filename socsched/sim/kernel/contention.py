"""Cache of the durations of co-running segments, since combinations recur.

The contention model itself is evaluated once per combination and implemented only in `cost.contention`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.columns import Columns
else:
    from .columns import Columns

LIMIT = 1 << 20
"""Most combinations kept; beyond that, all are discarded and requested again."""
ROOM = 1 << 24
"""Most numbers they may occupy."""


def _extend(numbers: array[int], size: int) -> array[int]:
    """Return a copy of an array, extended to `size` elements."""
    return numbers + array("q", bytes(8 * (size - len(numbers))))


class ContentionCache(Columns):
    """Map from a sequence of segment numbers (`key`, of `length`) to as many durations in `pool`.

    `resolve(key) -> durations` (ns) is the cached function.  An entry of `pool` is its length, key and durations;
    `table` hashes keys to entries, -1 if empty.
    """

    def __init__(self, resolve: Callable[[tuple[int, ...]], tuple[int, ...]], size: i64) -> None:
        super().__init__()
        self.resolve = resolve
        self.key_array = array("q", bytes(8 * max(size, 1)))
        self.length = 0
        self.clear()

    def clear(self) -> None:
        self.buffers = []
        self.key = self.own(self.key_array)
        self.size = 4096
        self.table = self.fill(self.size, -1)
        self.pool_array = array("q", bytes(8 * 65536))
        self.pool = self.own(self.pool_array)
        self.pool_size = 65536
        self.used = 0
        self.entries = 0

    def probe(self, start: i64, length: i64, from_pool: i64) -> i64:
        """Return the position in `table` of a key, existing or new: `key` itself, or the one at `start` of `pool`."""
        hashed: i64 = length
        i: i64
        for i in range(length):
            hashed = ((hashed ^ (self.pool[start + i] if from_pool else self.key[i])) * 1000003) & 1099511627775
        hashed ^= hashed >> 17
        entry: i64 = hashed & (self.size - 1)
        while self.table[entry] >= 0:
            at: i64 = self.table[entry]
            same: i64 = self.pool[at] == length
            i = 0
            while same and i < length:
                same = self.pool[at + 1 + i] == (self.pool[start + i] if from_pool else self.key[i])
                i += 1
            if same:
                break
            entry = (entry + 1) & (self.size - 1)
        return entry

    def look_up(self) -> i64:
        """Return the start in `pool` of the durations of `key`, requesting them on first use."""
        entry: i64 = self.probe(0, self.length, 0)
        if self.table[entry] < 0:
            self.insert()
            entry = self.probe(0, self.length, 0)
        return self.table[entry] + 1 + self.length

    def insert(self) -> None:
        """Request the durations of `key` and cache them."""
        i: i64
        key = tuple([self.key[i] for i in range(self.length)])
        found = self.resolve(key)
        if self.entries >= LIMIT or self.used >= ROOM:
            self.clear()
        if 2 * self.entries >= self.size:
            self.rehash()
        if self.used + 1 + 2 * self.length > self.pool_size:
            while self.used + 1 + 2 * self.length > self.pool_size:
                self.pool_size *= 2
            self.pool_array = _extend(self.pool_array, self.pool_size)
            self.pool = self.own(self.pool_array)
        self.table[self.probe(0, self.length, 0)] = self.used
        self.pool[self.used] = self.length
        for i in range(self.length):
            self.pool[self.used + 1 + i] = key[i]
            self.pool[self.used + 1 + self.length + i] = found[i]
        self.used += 1 + 2 * self.length
        self.entries += 1

    def rehash(self) -> None:
        """Double the table."""
        at: i64 = 0
        self.size *= 2
        self.table = self.fill(self.size, -1)
        while at < self.used:
            length: i64 = self.pool[at]
            self.table[self.probe(at + 1, length, 1)] = at
            at += 1 + 2 * length
