"""Flat arrays of int64 and of doubles, and how compiled code reaches them: by bare pointers."""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64


class Columns:
    """Owner of arrays; what `own`, `own_reals` and `fill` return is valid as long as the owner lives."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def own(self, values: Any) -> Any:
        """Keep an array of int64 and return its numbers; it cannot change its length from now on."""
        self.kept.append(memoryview(values))
        if cython.compiled:
            view: cython.longlong[::1] = values
            return cython.address(view[0])
        else:
            return values

    def own_reals(self, values: Any) -> Any:
        """Keep an array of doubles and return its numbers; it cannot change its length from now on."""
        self.kept.append(memoryview(values))
        if cython.compiled:
            view: cython.double[::1] = values
            return cython.address(view[0])
        else:
            return values

    def fill(self, count: i64, value: i64) -> Any:
        """Return `count` numbers of one value, at least one."""
        return self.own(array("q", [value]) * max(count, 1))
