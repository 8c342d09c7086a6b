"""Tiles of int8 products: as for fp16 at half the depth, since a pair of bytes takes the space and time of an fp16."""

from __future__ import annotations

from dataclasses import replace

from socsched.compiler.targets.cuda.int8_tile_table import INT8_TABLE
from socsched.compiler.targets.cuda.shapes import Convolution, Tile
from socsched.compiler.targets.cuda.tiles import fastest_tile


def int8_tile(shape: Convolution, arch: str) -> Tile:
    """Return the tile of an int8 product, whose `shape` counts pairs: from the architecture's table, else from the
    model.

    Results in planes are written in pairs, by one kernel.
    """
    plain = arch.rstrip("a")
    measured = INT8_TABLE.get(plain, {}).get(shape.key)
    tile = Tile(*measured) if measured is not None else fastest_tile(shape, plain)
    return replace(tile, splits=1, store=2) if shape.planes else tile
