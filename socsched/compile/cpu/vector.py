"""Vector units by target, and the register tiles that suit them.

A tile is `pixels` x `blocks` output vectors held in registers while the reduction runs: per step it loads `blocks`
weight vectors and broadcasts `pixels` inputs, so a near-square tile keeps the load ports below the multiply-add ports.
Accumulators, the weight vectors and a broadcast must fit the register file (32 on AVX-512 and NEON, 16 on AVX2); tiles
beyond that spill and lose half the speed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector unit: fp32 `lanes` and number of `registers`; `block` is the channel block activations are stored in."""

    name: str
    lanes: int
    registers: int
    block: int

    @property
    def per_block(self) -> int:
        """Registers one block of channels takes."""
        return self.block // self.lanes


AVX512 = Vector("avx512", 16, 32, 16)
AVX2 = Vector("avx2", 8, 16, 8)
NEON = Vector("neon", 4, 32, 8)
SSE = Vector("sse", 4, 16, 8)


@dataclass(frozen=True, slots=True)
class Tile:
    """Output pixels along the width, and output channel blocks, that one kernel iteration computes."""

    pixels: int
    blocks: int


def tile(vector: Vector, out_blocks: int, width: int, strided: bool = False) -> Tile:
    """Return the tile for `out_blocks` blocks of output channels and rows of `width` pixels.

    Blocks divide `out_blocks`; pixels need not divide `width` (the last tile of a row is moved back over the one
    before, which counts as waste).  Fewer than ten accumulators cannot hide the latency of a multiply-add.  With
    one block every multiply-add fetches a pixel of its own; with more, pixels a stride apart come from twice the lines.
    """

    def worth(choice: Tile) -> tuple[float, int]:
        sums = choice.pixels * choice.blocks * vector.per_block
        useful = round(width / (-(-width // choice.pixels) * choice.pixels), 2)
        narrow = 0.93 if choice.blocks == 1 else 1.0
        return useful * min(sums / 10, 1.0) * (narrow if not strided or choice.blocks == 1 else 0.8), sums

    choices = [
        Tile(pixels, blocks)
        for blocks in (1, 2, 3, 4)
        for pixels in range(1, min(width, vector.registers) + 1)
        if out_blocks % blocks == 0 and (pixels * blocks + blocks) * vector.per_block <= vector.registers - 3
    ]
    return max(choices, key=worth)
