"""How a lowered module becomes CUDA source: TVM's pipeline with the changes that the rules need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from socsched.compile.environment import relax, tirx, tvm

OPTIONS = {"tirx.use_async_copy": 1, "tirx.disable_cse_tir": True}
"""Pass configuration: asynchronous copies become cp.async; common subexpressions are left to nvcc."""

_WARP_BUFFERS = 8  # at most; two operands and the sums are what the rules use


def build(module: Any, target: Mapping[str, Any]) -> Any:
    """Return the Relax executable of a module of scheduled functions for a CUDA target."""
    chosen = tvm.target.Target(dict(target))
    with chosen, tvm.transform.PassContext(config=OPTIONS):
        return relax.build(module, target=chosen, tir_pipeline=tir_pipeline())


def tir_pipeline() -> Any:
    """Return TVM's pipeline for scheduled functions, the lowering of warp buffers repeated.

    One pass of LowerWarpMemory turns only the first warp buffer of a sequence of statements into registers; the others
    stay arrays indexed by the lane.
    """
    from tvm.s_tir.pipeline import default_s_tir_pipeline
    from tvm.tirx.compilation_pipeline import PIPELINE_MAP

    def make() -> Any:
        lower, host, _ = default_s_tir_pipeline()
        passes = [tirx.transform.LowerWarpMemory() for _ in range(_WARP_BUFFERS)]
        device = [tirx.transform.StmtSimplify(), tirx.transform.LowerIntrin()]
        return lower, host, lambda: tvm.ir.transform.Sequential([*passes, *device])

    PIPELINE_MAP["socsched_cuda"] = make
    return "socsched_cuda"
