"""Trace records of a simulation: rows of int64, appended and never read again here.

A row is written when its subject ends and carries the number assigned when it began, so that blocks can be handed on as
they fill.  `sim.results` sorts the rows and names the columns.
"""

from __future__ import annotations

from array import array

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.columns import Columns
else:
    from .columns import Columns

ROWS = 1 << 14


class Log(Columns):
    """Rows of `width` numbers; full blocks are in `blocks`, the last one in `block` up to `used`."""

    def __init__(self, width: i64) -> None:
        super().__init__()
        self.width = width
        self.limit = width * ROWS
        self.used = 0
        self.block_array = array("q", bytes(8 * self.limit))
        self.block = self.own(self.block_array)
        self.blocks: list[bytes] = []

    def add_row(self) -> i64:
        """Return the start of the next row in `block`."""
        if self.used == self.limit:
            self.flush()
        at: i64 = self.used
        self.used += self.width
        return at

    def flush(self) -> object:
        """Move the written rows to `blocks` and return them."""
        if self.used:
            self.blocks.append(bytes(memoryview(self.block_array)[: self.used]))
            self.used = 0
        return self.blocks
