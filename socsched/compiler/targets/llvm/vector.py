"""Vector units by target, and the register tiles that suit them.

A tile is `pixels` x `blocks` output vectors held in registers while the reduction runs: per step it loads `blocks`
weight vectors and broadcasts `pixels` inputs, so a near-square tile keeps the load ports below the multiply-add ports.
Accumulators, the weight vectors and a broadcast must fit the register file (32 on AVX-512 and NEON, 16 on AVX2); tiles
beyond that spill and lose half the speed.  NEON multiplies by a lane of a register that holds several inputs of one
pixel, so there every pixel takes a register too.
"""

from __future__ import annotations

from dataclasses import dataclass

from socsched.graph.fusion import Group


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector unit: `lanes` of `dtype` and number of `registers`; `block` is the channel block of activations.

    `by_element`: multiply-adds take their scalar from a lane of a register, not from memory.  `dtype` is the type in
    which numbers are stored and, where rules permit, multiplied.
    """

    name: str
    lanes: int
    registers: int
    block: int
    by_element: bool = False
    dtype: str = "float32"

    @property
    def per_block(self) -> int:
        """Return the number of registers per block of channels."""
        return self.block // self.lanes


AVX512 = Vector("avx512", 16, 32, 16)
AVX2 = Vector("avx2", 8, 16, 8)
NEON = Vector("neon", 4, 32, 8, by_element=True)
NEON_HALF = Vector("neon-half", 8, 32, 8, by_element=True, dtype="float16")
"""Armv8.2 half-precision arithmetic: twice the lanes; sums are kept in fp32 (`llvm.half`)."""
SSE = Vector("sse", 4, 16, 8)


@dataclass(frozen=True, slots=True)
class Tile:
    """Output pixels along the width and output channel blocks computed by one kernel iteration."""

    pixels: int
    blocks: int


def tile(vector: Vector, out_blocks: int, width: int) -> Tile:
    """Return the tile for `out_blocks` blocks of output channels and rows of `width` pixels.

    Blocks divide `out_blocks`; pixels need not divide `width` (the last tile of a row is shifted back over the previous
    one, which counts as waste).  Fewer than ten accumulators cannot hide the latency of a multiply-add.  Measured on
    AVX-512: 7 pixels by 2 blocks reach 95 % of the peak, other numbers of blocks 80-85 %, and every pixel beyond seven
    by two costs speed, as does every pixel beyond five on AVX2 (docs/performance.md).
    """
    if vector.by_element:
        return _by_element(vector, out_blocks, width)
    most = (7 if vector.registers > 16 else 5) * 2

    def worth(choice: Tile) -> tuple[float, int]:
        sums = choice.pixels * choice.blocks * vector.per_block
        useful = round(width / (-(-width // choice.pixels) * choice.pixels), 2)
        beyond = max(sums - most, 0) / (2 * most) if choice.blocks in (2, 3) else 0.0
        return useful * min(sums / 10, 1.0) * _BLOCKS[choice.blocks] * (1 - beyond), -abs(sums - most)

    choices = [
        Tile(pixels, blocks)
        for blocks in _BLOCKS
        for pixels in range(1, min(width, vector.registers) + 1)
        if out_blocks % blocks == 0 and (pixels * blocks + blocks) * vector.per_block <= vector.registers - 3
    ]
    return max(choices, key=worth)


_BLOCKS = {1: 0.85, 2: 1.0, 3: 0.88, 4: 0.88}
"""Relative speed by number of blocks in a tile; two blocks = 1."""


LANED = 8
"""Maximum number of pixels whose channels are in registers that multiply-adds take lanes from."""


def _by_element(vector: Vector, out_blocks: int, width: int) -> Tile:
    """Return the tile with half of the registers accumulating: with more, LLVM spills in some inner loops.

    Half-precision lanes can be taken only from the lower 16 registers, which leaves room for eight pixels.
    """
    blocks = 2 if out_blocks % 2 == 0 else 3 if vector.per_block == 1 and out_blocks % 3 == 0 else 1
    most = max(1, min(vector.registers // 2 // (blocks * vector.per_block), LANED, width))
    # The last tile of a row repeats pixels; every tile loads the weights again, which costs about a pixel's work.
    return Tile(min(range(most, most // 2, -1), key=lambda n: -(-width // n) * (n + 1)), blocks)


@dataclass(frozen=True, slots=True)
class Lying:
    """Blocks from `first` on of a blocked image [total, height + 2 border, width + 2 border, block] of `dtype`."""

    blocks: int
    block: int
    height: int
    width: int
    border: int
    total: int = 0
    first: int = 0
    dtype: str = "float32"

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Return the shape of the whole tensor."""
        total = self.total or self.blocks
        return (total, self.height + 2 * self.border, self.width + 2 * self.border, self.block)


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window, (height, width) each; `pad` is the padding above and to the left of the image."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)


def window_of(group: Group) -> Window:
    """Return the window of a convolution or a pooling."""
    a = {key: int(value) for key, value in group.attrs.items()}
    pad, dilation = a["pad"], a["dilation"]
    return Window(
        kernel=(a["kernel_h"], a["kernel_w"]),
        stride=(a["stride_h"], a["stride_w"]),
        pad=(a.get("pad_top", pad), a.get("pad_left", pad)),
        dilation=(a.get("dilation_h", dilation), a.get("dilation_w", dilation)),
    )


@dataclass(frozen=True, slots=True)
class Product:
    """Matrix products [rows, inputs] x [inputs, columns], `batch` of them, `lanes` columns in a register.

    `packed`: the right matrix is a constant in groups of columns; else every one serves `shared` left ones.
    """

    batch: int
    rows: int
    inputs: int
    columns: int
    lanes: int
    packed: bool = False
    shared: int = 1
    biased: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """Division of a convolution into tasks.

    A row of output is cut into `parts`; With `rows_first` all channel groups are computed before the next part, which
    keeps the activations in the cache; otherwise all parts of one channel group come first, which keeps its weights.
    """

    parts: int = 1
    rows_first: bool = False
