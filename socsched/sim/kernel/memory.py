"""Which segments run together, and how long each then takes: remembered, since combinations recur.

The contention model itself is asked once for every combination and stays in one place, `cost.contention`.
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
"""Combinations remembered at most; beyond, all are forgotten and asked for again."""
ROOM = 1 << 24
"""Numbers they may take up."""


def _longer(numbers: array[int], room: int) -> array[int]:
    """Return a copy of an array with `room` places."""
    return numbers + array("q", bytes(8 * (room - len(numbers))))


class Combinations(Columns):
    """From a sequence of segment numbers (`key`, of `length`) to as many durations in `pool`.

    `stretch(key) -> durations` (ns) is what is remembered.  An entry of `pool` is its length, key and durations;
    `table` hashes keys to entries, -1 where there is none.
    """

    def __init__(self, stretch: Callable[[tuple[int, ...]], tuple[int, ...]], room: i64) -> None:
        super().__init__()
        self.stretch = stretch
        self.own_key = array("q", bytes(8 * max(room, 1)))
        self.length = 0
        self.forget()

    def forget(self) -> None:
        self.kept = []
        self.key = self.own(self.own_key)
        self.size = 4096
        self.table = self.fill(self.size, -1)
        self.own_pool = array("q", bytes(8 * 65536))
        self.pool = self.own(self.own_pool)
        self.room = 65536
        self.used = 0
        self.entries = 0

    def slot(self, start: i64, length: i64, from_pool: i64) -> i64:
        """Return where in `table` a key is or belongs: `key` itself, or the one at `start` of `pool`."""
        mixed: i64 = length
        i: i64
        for i in range(length):
            mixed = ((mixed ^ (self.pool[start + i] if from_pool else self.key[i])) * 1000003) & 1099511627775
        mixed ^= mixed >> 17
        place: i64 = mixed & (self.size - 1)
        while self.table[place] >= 0:
            at: i64 = self.table[place]
            same: i64 = self.pool[at] == length
            i = 0
            while same and i < length:
                same = self.pool[at + 1 + i] == (self.pool[start + i] if from_pool else self.key[i])
                i += 1
            if same:
                break
            place = (place + 1) & (self.size - 1)
        return place

    def find(self) -> i64:
        """Return where in `pool` the durations of `key` start, asking for them the first time."""
        place: i64 = self.slot(0, self.length, 0)
        if self.table[place] < 0:
            self.learn()
            place = self.slot(0, self.length, 0)
        return self.table[place] + 1 + self.length

    def learn(self) -> None:
        """Ask for the durations of `key` and remember them."""
        i: i64
        key = tuple([self.key[i] for i in range(self.length)])
        found = self.stretch(key)
        if self.entries >= LIMIT or self.used >= ROOM:
            self.forget()
        if 2 * self.entries >= self.size:
            self.rehash()
        if self.used + 1 + 2 * self.length > self.room:
            while self.used + 1 + 2 * self.length > self.room:
                self.room *= 2
            self.own_pool = _longer(self.own_pool, self.room)
            self.pool = self.own(self.own_pool)
        self.table[self.slot(0, self.length, 0)] = self.used
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
            self.table[self.slot(at + 1, length, 1)] = at
            at += 1 + 2 * length
