"""Functions as OpenCL sources with a launch plan, in the form of networks (`launch_plan`)."""

from __future__ import annotations

from socsched.compiler.target import FunctionBuild, FunctionCode
from socsched.compiler.targets.gpu_functions.registry import program_of, write_program
from socsched.compiler.targets.gpu_functions.request import Request
from socsched.compiler.targets.opencl.plan_format import PLAN, WEIGHTS

SOURCE = "stage.cl"
_ITEMS = 256
"""Items of a group where the platform states no limit, as TVM assumes of OpenCL."""


def build(asked: FunctionBuild) -> FunctionCode:
    """Return the files of a function for a mobile GPU; images are plain NCHW, as in its networks."""
    most = int(asked.spec.tvm.get("max_threads_per_block", _ITEMS))
    items = 1 << min(most, _ITEMS).bit_length() - 1
    program = program_of(Request(asked.model, asked.precision, "NCHW", items, items))
    write_program(program, asked.folder, SOURCE)
    (asked.folder / SOURCE).write_text(program.source("opencl"))
    notes = ("kernels and launch plan: no library, executed by an OpenCL host program (compiler.targets.opencl.run)",)
    return FunctionCode((PLAN, SOURCE, WEIGHTS), *program.tensors, notes)
