# mypy: ignore-errors
"""The schedule of an implicit GEMM: warps on tensor cores, operands copied asynchronously to swizzled shared memory.

Per block of threads: a ring of `stages` operand tiles filled by 16-byte cp.async (pixels outside the image are its zero
fill), ldmatrix, mma.sync, and a result written through shared memory in whole rows with bias, residual and ReLU
applied.  Shared memory is XOR-swizzled, which keeps ldmatrix free of bank conflicts without padding.
"""

from __future__ import annotations

from typing import Any

from socsched.compiler.environment import s_tir
from socsched.compiler.targets.cuda import intrinsics
from socsched.compiler.targets.cuda.intrinsics import HALVES, Family
from socsched.compiler.targets.cuda.tiles import EDGE, LANES, VECTOR, Tile


def schedule(function: Any, tile: Tile, family: Family = HALVES, padded: tuple[str, ...] = ("A",)) -> Any:
    """Return the schedule of a function from `gemm` or `sequence_kernels.product`, tiled by `tile`.

    `padded`: the blocks of operands that the copies compute.
    """
    intrinsics.register(family)
    return _Schedule(function, tile, family, padded).run()


def _unrolled(sch: Any, loop: Any) -> None:
    """Leave unrolling to nvcc: after TVM's unrolling, register indices are not simplified and fragments spill."""
    sch.annotate(loop, "pragma_auto_unroll_max_step", 64)
    sch.annotate(loop, "pragma_unroll_explicit", 0)


def _by_fragment(*indices: Any) -> list[Any]:
    *outer, i, j = indices
    return [*outer, i // EDGE, j // EDGE, *intrinsics.fragment(i % EDGE, j % EDGE)]


class _Schedule:
    def __init__(self, function: Any, tile: Tile, family: Family, padded: tuple[str, ...]) -> None:
        self.sch, self.tile, self.family, self.padded = s_tir.Schedule(function), tile, family, padded

    def run(self) -> Any:
        sch = self.sch
        block, outer, (columns, warps, step, inner, i2, j2) = self.cut()
        for operand in (0, 1):
            self.to_shared(outer, operand, step)
        for name in self.padded:
            sch.compute_inline(sch.get_sblock(name))
        loads = [sch.cache_read(outer, operand, "warp") for operand in (0, 1)]
        for load in loads:
            sch.compute_at(load, inner)
        staged = sch.cache_write(outer, 0, intrinsics.SHARED)
        accumulated = sch.cache_write(outer, 0, "warp")
        sch.reverse_compute_at(accumulated, warps)
        sch.reverse_compute_at(staged, columns)
        start = sch.decompose_reduction(outer, step)
        self.tensorize(block, start, loads, accumulated)
        for loop in (i2, j2):
            _unrolled(sch, loop)
        self.write_back(staged)
        self.pipeline(step)
        return sch.mod["main"].with_attr("tirx.is_scheduled", True)

    def cut(self) -> tuple[Any, Any, tuple[Any, ...]]:
        sch, t = self.sch, self.tile
        block = sch.get_sblock("C")
        *parts, i, j, k = sch.get_loops(block)
        (i, it), (j, jt), (k, kt) = (sch.split(loop, [None, EDGE]) for loop in (i, j, k))
        sch.reorder(i, j, k, it, jt, kt)
        outer = sch.blockize(it)
        i0, i1, i2 = sch.split(i, [None, t.rows // t.warp_rows, t.warp_rows // EDGE])
        j0, j1, j2 = sch.split(j, [None, t.columns // t.warp_columns, t.warp_columns // EDGE])
        step, inner = sch.split(k, [None, t.depth // EDGE])
        sch.reorder(i0, j0, i1, j1, step, inner, i2, j2)
        for part in parts:
            sch.bind(part, "blockIdx.z")
        sch.bind(j0, "blockIdx.x")
        sch.bind(i0, "blockIdx.y")
        warps = sch.fuse(i1, j1)
        sch.bind(warps, "threadIdx.y")
        return block, outer, (j0, warps, step, inner, i2, j2)

    def to_shared(self, outer: Any, operand: int, step: Any) -> None:
        sch = self.sch
        copy = sch.cache_read(outer, operand, intrinsics.SHARED)
        sch.compute_at(copy, step)
        fused = sch.fuse(*sch.get_loops(copy)[-2:])
        turns, warp, lane, vector = sch.split(fused, [None, self.tile.warps, LANES, VECTOR])
        sch.bind(lane, "threadIdx.x")
        sch.bind(warp, "threadIdx.y")
        sch.vectorize(vector)
        sch.unroll(turns)
        sch.annotate(copy, "permuted_layout", 1)

    def tiles(self, block: Any) -> Any:
        """Split a block's two innermost loops into 16x16 tiles and return the loop over a tile's rows."""
        sch = self.sch
        i, j = sch.get_loops(block)[-2:]
        (i0, i1), (j0, j1) = sch.split(i, [None, EDGE]), sch.split(j, [None, EDGE])
        sch.reorder(i0, j0, i1, j1)
        _unrolled(sch, i0)
        return i1

    def tensorize(self, block: Any, start: Any, loads: list[Any], accumulated: Any) -> None:
        sch = self.sch
        cleared = sch.get_child_blocks(start)[0]
        rows = [self.tiles(part) for part in (*loads, accumulated)]
        for load in loads:
            sch.transform_layout(load, ("write", 0), _by_fragment)
        sch.transform_layout(accumulated, ("read", 0), _by_fragment)
        for row, name in zip(rows, (self.family.load_a, self.family.load_b), strict=False):
            tile = sch.blockize(row)
            sch.annotate(tile, "permuted_layout", 1)
            sch.tensorize(tile, name)
        sch.tensorize(sch.get_loops(block)[-3], self.family.multiply)
        sch.tensorize(sch.get_loops(cleared)[-2], self.family.fill)
        tile = sch.blockize(rows[-1])
        sch.storage_align(tile, 0, -2, 32, 8)  # consecutive rows start in different banks
        sch.tensorize(tile, self.family.store)

    def write_back(self, staged: Any) -> None:
        sch = self.sch
        sch.reverse_compute_inline(sch.get_sblock("out"))
        row, column = sch.get_loops(staged)[-2:]
        group, vector = sch.split(column, [None, self.tile.store])  # split first: elements of a vector share indices
        _, warp, lane = sch.split(sch.fuse(row, group), [None, self.tile.warps, LANES])
        sch.bind(lane, "threadIdx.x")
        sch.bind(warp, "threadIdx.y")
        sch.vectorize(vector)

    def pipeline(self, step: Any) -> None:
        if self.tile.stages < 2:
            return
        self.sch.annotate(step, "software_pipeline_stage", [0, 0, self.tile.stages - 1])
        self.sch.annotate(step, "software_pipeline_order", [0, 1, 2])
        self.sch.annotate(step, "software_pipeline_async_stages", [0])
