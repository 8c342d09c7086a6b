"""Functions as code with a launch list: CUDA kernels compiled by nvcc, and OpenCL sources."""

from __future__ import annotations

from collections.abc import Callable

from socsched.compiler.launch_list import OPENCL
from socsched.compiler.target import FunctionBuild, FunctionCode
from socsched.compiler.targets.gpu_functions import decoders, inputs
from socsched.compiler.targets.gpu_functions.program import FunctionRequest, Program, portable
from socsched.errors import CompileError

IMPLEMENTATIONS: dict[str, Callable[[FunctionRequest], Program]] = {
    "voxelise": inputs.voxelise,
    "anchor-decode": decoders.decode_anchors,
    "center-decode": decoders.decode_centres,
    "camera-preprocess": inputs.preprocess,
    "camera-decode": decoders.decode_image_boxes,
}
CUDA_OPTIONS = ("-fmad=false", "-lineinfo")
"""Products and sums round as on the host: a fused multiply-add would move points across cell borders.  Lines are for
profilers."""
_ITEMS, _MOST_ITEMS = 256, 1024
"""Items of a group, on OpenCL where the platform states no limit, as TVM assumes of it; the most on CUDA."""


def program_of(asked: FunctionRequest) -> Program:
    """Return the program of a model's function; CompileError if no device implementation is known."""
    if asked.model.device not in IMPLEMENTATIONS:
        raise CompileError(
            f"{asked.model.name} has no implementation for GPUs", "place the stage on a processor (engine kind cpu)"
        )
    if asked.precision not in ("fp32", "fp16"):
        raise CompileError(f"{asked.model.name}: no kernels in {asked.precision}", "plan it in fp16 or fp32")
    return IMPLEMENTATIONS[asked.model.device](asked)


def build_for_cuda(asked: FunctionBuild) -> FunctionCode:
    """Return the files of a function for a GPU; images are NHWC in fp16, as in its networks, else plain NCHW.

    MachineError without a CUDA toolkit.
    """
    from socsched.compiler.targets.cuda.toolkits import BINARY, SOURCE, toolkit_for

    layout = "NHWC" if asked.precision == "fp16" else "NCHW"
    program = program_of(FunctionRequest(asked.model, asked.precision, layout, _ITEMS, _MOST_ITEMS))
    arch, folder = str(asked.spec.tvm["arch"]), asked.folder
    files = OPENCL.write(folder, program.plan(), bytes(program.weights), source=SOURCE)
    source = program.source("cuda")
    (folder / SOURCE).write_text(source)
    (folder / BINARY).write_bytes(toolkit_for(arch).build(source, arch, CUDA_OPTIONS))
    return FunctionCode((BINARY, SOURCE, *files), *program.tensors, (f"device code for {arch} only",))


def build_for_opencl(asked: FunctionBuild) -> FunctionCode:
    """Return the files of a function for a mobile GPU; images are plain NCHW, as in its networks."""
    most = int(asked.spec.tvm.get("max_threads_per_block", _ITEMS))
    items = 1 << min(most, _ITEMS).bit_length() - 1
    program, source = (
        program_of(FunctionRequest(asked.model, asked.precision, "NCHW", items, items)),
        asked.folder / "stage.cl",
    )
    plan, weights = OPENCL.write(asked.folder, program.plan(), bytes(program.weights), source=source.name)
    source.write_text(portable(program.source("opencl")))
    notes = ("kernels and launch plan: no library, executed by an OpenCL host program",)
    return FunctionCode((plan, source.name, weights), *program.tensors, notes)
