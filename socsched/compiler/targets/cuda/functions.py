"""Functions as CUDA kernels with a launch plan."""

from __future__ import annotations

from socsched.compiler.target import FunctionBuild, FunctionCode
from socsched.compiler.targets.cuda.nvcc import find_nvcc, write_cubin
from socsched.compiler.targets.gpu_functions.registry import program_of, write_program
from socsched.compiler.targets.gpu_functions.request import Request
from socsched.compiler.targets.opencl.plan_format import PLAN, WEIGHTS

SOURCE, BINARY = "stage.cu", "stage.cubin"
_ITEMS, _MOST_ITEMS = 256, 1024
OPTIONS = ("-fmad=false", "-lineinfo")
"""Products and sums round as on the host: a fused multiply-add would move points across cell borders.  Lines are for
profilers."""


def build(asked: FunctionBuild) -> FunctionCode:
    """Return the files of a function for a GPU; images are NHWC in fp16, as in its networks, else plain NCHW."""
    layout = "NHWC" if asked.precision == "fp16" else "NCHW"
    program = program_of(Request(asked.model, asked.precision, layout, _ITEMS, _MOST_ITEMS))
    arch, folder = str(asked.spec.tvm["arch"]), asked.folder
    write_program(program, folder, SOURCE)
    (folder / SOURCE).write_text(program.source("cuda"))
    write_cubin(find_nvcc(), folder / SOURCE, folder / BINARY, arch, OPTIONS)
    return FunctionCode((BINARY, SOURCE, PLAN, WEIGHTS), *program.tensors, (f"device code for {arch} only",))
