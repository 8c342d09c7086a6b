"""Choice of a GEMM's tile: the measured one if the table has its shape, else the best by a simple model of an SM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import ceil, sqrt

from socsched.compiler.targets.cuda.shapes import Convolution, Tile
from socsched.compiler.targets.cuda.tile_table import TABLE
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
OLDEST = 80
"""Compute capability from which the rules apply (cp.async, mma.m16n8k16 and m16n8k32)."""
_BLOCK_SHARED = {80: 163 << 10, 87: 163 << 10, 90: 227 << 10}
_REGISTERS = 65536
_START, _STEP, _FINISH = 2500, 450, 4000  # cycles: filling the pipeline, a step's latency, a second kernel


def capability(arch: str) -> int:
    """Return the number in an architecture, 87 for "sm_87"; CompileError for other names."""
    digits = arch.removeprefix("sm_").rstrip("a")
    if not digits.isdigit():
        raise CompileError(f"GPU architecture {arch!r} is not known", "name it like sm_87")
    return int(digits)


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
    columns = [c for c in (32, 48, 64, 80, 96, 128, 256) if shape.n % c == 0] or [16]
    for rows, wide, depth, stages, splits in product(
        (16, 32, 64, 128, 256), columns, (32, 64, 128), (1, 2, 3, 4, 5), (1, 2, 3, 4, 6, 8, 9, 12, 16)
    ):
        if rows * wide > 256 * 128 or (rows > 32 and rows > 2 * shape.m):
            continue
        if splits > 1 and shape.m * shape.n > 1 << 20:
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
