"""Flat arrays of int64, doubles and sets of slots, which compiled code accesses through bare pointers."""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import WORDS, slot_sets


class Columns:
    """Owner of arrays; the results of its methods are valid as long as the owner lives."""

    def __init__(self) -> None:
        self.buffers: list[Any] = []

    def own(self, values: Any) -> Any:
        """Keep an array of int64 and return its numbers; its length is fixed from now on."""
        self.buffers.append(memoryview(values))
        if cython.compiled:
            view: cython.longlong[::1] = values
            return cython.address(view[0])
        else:
            return values

    def own_reals(self, values: Any) -> Any:
        """Keep an array of doubles and return its numbers; its length is fixed from now on."""
        self.buffers.append(memoryview(values))
        if cython.compiled:
            view: cython.double[::1] = values
            return cython.address(view[0])
        else:
            return values

    def fill(self, count: i64, value: i64) -> Any:
        """Return `max(count, 1)` numbers of the same value."""
        return self.own(array("q", [value]) * max(count, 1))

    def own_sets(self, values: Any) -> Any:
        """Keep sets of slots, given as whole numbers with bit k for slot k, and return them."""
        if cython.compiled:
            flat = array("Q", [value >> 64 * i & 0xFFFFFFFFFFFFFFFF for value in values for i in range(WORDS)])
            self.buffers.append(memoryview(flat))
            view: cython.ulonglong[::1] = flat
            return cython.cast(slot_sets, cython.address(view[0]))
        else:
            return list(values)

    def fill_sets(self, count: i64) -> Any:
        """Return `max(count, 1)` empty sets of slots."""
        return self.own_sets([0] * max(count, 1))
