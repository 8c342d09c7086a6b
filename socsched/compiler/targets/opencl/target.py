"""Stages as OpenCL sources with a launch plan, for mobile GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from socsched.compiler.target import Compilation, FunctionBuild, FunctionCode, Passes, Target, TargetSpec
from socsched.compiler.targets.gpu_functions.program import FUNCTIONS
from socsched.graph.rules import COMPILED

_LIMITS = ("max_threads_per_block", "max_shared_memory_per_block")


def resolve(entry: Mapping[str, Any], engine: str) -> TargetSpec:
    """Return the GPU of an entry."""
    limits = {key: value for key, value in entry.items() if key in _LIMITS}
    return TargetSpec("opencl", {"kind": "opencl", **limits, "host": {"kind": "llvm"}}, False)


def passes(compilation: Compilation) -> Passes:
    """Return the passes to kernels, launch plan and weights."""
    from socsched.compiler.targets.opencl.passes import choose

    return choose(compilation)


def function(asked: FunctionBuild) -> FunctionCode:
    """Return a function's sources, launch plan and tables."""
    from socsched.compiler.targets.gpu_functions.code import build_for_opencl

    return build_for_opencl(asked)


TARGET = Target(resolve, passes, lambda entry: COMPILED["opencl"], functions=dict.fromkeys(FUNCTIONS, function))
