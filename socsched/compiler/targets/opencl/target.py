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


# Sources in half precision for devices with and without half arithmetic.

_WITHOUT_HALF = """\
#if !defined(cl_khr_fp16) && defined(__clang__)
typedef _Float16 half_2 __attribute__((ext_vector_type(2)));
typedef _Float16 half_4 __attribute__((ext_vector_type(4)));
typedef _Float16 half_8 __attribute__((ext_vector_type(8)));
#define cl_khr_fp16
#define half _Float16
#define half2 half_2
#define half4 half_4
#define half8 half_8
#define convert_half(value) ((_Float16)(value))
#define convert_float(value) ((float)(value))
static _Float16 __attribute__((overloadable)) max(_Float16 a, _Float16 b) { return a > b ? a : b; }
static _Float16 __attribute__((overloadable)) min(_Float16 a, _Float16 b) { return a < b ? a : b; }
static _Float16 __attribute__((overloadable)) fmax(_Float16 a, _Float16 b) { return a > b ? a : b; }
static _Float16 __attribute__((overloadable)) fmin(_Float16 a, _Float16 b) { return a < b ? a : b; }
static _Float16 __attribute__((overloadable)) exp(_Float16 a) { return (_Float16)exp((float)a); }
static _Float16 __attribute__((overloadable)) tanh(_Float16 a) { return (_Float16)tanh((float)a); }
static _Float16 __attribute__((overloadable)) sqrt(_Float16 a) { return (_Float16)sqrt((float)a); }
static _Float16 __attribute__((overloadable)) floor(_Float16 a) { return (_Float16)floor((float)a); }
static _Float16 __attribute__((overloadable)) round(_Float16 a) { return (_Float16)round((float)a); }
#endif
"""


def portable(source: str) -> str:
    """Return an OpenCL source that also compiles where a device lacks half arithmetic: PoCL's clang has _Float16."""
    return _WITHOUT_HALF + source if "cl_khr_fp16" in source else source
