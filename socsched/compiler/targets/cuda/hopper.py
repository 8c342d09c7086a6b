# mypy: ignore-errors
# ruff: noqa: E741, F821
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""Implicit GEMM for compute capability 9.0a: tensor copies (TMA) into a ring of tiles, warpgroup products (wgmma).

One warpgroup computes a patch of output pixels by `columns` channels.  A step of the sum is one kernel tap of 64 or 32
channels: its patch of pixels is one box of a three-dimensional tensor map, whose out-of-bounds elements arrive as the
zeros of the padding and whose element strides are the convolution's.  Operands are stored in swizzled rows of 128 or 64
bytes, as wgmma reads them; one product stays in flight while waiting for the next step's operands.  Bytes are copied in
pairs as one fp16 each, as in `int8_gemm`.  (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "Tensor
copies".)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from socsched.compiler.environment import T, tirx
from socsched.compiler.targets.cuda import int8_gemm
from socsched.compiler.targets.cuda.activation import function
from socsched.compiler.targets.cuda.codegen import TILE_PROGRAM
from socsched.compiler.targets.cuda.gemm import target
from socsched.compiler.targets.cuda.patch import DEPTH, ROWS, Patch, depth_of
from socsched.compiler.targets.cuda.shapes import Convolution

_THREADS = 128
_COPY = 16  # bytes that a thread writes at once


@dataclass(frozen=True, slots=True)
class _Arithmetic:
    """A product's types in PTX, the operands after its descriptors, the dtype of its sums, and their epilogue.

    `finish` maps (sum, table, output channel) to the result.
    """

    types: str
    operands: tuple[int, ...]
    sums: str
    table: tuple[tuple[int, ...], str]
    result: str
    finish: Callable[[Any, Any, Any], Any]

    @property
    def lanes(self) -> int:
        """Return the number of adjacent results that a thread writes at once."""
        return _COPY // self.size

    @property
    def size(self) -> int:
        """Return the bytes of a result."""
        return {"float16": 2, "float32": 4}.get(self.result, 1)


def _halves(shape: Convolution) -> _Arithmetic:
    act = function(shape.final)

    def finish(total: Any, table: Any, n: Any) -> Any:
        return act(T.Cast("float16", total + table[n % shape.outputs]))

    table = (shape.outputs,), "float32"
    return _Arithmetic("k16.f32.f16.f16", (1, 1, 0, 0), "float32", table, "float16", finish)


def _bytes(shape: Convolution, form: int8_gemm.Form) -> _Arithmetic:
    convert = int8_gemm.ending(form, shape.outputs)
    table = (form.epilogue.rows, shape.outputs), "int32"

    def finish(total: Any, table: Any, n: Any) -> Any:
        return convert(T.Cast("int32", total), table, n)

    types = f"k32.s32.{'s8' if form.signed else 'u8'}.s8"
    return _Arithmetic(types, (), "uint32", table, form.epilogue.dtype, finish)


def convolution(shape: Convolution, patch: Patch, form: int8_gemm.Form | None = None) -> Any:
    """Return conv(X[pixels, channels], W[n, k], B, O[results, total]) in fp16, B[outputs] being the biases.

    With `form` it is a product of bytes: channels and k count pairs, B is the epilogue's table [rows, outputs].
    """
    arithmetic = _bytes(shape, form) if form else _halves(shape)
    c, kernel_w, stride, pad = shape.channels, shape.kernel_w, shape.stride, shape.pad
    in_h, in_w, out_h, out_w = shape.height, shape.width, shape.out_height, shape.out_width
    if shape.kernel_h == kernel_w == stride == 1:  # a row of pixels: no patch extends past the side
        in_h, in_w, out_h, out_w = 1, shape.height * shape.width, 1, shape.m
    high, wide, columns, stages = patch.height, patch.width, patch.columns, patch.stages
    down, across, column_blocks = -(-out_h // high), -(-out_w // wide), shape.n // columns
    depth = depth_of(shape)
    steps, blocks = shape.k // depth, c // depth
    a_size, b_size = patch.rows * depth, columns * depth
    size, transferred = a_size + b_size, (a_size + b_size) * 2
    tiles, held, row = patch.rows // ROWS, columns // 2, columns + arithmetic.lanes
    lanes = 2 if shape.planes else arithmetic.lanes
    pieces = columns // lanes
    turns = patch.rows * pieces // _THREADS
    pixels, results, total = shape.height * shape.width, shape.pixels, shape.total or shape.outputs
    n_all, k_all = shape.n, shape.k
    at, finish = target(shape), arithmetic.finish
    (entries, entry), summed, dtype, last = arithmetic.table, arithmetic.sums, arithmetic.result, arithmetic.operands
    room = max(stages * size, patch.rows * row * arithmetic.size // 2)
    swizzle, eight_rows, block_rows = (3, 64, 512) if depth == DEPTH else (2, 32, 256)  # in units of 16 bytes
    image = [c, in_w, in_h, c * 2, in_w * c * 2, depth, wide * stride, high * stride]
    image += [1, stride, stride, 0, swizzle, 2, 0]
    matrix = [k_all, n_all, k_all * 2, depth, columns, 1, 1, 0, swizzle, 2, 0]
    multiply = f"wgmma.mma_async.sync.aligned.m64n{columns}{arithmetic.types}"
    fetch = "cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes"
    fetch_image, fetch_matrix = fetch.format(3), fetch.format(2)

    def sums(C: Any, tile: Any) -> list[Any]:
        return [C[tile * held + i] for i in range(held)]

    @T.prim_func(private=True)
    def conv(x: T.handle, w: T.handle, b: T.handle, o: T.handle):
        T.func_attr({"tirx.is_scheduled": True, TILE_PROGRAM: True})
        X = T.match_buffer(x, (pixels, c), dtype="float16", align=16)
        W = T.match_buffer(w, (n_all, k_all), dtype="float16", align=16)
        B = T.match_buffer(b, entries, dtype=entry, align=16)
        O = T.match_buffer(o, (results, total), dtype=dtype, align=16)
        X_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        T.call_packed("runtime.cuTensorMapEncodeTiled", X_map, "float16", 3, X.data, *image)
        W_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        T.call_packed("runtime.cuTensorMapEncodeTiled", W_map, "float16", 2, W.data, *matrix)
        T.device_entry()
        block = T.cta_id([down * across * column_blocks])
        thread = T.thread_id([_THREADS])
        S = T.alloc_buffer((room,), "float16", scope="shared.dyn", align=1024)
        R = T.decl_buffer((patch.rows * row,), dtype, data=S.data, scope="shared.dyn")  # the result on its way out
        full = T.alloc_buffer((stages,), "uint64", scope="shared", align=8)
        a_rows: T.uint64
        b_rows: T.uint64
        C = T.alloc_buffer((tiles * held,), summed, scope="local")
        n0 = T.meta_var(block % column_blocks * columns)
        h0 = T.meta_var(block // column_blocks // across * high)
        w0 = T.meta_var(block // column_blocks % across * wide)
        if thread == 0:
            for i in T.serial(0, stages):
                T.ptx.mbarrier.init.shared.b64(T.address_of(full[i]), T.uint32(1))
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        if thread == 0:
            for i in T.serial(0, stages - 1):
                T.ptx.mbarrier.arrive.expect_tx.shared.b64(T.address_of(full[i]), T.uint32(transferred))
                T.ptx[fetch_image](
                    T.address_of(S[i * size]),
                    T.address_of(X_map),
                    i % blocks * depth,
                    w0 * stride + i // blocks % kernel_w - pad,
                    h0 * stride + i // blocks // kernel_w - pad,
                    T.address_of(full[i]),
                )
                T.ptx[fetch_matrix](
                    T.address_of(S[i * size + a_size]), T.address_of(W_map), i * depth, n0, T.address_of(full[i])
                )
        for i in T.serial(0, tiles * held):
            C[i] = tirx.const(0, summed)
        for step in T.serial(0, steps):
            T.cuda.mbarrier_wait(T.address_of(full[step % stages]), step // stages % 2)
            T.ptx.wgmma.fence.sync.aligned()
            T.cuda.wgmma.encode_matrix_descriptor(
                T.address_of(b_rows), T.address_of(S[step % stages * size + a_size]), 1, eight_rows, swizzle
            )
            T.cuda.wgmma.encode_matrix_descriptor(
                T.address_of(a_rows), T.address_of(S[step % stages * size]), 1, eight_rows, swizzle
            )
            for tile in T.unroll(0, tiles):
                for k in T.unroll(0, depth // 16):
                    T.ptx[multiply](
                        *sums(C, tile),
                        a_rows + T.Cast("uint64", tile * block_rows + k * 2),
                        b_rows + T.Cast("uint64", k * 2),
                        T.bool(True),
                        *last,
                    )
            T.ptx.wgmma.commit_group.sync.aligned()
            T.ptx.wgmma.wait_group.sync.aligned(1)  # the previous step is done: its tile may be overwritten
            T.cuda.cta_sync()
            if thread == 0 and step + stages - 1 < steps:
                T.ptx.mbarrier.arrive.expect_tx.shared.b64(
                    T.address_of(full[(step + stages - 1) % stages]), T.uint32(transferred)
                )
                T.ptx[fetch_image](
                    T.address_of(S[(step + stages - 1) % stages * size]),
                    T.address_of(X_map),
                    (step + stages - 1) % blocks * depth,
                    w0 * stride + (step + stages - 1) // blocks % kernel_w - pad,
                    h0 * stride + (step + stages - 1) // blocks // kernel_w - pad,
                    T.address_of(full[(step + stages - 1) % stages]),
                )
                T.ptx[fetch_matrix](
                    T.address_of(S[(step + stages - 1) % stages * size + a_size]),
                    T.address_of(W_map),
                    (step + stages - 1) * depth,
                    n0,
                    T.address_of(full[(step + stages - 1) % stages]),
                )
        T.ptx.wgmma.wait_group.sync.aligned(0)
        T.cuda.cta_sync()
        for tile in T.unroll(0, tiles):
            for i in T.unroll(0, held // 4):
                for j in T.unroll(0, 2):
                    for q in T.vectorized(0, 2):
                        R[
                            (tile * ROWS + thread // 32 * 16 + thread % 32 // 4 + j * 8) * row
                            + i * 8
                            + thread % 4 * 2
                            + q
                        ] = finish(C[tile * held + i * 4 + j * 2 + q], B, n0 + i * 8 + thread % 4 * 2 + q)
        T.cuda.cta_sync()
        for turn in T.serial(0, turns):
            r = T.meta_var((turn * _THREADS + thread) // pieces)
            piece = T.meta_var((turn * _THREADS + thread) % pieces * lanes)
            if h0 + r // wide < out_h and w0 + r % wide < out_w:
                m = T.meta_var((h0 + r // wide) * out_w + w0 + r % wide)
                for q in T.vectorized(0, lanes):
                    O[at(m, n0 + piece)[0], at(m, n0 + piece)[1] + q] = R[r * row + piece + q]

    return conv
