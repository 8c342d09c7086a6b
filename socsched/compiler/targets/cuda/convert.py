"""Conversions on the GPU between fp32 and fp16 and between NCHW and NHWC, as separate kernels.

A cast uses one thread per element; a change of layout goes through a tile in shared memory so that both sides are read
and written in rows.  The kernels are built once by nvcc and kept with the compiled stages.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from socsched.cache import cache_dir
from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.compiler.targets.cuda.toolkits import toolkit_for
from socsched.errors import MachineError
from socsched.graph.operators import TensorType

_THREADS, _TILE = 256, 32
_FEW = 8
"""Channels below which most of a tile would be empty."""
_NAMES, _SIZES = {"fp32": "f", "fp16": "h"}, {"fp32": 4, "fp16": 2}
SOURCE = """
#include <cuda_fp16.h>
template <typename A, typename B> __device__ B as(A x) { return (B)(float)x; }
template <typename A, typename B> __device__ void cast(const A* in, B* out, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = as<A, B>(in[i]);
}
// [rows, columns] to [columns, rows], a 32 x 32 tile a block of 32 x 8 threads
template <typename A, typename B> __device__ void turn(const A* in, B* out, int rows, int columns) {
  __shared__ B tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x;
  for (int j = threadIdx.y, y = blockIdx.y * 32 + j; j < 32; j += 8, y += 8)
    if (x < columns && y < rows) tile[j][threadIdx.x] = as<A, B>(in[(long long)y * columns + x]);
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  for (int j = threadIdx.y, y = blockIdx.x * 32 + j; j < 32; j += 8, y += 8)
    if (x < rows && y < columns) out[(long long)y * rows + x] = tile[threadIdx.x][j];
}
// images of layouts 0: pixels x channels, 1: channels x pixels, n: blocks of n channels x pixels x n, filled up with 0
template <typename A, typename B> __device__ void lay(const A* in, B* out, int channels, int pixels, int from, int to) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;  // tensors have less than 2^31 elements
  unsigned count = (unsigned)pixels * (to > 1 ? (channels + to - 1) / to * to : channels);
  if (i >= count) return;
  unsigned c = to == 0 ? i % channels : to == 1 ? i / pixels : i / ((unsigned)pixels * to) * to + i % to;
  unsigned p = to == 0 ? i / channels : to == 1 ? i % pixels : i / to % pixels;
  unsigned j = from == 0 ? p * channels + c : from == 1 ? c * pixels + p : (c / from * pixels + p) * from + c % from;
  out[i] = c < channels ? as<A, B>(in[j]) : (B)0.0f;
}
extern "C" __global__ void copy(const char* in, char* out, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}
#define PAIR(a, A, b, B) \\
  extern "C" __global__ void lay_##a##b(const A* in, B* out, int c, int p, int from, int to) { \\
    lay<A, B>(in, out, c, p, from, to); } \\
  extern "C" __global__ void cast_##a##b(const A* in, B* out, long long n) { cast<A, B>(in, out, n); } \\
  extern "C" __global__ void turn_##a##b(const A* in, B* out, int y, int x) { turn<A, B>(in, out, y, x); }
PAIR(f, float, h, __half) PAIR(h, __half, f, float) PAIR(f, float, f, float) PAIR(h, __half, h, __half)
"""


def code(arch: str) -> Path:
    """Return a file with the kernels as machine code for an architecture ("sm_87"), built on first use."""
    digest = hashlib.sha256((SOURCE + arch).encode()).hexdigest()[:20]
    file = cache_dir() / f"convert-{digest}.cubin"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            source, binary = Path(folder) / "convert.cu", Path(folder) / "convert.cubin"
            source.write_text(SOURCE)
            binary.write_bytes(toolkit_for(arch).build(SOURCE, arch))
            source.replace(source_of(file))
            binary.replace(file)
    return file


def source_of(code: Path) -> Path:
    """Return the file with the source of the kernels in `code`."""
    return code.with_suffix(".cu")


def conversion(
    given: TensorType, wanted: TensorType, source: int, target: Mapping[str, Any], code: int
) -> list[dict[str, Any]]:
    """Return the launches that convert a tensor at `source` of a program's memory; see `kernel_for`.

    `target`: the place of the result (`executor.programs`); `code`: the kernels' number among the program's.
    """

    def launch(kernel: str, grid: Sequence[int], block: Sequence[int], sizes: Sequence[int], at: int = 0, to: int = 0):  # type: ignore[no-untyped-def]
        places = [{"in": "memory", "offset": source + at}, {**target, "offset": target["offset"] + to}]
        how = {"grid": [*grid, 1], "block": [*block, 1], "shared": 0}
        return {"kernel": kernel, "code": code, **how, "arguments": [*places, *({"value": size} for size in sizes)]}

    def by_element(kernel: str, count: int) -> list[dict[str, Any]]:
        return [launch(kernel, (-(-count // _THREADS), 1), (_THREADS, 1), (count,))]

    elements = prod(physical_shape(given))
    if (given.dtype, given.layout) == (wanted.dtype, wanted.layout):
        return by_element("copy", elements * NUMPY_DTYPES[given.dtype].itemsize)
    name, (height, width) = kernel_for(given, wanted)
    if name.startswith("cast"):
        return by_element(name, elements) if elements else []
    ways = [channel_block(kind.layout or "NCHW") or 0 for kind in (given, wanted)]
    laid = name.startswith("lay")
    here, there = (width * (-(-height // n) * n if laid and n > 1 else height) for n in ways)
    sizes = (height, width, *ways) if laid else (height, width)
    grid = (-(-there // _THREADS), 1) if laid else (-(-width // _TILE), -(-height // _TILE))
    return [
        launch(
            name, grid, (_THREADS, 1) if laid else (_TILE, 8), sizes,
            image * here * _SIZES[given.dtype], image * there * _SIZES[wanted.dtype],
        )
        for image in range(given.shape[0])
    ]  # fmt: skip


def kernel_for(given: TensorType, wanted: TensorType) -> tuple[str, tuple[int, int]]:
    """Return the kernel for a conversion, and for a change of layout the rows and columns it transposes.

    If one side is in channel blocks, or there are few channels, these are channels and pixels.  MachineError for types
    other than fp32 and fp16 and for image layouts other than NCHW, NHWC and NCHW in channel blocks.
    """
    layouts = (given.layout or "NCHW", wanted.layout or "NCHW")
    images = len(given.shape) == 4 and layouts[0] != layouts[1]
    known = given.dtype in _NAMES and wanted.dtype in _NAMES and (not images or None not in map(channel_block, layouts))
    if not known:
        raise MachineError(
            f"the GPU has no conversion from {given.dtype} {layouts[0]} to {wanted.dtype} {layouts[1]}",
            "plan the conversion on a processor",
        )
    pair = _NAMES[given.dtype] + _NAMES[wanted.dtype]
    if not images:
        return f"cast_{pair}", (0, 0)
    _, channels, height, width = given.shape
    pixels = height * width
    if set(layouts) != {"NCHW", "NHWC"} or channels < _FEW:
        return f"lay_{pair}", (channels, pixels)
    return f"turn_{pair}", (channels, pixels) if layouts[0] == "NCHW" else (pixels, channels)


def channel_block(layout: str) -> int | None:
    """Return the kernels' channel parameter for a layout: NHWC 0, NCHW 1, NCHWnc n, None for others."""
    if layout in ("NHWC", "NCHW"):
        return int(layout == "NCHW")
    digits = layout.removeprefix("NCHW").removesuffix("c")
    return int(digits) if layout == f"NCHW{digits}c" and digits.isdigit() and int(digits) > 1 else None
