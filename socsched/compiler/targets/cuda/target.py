"""Stages compiled for CUDA GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from socsched.compiler.target import (
    PRECISIONS,
    Compilation,
    FunctionBuild,
    FunctionCode,
    Passes,
    Target,
    TargetSpec,
)
from socsched.compiler.targets.gpu_functions.program import FUNCTIONS
from socsched.descriptor.processors import TENSOR_CORES, capability
from socsched.errors import CompileError

_OWN_KEYS = ("note", "device")
"""What code does not depend on: remarks, and the number of the GPU that runs it."""


def resolve(entry: Mapping[str, Any], engine: str) -> TargetSpec:
    """Return the GPU of an entry; CompileError if the architecture is missing."""
    if "arch" not in entry:
        raise CompileError(f"{engine}: target cuda needs its architecture", "add `arch: sm_87` or the like")
    return TargetSpec("cuda", {key: value for key, value in entry.items() if key not in _OWN_KEYS}, False)


def passes(compilation: Compilation) -> Passes:
    """Return the passes for a GPU."""
    from socsched.compiler.targets.cuda.passes import choose

    return choose(compilation)


def precisions(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the precisions available for a GPU: int8 from the first architecture with rules."""
    new = capability(str(entry.get("arch", ""))) >= TENSOR_CORES
    return tuple(precision for precision in PRECISIONS if new or precision != "int8")


def function(asked: FunctionBuild) -> FunctionCode:
    """Return a function's machine code, launch plan and tables; MachineError when nvcc is missing."""
    from socsched.compiler.targets.gpu_functions.code import build_for_cuda

    return build_for_cuda(asked)


TARGET = Target(resolve, passes, precisions, tuned_to_share=True, functions=dict.fromkeys(FUNCTIONS, function))
