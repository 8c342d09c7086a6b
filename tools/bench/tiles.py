"""Measure register tiles of direct convolutions on one core: what `vector.tile` takes, and what it leaves.

    python -m tools.bench.tiles [--repeat 9]

Prints, for typical shapes, GFLOP/s of every tile (pixels x output blocks) that fits the registers, best first, the one
`tile` chooses marked.  Operands rotate through 96 MB or more, so that weights and images come from memory as they do
inside a network.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ["TVM_NUM_THREADS"] = "1"

import numpy as np

from socsched.compiler.environment import tvm
from socsched.compiler.loading.aligned import empty
from socsched.compiler.target import resolve
from socsched.compiler.targets.llvm import conv_kernels
from socsched.compiler.targets.llvm.processor import vector_unit
from socsched.compiler.targets.llvm.shapes import Lying, Order, Window
from socsched.compiler.targets.llvm.vector import Tile, Vector, tile

SHAPES = {  # name -> channels in and out, height and width of the input, kernel, stride, padding
    "1x1 64-256, 56x56": (64, 256, 56, 56, 1, 1, 0),
    "1x1 512-128, 28x28": (512, 128, 28, 28, 1, 1, 0),
    "3x3 s2 64-64, 496x432": (64, 64, 496, 432, 3, 2, 1),
    "3x3 s2 128-256, 124x108": (128, 256, 124, 108, 3, 2, 1),
    "3x3 256-256, 14x14": (256, 256, 14, 14, 3, 1, 1),
    "1x1 384-80, 248x216": (384, 80, 248, 216, 1, 1, 0),
}
ROTATED = 96 << 20


def main() -> None:
    """Print a line a shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9, help="timed calls of each")
    options = parser.parse_args()
    spec = resolve({"kind": "llvm", "host": True})
    vector = vector_unit(spec)
    for name, shape in SHAPES.items():
        source, target, window, order = lying(shape, vector)
        chosen = tile(vector, target.blocks, target.width)
        rates = [
            (rate(source, target, window, order, candidate, dict(spec.tvm), options.repeat), candidate)
            for candidate in candidates(vector, target.blocks, target.width)
        ]
        best = sorted(rates, key=lambda found: -found[0])
        shown = (f"{t.pixels}x{t.blocks}{'*' if t == chosen else ''} {gflops:.0f}" for gflops, t in best)
        print(f"{name:24} {', '.join(shown)}", flush=True)


def lying(shape: tuple[int, ...], vector: Vector) -> tuple[Lying, Lying, Window, Order]:
    """Return source, target, window and order of a convolution; a pointwise one is a long row, as the lowering does."""
    ci, co, h, w, kernel, stride, pad = shape
    c, blocks = vector.block, (ci // vector.block, co // vector.block)
    window = Window((kernel, kernel), (stride, stride), (pad, pad))
    rows_first = ci * h * w >= ci * co * kernel * kernel
    if kernel == 1:
        return Lying(blocks[0], c, 1, h * w, 0), Lying(blocks[1], c, 1, h * w, 0), window, Order(16, rows_first)
    size = ((h + 2 * pad - kernel) // stride + 1, (w + 2 * pad - kernel) // stride + 1)
    return Lying(blocks[0], c, h, w, pad), Lying(blocks[1], c, *size, 1), window, Order(1, rows_first)


def candidates(vector: Vector, blocks: int, width: int) -> list[Tile]:
    """Return tiles that fit the registers, of at least ten sums."""
    fitting = [Tile(p, b) for b in (1, 2, 4) if blocks % b == 0 for p in range(2, min(width, vector.registers) + 1)]
    held = [(t, t.blocks * (t.pixels + 1) * vector.per_block) for t in fitting]
    return [t for t, n in held if 12 * vector.per_block <= n <= vector.registers - 2 and (t.blocks > 1 or n % 4 == 1)]


def rate(
    source: Lying, target: Lying, window: Window, order: Order, chosen: Tile, llvm: dict[str, Any], repeat: int
) -> float:
    """Return the median GFLOP/s of a convolution."""
    kernel = conv_kernels.conv2d(source, target, window, ("relu",), -1, chosen, order)
    module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
    run = tvm.compile(module, target=tvm.target.Target(llvm))["main"]
    weight = (target.blocks, source.blocks, *window.kernel, source.block, target.block)
    shapes = (source.shape, weight, (target.blocks, target.block), (1, 1, 1, 1), target.shape)
    count = min(max(ROTATED // (4 * sum(int(np.prod(shape)) for shape in shapes)) + 1, 2), 16)
    operands = []
    for _ in range(count):
        arrays = [empty(shape, np.dtype(np.float32)) for shape in shapes]
        for array in arrays:
            array.fill(0.5)
        operands.append([tvm.runtime.from_dlpack(array) for array in arrays])
    times = []
    for index in range(repeat + count):
        given = operands[index % count]
        start = time.perf_counter()
        run(*given)
        times.append(time.perf_counter() - start)
    flops = 2 * target.height * target.width * target.blocks * target.block * int(np.prod(weight[1:5]))
    return flops / float(np.median(times[count:])) / 1e9


if __name__ == "__main__":
    main()
