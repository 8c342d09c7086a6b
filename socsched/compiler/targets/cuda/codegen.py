"""From a lowered module to CUDA source: TVM's passes with the changes the rules need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from socsched.compiler.environment import relax, tirx, tvm

OPTIONS = {"tirx.use_async_copy": 1, "tirx.disable_cse_tir": True}
"""Pass configuration: asynchronous copies become cp.async; common subexpressions are left to nvcc."""

_WARP_BUFFERS = 8  # upper bound; the rules use two operands and the sums


def build(module: Any, target: Mapping[str, Any], general: bool = False) -> Any:
    """Return the Relax executable of a module of finished functions for a CUDA target.

    With `general` the module also holds operators, which are legalised and scheduled by TVM's general rules.
    """
    chosen = tvm.target.Target(dict(target))
    with chosen, tvm.transform.PassContext(config=OPTIONS):
        return relax.build(module, target=chosen, relax_pipeline=relax_pipeline(general), tir_pipeline=tir_pipeline())


def relax_pipeline(general: bool = False) -> Any:
    """Return the passes from Relax to the virtual machine; without `general` there is nothing to schedule."""
    return tvm.transform.Sequential(
        [
            *relax_front(general),
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            relax.transform.StaticPlanBlockMemory(),
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            relax.transform.AttachGlobalSymbol(),
        ]
    )


def relax_front(general: bool = False) -> list[Any]:
    """Return the first of these passes, after which all operators are calls of finished functions."""
    return [relax.transform.LegalizeOps(), *(_general_schedules() if general else ())]


def _general_schedules() -> list[Any]:
    """Return TVM's schedules for GPUs, reductions first; functions already scheduled are left unchanged."""
    from tvm.s_tir import dlight

    return [
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        dlight.ApplyDefaultSchedule(dlight.gpu.GEMV(), dlight.gpu.Reduction(), dlight.gpu.Fallback()),
    ]


def tir_pipeline() -> Any:
    """Return TVM's pipeline for scheduled functions, with repeated lowering of warp buffers.

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
