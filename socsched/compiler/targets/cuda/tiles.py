"""Choice of a GEMM's tile: the measured one if the table has its shape, else the best by a simple model of an SM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import ceil, sqrt
from typing import Any

from socsched.compiler.targets.cuda.tile_table import INT8_TABLE, TABLE
from socsched.descriptor.processors import capability
from socsched.errors import CompileError


@dataclass(frozen=True, slots=True)
class Gpu:
    """The model's GPU parameters: multiprocessors, and for each shared memory (bytes), warps and fp16 multiply-adds per
    cycle.

    From NVIDIA's CUDA programming guide, table of technical specifications per compute capability, and the boards' data
    sheets (Orin's GPU has 16 SMs); the rate is that of mma.sync.
    """

    sms: int
    shared: int
    warps: int
    rate: int


GPUS = {80: Gpu(108, 164 << 10, 64, 1024), 87: Gpu(16, 164 << 10, 48, 1024), 90: Gpu(132, 228 << 10, 64, 1280)}
_BLOCK_SHARED = {80: 163 << 10, 87: 163 << 10, 90: 227 << 10}
_REGISTERS = 65536
_START, _STEP, _FINISH = 2500, 450, 4000  # cycles: filling the pipeline, a step's latency, a second kernel


def gpu(arch: str) -> Gpu:
    """Return the GPU model for an architecture: its own, or that of the nearest older known one."""
    number = capability(arch)
    return GPUS[max((known for known in GPUS if known <= number), default=80)]


def tile_for(shape: Convolution, arch: str, sms: int = 0) -> Tile:
    """Return the tile for a shape: from the table of the architecture, else by `estimate`.

    `sms`: multiprocessors the code will run on (0: all).  The tables, measured on all of them, do not apply to a part:
    a tile that fills 132 gives a share of them too few or too many waves (Spatial-Tune, arXiv 2008.03602).
    """
    if 0 < sms < gpu(arch).sms:
        return fastest_tile(shape, arch, sms)
    measured = TABLE.get(arch.rstrip("a"), {}).get(shape.key)
    if measured is not None:
        return Tile(*measured)
    return fastest_tile(shape, arch)


@cache
def fastest_tile(shape: Convolution, arch: str, sms: int = 0) -> Tile:
    """Return the fastest tile by `estimate` on `sms` multiprocessors, 0 for all."""
    fitting = list(candidates(shape, arch))
    if not fitting:
        raise CompileError(f"no tile fits a product of {shape.m} x {shape.n} x {shape.k}", "report this shape")
    return min(fitting, key=lambda tile: estimate(shape, tile, arch, sms))


def candidates(shape: Convolution, arch: str) -> Iterator[Tile]:
    """Yield every tile worth trying for a shape."""
    limit = _BLOCK_SHARED[max((known for known in _BLOCK_SHARED if known <= capability(arch)), default=80)]
    columns = [c for c in (32, 48, 64, 80, 96, 128, 256) if shape.wide % c == 0] or [16]
    for rows, wide, depth, stages, splits in product(
        (16, 32, 64, 128, 256), columns, (32, 64, 128), (1, 2, 3, 4, 5), (1, 2, 3, 4, 6, 8, 9, 12, 16)
    ):
        if rows * wide > 256 * 128 or (rows > 32 and rows > 2 * shape.m):
            continue
        if splits > 1 and (shape.groups > 1 or shape.m * shape.n > 1 << 20):
            continue
        for warp_rows, warp_columns in product((16, 32, 64), (16, 32, 40, 48, 64, 80)):
            if rows % warp_rows or wide % warp_columns:
                continue
            tile = Tile(rows, wide, depth, warp_rows, warp_columns, stages, splits)
            if tile.fits(shape) and tile.shared_bytes <= limit:
                yield tile


def estimate(shape: Convolution, tile: Tile, arch: str, sms: int = 0) -> float:
    """Return the modelled cycles of a product on `sms` multiprocessors (0: all): waves of blocks, each bound by tensor
    cores, copies or latency.
    """
    model = gpu(arch)
    model = replace(model, sms=sms) if 0 < sms < model.sms else model
    registers = tile.warp_rows * tile.warp_columns // 32 + 80
    resident = min(
        model.shared // (tile.shared_bytes + 1024),
        model.warps // tile.warps,
        _REGISTERS // (registers * 32 * tile.warps),
        32,
    )
    if resident < 1:
        return float("inf")
    blocks = ceil(shape.m / tile.rows) * (shape.n // tile.columns) * tile.splits
    rounds = ceil(shape.k / tile.depth / tile.splits)
    together = min(resident, ceil(blocks / model.sms))
    reuse = tile.warp_rows * tile.warp_columns / (tile.warp_rows + tile.warp_columns)  # products per loaded element
    busy = together * tile.rows * tile.columns * tile.depth / model.rate * max(1.0, 24 / reuse)
    copied = together * (tile.rows + tile.columns) * tile.depth * 2 / 64
    latency = _STEP * tile.depth / 64 + 150
    if tile.stages == 1:  # each copy must finish before it is used
        step = busy + copied + 2 * latency / sqrt(together)
    else:
        step = max(busy, copied, latency * (1.5 if tile.stages == 2 else 1.0))
    wave = _START + rounds * step + together * tile.rows * tile.columns / 24
    waves = ceil(blocks / (model.sms * together))
    last = _FINISH + tile.splits * shape.m * shape.n * 8 / (model.sms * 20) if tile.splits > 1 else 0
    return waves * wave + last


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
    `residual`: an image like the result is added before the ReLU, and after `inner`, the product's own activation.
    With `planes` (even numbers that add up to `outputs`) the result's memory is a sequence of images with these numbers
    of channels.  `stride_w`: the stride by column where it is another, 0 where not; `activation`: one other than ReLU
    (`cuda.activation`).  With `groups` > 1 each group of outputs reads the channels of its own group alone, and k
    counts those.
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
    inner: tuple[Any, ...] = ()
    groups: int = 1

    @property
    def strides(self) -> tuple[int, int]:
        """Return the strides by row and by column."""
        return self.stride, self.stride_w or self.stride

    @property
    def final(self) -> tuple[Any, ...]:
        """Return the activation of the result (`cuda.activation`)."""
        return self.activation or (("relu",) if self.relu else ())

    @property
    def single(self) -> bool:
        """Return whether it is the product of one pixel, of which a warp holds all channels at once."""
        size = max(self.height, self.width, self.kernel_h, self.kernel_w, self.scale, self.groups)
        return size == 1 and self.channels <= 64 * LANES

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
    def wide(self) -> int:
        """Return the columns of a group's product."""
        return self.n // self.groups

    @property
    def k(self) -> int:
        """Return the length of the sums."""
        return self.kernel_h * self.kernel_w * (self.channels // self.groups)

    @property
    def pixels(self) -> int:
        """Return the pixels of the result."""
        return self.m * self.scale**2

    @property
    def key(self) -> str:
        """Return the name of the shape in the table of tiles, which ignores fused operations."""
        kernel = f"{self.kernel_h}x{self.kernel_w}s{self.stride}p{self.pad}"
        groups = f"g{self.groups}" if self.groups > 1 else ""
        return f"{self.height}x{self.width}x{self.channels}-{self.outputs} {kernel}u{self.scale}{groups}"


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
            shape.wide % self.columns == 0
            and self.rows % self.warp_rows == self.columns % self.warp_columns == 0
            and self.warp_rows % EDGE == self.warp_columns % EDGE == self.depth % EDGE == 0
            and 1 <= self.warps <= 16
            and self.rows * self.depth % step == self.columns * self.depth % step == 0
            and self.rows * self.columns % (self.warps * LANES * self.store) == 0
            and self.warp_rows * self.warp_columns <= 64 * 80
            and -(-rounds // self.splits) >= self.stages
            and self.splits <= rounds
        )


def int8_tile(shape: Convolution, arch: str) -> Tile:
    """Return the tile of an int8 product, whose `shape` counts pairs: from the architecture's table, else from the
    model.

    Results in planes are written in pairs, by one kernel.
    """
    plain = arch.rstrip("a")
    measured = INT8_TABLE.get(plain, {}).get(shape.key)
    tile = Tile(*measured) if measured is not None else fastest_tile(shape, plain)
    return replace(tile, splits=1, store=2) if shape.planes else tile
