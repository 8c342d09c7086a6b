# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""GPU kernels that move images [pixels, channels] in fp16; `spread` binds a kernel to threads.

Unbound kernels also run on a CPU, which is how their indexing is tested.
"""

from __future__ import annotations

from typing import Any

from socsched.compiler.environment import T, s_tir
from socsched.compiler.targets.cuda.activation import function
from socsched.compiler.targets.cuda.shapes import VECTOR

_ATTRIBUTES = {"tirx.noalias": True}
_THREADS = 128


def spread(function: Any) -> Any:
    """Return `function` with the loops of each of its blocks bound to GPU threads; a third loop is vectorised."""
    sch = s_tir.Schedule(function)
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        *outer, last = sch.get_loops(block)
        lanes = len(outer) == 2
        fused = sch.fuse(*outer) if lanes else sch.fuse(*outer, last)
        grid, threads = sch.split(fused, [None, _THREADS])
        sch.bind(grid, "blockIdx.x")
        sch.bind(threads, "threadIdx.x")
        if lanes:
            sch.vectorize(last)
    return sch.mod["main"].with_attr("tirx.is_scheduled", True)


def copy(pixels: int, source: int, start: int, count: int, total: int, first: int, relu: bool) -> Any:
    """Return copy(X[pixels, source], O[pixels, total]): channels from `start` of X to `first` of O, optionally
    rectified.

    Channels of O past `count` are zeroed if O holds nothing else (first = 0 and total < count + 16), so that padding
    channels are defined.
    """
    act = function(("relu",) if relu else ())
    written = total if first == 0 and total - count < 16 else count
    lanes = VECTOR if all(n % VECTOR == 0 for n in (source, start, count, total, first, written)) else 1
    groups = written // lanes

    @T.prim_func(s_tir=True, private=True)
    def moved(X: T.Buffer((pixels, source), "float16"), O: T.Buffer((pixels, total), "float16")):
        T.func_attr(_ATTRIBUTES)
        for x, y, z in T.grid(pixels, groups, lanes):
            with T.sblock("copy"):
                p, g, v = T.axis.remap("SSS", [x, y, z])
                O[p, first + g * lanes + v] = act(
                    T.if_then_else(g * lanes + v < count, X[p, start + g * lanes + v], T.float16(0))
                )

    return moved
