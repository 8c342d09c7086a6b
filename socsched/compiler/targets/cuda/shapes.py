"""Shapes and tiles of an implicit GEMM: plain numbers, no TVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LANES = 32
EDGE = 16
"""Side of the tile that a warp multiplies at once."""

VECTOR = 8
"""fp16 elements in the 16 bytes that a thread copies at once; channels of activations are a multiple of it."""


def round_up(size: int, step: int) -> int:
    """Return `size` rounded up to a multiple of `step`."""
    return -(-size // step) * step


@dataclass(frozen=True, slots=True)
class Convolution:
    """A 2-D convolution of an image [height * width, channels] with `outputs` channels, as matrices.

    C[m, n] = sum_k A[m, k] W[n, k]: m counts output pixels, n output channels, k (kernel row, kernel column, channel).
    With `scale` > 1 it is the transposed convolution with kernel = stride = scale: kernel_h and kernel_w are 1, and n
    counts (row, column, channel) inside a pixel's scale x scale square.  `channels` and `outputs` are physical:
    multiples of 8 and 16.  `first` and `total` give the first channel written and the number of channels of the result;
    `residual`: an image like the result is added before the ReLU.  With `planes` (even numbers that add up to
    `outputs`) the result's memory is a sequence of images with these numbers of channels.  `stride_w`: the stride by
    column where it is another, 0 where not; `activation`: one other than ReLU (`cuda.activation`).
    """

    height: int
    width: int
    channels: int
    outputs: int
    kernel_h: int = 1
    kernel_w: int = 1
    stride: int = 1
    pad: int = 0
    scale: int = 1
    relu: bool = False
    residual: bool = False
    first: int = 0
    total: int = 0
    planes: tuple[int, ...] = ()
    stride_w: int = 0
    dilation: int = 1
    activation: tuple[Any, ...] = ()

    @property
    def strides(self) -> tuple[int, int]:
        """Return the strides by row and by column."""
        return self.stride, self.stride_w or self.stride

    @property
    def final(self) -> tuple[Any, ...]:
        """Return the activation of the result (`cuda.activation`)."""
        return self.activation or (("relu",) if self.relu else ())

    @property
    def out_height(self) -> int:
        """Return the image rows counted by m, before `scale`."""
        return (self.height + 2 * self.pad - self.dilation * (self.kernel_h - 1) - 1) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Return the image columns counted by m, before `scale`."""
        return (self.width + 2 * self.pad - self.dilation * (self.kernel_w - 1) - 1) // self.strides[1] + 1

    @property
    def m(self) -> int:
        """Return the rows of the product."""
        return self.out_height * self.out_width

    @property
    def n(self) -> int:
        """Return the columns of the product."""
        return self.outputs * self.scale**2

    @property
    def k(self) -> int:
        """Return the length of the sums."""
        return self.kernel_h * self.kernel_w * self.channels

    @property
    def pixels(self) -> int:
        """Return the pixels of the result."""
        return self.m * self.scale**2

    @property
    def key(self) -> str:
        """Return the name of the shape in the table of tiles, which ignores fused operations."""
        kernel = f"{self.kernel_h}x{self.kernel_w}s{self.stride}p{self.pad}"
        return f"{self.height}x{self.width}x{self.channels}-{self.outputs} {kernel}u{self.scale}"


@dataclass(frozen=True, slots=True)
class Tile:
    """A block of threads computes `rows` x `columns`, its warps `warp_rows` x `warp_columns` each.

    It advances `depth` along k, with `stages` copies in flight; `splits` blocks share one sum, and a second kernel adds
    their parts.  `store` is the number of elements a thread writes at once.
    """

    rows: int
    columns: int
    depth: int
    warp_rows: int
    warp_columns: int
    stages: int
    splits: int = 1
    store: int = 4

    @property
    def warps(self) -> int:
        """Return the number of warps in a block of threads."""
        return self.rows // self.warp_rows * (self.columns // self.warp_columns)

    @property
    def shared_bytes(self) -> int:
        """Return a block's shared memory (bytes): operands in flight, or the outgoing result (the same memory)."""
        return max((self.rows + self.columns) * self.depth * 2 * self.stages, self.rows * (self.columns + 8) * 4)

    def fits(self, shape: Convolution) -> bool:
        """Return whether every copy is whole, the sums are long enough for the pipeline, and registers suffice."""
        step = self.warps * LANES * VECTOR
        rounds = -(-shape.k // self.depth)
        return (
            shape.n % self.columns == 0
            and self.rows % self.warp_rows == self.columns % self.warp_columns == 0
            and self.warp_rows % EDGE == self.warp_columns % EDGE == self.depth % EDGE == 0
            and 1 <= self.warps <= 16
            and self.rows * self.depth % step == self.columns * self.depth % step == 0
            and self.rows * self.columns % (self.warps * LANES * self.store) == 0
            and self.warp_rows * self.warp_columns <= 64 * 80
            and -(-rounds // self.splits) >= self.stages
            and self.splits <= rounds
        )
