"""A convolution's integers in the layout its CPU kernel reads: taps by phase, channels in blocks, tables by channel."""

from __future__ import annotations

import numpy as np

from socsched.compiler.quantize.epilogue import Stored
from socsched.compiler.quantize.fixed_point import Array, Scale
from socsched.compiler.targets.llvm.int8_dot import Dot
from socsched.compiler.targets.llvm.vector import Tile, Vector


def stored(scale: Scale, dot: Dot) -> Stored:
    """Return the memory representation of values of `scale` on a target with the byte product `dot`."""
    return Stored(dot.dtype, dot.zero + (128 if scale.signed else 0))


def packed_weight(phased: Array, blocks: int, c: int, in_blocks: int, ci: int) -> Array:
    """Return [O, phases, I, kh, kw] as [blocks, phases, in_blocks, kh, kw, ci/4, c, 4]; missing channels are zero."""
    out, phases, into, kh, kw = phased.shape
    whole = np.zeros((blocks * c, phases, in_blocks * ci, kh, kw), np.int8)
    whole[:out, :, :into] = phased
    split = whole.reshape(blocks, c, phases, in_blocks, ci // 4, 4, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 3, 6, 7, 4, 1, 5))


def int8_tile(vector: Vector, dot: Dot, out_blocks: int, width: int) -> Tile:
    """Return the register tile: blocks of outputs that share a broadcast, pixels that share weights.

    Among the tiles whose sums fit the registers, the one that computes the fewest pixels twice (the last tile of a row
    is shifted back over the previous one), then the largest.
    """
    per_block = -(-vector.block // dot.lanes)
    sums, most = (24, 5) if vector.registers >= 32 else (8, 2)
    choices = []
    for blocks in (n for n in (5, 4, 3, 2, 1) if out_blocks % n == 0 and n * per_block <= max(most, per_block)):
        limit = min(sums // (blocks * per_block), width, 9)
        for pixels in range(max(1, limit // 2), max(1, limit) + 1):
            wasted = -(-width // pixels) * pixels / width
            loads = (pixels + blocks) / (pixels * blocks)
            choices.append((wasted * (1 + 0.3 * loads), -pixels * blocks, Tile(pixels, blocks)))
    return min(choices, key=lambda choice: choice[:2])[2]
