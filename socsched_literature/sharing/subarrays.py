"""An NPU of systolic subarrays that can be joined and split: cycles of a layer by number of subarrays.

Ghodrati et al., "Planaria: dynamic architecture fission for spatial multi-tenant acceleration of deep neural networks",
MICRO 2020: a 128 x 128 array at 700 MHz made of 16 subarrays of 32 x 32.  A layer is a matrix product, K inputs by N
outputs for M positions; a depthwise layer consists of many small ones.  On c subarrays it runs on g arrays of r x s
subarrays, r s g <= c, each with a share of the positions; the best of these shapes is taken, as in the paper's
compiler.  A single array as large as the NPU is the hardware of PREMA.

Reconstructed: cycles count weights loaded once per tile, positions streamed and the pipeline filled and drained; memory
is assumed to keep up.  The authors' tables come from a simulator that also models on-chip buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, isqrt


@dataclass(frozen=True, slots=True)
class Layer:
    """A matrix product of `k` inputs by `n` outputs for `m` positions, repeated for `groups` independent groups."""

    k: int
    n: int
    m: int
    groups: int = 1

    @property
    def macs(self) -> int:
        """Return multiply-adds."""
        return self.k * self.n * self.m * self.groups


@dataclass(frozen=True, slots=True)
class Npu:
    """`side` of a subarray in cells, number of subarrays (a square), and the clock."""

    side: int = 32
    subarrays: int = 16
    clock_hz: int = 700_000_000

    @property
    def edge(self) -> int:
        """Return the subarrays along an edge of the undivided array."""
        return isqrt(self.subarrays)


@dataclass(frozen=True, slots=True)
class Tiles:
    """A layer on some subarrays: number of sequential tiles, and cycles of each."""

    count: int
    cycles: int

    @property
    def total(self) -> int:
        """Return cycles of the layer."""
        return self.count * self.cycles


def _tiles(layer: Layer, rows: int, columns: int, arrays: int) -> Tiles:
    """Return a layer on equal arrays of `rows` x `columns` cells: groups lie on the diagonal, positions are divided."""
    packed = 1
    if layer.groups > 1:
        packed = max(1, min(layer.groups, rows // layer.k, columns // layer.n))
    products = ceil(layer.groups / packed)
    spread = min(arrays, products)
    # Arrays are assigned different products first, then different positions of one product.
    each = max(1, arrays // spread)
    count = ceil(products / spread) * ceil(layer.k * packed / rows) * ceil(layer.n * packed / columns)
    return Tiles(count, ceil(layer.m / each) + rows + columns)


@cache
def tiles(layer: Layer, npu: Npu, subarrays: int) -> Tiles:
    """Return a layer on `subarrays` in the shape with the fewest cycles, the shortest tiles among equals."""
    found = []
    for down in range(1, min(npu.edge, subarrays) + 1):
        for across in range(1, min(npu.edge, subarrays // down) + 1):
            arrays = subarrays // (down * across)
            found.append(_tiles(layer, down * npu.side, across * npu.side, arrays))
    return min(found, key=lambda one: (one.total, one.cycles))


@cache
def run_undivided(layer: Layer, npu: Npu) -> Tiles:
    """Return a layer on the NPU as one array."""
    return _tiles(layer, npu.edge * npu.side, npu.edge * npu.side, 1)


@dataclass(frozen=True)
class Table:
    """A network on an NPU: tiles of every layer by number of subarrays (1 and up; 0 is the undivided array).

    `after`: cycles of the layers following each, by number of subarrays.
    """

    name: str
    npu: Npu
    tiles: tuple[tuple[Tiles, ...], ...]
    after: tuple[tuple[int, ...], ...]

    def cycles(self, subarrays: int) -> int:
        """Return cycles of the whole network."""
        return self.after[subarrays][0] + self.tiles[subarrays][0].total


def table(name: str, layers: Sequence[Layer], npu: Npu = Npu()) -> Table:
    """Return the table of a network."""
    rows = [tuple(run_undivided(one, npu) for one in layers)]
    rows += [tuple(tiles(one, npu, count) for one in layers) for count in range(1, npu.subarrays + 1)]
    after = []
    for row in rows:
        left, sums = 0, []
        for one in reversed(row):
            sums.append(left)
            left += one.total
        after.append(tuple(reversed(sums)))
    return Table(name, npu, tuple(rows), tuple(after))
